"""Whether a new plan is needed, derived from the events of each turn.  Pure.

Only what has no event sets `Volatile.wants_plan` itself: a node's hello, an orphan's end, settings, time, and a plan
that is incomplete or was not carried out whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.account import Holder
from gqd.control.accounts import association
from gqd.state.events import event

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

CHANGES_PLAN = frozenset((
    event.JobUpdated, event.JobHeld, event.JobReleased, event.JobRequeued, event.JobEnded, event.PartEmptied,
    event.ArrayTasksCancelled, event.ArrayThrottleSet,
    event.JobSuspended, event.JobResumed, event.JobParking, event.JobParked, event.JobUnparked,
    event.PreemptionDropped, event.GpusAdded, event.GpusGivenUp, event.NodeAdded, event.NodesLeft,
    event.NodeRegistered, event.NodeLost, event.NodeDrained, event.NodeSetDown, event.NodeResumed, event.NodeRemoved,
    event.AccountSet, event.AccountRemoved, event.MemberSet, event.QosSet, event.QosRemoved,
    event.LimitSet, event.LimitRemoved, event.PeriodsBegan,
    event.ReservationSet, event.ReservationRemoved, event.OccurrencePlanned, event.OccurrenceChanged,
    event.OccurrenceBegan, event.OccurrenceEnded, event.OccurrencesPassed,
))  # fmt: skip
"""Events after which another plan may start or preempt other jobs."""


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    draft.volatile.wants_plan = draft.volatile.wants_plan or _changes_plan(draft, fact)


def _changes_plan(draft: TurnBuilder, fact: event.Event) -> bool:
    match fact:
        case event.JobSubmitted():
            return not _is_behind(draft, fact)
        case event.JobStarted():  # a job that borrows can be preempted from now on, an elastic job can grow
            attempt = draft.cluster.attempts.get(fact.attempt_id)
            return attempt is not None and (bool(attempt.borrows) or attempt.elastic is not None)
        case event.DependencyChanged():
            return fact.left is None or bool(fact.ready)
        case _:
            return type(fact) in CHANGES_PLAN


def _is_behind(draft: TurnBuilder, fact: event.JobSubmitted) -> bool:
    """Whether a new plan could not start the job: under strict FIFO an earlier job already waits for its nodes."""
    plan = draft.volatile.plan
    if plan is None or draft.volatile.is_planning or not plan.is_strict or fact.partition not in plan.heads:
        return False
    qos = association.known_qos(draft.cluster, fact.qos)
    tallies = draft.cluster.tallies
    return not any(tallies.of((Holder.QOS, preempted, "")).held for preempted in qos.preempts)
