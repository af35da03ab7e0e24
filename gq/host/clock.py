"""The only reader of wall time: seconds since the epoch that never run backwards.

When the machine's clock is set back, this one goes on at half speed until the machine's has caught up, so that
timers still run out; when it is set forward, this one follows at once, and says by how much: in that time nothing
could happen, neither on this machine (it slept) nor in anybody's patience.
"""

from __future__ import annotations

import time
from collections.abc import Callable

CATCH_UP_RATE = 0.5
LEAST_LEAP_S = 2.0
"""What is less is the clocks' own unsteadiness."""


class Clock:
    """One per process; `wall` and `monotonic` are the machine's clocks, of which the second stops while it sleeps."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._at = wall()
        self._read_at = monotonic()
        self._leapt_s = 0.0

    def now(self) -> float:
        read_at = self._monotonic()
        passed_s = read_at - self._read_at
        self._read_at = read_at
        wall = self._wall()
        if wall - self._at - passed_s >= LEAST_LEAP_S:
            self._leapt_s += wall - self._at - passed_s
        self._at = max(wall, self._at + CATCH_UP_RATE * passed_s)
        return self._at

    def take_leap_s(self) -> float:
        """By how much `now` has leapt forward since this was last asked, in seconds that nobody lived through."""
        leapt_s, self._leapt_s = self._leapt_s, 0.0
        return leapt_s
