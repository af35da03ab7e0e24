"""The cluster as the planner may see it: an immutable copy.  Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_not
from typing import cast, overload

import numpy as np

from gq.model.account import BUILT_IN_QOS, NORMAL_QOS
from gq.model.ids import JobId
from gq.model.reservation import Flag
from gq.model.resource import Grant, ResourceRequest, parse_ids, shares
from gq.model.state import JobState
from gqd.control import array, requeue
from gqd.control.accounts import limit, share
from gqd.sched.cycle.nominated import OVERDUE_S
from gqd.sched.placement.constraints import attributes_of
from gqd.sched.preemption.partial_release import parts_going
from gqd.sched.preemption.suspend_victims import cut
from gqd.sched.priority.order import Order, order_of
from gqd.sched.request import shape_in
from gqd.sched.snapshot.gpu_links import topology_of
from gqd.sched.snapshot.model import Booked, Claim, PendingColumns, PendingJob, RunningJob, Share, Snapshot, Stretch
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.cluster import Cluster
from gqd.state.elastic import givers_to, going_of, is_going, is_left, shrink_notice_s, staying
from gqd.state.index.deadlines import last_start_at, time_limit_of
from gqd.state.index.queue import Integers, PendingQueue, member_of, startable_tasks
from gqd.state.parked import can_park, fits_beside, lent_masks, lent_to
from gqd.state.policy import Policy
from gqd.state.preemption import notice_s
from gqd.state.records import Attempt, Job, Node, mask_of
from gqd.state.records import Claim as ClaimRecord
from gqd.state.reservation import Occurrence, Reservation
from gqd.state.volatile import Volatile


def take(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> Snapshot:
    """Nodes in natural order, the queue, and everything that holds resources.

    What is told of a node, of a job and of an attempt is the same object as long as it has not changed.
    """
    limits = limit.view(cluster, policy, now)
    waiting = order_of(cluster, policy, now, limits)
    cluster.queue.begin_views(policy)
    plan = volatile.plan
    return replace(
        without_queue(cluster, policy, volatile, now),
        pending=Waiting(cluster, policy, waiting.job_ids),
        columns=_columns(cluster.queue, waiting),
        array_room=array.array_room(cluster),
        array_throttle=array.array_throttle(cluster),
        auto_throttle=array.auto_throttle(cluster),
        limits=limits,
        gives_back=share.gives_back(cluster, now) if limits.has_guarantees else {},
        kept_back=waiting.kept_back,
        protected=() if plan is None else plan.protected,
        resumes_at=None if plan is None else plan.resumes_at,
        searches_from=None if plan is None else plan.searches_from,
    )


def without_queue(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> Snapshot:
    """The nodes, what holds them and what is kept of them, as if nobody waited."""
    nodes = _ordered(cluster)
    lent = lent_masks(cluster) if cluster.parked else {}
    free_cpus = [node.free_cpu_mask for node in nodes]
    free_gpus = [_free_gpus(node) if node.drained_gpus else node.free_gpu_mask for node in nodes]
    for place, node in enumerate(nodes) if lent else ():
        cpus, gpus = lent.get(node.name, (0, 0))
        free_cpus[place], free_gpus[place] = free_cpus[place] & ~cpus, free_gpus[place] & ~gpus
    return Snapshot(
        now=now,
        policy=policy,
        nodes=_all_facts(nodes, volatile, now),
        free_cpus=tuple(free_cpus),
        free_gpus=tuple(free_gpus),
        free_memory_mib=tuple([node.inventory.memory_mib - node.used_memory_mib for node in nodes]),
        since=tuple([node.free_since for node in nodes]),
        free_resources={name: tuple(free.tolist()) for name, free in _free_resources(nodes).items()},
        free_licenses=free_licenses(nodes, policy),
        pending=(),
        running=(*all_running(cluster), *_given_up(cluster, now)),
        booked=booked_of(cluster.reservations.values(), policy.clear_s, now),
        claims=claims_of(cluster, now),
        qos={**BUILT_IN_QOS, **cluster.qos},
    )


def nodes_of(cluster: Cluster, volatile: Volatile, now: float) -> tuple[NodeFacts, ...]:
    """In natural order."""
    return _all_facts(_ordered(cluster), volatile, now)


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
    return PendingColumns(
        job_id=waiting.job_ids,
        shape=queue.integers("shape")[places],
        expected_s=queue.floats("expected_s")[places],
        time_limit_s=queue.floats("time_limit_s")[places],
        since=queue.since()[places],
        band=waiting.band,
        priority=waiting.priority,
        reservation=queue.integers("reservation")[places],
        member=queue.integers("member")[places],
        qos=queue.integers("qos")[places],
        reservations=queue.reservations,
        members=queue.members,
        names_of_qos=queue.qos,
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
        can_join=inventory.can_join,
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
        since=_since(job),
        reservation=job.spec.reservation,
        last_start_at=last_start_at(job),
        waits_since=max(_since(job), job.eligible_at),
        ran_s=job.ran_s,
        resume_s=_resume_s(job),
        fits_beside=fits_beside(job.spec.resources),
    )


def _resume_s(job: Job) -> float | None:
    """What it has measured, else what its owner says."""
    return job.spec.resume_s if job.resumed is None else job.resumed.cost_s


def _since(job: Job) -> float:
    return job.submit_at if job.accrue_at is None else job.accrue_at


def all_running(cluster: Cluster) -> tuple[RunningJob, ...]:
    """What holds resources.  Those of which nothing has changed are looked at no closer: there may be thousands."""
    views = [attempt.view or _told_anew(cluster, attempt) for attempt in cluster.holding.values()]
    return cast(tuple[RunningJob, ...], tuple(views))


def _told(cluster: Cluster, attempt: Attempt) -> RunningJob:
    return cast(RunningJob, attempt.view or _told_anew(cluster, attempt))


def _told_anew(cluster: Cluster, attempt: Attempt) -> RunningJob:
    view = attempt.view = _running(cluster, attempt)
    return view


def _running(cluster: Cluster, attempt: Attempt) -> RunningJob:
    """What the attempt still holds, and until when at most."""
    job = cluster.jobs.get(attempt.attempt_id.job_id)
    is_current = job is not None and job.attempt_id == attempt.attempt_id
    ends_at = None
    is_going_on = attempt.suspended_at is None  # else nobody knows when it will be over
    if is_current and job is not None and is_going_on and (limit_s := time_limit_of(job, attempt)) is not None:
        ends_at = (attempt.start_at or attempt.allocated_at) + limit_s + attempt.suspended_s
    parked, way = cluster.parked.get(attempt.attempt_id), attempt.preemption
    if parked is not None and parked.lent is not None:
        way = None  # it gives nothing more
    parts = list(attempt.parts.items())
    if attempt.elastic is not None:  # the rest is told apart: see `_given_up`
        parts = [each for each in parts if not is_left(attempt, each[0]) and not is_going(attempt, each[0])]
    grants = tuple([staying(attempt, part.grant) for _, part in parts])
    if way is not None:
        ends_at = way.ends_at if ends_at is None else min(ends_at, way.ends_at)
    if is_current and job is not None and job.state is JobState.COMPLETING:
        ends_at = (attempt.end_at or attempt.allocated_at) + attempt.grace_s
    is_stranded = not is_current or any(part.is_stranded for _, part in parts)
    lent = lent_to(cluster, attempt)
    may_go = is_going_on and not is_stranded and job is not None and job.state is JobState.RUNNING and not lent
    return RunningJob(
        job_id=attempt.attempt_id.job_id,
        user=job.user if job is not None else "",
        grants=(cut(grants, lent) if lent else grants) if parked is None else attempt.grants,
        ends_at=ends_at,
        is_stranded=is_stranded,
        began_at=attempt.start_at or attempt.allocated_at,
        expected_s=job.expected_s if is_current and job is not None else None,
        slot=attempt.slot,
        reservation="" if attempt.occurrence is None else attempt.occurrence.name,
        occurrence=0 if attempt.occurrence is None else attempt.occurrence.number,
        attempt=attempt.attempt_id.attempt,
        account="" if job is None else member_of(job)[1],
        qos=NORMAL_QOS if job is None else job.qos,
        saved_at=_saved_at(attempt) if may_go else None,
        stood_s=attempt.suspended_s,
        lead_s=0.0 if job is None else notice_s(job.spec.signal),
        preemptor=None if way is None else way.preemptor,
        stretch=None if attempt.elastic is None or job is None or is_stranded else _stretch(cluster, job, attempt),
        is_borrowing=bool(attempt.borrows),
        since=0.0 if job is None else _since(job),
        ran_s=0.0 if job is None else job.ran_s,
        resume_s=None if job is None else _resume_s(job),
        saves=job is not None and (job.spec.resume_s is not None or job.spec.signal is not None),
        comes_back=job is not None and requeue.waits_again(job, requeue.PREEMPT),
        can_park=may_go and can_park(cluster, attempt),
    )


def _stretch(cluster: Cluster, job: Job, attempt: Attempt) -> Stretch | None:
    """None: its GPUs stay what they are now, since it does not run, gives way, borrows, is giving some up already, or
    its node knows no better."""
    one, node = attempt.elastic, cluster.nodes.get(attempt.batch_node)
    if one is None or one.keeps is not None or one.going or node is None:
        return None
    if not (node.inventory.can_join if one.is_of_nodes else node.inventory.can_resize):
        return None
    if job.state is not JobState.RUNNING or attempt.preemption is not None or attempt.suspended_at is not None:
        return None
    if attempt.occurrence is not None:
        return None
    if attempt.borrows:
        return None  # what it has is in part not for it
    request = job.spec.resources
    lead_s = shrink_notice_s(job.spec.signal)
    if one.is_of_nodes:
        joined = tuple(node for node, _ in one.joined)
        share = Share(request, job.partition)
        return Stretch((), one.takes, None, 0, one.generation, lead_s, share=share, joined=joined)
    kind = (request.gpu_type, request.min_gpu_mem_mib or 0)
    return Stretch(one.least, one.takes, *kind, one.generation, lead_s, one.cpus_per_gpu, one.least_cpus)


def _given_up(cluster: Cluster, now: float) -> Iterator[RunningJob]:
    """By elastic jobs, until their nodes say that it is free; nobody counts on what is late."""
    for attempt in cluster.elastic.values():
        for going, ends_at in ((one.grant, one.ends_at) for one in going_of(attempt)):
            claims = ((claim.job_id, grant) for claim in cluster.claims.values() for grant in claim.grants)
            kept = {job_id: grant for job_id, grant in claims if grant.node == going.node}
            parts = parts_going(_told(cluster, attempt), going, ends_at, kept)
            is_late = now > ends_at + OVERDUE_S or attempt.parts[going.node].is_stranded
            yield from (replace(part, is_stranded=True) for part in parts) if is_late else parts


def _saved_at(attempt: Attempt) -> float | None:
    """While it stood still nothing was done that could be lost."""
    if attempt.start_at is None:
        return None
    return max(attempt.start_at + attempt.suspended_s, attempt.checkpoint_at or 0.0)


def claims_of(cluster: Cluster, now: float) -> tuple[Claim, ...]:
    """What is kept for those to whom others give way."""
    return tuple([_claim(cluster, one, now) for one in cluster.claims.values()])


def _claim(cluster: Cluster, one: ClaimRecord, now: float) -> Claim:
    job = cluster.jobs[one.job_id]
    there = [cluster.holding.get(attempt_id) for attempt_id in one.victims]
    parked = (cluster.parked.get(attempt_id) for attempt_id in one.victims)
    ways = [(each.attempt_id, each.preemption) for each in there if each is not None]
    ends = [_told(cluster, attempt).ends_at or now for attempt in there if attempt is not None]
    ends += [giver.ends_at for giver in givers_to(cluster, one)]
    return Claim(
        job_id=one.job_id,
        grants=one.grants,
        until=max([now, *ends]),
        user=job.user,
        time_limit_s=job.time_limit_s,
        expected_s=job.expected_s,
        reservation=one.reservation,
        occurrence=one.occurrence,
        parks=frozenset(each.job_id for each, way in ways if way is not None and way.parks),
        parked=tuple(each.lent for each in parked if each is not None and each.lent is not None),
    )


# ── reservations ──────────────────────────────────────────────────────────────────────────────────────────────


def booked_of(reservations: Iterable[Reservation], clear_time_s: float, now: float) -> tuple[Booked, ...]:
    """What is kept, now and later, by its begin: whether a tick has begun or ended an occurrence yet or not."""
    told = [
        _booked(reservation, one, one.begin_at - clear_time_s)
        for reservation in reservations
        for one in reservation.occurrences.values()
        if one.end_at > now
    ]
    told.sort(key=lambda one: (one.begin_at, one.name))
    by_node: dict[str, list[tuple[float, str, Grant]]] = {}
    for one in told:
        for grant in one.grants:
            by_node.setdefault(grant.node, []).append((one.begin_at, one.name, grant))
    return tuple(_before_next(one, by_node, clear_time_s) for one in told)


def _before_next(one: Booked, by_node: dict[str, list[tuple[float, str, Grant]]], clear_time_s: float) -> Booked:
    """With what comes after it on the same; nothing is kept twice, so that does not begin before this ends."""
    follow = [found for grant in one.grants if (found := _follower(one, grant, by_node[grant.node], clear_time_s))]
    if not follow:
        return one
    begin_at, name = min(follow)
    return replace(one, next_clear_at=begin_at - clear_time_s, next_name=name)


def _follower(
    one: Booked, own: Grant, on_node: list[tuple[float, str, Grant]], clear_time_s: float
) -> tuple[float, str] | None:
    for begin_at, name, grant in on_node[bisect_left(on_node, one.end_at, key=lambda told: told[0]) :]:
        if begin_at >= one.end_at + clear_time_s:
            return None
        if name != one.name and shares(own, grant):
            return begin_at, name
    return None


def _booked(reservation: Reservation, one: Occurrence, clear_at: float) -> Booked:
    booking = reservation.booking
    return Booked(
        name=reservation.name,
        number=one.number,
        clear_at=clear_at,
        begin_at=one.begin_at,
        end_at=one.end_at,
        grants=one.grants,
        owner=reservation.owner,
        users=booking.users,
        accounts=booking.accounts,
        is_magnetic=Flag.MAGNETIC in booking.flags,
        is_flex=Flag.FLEX in booking.flags,
        is_lent=reservation.is_lent,
    )
