"""The only reader of wall time: seconds since the epoch that never run backwards.

When the machine's clock is set back, this clock continues at half speed until the machine's has caught up, so that
timers still expire; when the machine's clock is set forward, this clock follows at once and reports the leap: during it
nothing could happen, since the machine slept or no time passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

CATCH_UP_RATE = 0.5
MIN_LEAP_S = 2.0
"""Minimum leap; smaller differences are noise of the two clocks."""


class Clock:
    """The clock of a process; `wall` and `monotonic` are the machine's clocks; the second stops during sleep."""

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
        if wall - self._at - passed_s >= MIN_LEAP_S:
            self._leapt_s += wall - self._at - passed_s
        self._at = max(wall, self._at + CATCH_UP_RATE * passed_s)
        return self._at

    def take_leap_s(self) -> float:
        """Return the seconds that `now` leapt forward since the last call."""
        leapt_s, self._leapt_s = self._leapt_s, 0.0
        return leapt_s
