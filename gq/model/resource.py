"""Requests for resources (`ResourceRequest`) and what a job receives on a node (`Grant`).

A request is *per node* (``-N 4 --gpus-per-node=8``), *by tasks* (``-n 30 --gpus-per-task=1``) or a mixture; None means
"not specified", which differs from 0 and 1.  A grant is exact: CPU ids and GPU indices.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec

from gq.units import MAX_COUNT

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
"""A number that comes over the wire: not negative, and small enough for the database and for sums."""


class Amount(msgspec.Struct, frozen=True):
    """A number of a named resource: licences, FPGAs, scratch space in MiB (``tmp``)."""

    name: str
    count: Count


class RoleRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The requested resources of one role of a het job, or of a job.  At most one of the three ``mem_*`` fields is set.

    ``gpus`` counts over the whole job.  ``mem_per_node_mib`` 0 means all memory of each node.
    """

    nodes_min: Count | None = None
    nodes_max: Count | None = None
    ntasks: Count | None = None
    ntasks_per_node: Count | None = None
    ntasks_per_gpu: Count | None = None
    """Tasks that share each GPU; the GPUs are requested, too, by number."""
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
    """The requested GPUs fill whole nodes; only the last node may be shared with other jobs."""
    min_gpu_mem_mib: Count | None = None
    constraint: str = ""
    """The constraint that the job's nodes must meet (`gq.model.constraint`)."""
    prefer: str = ""
    """The constraint that the job's nodes should meet, in the same syntax."""
    data: tuple[str, ...] = ()
    """Data sets; the planner prefers nodes that hold them."""
    resources: tuple[Amount, ...] = ()
    """Generic resources on each node."""


class Role(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A role of a het job: resources of its own; the roles of a job start together or not at all."""

    name: str
    resources: RoleRequest


class ResourceRequest(RoleRequest, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The requested resources of one job.  If ``roles`` is not empty, no field of `RoleRequest` is set."""

    switches: Count | None = None
    """Maximum number of leaf switches that the job's nodes may span …"""
    switches_wait_s: Count | None = None
    """… and how long the job waits for such nodes; None: the cluster's ``locality_wait``."""
    licenses: tuple[Amount, ...] = ()
    """Licences of the cluster, for the whole job."""
    most_gpus: Count | None = None
    """Maximum of an elastic job's GPUs; it starts with ``gpus``.  While it runs, on its one node, it takes idle GPUs up
    to this number and returns them when other jobs need them."""
    is_elastic: bool = False
    """The job is elastic over nodes: it starts with ``nodes_min``.  While it runs it takes idle nodes up to
    ``nodes_max`` and returns them when other jobs need them."""
    roles: tuple[Role, ...] = ()


def as_request(role: RoleRequest) -> ResourceRequest:
    """Return a role's request as the request of a job."""
    return ResourceRequest(**{field: getattr(role, field) for field in RoleRequest.__struct_fields__})


def as_role(name: str, request: RoleRequest) -> Role:
    """Return a job's request as a role; fields that only a whole job has are left out."""
    fields = {field: getattr(request, field) for field in RoleRequest.__struct_fields__}
    return Role(name=name, resources=RoleRequest(**fields))


class RoleShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A role's share of a grant."""

    role: str
    tasks: int
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    memory_mib: int = 0


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resources that one attempt holds on one node."""

    node: str
    tasks: int = 1
    cpus: tuple[int, ...] = ()
    """Logical CPU ids of the node, ascending."""
    gpus: tuple[int, ...] = ()
    """GPU indices of the node, ascending."""
    memory_mib: int = 0
    """Memory that is reserved and enforced; 0 if the job requested none (neither reserved nor enforced)."""
    resources: tuple[Amount, ...] = ()
    """Generic resources."""
    licenses: tuple[Amount, ...] = ()
    """Licences of the cluster for the whole job; only the first grant has them."""
    roles: tuple[RoleShare, ...] = ()
    """The grant divided among the roles of a het job."""


def shares(grant: Grant, other: Grant) -> bool:
    """Whether both grants have a CPU or GPU of the same node."""
    is_same = grant.node == other.node
    return is_same and not (set(grant.gpus).isdisjoint(other.gpus) and set(grant.cpus).isdisjoint(other.cpus))


def gpus_in(grants: Iterable[Grant]) -> int:
    return sum(len(grant.gpus) for grant in grants)


def format_ids(ids: tuple[int, ...]) -> str:
    """Format ids as a cpuset list, the stored and shown form of CPU and GPU sets: ``(0, 1, 2, 5)`` → ``0-2,5``."""
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
    """Parse the output of `format_ids`."""
    ids: list[int] = []
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        ids.extend(range(int(low), int(high if dash else low) + 1))
    return tuple(ids)


class Demand(NamedTuple):
    """The minimum resources that a request needs over the whole job."""

    nodes: int
    tasks: int
    cpus: int
    gpus: int
    memory_mib: int


@lru_cache(maxsize=4096)
def min_demand(request: ResourceRequest) -> Demand:
    """Return the demand shown for a pending job: the request with Slurm's defaults (1 node, 1 task, 1 CPU per task).

    A plan may grant more: whole nodes, more nodes, CPUs rounded up on each node.  Since the roles of a het job may
    share nodes, its number of nodes is that of its widest role.
    """
    if request.roles:
        demands = [min_demand(as_request(role.resources)) for role in request.roles]
        nodes = max(demand.nodes for demand in demands)
        return Demand(nodes, *(sum(counts) for counts in list(zip(*demands, strict=True))[1:]))
    nodes = request.nodes_min or _min_nodes(request)
    tasks = request.ntasks or _min_tasks(request, nodes)
    gpus = request.gpus or (request.gpus_per_node or 0) * nodes or (request.gpus_per_task or 0) * tasks
    cpus = max(tasks * (request.cpus_per_task or 1), gpus * (request.cpus_per_gpu or 0), nodes)
    memory_mib = (
        (request.mem_per_node_mib or 0) * nodes
        or (request.mem_per_cpu_mib or 0) * cpus
        or (request.mem_per_gpu_mib or 0) * gpus
    )
    return Demand(nodes, tasks, cpus, gpus, memory_mib)


def _min_nodes(request: ResourceRequest) -> int:
    """Return the number of nodes of a request without one: the nodes named, or what limits per node imply."""
    by_tasks = -(-request.ntasks // request.ntasks_per_node) if request.ntasks and request.ntasks_per_node else 1
    by_gpus = -(-request.gpus // request.gpus_per_node) if request.gpus and request.gpus_per_node else 1
    return max(1, len(request.nodelist), by_tasks, by_gpus, _counted_nodes(request.constraint))


def _counted_nodes(constraint: str) -> int:
    if not constraint:
        return 0
    from gq.model.constraint import min_nodes  # the import costs a command more than all other options

    return min_nodes(constraint)


def _min_tasks(request: ResourceRequest, nodes: int) -> int:
    """Return the number of tasks of a request without one: by node, by GPU, else one per node."""
    if request.ntasks_per_node:
        return nodes * request.ntasks_per_node
    if request.ntasks_per_gpu:
        return max(nodes, request.ntasks_per_gpu * (request.gpus or (request.gpus_per_node or 0) * nodes))
    if request.gpus and request.gpus_per_task:
        return max(nodes, request.gpus // request.gpus_per_task)
    return nodes
