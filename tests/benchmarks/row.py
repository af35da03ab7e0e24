"""One line of the table: what was measured, what stands beside it, and the bar it is held to.  No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_SHOWN_AS = {"s": (("s", 1.0), ("ms", 1e-3)), "MiB": (("GiB", 1024.0), ("MiB", 1.0))}
"""Unit of a value → the units that it is shown in, and from how much on."""


class Beside(NamedTuple):
    """The same, done by another, in the same unit and in the same run."""

    name: str
    value: float


class Bar(NamedTuple):
    """What the value must reach.  ``is_floor``: at least, else at most."""

    limit: float
    text: str
    is_floor: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.is_floor else value <= self.limit


class Row(NamedTuple):
    family: str
    measure: str
    value: float
    unit: str
    """``s``, ``MiB``, ``/s`` or what is counted."""
    samples: int
    beside: Beside | None = None
    bar: Bar | None = None

    @property
    def ratio(self) -> float | None:
        """This over that beside it: of seconds less is better, of things per second more."""
        return self.value / self.beside.value if self.beside is not None and self.beside.value else None

    @property
    def holds(self) -> bool | None:
        return None if self.bar is None else self.bar.holds(self.value)


def at_most(limit: float, unit: str) -> Bar:
    return Bar(limit, f"≤ {quantity(limit, unit)}")


def at_least(limit: float, unit: str) -> Bar:
    return Bar(limit, f"≥ {quantity(limit, unit)}", is_floor=True)


def at_most_times(factor: float, of: Beside) -> Bar:
    """So many times this, which stands beside it unless Slurm does."""
    return Bar(factor * of.value, f"≤ {factor:g} ×")


def none_at_all() -> Bar:
    return Bar(0.0, "0")


def quantity(value: float, unit: str) -> str:
    """A number with three digits that count, in a unit that suits it."""
    for name, size in _SHOWN_AS.get(unit, ()):
        if value >= size:
            return f"{_digits(value / size)} {name}"
    if unit == "s":
        return f"{_digits(value / 1e-6)} µs"
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed; 0.5: the median."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)
