"""The parts of a job's request that are not plain numbers, as tables and JSON show them.

A heterogeneous job has a request per role; equal requests are shown once, others by role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gq.cli.framework.output import JsonValue
from gq.model.job import JobInfo
from gq.model.nodelist import compress
from gq.model.resource import Amount, Demand, ResourceRequest, Role, RoleRequest, as_request, min_demand
from gq.request.options import RESOURCE_OPTIONS
from gq.units import format_duration, format_memory

TMP = "tmp"


def by_role(request: ResourceRequest, text: Callable[[RoleRequest], str]) -> str:
    """``a100``, or ``ps=;worker=a100``."""
    if not request.roles:
        return text(request)
    said = [(role.name, text(role.resources)) for role in request.roles]
    if len({one for _, one in said}) == 1:
        return said[0][1]
    return ";".join(f"{name}={one}" for name, one in said)


def constraint(job: JobInfo) -> str:
    return by_role(job.resources, lambda asked: asked.constraint)


def preference(job: JobInfo) -> str:
    return by_role(job.resources, lambda asked: asked.prefer)


def data(job: JobInfo) -> str:
    return by_role(job.resources, lambda asked: ",".join(asked.data))


def licenses(job: JobInfo) -> str:
    """``matlab:2,ansys:1``"""
    return amounts(job.resources.licenses)


def amounts(ones: Iterable[Amount]) -> str:
    return ",".join(f"{one.name}:{one.count}" for one in ones)


def switches(job: JobInfo) -> str:
    """``1``, ``1@10:00``"""
    asked = job.resources
    if asked.switches is None:
        return ""
    wait = "" if asked.switches_wait_s is None else f"@{format_duration(asked.switches_wait_s)}"
    return f"{asked.switches}{wait}"


def per_node(job: JobInfo) -> str:
    """Return the named resources per node: ``gpu:a100:2,fpga:1``."""
    return by_role(job.resources, _per_node)


def _per_node(asked: RoleRequest) -> str:
    kind = f"{asked.gpu_type}:" if asked.gpu_type else ""
    gpus = [f"gpu:{kind}{asked.gpus_per_node}"] if asked.gpus_per_node else []
    generic = amounts(resource for resource in asked.resources if resource.name != TMP)
    return ",".join([*gpus, *([generic] if generic else [])])


def scratch(job: JobInfo) -> str:
    """Return the scratch space per node; ``0``: none."""
    return by_role(job.resources, lambda asked: format_memory(_scratch_mib(asked)) if _scratch_mib(asked) else "0")


def _scratch_mib(asked: RoleRequest) -> int:
    return sum(resource.count for resource in asked.resources if resource.name == TMP)


def memory(asked: RoleRequest) -> str:
    """Per node, CPU or GPU, as it was asked; 0 where it was not."""
    mib = asked.mem_per_node_mib or asked.mem_per_cpu_mib or asked.mem_per_gpu_mib
    return format_memory(mib) if mib else "0"


def nodes(job: JobInfo) -> str:
    return by_role(job.resources, lambda asked: compress(asked.nodelist))


def left_out(job: JobInfo) -> str:
    return by_role(job.resources, lambda asked: compress(asked.exclude))


def roles(job: JobInfo) -> str:
    """``ps:2,worker:4``: how many tasks each has."""
    return ",".join(f"{role.name}:{_demand(role).tasks}" for role in job.resources.roles)


def _demand(role: Role) -> Demand:
    return min_demand(as_request(role.resources))


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────


def asked_json(request: ResourceRequest) -> dict[str, JsonValue]:
    """All of it, with stable keys."""
    return {
        **_of_nodes(request),
        "switches": request.switches,
        "switches_wait_s": request.switches_wait_s,
        "licenses": _counts(request.licenses),
        "roles": [{"role": role.name, **_role_json(role)} for role in request.roles],
    }


def _of_nodes(asked: RoleRequest) -> dict[str, JsonValue]:
    shown = {option.sets: getattr(asked, option.sets) for option in RESOURCE_OPTIONS if option.is_shown}
    return {**shown, "resources": _counts(asked.resources)}


def _role_json(role: Role) -> dict[str, JsonValue]:
    demand = _demand(role)
    numbers = {"tasks": demand.tasks, "cpus": demand.cpus, "gpus": demand.gpus, "memory_mib": demand.memory_mib}
    return {**numbers, "gpu_type": role.resources.gpu_type, **_of_nodes(role.resources)}


def _counts(ones: Iterable[Amount]) -> dict[str, int]:
    return {one.name: one.count for one in ones}
