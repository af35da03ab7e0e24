"""How the GPUs of one node hang together, and which of the free ones belong together.  Pure.

What is chosen is, in this order: a clique of NVLink (each linked with each) wherever the free GPUs have one of that
size; most links within; nearest on PCIe; on the fewest NUMA nodes; what leaves the others most together (fewest links
and neighbours to what stays free); the lowest indices.  Exact wherever there are at most `MAX_CHOICES` ways to choose;
beyond, a clique is still found if there is one, and the rest is grown GPU by GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

from gq.model.node import Gpu

MAX_CHOICES = 2000
_FAR = 100
"""On PCIe, where nothing is known: farther than all that NVML names."""


class GpuTopology(NamedTuple):
    """Square tables by GPU index."""

    links: tuple[tuple[int, ...], ...]
    """NVLinks between two; symmetric."""
    distance: tuple[tuple[int, ...], ...]
    """On PCIe, smaller is nearer."""
    numa: tuple[int, ...]
    """-1: not known."""


def topology_of(gpus: Iterable[Gpu]) -> GpuTopology | None:
    """None: nothing is known, or there is nothing to choose."""
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
    numa = [by_index[one].numa if one in by_index else None for one in range(size)]
    return GpuTopology(
        tuple(map(tuple, links)), tuple(map(tuple, distance)), tuple(-1 if one is None else one for one in numa)
    )


@lru_cache(maxsize=32768)
def choose_gpus(topology: GpuTopology | None, free: int, count: int) -> tuple[int, ...]:
    """`count` indices of the mask `free`, which has as many, ascending."""
    indices = tuple(index for index in range(free.bit_length()) if free >> index & 1)
    if topology is None or count in (0, len(indices)):
        return indices[:count]
    if comb(len(indices), count) <= MAX_CHOICES:
        return min(combinations(indices, count), key=lambda chosen: _badness(topology, indices, chosen))
    clique = () if _is_clique(topology, indices) else _find_clique(topology, indices, count)
    return clique or _grow(topology, indices, count)


def _badness(topology: GpuTopology, free: tuple[int, ...], chosen: tuple[int, ...]) -> tuple[int, ...]:
    links = [topology.links[one][other] for one, other in combinations(chosen, 2)]
    distance = sum(topology.distance[one][other] for one, other in combinations(chosen, 2))
    left = [one for one in free if one not in chosen]
    torn = sum(topology.links[one][other] for one in chosen for other in left)
    near = sum(_FAR - topology.distance[one][other] for one in chosen for other in left)
    numas = {topology.numa[one] for one in chosen}
    beside = sum(topology.numa[one] in numas for one in left)
    return (0 in links, -sum(links), distance, len(numas), torn, near, beside)


def _is_clique(topology: GpuTopology, indices: tuple[int, ...]) -> bool:
    return all(topology.links[one][other] for one, other in combinations(indices, 2))


def _find_clique(topology: GpuTopology, free: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The first clique of that size; empty: there is none.  Branches end where too few candidates are left."""

    def extend(chosen: tuple[int, ...], candidates: tuple[int, ...]) -> tuple[int, ...]:
        if len(chosen) == count:
            return chosen
        for position, one in enumerate(candidates):
            if len(chosen) + len(candidates) - position < count:
                break
            linked = tuple(other for other in candidates[position + 1 :] if topology.links[one][other])
            if found := extend((*chosen, one), linked):
                return found
        return ()

    return extend((), free)


def _grow(topology: GpuTopology, free: tuple[int, ...], count: int) -> tuple[int, ...]:
    """From each GPU as the first, always the nearest next one; the best of these."""
    grown = {_grown_from(topology, free, first, count) for first in free}
    return min(sorted(grown), key=lambda chosen: _badness(topology, free, chosen))


def _grown_from(topology: GpuTopology, free: tuple[int, ...], first: int, count: int) -> tuple[int, ...]:
    chosen = [first]
    left = [one for one in free if one != first]
    while len(chosen) < count:
        nearest = max(
            left,
            key=lambda one: (
                sum(topology.links[one][other] for other in chosen),
                -sum(topology.distance[one][other] for other in chosen),
                sum(topology.numa[one] == topology.numa[other] for other in chosen),
                -one,
            ),
        )
        left.remove(nearest)
        chosen.append(nearest)
    return tuple(sorted(chosen))
