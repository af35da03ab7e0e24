"""Apply the events of attempts to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.ids import AttemptId
from gq.model.job import Usage
from gq.model.resource import Grant
from gqd.control.apply import (
    array,
    elastic,
    limit,
    nomination,
    owed_order,
    parked,
    preemption,
    reservation,
    runtime_history,
    suspension,
    usage,
)
from gqd.control.apply.job import move
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index import job_tally
from gqd.state.phases import AfterEnding, PartPhase
from gqd.state.records import Attempt, Job, Part
from gqd.state.reservation import OccurrenceKey


def apply_allocated(cluster: Cluster, fact: event.JobAllocated) -> None:
    job = cluster.jobs[fact.attempt_id.job_id]
    move(cluster, job, event.JobAllocated)
    assert fact.attempt_id.attempt == job.attempt + 1, f"{fact.attempt_id} does not follow attempt {job.attempt}"
    before = cluster.attempts.get(job.attempt_id)
    if before is not None and not before.parts:
        cluster.forget_attempt(before)
    cluster.outdate(job)
    job.attempt = fact.attempt_id.attempt
    attempt = Attempt(
        attempt_id=fact.attempt_id,
        grants=fact.grants,
        allocated_at=fact.at,
        parts={grant.node: Part(grant, PartPhase.PREPARING) for grant in fact.grants},
        billing=fact.billing,
        slot=fact.slot,
        estimate=job.estimate,
        occurrence=OccurrenceKey(fact.reservation, fact.occurrence) if fact.reservation else None,
        borrows=fact.borrows,
        priority=fact.priority,
    )
    attempt.elastic = elastic.elastic_of(job, attempt)
    job.estimate = None
    cluster.attempts[fact.attempt_id] = attempt
    cluster.changes.attempts[fact.attempt_id] = None
    nomination.end_claim(cluster, job.job_id)
    for grant in _in_plan_order(cluster, fact.grants):
        cluster.hold(attempt, grant)
        _touch(cluster, fact.attempt_id, grant.node)
    job_tally.count_held(cluster, job, attempt)
    reservation.enter(cluster, attempt)
    elastic.begin_askers_job(cluster, job)


def _in_plan_order(cluster: Cluster, grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """The grants in the planner's order: most GPUs first, and among equals the node that has been free the longest."""
    if len(grants) == 1:
        return grants
    return tuple(sorted(grants, key=lambda grant: (-len(grant.gpus), cluster.nodes[grant.node].free_since)))


def apply_part_prepared(cluster: Cluster, fact: event.PartPrepared) -> None:
    job, attempt = _current(cluster, fact.attempt_id)
    move(cluster, job, event.PartPrepared)
    attempt.parts[fact.node].phase = PartPhase.PREPARED
    _touch(cluster, fact.attempt_id, fact.node)
    if fact.master_port:
        attempt.master_port = fact.master_port
        cluster.changes.attempts[fact.attempt_id] = None


def apply_parts_released(cluster: Cluster, fact: event.PartsReleased) -> None:
    job, attempt = _current(cluster, fact.attempt_id)
    move(cluster, job, event.PartsReleased)
    for node in fact.nodes:
        attempt.parts[node].phase = PartPhase.GOING
        _touch(cluster, fact.attempt_id, node)


def apply_part_went_live(cluster: Cluster, fact: event.PartWentLive) -> None:
    job, attempt = _current(cluster, fact.attempt_id)
    move(cluster, job, event.PartWentLive)
    attempt.parts[fact.node].phase = PartPhase.LIVE
    elastic.join(cluster, attempt, fact.node)
    _touch(cluster, fact.attempt_id, fact.node)


def apply_started(cluster: Cluster, fact: event.JobStarted) -> None:
    job, attempt = _current(cluster, fact.attempt_id)
    move(cluster, job, event.JobStarted)
    job.start_at = attempt.start_at = fact.at
    reservation.begin(cluster, attempt, fact.at)
    limit.bill(cluster, job, fact.at, attempt.billing)
    job.launch_failures = 0
    job.reason, job.why, job.failure_class = "None", "", ""
    job.avoid = {}
    cluster.changes.attempts[fact.attempt_id] = None
    usage.bill_start(cluster, job, attempt)


def apply_ending(cluster: Cluster, fact: event.JobEnding) -> None:
    job, attempt = _current(cluster, fact.attempt_id)
    move(cluster, job, event.JobEnding)
    _stop_parts(cluster, attempt)
    attempt.outcome, attempt.exit, attempt.then = fact.outcome, fact.exit, fact.then
    attempt.reason, attempt.why, attempt.failure_class = fact.reason, fact.why, fact.failure_class
    attempt.grace_s = fact.grace_s
    suspension.end_pause(attempt, fact.at)
    parked.forget(cluster, attempt)
    if attempt.end_at is None:
        preemption.give_way(cluster, job, attempt, fact)
        attempt.end_at = job.end_at = fact.at
        usage.bill_end(cluster, job, attempt)
        if attempt.start_at is not None:
            limit.bill(cluster, job, fact.at, -attempt.billing)
        runtime_history.learn_end(cluster, job, attempt)


def apply_launch_failed(cluster: Cluster, fact: event.LaunchFailed) -> None:
    job, attempt = _current(cluster, fact.attempt_id)
    move(cluster, job, event.LaunchFailed)
    _stop_parts(cluster, attempt)
    attempt.then = AfterEnding.RETRY
    attempt.end_at = fact.at
    attempt.reason, attempt.why = job.reason, job.why = fact.reason, fact.why
    if fact.is_job_fault:
        job.launch_failures += 1
        job.avoid = {node: until for node, until in job.avoid.items() if until > fact.at} | {fact.node: fact.until}
        array.warn_siblings(cluster, job)


def apply_part_emptied(cluster: Cluster, fact: event.PartEmptied) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    attempt.usage = _add(attempt.usage, fact.usage)
    grant = attempt.parts.pop(fact.node).grant
    owed_order.forget_part(cluster, fact.attempt_id, fact.node)
    cluster.release(attempt, fact.node)
    reservation.leave(cluster, attempt, grant, fact.at)
    cluster.changes.attempts[fact.attempt_id] = None
    cluster.changes.parts.pop((fact.attempt_id, fact.node), None)
    cluster.changes.freed_parts[fact.attempt_id, fact.node] = (fact.at, fact.usage, grant)
    elastic.empty(attempt, fact.node)
    job = cluster.jobs.get(fact.attempt_id.job_id)
    is_superseded = job is None or job.attempt_id != fact.attempt_id
    if is_superseded and not attempt.parts:
        cluster.forget_attempt(attempt)


def apply_part_stranded(cluster: Cluster, fact: event.PartStranded) -> None:
    part = cluster.attempts[fact.attempt_id].parts[fact.node]
    part.is_stranded = True
    _touch(cluster, fact.attempt_id, fact.node)


def _current(cluster: Cluster, attempt_id: AttemptId) -> tuple[Job, Attempt]:
    job = cluster.jobs[attempt_id.job_id]
    assert job.attempt_id == attempt_id, f"{attempt_id} is not the latest attempt, {job.attempt_id}"
    return job, cluster.attempts[attempt_id]


def _stop_parts(cluster: Cluster, attempt: Attempt) -> None:
    cluster.changes.attempts[attempt.attempt_id] = None
    for node, part in attempt.parts.items():
        part.phase = PartPhase.STOPPING
        _touch(cluster, attempt.attempt_id, node)


def _touch(cluster: Cluster, attempt_id: AttemptId, node: str) -> None:
    cluster.changes.parts[attempt_id, node] = None
    cluster.attempts[attempt_id].view = None


def _add(one: Usage, other: Usage) -> Usage:
    """The usage of two nodes together: CPU times add up, and the memory peak is the higher one."""
    return Usage(
        user_cpu_s=one.user_cpu_s + other.user_cpu_s,
        system_cpu_s=one.system_cpu_s + other.system_cpu_s,
        max_rss_mib=max(one.max_rss_mib, other.max_rss_mib),
    )
