"""An upper bound on what fits when: sums of CPUs and memory and masks of GPUs, checked before anything is placed.
Pure.

Where the bound says no, nothing fits.  A timeline asks it hundreds of times for each placement that it then tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np

from gqd.sched.placement.feasible import counts_memory, keeps_cores, room_of
from gqd.sched.request import RESTRICTIONS, Shape, knows
from gqd.sched.snapshot.model import Cell, Overlay
from gqd.sched.snapshot.node_table import MAX_MASK_BITS, NodeTable, as_node_indices
from gqd.state.index.queue import Booleans, Integers

FEW = 32
"""Up to this many releases are checked individually, all in one step."""
MOST = 65_536
"""Numbers checked in one step; with many nodes, that is few releases."""


_KNOWN = RESTRICTIONS | {"is_dense"}
_BITS = (1 << MAX_MASK_BITS) - 1
"""The bits of a GPU mask that fit in 64-bit numbers; for nodes with more GPUs the bound is not used."""


class Rows(NamedTuple):
    """The resources of cells, as columns."""

    place: Integers
    cpus: Integers
    memory: Integers
    gpus: Integers
    """GPU masks."""


def rows_of(cells: Sequence[Cell]) -> Rows:
    return Rows(
        np.array([cell[0] for cell in cells], np.int64),
        np.array([cell[1].bit_count() for cell in cells], np.int64),
        np.array([cell[3] for cell in cells], np.int64),
        np.array([cell[2] & _BITS for cell in cells], np.int64),
    )


def packed(cells: Sequence[Cell]) -> bytes:
    """The rows of `ReleaseRows` for these cells as bytes, so that hundreds of releases can be joined at once."""
    return np.array([(cell[0], cell[1].bit_count(), cell[3], cell[2] & _BITS) for cell in cells], np.int64).tobytes()


_ROW = len(packed([(0, 0, 0, 0)]))


class ReleaseRows(NamedTuple):
    """The resources that releases give back, in order of time."""

    bounds: Integers
    """The number of rows that belong to the first n releases, by n."""
    rows: Rows

    @classmethod
    def of(cls, ends: Sequence[bytes]) -> ReleaseRows:
        """Join the `packed` rows of the releases."""
        sizes = np.array([0, *map(len, ends)], np.int64)
        rows = np.frombuffer(b"".join(ends), np.int64).reshape(-1, 4).T
        return cls(np.cumsum(sizes) // _ROW, Rows(*rows))


class CapacityBound:
    """The bound for one shape on some nodes of an overlay, as more and more releases take place."""

    def __init__(self, overlay: Overlay, sums: ReleaseRows, shape: Shape, candidates: Integers | list[int]) -> None:
        self._node_table = overlay.node_table
        self._sums = sums
        self._shape = shape._replace(resources=()) if shape.resources else shape
        self._counts_memory = counts_memory(self._shape)
        places = as_node_indices(candidates)
        self._is_all = len(places) == len(overlay.nodes)
        self._places = overlay.node_table.all_places if self._is_all else places
        self._count = 0
        """The number of releases included in the next three; no later call asks about fewer."""
        self._cpus = overlay.cpu_counts
        self._memory = overlay.memory
        self._gpus = np.array(overlay.free_gpus, np.int64)

    def first(self, low: int, high: int, taken: Sequence[Rows] = ()) -> int | None:
        """The smallest number of releases, above `low` and at most `high`, after which the shape may fit; None: there
        is none.

        Free resources only grow with the number of releases, so several numbers are checked at once, and then those
        below the first that has room.
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
        """Whether the shape may fit after `count` releases; `taken`: rows whose GPUs are unavailable (their CPUs and
        memory are ignored)."""
        return bool(self._have_room(np.array([count], np.int64), taken)[0])

    def _advance(self, count: int) -> None:
        cpus, memory, gpus = self._free(np.array([count], np.int64))
        self._count, self._cpus, self._memory, self._gpus = count, cpus[0], memory[0], gpus[0]

    def _free(self, counts: Integers) -> tuple[Integers, Integers, Integers]:
        """(CPUs, memory, GPU masks) of the nodes after each number of releases in `counts` (ascending), one row each.

        Memory stays as it is now if the shape does not depend on it.
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
    """Whether the shape may fit given these free amounts: a row for each case, a column for each node.

    Generic resources and licences are ignored.
    """
    if not len(places):
        return np.zeros(len(gpus), np.bool_)
    kind = node_table.kind(shape.gpu_kind)
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
    """Whether one node has room for all units, or there are as many whole nodes as the GPUs fill; `totals`: GPUs by
    node."""
    enough: Booleans = room.max(axis=1) >= shape.units
    if sizes and shape.units > sizes[-1]:
        for size in sizes:
            if size < shape.units:
                enough |= np.count_nonzero((room >= size) & (totals == size), axis=1) >= shape.units // size
    return enough


def can_bound(overlay: Overlay, shape: Shape) -> bool:
    """Whether `CapacityBound` applies: fitting depends only on sums per node that grow as jobs end."""
    kind = overlay.node_table.kind(shape.gpu_kind)
    is_summed = overlay.node_table.gpu_masks is not None and kind.is_pure
    return is_summed and knows(_KNOWN, shape) and not keeps_cores(overlay, shape)
