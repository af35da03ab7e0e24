"""What a job asks for and what it is given.

A request is either *per node* (``-N 4 --gpus-per-node=8``) or *by tasks* (``-n 30 --gpus-per-task=1``) or a
mixture; None means "not said", which is not the same as 0 or 1.  A grant is exact: CPU ids and GPU indices.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""What comes over the wire: neither negative nor larger than the database or a sum of many may hold."""


class Amount(msgspec.Struct, frozen=True):
    """So many of something that has a name: licences, FPGAs, scratch space in MiB (``tmp``)."""

    name: str
    count: Count


class RoleRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The resources of one role of a gang, or of a job, as asked.  At most one of the three ``mem_*`` fields is set.

    ``gpus`` counts over the whole job.  ``mem_per_node_mib`` 0 means all memory of each node.
    """

    nodes_min: Count | None = None
    nodes_max: Count | None = None
    ntasks: Count | None = None
    ntasks_per_node: Count | None = None
    cpus_per_task: Count | None = None
    cpus_per_gpu: Count | None = None
    mem_per_node_mib: Count | None = None
    mem_per_cpu_mib: Count | None = None
    mem_per_gpu_mib: Count | None = None
    gpus: Count | None = None
    gpus_per_node: Count | None = None
    gpus_per_task: Count | None = None
    gpu_type: str | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    is_exclusive: bool = False
    is_dense: bool = False
    """GPUs that are dealt out fill whole nodes; only the last node may be shared with others."""
    min_gpu_mem_mib: Count | None = None
    constraint: str = ""
    """What its nodes must be (`gq.model.constraint`)."""
    prefer: str = ""
    """What they should be, likewise."""
    data: tuple[str, ...] = ()
    """Nodes that say they hold these are preferred."""
    resources: tuple[Amount, ...] = ()
    """Generic resources of each node, by name."""


class Role(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a gang that asks for something else than the others; they start together or not at all."""

    name: str
    resources: RoleRequest


class ResourceRequest(RoleRequest, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The resources of one job, as asked.  ``roles`` not empty: the job is these, and no field of a role is set."""

    switches: Count | None = None
    """Over so many leaf switches at most …"""
    switches_wait_s: Count | None = None
    """… for which it waits so long; None: as long as the cluster's ``locality_wait``."""
    licenses: tuple[Amount, ...] = ()
    """Of the cluster, over the whole job."""
    most_gpus: Count | None = None
    """``gpus`` is the least, with which it starts; while it runs on its one node it takes up to so many that are idle,
    and gives them back when others want them."""
    is_elastic: bool = False
    """``nodes_min`` is the least, with which it starts; while it runs it takes up to ``nodes_max`` that are idle, and
    gives them back when others want them."""
    roles: tuple[Role, ...] = ()


def as_request(role: RoleRequest) -> ResourceRequest:
    """What a role asks for, as if it were a job of its own."""
    return ResourceRequest(**{field: getattr(role, field) for field in RoleRequest.__struct_fields__})


def as_role(name: str, request: RoleRequest) -> Role:
    """The inverse; what can only be asked for a whole job is left out."""
    fields = {field: getattr(request, field) for field in RoleRequest.__struct_fields__}
    return Role(name=name, resources=RoleRequest(**fields))


class RoleShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a grant is one role's."""

    role: str
    tasks: int
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    memory_mib: int = 0


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one attempt holds on one node."""

    node: str
    tasks: int = 1
    cpus: tuple[int, ...] = ()
    """Logical CPU ids of the node, ascending."""
    gpus: tuple[int, ...] = ()
    """GPU indices of the node, ascending."""
    memory_mib: int = 0
    """Counted and limited; 0 where memory was not asked for (neither counted nor limited)."""
    resources: tuple[Amount, ...] = ()
    """Generic resources."""
    licenses: tuple[Amount, ...] = ()
    """Of the cluster, for the whole job: the first grant has them."""
    roles: tuple[RoleShare, ...] = ()
    """Of a gang of roles: who has what of it."""


def shares(one: Grant, other: Grant) -> bool:
    """Both have some CPU or GPU of the same node."""
    is_same = one.node == other.node
    return is_same and not (set(one.gpus).isdisjoint(other.gpus) and set(one.cpus).isdisjoint(other.cpus))


def gpus_in(grants: Iterable[Grant]) -> int:
    return sum(len(one.gpus) for one in grants)


def format_ids(ids: tuple[int, ...]) -> str:
    """``(0, 1, 2, 5)`` → ``0-2,5``: how CPU and GPU sets are stored and shown (cpuset's list format)."""
    ranges: list[str] = []
    position = 0
    while position < len(ids):
        end = position
        while end + 1 < len(ids) and ids[end + 1] == ids[end] + 1:
            end += 1
        ranges.append(str(ids[position]) if end == position else f"{ids[position]}-{ids[end]}")
        position = end + 1
    return ",".join(ranges)


def parse_ids(text: str) -> tuple[int, ...]:
    """The inverse of `format_ids`."""
    ids: list[int] = []
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        ids.extend(range(int(low), int(high if dash else low) + 1))
    return tuple(ids)


class Demand(NamedTuple):
    """The least that a request comes to over the whole job."""

    nodes: int
    tasks: int
    cpus: int
    gpus: int
    memory_mib: int


@lru_cache(maxsize=4096)
def least_demand(request: ResourceRequest) -> Demand:
    """What is shown of a waiting job: the request with Slurm's defaults filled in (1 node, 1 task, 1 CPU a task).

    What a plan gives may be more: whole nodes, a larger number of nodes, CPUs rounded up on each node.  Roles may
    share nodes: of a gang of them the number of nodes is that of its widest role.
    """
    if request.roles:
        each = [least_demand(as_request(role.resources)) for role in request.roles]
        nodes = max(demand.nodes for demand in each)
        return Demand(nodes, *(sum(counts) for counts in list(zip(*each, strict=True))[1:]))
    nodes = request.nodes_min or _least_nodes(request)
    tasks = request.ntasks or _least_tasks(request, nodes)
    gpus = request.gpus or (request.gpus_per_node or 0) * nodes or (request.gpus_per_task or 0) * tasks
    cpus = max(tasks * (request.cpus_per_task or 1), gpus * (request.cpus_per_gpu or 0), nodes)
    memory_mib = (
        (request.mem_per_node_mib or 0) * nodes
        or (request.mem_per_cpu_mib or 0) * cpus
        or (request.mem_per_gpu_mib or 0) * gpus
    )
    return Demand(nodes, tasks, cpus, gpus, memory_mib)


def _least_nodes(request: ResourceRequest) -> int:
    """Nodes where their number was not said: those named, or as many as the limits per node imply."""
    by_tasks = -(-request.ntasks // request.ntasks_per_node) if request.ntasks and request.ntasks_per_node else 1
    by_gpus = -(-request.gpus // request.gpus_per_node) if request.gpus and request.gpus_per_node else 1
    return max(1, len(request.nodelist), by_tasks, by_gpus, _counted_nodes(request.constraint))


def _counted_nodes(constraint: str) -> int:
    if not constraint:
        return 0
    from gq.model.constraint import least_nodes  # costs a command more than all other values together

    return least_nodes(constraint)


def _least_tasks(request: ResourceRequest, nodes: int) -> int:
    """Tasks where their number was not said: by node, by GPU, else one on each node."""
    if request.ntasks_per_node:
        return nodes * request.ntasks_per_node
    if request.gpus and request.gpus_per_task:
        return max(nodes, request.gpus // request.gpus_per_task)
    return nodes
