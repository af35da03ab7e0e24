"""Preemption: victims are notified, ended or suspended when their notice is over, or spared again.  Pure.

A decision covers all victims of one preemptor.  The preemptor's nomination (`claims`) earmarks their resources, and
also what elastic jobs give up for it (`gqd.control.elastic`); a shrink goes on even if the nomination is dropped.

The decision is durable before any victim is notified (`PreemptionDecided`).  The orders to the victims follow from
their `PreemptionNotice` alone, so they are repeated after a node's hello and carried out on time across crashes.  The
nomination ends when the preemptor starts or ends, or with `PreemptionDropped`; victims that still run are spared then,
and are notified of that, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from gq.errors import Refusal
from gq.model.account import PreemptMode
from gq.model.ids import AttemptId, JobId
from gq.model.job import JobSpec
from gq.model.reservation import OccurrenceState
from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.control import array, deadline, dependency, elastic, parked, requeue
from gqd.control.accounts import association
from gqd.control.explain import explain
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.limits.ledger import Ledger, LimitDemand, LimitSubject, hours
from gqd.sched.placement.billing import billing_of
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.effect import SendOrder
from gqd.state.events import event
from gqd.state.index.job_tally import granted
from gqd.state.index.queue import member_of
from gqd.state.phases import PartPhase
from gqd.state.preemption import PreemptionNotice, notice_s
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

CHECKPOINT_EVERY_S = 1.0
REPEATS = 4
"""How often the notice of a preemption is repeated: nodes do not acknowledge it."""

# ── decide ────────────────────────────────────────────────────────────────────────────────────────────────────


def decide(
    draft: TurnBuilder, ledger: Ledger, planned_preemption: planned.Preemption, validator: PlanValidator
) -> bool:
    """Preempt the victims if the plan still holds on the live cluster; ledger and validator then count it as begun.

    The limits are those of a start: the job is to start as soon as the last of them is gone.
    """
    job = draft.cluster.jobs.get(planned_preemption.job_id)
    if job is None or not _may_claim(draft, job, planned_preemption):
        return False
    if not all(_may_go(draft, item, bool(planned_preemption.reservation)) for item in planned_preemption.victims):
        return False
    if not all(elastic.may_give(draft, item) for item in planned_preemption.shrinks):
        return False
    subject, wanted = LimitSubject(job.user, job.account, job.qos), _wanted(draft, job, planned_preemption)
    if ledger.exceeded_limit(subject, wanted) is not None:
        return False
    since = job.submit_at if job.accrue_at is None else job.accrue_at
    limit_s = job.time_limit_s
    applicant = StartRequest(job.job_id, *member_of(job), job.spec.reservation, limit_s, job.qos, since, job.ran_s)
    if not validator.admit_preemption(planned_preemption, applicant):
        return False
    ledger.take(subject, wanted)
    if planned_preemption.task is not None:
        job = array.materialise_task(draft, job, planned_preemption.task)
    parks = tuple(item for item in planned_preemption.parks if parked.may_park(draft.cluster, item, job))
    draft.emit(
        event.PreemptionDecided(
            at=draft.now,
            job_id=job.job_id,
            grants=planned_preemption.grants,
            victims=_ends_of_victims(draft, planned_preemption, parks),
            is_reclaim=planned_preemption.is_reclaim,
            reservation=planned_preemption.reservation,
            occurrence=planned_preemption.occurrence,
            parks=parks,
        )
    )
    for attempt_id in planned_preemption.victims:
        _begin(draft, draft.cluster.attempts[attempt_id])
    return True


def _ends_of_victims(
    draft: TurnBuilder, planned_preemption: planned.Preemption, parks: tuple[AttemptId, ...]
) -> tuple[tuple[AttemptId, float], ...]:
    """Victim → when its notice is over; a victim that is suspended runs until the last of the others must be gone."""
    ends = {
        each: draft.now + notice_s(draft.cluster.jobs[each.job_id].spec.signal) for each in planned_preemption.victims
    }
    last_at = max([*ends.values(), *(each.ends_at for each in planned_preemption.shrinks)], default=draft.now)
    return tuple((each, last_at if each in parks else at) for each, at in ends.items())


def _may_claim(draft: TurnBuilder, job: Job, planned_preemption: planned.Preemption) -> bool:
    if (
        not job.is_waiting
        or job.hold
        or job.attempt != planned_preemption.attempt
        or job.job_id in draft.cluster.claims
    ):
        return False
    if job.job_id in draft.volatile.updated_jobs or not array.may_start(draft.cluster, job, planned_preemption.task):
        return False
    return dependency.may_start(job) and deadline.may_start(job, _gone_at(draft, planned_preemption))


def _gone_at(draft: TurnBuilder, planned_preemption: planned.Preemption) -> float:
    """The latest instant at which the last victim is killed."""
    jobs = (draft.cluster.jobs.get(victim.job_id) for victim in planned_preemption.victims)
    longest = (notice_s(job.spec.signal) + requeue.grace_s(draft, job) for job in jobs if job is not None)
    last = max((shrink.ends_at for shrink in planned_preemption.shrinks), default=draft.now)
    return max(last, draft.now + max(longest, default=0.0))


def _may_go(draft: TurnBuilder, attempt_id: AttemptId, is_inside: bool) -> bool:
    """Whether the victim still runs as planned, may be preempted by its QOS and is not being preempted yet.

    A job that borrows reserved resources may be preempted for a job of that reservation, whatever its QOS.
    """
    found = _running(draft.cluster, attempt_id)
    if found is None or found[1].preemption is not None or found[1].suspended_at is not None:
        return False
    job, attempt = found
    qos = association.qos_named(draft.cluster, job.qos)
    if attempt.start_at is None:
        return False
    if attempt.borrows and is_inside:
        return True
    if qos is None or qos.preempt_mode is PreemptMode.OFF:
        return False
    return draft.now - attempt.start_at - attempt.suspended_s >= qos.min_run_s


def _running(cluster: Cluster, attempt_id: AttemptId) -> tuple[Job, Attempt] | None:
    job, found = cluster.jobs.get(attempt_id.job_id), cluster.attempts.get(attempt_id)
    if job is None or found is None or job.attempt_id != attempt_id or job.state is not JobState.RUNNING:
        return None
    return job, found


def _wanted(draft: TurnBuilder, job: Job, planned_preemption: planned.Preemption) -> LimitDemand:
    amounts, qos = granted(draft.cluster, planned_preemption.grants), association.qos_named(draft.cluster, job.qos)
    billing = billing_of(draft.policy.billing, amounts, 1.0 if qos is None else qos.usage_factor)
    return LimitDemand(amounts, hours(billing, job.time_limit_s))


# ── the victims ───────────────────────────────────────────────────────────────────────────────────────────────


def _begin(draft: TurnBuilder, victim: Attempt) -> None:
    """Notify all nodes of the victim, or end it at once if it has no notice."""
    notice = victim.preemption
    assert notice is not None, f"{victim.attempt_id} has no preemptor"
    draft.volatile.preemption_notices[victim.attempt_id] = notice
    if notice.ends_at <= draft.now:
        _end(draft, victim)
        return
    _notify_all(draft, victim)


def _notify_all(draft: TurnBuilder, victim: Attempt) -> None:
    draft.volatile.notice_sent_at[victim.attempt_id] = draft.now
    for node in victim.parts:
        _notify(draft, victim, node)


def repeat_notice(draft: TurnBuilder, victim: Attempt, node: str) -> None:
    """Repeat the notice to a node that may have missed it.

    A node signals the job only once (see `SignalAttempt`).  A gqnode too old for that, which cannot suspend either, is
    skipped: it would signal the job each time.
    """
    known = draft.cluster.nodes.get(node)
    if known is not None and known.inventory.can_suspend:
        _notify(draft, victim, node)


def _notify(draft: TurnBuilder, victim: Attempt, node: str) -> None:
    """Order the node to signal the victim; nothing is sent if it is not preempted or is being ended.

    The signal goes to the steps or to the script, like the warning before the time limit.
    """
    job, notice = draft.cluster.jobs.get(victim.attempt_id.job_id), victim.preemption
    signal = None if job is None or victim.end_at is not None else job.spec.signal
    if notice is None or signal is None or victim.parts[node].phase is not PartPhase.LIVE:
        return
    if signal.to_batch_shell and node != victim.batch_node:
        return
    preemptor = draft.cluster.jobs.get(notice.preemptor)
    whose = "" if preemptor is None else f" BY JOB {preemptor.label} OF {preemptor.user}"
    order = wire.SignalAttempt(
        attempt_id=victim.attempt_id,
        signum=signal.signum,
        scope="batch" if signal.to_batch_shell else "steps",
        told_at=notice.notified_at,
        ends_at=notice.ends_at,
        text=f"PREEMPTED{whose}, WILL BE {'SUSPENDED' if notice.parks else 'ENDED'} AT {{time}}",
    )
    draft.enqueue(SendOrder(node=node, order=order))


def _end(draft: TurnBuilder, victim: Attempt) -> None:
    """Suspend or end the victim, whose notice is over."""
    if victim.preemption is not None and victim.preemption.parks:
        parked.suspend_victim(draft, victim)
        return
    parked.end_victim(draft, victim)


def withdraw_notices(draft: TurnBuilder) -> None:
    """Tell the victims that are not preempted any more, and forget the notices of all that no longer apply."""
    for attempt_id, notice in list(draft.volatile.preemption_notices.items()):
        found = _running(draft.cluster, attempt_id)
        if found is not None and found[1].preemption == notice:
            continue
        del draft.volatile.preemption_notices[attempt_id]
        draft.volatile.notice_sent_at.pop(attempt_id, None)
        if found is not None and found[1].preemption is None and attempt_id not in draft.cluster.parked:
            text = f"job {found[0].label} is no longer preempted and continues"
            draft.enqueue(
                SendOrder(node=found[1].batch_node, order=wire.Notify(attempt_id=attempt_id, text=text)),
            )


def decide_checkpoint(draft: TurnBuilder, body: client.CheckpointDone) -> client.Done:
    """Record that the job has saved its work.

    The answer is not remembered by request id: the request is idempotent, and a loop of it must not fill the disk.
    """
    job = array.known(draft.cluster, body.job_id)
    found = _running(draft.cluster, job.attempt_id)
    if found is None:
        raise Refusal("not_running", f"job {job.label} is not running: it has no work to save")
    before = found[1].checkpoint_at
    if before is None or not 0 <= draft.now - before < CHECKPOINT_EVERY_S:
        draft.emit(event.JobCheckpointed(at=draft.now, attempt_id=job.attempt_id))
    return client.Done()


def decide_caught_up(draft: TurnBuilder, body: client.ResumeDone) -> client.Done:
    """Record how long the job took to resume its work; only the first report of a restarted attempt counts."""
    job = array.known(draft.cluster, body.job_id)
    found = _running(draft.cluster, job.attempt_id)
    if found is None or found[1].start_at is None:
        raise Refusal("not_running", f"job {job.label} is not running: it has no work to resume")
    is_said = job.resumed is not None and job.resumed.attempt == job.attempt
    if job.ran_s and not is_said:
        resume_s = max(0.0, draft.now - found[1].start_at - found[1].suspended_s)
        draft.emit(event.JobCaughtUp(at=draft.now, attempt_id=job.attempt_id, resume_s=resume_s))
    return client.Done()


# ── drop ────────────────────────────────────────────────────────────────────────────────────────────────────


def drop(draft: TurnBuilder, job_id: JobId, why: str) -> None:
    """Drop the preemptor's nomination; a later plan may preempt for it again."""
    if job_id in draft.cluster.claims:
        draft.emit(event.PreemptionDropped(at=draft.now, job_id=job_id, why=why))


def after_update(draft: TurnBuilder, job: Job, before: JobSpec, before_s: int | None) -> None:
    """Drop the nomination if the update changes what the preemptor asks for."""
    if job.job_id in draft.cluster.claims and (_request(before), before_s) != (_request(job.spec), job.time_limit_s):
        drop(draft, job.job_id, "its resource request has changed")


def _request(spec: JobSpec) -> JobSpec:
    """The spec without the fields that do not affect where and when the job may start."""
    return msgspec.structs.replace(
        spec, name="", comment="", nice=0, priority=None, notify=(), requeue_on=(), max_requeue=None
    )


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """Drop nominations that the event makes useless."""
    if not draft.cluster.claims:
        return
    match fact:
        case event.JobHeld():
            drop(draft, fact.job_id, "it was held")
        case event.DependencyChanged() if fact.left is not None:
            drop(draft, fact.job_id, "it now waits for other jobs")
        case event.NodeLost() | event.NodeSetDown() | event.NodeRemoved():
            _drop_on(draft, fact.node, None)
        case event.NodeDrained():
            _drop_on(draft, fact.node, fact.gpu)
        case event.OccurrenceEnded() if fact.state is not OccurrenceState.PLANNED:
            _drop_inside(draft, fact.name, fact.number)
        case _:
            pass


def _drop_on(draft: TurnBuilder, node: str, gpu: int | None) -> None:
    for claim in list(draft.cluster.claims.values()):
        if any(grant.node == node and (gpu is None or gpu in grant.gpus) for grant in claim.grants):
            drop(draft, claim.job_id, f"node {node} is no longer available to it")


def _drop_inside(draft: TurnBuilder, name: str, number: int) -> None:
    for claim in list(draft.cluster.claims.values()):
        if (claim.reservation, claim.occurrence) == (name, number):
            drop(draft, claim.job_id, f"reservation {name} is over")


def reconcile_claims(draft: TurnBuilder, plan: planned.Plan) -> None:
    """Drop the nominations of preemptors that, by the new plan, wait for something else.

    Plans consider nominated jobs first, so even a plan that was cut short covers all of them.
    """
    for job_id, claim in list(draft.cluster.claims.items()):
        wait = plan.waits.get(job_id)
        if claim.made_at > plan.made_at or job_id in plan.starting or isinstance(wait, planned.Preempts):
            continue
        job = draft.cluster.jobs[job_id]
        why = "it may not start now" if wait is None else explain.why_it_waits(draft.cluster, job, wait)
        drop(draft, job_id, why)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """End victims whose notice is over, and repeat the notice of the others for a while."""
    resend_s = draft.policy.timers.resend_s
    for victim in _victims(draft.cluster):
        notice = victim.preemption
        if notice is not None and notice.ends_at <= draft.now:
            _end(draft, victim)
        elif notice is not None and _is_notice_due(draft, victim.attempt_id, notice, resend_s):
            draft.volatile.notice_sent_at[victim.attempt_id] = draft.now
            for node in victim.parts:
                repeat_notice(draft, victim, node)


def _is_notice_due(draft: TurnBuilder, attempt_id: AttemptId, notice: PreemptionNotice, resend_s: float) -> bool:
    last_at = draft.volatile.notice_sent_at.get(attempt_id, notice.notified_at)
    return draft.now - notice.notified_at <= REPEATS * resend_s and draft.now - last_at >= resend_s


def resume(draft: TurnBuilder) -> None:
    """After a restart: remember the notified victims; their nodes get the notice again after their hello."""
    for victim in _victims(draft.cluster):
        if victim.preemption is not None:
            draft.volatile.preemption_notices[victim.attempt_id] = victim.preemption


def next_at(cluster: Cluster) -> float | None:
    """The instant at which the next notice is over; None: no victim is waiting."""
    ways = (victim.preemption for victim in _victims(cluster))
    return min((way.ends_at for way in ways if way is not None), default=None)


def _victims(cluster: Cluster) -> Iterable[Attempt]:
    """The victims that still run and are not suspended yet."""
    ids = (attempt_id for claim in cluster.claims.values() for attempt_id in claim.victims)
    known = (_running(cluster, attempt_id) for attempt_id in ids if attempt_id not in cluster.parked)
    return [found[1] for found in known if found is not None]
