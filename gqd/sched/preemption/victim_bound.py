"""Nodes on which a job could get room at all by preemption: a bound, checked before victims are searched.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gqd.sched.request import RESTRICTIONS, Shape, knows, wanted_in_all
from gqd.sched.snapshot.model import Overlay, RunningJob
from gqd.sched.snapshot.node_table import NodeTable
from gqd.state.index.queue import Integers

_KNOWN = RESTRICTIONS | {"is_dense"}
GpusAt = tuple[tuple[int, int], ...]
"""Pairs of (node index, GPUs there)."""


def gpus_at(job: RunningJob, places: Mapping[str, int]) -> GpusAt:
    """The GPUs that a running job holds on the nodes in `places`."""
    return tuple([(places[node], gpus.bit_count()) for node, _, gpus in job.cells if node in places])


def promising_nodes(overlay: Overlay, shape: Shape, places: Integers, leaving: Iterable[GpusAt]) -> Integers:
    """The nodes with enough GPUs to be of use when all of `leaving` are gone; empty if they do not suffice.

    Only GPUs are counted.
    """
    wanted = wanted_in_all(shape)[0]
    if not wanted or not knows(_KNOWN, shape):
        return places
    bound = overlay.gpu_counts.tolist()
    for one in leaving:
        for place, gpus in one:
            bound[place] += gpus
    there = np.array(bound, np.int64)[places]
    each, nodes = _least_of_each(overlay.node_table, shape, wanted)
    useful = places[there >= each]
    is_enough = len(useful) >= nodes and int(there.sum()) >= wanted
    return useful if is_enough else places[:0]


def _least_of_each(node_table: NodeTable, shape: Shape, wanted: int) -> tuple[int, int]:
    """(GPUs that a node needs to be of use, number of such nodes needed)."""
    if shape.nodes_max == 1:
        return wanted, 1
    if shape.unit == "node":
        return wanted // shape.nodes_min, shape.nodes_min
    sizes = node_table.kind(shape.gpu_kind).sizes
    if not shape.is_dense or len(sizes) != 1:
        return 1, 1
    whole, rest = divmod(wanted, sizes[0])
    return rest or sizes[0], whole + bool(rest)
