"""Apply the events of dependencies to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.tasks import unpack_tasks
from gqd.control.apply.job import move
from gqd.state.cluster import Cluster
from gqd.state.events import event


def apply_changed(cluster: Cluster, fact: event.DependencyChanged) -> None:
    job = cluster.jobs[fact.job_id]
    move(cluster, job, event.DependencyChanged)
    cluster.dependants.leave(job)
    could_start = job.dependency is None or job.ready
    job.dependency, job.never = fact.left, fact.never
    ready = (0 if fact.is_new else job.ready) | unpack_tasks(fact.ready)
    job.ready = 0 if job.dependency is None else ready
    cluster.dependants.enter(job, cluster.jobs.values())
    if not could_start and (job.dependency is None or job.ready):
        job.eligible_at = max(fact.at, job.spec.begin_at or 0.0)
        if job.accrue_at is None and job.hold is None:
            job.accrue_at = job.eligible_at
    cluster.refresh(job)
