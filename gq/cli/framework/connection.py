"""The connection of a command to the controller: find the cluster, connect, ask, and read long lists page by page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from gq.cli.framework.command import warn
from gq.cli.framework.job_words import JobWord, NamedJobs, only
from gq.connection.client import Client
from gq.connection.locate import Location, crashed_private_cluster, describe_cluster, find_cluster
from gq.errors import Refusal, Unreachable, UsageError
from gq.model.job import JobInfo
from gq.model.tasks import format_tasks, parse_tasks, task_bit
from gq.units import spoken_duration
from gq.wire.client import (
    Accounts,
    Identity,
    JobFilter,
    Jobs,
    ListAccounts,
    ListJobs,
    QueryHistory,
    ReplyBody,
    RequestBody,
    Waited,
    WaitJobs,
    WhoAmI,
)

A = TypeVar("A", bound=ReplyBody)

_DAY_S = 86400.0
_MAX_HOLD_S = 25.0
"""How long the controller may hold back one answer."""
RECONNECT_S = 600.0
"""How long a waiting command tries to reconnect after its link was lost."""
EXIT_NO_CODE = 1
"""Exit status for a job that ended without an exit code: cancelled while pending, node lost."""


def controller() -> Client:
    """Connect to the controller of the cluster that the environment selects."""
    return Client(chosen_cluster())


def chosen_cluster() -> Location:
    """Return the cluster that the environment selects; a note names a crashed private cluster that was skipped."""
    location = find_cluster(os.environ)
    if crashed := crashed_private_cluster(location, os.environ):
        warn(f"note: your private cluster in {crashed} is down; this is {describe_cluster(location)}")
    return location


def say_waiting(error: Unreachable) -> None:
    """Write a note while `Client.reconnecting` waits."""
    warn(f"note: {error.message}; trying again for up to {spoken_duration(RECONNECT_S)}")


def ask(client: Client, body: RequestBody, kind: type[A]) -> A:
    """Return the controller's answer, which must be of type `kind`."""
    try:
        return client.ask_for(body, kind)
    except UnicodeEncodeError as error:
        odd = ascii(error.object)[:80]
        raise UsageError("not_text", f"{odd} is not UTF-8 text", "rename it; gq sends only UTF-8 text") from error


def ask_accounts(client: Client, query: ListAccounts) -> Accounts:
    """Return all accounts that match the query."""
    from gq.connection.account_list import whole_list  # only where it is needed: every command starts with this module

    return whole_list(lambda page: ask(client, page, Accounts), query)


def job_pages(client: Client, query: ListJobs | QueryHistory, most: int | None = None) -> Iterator[tuple[JobInfo, ...]]:
    """Yield all jobs that match the query, by job id, in pages, until at least `most` jobs were read."""
    answer = ask(client, query, Jobs)
    seen = len(answer.jobs)
    if not _goes_on(answer, seen, most):
        yield answer.jobs
        return
    from concurrent.futures import ThreadPoolExecutor  # only for long lists

    with ThreadPoolExecutor(1) as other:  # the controller works on the next page while this one is shown
        client.before_close(other.shutdown)  # a reader who goes away does not wait for the last page
        try:
            while _goes_on(answer, seen, most):
                query = msgspec.structs.replace(query, after=answer.jobs[-1].job_id)
                coming = other.submit(ask, client, query, Jobs)
                yield answer.jobs
                answer = coming.result()
                seen += len(answer.jobs)
            yield answer.jobs
        finally:
            client.not_before_close(other.shutdown)


def _goes_on(answer: Jobs, seen: int, most: int | None) -> bool:
    return answer.more and bool(answer.jobs) and (most is None or seen < most)


def present_job(client: Client, word: JobWord) -> JobInfo:
    """Return the job, or array task, that the controller has in memory; `Refusal` if there is none."""
    jobs = only(word)
    found = ask(client, ListJobs(filter=JobFilter(job_ids=jobs.job_ids, tasks=jobs.tasks)), Jobs).jobs
    if not found:
        raise missing_job(client, word)
    return found[0]


def last_job_id() -> int:
    """Return the id of the job, or of the array, that the caller submitted last."""
    with controller() as client:
        job = last_job(client)
    return job.array_job_id or job.job_id


def last_job(client: Client, is_meant: Callable[[JobInfo], bool] = lambda job: True) -> JobInfo:
    """The job that the caller submitted last, of an array the task that left its record last; `Refusal` if none.

    Jobs that the controller queued for the caller (of a crontab, for a notice) are not among them: they have no host
    that they were submitted from.
    """
    mine = JobFilter(users=(ask(client, WhoAmI(), Identity).user,))
    now = time.time()
    spans = (now - _DAY_S, now - 30 * _DAY_S, None)
    past = [QueryHistory(filter=mine, ended_after=at, with_steps=False) for at in spans]
    queries: list[ListJobs | QueryHistory] = [ListJobs(filter=mine), *past]
    newest: JobInfo | None = None
    for query in queries:
        if newest is None:
            newest = _newest(client, query, is_meant)
    if newest is None:
        raise Refusal("no_jobs", f"{mine.users[0]} has not submitted such a job yet", "gqsub submits one")
    # A job with a higher number may have ended before the span in which this one was found.
    rest = QueryHistory(filter=mine, with_steps=False, after=newest.array_job_id or newest.job_id)
    return max(newest, _newest(client, rest, is_meant) or newest, key=_by_submission)


def _newest(client: Client, query: ListJobs | QueryHistory, is_meant: Callable[[JobInfo], bool]) -> JobInfo | None:
    jobs = (job for page in job_pages(client, query) for job in page)
    return max((job for job in jobs if job.submit_host and is_meant(job)), key=_by_submission, default=None)


def _by_submission(job: JobInfo) -> tuple[int, int]:
    return (job.array_job_id or job.job_id, job.job_id)


def missing_job(client: Client, word: JobWord, otherwise: Refusal | None = None) -> Refusal:
    """Return why the job is in neither queue nor history: an unknown task of its array, or else `otherwise`."""
    query = QueryHistory(filter=JobFilter(job_ids=(word.job_id,)), with_steps=False)
    parts = [job for page in job_pages(client, query) for job in page] if word.tasks else []
    tasks = 0
    for job in parts:
        tasks |= parse_tasks(job.array_tasks) if job.array_tasks else 0
        tasks |= 0 if job.array_task_id is None else task_bit(job.array_task_id)
    if tasks:
        message = f"array {word.job_id} has no task {format_tasks(word.tasks)}"
        return Refusal("unknown_task", message, f"it had {format_tasks(tasks, 4)}")
    if parts:
        return Refusal(
            "not_an_array", f"job {word.job_id} is not an array and has no tasks", f"name it as {word.job_id}"
        )
    return otherwise or Refusal(
        "unknown_job", f"job {word} does not exist", "gqstat lists the queue, gqacct ended jobs"
    )


def await_jobs(
    client: Client, named: NamedJobs, wait_any: bool = False, deadline: float | None = None
) -> tuple[bool, list[JobInfo]]:
    """Block until all (or any) of the jobs have ended, or until `deadline` (monotonic).

    Returns whether they have, and how each stands (of an array, each task); the controller holds one answer only so
    long, so ask again.  A link that is lost (gqd, or the daemon that relays, starts again) is made anew.
    """
    while True:
        left_s = RECONNECT_S if deadline is None else max(0.0, deadline - time.monotonic())
        request = WaitJobs(
            job_ids=named.job_ids, tasks=named.tasks, wait_any=wait_any, timeout_s=min(left_s, _MAX_HOLD_S)
        )
        try:
            with client.reconnecting(min(left_s, RECONNECT_S), say_waiting):
                answer = ask(client, request, Waited)
        except Unreachable:
            if deadline is None or not client.has_been_linked or time.monotonic() < deadline:
                raise
            return False, []
        if answer.is_done or (deadline is not None and time.monotonic() >= deadline):
            return answer.is_done, _how_they_stand(client, named, answer)


def _how_they_stand(client: Client, named: NamedJobs, answer: Waited) -> list[JobInfo]:
    """Return the jobs' states: from the answer, or from the history for array tasks and jobs that ended long ago."""
    by_id = {job.job_id: job for job in answer.jobs if job.array_job_id is None}
    missing = tuple(job_id for job_id in named.job_ids if job_id not in by_id)
    if not missing and not named.tasks:
        return list(by_id.values())
    query = QueryHistory(filter=JobFilter(job_ids=missing, tasks=named.tasks), with_steps=False)
    return [*by_id.values(), *(job for page in job_pages(client, query) for job in page)]


def job_exit_code(job: JobInfo) -> int:
    """Return the job's exit code, 128 + signal, or 1 for a job that ended without a code."""
    if job.state == "COMPLETED":
        return 0
    if job.signal:
        return 128 + job.signal
    return job.exit_code or EXIT_NO_CODE
