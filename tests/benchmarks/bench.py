"""What every family of measures is given: how much to measure, a fresh gq, Slurm where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.benchmarks.baseline import Baseline
from tests.benchmarks.gq_side import GqSide
from tests.benchmarks.row import Beside, Row
from tests.benchmarks.scale import Scale
from tests.benchmarks.side import Side


@dataclass(frozen=True)
class Bench:
    """One family's surroundings."""

    family: str
    scale: Scale
    baseline: Baseline
    gq: Callable[[], AbstractContextManager[GqSide]]
    """A cluster of its own, ended with the block."""
    wide_gq: Callable[[int], AbstractContextManager[GqSide]]
    """The same, with room for so many jobs of one CPU."""
    slurm: Side | None

    def on_slurm(self, measured: Callable[[Side], list[float]]) -> list[float]:
        """The same, measured on Slurm; nothing where it is not installed."""
        return measured(self.slurm) if self.slurm is not None else []


Family = Callable[[Bench], Iterator[Row]]


def beside(slurm: list[float], of: Callable[[list[float]], float], otherwise: Beside) -> Beside:
    """Slurm's value, else one of the baseline."""
    return Beside("Slurm", of(slurm)) if slurm else otherwise
