"""Apply the end of a nomination: its preemptor has started, ended, or is not preempting any more.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gqd.state.cluster import Cluster
from gqd.state.preemption import PreemptionNotice


def end_claim(cluster: Cluster, job_id: JobId) -> None:
    """End the job's nomination, if it has one; victims that have not been ended yet are spared."""
    claim = cluster.claims.pop(job_id, None)
    if claim is None:
        return
    cluster.changes.claims[job_id] = None
    for attempt_id in claim.victims:
        attempt = cluster.attempts.get(attempt_id)
        if attempt is not None and attempt.end_at is None:
            set_preemption(cluster, attempt_id, None)


def set_preemption(cluster: Cluster, attempt_id: AttemptId, notice: PreemptionNotice | None) -> None:
    attempt = cluster.attempts[attempt_id]
    attempt.preemption = notice
    attempt.view = None
    cluster.changes.attempts[attempt_id] = None
