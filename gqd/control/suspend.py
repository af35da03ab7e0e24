"""``gqctl suspend`` and ``resume``: the processes of a running job are stopped and continued.  Pure.

A suspended job counts as running: it keeps its nodes, CPUs, memory and GPUs with the contents of their memory, and is
billed for them.  Its processes and its time limit are stopped.  The order is repeated until every node confirms it,
also after a restart of either daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.ids import AttemptId
from gq.model.state import JobState, Outcome, Reason
from gq.wire import client
from gq.wire import node as wire
from gqd.control import array, attempt, orders, requeue
from gqd.control.array import Selection
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.job_view import word_of
from gqd.state.order_clocks import SUSPEND
from gqd.state.phases import AfterEnding
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def decide_suspend(draft: TurnBuilder, body: client.SuspendJobs) -> client.JobsDone:
    """Suspend running jobs; suspended ones stay suspended."""
    report = array.Report()
    for selection in array.select(draft.cluster, body.job_ids, body.tasks):
        why_not = _why_not(draft, selection)
        if why_not:
            report.refuse(selection, why_not)
            continue
        report.did(selection)
        held = draft.cluster.attempts[selection.job.attempt_id]
        if held.suspended_at is None:
            draft.emit(event.JobSuspended(at=draft.now, attempt_id=held.attempt_id))
            send_all(draft, held)
    return report.answer()


def decide_resume(draft: TurnBuilder, body: client.ResumeJobs) -> client.JobsDone:
    """Resume jobs that were suspended by hand."""
    report = array.Report()
    for selection in array.select(draft.cluster, body.job_ids, body.tasks):
        held = draft.cluster.attempt_of(selection.job)
        if held is None or held.suspended_at is None:
            report.refuse(selection, f"it is {_word(draft, selection.job)}; only suspended jobs can be resumed")
            continue
        if why_not := _why_not_by_hand(draft.cluster, held):
            report.refuse(selection, why_not)
            continue
        report.did(selection)
        draft.emit(event.JobResumed(at=draft.now, attempt_id=held.attempt_id))
        send_all(draft, held)
        if selection.job.spec.deadline_at is not None:  # the deadline has not moved: less time is left
            for node in held.parts:
                orders.send_time_limit(draft, selection.job, node)
    return report.answer()


def _why_not(draft: TurnBuilder, selection: Selection) -> str:
    """Why the job cannot be suspended; empty: it can."""
    if selection.job.state is not JobState.RUNNING:
        return f"it is {_word(draft, selection.job)}; only running jobs can be suspended"
    held = draft.cluster.attempts[selection.job.attempt_id]
    if held.borrows:
        return f"it borrows from reservation {', '.join(held.borrows)}, and could not be preempted while suspended"
    if why_not := _why_not_by_hand(draft.cluster, held):
        return why_not
    for name in held.parts:
        node = draft.cluster.nodes.get(name)
        if node is None or not node.inventory.can_suspend:
            return f"its node {name} has a gqnode that is too old to suspend jobs"
    return ""


def _why_not_by_hand(cluster: Cluster, held: Attempt) -> str:
    """Why operators can neither suspend nor resume the job now; empty: they can."""
    parked = cluster.parked.get(held.attempt_id)
    if parked is not None:
        other = cluster.jobs.get(parked.to)
        label = parked.to if other is None else other.label
        return f"it is parked for job {label}, and resumes when that job ends"
    if held.preemption is not None and held.preemption.parks:
        return f"it is preempted {requeue.preemptor_phrase(cluster, held)} and will be parked for that job"
    return ""


def _word(draft: TurnBuilder, job: Job) -> str:
    return word_of(job, draft.cluster.attempt_of(job)).lower()


def send_all(draft: TurnBuilder, held: Attempt) -> None:
    """Order all nodes of the attempt to stop or continue it, as its state says."""
    for node in held.parts:
        orders.send(draft, SUSPEND, held.attempt_id, node, _order(draft, held))


def _order(draft: TurnBuilder, held: Attempt) -> wire.SetSuspended:
    parked = draft.cluster.parked.get(held.attempt_id)
    return wire.SetSuspended(
        attempt_id=held.attempt_id,
        is_suspended=held.suspended_at is not None,
        parked_at=None if parked is None else parked.at,
    )


def _owed(draft: TurnBuilder, attempt_id: AttemptId, node: str) -> wire.SetSuspended | None:
    """The order; None: the attempt is not the job's current one, or is being ended on this node."""
    if attempt.current_job(draft.cluster, attempt_id, node) is None:
        return None
    return _order(draft, draft.cluster.attempts[attempt_id])


# ── reports of nodes ────────────────────────────────────────────────────────────────────────────────────────────


def on_suspended_set(draft: TurnBuilder, node: str, report: wire.SuspendedSet) -> None:
    """A node reports whether the attempt is stopped; correct it if an outdated order arrived late."""
    draft.volatile.order_clocks.stop(SUSPEND, report.attempt_id, node)
    reconcile(draft, report.attempt_id, node, report.is_suspended)


def reconcile(draft: TurnBuilder, attempt_id: AttemptId, node: str, is_suspended: bool) -> None:
    """Send the order again if the node's state differs, or its GPU memory report is still missing."""
    order = _owed(draft, attempt_id, node)
    parked = draft.cluster.parked.get(attempt_id)
    is_asked = parked is not None and parked.lent is None  # for the memory of its GPUs that it keeps
    if order is not None and (is_asked or is_suspended != order.is_suspended):
        orders.send(draft, SUSPEND, attempt_id, node, order)


def tick(draft: TurnBuilder) -> None:
    _end_late(draft)
    orders.repeat(draft, SUSPEND, _owed)


def _end_late(draft: TurnBuilder) -> None:
    """End suspended jobs at their deadline: nodes enforce it as a time limit, which is stopped with the job."""
    for held in list(draft.cluster.holding.values()):
        job = None if held.suspended_at is None else draft.cluster.jobs.get(held.attempt_id.job_id)
        if job is None or job.state is not JobState.RUNNING or job.attempt_id != held.attempt_id:
            continue
        if job.spec.deadline_at is not None and job.spec.deadline_at <= draft.now:
            attempt.end(
                draft,
                job,
                Outcome.DEADLINE,
                AfterEnding.END,
                reason=Reason.DEADLINE.value,
                why="its deadline passed while it was suspended",
                grace_s=requeue.grace_s(draft, job),
            )
