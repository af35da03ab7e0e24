"""An attempt: adopted, prepared on every node, let go, ended, emptied — or rolled back.  Pure.

The launch is two-phase.  PREPARE goes to every node; when all are ready, GO goes to all but the batch node, and to
the batch node last, after all others acknowledged theirs: until then no process of the user runs anywhere, and one
refusal or silence rolls everything back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.ids import AttemptId
from gq.model.job import ExitStatus, Usage
from gq.model.reservation import Flag
from gq.model.state import JobState, Outcome, Reason
from gq.wire import node as wire
from gqd.control import array, deadline, dependency, elastic_nodes, orders, requeue, step, workdir
from gqd.control.reservation import overlap
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.limits.ledger import Asker, Ledger, Wanted, hours
from gqd.state.elastic import has_joined, is_left
from gqd.state.end_reason import why_again
from gqd.state.events import event
from gqd.state.index.deadlines import time_limit_of
from gqd.state.index.job_tally import granted
from gqd.state.index.queue import member_of
from gqd.state.parked import lends
from gqd.state.phases import AfterEnding, Hold, PartPhase
from gqd.state.plan import Start
from gqd.state.records import Attempt, Job
from gqd.state.volatile import OrderClock

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

# ── launch ────────────────────────────────────────────────────────────────────────────────────────────────────


def decide_start(draft: TurnBuilder, ledger: Ledger, start: Start, validator: PlanValidator) -> bool:
    """Start the job as planned, if the limits and the live cluster still allow it; the ledger then counts it."""
    job = draft.cluster.jobs.get(start.job_id)
    if job is None:
        return False
    asker = Asker(job.user, job.account, job.qos)
    wanted = Wanted(granted(draft.cluster, start.grants), hours(start.billing, job.time_limit_s))
    if ledger.over(asker, wanted) is not None or not _allocate(draft, job, start, validator):
        return False
    ledger.take(asker, wanted)
    return True


def _allocate(draft: TurnBuilder, job: Job, start: Start, validator: PlanValidator) -> bool:
    """Allocate the planned grants, if the plan still holds on the live cluster; the validator then counts them."""
    if not job.is_waiting or job.hold or job.attempt != start.attempt:
        return False
    if not array.may_start(draft.cluster, job, start.task):
        return False
    if not dependency.may_start(job) or not deadline.may_start(job, draft.now):
        return False
    if job.job_id in draft.volatile.updated_jobs:
        return False  # it may want something else now
    applicant = StartRequest(job.job_id, *member_of(job), job.spec.reservation, job.time_limit_s, job.qos)
    if not validator.admit(start, applicant):
        return False
    if start.task is not None:
        job = array.materialise_task(draft, job, start.task)
    attempt_id = AttemptId(job.job_id, job.attempt + 1)
    draft.emit(
        event.JobAllocated(
            at=draft.now,
            attempt_id=attempt_id,
            grants=start.grants,
            billing=0 if _is_maintenance(draft, start) else start.billing,
            slot=start.slot,
            reservation=start.reservation,
            occurrence=start.occurrence,
            borrows=start.borrows,
            priority=start.priority,
        )
    )
    attempt = draft.cluster.attempts[attempt_id]
    if old := _without_values(draft, job, attempt):
        why = "it runs a gqnode of a version that would not tell the task what varies in its sweep"
        fail_launch(draft, attempt, old, why, is_job_fault=True)
        return True
    for node in attempt.parts:
        orders.send_owed(draft, attempt, node)
    return True


def _without_values(draft: TurnBuilder, job: Job, attempt: Attempt) -> str:
    """A node on which the job would run without `Launch.parameters`, and seem to go well."""
    nodes = attempt.parts if job.spec.sweep else ()
    return next((node for node in nodes if not draft.cluster.nodes[node].inventory.can_suspend), "")


def _is_maintenance(draft: TurnBuilder, start: Start) -> bool:
    """It runs in a reservation for maintenance, where nobody pays."""
    known = draft.cluster.reservations.get(start.reservation)
    return known is not None and Flag.MAINT in known.booking.flags


def on_prepared(draft: TurnBuilder, node: str, report: wire.Prepared) -> None:
    """One more node is ready; when all are, let go."""
    attempt = _launching(draft, report.attempt_id, node, PartPhase.PREPARING)
    if attempt is None:
        return
    fact = event.PartPrepared(at=draft.now, attempt_id=report.attempt_id, node=node, master_port=report.master_port)
    draft.emit(fact)
    orders.send_owed(draft, attempt, node)
    if draft.cluster.nodes[node].backoff_failures:
        draft.emit(event.NodeBackoffCleared(at=draft.now, node=node))
    if has_joined(attempt, node):
        _release(draft, attempt, (node,))
    elif all(part.phase is PartPhase.PREPARED for part in attempt.parts.values()):
        others = tuple(one for one in attempt.parts if one != attempt.batch_node)
        _release(draft, attempt, others or (attempt.batch_node,))


def on_go_received(draft: TurnBuilder, node: str, report: wire.GoReceived) -> None:
    """A node other than the batch node is going; after the last of them the batch node goes."""
    attempt = _launching(draft, report.attempt_id, node, PartPhase.GOING)
    if attempt is None:
        return
    if node == attempt.batch_node:
        _mark_received(draft, attempt, node)  # it is on its way; that it lives is said by `Started`
        return
    draft.emit(event.PartWentLive(at=draft.now, attempt_id=report.attempt_id, node=node))
    orders.send_owed(draft, attempt, node)
    if has_joined(attempt, node):
        elastic_nodes.tell_all(draft, attempt)
        return
    others = [part for one, part in attempt.parts.items() if one != attempt.batch_node]
    if all(part.phase is PartPhase.LIVE for part in others):
        _release(draft, attempt, (attempt.batch_node,))


def on_started(draft: TurnBuilder, node: str, report: wire.Started) -> None:
    """The batch script's process is alive: the job runs."""
    attempt = _launching(draft, report.attempt_id, node, PartPhase.GOING)
    if attempt is None or node != attempt.batch_node:
        return
    draft.emit(event.PartWentLive(at=draft.now, attempt_id=report.attempt_id, node=node))
    at = min(max(report.at, attempt.allocated_at), draft.now)
    draft.emit(event.JobStarted(at=at, attempt_id=report.attempt_id, master_port=attempt.master_port))
    if attempt.borrows:
        draft.volatile.wants_plan = True  # from now on it can give way, and somebody may wait for that
    orders.send_owed(draft, attempt, node)
    if attempt.elastic is not None:
        draft.volatile.wants_plan = True
    started = draft.cluster.jobs[report.attempt_id.job_id]
    if late := overlap.late_for(draft, attempt, at):
        fail_on_node(draft, attempt, node, late)
    elif started.spec.deadline_at is not None:
        for one in attempt.parts:
            orders.send_time_limit(draft, started, one)


def on_prepare_received(draft: TurnBuilder, node: str, report: wire.PrepareReceived) -> None:
    attempt = _launching(draft, report.attempt_id, node, PartPhase.PREPARING)
    if attempt is not None:
        _mark_received(draft, attempt, node)


def on_prepare_refused(draft: TurnBuilder, node: str, report: wire.PrepareRefused) -> None:
    """Roll back; nothing of the attempt is left on the node that says so."""
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts:
        return
    job = draft.cluster.jobs.get(report.attempt_id.job_id)
    if job is not None and job.attempt_id == report.attempt_id and job.state is JobState.STARTING:
        # Also after it was ready: a daemon that starts again makes its cells again, and may fail to.
        fail_launch(draft, attempt, node, report.why, is_job_fault=report.is_job_fault)
        empty_part(draft, attempt, node, Usage())
    else:
        if attempt.parts[node].phase is PartPhase.PREPARING:
            _back_off(draft, node)
        lose_part(draft, attempt, node, report.why)


def fail_launch(draft: TurnBuilder, attempt: Attempt, node: str, why: str, *, is_job_fault: bool = False) -> None:
    """Roll every node back; leave that node out for one back-off; the job waits again."""
    job = draft.cluster.jobs[attempt.attempt_id.job_id]
    until = draft.now + _backoff_s(draft, 1 + job.launch_failures) if is_job_fault else _back_off(draft, node)
    _roll_back(draft, attempt, node, f"node {node}: {why}", until, is_job_fault=is_job_fault)


def _roll_back(
    draft: TurnBuilder,
    attempt: Attempt,
    node: str,
    why: str,
    until: float,
    *,
    is_job_fault: bool = False,
    reason: Reason = Reason.LAUNCH_FAILED,
) -> None:
    draft.emit(
        event.LaunchFailed(
            at=draft.now,
            attempt_id=attempt.attempt_id,
            node=node,
            why=why,
            is_job_fault=is_job_fault,
            until=until,
            reason=reason.value,
        )
    )
    for one in list(attempt.parts):
        orders.send_owed(draft, attempt, one)


def _back_off(draft: TurnBuilder, node: str) -> float:
    """Leave the node out of planning for a while, for all jobs; until when.

    What fails while it is left out was ordered before that: a crowd of jobs that one slow moment failed is one failure.
    """
    failing = draft.cluster.nodes[node]
    if failing.backoff_until > draft.now:
        return failing.backoff_until
    failures = 1 + failing.backoff_failures
    until = draft.now + _backoff_s(draft, failures)
    draft.emit(event.NodeBackedOff(at=draft.now, node=node, until=until, failures=failures))
    return until


def _backoff_s(draft: TurnBuilder, failures: int) -> float:
    """30 s, doubling to 10 min."""
    timers = draft.policy.timers
    return float(min(timers.backoff_min_s * 2.0 ** min(failures - 1, 20), timers.backoff_max_s))


def _release(draft: TurnBuilder, attempt: Attempt, nodes: tuple[str, ...]) -> None:
    if give_up_late_launch(draft, attempt, attempt.batch_node):
        return
    draft.emit(
        event.PartsReleased(at=draft.now, attempt_id=attempt.attempt_id, nodes=nodes, master_port=attempt.master_port)
    )
    for node in nodes:
        orders.send_owed(draft, attempt, node)


def give_up_late_launch(draft: TurnBuilder, attempt: Attempt, node: str) -> bool:
    """Roll back what could not be over before a reservation any more; the job waits again.

    Nothing of it runs on this node; so nothing runs anywhere, unless its batch node is another and was let go.
    """
    job = draft.cluster.jobs.get(attempt.attempt_id.job_id)
    if job is None or job.attempt_id != attempt.attempt_id or job.state is not JobState.STARTING:
        return False
    may_have_started = node != attempt.batch_node and attempt.was_let_go
    why = "" if may_have_started else overlap.late_for(draft, attempt, draft.now)
    if why:
        _roll_back(draft, attempt, attempt.batch_node, why, until=draft.now)
    return bool(why)


def _launching(draft: TurnBuilder, attempt_id: AttemptId, node: str, phase: PartPhase) -> Attempt | None:
    """The attempt, if it is being launched there, and this node's part is in this phase; None: the report is stale."""
    attempt = draft.cluster.attempts.get(attempt_id)
    job = draft.cluster.jobs.get(attempt_id.job_id)
    if attempt is None or job is None or job.attempt_id != attempt_id:
        return None
    if job.state is not JobState.STARTING and not (job.state is JobState.RUNNING and has_joined(attempt, node)):
        return None
    part = attempt.parts.get(node)
    return attempt if part is not None and part.phase is phase else None


def _mark_received(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    clock = draft.volatile.part_orders.get((attempt.attempt_id, node))
    if clock is not None:
        clock.is_received = True


# ── end ───────────────────────────────────────────────────────────────────────────────────────────────────────


def on_attempt_ended(draft: TurnBuilder, node: str, report: wire.AttemptEnded) -> None:
    """The batch script is over, or a node ended its part: end the attempt everywhere."""
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts:
        if report.cell_emptied:
            _stranger_is_gone(draft, report.attempt_id, node)
        return
    job = draft.cluster.jobs.get(report.attempt_id.job_id)
    if job is not None and job.attempt_id == report.attempt_id:
        _take_end(draft, job, attempt, node, report)
    if report.cell_emptied:
        empty_part(draft, attempt, node, report.usage)


def _take_end(draft: TurnBuilder, job: Job, attempt: Attempt, node: str, report: wire.AttemptEnded) -> None:
    is_batch_node = node == attempt.batch_node
    if workdir.is_missing(job, attempt, node, report):
        until, why = draft.now + workdir.LEFT_OUT_S, f"node {node}: {report.why}"
        _roll_back(draft, attempt, node, why, until, is_job_fault=True, reason=Reason.BAD_WORKDIR)
        return
    if job.state is JobState.STARTING and is_batch_node and report.started_at is not None:
        on_started(draft, node, wire.Started(attempt_id=report.attempt_id, at=report.started_at))
    if _has_come(job, attempt, node) and (is_left(attempt, node) or report.outcome is not Outcome.TIMEOUT):
        elastic_nodes.leave(draft, attempt, (node,))
    elif _goes_on_without(job, attempt, node) and report.outcome is Outcome.NODE_FAIL:
        step.lose_node(draft, attempt, node)
    elif job.state in (JobState.STARTING, JobState.RUNNING):
        end_by_node(draft, job, attempt, node, report)
    elif job.state is JobState.COMPLETING and is_batch_node and attempt.exit is None:
        _keep_exit(draft, job, attempt, report.exit)


def _keep_exit(draft: TurnBuilder, job: Job, attempt: Attempt, exit: ExitStatus) -> None:
    """Ended by an order: the outcome stands; how the script took it is worth keeping."""
    if attempt.outcome is not None and attempt.then is not None:
        end(
            draft,
            job,
            attempt.outcome,
            attempt.then,
            exit=exit,
            reason=attempt.reason,
            why=attempt.why,
            failure_class=attempt.failure_class,
            grace_s=attempt.grace_s,
        )


def end_by_node(draft: TurnBuilder, job: Job, attempt: Attempt, node: str, report: wire.AttemptEnded) -> None:
    """What the node saw becomes the job's end."""
    outcome, failure_class = report.outcome, ""
    then = AfterEnding.END
    match report.outcome:
        case Outcome.BOOT_FAIL:
            outcome, reason, failure_class = Outcome.FAILED, Reason.LAUNCH_FAILURE, "launch"
        case Outcome.NODE_FAIL:
            reason, failure_class = Reason.NODE_DOWN, "node"
            then = requeue.after(draft, job, requeue.NODE_FAIL)
        case Outcome.TIMEOUT:
            reason = Reason.TIME_LIMIT
            then = requeue.after(draft, job, requeue.TIMEOUT)
            if deadline.is_what_ended(job, attempt):
                outcome, reason, then = Outcome.DEADLINE, Reason.DEADLINE, AfterEnding.END
        case Outcome.OUT_OF_MEMORY:
            reason, failure_class = Reason.OUT_OF_MEMORY, "memory"
        case Outcome.FAILED if attempt.giving_way is not None and report.ended_at >= attempt.giving_way.told_at:
            outcome, reason = Outcome.PREEMPTED, Reason.NONE
            then = requeue.after_giving_way(draft, job)
        case Outcome.FAILED:
            reason = Reason.RAISED_SIGNAL if report.exit.signal else Reason.NON_ZERO_EXIT
        case _:
            reason = Reason.NONE
    is_without_code = outcome is Outcome.NODE_FAIL or failure_class == "launch"
    why = f"node {node}: {report.why}" if report.why else ""
    if outcome is Outcome.PREEMPTED:
        why = requeue.to_whom(draft.cluster, attempt)
    at = min(max(report.ended_at, attempt.start_at or attempt.allocated_at), draft.now)
    end(
        draft,
        job,
        outcome,
        then,
        exit=None if is_without_code else report.exit,
        reason=reason.value,
        why=why,
        failure_class=failure_class,
        at=at,
        emptied=node if report.cell_emptied else "",
    )


def end(
    draft: TurnBuilder,
    job: Job,
    outcome: Outcome,
    then: AfterEnding,
    *,
    exit: ExitStatus | None = None,
    reason: str = "None",
    why: str = "",
    failure_class: str = "",
    grace_s: int = 0,
    at: float | None = None,
    emptied: str = "",
) -> None:
    """End the job's attempt on all its nodes; what follows, follows when the last of them is empty.

    `emptied`: a node that has nothing of it left, and needs no order.
    """
    attempt = draft.cluster.attempts[job.attempt_id]
    was_stopping = job.state is JobState.COMPLETING
    if lends(draft.cluster, attempt):
        grace_s = 0  # it would go on with what another job has
    at = draft.now if at is None else at
    draft.emit(
        event.JobEnding(
            at=at,
            attempt_id=attempt.attempt_id,
            outcome=outcome,
            then=then,
            exit=exit,
            reason=reason,
            why=why,
            failure_class=failure_class,
            grace_s=grace_s,
            lost_gpu_s=attempt.unsaved_gpu_s(at) if outcome is Outcome.PREEMPTED else 0.0,
        )
    )
    if not was_stopping:
        for node in attempt.parts:
            if node != emptied:
                orders.send_owed(draft, attempt, node)
    close_if_over(draft, attempt)


def empty_part(draft: TurnBuilder, attempt: Attempt, node: str, usage: Usage) -> None:
    """Nothing is left of the attempt on the node: what it held is free."""
    draft.volatile.part_orders.pop((attempt.attempt_id, node), None)
    draft.volatile.limit_orders.pop((attempt.attempt_id, node), None)
    draft.volatile.stop_orders.pop((attempt.attempt_id, node), None)
    draft.emit(event.PartEmptied(at=draft.now, attempt_id=attempt.attempt_id, node=node, usage=usage))
    draft.volatile.wants_plan = True
    close_if_over(draft, attempt)


def on_cell_emptied(draft: TurnBuilder, node: str, report: wire.CellEmptied) -> None:
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts:
        _stranger_is_gone(draft, report.attempt_id, node)
        return
    if attempt.elastic is not None and report.join < attempt.elastic.join_of(node):
        return  # of the time before
    job = draft.cluster.jobs.get(report.attempt_id.job_id)
    if job is not None and job.attempt_id == report.attempt_id and job.state in (JobState.STARTING, JobState.RUNNING):
        lose_part(draft, attempt, node, "nothing is left of the job there")
        return
    empty_part(draft, attempt, node, report.usage)


def _stranger_is_gone(draft: TurnBuilder, attempt_id: AttemptId, node: str) -> None:
    """The node had something of an attempt that has no part there; while it had, it got no jobs."""
    if draft.volatile.stop_orders.pop((attempt_id, node), None) is not None:
        draft.volatile.wants_plan = True


def strand_part(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """Nobody waits for this node any longer; what the part holds stays withheld."""
    if not attempt.parts[node].is_stranded:
        draft.emit(event.PartStranded(at=draft.now, attempt_id=attempt.attempt_id, node=node))
    step.lose_node(draft, attempt, node)
    close_if_over(draft, attempt)


def lose_part(draft: TurnBuilder, attempt: Attempt, node: str, why: str) -> None:
    """The node says that it has nothing of the attempt."""
    fail_on_node(draft, attempt, node, why)
    step.lose_node(draft, attempt, node)
    if node in attempt.parts:
        empty_part(draft, attempt, node, Usage())


def take_node_away(draft: TurnBuilder, attempt: Attempt, node: str, why: str) -> None:
    """The attempt cannot go on with this node, which is there and shall say that nothing of it is left."""
    fail_on_node(draft, attempt, node, why)
    step.lose_node(draft, attempt, node)
    if attempt.parts[node].phase is not PartPhase.STOPPING:
        orders.stop_stranger(draft, attempt.attempt_id, node)  # the job goes on without this node


def fail_on_node(draft: TurnBuilder, attempt: Attempt, node: str, why: str) -> None:
    """The attempt cannot go on with this node: roll back, requeue or fail, unless it goes on without."""
    job = draft.cluster.jobs.get(attempt.attempt_id.job_id)
    if job is None or job.attempt_id != attempt.attempt_id:
        return
    if _has_come(job, attempt, node):
        elastic_nodes.leave(draft, attempt, (node,))
    elif job.state is JobState.STARTING and not attempt.was_let_go:
        fail_launch(draft, attempt, node, why)
    elif job.state in (JobState.STARTING, JobState.RUNNING) and not _goes_on_without(job, attempt, node):
        end(
            draft,
            job,
            Outcome.NODE_FAIL,
            requeue.after(draft, job, requeue.NODE_FAIL),
            reason=Reason.NODE_DOWN.value,
            why=f"node {node}: {why}",
            failure_class="node",
            grace_s=requeue.grace_s(draft, job),
        )


def _goes_on_without(job: Job, attempt: Attempt, node: str) -> bool:
    """``--no-kill``: a running job may lose any of its nodes but the one with its script."""
    return job.state is JobState.RUNNING and job.spec.no_kill and node != attempt.batch_node


def _has_come(job: Job, attempt: Attempt, node: str) -> bool:
    """The job runs, and goes on with fewer nodes."""
    return job.state is JobState.RUNNING and job.attempt_id == attempt.attempt_id and has_joined(attempt, node)


def close_if_over(draft: TurnBuilder, attempt: Attempt) -> None:
    """When no node is waited for any more: the job ends, or is pending again."""
    job = draft.cluster.jobs.get(attempt.attempt_id.job_id)
    if job is None or job.attempt_id != attempt.attempt_id or job.state is not JobState.COMPLETING:
        return
    if attempt.waits_for():
        return
    step.finish_all(draft, attempt)
    draft.volatile.wants_plan = True
    if attempt.then is AfterEnding.END:
        draft.volatile.client_seen_at.pop(job.job_id, None)
        assert attempt.outcome is not None, f"{attempt.attempt_id} is over without an outcome"
        draft.emit(
            event.JobEnded(
                at=draft.now,
                job_id=job.job_id,
                outcome=attempt.outcome,
                exit=attempt.exit,
                reason=attempt.reason,
                why=attempt.why,
                failure_class=attempt.failure_class,
            )
        )
        return
    hold = _hold_after_retry(draft, job) if attempt.then is AfterEnding.RETRY else None
    counts = attempt.then is AfterEnding.REQUEUE
    why = why_again(job, attempt) if counts else ""
    draft.emit(event.JobRequeued(at=draft.now, job_id=job.job_id, counts=counts, hold=hold, why=why))
    if hold is not None:
        workdir.hold_siblings(draft, job)


def _hold_after_retry(draft: TurnBuilder, job: Job) -> Hold | None:
    """Too many launches have failed, or each that is left would."""
    is_hopeless = job.launch_failures >= draft.policy.limits.launch_failures
    return Hold.LAUNCH if is_hopeless else workdir.hold_after(draft, job)


# ── the time limit, which the nodes enforce ───────────────────────────────────────────────────────────────────


def on_time_limit_set(draft: TurnBuilder, node: str, report: wire.TimeLimitSet) -> None:
    """The node says which limit it enforces: an older one may have come to it late."""
    draft.volatile.limit_orders.pop((report.attempt_id, node), None)
    reconcile_time_limit(draft, report.attempt_id, node, report.time_limit_s)


def reconcile_time_limit(draft: TurnBuilder, attempt_id: AttemptId, node: str, enforced_s: int | None) -> None:
    """Tell the node, if it enforces another limit than the job has."""
    job = draft.cluster.jobs.get(attempt_id.job_id)
    if job is None or not _owes_time_limit(draft, job, attempt_id, node):
        return
    if enforced_s != time_limit_of(job, draft.cluster.attempts[attempt_id]):
        orders.send_time_limit(draft, job, node)


def _owes_time_limit(draft: TurnBuilder, job: Job, attempt_id: AttemptId, node: str) -> bool:
    """The attempt is the job's, and is not being ended on this node."""
    attempt = draft.cluster.attempts.get(attempt_id)
    part = attempt.parts.get(node) if attempt is not None and job.attempt_id == attempt_id else None
    return part is not None and part.phase is not PartPhase.STOPPING


def _repeat_time_limits(draft: TurnBuilder) -> None:
    for (attempt_id, node), sent_at in list(draft.volatile.limit_orders.items()):
        job = draft.cluster.jobs.get(attempt_id.job_id)
        if job is None or not _owes_time_limit(draft, job, attempt_id, node):
            del draft.volatile.limit_orders[attempt_id, node]
        elif node in draft.volatile.links and draft.now - sent_at >= draft.policy.timers.resend_s:
            orders.send_time_limit(draft, job, node)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """Repeat orders that nobody acknowledged; call silence what is silence.

    An order for a node that has no link (it is lost, or has not said hello since the controller started) is not on
    its way: it waits for the hello, and its silence is the node's own loss.
    """
    _repeat_time_limits(draft)
    _repeat_stops_of_strangers(draft)
    for (attempt_id, node), clock in list(draft.volatile.part_orders.items()):
        attempt = draft.cluster.attempts.get(attempt_id)
        if attempt is None or node not in attempt.parts:
            draft.volatile.part_orders.pop((attempt_id, node), None)
        elif node not in draft.volatile.links:
            continue
        elif _is_silent(draft, attempt, node):
            _fail_silent_launch(draft, attempt, node)
        elif _is_slow(draft, attempt, node, clock) and has_joined(attempt, node):
            _back_off(draft, node)
            elastic_nodes.leave(draft, attempt, (node,))
        elif _is_slow(draft, attempt, node, clock):
            fail_launch(draft, attempt, node, f"not ready {draft.policy.timers.prepare_s:g} s after PREPARE")
        elif not clock.is_received and (why := _is_late(draft, attempt, node)):
            fail_on_node(draft, attempt, node, why)
        elif not clock.is_received and draft.now - clock.last_sent_at >= draft.policy.timers.resend_s:
            orders.repeat_owed(draft, attempt, node)


def _repeat_stops_of_strangers(draft: TurnBuilder) -> None:
    for (attempt_id, node), sent_at in list(draft.volatile.stop_orders.items()):
        if node not in draft.volatile.links:
            del draft.volatile.stop_orders[attempt_id, node]  # its hello will say what it has
        elif draft.now - sent_at >= draft.policy.timers.resend_s:
            orders.stop_stranger(draft, attempt_id, node)


def _is_slow(draft: TurnBuilder, attempt: Attempt, node: str, clock: OrderClock) -> bool:
    """It has the order and says nothing more."""
    is_preparing = attempt.parts[node].phase is PartPhase.PREPARING
    return is_preparing and clock.is_received and draft.now - clock.first_sent_at >= draft.policy.timers.prepare_s


def _is_late(draft: TurnBuilder, attempt: Attempt, node: str) -> str:
    """Why a batch node that has not said that it goes shall not any more: it may have begun, a moment ago."""
    is_going = attempt.parts[node].phase is PartPhase.GOING and node == attempt.batch_node
    return overlap.late_for(draft, attempt, draft.now) if is_going else ""


def _is_silent(draft: TurnBuilder, attempt: Attempt, node: str) -> bool:
    """It never said that it has the order.

    A batch node that is silent after GO may have started the script: that is left to the node's own loss.
    """
    clock = draft.volatile.part_orders.get((attempt.attempt_id, node))
    if clock is None or clock.is_received or node not in draft.volatile.links:
        return False
    phase = attempt.parts[node].phase
    is_deciding = phase is PartPhase.PREPARING or (phase is PartPhase.GOING and node != attempt.batch_node)
    return is_deciding and draft.now - clock.first_sent_at >= draft.policy.timers.prepare_ack_s


def _fail_silent_launch(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """Roll back; nobody waits for this node, nor for others that are as silent."""
    if has_joined(attempt, node):
        _back_off(draft, node)
        elastic_nodes.leave(draft, attempt, (node,))
        strand_part(draft, attempt, node)
        return
    word = "PREPARE" if attempt.parts[node].phase is PartPhase.PREPARING else "GO"
    silent = [one for one in attempt.parts if _is_silent(draft, attempt, one)]
    fail_launch(draft, attempt, node, f"no answer to {word} within {draft.policy.timers.prepare_ack_s:g} s")
    for one in silent:
        if one != node:
            _back_off(draft, one)
        strand_part(draft, attempt, one)
