"""Which jobs a filter means.  Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from gq.model.ids import JobId
from gq.model.state import state_word
from gq.wire.client import JobFilter
from gqd.state.cluster import Cluster, Job


def select_jobs(cluster: Cluster, chosen: JobFilter, after: int = 0) -> Iterator[Job]:
    """Jobs in memory that the filter means, by id, above `after`."""
    if chosen.job_ids:
        ids = sorted({JobId(one) for one in chosen.job_ids if one > after})
        jobs: Iterator[Job] = (cluster.jobs[one] for one in ids if one in cluster.jobs)
    else:
        ids = list(cluster.jobs)  # ascending: they are made and loaded in this order
        jobs = (cluster.jobs[one] for one in islice(ids, bisect_right(ids, after), None))
    return (job for job in jobs if matches(cluster, job, chosen))


def matches(cluster: Cluster, job: Job, chosen: JobFilter) -> bool:
    """All conditions that are given hold; ids are not looked at."""
    return (
        (not chosen.users or job.user in chosen.users)
        and (not chosen.names or job.spec.name in chosen.names)
        and (not chosen.partitions or job.partition in chosen.partitions)
        and (not chosen.states or state_word(job.state, job.outcome) in chosen.states)
        and (not chosen.accounts or "" in chosen.accounts)
        and (not chosen.nodes or bool(set(nodes_of(cluster, job)) & set(chosen.nodes)))
    )


def nodes_of(cluster: Cluster, job: Job) -> tuple[str, ...]:
    """The nodes of its latest attempt, as far as it is known."""
    attempt = cluster.attempt_of(job)
    return tuple(grant.node for grant in attempt.grants) if attempt else ()
