"""{event type: apply function}: the only road to a change of the cluster.  Pure.

An apply function does what the event says and decides nothing; it notes each row that it touches in
``cluster.changes``.  The functions live with their nouns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gqd.control import (
    account_facts,
    array_facts,
    ask_facts,
    attempt_facts,
    audit_facts,
    crontab_facts,
    dependency_facts,
    elastic_facts,
    job_facts,
    key_facts,
    limit_facts,
    node_facts,
    notice_facts,
    preemption_facts,
    request_facts,
    reservation_facts,
    step_facts,
    suspension_facts,
)
from gqd.state import event
from gqd.state.cluster import Cluster

APPLY: dict[type, Callable[[Cluster, Any], None]] = {
    event.JobSubmitted: job_facts.apply_submitted,
    event.JobHeld: job_facts.apply_held,
    event.JobReleased: job_facts.apply_released,
    event.JobUpdated: job_facts.apply_updated,
    event.JobRequeued: job_facts.apply_requeued,
    event.JobEnded: job_facts.apply_ended,
    event.JobsForgotten: job_facts.apply_forgotten,
    event.ArrayTaskLeft: array_facts.apply_task_left,
    event.ArrayTasksCancelled: array_facts.apply_tasks_cancelled,
    event.ArrayThrottleSet: array_facts.apply_throttle_set,
    event.DependencyChanged: dependency_facts.apply_changed,
    event.StartEstimated: job_facts.apply_start_estimated,
    event.JobAllocated: attempt_facts.apply_allocated,
    event.PartPrepared: attempt_facts.apply_part_prepared,
    event.PartsReleased: attempt_facts.apply_parts_released,
    event.PartWentLive: attempt_facts.apply_part_went_live,
    event.JobStarted: attempt_facts.apply_started,
    event.JobEnding: attempt_facts.apply_ending,
    event.LaunchFailed: attempt_facts.apply_launch_failed,
    event.PartEmptied: attempt_facts.apply_part_emptied,
    event.PartStranded: attempt_facts.apply_part_stranded,
    event.PreemptionDecided: preemption_facts.apply_decided,
    event.PreemptionDropped: preemption_facts.apply_dropped,
    event.JobCheckpointed: preemption_facts.apply_checkpointed,
    event.JobAsked: ask_facts.apply_asked,
    event.AsksAnswered: ask_facts.apply_answered,
    event.JobSuspended: suspension_facts.apply_suspended,
    event.JobResumed: suspension_facts.apply_resumed,
    event.GpusAdded: elastic_facts.apply_added,
    event.ShrinkDecided: elastic_facts.apply_decided,
    event.ShrinkAccepted: elastic_facts.apply_accepted,
    event.GpusGivenUp: elastic_facts.apply_given_up,
    event.StepStarted: step_facts.apply_started,
    event.StepPartReceived: step_facts.apply_part_received,
    event.StepPartEnded: step_facts.apply_part_ended,
    event.StepFinished: step_facts.apply_finished,
    event.NodeRegistered: node_facts.apply_registered,
    event.NodeLost: node_facts.apply_lost,
    event.NodeDrained: node_facts.apply_drained,
    event.NodeSetDown: node_facts.apply_set_down,
    event.NodeResumed: node_facts.apply_resumed,
    event.NodeBackedOff: node_facts.apply_backed_off,
    event.NodeBackoffCleared: node_facts.apply_backoff_cleared,
    event.NodeRemoved: node_facts.apply_removed,
    event.KeyFileGone: node_facts.apply_key_file_gone,
    event.KeyAdded: key_facts.apply_added,
    event.NodeJoined: key_facts.apply_joined,
    event.KeyRevoked: key_facts.apply_revoked,
    event.KeysExpired: key_facts.apply_expired,
    event.AccountSet: account_facts.apply_account_set,
    event.AccountRemoved: account_facts.apply_account_removed,
    event.MemberSet: account_facts.apply_member_set,
    event.MemberRemoved: account_facts.apply_member_removed,
    event.QosSet: account_facts.apply_qos_set,
    event.QosRemoved: account_facts.apply_qos_removed,
    event.LimitSet: limit_facts.apply_limit_set,
    event.LimitRemoved: limit_facts.apply_limit_removed,
    event.PeriodsBegan: limit_facts.apply_periods_began,
    event.HalfLifeSet: account_facts.apply_half_life_set,
    event.Audited: audit_facts.apply_audited,
    event.ReservationSet: reservation_facts.apply_set,
    event.ReservationRemoved: reservation_facts.apply_removed,
    event.OccurrencePlanned: reservation_facts.apply_planned,
    event.OccurrenceChanged: reservation_facts.apply_changed,
    event.OccurrenceBegan: reservation_facts.apply_began,
    event.OccurrenceEnded: reservation_facts.apply_ended,
    event.OccurrencesPassed: reservation_facts.apply_passed,
    event.NoticeQueued: notice_facts.apply_queued,
    event.NoticeDropped: notice_facts.apply_dropped,
    event.NoticeDelivered: notice_facts.apply_delivered,
    event.NoticeFailed: notice_facts.apply_failed,
    event.JobTold: notice_facts.apply_told,
    event.CrontabSet: crontab_facts.apply_set,
    event.CrontabRemoved: crontab_facts.apply_removed,
    event.CronFired: crontab_facts.apply_fired,
    event.CronRunEnded: crontab_facts.apply_run_ended,
    event.RequestAnswered: request_facts.apply_answered,
    event.RequestsForgotten: request_facts.apply_forgotten,
}


def apply(cluster: Cluster, fact: event.Event) -> None:
    """Make the cluster what it is after this event."""
    APPLY[type(fact)](cluster, fact)
