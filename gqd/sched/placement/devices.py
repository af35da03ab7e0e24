"""Assign exact CPUs and GPUs of a node to a job that fits on the node.  Pure.

GPUs are chosen that are well connected (`gqd.sched.snapshot.gpu_links`), of one type where one type suffices; CPUs come
from the NUMA nodes of these GPUs.  A job without GPUs gets CPUs near busy or absent GPUs, so that idle GPUs keep
theirs.
"""

from __future__ import annotations

from gq.model.resource import Amount, Grant
from gqd.sched.request import Demand, Shape
from gqd.sched.snapshot.gpu_links import choose_gpus
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.records import mask_of


def assign_devices(overlay: Overlay, place: int, demand: Demand, shape: Shape, types: tuple[str, ...] = ()) -> Grant:
    """The grant on the node with exact CPUs and GPUs; an exclusive job gets all of them.  `types`: preferred GPU
    types, in order."""
    node = overlay.nodes[place]
    free_cpus, free_gpus = overlay.free_cpus[place], overlay.free_gpus[place]
    if shape.is_exclusive:
        cpus, gpus = lowest(free_cpus, None), lowest(free_gpus, None)
    else:
        fitting = free_gpus & node.fitting_mask(*shape.gpu_kind)
        if overlay.free_now is None:
            gpus = _gpus(node, fitting, demand.gpus, types) if demand.gpus else ()
            cpus = cpus_near(node, free_cpus, demand.cpus, gpus, free_gpus)
        else:
            cpus_now, gpus_now = (masks[place] for masks in overlay.free_now)
            gpus = _held_first(fitting, gpus_now, demand.gpus)
            cpus = _held_first(free_cpus, cpus_now, demand.cpus)
    return Grant(
        node=node.name,
        tasks=demand.tasks,
        cpus=cpus,
        gpus=gpus,
        memory_mib=node.memory_mib if demand.memory_mib < 0 else demand.memory_mib,
        resources=tuple(Amount(name, count) for name, count in shape.resources),
    )


def lowest(mask: int, count: int | None) -> tuple[int, ...]:
    """The ids of the lowest `count` bits (None: of all bits)."""
    ids: list[int] = []
    while mask and (count is None or len(ids) < count):
        lowest_bit = mask & -mask
        ids.append(lowest_bit.bit_length() - 1)
        mask ^= lowest_bit
    return tuple(ids)


def _held_first(free: int, free_now: int, count: int) -> tuple[int, ...]:
    held = lowest(free & ~free_now, count)
    return tuple(sorted(held + lowest(free & free_now, count - len(held))))


def _gpus(node: NodeFacts, free: int, count: int, types: tuple[str, ...]) -> tuple[int, ...]:
    if free.bit_count() == count:
        return lowest(free, None)
    if len(node.gpu_types) > 1:
        free = _of_type(node, free, count, types)
    return choose_gpus(node.topology, free, count)


def _of_type(node: NodeFacts, free: int, count: int, types: tuple[str, ...]) -> int:
    """GPUs of the first preferred type with `count` free ones; else of the type with the fewest that suffices; else
    of several types."""
    by_type = {name: free & mask for name, mask in node.gpu_types}
    enough = [name for name, mask in by_type.items() if mask.bit_count() >= count]
    wished = [name for name in types if name in enough]
    if wished or enough:
        return by_type[wished[0]] if wished else min((by_type[name] for name in enough), key=int.bit_count)
    some = 0
    for name in [*(name for name in types if name in by_type), *(name for name in by_type if name not in types)]:
        if some.bit_count() >= count:
            break
        some |= by_type[name]
    return some


def cpus_near(node: NodeFacts, free: int, count: int, gpus: tuple[int, ...], free_gpus: int) -> tuple[int, ...]:
    """CPUs from the GPUs' NUMA nodes; without GPUs from one NUMA node that suffices, with the fewest idle GPUs."""
    if not node.cpu_numa:
        return lowest(free, count)
    chosen: list[int] = []
    left = count
    for mask in _numa_order(node, free, count, gpus, free_gpus):
        here = lowest(free & mask, left)
        chosen += here
        left -= len(here)
        free &= ~mask_of(here)
    return tuple(sorted(chosen))


def _numa_order(node: NodeFacts, free: int, count: int, gpus: tuple[int, ...], free_gpus: int) -> list[int]:
    """CPU masks of the NUMA nodes in the order in which CPUs are taken; the last mask is all CPUs."""
    numa_of = node.topology.numa if node.topology is not None else ()
    own = [numa_of[gpu] for gpu in gpus if gpu < len(numa_of)]
    idle = [numa_of[gpu] for gpu in lowest(free_gpus, None) if gpu < len(numa_of) and gpu not in gpus]

    def distance(numa: int, mask: int) -> tuple[int, int, bool, int, int]:
        free_here = (free & mask).bit_count()
        return (-own.count(numa), idle.count(numa), free_here < count, free_here, numa)

    order = sorted(node.cpu_numa, key=lambda one: distance(*one))
    return [*(mask for _, mask in order), -1]
