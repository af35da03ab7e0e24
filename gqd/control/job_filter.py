"""Which jobs a filter means.  Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from gq.wire.client import JobFilter
from gqd.control.array import Selection, named
from gqd.state.cluster import Cluster
from gqd.state.job_view import PENDING_WORD, RecordLine, record_lines, word_of
from gqd.state.records import Job


def select_jobs(cluster: Cluster, chosen: JobFilter, after: int = 0) -> Iterator[Selection]:
    """Jobs in memory that the filter means, by id, above `after`; of an array's record what waits in it."""
    for one in _select(cluster, chosen, after):
        if not chosen.states or _word(cluster, one.job) in chosen.states:
            yield one


class Line(NamedTuple):
    """What a list shows: a job, or a part of an array's record."""

    job: Job
    record: RecordLine | None = None


def select_lines(
    cluster: Cluster, chosen: JobFilter, after: int = 0, order: Iterable[Job] | None = None
) -> Iterator[Line]:
    """Likewise as lists show them: of an array's record up to two lines, and none where all of its tasks have left.

    `order`: all jobs, in another order than by id.
    """
    states = frozenset(chosen.states)
    for one in _select(cluster, chosen, after) if order is None else _select_in_order(cluster, chosen, order):
        if one.job.array is None:
            if not states or _word(cluster, one.job) in states:
                yield Line(one.job)
            continue
        for line in record_lines(one.job, one.asked):
            if not chosen.states or line.state in chosen.states:
                yield Line(one.job, line)


def _select(cluster: Cluster, chosen: JobFilter, after: int) -> Iterator[Selection]:
    """Of any state."""
    if chosen.job_ids or chosen.tasks:
        for one in named(cluster, chosen.job_ids, chosen.tasks):
            if one.job.job_id > after and _matches(cluster, one.job, chosen):
                yield one
        return
    ids = list(cluster.jobs)  # ascending: they are made and loaded in this order
    for job_id in islice(ids, bisect_right(ids, after), None):
        job = cluster.jobs[job_id]
        if _matches(cluster, job, chosen):
            yield Selection(job, 0 if job.array is None else job.array.waiting)


def _select_in_order(cluster: Cluster, chosen: JobFilter, order: Iterable[Job]) -> Iterator[Selection]:
    """Whoever wants the first few does not wait for the rest."""
    if chosen.job_ids or chosen.tasks:
        by_id = {one.job.job_id: one for one in _select(cluster, chosen, 0)}
        yield from (by_id[job.job_id] for job in order if job.job_id in by_id)
        return
    for job in order:
        if _matches(cluster, job, chosen):
            yield Selection(job, 0 if job.array is None else job.array.waiting)


def _word(cluster: Cluster, job: Job) -> str:
    return PENDING_WORD if job.is_waiting else word_of(job, cluster.attempts.get(job.attempt_id))


def matches(cluster: Cluster, job: Job, chosen: JobFilter) -> bool:
    """All conditions that are given hold; ids are not looked at."""
    return (not chosen.states or _word(cluster, job) in chosen.states) and _matches(cluster, job, chosen)


def _matches(cluster: Cluster, job: Job, chosen: JobFilter) -> bool:
    return (
        (not chosen.users or job.user in chosen.users)
        and (not chosen.names or job.spec.name in chosen.names)
        and (not chosen.partitions or job.partition in chosen.partitions)
        and (not chosen.accounts or job.account in chosen.accounts)
        and (not chosen.qos or job.qos in chosen.qos)
        and (not chosen.nodes or bool(set(nodes_of(cluster, job)) & set(chosen.nodes)))
    )


def nodes_of(cluster: Cluster, job: Job) -> tuple[str, ...]:
    """The nodes of its latest attempt, as far as it is known."""
    attempt = cluster.attempt_of(job)
    return tuple(grant.node for grant in attempt.grants) if attempt else ()
