"""The only reader of wall time: seconds since the epoch that never run backwards.

When the machine's clock is set back, this one goes on at half speed until the machine's has caught up, so that
timers still run out; when it is set forward, this one follows at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

CATCH_UP_RATE = 0.5


class Clock:
    """One per process; `wall` and `monotonic` are the machine's clocks."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._at = wall()
        self._read_at = monotonic()

    def now(self) -> float:
        read_at = self._monotonic()
        passed_s = read_at - self._read_at
        self._read_at = read_at
        self._at = max(self._wall(), self._at + CATCH_UP_RATE * passed_s)
        return self._at
