"""Preemption by suspension: the victim is stopped ("parked"), lends its resources, and is resumed later.  Pure.

A parking is three events.  When the notice is over, the node is ordered to stop the job and to report the GPU memory
that it keeps (`JobParking`).  If the rest is enough for the preemptor, the victim's CPUs and GPUs are lent to it
(`JobParked`); otherwise the victim is ended.  The victim gets them back in the turn in which no job holds them and no
preemptor waits for them (`JobUnparked`), so no other job can take them in between.  Orders to the node follow from
`Cluster.parked` alone, so a crash loses none.
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
from gqd.state.order_clocks import SUSPEND
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

PARK_S = 60.0
"""Seconds in which the node must report that the job is stopped; many times what that takes."""


def may_park(cluster: Cluster, attempt_id: AttemptId, preemptor: Job) -> bool:
    """Whether the victim may be suspended for this preemptor; the plan's choice is checked again at the decision."""
    job, victim = cluster.jobs[attempt_id.job_id], cluster.attempts[attempt_id]
    qos = association.qos_named(cluster, job.qos)
    is_wanted = qos is not None and qos.preempt_mode is PreemptMode.SUSPEND
    return is_wanted and state.can_park(cluster, victim) and state.fits_beside(preemptor.spec.resources)


def suspend_victim(draft: TurnBuilder, victim: Attempt) -> None:
    """Order the node to stop the victim, whose notice is over; end the victim if the node cannot stop it."""
    way = victim.preemption
    assert way is not None, f"{victim.attempt_id} has no preemptor"
    if not state.can_park(draft.cluster, victim):  # its node may run an older gqnode by now
        end_victim(draft, victim, f"node {victim.batch_node} can no longer suspend jobs")
        return
    draft.emit(event.JobParking(at=draft.now, attempt_id=victim.attempt_id, to=way.preemptor))
    suspend.send_all(draft, victim)


def on_suspended_set(draft: TurnBuilder, node: str, report: wire.SuspendedSet) -> bool:
    """Handle a node's report on a parked attempt.  → whether it was about a parking."""
    known = draft.cluster.parked.get(report.attempt_id)
    if known is None or known.lent is not None:
        return False
    if report.is_suspended and report.parked_at == known.at:
        draft.volatile.order_clocks.stop(SUSPEND, report.attempt_id, node)
        _lend(draft, draft.cluster.attempts[report.attempt_id], dict(report.gpu_memory))
    return True


def tick(draft: TurnBuilder) -> None:
    """End victims that were not stopped in time, so that their preemptors need not wait longer."""
    for attempt_id, known in list(draft.cluster.parked.items()):
        since = max(known.at, draft.volatile.started_at)
        if known.lent is None and draft.now - since >= PARK_S:
            victim = draft.cluster.attempts[attempt_id]
            end_victim(draft, victim, f"node {victim.batch_node} did not report the suspension in time")


def _lend(draft: TurnBuilder, victim: Attempt, used_mib: Mapping[int, int]) -> None:
    """The victim is stopped: lend its resources to the preemptor, or end it if too little GPU memory is free."""
    cluster = draft.cluster
    preemptor = cluster.jobs[cluster.parked[victim.attempt_id].to]
    held = victim.grants[0]
    kept = next(
        (grant for grant in cluster.claims[preemptor.job_id].grants if grant.node == held.node), Grant(node=held.node)
    )
    lent = state.overlap(held, kept)
    if why := _too_full(cluster, lent, used_mib, preemptor):
        end_victim(draft, victim, why)
        return
    memory = tuple((gpu, used_mib[gpu]) for gpu in lent.gpus)
    draft.emit(event.JobParked(at=draft.now, attempt_id=victim.attempt_id, lent=lent, gpu_memory=memory))


def _too_full(cluster: Cluster, lent: Grant, used_mib: Mapping[int, int], other: Job) -> str:
    """Why the memory left on the lent GPUs is not enough; empty: it is.  Unknown use counts as full."""
    wanted_mib = other.spec.resources.min_gpu_mem_mib or 0
    totals = {gpu.index: gpu.memory_mib for gpu in cluster.nodes[lent.node].inventory.gpus}
    for gpu in lent.gpus:
        if gpu not in used_mib:
            return f"node {lent.node} cannot report how much memory of GPU {gpu} the job uses"
        left_mib = totals.get(gpu, 0) - used_mib[gpu]
        if left_mib < wanted_mib:
            left, wanted = format_memory(max(0, left_mib)), format_memory(wanted_mib)
            return f"while suspended it would leave {left} of memory on GPU {gpu}, and {wanted} are needed"
    return ""


def end_victim(draft: TurnBuilder, victim: Attempt, why: str = "") -> None:
    """End a preempted job; `why`: the reason if it was to be suspended but cannot be."""
    job = draft.cluster.jobs[victim.attempt_id.job_id]
    attempt.end(
        draft,
        job,
        Outcome.PREEMPTED,
        requeue.after_preemption(draft, job),
        why=requeue.preemptor_phrase(draft.cluster, victim) + (state.NOT_PARKED + why if why else ""),
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
        attempt_, job = cluster.attempts[attempt_id], cluster.jobs[attempt_id.job_id]
        suspend.send_all(draft, attempt_)
        if job.spec.deadline_at is not None:  # that has not moved: less time is left for it
            orders.send_time_limit(draft, job, attempt_.batch_node)
