"""``gqctl suspend`` and ``resume``: a running job stands still, and goes on.  Pure.

A suspended job is a running one: it keeps its nodes, GPUs with what is in their memory, CPUs and memory, and is billed
for them.  What stands still is its processes, and its time limit with them.  Its nodes are told until each says that
it is so, also after a restart of either daemon.
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
from gqd.state.effect import SendOrder
from gqd.state.events import event
from gqd.state.job_view import word_of
from gqd.state.phases import AfterEnding, PartPhase
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def decide_suspend(draft: TurnBuilder, body: client.SuspendJobs) -> client.JobsDone:
    """Also of a job that is suspended already: it stays so."""
    report = array.Report()
    for one in array.select(draft.cluster, body.job_ids, body.tasks):
        why_not = _why_not(draft, one)
        if why_not:
            report.refuse(one, why_not)
            continue
        report.did(one)
        held = draft.cluster.attempts[one.job.attempt_id]
        if held.suspended_at is None:
            draft.emit(event.JobSuspended(at=draft.now, attempt_id=held.attempt_id))
            send_all(draft, held)
    return report.answer()


def decide_resume(draft: TurnBuilder, body: client.ResumeJobs) -> client.JobsDone:
    report = array.Report()
    for one in array.select(draft.cluster, body.job_ids, body.tasks):
        held = draft.cluster.attempt_of(one.job)
        if held is None or held.suspended_at is None:
            report.refuse(one, f"it is {_word(draft, one.job)}; only suspended jobs can be resumed")
            continue
        if why_not := _why_not_by_hand(draft.cluster, held):
            report.refuse(one, why_not)
            continue
        report.did(one)
        draft.emit(event.JobResumed(at=draft.now, attempt_id=held.attempt_id))
        send_all(draft, held)
        if one.job.spec.deadline_at is not None:  # that has not moved: less time is left for it
            for node in held.parts:
                orders.send_time_limit(draft, one.job, node)
    return report.answer()


def _why_not(draft: TurnBuilder, one: Selection) -> str:
    if one.job.state is not JobState.RUNNING:
        return f"it is {_word(draft, one.job)}; only running jobs can be suspended"
    held = draft.cluster.attempts[one.job.attempt_id]
    if held.borrows:
        return f"it borrows from reservation {', '.join(held.borrows)}, and could not give way while it stands still"
    if why_not := _why_not_by_hand(draft.cluster, held):
        return why_not
    for name in held.parts:
        node = draft.cluster.nodes.get(name)
        if node is None or not node.inventory.can_suspend:
            return f"its node {name} runs a gqnode of a version that cannot suspend jobs"
    return ""


def _why_not_by_hand(cluster: Cluster, held: Attempt) -> str:
    """Why an administrator can neither suspend nor resume it now; empty: that is possible."""
    known = cluster.parked.get(held.attempt_id)
    if known is not None:
        other = cluster.jobs.get(known.to)
        label = known.to if other is None else other.label
        return f"it is parked for job {label}, and goes on when that is over"
    if held.preemption is not None and held.preemption.parks:
        return f"it gives way {requeue.to_whom(cluster, held)}, for which it is going to be parked"
    return ""


def _word(draft: TurnBuilder, job: Job) -> str:
    return word_of(job, draft.cluster.attempt_of(job)).lower()


def send_all(draft: TurnBuilder, held: Attempt) -> None:
    """That it is to stand still, or to go on."""
    draft.volatile.wants_plan = True  # when it ends is another
    for node in held.parts:
        _send(draft, held, node)


def _send(draft: TurnBuilder, held: Attempt, node: str) -> None:
    """Repeated until the node says that it is so."""
    draft.volatile.suspend_orders[held.attempt_id, node] = draft.now
    known = draft.cluster.parked.get(held.attempt_id)
    order = wire.SetSuspended(
        attempt_id=held.attempt_id,
        is_suspended=held.suspended_at is not None,
        parked_at=None if known is None else known.at,
    )
    draft.enqueue(SendOrder(node=node, order=order))


# ── what nodes say ────────────────────────────────────────────────────────────────────────────────────────────


def on_suspended_set(draft: TurnBuilder, node: str, report: wire.SuspendedSet) -> None:
    """An older order may have come to it late."""
    draft.volatile.suspend_orders.pop((report.attempt_id, node), None)
    meet(draft, report.attempt_id, node, report.is_suspended)


def meet(draft: TurnBuilder, attempt_id: AttemptId, node: str, is_suspended: bool) -> None:
    """Tell the node, if it is not there as it is here."""
    held = draft.cluster.attempts.get(attempt_id)
    known = draft.cluster.parked.get(attempt_id)
    is_asked = known is not None and known.lent is None  # what it holds of its GPUs
    if held is None or not _is_owed(draft, held, node):
        return
    if is_asked or is_suspended != (held.suspended_at is not None):
        _send(draft, held, node)


def _is_owed(draft: TurnBuilder, held: Attempt, node: str) -> bool:
    """The attempt is the job's, and is not being ended on this node."""
    job = draft.cluster.jobs.get(held.attempt_id.job_id)
    part = held.parts.get(node)
    is_current = job is not None and job.attempt_id == held.attempt_id
    return is_current and part is not None and part.phase is not PartPhase.STOPPING


def tick(draft: TurnBuilder) -> None:
    _end_late(draft)
    _repeat(draft)


def _end_late(draft: TurnBuilder) -> None:
    """A deadline does not stand still; the nodes, which enforce it as a time limit, have let that stand."""
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
                why="its deadline came while it was suspended",
                grace_s=requeue.grace_s(draft, job),
            )


def _repeat(draft: TurnBuilder) -> None:
    for (attempt_id, node), sent_at in list(draft.volatile.suspend_orders.items()):
        held = draft.cluster.attempts.get(attempt_id)
        if held is None or not _is_owed(draft, held, node):
            del draft.volatile.suspend_orders[attempt_id, node]
        elif node in draft.volatile.links and draft.now - sent_at >= draft.policy.timers.resend_s:
            _send(draft, held, node)
