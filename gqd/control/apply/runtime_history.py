"""Apply the ends of attempts to the run-time history.  Pure (see `gqd.control.apply.table`).

What ended by itself, was cancelled or ran into its limit counts as long as it ran.  What will run again, or whose node
was lost, does not: how long it would have run nobody knows.
"""

from __future__ import annotations

from gq.model.resource import min_demand
from gq.model.state import Outcome
from gqd.state.cluster import Cluster
from gqd.state.index.queue import member_of
from gqd.state.phases import AfterEnding
from gqd.state.records import Attempt, Job
from gqd.state.runtime_history import ANY_GPUS, Signature, learn


def learn_end(cluster: Cluster, job: Job, attempt: Attempt) -> None:
    """Add the run time of an attempt that has ended (`end_at` is set)."""
    assert attempt.end_at is not None, f"{attempt.attempt_id} has not ended"
    is_cut_short = attempt.outcome in (Outcome.NODE_FAIL, Outcome.PREEMPTED)
    if attempt.start_at is None or attempt.then is not AfterEnding.END or is_cut_short:
        return
    for gpus in (min_demand(job.spec.resources).gpus, ANY_GPUS):
        signature = Signature(*member_of(job), gpus)
        ran_s = max(0.0, attempt.end_at - attempt.start_at - attempt.suspended_s)
        cluster.changes.lengths |= dict.fromkeys(learn(cluster.lengths, signature, ran_s, attempt.end_at))
