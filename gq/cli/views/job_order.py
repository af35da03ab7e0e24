"""The order of `gqstat --sort`: fields as in squeue's ``--sort``, or the queue as the controller has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from gq.cli.framework.columns import column_named, elapsed_s, node_count
from gq.cli.framework.connection import ask, job_pages
from gq.connection.client import Client
from gq.model.job import JobInfo
from gq.model.state import state_letters
from gq.near_miss import suggestion
from gq.wire.client import Jobs, ListJobs

QUEUE = "queue"
_NO_END = float("inf")
_Key = Callable[[JobInfo, float], float | str]

FIELDS: dict[str, _Key] = {
    "jobid": lambda job, now: job.job_id,
    "partition": lambda job, now: job.partition,
    "name": lambda job, now: job.name,
    "username": lambda job, now: job.user,
    "account": lambda job, now: job.account,
    "qos": lambda job, now: job.qos,
    "state": lambda job, now: job.state,
    "statecompact": lambda job, now: state_letters(job.state),
    "reason": lambda job, now: job.reason,
    "timeused": elapsed_s,
    "timelimit": lambda job, now: _NO_END if job.time_limit_s is None else job.time_limit_s,
    "starttime": lambda job, now: _instant(job.expected_start_at if job.state == "PENDING" else job.start_at),
    "endtime": lambda job, now: _instant(job.end_at),
    "submittime": lambda job, now: job.submit_at,
    "numnodes": lambda job, now: node_count(job),
    "numcpus": lambda job, now: job.cpus,
    "numtasks": lambda job, now: job.tasks,
    "gpus": lambda job, now: job.gpus,
    "priority": lambda job, now: job.priority,
    "nice": lambda job, now: job.nice,
}
"""Names as in ``--Format``; what has no value yet is last."""
_LETTERS = {column_named(name).code: name for name in FIELDS} | {"i": "jobid", "p": "priority"}


def _instant(at: float | None) -> float:
    return _NO_END if at is None else at


class Field(NamedTuple):
    key: _Key
    is_downwards: bool


class Sort(NamedTuple):
    """An order of jobs by `fields`, the first field first; without fields, the order of the queue."""

    fields: tuple[Field, ...]

    def sorted_jobs(self, client: Client, query: ListJobs, limit: int | None, now: float) -> Sequence[JobInfo]:
        """The jobs of `query`; if it is in the order of the queue, perhaps no more than `limit`."""
        if not self.fields:
            most = query.limit if limit is None else min(limit, query.limit)
            first = ask(client, msgspec.structs.replace(query, in_queue_order=True, limit=most), Jobs)
            if not first.more or most == limit:
                return first.jobs
        jobs = [job for page in job_pages(client, query) for job in page]  # by id, which decides between equal ones
        for field in reversed(self.fields or _QUEUE_ORDER):
            jobs.sort(key=lambda job: field.key(job, now), reverse=field.is_downwards)
        return jobs


_QUEUE_ORDER = (
    Field(lambda job, now: 0.0 if job.start_at is not None and job.state != "PENDING" else 1.0, False),
    Field(FIELDS["priority"], True),
)
"""Where the queue is longer than the controller's longest answer."""


def parse_sort(text: str) -> Sort:
    """``-Q,i``, ``partition,-submittime``, ``queue``; ``ValueError`` for what is no field."""
    if text.strip().lower() == QUEUE:
        return Sort(())
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ValueError("no field is named; for example -Q,i or queue")
    return Sort(tuple(Field(_key(word.lstrip("+-"), word), word.startswith("-")) for word in words))


def _key(name: str, word: str) -> _Key:
    key = FIELDS.get(_LETTERS.get(name, name.lower()))
    if key is None:
        way_out = suggestion(name.lower(), FIELDS, f"use {QUEUE}, or {', '.join(FIELDS)}")
        raise ValueError(f"`{word}` is no field to sort by; {way_out}")
    return key
