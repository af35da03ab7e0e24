"""Jobs that give way by standing still: stopped, lent from, and let go on when the other one is over.  Pure.

Three facts make up a parking.  When its notice is over the node is told to stop the job and to say what it holds of the
memory of its GPUs (`JobParking`).  If what is left is enough for the other job, its CPUs and GPUs are lent to that one
(`JobParked`); else it is ended, as one that gives way.  It has them back in the turn in which nobody has them any more
and nobody waits for them (`JobUnparked`), so that nobody can come in between.  What is owed to the node follows from
`Cluster.parked` alone, whatever crashed in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gq.model.account import PreemptMode
from gq.model.ids import AttemptId
from gq.model.resource import Grant
from gq.model.state import Outcome
from gq.units import format_memory
from gq.wire import node as wire
from gqd.control import attempt, orders, requeue, suspend
from gqd.control.accounts import association
from gqd.state import parked as state
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

PARK_S = 60.0
"""So long a node has to say that a job stands still; many times what that takes."""


def may_park(cluster: Cluster, attempt_id: AttemptId, other: Job) -> bool:
    """It may give way to this job by standing still; checked again when that is decided."""
    job, victim = cluster.jobs[attempt_id.job_id], cluster.attempts[attempt_id]
    qos = association.qos_named(cluster, job.qos)
    is_wanted = qos is not None and qos.preempt_mode is PreemptMode.SUSPEND
    return is_wanted and state.can_park(cluster, victim) and state.fits_beside(other.spec.resources)


def suspend_victim(draft: TurnBuilder, victim: Attempt) -> None:
    """Its notice is over."""
    way = victim.preemption
    assert way is not None, f"{victim.attempt_id} gives way to nobody"
    if not state.can_park(draft.cluster, victim):  # its node has another gqnode by now
        end_victim(draft, victim, f"node {victim.batch_node} cannot do that any more")
        return
    draft.emit(event.JobParking(at=draft.now, attempt_id=victim.attempt_id, to=way.preemptor))
    suspend.send_all(draft, victim)


def on_suspended_set(draft: TurnBuilder, node: str, report: wire.SuspendedSet) -> bool:
    """Whether it is an answer to a parking, or an older one while that is waited for."""
    known = draft.cluster.parked.get(report.attempt_id)
    if known is None or known.lent is not None:
        return False
    if report.is_suspended and report.parked_at == known.at:
        draft.volatile.suspend_orders.pop((report.attempt_id, node), None)
        _lend(draft, draft.cluster.attempts[report.attempt_id], dict(report.gpu_memory))
    return True


def tick(draft: TurnBuilder) -> None:
    """Whoever cannot be stopped is ended: the other one is not kept waiting by that."""
    for attempt_id, known in list(draft.cluster.parked.items()):
        since = max(known.at, draft.volatile.started_at)
        if known.lent is None and draft.now - since >= PARK_S:
            victim = draft.cluster.attempts[attempt_id]
            end_victim(draft, victim, f"node {victim.batch_node} did not say in time that it stands still")


def _lend(draft: TurnBuilder, victim: Attempt, used_mib: Mapping[int, int]) -> None:
    """It stands still: lend what it holds, or end it."""
    cluster = draft.cluster
    other = cluster.jobs[cluster.parked[victim.attempt_id].to]
    held = victim.grants[0]
    kept = next((one for one in cluster.claims[other.job_id].grants if one.node == held.node), Grant(node=held.node))
    lent = state.overlap(held, kept)
    if why := _too_full(cluster, lent, used_mib, other):
        end_victim(draft, victim, why)
        return
    memory = tuple((gpu, used_mib[gpu]) for gpu in lent.gpus)
    draft.emit(event.JobParked(at=draft.now, attempt_id=victim.attempt_id, lent=lent, gpu_memory=memory))
    draft.volatile.wants_plan = True


def _too_full(cluster: Cluster, lent: Grant, used_mib: Mapping[int, int], other: Job) -> str:
    """What the node cannot tell counts as in use."""
    wanted_mib = other.spec.resources.min_gpu_mem_mib or 0
    totals = {gpu.index: gpu.memory_mib for gpu in cluster.nodes[lent.node].inventory.gpus}
    for gpu in lent.gpus:
        if gpu not in used_mib:
            return f"node {lent.node} cannot tell how much memory of GPU {gpu} it would keep"
        left_mib = totals.get(gpu, 0) - used_mib[gpu]
        if left_mib < wanted_mib:
            left, wanted = format_memory(max(0, left_mib)), format_memory(wanted_mib)
            return f"standing still it would leave {left} of the memory of GPU {gpu}, and {wanted} are wanted"
    return ""


def end_victim(draft: TurnBuilder, victim: Attempt, why: str = "") -> None:
    """It gives way and is ended; `why`: it was to be parked, and cannot be."""
    job = draft.cluster.jobs[victim.attempt_id.job_id]
    attempt.end(
        draft,
        job,
        Outcome.PREEMPTED,
        requeue.after_preemption(draft, job),
        why=requeue.to_whom(draft.cluster, victim) + (state.NOT_PARKED + why if why else ""),
        grace_s=requeue.grace_s(draft, job),
    )


def resume_unneeded(draft: TurnBuilder) -> None:
    """Resume the suspended victims whose preemptor is gone or has ended, once all that they lent is free again."""
    cluster = draft.cluster
    for attempt_id, known in list(cluster.parked.items()):
        is_back = known.lent is None or state.is_back(cluster, known.lent)
        if state.is_waited_for(cluster, attempt_id) or not is_back:
            continue
        draft.emit(event.JobUnparked(at=draft.now, attempt_id=attempt_id))
        held, job = cluster.attempts[attempt_id], cluster.jobs[attempt_id.job_id]
        suspend.send_all(draft, held)
        if job.spec.deadline_at is not None:  # that has not moved: less time is left for it
            orders.send_time_limit(draft, job, held.batch_node)
