"""Apply the events of suspended jobs to the cluster.  Pure; decides nothing."""

from __future__ import annotations

from gqd.control.apply.job import move
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Attempt


def apply_suspended(cluster: Cluster, fact: event.JobSuspended) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    move(cluster, cluster.jobs[fact.attempt_id.job_id], event.JobSuspended)
    attempt.suspended_at = fact.at
    _touch(cluster, attempt)


def apply_resumed(cluster: Cluster, fact: event.JobResumed) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    move(cluster, cluster.jobs[fact.attempt_id.job_id], event.JobResumed)
    end_pause(attempt, fact.at)
    _touch(cluster, attempt)


def end_pause(attempt: Attempt, at: float) -> None:
    """End the suspension of an attempt that is resumed or ended, if it is suspended."""
    if attempt.suspended_at is not None:
        attempt.suspended_s += max(0.0, at - attempt.suspended_at)
        attempt.suspended_at = None


def _touch(cluster: Cluster, attempt: Attempt) -> None:
    attempt.view = None
    cluster.changes.attempts[attempt.attempt_id] = None
