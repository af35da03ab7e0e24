"""The life of an attempt: allocated, prepared on every node, launched, ended, cleaned up — or rolled back.  Pure.

The launch has two phases.  PREPARE goes to every node.  When all are ready, GO goes to all nodes except the batch node,
and, after they have acknowledged it, to the batch node.  Until then no process of the user runs anywhere, and a refusal
or the silence of one node rolls everything back.
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
from gqd.sched.limits.ledger import Ledger, LimitDemand, LimitSubject, hours
from gqd.state.cluster import Cluster
from gqd.state.elastic import has_joined, is_left
from gqd.state.end_reason import why_again
from gqd.state.events import event
from gqd.state.index.job_tally import granted
from gqd.state.index.queue import member_of
from gqd.state.order_clocks import PART, STOP_ORPHAN, TIME_LIMIT, OrderClock
from gqd.state.parked import lends
from gqd.state.phases import AfterEnding, Hold, PartPhase
from gqd.state.plan import Start
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

# ── launch ────────────────────────────────────────────────────────────────────────────────────────────────────


def decide_start(draft: TurnBuilder, ledger: Ledger, start: Start, validator: PlanValidator) -> bool:
    """Start the job as planned, if the limits and the live cluster still allow it; the ledger then counts it."""
    job = draft.cluster.jobs.get(start.job_id)
    if job is None:
        return False
    subject = LimitSubject(job.user, job.account, job.qos)
    wanted = LimitDemand(granted(draft.cluster, start.grants), hours(start.billing, job.time_limit_s))
    if ledger.exceeded_limit(subject, wanted) is not None or not _allocate(draft, job, start, validator):
        return False
    ledger.take(subject, wanted)
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
        return False  # the plan was made for its former request
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
        why = "its gqnode is too old to pass the values of a sweep to a task"
        fail_launch(draft, attempt, old, why, is_job_fault=True)
        return True
    for node in attempt.parts:
        orders.send_owed(draft, attempt, node)
    return True


def _without_values(draft: TurnBuilder, job: Job, attempt: Attempt) -> str:
    """The name of a node whose gqnode ignores `Launch.parameters`: a sweep would run there without its values."""
    nodes = attempt.parts if job.spec.sweep else ()
    return next((node for node in nodes if not draft.cluster.nodes[node].inventory.can_suspend), "")


def _is_maintenance(draft: TurnBuilder, start: Start) -> bool:
    """Whether the start is in a maintenance reservation, where jobs are not billed."""
    known = draft.cluster.reservations.get(start.reservation)
    return known is not None and Flag.MAINT in known.booking.flags


def on_prepared(draft: TurnBuilder, node: str, report: wire.Prepared) -> None:
    """Mark the node as prepared; send GO once all nodes are."""
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
        others = tuple(name for name in attempt.parts if name != attempt.batch_node)
        _release(draft, attempt, others or (attempt.batch_node,))


def on_go_received(draft: TurnBuilder, node: str, report: wire.GoReceived) -> None:
    """Mark the node's part as live; send GO to the batch node once all other nodes have acknowledged theirs."""
    attempt = _launching(draft, report.attempt_id, node, PartPhase.GOING)
    if attempt is None:
        return
    if node == attempt.batch_node:
        _mark_received(draft, attempt, node)  # `Started` will report that the script runs
        return
    draft.emit(event.PartWentLive(at=draft.now, attempt_id=report.attempt_id, node=node))
    orders.send_owed(draft, attempt, node)
    if has_joined(attempt, node):
        elastic_nodes.tell_all(draft, attempt)
        return
    others = [part for name, part in attempt.parts.items() if name != attempt.batch_node]
    if all(part.phase is PartPhase.LIVE for part in others):
        _release(draft, attempt, (attempt.batch_node,))


def on_started(draft: TurnBuilder, node: str, report: wire.Started) -> None:
    """The batch script's process runs: the job becomes RUNNING."""
    attempt = _launching(draft, report.attempt_id, node, PartPhase.GOING)
    if attempt is None or node != attempt.batch_node:
        return
    draft.emit(event.PartWentLive(at=draft.now, attempt_id=report.attempt_id, node=node))
    at = min(max(report.at, attempt.allocated_at), draft.now)
    draft.emit(event.JobStarted(at=at, attempt_id=report.attempt_id, master_port=attempt.master_port))
    orders.send_owed(draft, attempt, node)
    started = draft.cluster.jobs[report.attempt_id.job_id]
    if late := overlap.late_for(draft, attempt, at):
        fail_on_node(draft, attempt, node, late)
    elif started.spec.deadline_at is not None:
        for name in attempt.parts:
            orders.send_time_limit(draft, started, name)


def on_prepare_received(draft: TurnBuilder, node: str, report: wire.PrepareReceived) -> None:
    """The node acknowledged PREPARE: do not repeat the order."""
    attempt = _launching(draft, report.attempt_id, node, PartPhase.PREPARING)
    if attempt is not None:
        _mark_received(draft, attempt, node)


def on_prepare_refused(draft: TurnBuilder, node: str, report: wire.PrepareRefused) -> None:
    """Roll the launch back; the node that refused holds nothing of the attempt."""
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts:
        return
    job = draft.cluster.jobs.get(report.attempt_id.job_id)
    if job is not None and job.attempt_id == report.attempt_id and job.state is JobState.STARTING:
        # A prepared node may refuse, too: a restarted daemon sets up its cells again, which may fail.
        fail_launch(draft, attempt, node, report.why, is_job_fault=report.is_job_fault)
        empty_part(draft, attempt, node, Usage())
    else:
        if attempt.parts[node].phase is PartPhase.PREPARING:
            _back_off(draft, node)
        lose_part(draft, attempt, node, report.why)


def fail_launch(draft: TurnBuilder, attempt: Attempt, node: str, why: str, *, is_job_fault: bool = False) -> None:
    """Roll the launch back on all nodes, back off from the node that failed, and requeue the job."""
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
    for name in list(attempt.parts):
        orders.send_owed(draft, attempt, name)


def _back_off(draft: TurnBuilder, node: str) -> float:
    """Exclude the node from planning for all jobs for a while.  → the instant until which it is excluded.

    Failures during a back-off were ordered before it began, so many launches that fail at once count as one failure.
    """
    failing = draft.cluster.nodes[node]
    if failing.backoff_until > draft.now:
        return failing.backoff_until
    failures = 1 + failing.backoff_failures
    until = draft.now + _backoff_s(draft, failures)
    draft.emit(event.NodeBackedOff(at=draft.now, node=node, until=until, failures=failures))
    return until


def _backoff_s(draft: TurnBuilder, failures: int) -> float:
    """Seconds of back-off after this many failures in a row: doubles from `backoff_min_s` to `backoff_max_s`."""
    timers = draft.policy.timers
    return float(min(timers.backoff_min_s * 2.0 ** min(failures - 1, 20), timers.backoff_max_s))


def _release(draft: TurnBuilder, attempt: Attempt, nodes: tuple[str, ...]) -> None:
    """Send GO to these nodes, unless the job can no longer end before a reservation."""
    if give_up_late_launch(draft, attempt, attempt.batch_node):
        return
    draft.emit(
        event.PartsReleased(at=draft.now, attempt_id=attempt.attempt_id, nodes=nodes, master_port=attempt.master_port)
    )
    for node in nodes:
        orders.send_owed(draft, attempt, node)


def give_up_late_launch(draft: TurnBuilder, attempt: Attempt, node: str) -> bool:
    """Roll back a launch that could no longer end before a reservation; the job waits again.  → whether it did.

    Nothing of the job runs on `node`, so nothing runs anywhere, unless GO was already sent to another batch node.
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
    """The attempt, if this node's part of it is in this phase of a launch; None: the report is stale."""
    attempt = draft.cluster.attempts.get(attempt_id)
    job = draft.cluster.jobs.get(attempt_id.job_id)
    if attempt is None or job is None or job.attempt_id != attempt_id:
        return None
    if job.state is not JobState.STARTING and not (job.state is JobState.RUNNING and has_joined(attempt, node)):
        return None
    part = attempt.parts.get(node)
    return attempt if part is not None and part.phase is phase else None


def _mark_received(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """The node has its order: do not repeat it."""
    clock = draft.volatile.order_clocks.get(PART, attempt.attempt_id, node)
    if clock is not None:
        clock.is_received = True


# ── end ───────────────────────────────────────────────────────────────────────────────────────────────────────


def on_attempt_ended(draft: TurnBuilder, node: str, report: wire.AttemptEnded) -> None:
    """The batch script has ended, or a node ended its part: end the attempt on all nodes."""
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts:
        if report.cell_emptied:
            _forget_orphan(draft, report.attempt_id, node)
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
    if _has_joined_running(job, attempt, node) and (is_left(attempt, node) or report.outcome is not Outcome.TIMEOUT):
        elastic_nodes.leave(draft, attempt, (node,))
    elif _goes_on_without(job, attempt, node) and report.outcome is Outcome.NODE_FAIL:
        step.lose_node(draft, attempt, node)
    elif job.state in (JobState.STARTING, JobState.RUNNING):
        end_by_node(draft, job, attempt, node, report)
    elif job.state is JobState.COMPLETING and is_batch_node and attempt.exit is None:
        _keep_exit(draft, job, attempt, report.exit)


def _keep_exit(draft: TurnBuilder, job: Job, attempt: Attempt, exit: ExitStatus) -> None:
    """Record how the script exited after an order ended the attempt; the outcome stays."""
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
    """End the job with the outcome that the node reports."""
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
        case Outcome.FAILED if attempt.preemption is not None and report.ended_at >= attempt.preemption.notified_at:
            outcome, reason = Outcome.PREEMPTED, Reason.NONE
            then = requeue.after_preemption(draft, job)
        case Outcome.FAILED:
            reason = Reason.RAISED_SIGNAL if report.exit.signal else Reason.NON_ZERO_EXIT
        case _:
            reason = Reason.NONE
    is_without_code = outcome is Outcome.NODE_FAIL or failure_class == "launch"
    why = f"node {node}: {report.why}" if report.why else ""
    if outcome is Outcome.PREEMPTED:
        why = requeue.preemptor_phrase(draft.cluster, attempt)
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
    """End the job's attempt on all its nodes; `then` says what becomes of the job once all of them are empty.

    `emptied`: a node that holds nothing of the attempt any more, and needs no order.
    """
    attempt = draft.cluster.attempts[job.attempt_id]
    was_stopping = job.state is JobState.COMPLETING
    if lends(draft.cluster, attempt):
        grace_s = 0  # it would continue on GPUs that another job uses now
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
    """Nothing of the attempt is left on the node: free what its part held."""
    draft.volatile.order_clocks.forget_part(attempt.attempt_id, node)
    draft.emit(event.PartEmptied(at=draft.now, attempt_id=attempt.attempt_id, node=node, usage=usage))
    close_if_over(draft, attempt)


def on_cell_emptied(draft: TurnBuilder, node: str, report: wire.CellEmptied) -> None:
    """The node reports that nothing of the attempt is left on it."""
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts:
        _forget_orphan(draft, report.attempt_id, node)
        return
    if attempt.elastic is not None and report.join < attempt.elastic.join_of(node):
        return  # the report is about an earlier stay of this node in the attempt
    job = draft.cluster.jobs.get(report.attempt_id.job_id)
    if job is not None and job.attempt_id == report.attempt_id and job.state in (JobState.STARTING, JobState.RUNNING):
        lose_part(draft, attempt, node, "the job has no process left there")
        return
    empty_part(draft, attempt, node, report.usage)


def _forget_orphan(draft: TurnBuilder, attempt_id: AttemptId, node: str) -> None:
    """The node is rid of an attempt that should not have been there, and may get jobs again."""
    if draft.volatile.order_clocks.stop(STOP_ORPHAN, attempt_id, node):
        draft.volatile.wants_plan = True


def strand_part(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """Stop waiting for an unreachable node; the resources of its part stay withheld."""
    if not attempt.parts[node].is_stranded:
        draft.emit(event.PartStranded(at=draft.now, attempt_id=attempt.attempt_id, node=node))
    step.lose_node(draft, attempt, node)
    close_if_over(draft, attempt)


def lose_part(draft: TurnBuilder, attempt: Attempt, node: str, why: str) -> None:
    """The node reports that it does not have the attempt: fail the part, then free it."""
    fail_on_node(draft, attempt, node, why)
    step.lose_node(draft, attempt, node)
    if node in attempt.parts:
        empty_part(draft, attempt, node, Usage())


def take_node_away(draft: TurnBuilder, attempt: Attempt, node: str, why: str) -> None:
    """End the attempt's part on a reachable node, which is to report that nothing of it is left."""
    fail_on_node(draft, attempt, node, why)
    step.lose_node(draft, attempt, node)
    if attempt.parts[node].phase is not PartPhase.STOPPING:
        orders.stop_orphan(draft, attempt.attempt_id, node)  # the job goes on without this node


def fail_on_node(draft: TurnBuilder, attempt: Attempt, node: str, why: str) -> None:
    """Handle the loss of the attempt's part on a node: roll back, requeue or fail, unless the job continues without."""
    job = draft.cluster.jobs.get(attempt.attempt_id.job_id)
    if job is None or job.attempt_id != attempt.attempt_id:
        return
    if _has_joined_running(job, attempt, node):
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
    """Whether a running job survives the loss of the node: --no-kill covers all nodes except the batch node."""
    return job.state is JobState.RUNNING and job.spec.no_kill and node != attempt.batch_node


def _has_joined_running(job: Job, attempt: Attempt, node: str) -> bool:
    """Whether the node joined the running elastic job, which then continues without it."""
    return job.state is JobState.RUNNING and job.attempt_id == attempt.attempt_id and has_joined(attempt, node)


def close_if_over(draft: TurnBuilder, attempt: Attempt) -> None:
    """End or requeue the job, if its attempt is ending and no node is waited for any more."""
    job = draft.cluster.jobs.get(attempt.attempt_id.job_id)
    if job is None or job.attempt_id != attempt.attempt_id or job.state is not JobState.COMPLETING:
        return
    if attempt.waits_for():
        return
    step.finish_all(draft, attempt)
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
    """The hold of a job whose launch failed too often, or would fail on every node left; None: it may try again."""
    is_hopeless = job.launch_failures >= draft.policy.limits.launch_failures
    return Hold.LAUNCH if is_hopeless else workdir.hold_after(draft, job)


# ── the time limit, which the nodes enforce ───────────────────────────────────────────────────────────────────


def on_time_limit_set(draft: TurnBuilder, node: str, report: wire.TimeLimitSet) -> None:
    """The node reports the limit that it enforces; correct it if an outdated order arrived late."""
    draft.volatile.order_clocks.stop(TIME_LIMIT, report.attempt_id, node)
    reconcile_time_limit(draft, report.attempt_id, node, report.time_limit_s)


def reconcile_time_limit(draft: TurnBuilder, attempt_id: AttemptId, node: str, enforced_s: int | None) -> None:
    """Send the job's time limit if the node enforces another one (in seconds; None: no limit)."""
    order = _owed_time_limit(draft, attempt_id, node)
    if order is not None and enforced_s != order.time_limit_s:
        orders.send(draft, TIME_LIMIT, attempt_id, node, order)


def _owed_time_limit(draft: TurnBuilder, attempt_id: AttemptId, node: str) -> wire.SetTimeLimit | None:
    """The order about the time limit; None: the attempt is not the job's current one, or is ended on this node."""
    job = current_job(draft.cluster, attempt_id, node)
    return None if job is None else orders.time_limit_order(draft, job)


def current_job(cluster: Cluster, attempt_id: AttemptId, node: str) -> Job | None:
    """The job of an attempt that is its current one and is not being ended on this node, else None."""
    job, attempt = cluster.jobs.get(attempt_id.job_id), cluster.attempts.get(attempt_id)
    part = None if attempt is None else attempt.parts.get(node)
    if job is None or job.attempt_id != attempt_id or part is None or part.phase is PartPhase.STOPPING:
        return None
    return job


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """Repeat orders that were not acknowledged, and fail launches on nodes that stay silent.

    Nodes without a link (lost, or no hello since the controller started) are skipped: their orders are sent after the
    hello, and their silence is handled as the loss of the node.
    """
    orders.repeat(draft, TIME_LIMIT, _owed_time_limit)
    orders.repeat(draft, STOP_ORPHAN, orders.owed_to_orphan)
    for attempt_id, node, clock in draft.volatile.order_clocks.owed(PART):
        attempt = draft.cluster.attempts.get(attempt_id)
        if attempt is None or node not in attempt.parts:
            draft.volatile.order_clocks.stop(PART, attempt_id, node)
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
            orders.repeat_owed(draft, attempt, node, clock)


def _is_slow(draft: TurnBuilder, attempt: Attempt, node: str, clock: OrderClock) -> bool:
    """Whether the node acknowledged PREPARE but is not ready in time."""
    is_preparing = attempt.parts[node].phase is PartPhase.PREPARING
    return is_preparing and clock.is_received and draft.now - clock.first_sent_at >= draft.policy.timers.prepare_s


def _is_late(draft: TurnBuilder, attempt: Attempt, node: str) -> str:
    """Why a batch node that has not acknowledged GO must not start the job now; empty: it may.

    The script may have started a moment ago all the same.
    """
    is_going = attempt.parts[node].phase is PartPhase.GOING and node == attempt.batch_node
    return overlap.late_for(draft, attempt, draft.now) if is_going else ""


def _is_silent(draft: TurnBuilder, attempt: Attempt, node: str) -> bool:
    """Whether the node did not acknowledge its order in time.

    A silent batch node may have started the script after GO: that case is left to the loss of the node.
    """
    clock = draft.volatile.order_clocks.get(PART, attempt.attempt_id, node)
    if clock is None or clock.is_received or node not in draft.volatile.links:
        return False
    phase = attempt.parts[node].phase
    is_deciding = phase is PartPhase.PREPARING or (phase is PartPhase.GOING and node != attempt.batch_node)
    return is_deciding and draft.now - clock.first_sent_at >= draft.policy.timers.prepare_ack_s


def _fail_silent_launch(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """Roll the launch back, and stop waiting for this node and all others that are silent, too."""
    if has_joined(attempt, node):
        _back_off(draft, node)
        elastic_nodes.leave(draft, attempt, (node,))
        strand_part(draft, attempt, node)
        return
    word = "PREPARE" if attempt.parts[node].phase is PartPhase.PREPARING else "GO"
    silent = [name for name in attempt.parts if _is_silent(draft, attempt, name)]
    fail_launch(draft, attempt, node, f"no answer to {word} within {draft.policy.timers.prepare_ack_s:g} s")
    for name in silent:
        if name != node:
            _back_off(draft, name)
        strand_part(draft, attempt, name)
