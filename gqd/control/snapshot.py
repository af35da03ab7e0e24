"""The cluster as the planner may see it: an immutable copy.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_not
from typing import cast, overload

import numpy as np

from gq.model.ids import JobId
from gq.model.resource import ResourceRequest, parse_ids
from gq.model.state import JobState
from gqd.control import array, limit
from gqd.sched.constraint_match import attributes_of
from gqd.sched.gpu_topology import topology_of
from gqd.sched.priority import Order, order_of
from gqd.sched.shape import shape_in
from gqd.sched.view import NodeFacts, Overlay, PendingColumns, PendingJob, RunningJob, Snapshot
from gqd.state.cluster import Attempt, Cluster, Job, Node, mask_of
from gqd.state.deadlines import time_limit_of
from gqd.state.policy import Policy
from gqd.state.queue import Integers, PendingQueue, member_of, startable_tasks
from gqd.state.volatile import Volatile


def take(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> Snapshot:
    """Nodes in natural order, the queue, and everything that holds resources.

    What is told of a node, of a job and of an attempt is the same object as long as it has not changed.
    """
    nodes = _ordered(cluster)
    limits = limit.view(cluster, policy, now)
    waiting = order_of(cluster, policy, now, limits)
    cluster.queue.begin_views(policy)
    plan = volatile.plan
    return Snapshot(
        now=now,
        policy=policy,
        nodes=_all_facts(nodes, volatile, now),
        free_cpus=tuple([node.free_cpu_mask for node in nodes]),
        free_gpus=tuple([_free_gpus(node) if node.drained_gpus else node.free_gpu_mask for node in nodes]),
        free_memory_mib=tuple([node.inventory.memory_mib - node.used_memory_mib for node in nodes]),
        since=tuple([node.free_since for node in nodes]),
        free_resources={name: tuple(free.tolist()) for name, free in _free_resources(nodes).items()},
        free_licenses=free_licenses(nodes, policy),
        pending=Waiting(cluster, policy, waiting.job_ids),
        columns=_columns(cluster.queue, waiting),
        running=_all_running(cluster),
        array_room=array.array_room(cluster),
        array_throttle=array.array_throttle(cluster),
        limits=limits,
        kept_back=waiting.kept_back,
        protected=() if plan is None else plan.protected,
        resumes_at=None if plan is None else plan.resumes_at,
    )


def nodes_of(cluster: Cluster, volatile: Volatile, now: float) -> tuple[NodeFacts, ...]:
    """In natural order."""
    return _all_facts(_ordered(cluster), volatile, now)


def overlay(cluster: Cluster, volatile: Volatile, now: float, policy: Policy | None = None) -> Overlay:
    """What is free on the nodes, to try things on; with a policy, licences of the cluster are counted, too."""
    nodes = _ordered(cluster)
    return Overlay(
        _all_facts(nodes, volatile, now),
        [node.free_cpu_mask for node in nodes],
        [_free_gpus(node) if node.drained_gpus else node.free_gpu_mask for node in nodes],
        [node.inventory.memory_mib - node.used_memory_mib for node in nodes],
        _free_resources(nodes),
        None if policy is None else free_licenses(nodes, policy),
    )


# ── who waits ─────────────────────────────────────────────────────────────────────────────────────────────────


class Waiting:
    """Jobs in an order that stays; each is only looked up when it is asked for.

    A pass goes on over several turns: what has changed since it began is told as held, for the next pass to see.
    """

    def __init__(self, cluster: Cluster, policy: Policy, job_ids: Integers) -> None:
        self._cluster = cluster
        self._policy = policy
        self._job_ids = job_ids
        self._tick = cluster.queue.tick
        self._gone: dict[int, PendingJob] = {}

    def __len__(self) -> int:
        return len(self._job_ids)

    @overload
    def __getitem__(self, place: int) -> PendingJob: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[PendingJob, ...]: ...
    def __getitem__(self, place: int | slice) -> PendingJob | tuple[PendingJob, ...]:
        if isinstance(place, slice):
            return tuple([self._of(JobId(one)) for one in self._job_ids[place].tolist()])
        return self._of(JobId(int(self._job_ids[place])))

    def __iter__(self) -> Iterator[PendingJob]:
        return (self._of(JobId(one)) for one in self._job_ids.tolist())

    def _of(self, job_id: JobId) -> PendingJob:
        queue = self._cluster.queue
        if queue.has_changed(job_id, self._tick):
            return _not_now(job_id, self._cluster.jobs.get(job_id), self._policy)
        view = queue.view(job_id)
        if not isinstance(view, PendingJob):
            view = pending_job(self._cluster.jobs[job_id], self._policy)
            queue.keep_view(job_id, view)
        return view


def _not_now(job_id: JobId, job: Job | None, policy: Policy) -> PendingJob:
    if job is not None:
        return replace(pending_job(job, policy), is_held=True)
    shape = shape_in(policy, ResourceRequest(), policy.default_partition.name)
    return PendingJob(job_id, 0, "", shape, None, is_held=True, begin_at=None)


def _columns(queue: PendingQueue, waiting: Order) -> PendingColumns:
    places = waiting.places
    accrue_at = queue.floats("accrue_at")[places]
    return PendingColumns(
        job_id=waiting.job_ids,
        shape=queue.integers("shape")[places],
        expected_s=queue.floats("expected_s")[places],
        time_limit_s=queue.floats("time_limit_s")[places],
        since=np.where(np.isinf(accrue_at), queue.floats("submit_at")[places], accrue_at),
        band=waiting.band,
        source=queue,
    )


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _ordered(cluster: Cluster) -> tuple[Node, ...]:
    """In natural order; nodes seldom come and go."""
    known = cluster.ordered_nodes
    if known is None:
        known = cluster.ordered_nodes = tuple(sorted(cluster.nodes.values(), key=natural_order))
    return known


def _all_facts(nodes: tuple[Node, ...], volatile: Volatile, now: float) -> tuple[NodeFacts, ...]:
    """The same tuple as before if all are.  That most nodes are well is seen here, without a call for each."""
    strangers = nodes_with_strangers(nodes, volatile)
    links = volatile.links
    facts = [
        view
        if isinstance(view := node.view, NodeFacts)
        and not (view.unavailable or strangers or node.is_down or node.is_lost or node.is_drained)
        and node.backoff_until <= now
        and node.name in links
        else _facts_view(node, volatile, node.name in strangers, now)
        for node in nodes
    ]
    before = volatile.nodes_view
    if len(before) != len(facts) or any(map(is_not, before, facts)):
        volatile.nodes_view = before = tuple(facts)
    return cast(tuple[NodeFacts, ...], before)


def _facts_view(node: Node, volatile: Volatile, has_strangers: bool, now: float) -> NodeFacts:
    unavailable = _unavailable_because(node, volatile, has_strangers, now)
    view = node.view
    if not isinstance(view, NodeFacts) or view.unavailable != unavailable:
        view = node.view = _facts(node, unavailable)
    return view


def natural_order(node: Node) -> tuple[tuple[int, int | str], ...]:
    """n2 before n10."""
    return _natural_order(node.name)


@lru_cache(maxsize=16384)
def _natural_order(name: str) -> tuple[tuple[int, int | str], ...]:
    parts: list[tuple[int, int | str]] = []
    word = ""
    for one in f"{name}\0":
        if word and one.isdecimal() != word[0].isdecimal():
            parts.append((0, int(word)) if word.isdecimal() else (1, word))
            word = ""
        word += one
    return tuple(parts)


def unavailable_because(node: Node, volatile: Volatile, now: float) -> str:
    """Why the node gets no jobs; empty if it may."""
    return _unavailable_because(node, volatile, bool(nodes_with_strangers((node,), volatile)), now)


def _unavailable_because(node: Node, volatile: Volatile, has_strangers: bool, now: float) -> str:
    if node.is_down:
        return f"down: {node.reason}"
    if node.is_lost:
        return "lost: not heard any more"
    if node.is_drained:
        return f"drained: {node.reason}"
    if node.name not in volatile.links:
        return "not heard since the controller started"
    if node.backoff_until > now:
        return "left out after a failed launch"
    return BEING_CLEANED if has_strangers else ""


BEING_CLEANED = "being cleaned of jobs that it ran before"


def nodes_with_strangers(nodes: Sequence[Node], volatile: Volatile) -> set[str]:
    """They have something of attempts that have no part there (they were removed, and joined again), and were told to
    stop it.

    What they use is in nobody's books.
    """
    if not volatile.stop_orders:
        return set()
    held = {node.name: node.held for node in nodes}
    return {name for attempt_id, name in volatile.stop_orders if name in held and attempt_id not in held[name]}


def _facts(node: Node, unavailable: str) -> NodeFacts:
    inventory = node.inventory
    masks: dict[str, int] = {}
    drained: dict[str, int] = {}
    sizes: dict[int, int] = {}
    for gpu in inventory.gpus:
        of = drained if gpu.index in node.drained_gpus else masks
        of[gpu.type] = of.get(gpu.type, 0) | (1 << gpu.index)
        sizes[gpu.memory_mib] = sizes.get(gpu.memory_mib, 0) | (1 << gpu.index)
    return NodeFacts(
        name=node.name,
        cpus=inventory.cpus,
        memory_mib=inventory.memory_mib,
        gpu_types=tuple(masks.items()),
        drained=tuple(drained.items()),
        unavailable=unavailable,
        backoff_until=node.backoff_until,
        gpu_memory=tuple(sizes.items()),
        topology=topology_of(inventory.gpus),
        cpu_numa=tuple((numa, mask_of(parse_ids(cpus))) for numa, cpus in inventory.cpu_numa),
        features=frozenset(inventory.features),
        attributes=attributes_of(inventory),
        resources=tuple(sorted(inventory.resources.items())),
        data=frozenset(inventory.data),
    )


def _free_resources(nodes: Sequence[Node]) -> dict[str, Integers]:
    """Generic resources, by place; what a node has not is 0."""
    names = dict.fromkeys(name for node in nodes for name in node.inventory.resources)
    return {
        name: np.array([node.inventory.resources.get(name, 0) - node.used_resources.get(name, 0) for node in nodes])
        for name in names
    }


def free_licenses(nodes: Iterable[Node], policy: Policy) -> dict[str, int]:
    """Of the whole cluster; below 0 where there are fewer than there were."""
    free = dict(policy.licenses)
    for node in nodes:
        for name, count in node.used_licenses.items() if node.used_licenses else ():
            free[name] = free.get(name, 0) - count
    return free


def _free_gpus(node: Node) -> int:
    mask = node.free_gpu_mask
    for index in node.drained_gpus:
        mask &= ~(1 << index)
    return mask


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def pending_job(job: Job, policy: Policy) -> PendingJob:
    """Where it stands in the queue is not in it: that changes all the time."""
    return PendingJob(
        job_id=job.job_id,
        attempt=job.attempt,
        user=job.user,
        shape=shape_in(policy, job.spec.resources, job.partition),
        time_limit_s=job.time_limit_s,
        is_held=job.hold is not None,
        begin_at=job.spec.begin_at,
        avoid=tuple(job.avoid.items()),
        account=member_of(job)[1],
        qos=job.qos,
        tasks=startable_tasks(job),
        array_job_id=job.job_id if job.array is not None else job.array_job_id,
        expected_s=job.expected_s,
        since=job.submit_at if job.accrue_at is None else job.accrue_at,
    )


def _all_running(cluster: Cluster) -> tuple[RunningJob, ...]:
    """Those of which nothing has changed are looked at no closer: there may be thousands."""
    views = [attempt.view or _told_anew(cluster, attempt) for attempt in cluster.holding.values()]
    return cast(tuple[RunningJob, ...], tuple(views))


def _told_anew(cluster: Cluster, attempt: Attempt) -> RunningJob:
    view = attempt.view = _running(cluster, attempt)
    return view


def _running(cluster: Cluster, attempt: Attempt) -> RunningJob:
    """What the attempt still holds, and until when at most."""
    job = cluster.jobs.get(attempt.attempt_id.job_id)
    is_current = job is not None and job.attempt_id == attempt.attempt_id
    ends_at = None
    if is_current and job is not None and (limit_s := time_limit_of(job, attempt)) is not None:
        ends_at = (attempt.start_at or attempt.allocated_at) + limit_s
    if is_current and job is not None and job.state is JobState.COMPLETING:
        ends_at = (attempt.end_at or attempt.allocated_at) + attempt.grace_s
    return RunningJob(
        job_id=attempt.attempt_id.job_id,
        user=job.user if job is not None else "",
        grants=tuple(part.grant for part in attempt.parts.values()),
        ends_at=ends_at,
        is_stranded=not is_current or any(part.is_stranded for part in attempt.parts.values()),
        began_at=attempt.start_at or attempt.allocated_at,
        expected_s=job.expected_s if is_current and job is not None else None,
        slot=attempt.slot,
    )
