"""Snapshots: the immutable copy of the cluster that the planner works on.  Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import is_not
from typing import cast, overload

import numpy as np

from gq.model.account import BUILT_IN_QOS, NORMAL_QOS
from gq.model.ids import JobId
from gq.model.reservation import Flag
from gq.model.resource import Grant, ResourceRequest, parse_ids, shares
from gq.model.state import JobState
from gq.model.wait import BEING_CLEANED
from gqd.control import array, requeue
from gqd.control.accounts import limit, share
from gqd.sched.cycle.nominated import OVERDUE_S
from gqd.sched.forecast import LEFT_OUT
from gqd.sched.placement.constraints import attributes_of
from gqd.sched.preemption.partial_release import pseudo_jobs_going
from gqd.sched.preemption.suspend_victims import cut
from gqd.sched.priority.order import Order, order_of
from gqd.sched.request import shape_in
from gqd.sched.snapshot.gpu_links import topology_of
from gqd.sched.snapshot.model import (
    Nomination,
    PendingColumns,
    PendingJob,
    ReservedOccurrence,
    ResizeBounds,
    RunningJob,
    Share,
    Snapshot,
)
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.cluster import Cluster
from gqd.state.elastic import givers_to, going_of, is_going, is_left, shrink_notice_s, staying
from gqd.state.index.deadlines import last_start_at, time_limit_of
from gqd.state.index.queue import Integers, PendingQueue, member_of, startable_tasks
from gqd.state.order_clocks import STOP_ORPHAN
from gqd.state.parked import can_park, fits_beside, lent_masks, lent_to
from gqd.state.policy import Policy
from gqd.state.preemption import notice_s
from gqd.state.records import Attempt, Job, Node, mask_of
from gqd.state.records import Nomination as ClaimRecord
from gqd.state.reservation import Occurrence, Reservation
from gqd.state.volatile import Volatile


def take(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> Snapshot:
    """The snapshot for a pass: nodes in natural order, the queue, and everything that holds resources.

    Views of nodes, jobs and attempts are cached: an unchanged record has the same object in the next snapshot.
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
    """The snapshot with an empty queue: nodes, running jobs, reservations and nominations."""
    nodes = _ordered(cluster)
    lent = lent_masks(cluster) if cluster.parked else {}
    free_cpus = [node.free_cpu_mask for node in nodes]
    free_gpus = [_free_gpus(node) if node.drained_gpus else node.free_gpu_mask for node in nodes]
    for node_index, node in enumerate(nodes) if lent else ():
        cpus, gpus = lent.get(node.name, (0, 0))
        free_cpus[node_index] &= ~cpus
        free_gpus[node_index] &= ~gpus
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
    """The facts of all nodes, in natural order."""
    return _all_facts(_ordered(cluster), volatile, now)


# ── the queue ───────────────────────────────────────────────────────────────────────────────────────────────────


class Waiting:
    """Pending jobs in a fixed order; each is looked up only when it is needed.

    A pass may go on over several turns: jobs that changed since it began appear as held, and are left to the next pass.
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
    def __getitem__(self, index: int) -> PendingJob: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PendingJob, ...]: ...
    def __getitem__(self, index: int | slice) -> PendingJob | tuple[PendingJob, ...]:
        if isinstance(index, slice):
            return tuple([self._of(JobId(job_id)) for job_id in self._job_ids[index].tolist()])
        return self._of(JobId(int(self._job_ids[index])))

    def __iter__(self) -> Iterator[PendingJob]:
        return (self._of(JobId(job_id)) for job_id in self._job_ids.tolist())

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
    positions = waiting.places
    return PendingColumns(
        job_id=waiting.job_ids,
        shape=queue.integers("shape")[positions],
        expected_s=queue.floats("expected_s")[positions],
        time_limit_s=queue.floats("time_limit_s")[positions],
        since=queue.since()[positions],
        band=waiting.band,
        priority=waiting.priority,
        reservation=queue.integers("reservation")[positions],
        member=queue.integers("member")[positions],
        qos=queue.integers("qos")[positions],
        reservations=queue.reservations,
        members=queue.members,
        names_of_qos=queue.qos,
        source=queue,
    )


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _ordered(cluster: Cluster) -> tuple[Node, ...]:
    """Nodes in natural order, cached until a node comes or goes."""
    known = cluster.ordered_nodes
    if known is None:
        known = cluster.ordered_nodes = tuple(sorted(cluster.nodes.values(), key=natural_order))
    return known


def _all_facts(nodes: tuple[Node, ...], volatile: Volatile, now: float) -> tuple[NodeFacts, ...]:
    """The facts of the nodes; the same tuple as before if none has changed.

    Healthy nodes, which are most, are recognised inline, without a call for each.
    """
    orphans = nodes_with_orphans(nodes, volatile)
    links = volatile.links
    facts = [
        view
        if isinstance(view := node.view, NodeFacts)
        and not (view.unavailable or orphans or node.is_down or node.is_lost or node.is_drained)
        and node.backoff_until <= now
        and node.name in links
        else _facts_view(node, volatile, node.name in orphans, now)
        for node in nodes
    ]
    before = volatile.nodes_view
    if len(before) != len(facts) or any(map(is_not, before, facts)):
        volatile.nodes_view = before = tuple(facts)
    return cast(tuple[NodeFacts, ...], before)


def _facts_view(node: Node, volatile: Volatile, has_orphans: bool, now: float) -> NodeFacts:
    unavailable = _unavailable_because(node, volatile, has_orphans, now)
    view = node.view
    if not isinstance(view, NodeFacts) or view.unavailable != unavailable:
        view = node.view = _facts(node, unavailable)
    return view


def natural_order(node: Node) -> tuple[tuple[int, int | str], ...]:
    """Sort key of a node by the numbers in its name: n2 before n10."""
    return _natural_order(node.name)


@lru_cache(maxsize=16384)
def _natural_order(name: str) -> tuple[tuple[int, int | str], ...]:
    parts = ("".join(characters) for _, characters in groupby(name, str.isdecimal))
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)


def unavailable_because(node: Node, volatile: Volatile, now: float) -> str:
    """Why the node gets no jobs; empty if it may."""
    return _unavailable_because(node, volatile, bool(nodes_with_orphans((node,), volatile)), now)


def _unavailable_because(node: Node, volatile: Volatile, has_orphans: bool, now: float) -> str:
    if node.is_down:
        return f"down: {node.reason}"
    if node.is_lost:
        return "lost: not responding"
    if node.is_drained:
        return f"drained: {node.reason}"
    if node.name not in volatile.links:
        return "not connected since the controller started"
    if node.backoff_until > now:
        return LEFT_OUT
    return BEING_CLEANED if has_orphans else ""


def nodes_with_orphans(nodes: Sequence[Node], volatile: Volatile) -> set[str]:
    """Names of nodes that were ordered to stop attempts that have no part there (e.g. after they left and rejoined).

    The resources that such attempts use are not accounted for.
    """
    orphans = volatile.order_clocks.owed(STOP_ORPHAN)
    if not orphans:
        return set()
    held = {node.name: node.held for node in nodes}
    return {name for attempt_id, name, _ in orphans if name in held and attempt_id not in held[name]}


def _facts(node: Node, unavailable: str) -> NodeFacts:
    inventory = node.inventory
    masks: dict[str, int] = {}
    drained: dict[str, int] = {}
    sizes: dict[int, int] = {}
    for gpu in inventory.gpus:
        by_type = drained if gpu.index in node.drained_gpus else masks
        by_type[gpu.type] = by_type.get(gpu.type, 0) | (1 << gpu.index)
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
    """Resource → free count on each node, by node index; 0 on nodes that do not have it."""
    names = dict.fromkeys(name for node in nodes for name in node.inventory.resources)
    return {
        name: np.array([node.inventory.resources.get(name, 0) - node.used_resources.get(name, 0) for node in nodes])
        for name in names
    }


def free_licenses(nodes: Iterable[Node], policy: Policy) -> dict[str, int]:
    """Licence → free count in the cluster; below 0 if gq.toml has fewer now than jobs hold."""
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
    """The view of a pending job, without its queue position, which changes all the time."""
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
    """Seconds that the job needs to resume from a checkpoint: as measured, else as its owner says; None: unknown."""
    return job.spec.resume_s if job.resumed is None else job.resumed.cost_s


def _since(job: Job) -> float:
    return job.submit_at if job.accrue_at is None else job.accrue_at


def all_running(cluster: Cluster) -> tuple[RunningJob, ...]:
    """The views of all attempts that hold resources; cached views are reused, since there may be thousands."""
    views = [attempt.view or _new_view(cluster, attempt) for attempt in cluster.holding.values()]
    return cast(tuple[RunningJob, ...], tuple(views))


def _view(cluster: Cluster, attempt: Attempt) -> RunningJob:
    return cast(RunningJob, attempt.view or _new_view(cluster, attempt))


def _new_view(cluster: Cluster, attempt: Attempt) -> RunningJob:
    view = attempt.view = _running(cluster, attempt)
    return view


def _running(cluster: Cluster, attempt: Attempt) -> RunningJob:
    """The view of an attempt: what it still holds, and until when at most."""
    job = cluster.jobs.get(attempt.attempt_id.job_id)
    is_current = job is not None and job.attempt_id == attempt.attempt_id
    ends_at = None
    is_going_on = attempt.suspended_at is None  # otherwise its end is unknown
    if is_current and job is not None and is_going_on and (limit_s := time_limit_of(job, attempt)) is not None:
        ends_at = (attempt.start_at or attempt.allocated_at) + limit_s + attempt.suspended_s
    parked, way = cluster.parked.get(attempt.attempt_id), attempt.preemption
    if parked is not None and parked.lent is not None:
        way = None  # it has given what it can
    parts = list(attempt.parts.items())
    if attempt.elastic is not None:  # the rest follows from `_given_up`
        parts = [(node, part) for node, part in parts if not is_left(attempt, node) and not is_going(attempt, node)]
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
        resize_bounds=None
        if attempt.elastic is None or job is None or is_stranded
        else _resize_bounds(cluster, job, attempt),
        is_borrowing=bool(attempt.borrows),
        since=0.0 if job is None else _since(job),
        ran_s=0.0 if job is None else job.ran_s,
        resume_s=None if job is None else _resume_s(job),
        saves=job is not None and (job.spec.resume_s is not None or job.spec.signal is not None),
        comes_back=job is not None and requeue.waits_again(job, requeue.PREEMPT),
        can_park=may_go and can_park(cluster, attempt),
    )


def _resize_bounds(cluster: Cluster, job: Job, attempt: Attempt) -> ResizeBounds | None:
    """The resize bounds of an elastic job; None: it cannot be resized now.

    It is not running, is being preempted, borrows, is giving up GPUs already, or has a node that is too old.
    """
    elastic, node = attempt.elastic, cluster.nodes.get(attempt.batch_node)
    if elastic is None or elastic.keeps is not None or elastic.going or node is None:
        return None
    if not (node.inventory.can_join if elastic.is_of_nodes else node.inventory.can_resize):
        return None
    if job.state is not JobState.RUNNING or attempt.preemption is not None or attempt.suspended_at is not None:
        return None
    if attempt.occurrence is not None:
        return None
    if attempt.borrows:
        return None  # part of its resources is reserved for others
    request = job.spec.resources
    lead_s = shrink_notice_s(job.spec.signal)
    if elastic.is_of_nodes:
        joined = tuple(node for node, _ in elastic.joined)
        share = Share(request, job.partition)
        return ResizeBounds((), elastic.takes, None, 0, elastic.generation, lead_s, share=share, joined=joined)
    kind = (request.gpu_type, request.min_gpu_mem_mib or 0)
    return ResizeBounds(
        elastic.least, elastic.takes, *kind, elastic.generation, lead_s, elastic.cpus_per_gpu, elastic.least_cpus
    )


def _given_up(cluster: Cluster, now: float) -> Iterator[RunningJob]:
    """Resources that elastic jobs are giving up, as pseudo jobs until the nodes report them free.

    Overdue releases count as stranded, so that no plan relies on them.
    """
    for attempt in cluster.elastic.values():
        for going, ends_at in ((release.grant, release.ends_at) for release in going_of(attempt)):
            claims = ((claim.job_id, grant) for claim in cluster.claims.values() for grant in claim.grants)
            kept = {job_id: grant for job_id, grant in claims if grant.node == going.node}
            parts = pseudo_jobs_going(_view(cluster, attempt), going, ends_at, kept)
            is_late = now > ends_at + OVERDUE_S or attempt.parts[going.node].is_stranded
            yield from (replace(part, is_stranded=True) for part in parts) if is_late else parts


def _saved_at(attempt: Attempt) -> float | None:
    """The instant up to which the job's work is saved, moved by the time that it was suspended."""
    if attempt.start_at is None:
        return None
    return max(attempt.start_at + attempt.suspended_s, attempt.checkpoint_at or 0.0)


def claims_of(cluster: Cluster, now: float) -> tuple[Nomination, ...]:
    """The resources that are earmarked for preemptors."""
    return tuple([_claim(cluster, claim, now) for claim in cluster.claims.values()])


def _claim(cluster: Cluster, claim: ClaimRecord, now: float) -> Nomination:
    job = cluster.jobs[claim.job_id]
    victims = [cluster.holding.get(attempt_id) for attempt_id in claim.victims]
    parked = (cluster.parked.get(attempt_id) for attempt_id in claim.victims)
    ways = [(victim.attempt_id, victim.preemption) for victim in victims if victim is not None]
    ends = [_view(cluster, attempt).ends_at or now for attempt in victims if attempt is not None]
    ends += [giver.ends_at for giver in givers_to(cluster, claim)]
    return Nomination(
        job_id=claim.job_id,
        grants=claim.grants,
        until=max([now, *ends]),
        user=job.user,
        time_limit_s=job.time_limit_s,
        expected_s=job.expected_s,
        reservation=claim.reservation,
        occurrence=claim.occurrence,
        parks=frozenset(victim.job_id for victim, way in ways if way is not None and way.parks),
        parked=tuple(victim.lent for victim in parked if victim is not None and victim.lent is not None),
    )


# ── reservations ──────────────────────────────────────────────────────────────────────────────────────────────


def booked_of(reservations: Iterable[Reservation], clear_time_s: float, now: float) -> tuple[ReservedOccurrence, ...]:
    """Present and future occurrences of reservations, by begin, whether or not a tick has opened or closed them yet."""
    windows = [
        _booked(reservation, window, window.begin_at - clear_time_s)
        for reservation in reservations
        for window in reservation.occurrences.values()
        if window.end_at > now
    ]
    windows.sort(key=lambda window: (window.begin_at, window.name))
    by_node: dict[str, list[tuple[float, str, Grant]]] = {}
    for window in windows:
        for grant in window.grants:
            by_node.setdefault(grant.node, []).append((window.begin_at, window.name, grant))
    return tuple(_before_next(window, by_node, clear_time_s) for window in windows)


def _before_next(
    window: ReservedOccurrence, by_node: dict[str, list[tuple[float, str, Grant]]], clear_time_s: float
) -> ReservedOccurrence:
    """The occurrence, with the begin and name of the next one on any of its resources.

    Occurrences never overlap, so the next one begins after the end of this one.
    """
    followers = [
        found for grant in window.grants if (found := _follower(window, grant, by_node[grant.node], clear_time_s))
    ]
    if not followers:
        return window
    begin_at, name = min(followers)
    return replace(window, next_clear_at=begin_at - clear_time_s, next_name=name)


def _follower(
    window: ReservedOccurrence, own: Grant, on_node: list[tuple[float, str, Grant]], clear_time_s: float
) -> tuple[float, str] | None:
    for begin_at, name, grant in on_node[bisect_left(on_node, window.end_at, key=lambda later: later[0]) :]:
        if begin_at >= window.end_at + clear_time_s:
            return None
        if name != window.name and shares(own, grant):
            return begin_at, name
    return None


def _booked(reservation: Reservation, occurrence: Occurrence, clear_at: float) -> ReservedOccurrence:
    booking = reservation.booking
    return ReservedOccurrence(
        name=reservation.name,
        number=occurrence.number,
        clear_at=clear_at,
        begin_at=occurrence.begin_at,
        end_at=occurrence.end_at,
        grants=occurrence.grants,
        owner=reservation.owner,
        users=booking.users,
        accounts=booking.accounts,
        is_magnetic=Flag.MAGNETIC in booking.flags,
        is_flex=Flag.FLEX in booking.flags,
        is_lent=reservation.is_lent,
    )
