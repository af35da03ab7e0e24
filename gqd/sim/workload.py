"""What is replayed: jobs with their recorded lengths, and the nodes and partitions of the cluster they are given to.

Owns the forms of both, and what may be done to a trace before it is run: its load, its limits.  Times are seconds on
the trace's own clock.  Pure.
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
"""Each virtual node has so many CPUs for each of its GPUs, where only GPUs shall count."""
MEMORY_MIB = 1 << 20
MAX_NAME = 63
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


class SimJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job as it was recorded."""

    name: str
    """Its id in the trace."""
    user: str
    account: str = ""
    """Empty: the default account."""
    partition: str
    submit_s: float
    duration_s: float
    """How long it ran, and will run unless its time limit is shorter."""
    gpus: int
    resources: ResourceRequest
    limit_s: float | None = None
    qos: str = ""
    reservation: str = ""

    @property
    def runs_s(self) -> float:
        """Until it ends by itself or by its time limit."""
        return self.duration_s if self.limit_s is None else min(self.duration_s, self.limit_s)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The virtual cluster."""

    nodes: dict[str, Inventory]
    partitions: tuple[Partition, ...]
    setup: tuple[RequestBody, ...] = ()
    """What an administrator has set up: accounts, their members, QOS, limits, reservations."""

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes.values())

    def gpus_in(self, partition: Partition) -> int:
        return sum(len(node.gpus) for name, node in self.nodes.items() if partition.has_node(name))


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Equal nodes, as a ``.cluster.json`` describes them."""

    pool: str
    nodes: int
    gpus_per_node: int
    gpu_type: str = ""


def site_of(pools: Sequence[Pool]) -> Site:
    """A partition for each pool; nodes are called ``POOL-1`` …"""
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
    """More CPUs and memory than its GPUs can have jobs."""
    cards = tuple(Gpu(index=one, uuid=f"GPU-{one}", type=gpu_type, memory_mib=0, is_fake=True) for one in range(gpus))
    return Inventory(cpus=max(1, CPUS_TO_SPARE * gpus), memory_mib=MEMORY_MIB, gpus=cards)


def name_from(text: str) -> str:
    """The name of a user or an account of a trace as one that gq takes; empty where there is none."""
    name = _NO_NAME.sub("_", text)[:MAX_NAME]
    return name if not name or name[0].isalnum() else f"x{name[1:]}"


def account_from(text: str) -> str:
    """Jobs of the root of the accounts count for the default account."""
    name = name_from(text)
    return "" if name == ROOT else name


@lru_cache(maxsize=4096)
def gpus_wanted(gpus: int) -> ResourceRequest:
    """So many GPUs on as few nodes as they fill, and nothing else that could be short."""
    return ResourceRequest(gpus=gpus, is_dense=True)


def setup_for(jobs: Iterable[SimJob]) -> tuple[RequestBody, ...]:
    """The accounts of these jobs, equal beside each other, and whoever submits to them."""
    pairs = dict.fromkeys((job.account, job.user) for job in jobs if job.account)
    accounts = dict.fromkeys(account for account, _ in pairs if account != DEFAULT_ACCOUNT)
    return (
        *(client.SetAccount(account=AccountInfo(name=name), is_new=True) for name in accounts),
        *(client.SetMember(member=MemberInfo(user=user, account=name), is_new=True) for name, user in pairs),
    )


# ── what may be done to a trace ───────────────────────────────────────────────────────────────────────────────


class LeftOut(NamedTuple):
    """A job that is not replayed."""

    name: str
    why: str


def those_that_fit(jobs: Iterable[SimJob], site: Site) -> tuple[list[SimJob], list[LeftOut]]:
    """(jobs, those that were dropped: wider than all of their partition, or in none that there is)"""
    width = {partition.name: site.gpus_in(partition) for partition in site.partitions}
    kept, dropped = [], []
    for job in jobs:
        if job.partition not in width:
            dropped.append(LeftOut(job.name, f"there is no partition {job.partition}"))
        elif job.gpus > width[job.partition]:
            why = f"it asks for {job.gpus} GPUs, partition {job.partition} has {width[job.partition]}"
            dropped.append(LeftOut(job.name, why))
        elif job.duration_s <= 0:
            dropped.append(LeftOut(job.name, "it ran for no time"))
        else:
            kept.append(job)
    return kept, dropped


def offered_load(jobs: Sequence[SimJob], gpus: int) -> float:
    """GPU seconds asked for, of those that there were while jobs came; infinite if all came at once."""
    span_s = jobs[-1].submit_s - jobs[0].submit_s if jobs else 0.0
    asked = sum(job.gpus * job.duration_s for job in jobs)
    return asked / (gpus * span_s) if gpus and span_s else math.inf


def with_load(jobs: Sequence[SimJob], gpus: int, load: float) -> list[SimJob]:
    """Arrivals nearer together or farther apart, so that so much of the cluster is asked for."""
    offered = offered_load(jobs, gpus)
    if math.isinf(offered):
        return list(jobs)
    factor, first_s = offered / load, jobs[0].submit_s
    return [msgspec.structs.replace(job, submit_s=float(round((job.submit_s - first_s) * factor))) for job in jobs]


def with_limits(jobs: Iterable[SimJob], factor: float) -> list[SimJob]:
    """Those that name no time limit get so many times what they will need."""
    return [
        job
        if job.limit_s is not None
        else msgspec.structs.replace(job, limit_s=float(math.ceil(job.duration_s * factor)))
        for job in jobs
    ]
