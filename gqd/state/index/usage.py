"""What was used, decayed by half-lives, and what of a budget is used up.  Pure, and exact at any instant.

Usage is kept as a value at an instant and the rate at which it grows: that is enough to tell it at any later instant,
however long ago the last event was.  The rate counts whole millionths of a weighted GPU, so that what is added when a
job starts is taken away again when it ends, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MILLION = 1_000_000
"""Of a billing rate: one GPU of weight 1."""
_LN2 = math.log(2.0)

HalfLives = tuple[tuple[float, float | None], ...]
"""Half-lives that held before, oldest first: until when, and how long they were."""
MOST_HALF_LIVES = 16
"""Remembered; what is reported later than so many changes ago decays as the oldest of them says."""


@dataclass(slots=True)
class DecayedUsage:
    """Weighted GPU-seconds, of which half is forgotten in each half-life (None: never)."""

    value: float = 0.0
    at: float = 0.0
    rate: int = 0
    """Millionths of a weighted GPU in use."""

    def value_at(self, now: float, half_life_s: float | None) -> float:
        """Also of an instant before the last event: then what was used since is taken off again."""
        passed_s = now - self.at
        if half_life_s is None:
            return self.value + self.rate / MILLION * passed_s
        kept = math.exp2(-passed_s / half_life_s)
        return self.value * kept + self.rate / MILLION * half_life_s / _LN2 * (1.0 - kept)

    def advance(self, now: float, half_life_s: float | None) -> None:
        self.value, self.at = self.value_at(now, half_life_s), now

    def change_rate(self, at: float, by: int, half_life_s: float | None, earlier: HalfLives = ()) -> None:
        """A job started or ended at `at`, which may be before what was heard last: nodes say when it was."""
        if at >= self.at:
            self.advance(at, half_life_s)
        else:
            late = DecayedUsage(0.0, at, by)
            for until, before_s in earlier:
                if late.at < until:
                    late.advance(min(until, self.at), before_s)
            self.value += late.value_at(self.at, half_life_s)
        self.rate += by


@dataclass(slots=True)
class Budget:
    """Weighted GPU-seconds used since the day, week or month began."""

    began_at: float
    used: float = 0.0
    at: float = 0.0
    rate: int = 0

    def used_at(self, now: float, began_at: float) -> float:
        """`began_at`: of the day, week or month that `now` is in."""
        since = max(self.at, began_at)
        before = self.used if began_at <= self.began_at else 0.0
        return before + self.rate / MILLION * (now - since)

    def advance(self, now: float, began_at: float) -> None:
        self.used, self.at, self.began_at = self.used_at(now, began_at), now, max(began_at, self.began_at)

    def change_rate(self, at: float, by: int, began_at: float) -> None:
        """`began_at`: of the day, week or month of the later of `at` and the last event."""
        if at >= self.at:
            self.advance(at, began_at)
        else:
            self.used += by / MILLION * (self.at - max(at, self.began_at))
        self.rate += by
