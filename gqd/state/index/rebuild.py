"""Rebuild every index of the cluster from its records, after loading.  Pure."""

from __future__ import annotations

from gq.model.state import JobState
from gqd.state.cluster import Cluster
from gqd.state.index import job_tally
from gqd.state.index.associations import Associations
from gqd.state.index.bookings import attempts_inside
from gqd.state.index.dependants import Dependants
from gqd.state.index.queue import PendingQueue
from gqd.state.reservation import OccurrenceKey


def rebuild_indices(cluster: Cluster) -> None:
    """Replace every index of the cluster by a new one that is made from its records."""
    _rebuild_jobs(cluster)
    _rebuild_arrays(cluster)
    cluster.login_nodes, cluster.join_keys = {}, {}
    for key in cluster.keys.values():
        cluster.add_key(key)
    _rebuild_nodes(cluster)
    cluster.associations = Associations.of(cluster.accounts.values(), cluster.members, cluster.limits)
    job_tally.rebuild(cluster)
    cluster.dependants = Dependants.of(cluster.jobs.values())
    inside = attempts_inside(cluster)
    for reservation in cluster.reservations.values():
        for occurrence in reservation.occurrences.values():
            own = inside.get(OccurrenceKey(reservation.name, occurrence.number), ())
            occurrence.inside = dict.fromkeys(own)


def _rebuild_jobs(cluster: Cluster) -> None:
    jobs = cluster.jobs.values()
    waiting = [job for job in jobs if job.is_waiting]
    cluster.queue, cluster.timed, cluster.deadlines = PendingQueue.of(waiting), {}, {}
    for job in waiting:
        cluster.index_timed(job)
    ended = sorted((job for job in jobs if job.state is JobState.ENDED), key=lambda job: job.end_at or 0.0)
    cluster.ended = {job.job_id: None for job in ended}
    cluster.active_by_user = {}
    for job in jobs:
        if job.state is not JobState.ENDED and job.width:
            cluster.count_active(job.user, job.width)


def _rebuild_arrays(cluster: Cluster) -> None:
    records = [job for job in cluster.jobs.values() if job.array is not None]
    cluster.arrays = {job.job_id: None for job in records if job.state is not JobState.ENDED}
    for record in records:
        assert record.array is not None
        record.array.jobs, record.array.active = {}, 0
    for job in cluster.jobs.values():
        found = cluster.record_of(job)
        if found is not None and job.array_task_id is not None:
            record, array = found
            array.jobs[job.array_task_id] = job.job_id
            array.active += job.holds_resources
            if job.spec == record.spec:
                job.spec = record.spec  # thousands of tasks share one object


def _rebuild_nodes(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        node.held = {}
    cluster.holding = {attempt_id: attempt for attempt_id, attempt in cluster.attempts.items() if attempt.parts}
    cluster.elastic = {key: attempt for key, attempt in cluster.holding.items() if attempt.elastic is not None}
    for attempt in cluster.attempts.values():
        for name, part in attempt.parts.items():
            cluster.nodes[name].held[attempt.attempt_id] = part.grant
    for node in cluster.nodes.values():
        node.recount()
