"""Runs start estimates in slices, and limits their share of the loop's time.

Owns only the pace.  Estimates of a long queue may take seconds of work.  A slice takes milliseconds (`SLICE_S`), and
the next one waits `REST` times as long (less if a client waits for the answer), so that requests, reports and planning
passes have precedence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from gqd.control.turn import Turn

SLICE_S = 0.004
WORK = 16
"""Units of work between two readings of the clock."""
REST = 9.0
REST_WHEN_ASKED = 1.0


class Estimated(Protocol):
    """The part of the controller that makes estimates."""

    def wants_estimates(self, now: float) -> bool: ...
    def is_asked_for_estimates(self) -> bool: ...
    def estimate(self, budget: int, now: float) -> Turn: ...


class Estimating:
    """`timer` counts seconds of this process."""

    def __init__(self, core: Estimated, timer: Callable[[], float] = time.monotonic) -> None:
        self._core = core
        self._timer = timer
        self._rests_until = 0.0

    def is_due(self, now: float) -> bool:
        """Whether a slice should run in this turn."""
        return self._timer() >= self._rests_until and self._core.wants_estimates(now)

    def rest_s(self, now: float) -> float | None:
        """Seconds until the next slice may run; None: none is wanted."""
        return max(0.0, self._rests_until - self._timer()) if self._core.wants_estimates(now) else None

    def slice(self, now: float) -> Turn:
        """Work on estimates for some milliseconds; returns the turn that ends a forecast task, else an empty one."""
        began = self._timer()
        turn = Turn()
        while not turn.events and not turn.effects and self._timer() - began < SLICE_S:
            if not self._core.wants_estimates(now):
                break
            turn = self._core.estimate(WORK, now)
        ended = self._timer()
        rest = REST_WHEN_ASKED if self._core.is_asked_for_estimates() else REST
        self._rests_until = ended + rest * (ended - began)
        return turn
