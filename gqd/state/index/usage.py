"""Usage that decays by half-lives, and the usage of budgets.  Pure, and exact at any instant.

Usage is stored as a value at an instant and the rate at which it grows, which determines it at any later instant.  The
rate is an integer in millionths of a weighted GPU, so that the end of a job subtracts exactly what its start added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MILLION = 1_000_000
"""Billing rate of one GPU of weight 1."""
_LN2 = math.log(2.0)

HalfLives = tuple[tuple[float, float | None], ...]
"""Earlier half-lives, oldest first: (end of validity, half-life in seconds or None)."""
MAX_HALF_LIVES = 16
"""Maximum number of stored half-lives; usage reported later than that decays by the oldest."""


@dataclass(slots=True)
class DecayedUsage:
    """Weighted GPU-seconds, of which half are forgotten in each half-life (None: never)."""

    value: float = 0.0
    at: float = 0.0
    rate: int = 0
    """Weighted GPUs in use, in millionths."""

    def value_at(self, now: float, half_life_s: float | None) -> float:
        """Usage at `now`, which may be before the last event: usage since then is subtracted."""
        passed_s = now - self.at
        if half_life_s is None:
            return self.value + self.rate / MILLION * passed_s
        remaining = math.exp2(-passed_s / half_life_s)
        return self.value * remaining + self.rate / MILLION * half_life_s / _LN2 * (1.0 - remaining)

    def advance(self, now: float, half_life_s: float | None) -> None:
        self.value, self.at = self.value_at(now, half_life_s), now

    def change_rate(self, at: float, by: int, half_life_s: float | None, earlier: HalfLives = ()) -> None:
        """Count a job that started or ended at `at`, which may be before the last event since nodes report late."""
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
    """Weighted GPU-seconds used since the begin of the day, week or month."""

    began_at: float
    used: float = 0.0
    at: float = 0.0
    rate: int = 0

    def used_at(self, now: float, began_at: float) -> float:
        """Usage at `now`; `began_at`: begin of the day, week or month that contains `now`."""
        since = max(self.at, began_at)
        before = self.used if began_at <= self.began_at else 0.0
        return before + self.rate / MILLION * (now - since)

    def advance(self, now: float, began_at: float) -> None:
        self.used, self.at, self.began_at = self.used_at(now, began_at), now, max(began_at, self.began_at)

    def change_rate(self, at: float, by: int, began_at: float) -> None:
        """Count a job that started or ended at `at`; `began_at`: begin of the period of the later of `at` and the last
        event."""
        if at >= self.at:
            self.advance(at, began_at)
        else:
            self.used += by / MILLION * (self.at - max(at, self.began_at))
        self.rate += by
