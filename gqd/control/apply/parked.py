"""Apply the events of parked (suspended by preemption) jobs to the cluster.  Pure; decides nothing."""

from __future__ import annotations

from msgspec.structs import replace

from gq.model.resource import Grant
from gqd.control.apply.job import move
from gqd.control.apply.suspension import end_pause
from gqd.state import parked
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Attempt, Parked


def apply_parking(cluster: Cluster, fact: event.JobParking) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    move(cluster, cluster.jobs[fact.attempt_id.job_id], event.JobParking)
    attempt.suspended_at = fact.at
    cluster.parked[fact.attempt_id] = Parked(to=fact.to, at=fact.at)
    _touch(cluster, attempt)


def apply_parked(cluster: Cluster, fact: event.JobParked) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    move(cluster, cluster.jobs[fact.attempt_id.job_id], event.JobParked)
    before = cluster.parked[fact.attempt_id]
    cluster.parked[fact.attempt_id] = replace(before, lent=fact.lent, gpu_memory=fact.gpu_memory)
    _hold(cluster, attempt, parked.held_now(cluster, attempt))
    _touch(cluster, attempt)


def apply_unparked(cluster: Cluster, fact: event.JobUnparked) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    move(cluster, cluster.jobs[fact.attempt_id.job_id], event.JobUnparked)
    end_pause(attempt, fact.at)
    if cluster.parked.pop(fact.attempt_id).lent is not None:
        _hold(cluster, attempt, attempt.grants[0])
    _touch(cluster, attempt)


def forget(cluster: Cluster, attempt: Attempt) -> None:
    """Forget the parking of an attempt that is being ended: what it lent is no longer its own."""
    known = cluster.parked.pop(attempt.attempt_id, None)
    if known is None:
        return
    _touch(cluster, attempt)
    for other in cluster.nodes[attempt.batch_node].held if attempt.batch_node in cluster.nodes else ():
        cluster.attempts[other].view = None  # the borrower's resources become free for all jobs when it ends


def _hold(cluster: Cluster, attempt: Attempt, grant: Grant) -> None:
    """Replace what the attempt holds on its only node."""
    node = cluster.nodes[grant.node]
    node.release(attempt.attempt_id)
    attempt.parts[grant.node].grant = grant
    node.hold(attempt.attempt_id, grant)
    cluster.changes.parts[attempt.attempt_id, grant.node] = None
    cluster.stamp += 1
    node.free_since = cluster.stamp


def _touch(cluster: Cluster, attempt: Attempt) -> None:
    attempt.view = None
    cluster.changes.attempts[attempt.attempt_id] = None
    cluster.changes.parked[attempt.attempt_id] = None
