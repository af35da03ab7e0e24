"""Reads the cluster's own history as a trace: jobs with their requests and run times, on the present nodes.

It queries the controller, as the commands do, and changes nothing.  A job counts as submitted when it could have
started (its dependencies and its ``--begin`` had been met), with its original request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gq.connection.account_list import whole_list
from gq.connection.client import Client
from gq.errors import Refusal
from gq.model.account import DEFAULT_ACCOUNT, ROOT, AccountInfo, MemberInfo
from gq.model.job import JobInfo
from gq.model.node import Gpu, Inventory, NodeInfo
from gq.wire import client
from gqd.sim.engine import EPOCH, Run
from gqd.sim.workload import SimJob, Site
from gqd.state.policy import Partition

PAGE = 2000


class History(NamedTuple):
    jobs: list[SimJob]
    site: Site
    recorded: Run
    """The actual starts and ends of the jobs, in the same order."""


def read_history(controller: Client, since: float) -> History:
    """Read the jobs that started and ended since `since`; `Refusal` if there are none."""
    rows = [one for one in _jobs(controller, since) if _ran(one, since)]
    if not rows:
        raise Refusal("no_history", "no job started and ended in that time", "go back further with --since")
    rows.sort(key=lambda one: (_came_at(one), one.job_id))
    jobs = [_sim_job(one) for one in rows]
    site = _site(controller, jobs)
    starts = [one.start_at - EPOCH for one in rows if one.start_at is not None]
    ends = [one.end_at - EPOCH for one in rows if one.end_at is not None]
    return History(jobs, site, Run(starts, ends))


def _jobs(controller: Client, since: float) -> Iterable[JobInfo]:
    after = 0
    while True:
        query = client.QueryHistory(ended_after=since, with_steps=False, after=after, limit=PAGE)
        answer = controller.ask_for(query, client.Jobs)
        yield from answer.jobs
        if not answer.more or not answer.jobs:
            return
        after = answer.jobs[-1].job_id


def _ran(job: JobInfo, since: float) -> bool:
    return job.start_at is not None and job.end_at is not None and _came_at(job) >= since


def _came_at(job: JobInfo) -> float:
    return max(job.submit_at, job.eligible_at or 0.0)


def _sim_job(job: JobInfo) -> SimJob:
    assert job.start_at is not None and job.end_at is not None
    return SimJob(
        name=str(job.job_id),
        user=job.user,
        account=job.account,
        partition=job.partition,
        submit_s=_came_at(job) - EPOCH,
        duration_s=max(0.0, job.end_at - job.start_at),
        gpus=job.gpus,
        limit_s=job.time_limit_s,
        resources=job.resources,
        qos=job.qos,
    )


# ── the cluster of today ──────────────────────────────────────────────────────────────────────────────────────────


def _site(controller: Client, jobs: list[SimJob]) -> Site:
    nodes = controller.ask_for(client.ListNodes(), client.Nodes).nodes
    shown = controller.ask_for(client.GetCluster(), client.Cluster).info.partitions
    partitions = tuple(
        Partition(name=one.partition, nodes=one.nodes, is_default=one.is_default, default_time_s=one.default_time_s)
        for one in shown
    )
    accounts = whole_list(lambda page: controller.ask_for(page, client.Accounts), client.ListAccounts())
    return Site(
        nodes={node.node: _inventory(node) for node in nodes}, partitions=partitions, setup=_setup(accounts, jobs)
    )


def _inventory(node: NodeInfo) -> Inventory:
    cards = tuple(Gpu(index=gpu.index, uuid=gpu.uuid, type=gpu.type, memory_mib=gpu.memory_mib) for gpu in node.gpus)
    return Inventory(
        cpus=node.cpus,
        memory_mib=node.memory_mib,
        gpus=cards,
        features=node.features,
        attributes=node.attributes,
        resources=node.resources,
        data=node.data,
    )


def _setup(there: client.Accounts, jobs: list[SimJob]) -> tuple[client.RequestBody, ...]:
    """Requests that create the present accounts, members, QOS and limits, and removed ones that jobs name."""
    known = {one.name: one for one in there.accounts} | {ROOT: AccountInfo(name=ROOT)}
    gone = dict.fromkeys(job.account for job in jobs if job.account and job.account not in known)
    members = {(one.user, one.account): one for one in there.members}
    for job in jobs:
        members.setdefault((job.user, job.account or DEFAULT_ACCOUNT), _member(job))
    qos = {one.name: msgspec.structs.replace(one, users=(), groups=(), accounts=()) for one in there.qos}
    is_there = (ROOT, DEFAULT_ACCOUNT)
    return (
        *(client.SetAccount(account=one, is_new=one.name not in is_there) for one in _from_the_top(known)),
        *(client.SetAccount(account=AccountInfo(name=name), is_new=True) for name in gone if name not in is_there),
        *(
            client.SetMember(member=msgspec.structs.replace(one, from_group=False), is_new=True)
            for one in members.values()
        ),
        *(client.SetQos(qos=one, is_new=name != "normal") for name, one in qos.items()),
        *(client.SetLimit(limit=msgspec.structs.replace(one, used=None)) for one in there.limits),
    )


def _member(job: SimJob) -> MemberInfo:
    return MemberInfo(user=job.user, account=job.account or DEFAULT_ACCOUNT)


def _from_the_top(accounts: dict[str, AccountInfo]) -> list[AccountInfo]:
    """The accounts, each after its parent, without the root."""

    def depth(info: AccountInfo) -> float:
        above, count = info.name, 0
        while above != ROOT and count <= len(accounts):
            above, count = accounts[above].parent if above in accounts else ROOT, count + 1
        return count if count <= len(accounts) else math.inf

    return sorted((one for one in accounts.values() if one.name != ROOT), key=depth)
