"""Filters of jobs: the jobs and lines that a `JobFilter` matches.  Pure."""

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


def select_jobs(cluster: Cluster, job_filter: JobFilter, after: int = 0) -> Iterator[Selection]:
    """Jobs in memory that match, with ids above `after`, by id; for an array's record its waiting tasks."""
    for selection in _select(cluster, job_filter, after):
        if not job_filter.states or _word(cluster, selection.job) in job_filter.states:
            yield selection


class Line(NamedTuple):
    """A line of a list: a job, or a part of an array's record."""

    job: Job
    record: RecordLine | None = None


def select_lines(
    cluster: Cluster, job_filter: JobFilter, after: int = 0, order: Iterable[Job] | None = None
) -> Iterator[Line]:
    """The matching jobs as lines: up to two for an array's record, none if all its tasks are jobs of their own.

    `order`: all jobs, in the order to list them in (None: by id).
    """
    states = frozenset(job_filter.states)
    for selection in (
        _select(cluster, job_filter, after) if order is None else _select_in_order(cluster, job_filter, order)
    ):
        if selection.job.array is None:
            if not states or _word(cluster, selection.job) in states:
                yield Line(selection.job)
            continue
        for line in record_lines(selection.job, selection.asked):
            if not job_filter.states or line.state in job_filter.states:
                yield Line(selection.job, line)


def _select(cluster: Cluster, job_filter: JobFilter, after: int) -> Iterator[Selection]:
    """The jobs of `select_jobs`, whatever their state."""
    if job_filter.job_ids or job_filter.tasks:
        for selection in named(cluster, job_filter.job_ids, job_filter.tasks):
            if selection.job.job_id > after and _matches(cluster, selection.job, job_filter):
                yield selection
        return
    ids = list(cluster.jobs)  # ascending: they are made and loaded in this order
    for job_id in islice(ids, bisect_right(ids, after), None):
        job = cluster.jobs[job_id]
        if _matches(cluster, job, job_filter):
            yield Selection(job, 0 if job.array is None else job.array.waiting)


def _select_in_order(cluster: Cluster, job_filter: JobFilter, order: Iterable[Job]) -> Iterator[Selection]:
    """The jobs of `_select` in the given order; lazy, so that a page of a long queue is cheap."""
    if job_filter.job_ids or job_filter.tasks:
        by_id = {selection.job.job_id: selection for selection in _select(cluster, job_filter, 0)}
        yield from (by_id[job.job_id] for job in order if job.job_id in by_id)
        return
    for job in order:
        if _matches(cluster, job, job_filter):
            yield Selection(job, 0 if job.array is None else job.array.waiting)


def _word(cluster: Cluster, job: Job) -> str:
    return PENDING_WORD if job.is_waiting else word_of(job, cluster.attempts.get(job.attempt_id))


def matches(cluster: Cluster, job: Job, job_filter: JobFilter) -> bool:
    """Whether the job meets all conditions of the filter; ids are not checked."""
    return (not job_filter.states or _word(cluster, job) in job_filter.states) and _matches(cluster, job, job_filter)


def _matches(cluster: Cluster, job: Job, job_filter: JobFilter) -> bool:
    return (
        (not job_filter.users or job.user in job_filter.users)
        and (not job_filter.names or job.spec.name in job_filter.names)
        and (not job_filter.partitions or job.partition in job_filter.partitions)
        and (not job_filter.accounts or job.account in job_filter.accounts)
        and (not job_filter.qos or job.qos in job_filter.qos)
        and (not job_filter.nodes or bool(set(nodes_of(cluster, job)) & set(job_filter.nodes)))
    )


def nodes_of(cluster: Cluster, job: Job) -> tuple[str, ...]:
    """The nodes of the job's latest attempt; none if it has left memory."""
    attempt = cluster.attempt_of(job)
    return tuple(grant.node for grant in attempt.grants) if attempt else ()
