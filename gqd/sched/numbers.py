"""What may fit when, told by numbers alone, before anything is placed: sums of CPUs and memory, masks of GPUs.  Pure.

A bound from above: where it says no, nothing fits.  A timeline asks it hundreds of times for one that it then places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gqd.sched.feasible import keeps_cores
from gqd.sched.placement import may_fit
from gqd.sched.shape import Shape
from gqd.sched.view import Cell, Overlay
from gqd.state.queue import Integers


class Rows(NamedTuple):
    """What cells give or take, as columns."""

    place: Integers
    cpus: Integers
    memory: Integers
    gpus: Integers
    """Masks."""


def rows_of(cells: Sequence[Cell]) -> Rows:
    return Rows(
        np.array([cell[0] for cell in cells], np.int64),
        np.array([cell[1].bit_count() for cell in cells], np.int64),
        np.array([cell[3] for cell in cells], np.int64),
        np.array([cell[2] for cell in cells], np.int64),
    )


class Sums(NamedTuple):
    """What ends give back, in order."""

    bounds: list[int]
    """By number of ends: how many of the rows are theirs."""
    rows: Rows

    @classmethod
    def of(cls, endings: Sequence[Sequence[Cell]]) -> Sums:
        bounds = np.cumsum([0, *map(len, endings)]).tolist()
        return cls(bounds, rows_of([cell for cells in endings for cell in cells]))


@dataclass(slots=True)
class Numbers:
    """What is free after so many ends (`count`)."""

    sums: Sums
    count: int
    cpus: Integers
    memory: Integers
    gpus: Integers
    """Masks."""

    @classmethod
    def now(cls, overlay: Overlay, sums: Sums) -> Numbers:
        return cls(sums, 0, overlay.cpu_counts, overlay.memory, np.array(overlay.free_gpus, np.int64))

    def after(self, count: int) -> Numbers:
        """So many ends; never fewer than of this one."""
        if count == self.count:
            return self
        bounds, rows = self.sums.bounds, self.sums.rows
        which = slice(bounds[self.count], bounds[count])
        later = Numbers(self.sums, count, self.cpus.copy(), self.memory.copy(), self.gpus.copy())
        place = rows.place[which]
        np.add.at(later.cpus, place, rows.cpus[which])
        np.add.at(later.memory, place, rows.memory[which])
        np.bitwise_or.at(later.gpus, place, rows.gpus[which])
        return later


class Bound:
    """Of one shape, on these places."""

    def __init__(self, overlay: Overlay, shape: Shape, candidates: Integers | list[int]) -> None:
        self._probe = copy(overlay)
        self._shape = shape
        self._candidates = candidates

    def may_fit(self, free: Numbers, taken: Iterable[Rows] = ()) -> bool:
        """`taken`: what is not to be used, whose CPUs and memory are left out of account."""
        masks = self._probe.fleet.gpu_masks
        assert masks is not None, "its numbers tell"
        gpus = free.gpus & masks
        for one in taken:
            np.bitwise_and.at(gpus, one.place, ~one.gpus)
        probe = self._probe
        probe.gpu_counts = np.bitwise_count(gpus).astype(np.int64)
        probe.cpu_counts, probe.memory = free.cpus, free.memory
        return may_fit(probe, self._shape, self._candidates)


def numbers_tell(overlay: Overlay, shape: Shape) -> bool:
    """Whether it fits hangs on sums per node, which only grow as jobs end."""
    kind = overlay.fleet.kind((shape.gpu_type, shape.min_gpu_mem_mib))
    return overlay.fleet.gpu_masks is not None and kind.is_pure and not (shape.roles or keeps_cores(overlay, shape))
