"""The way of a command to the controller: find the cluster, connect, ask, and read long lists page by page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from gq.client import Client
from gq.errors import ProtocolError
from gq.locate import find_cluster
from gq.model.job import JobInfo
from gq.wire.client import Jobs, ListJobs, QueryHistory, ReplyBody, RequestBody, Waited, WaitJobs

A = TypeVar("A", bound=ReplyBody)

EXIT_NO_CODE = 1
"""For a job that ended without an exit code: cancelled while pending, node lost."""


def controller() -> Client:
    """A connection to the controller of the cluster that the environment means."""
    return Client(find_cluster(os.environ))


def ask(client: Client, body: RequestBody, kind: type[A]) -> A:
    """The answer, which must be of this kind."""
    answer = client.ask(body)
    if not isinstance(answer, kind):
        got, wanted = type(answer).__name__, kind.__name__
        raise ProtocolError("unexpected_answer", f"the controller answered with {got} instead of {wanted}")
    return answer


def job_pages(client: Client, query: ListJobs | QueryHistory) -> Iterator[tuple[JobInfo, ...]]:
    """All jobs that the query means, a page at a time, by job id."""
    while True:
        answer = ask(client, query, Jobs)
        yield answer.jobs
        if not answer.more or not answer.jobs:
            return
        query = msgspec.structs.replace(query, after=answer.jobs[-1].job_id)


def await_end(client: Client, job_ids: tuple[int, ...], wait_any: bool = False) -> Waited:
    """Block until all (or any) of the jobs have ended."""
    while True:
        answer = ask(client, WaitJobs(job_ids=job_ids, wait_any=wait_any), Waited)
        if answer.is_done:
            return answer


def job_exit_code(job: JobInfo) -> int:
    """What a command that stands for the job returns: its code, 128 + signal, or 1 for an end without a code."""
    if job.state == "COMPLETED":
        return 0
    if job.signal:
        return 128 + job.signal
    return job.exit_code or EXIT_NO_CODE
