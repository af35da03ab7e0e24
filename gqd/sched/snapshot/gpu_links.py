"""The links between the GPUs of a node, and the choice of the best connected free GPUs.  Pure.

Sets of GPUs are compared by, in this order: being an NVLink clique (every pair is linked); the number of links within;
the PCIe distance within; the number of NUMA nodes; the connectivity of the GPUs left over (the fewer links and near
neighbours are cut, the better); the lowest indices.  The choice is exact if there are at most `MAX_CHOICES` sets of the
size.  Beyond that a clique is still found if one exists, and otherwise a set is grown GPU by GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

from gq.model.node import Gpu

MAX_CHOICES = 2000
"""Number of sets of GPUs that are compared exhaustively."""
_FAR = 100
"""PCIe distance of GPUs whose distance is unknown: larger than every level that NVML reports."""


class GpuTopology(NamedTuple):
    """Links and distances between the GPUs of a node, as square tables by GPU index."""

    links: tuple[tuple[int, ...], ...]
    """Number of NVLinks between two GPUs; symmetric."""
    distance: tuple[tuple[int, ...], ...]
    """PCIe distance between two GPUs; smaller is nearer."""
    numa: tuple[int, ...]
    """NUMA node of each GPU; -1: unknown."""


def topology_of(gpus: Iterable[Gpu]) -> GpuTopology | None:
    """Return the topology of a node's GPUs; None: nothing is known, or there is only one GPU."""
    by_index = {gpu.index: gpu for gpu in gpus}
    if len(by_index) < 2 or not any(gpu.nvlink or gpu.pcie or gpu.numa is not None for gpu in by_index.values()):
        return None
    size = max(by_index) + 1
    links = [[0] * size for _ in range(size)]
    distance = [[_FAR] * size for _ in range(size)]
    for index, gpu in by_index.items():
        for other, count in gpu.nvlink:
            if other in by_index and other != index:
                links[index][other] = links[other][index] = max(count, links[index][other])
        for other, level in gpu.pcie:
            if other in by_index and other != index:
                distance[index][other] = distance[other][index] = min(level, distance[index][other])
    numas = [by_index[index].numa if index in by_index else None for index in range(size)]
    known_numas = tuple(-1 if numa is None else numa for numa in numas)
    return GpuTopology(tuple(map(tuple, links)), tuple(map(tuple, distance)), known_numas)


@lru_cache(maxsize=32768)
def choose_gpus(topology: GpuTopology | None, free: int, count: int) -> tuple[int, ...]:
    """Return the best `count` GPU indices of the mask `free`, ascending; the mask has at least that many."""
    indices = tuple(index for index in range(free.bit_length()) if free >> index & 1)
    if topology is None or count in (0, len(indices)):
        return indices[:count]
    if comb(len(indices), count) <= MAX_CHOICES:
        return min(combinations(indices, count), key=lambda chosen: _badness(topology, indices, chosen))
    clique = () if _is_clique(topology, indices) else _find_clique(topology, indices, count)
    return clique or _grow(topology, indices, count)


def _badness(topology: GpuTopology, free: tuple[int, ...], chosen: tuple[int, ...]) -> tuple[int, ...]:
    """Return the key by which sets of GPUs are compared, smaller is better; see the module docstring."""
    links = [topology.links[gpu][other] for gpu, other in combinations(chosen, 2)]
    distance = sum(topology.distance[gpu][other] for gpu, other in combinations(chosen, 2))
    left = [gpu for gpu in free if gpu not in chosen]
    cut_links = sum(topology.links[gpu][other] for gpu in chosen for other in left)
    cut_nearness = sum(_FAR - topology.distance[gpu][other] for gpu in chosen for other in left)
    numas = {topology.numa[gpu] for gpu in chosen}
    left_on_numas = sum(topology.numa[gpu] in numas for gpu in left)
    return (0 in links, -sum(links), distance, len(numas), cut_links, cut_nearness, left_on_numas)


def _is_clique(topology: GpuTopology, indices: tuple[int, ...]) -> bool:
    return all(topology.links[gpu][other] for gpu, other in combinations(indices, 2))


def _find_clique(topology: GpuTopology, free: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the first clique of `count` GPUs; empty: none exists.  A branch ends once too few candidates are left."""

    def extend(chosen: tuple[int, ...], candidates: tuple[int, ...]) -> tuple[int, ...]:
        if len(chosen) == count:
            return chosen
        for position, gpu in enumerate(candidates):
            if len(chosen) + len(candidates) - position < count:
                break
            linked = tuple(other for other in candidates[position + 1 :] if topology.links[gpu][other])
            if found := extend((*chosen, gpu), linked):
                return found
        return ()

    return extend((), free)


def _grow(topology: GpuTopology, free: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Grow a set from every free GPU by the best connected next GPU, and return the best of these sets."""
    grown = {_grown_from(topology, free, first, count) for first in free}
    return min(sorted(grown), key=lambda chosen: _badness(topology, free, chosen))


def _grown_from(topology: GpuTopology, free: tuple[int, ...], first: int, count: int) -> tuple[int, ...]:
    chosen = [first]
    left = [gpu for gpu in free if gpu != first]
    while len(chosen) < count:
        nearest = max(
            left,
            key=lambda gpu: (
                sum(topology.links[gpu][other] for other in chosen),
                -sum(topology.distance[gpu][other] for other in chosen),
                sum(topology.numa[gpu] == topology.numa[other] for other in chosen),
                -gpu,
            ),
        )
        left.remove(nearest)
        chosen.append(nearest)
    return tuple(sorted(chosen))
