"""The workload of a replay: jobs with recorded run times, and the nodes and partitions of the virtual cluster.  Pure.

Owns the types of both, and changes of a trace before a replay: its load, its limits.  Times are seconds on the trace's
own clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from gq.model.account import DEFAULT_ACCOUNT, ROOT, AccountInfo, MemberInfo
from gq.model.node import Gpu, Inventory
from gq.model.resource import ResourceRequest
from gq.wire import client
from gq.wire.client import RequestBody
from gqd.state.policy import ALL_NODES, Partition

CPUS_TO_SPARE = 2
"""CPUs of a virtual node for each of its GPUs, so that only GPUs are scarce."""
MEMORY_MIB = 1 << 20
MAX_NAME = 63
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


class SimJob(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded job."""

    name: str
    """The job's id in the trace."""
    user: str
    account: str = ""
    """Account; empty: the default account."""
    partition: str
    submit_s: float
    duration_s: float
    """Recorded run time; the job runs as long unless its time limit is shorter."""
    gpus: int
    resources: ResourceRequest
    limit_s: float | None = None
    qos: str = ""
    reservation: str = ""

    @property
    def runs_s(self) -> float:
        """Seconds until the job ends, by itself or by its time limit."""
        return self.duration_s if self.limit_s is None else min(self.duration_s, self.limit_s)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The virtual cluster."""

    nodes: dict[str, Inventory]
    partitions: tuple[Partition, ...]
    setup: tuple[RequestBody, ...] = ()
    """Requests that set up accounts, members, QOS, limits and reservations."""

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes.values())

    def gpus_in(self, partition: Partition) -> int:
        return sum(len(node.gpus) for name, node in self.nodes.items() if partition.has_node(name))


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A number of equal nodes, as in a ``.cluster.json``."""

    pool: str
    nodes: int
    gpus_per_node: int
    gpu_type: str = ""


def site_of(pools: Sequence[Pool]) -> Site:
    """The site with a partition for each pool and nodes ``POOL-1``, ``POOL-2`` …"""
    nodes: dict[str, Inventory] = {}
    partitions: list[Partition] = []
    for pool in pools:
        names = tuple(f"{pool.pool}-{number}" for number in range(1, pool.nodes + 1))
        has = _node(pool.gpus_per_node, pool.gpu_type or "gpu")
        nodes.update(dict.fromkeys(names, has))
        reach = ALL_NODES if len(pools) == 1 else names
        partitions.append(Partition(name=pool.pool, nodes=reach, is_default=not partitions))
    return Site(nodes=nodes, partitions=tuple(partitions))


def _node(gpus: int, gpu_type: str) -> Inventory:
    """The inventory of a virtual node, with more CPUs and memory than jobs on its GPUs need."""
    cards = tuple(Gpu(index=one, uuid=f"GPU-{one}", type=gpu_type, memory_mib=0, is_fake=True) for one in range(gpus))
    return Inventory(cpus=max(1, CPUS_TO_SPARE * gpus), memory_mib=MEMORY_MIB, gpus=cards)


def name_from(text: str) -> str:
    """The name of a user or an account of a trace, changed to one that gq accepts; empty: none."""
    name = _NO_NAME.sub("_", text)[:MAX_NAME]
    return name if not name or name[0].isalnum() else f"x{name[1:]}"


def account_from(text: str) -> str:
    """The account of a job; jobs of the root account belong to the default account."""
    name = name_from(text)
    return "" if name == ROOT else name


@lru_cache(maxsize=4096)
def gpus_wanted(gpus: int) -> ResourceRequest:
    """A request for GPUs on as few nodes as possible, and for no other scarce resource."""
    return ResourceRequest(gpus=gpus, is_dense=True)


def setup_for(jobs: Iterable[SimJob]) -> tuple[RequestBody, ...]:
    """Requests that create the jobs' accounts, as equal siblings, and their members."""
    pairs = dict.fromkeys((job.account, job.user) for job in jobs if job.account)
    accounts = dict.fromkeys(account for account, _ in pairs if account != DEFAULT_ACCOUNT)
    return (
        *(client.SetAccount(account=AccountInfo(name=name), is_new=True) for name in accounts),
        *(client.SetMember(member=MemberInfo(user=user, account=name), is_new=True) for name, user in pairs),
    )


# ── changes of a trace ────────────────────────────────────────────────────────────────────────────────────────────


class LeftOut(NamedTuple):
    """A job that is not replayed, and why."""

    name: str
    why: str


def those_that_fit(jobs: Iterable[SimJob], site: Site) -> tuple[list[SimJob], list[LeftOut]]:
    """(jobs that fit, dropped jobs: wider than their partition, in an unknown one, or of no duration)."""
    width = {partition.name: site.gpus_in(partition) for partition in site.partitions}
    kept, dropped = [], []
    for job in jobs:
        if job.partition not in width:
            dropped.append(LeftOut(job.name, f"there is no partition {job.partition}"))
        elif job.gpus > width[job.partition]:
            why = f"it asks for {job.gpus} GPUs, partition {job.partition} has {width[job.partition]}"
            dropped.append(LeftOut(job.name, why))
        elif job.duration_s <= 0:
            dropped.append(LeftOut(job.name, "its run time is 0"))
        else:
            kept.append(job)
    return kept, dropped


def offered_load(jobs: Sequence[SimJob], gpus: int) -> float:
    """Requested GPU-seconds divided by those available while jobs were submitted; infinite if all came at once."""
    span_s = jobs[-1].submit_s - jobs[0].submit_s if jobs else 0.0
    asked = sum(job.gpus * job.duration_s for job in jobs)
    return asked / (gpus * span_s) if gpus and span_s else math.inf


def with_load(jobs: Sequence[SimJob], gpus: int, load: float) -> list[SimJob]:
    """The jobs with submissions moved closer together or farther apart, so that the offered load is `load`."""
    offered = offered_load(jobs, gpus)
    if math.isinf(offered):
        return list(jobs)
    factor, first_s = offered / load, jobs[0].submit_s
    return [msgspec.structs.replace(job, submit_s=float(round((job.submit_s - first_s) * factor))) for job in jobs]


def with_limits(jobs: Iterable[SimJob], factor: float) -> list[SimJob]:
    """The jobs; those without a time limit get their run time multiplied by `factor`."""
    return [
        job
        if job.limit_s is not None
        else msgspec.structs.replace(job, limit_s=float(math.ceil(job.duration_s * factor)))
        for job in jobs
    ]
