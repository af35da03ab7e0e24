"""How many units of a shape each node can take, given an overlay of free resources.  Pure.

Apart from a fixed part, the demand on a node grows in proportion to its units, so capacities are found by division, for
all nodes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gqd.sched.placement.constraints import may_be_one
from gqd.sched.request import Shape, demand_for_units, wanted_in_all
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.node_table import MAX_CACHED, as_node_indices, node_table_of
from gqd.state.index.queue import Integers
from gqd.state.policy import ALL_NODES, Partition

_CPUS, _GPUS, _MEMORY = "cpus", "gpus", "memory"


def admits(shape: Shape, node: NodeFacts) -> bool:
    """Whether the request's node lists and constraint allow the node; for a heterogeneous job, those of any role."""
    if shape.roles:
        return any(admits(role, node) for _, role in shape.roles)
    if node.name in shape.exclude or (shape.constraint and not may_be_one(node, shape.constraint)):
        return False
    if shape.is_exclusive and node.is_part:
        return False
    # With a node list longer than needed any node may help out; the listed ones are a must (see placement).
    return not shape.nodelist or node.name in shape.nodelist or len(shape.nodelist) < shape.nodes_min


def eligible_places(nodes: tuple[NodeFacts, ...], shape: Shape, partition: Partition) -> Integers:
    """Indices of the partition's nodes that `admits` allows; requests alike in that share the same array object."""
    node_table = node_table_of(nodes)
    key = (partition.name, partition.nodes, _selection(shape))
    known = node_table.usable.get(key)
    if known is None:
        names = None if partition.nodes == ALL_NODES else set(partition.nodes)
        chosen = [p for p, node in enumerate(nodes) if (names is None or node.name in names) and admits(shape, node)]
        known = as_node_indices(chosen)
        if len(node_table.usable) < MAX_CACHED:
            node_table.usable[key] = known
    return known


def _selection(shape: Shape) -> object:
    """The fields of the shape on which `admits` depends."""
    if shape.roles:
        return tuple(_selection(role) for _, role in shape.roles)
    helps_out = bool(shape.nodelist) and len(shape.nodelist) < shape.nodes_min
    return (shape.exclude, shape.constraint, () if helps_out else shape.nodelist, shape.is_exclusive)


def feasible_places(nodes: tuple[NodeFacts, ...], shape: Shape, usable: Integers) -> Integers:
    """The nodes among `usable` with room for at least one unit when they are empty."""
    return usable[capacities(Overlay.empty(nodes), shape, usable) > 0]


# ── room ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Need(NamedTuple):
    """The demand for one resource: an amount for each unit plus a fixed amount."""

    resource: str
    each: int
    fixed: int


class _Needs(NamedTuple):
    most: int
    """The maximum number of units on one node."""
    needs: tuple[_Need, ...]
    whole_memory: bool
    has_gpus: bool


@lru_cache(maxsize=8192)
def _needs_of(shape: Shape) -> _Needs:
    """The needs of a node for the units distributed to it; for the unit ``node``, those of one node."""
    match shape.unit:
        case "node":
            demand = demand_for_units(shape, 1)
            cpus, gpus, most = [(0, demand.cpus)], [(0, demand.gpus)], 1
        case "task":
            by_task, fixed = (shape.gpus_per_task, 0) if not shape.gpus_per_node else (0, shape.gpus_per_node)
            gpus = [(by_task, fixed)]
            cpus = [(shape.cpus_per_task, 0), (by_task * shape.cpus_per_gpu, fixed * shape.cpus_per_gpu)]
            most = min(shape.units, shape.tasks_per_node)
        case _:
            tasks = shape.tasks_per_node if shape.ntasks is None else 1
            gpus, most = [(1, 0)], shape.units
            cpus = [(0, tasks * shape.cpus_per_task), (shape.cpus_per_gpu, 0)]
    return _with_memory(shape, most, cpus, gpus)


@lru_cache(maxsize=8192)
def _task_needs_of(shape: Shape) -> _Needs:
    """The needs of tasks that share one GPU, where GPUs and tasks are distributed separately."""
    assert shape.ntasks is not None
    cpus = [(shape.cpus_per_task, 0), (0, shape.cpus_per_gpu)]
    return _with_memory(shape, min(shape.ntasks, shape.tasks_per_node), cpus, [(0, 1)])


def _with_memory(shape: Shape, most: int, cpus: list[tuple[int, int]], gpus: list[tuple[int, int]]) -> _Needs:
    memory: list[tuple[int, int]] = []
    if shape.mem_per_node_mib is not None:
        memory = [(0, shape.mem_per_node_mib)]
    elif shape.mem_per_cpu_mib is not None:
        memory = [(each * shape.mem_per_cpu_mib, fixed * shape.mem_per_cpu_mib) for each, fixed in cpus]
    elif shape.mem_per_gpu_mib is not None:
        memory = [(each * shape.mem_per_gpu_mib, fixed * shape.mem_per_gpu_mib) for each, fixed in gpus]
    rows = [
        *(_Need(_GPUS, *gpu) for gpu in gpus),
        *(_Need(_CPUS, *cpu) for cpu in cpus),
        *(_Need(_MEMORY, *one) for one in memory),
        *(_Need(f"gres:{name}", 0, count) for name, count in shape.resources),
    ]
    has_gpus = any(each or fixed for each, fixed in gpus)
    return _Needs(most, tuple(row for row in rows if row.each or row.fixed), shape.mem_per_node_mib == 0, has_gpus)


def capacities(overlay: Overlay, shape: Shape, places: Integers) -> Integers:
    """The maximum number of units that each node can take now; for the unit ``node`` 1 or 0, for a heterogeneous job
    the maximum over its roles."""
    if shape.roles:
        return _of_any_role(overlay, shape, places)
    return _room(overlay, shape, _needs_of(shape), places)


def task_capacities(overlay: Overlay, shape: Shape, places: Integers) -> Integers:
    """The maximum number of tasks with one GPU, where GPUs and tasks are distributed separately."""
    return _room(overlay, shape, _task_needs_of(shape), places)


def room_of(shape: Shape, free: Mapping[str, Integers], size: tuple[int, ...]) -> Integers:
    """The capacities of nodes with the free amounts `free`, by resource; ignores whether a node has to be empty."""
    needs = _needs_of(shape)
    room = np.full(size, needs.most, dtype=np.int64)
    for need in needs.needs:
        if need.each:
            some = free[need.resource]
            np.minimum(room, some if need.each == 1 else some // need.each, out=room)
        if need.fixed:
            room *= free[need.resource] >= need.fixed
    return np.maximum(room, 0, out=room)


def counts_memory(shape: Shape) -> bool:
    """Whether free memory affects the shape's capacities."""
    needs = _needs_of(shape)
    return needs.whole_memory or shape.is_exclusive or any(need.resource == _MEMORY for need in needs.needs)


def _of_any_role(overlay: Overlay, shape: Shape, places: Integers) -> Integers:
    room = np.zeros(len(places), dtype=np.int64)
    for _, role in shape.roles:
        admitted = np.fromiter((admits(role, overlay.nodes[one]) for one in places.tolist()), np.bool_, len(places))
        np.maximum(room, np.where(admitted, capacities(overlay, role, places), 0), out=room)
    return room


def _room(overlay: Overlay, shape: Shape, needs: _Needs, places: Integers) -> Integers:
    room = np.full(len(places), needs.most, dtype=np.int64)
    for need in needs.needs:
        free = _free(overlay, shape, needs, need.resource, places)
        if need.each:
            np.minimum(room, free if need.each == 1 else free // need.each, out=room)
        if need.fixed:
            room *= free >= need.fixed
    if needs.whole_memory:
        room *= overlay.memory[places] >= overlay.node_table.memory[places]
    if shape.is_exclusive:
        room *= _idle(overlay, places)
    return np.maximum(room, 0, out=room)


def _free(overlay: Overlay, shape: Shape, needs: _Needs, resource: str, places: Integers) -> Integers:
    match resource:
        case "gpus":
            return overlay.kind_counts(shape.gpu_kind)[places]
        case "cpus":
            free = overlay.cpu_counts[places]
            return free - kept_cores(overlay, places) if keeps_cores(overlay, shape) else free
        case "memory":
            return overlay.memory[places]
        case _:
            free_ones = overlay.free_resources.get(resource.removeprefix("gres:"))
            return np.zeros(len(places), dtype=np.int64) if free_ones is None else free_ones[places]


def keeps_cores(overlay: Overlay, shape: Shape) -> bool:
    """Whether CPUs reserved for idle GPUs are unavailable to this shape: it requests neither GPUs nor whole nodes."""
    return bool(overlay.cores_kept) and not shape.is_exclusive and not wanted_in_all(shape)[0]


def kept_cores(overlay: Overlay, places: Integers) -> Integers:
    """The number of CPUs of each node that are reserved for idle GPUs."""
    return np.minimum(overlay.cpu_counts[places], overlay.cores_kept * overlay.gpu_counts[places])


def _idle(overlay: Overlay, places: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    node_table = overlay.node_table
    return np.asarray(
        (overlay.cpu_counts[places] == node_table.cpus[places])
        & (overlay.gpu_counts[places] == node_table.gpus[places])
        & (overlay.memory[places] == node_table.memory[places])
    )
