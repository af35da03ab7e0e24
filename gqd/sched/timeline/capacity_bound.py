"""What may fit when, told by numbers alone, before anything is placed: sums of CPUs and memory, masks of GPUs.  Pure.

A bound from above: where it says no, nothing fits.  A timeline asks it hundreds of times for one that it then places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np

from gqd.sched.placement.feasible import counts_memory, keeps_cores, room_of
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import Cell, Overlay
from gqd.sched.snapshot.node_table import MAX_MASK_BITS, NodeTable, as_node_indices
from gqd.state.index.queue import Booleans, Integers

FEW = 32
"""So few ends are looked at one by one, all at once."""
MOST = 65_536
"""So many numbers are looked at at once, or few of many nodes."""


_BITS = (1 << MAX_MASK_BITS) - 1
"""Of masks of GPUs; where a node has more, numbers do not tell, and nobody looks at them."""


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
        np.array([cell[2] & _BITS for cell in cells], np.int64),
    )


def packed(cells: Sequence[Cell]) -> bytes:
    """What cells give back, as the rows of `Sums`: so those of hundreds of ends are put together at once."""
    return np.array([(one[0], one[1].bit_count(), one[3], one[2] & _BITS) for one in cells], np.int64).tobytes()


_ROW = len(packed([(0, 0, 0, 0)]))


class Sums(NamedTuple):
    """What ends give back, in order."""

    bounds: Integers
    """By number of ends: how many of the rows are theirs."""
    rows: Rows

    @classmethod
    def of(cls, ends: Sequence[bytes]) -> Sums:
        """Each as `packed`."""
        sizes = np.array([0, *map(len, ends)], np.int64)
        rows = np.frombuffer(b"".join(ends), np.int64).reshape(-1, 4).T
        return cls(np.cumsum(sizes) // _ROW, Rows(*rows))


class Bound:
    """Of one shape, on these places of an overlay, as more and more ends give back what they have."""

    def __init__(self, overlay: Overlay, sums: Sums, shape: Shape, candidates: Integers | list[int]) -> None:
        self._node_table = overlay.node_table
        self._sums = sums
        self._shape = shape._replace(resources=()) if shape.resources else shape
        self._counts_memory = counts_memory(self._shape)
        places = as_node_indices(candidates)
        self._is_all = len(places) == len(overlay.nodes)
        self._places = overlay.node_table.all_places if self._is_all else places
        self._count = 0
        """So many ends are in the next three; none is asked about with fewer."""
        self._cpus = overlay.cpu_counts
        self._memory = overlay.memory
        self._gpus = np.array(overlay.free_gpus, np.int64)

    def first(self, low: int, high: int, taken: Sequence[Rows] = ()) -> int | None:
        """After the fewest ends, more than `low` and `high` at the most, at which it may fit; None: after none.

        More is free after more ends.  So a number of them is looked at at once, and then those before the first that
        has room.
        """
        most = max(2, MOST // max(1, len(self._places)))
        while low < high:
            number = min(most, high - low if high - low <= FEW else isqrt(high - low) + 1)
            counts = low + 1 + np.arange(number) * (high - low - 1) // max(1, number - 1)
            has_room = self._have_room(counts, taken)
            found = int(has_room.argmax())
            if not has_room[found]:
                return None
            high = int(counts[found])
            if found:
                low = int(counts[found - 1])
            if high - low == 1:
                return high
            if low > self._count:
                self._advance(low)
        return None

    def may_fit(self, count: int, taken: Sequence[Rows] = ()) -> bool:
        """`taken`: what is not to be used, whose CPUs and memory are left out of account."""
        return bool(self._have_room(np.array([count], np.int64), taken)[0])

    def _advance(self, count: int) -> None:
        cpus, memory, gpus = self._free(np.array([count], np.int64))
        self._count, self._cpus, self._memory, self._gpus = count, cpus[0], memory[0], gpus[0]

    def _free(self, counts: Integers) -> tuple[Integers, Integers, Integers]:
        """CPUs, memory and masks of GPUs after so many ends each, which are in order; a row for each of `counts`.

        Memory as it is now, where nobody asks for it.
        """
        edges = self._sums.bounds[counts]
        first, last = int(self._sums.bounds[self._count]), int(edges[-1])
        row = np.searchsorted(edges, np.arange(first, last), side="right")
        all_rows = self._sums.rows
        cell = row * len(self._cpus) + all_rows.place[first:last]
        shape = (len(counts), len(self._cpus))
        cpus, gpus = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        cpus[0], gpus[0] = self._cpus, self._gpus
        np.add.at(cpus.reshape(-1), cell, all_rows.cpus[first:last])
        np.bitwise_or.at(gpus.reshape(-1), cell, all_rows.gpus[first:last])
        if len(counts) > 1:
            np.add.accumulate(cpus, axis=0, out=cpus)
            np.bitwise_or.accumulate(gpus, axis=0, out=gpus)
        if not self._counts_memory:
            return cpus, np.broadcast_to(self._memory, shape), gpus
        memory = np.zeros(shape, np.int64)
        memory[0] = self._memory
        np.add.at(memory.reshape(-1), cell, all_rows.memory[first:last])
        return cpus, np.add.accumulate(memory, axis=0, out=memory), gpus

    def _have_room(self, counts: Integers, taken: Sequence[Rows]) -> Booleans:
        masks = self._node_table.gpu_masks
        assert masks is not None, "its numbers tell"
        cpus, memory, gpus = self._free(counts)
        if taken:
            masks = masks.copy()
            for one in taken:
                np.bitwise_and.at(masks, one.place, ~one.gpus)
        counted = np.bitwise_count(gpus & masks).astype(np.int64)
        if not self._is_all:
            cpus, memory, counted = cpus[:, self._places], memory[:, self._places], counted[:, self._places]
        return _have_room(self._node_table, self._shape, self._places, cpus, memory, counted)


def _have_room(
    node_table: NodeTable, shape: Shape, places: Integers, cpus: Integers, memory: Integers, gpus: Integers
) -> Booleans:
    """Whether a job of this shape may fit where so much is free of these places; a row each, a column for each place.

    Generic resources and licences are left out.
    """
    if not len(places):
        return np.zeros(len(gpus), np.bool_)
    kind = node_table.kind((shape.gpu_type, shape.min_gpu_mem_mib))
    of_kind = kind.counts[places]
    fitting = gpus if of_kind.all() else np.where(of_kind, gpus, 0)
    room = room_of(shape, {"cpus": cpus, "memory": memory, "gpus": fitting}, gpus.shape)
    if shape.mem_per_node_mib == 0:
        room *= memory >= node_table.memory[places]
    if shape.is_exclusive:
        room *= (
            (cpus == node_table.cpus[places])
            & (gpus == node_table.gpus[places])
            & (memory == node_table.memory[places])
        )
    has_room: Booleans = (room.sum(axis=1) if shape.nodes_max > 1 else room.max(axis=1)) >= shape.units
    if shape.nodes_min > 1 or shape.unit == "node":
        has_room &= np.count_nonzero(room, axis=1) >= shape.nodes_min
    if shape.is_dense:
        has_room &= _have_whole_nodes(shape, kind.sizes, of_kind, room)
    return has_room


def _have_whole_nodes(shape: Shape, sizes: Sequence[int], totals: Integers, room: Integers) -> Booleans:
    """One node has room for all, or there are as many whole ones as the GPUs fill; `totals`: GPUs of each place."""
    enough: Booleans = room.max(axis=1) >= shape.units
    if sizes and shape.units > sizes[-1]:
        for size in sizes:
            if size < shape.units:
                enough |= np.count_nonzero((room >= size) & (totals == size), axis=1) >= shape.units // size
    return enough


def numbers_tell(overlay: Overlay, shape: Shape) -> bool:
    """Whether it fits hangs on sums per node, which only grow as jobs end."""
    kind = overlay.node_table.kind((shape.gpu_type, shape.min_gpu_mem_mib))
    return (
        overlay.node_table.gpu_masks is not None and kind.is_pure and not (shape.roles or keeps_cores(overlay, shape))
    )
