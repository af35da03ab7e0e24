"""What becomes of a claim when its job starts, ends, or does without.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gqd.state.cluster import Cluster
from gqd.state.preemption import PreemptionNotice


def end_claim(cluster: Cluster, job_id: JobId) -> None:
    """It starts, or has no claim any more: whoever has not been ended for it stays."""
    claim = cluster.claims.pop(job_id, None)
    if claim is None:
        return
    cluster.changes.claims[job_id] = None
    for attempt_id in claim.victims:
        attempt = cluster.attempts.get(attempt_id)
        if attempt is not None and attempt.end_at is None:
            set_preemption(cluster, attempt_id, None)


def set_preemption(cluster: Cluster, attempt_id: AttemptId, way: PreemptionNotice | None) -> None:
    attempt = cluster.attempts[attempt_id]
    attempt.preemption = way
    attempt.view = None
    cluster.changes.attempts[attempt_id] = None
