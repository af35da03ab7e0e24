"""A request made ready for placing: what is not said filled in, contradictions refused.  Pure.

Three kinds of request exist, by what is counted out over the nodes:

* ``node``: every node gets the same (``-N 4 --gpus-per-node=8``, ``--ntasks-per-node=2``);
* ``task``: a number of tasks is dealt out (``-n 30 --gpus-per-task=1``);
* ``gpu``: a number of GPUs is dealt out (``--gpus=12``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gq.errors import Refusal
from gq.model.resource import ResourceRequest

ANY_NUMBER = 1_000_000


class Shape(NamedTuple):
    """Hashable: jobs of one shape fit or do not fit alike."""

    partition: str
    unit: str
    """``node``, ``task`` or ``gpu``."""
    units: int
    """How many tasks or GPUs are dealt out; for ``node`` 0 (the node counts say it)."""
    nodes_min: int
    nodes_max: int
    is_even: bool
    """Deal the units out evenly over exactly ``nodes_min`` nodes if they fit so."""
    tasks_per_node: int
    """Fixed for ``node``; the most that one node may get for ``task``; for ``gpu`` the least, 1 if not said."""
    ntasks: int | None
    """Total, where it was said and GPUs are what is dealt out."""
    cpus_per_task: int
    gpus_per_node: int
    gpus_per_task: int
    cpus_per_gpu: int
    mem_per_node_mib: int | None
    mem_per_cpu_mib: int | None
    mem_per_gpu_mib: int | None
    gpu_type: str | None
    nodelist: tuple[str, ...]
    exclude: tuple[str, ...]
    is_exclusive: bool


class Demand(NamedTuple):
    """What one node must give."""

    tasks: int
    cpus: int
    gpus: int
    memory_mib: int
    """-1: all of the node; 0: not counted."""


@lru_cache(maxsize=4096)
def shape_of(request: ResourceRequest, partition: str, default_mem_per_cpu_mib: int | None = None) -> Shape:
    """The shape of a request; `Refusal` where it contradicts itself."""
    _refuse_nonsense(request)
    unit, units, nodes_min, nodes_max = _counts(request)
    says_memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib) != (None, None, None)
    nodes_min = max(nodes_min, len(request.nodelist) if unit != "node" or request.nodes_min is None else nodes_min)
    return Shape(
        partition=partition,
        unit=unit,
        units=units,
        nodes_min=nodes_min,
        nodes_max=max(nodes_max, nodes_min),
        is_even=nodes_min == nodes_max and unit != "node",
        tasks_per_node=request.ntasks_per_node or (ANY_NUMBER if unit == "task" else 1),
        ntasks=request.ntasks if unit == "gpu" else None,
        cpus_per_task=request.cpus_per_task or 1,
        gpus_per_node=request.gpus_per_node or 0,
        gpus_per_task=request.gpus_per_task or 0,
        cpus_per_gpu=request.cpus_per_gpu or 0,
        mem_per_node_mib=request.mem_per_node_mib,
        mem_per_cpu_mib=request.mem_per_cpu_mib if says_memory else default_mem_per_cpu_mib,
        mem_per_gpu_mib=request.mem_per_gpu_mib,
        gpu_type=request.gpu_type,
        nodelist=request.nodelist,
        exclude=request.exclude,
        is_exclusive=request.is_exclusive,
    )


def _counts(request: ResourceRequest) -> tuple[str, int, int, int]:
    """(unit, units, fewest nodes, most nodes)."""
    nodes_min = request.nodes_min or 1
    nodes_max = request.nodes_max or request.nodes_min or ANY_NUMBER
    ntasks, gpus = request.ntasks, request.gpus
    if gpus and request.gpus_per_task:
        ntasks, gpus = _exactly(gpus, request.gpus_per_task, "--gpus", "--gpus-per-task"), None
        _refuse_other_ntasks(request.ntasks, ntasks)
    if gpus and request.gpus_per_node:
        nodes = _exactly(gpus, request.gpus_per_node, "--gpus", "--gpus-per-node")
        if request.nodes_min and not nodes_min <= nodes <= nodes_max:
            raise Refusal("contradiction", f"--gpus={gpus} at {request.gpus_per_node} per node needs {nodes} nodes")
        nodes_min = nodes_max = nodes
        gpus = None
    if gpus:
        return "gpu", gpus, nodes_min, min(nodes_max, gpus)
    if ntasks is None:
        nodes_max = request.nodes_max or nodes_min
        return "node", 0, nodes_min, nodes_max
    if request.ntasks_per_node and ntasks == nodes_min * request.ntasks_per_node and request.nodes_min:
        return "node", 0, nodes_min, nodes_min
    if request.ntasks_per_node:
        nodes_min = max(nodes_min, -(-ntasks // request.ntasks_per_node))
    if nodes_min > ntasks:
        why = f"{ntasks} tasks cannot be spread over {nodes_min} nodes"
        raise Refusal("contradiction", why, "give every node a task")
    return "task", ntasks, nodes_min, min(nodes_max, ntasks)


def _exactly(total: int, each: int, total_name: str, each_name: str) -> int:
    count, rest = divmod(total, each)
    if rest:
        raise Refusal("contradiction", f"{total_name}={total} is not a multiple of {each_name}={each}")
    return count


def _refuse_other_ntasks(said: int | None, implied: int) -> None:
    if said is not None and said != implied:
        raise Refusal("contradiction", f"--ntasks={said} contradicts the {implied} tasks that the GPUs imply")


def _refuse_nonsense(request: ResourceRequest) -> None:
    counts = {
        "--nodes": request.nodes_min,
        "--ntasks": request.ntasks,
        "--ntasks-per-node": request.ntasks_per_node,
        "--cpus-per-task": request.cpus_per_task,
    }
    for name, value in counts.items():
        if value is not None and value < 1:
            raise Refusal("bad_count", f"{name}={value} is less than 1")
    for name, value in {"--gpus": request.gpus, "--gpus-per-node": request.gpus_per_node}.items():
        if value is not None and value < 0:
            raise Refusal("bad_count", f"{name}={value} is negative")
    if request.nodes_max is not None and request.nodes_max < (request.nodes_min or 1):
        raise Refusal("bad_count", f"--nodes={request.nodes_min}-{request.nodes_max} has its ends the wrong way round")
    memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib)
    if sum(value is not None for value in memory) > 1:
        raise Refusal("contradiction", "--mem, --mem-per-cpu and --mem-per-gpu exclude each other", "give one of them")
    both = sorted(set(request.nodelist) & set(request.exclude))
    if both:
        raise Refusal("contradiction", f"node `{both[0]}` is both asked for and excluded")


def demand_of(shape: Shape, tasks: int, gpus: int) -> Demand:
    """What a node must give for so many tasks and GPUs."""
    cpus = max(tasks * shape.cpus_per_task, gpus * shape.cpus_per_gpu)
    if shape.mem_per_node_mib is not None:
        memory = shape.mem_per_node_mib or -1
    elif shape.mem_per_cpu_mib is not None:
        memory = shape.mem_per_cpu_mib * cpus
    else:
        memory = (shape.mem_per_gpu_mib or 0) * gpus
    return Demand(tasks, cpus, gpus, memory)


def demand_for_units(shape: Shape, units: int) -> Demand:
    """What a node must give for so many of the units that are dealt out (``node``: one)."""
    match shape.unit:
        case "node":
            tasks = shape.tasks_per_node
            return demand_of(shape, tasks, shape.gpus_per_node or tasks * shape.gpus_per_task)
        case "task":
            return demand_of(shape, units, shape.gpus_per_node or units * shape.gpus_per_task)
        case _:
            return demand_of(shape, shape.tasks_per_node, units)
