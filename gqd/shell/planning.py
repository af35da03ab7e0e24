"""Runs the planner in slices between which requests are handled, and limits its share of the loop's time.

Owns only the pace.  A pass over a long queue takes long, and while clients submit and jobs end a pass is always wanted.
So after each pass the planner rests as long as the pass took (times `REST`): a short pass is followed by the next at
once, and a long one leaves half of the time to everything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from gqd.control.turn import Turn
from gqd.sched.snapshot.model import Snapshot
from gqd.state.plan import Plan

SLICE = 64
"""Units of work between two readings of the clock."""
SLICE_S = 0.01
"""Length of a slice; a request waits at most for one slice and `SLICE` units of work."""
REST = 1.0


class Planner(Protocol):
    """The planner, as implemented by `gqd.sched.planner.Planner`."""

    @property
    def is_busy(self) -> bool: ...
    def begin(self, snapshot: Snapshot) -> None: ...
    def step(self, budget: int) -> Plan | None: ...


class Planned(Protocol):
    """The part of the controller that takes part in planning."""

    def wants_plan(self, now: float) -> bool: ...
    def snapshot(self, now: float) -> Snapshot: ...
    def adopt(self, plan: Plan, now: float) -> Turn: ...


class Planning:
    """`timer` counts seconds of this process."""

    def __init__(self, core: Planned, planner: Planner, timer: Callable[[], float] = time.monotonic) -> None:
        self._core = core
        self._planner = planner
        self._timer = timer
        self._spent_s = 0.0
        self._rests_until = 0.0
        self.passes = 0

    def is_due(self, now: float) -> bool:
        """Whether a slice should run in this turn."""
        return self._planner.is_busy or (self._core.wants_plan(now) and self._timer() >= self._rests_until)

    @property
    def is_under_way(self) -> bool:
        return self._planner.is_busy

    def rest_s(self, now: float) -> float | None:
        """Seconds until the next pass may begin; None: none is wanted."""
        return max(0.0, self._rests_until - self._timer()) if self._core.wants_plan(now) else None

    def slice(self, now: float) -> Turn:
        """Plan for one slice; returns the turn of the adopted plan if the pass ends, else an empty turn."""
        began = self._timer()
        if not self._planner.is_busy:
            self._spent_s = 0.0
            self._planner.begin(self._core.snapshot(now))
        plan = self._planner.step(SLICE)
        while plan is None and self._timer() - began < SLICE_S:
            plan = self._planner.step(SLICE)
        turn = Turn() if plan is None else self._core.adopt(plan, now)
        ended = self._timer()
        self._spent_s += ended - began
        if plan is not None:
            self.passes += 1
            self._rests_until = ended + REST * self._spent_s
        return turn
