"""Queries of past and present jobs: a `HistoryQuery` as SQL, or as a test of one job."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

from gq.model.job import JobInfo
from gq.model.state import JobState, state_word
from gq.model.tasks import first_task, task_bit
from gq.wire.client import JobFilter
from gqd.state.job_view import job_info, record_lines, tasks_asked
from gqd.state.records import Attempt, Job, Step
from gqd.store.protocol import HistoryQuery, Row
from gqd.store.rows.rows import COLUMNS, attempt_of, job_of, step_of

Condition = tuple[str, tuple[str | float, ...]]
"""An SQL condition and the values of its ``?``."""

_AMONG = "IN (SELECT value FROM json_each(?))"
"""A list is passed as one JSON value, so that its length is not limited."""

_JOB_WIDTH = len(COLUMNS["jobs"])
_SELECTED = ", ".join(f"{table}.{name}" for table in ("jobs", "attempts") for name in COLUMNS[table])
_STEPS = (
    f"SELECT {', '.join(COLUMNS['steps'])} FROM steps"
    " WHERE (job_id, attempt) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"
    " ORDER BY job_id, step"
)
_IN_SPAN = (
    "tasks.array_job_id = json_extract(spans.value, '$[0]') AND tasks.array_task_id"
    " BETWEEN json_extract(spans.value, '$[1]') AND json_extract(spans.value, '$[2]')"
)
_IS_RECORD = "jobs.array_waiting IS NOT NULL"
"""Condition for an array's record, whose parts have their own states."""
ALL_TASKS = -1
_ACTIVE = {state_word(state, None): state for state in JobState if state is not JobState.ENDED}
_ENDED_AFTER = (
    "jobs.job_id IN (SELECT job_id FROM jobs WHERE state IN ('PENDING', 'STARTING', 'RUNNING', 'COMPLETING')"
    " UNION ALL SELECT job_id FROM jobs WHERE state = 'ENDED' AND end_at >= ?)"
)
"""Uses the index over (state, end_at): a scan by job id would read years of rows for the jobs of the last hour."""


# ── from the database ─────────────────────────────────────────────────────────────────────────────────────────────


def select_jobs(connection: sqlite3.Connection, query: HistoryQuery) -> list[JobInfo]:
    """Select a page of jobs, by job id.

    An array's record may be shown as nothing or as two parts, so a page may need more rows than it has jobs, and one
    that ends with two parts is longer by one.
    """
    shown: list[JobInfo] = []
    after = query.after
    while True:
        rows = _rows(connection, query, after)
        found = [_job_and_attempt(row) for row in rows]
        steps = _steps(connection, [job for job, _ in found]) if query.with_steps else {}
        for job, attempt in found:
            shown.extend(job_infos(query, job, attempt, steps.get(job.job_id, ())))
            if len(shown) >= query.limit:
                return shown
        if len(rows) < query.limit:
            return shown
        after = rows[-1][0]


def _rows(connection: sqlite3.Connection, query: HistoryQuery, after: int) -> list[Row]:
    conditions = [("jobs.job_id > ?", (after,)), *conditions_of(query)]
    sql = (
        f"SELECT {_SELECTED} FROM jobs LEFT JOIN attempts USING (job_id, attempt)"
        f" WHERE {' AND '.join(text for text, _ in conditions)} ORDER BY jobs.job_id LIMIT ?"
    )
    values = [value for _, values in conditions for value in values]
    return connection.execute(sql, (*values, query.limit)).fetchall()


def job_infos(query: HistoryQuery, job: Job, attempt: Attempt | None, steps: Sequence[Step] = ()) -> Iterator[JobInfo]:
    """The `JobInfo` of a row that meets `conditions_of`: of a job if its task matches, of an array's record by part."""
    wanted = query.filter
    if job.array is None:
        if _is_wanted(wanted, job):
            yield job_info(job, attempt, steps)
        return
    asked = ALL_TASKS if not names_jobs(wanted) or job.job_id in wanted.job_ids else _tasks_of(wanted, job.job_id)
    for line in record_lines(job, asked):
        if not wanted.states or line.state in wanted.states:
            yield job_info(job, attempt, steps, line)


def names_jobs(wanted: JobFilter) -> bool:
    return bool(wanted.job_ids or wanted.tasks)


def _is_wanted(wanted: JobFilter, job: Job) -> bool:
    """Whether the job matches the ids, if any are given: by its id, its array's id, or as a task."""
    if not names_jobs(wanted) or job.job_id in wanted.job_ids:
        return True
    if job.array_job_id is None or job.array_task_id is None:
        return False
    return job.array_job_id in wanted.job_ids or bool(_tasks_of(wanted, job.array_job_id) & task_bit(job.array_task_id))


def _tasks_of(wanted: JobFilter, array_id: int) -> int:
    return tasks_asked(wanted.tasks[array_id]) if array_id in wanted.tasks else 0


def _job_and_attempt(row: Row) -> tuple[Job, Attempt | None]:
    attempt = row[_JOB_WIDTH:]
    return job_of(row[:_JOB_WIDTH]), None if attempt[0] is None else attempt_of(attempt)


def _steps(connection: sqlite3.Connection, jobs: Iterable[Job]) -> dict[int, list[Step]]:
    """Steps of the latest attempt of each job, by job id."""
    wanted = json.dumps([(job.job_id, job.attempt) for job in jobs if job.attempt])
    steps: dict[int, list[Step]] = {}
    for row in connection.execute(_STEPS, (wanted,)):
        steps.setdefault(row[0], []).append(step_of(row))
    return steps


def conditions_of(query: HistoryQuery) -> list[Condition]:
    """Conditions that must all hold; `job_infos` then selects tasks of an array and parts of its record."""
    wanted = query.filter
    conditions: list[Condition] = [_of_ids(wanted)] if names_jobs(wanted) else []
    for column, any_of in (
        ("jobs.user", wanted.users),
        ("jobs.name", wanted.names),
        ("jobs.partition", wanted.partitions),
        ("jobs.account", wanted.accounts),
        ("jobs.qos", wanted.qos),
    ):
        if any_of:
            conditions.append((f"{column} {_AMONG}", (json.dumps(any_of),)))
    if wanted.states:
        conditions.append(_in_states(wanted.states))
    if wanted.nodes:
        conditions.append(
            (f"jobs.job_id IN (SELECT job_id FROM allocations WHERE node {_AMONG})", (json.dumps(wanted.nodes),))
        )
    if query.started_before is not None:
        conditions.append(("coalesce(jobs.start_at, jobs.submit_at) < ?", (query.started_before,)))
    if query.ended_after is not None:
        conditions.append((_ENDED_AFTER, (query.ended_after,)))
    return conditions


def _of_ids(wanted: JobFilter) -> Condition:
    """The condition on job ids, and on array tasks between the lowest and the highest wanted one."""
    ids = json.dumps(wanted.job_ids)
    text, values = f"jobs.job_id {_AMONG} OR jobs.array_job_id {_AMONG}", [ids, ids]
    text += f" OR jobs.job_id {_AMONG}"
    values.append(json.dumps(list(wanted.tasks)))
    spans = []
    for array_id, tasks in wanted.tasks.items():
        asked = tasks_asked(tasks)
        spans.append((array_id, first_task(asked), asked.bit_length() - 1))
    if spans:
        text += f" OR jobs.job_id IN (SELECT tasks.job_id FROM json_each(?) AS spans JOIN jobs AS tasks ON {_IN_SPAN})"
        values.append(json.dumps(spans))
    return f"({text})", tuple(values)


def _in_states(words: tuple[str, ...]) -> Condition:
    active = [_ACTIVE[word] for word in words if word in _ACTIVE]
    outcomes = [word for word in words if word not in _ACTIVE]
    text = f"(jobs.state {_AMONG} OR jobs.state = 'ENDED' AND jobs.outcome {_AMONG} OR {_IS_RECORD})"
    return text, (json.dumps(active), json.dumps(outcomes))


# ── from objects ──────────────────────────────────────────────────────────────────────────────────────────────────


def matches(query: HistoryQuery, job: Job, nodes: Collection[str]) -> bool:
    """The same test as `conditions_of`, except the ids, which `job_infos` tests.

    `nodes`: the nodes on which any attempt of the job had a part.
    """
    wanted = query.filter
    return (
        job.job_id > query.after
        and (not wanted.users or job.user in wanted.users)
        and (not wanted.names or job.spec.name in wanted.names)
        and (not wanted.partitions or job.partition in wanted.partitions)
        and (not wanted.accounts or job.account in wanted.accounts)
        and (not wanted.qos or job.qos in wanted.qos)
        and (not wanted.states or job.array is not None or state_word(job.state, job.outcome) in wanted.states)
        and (not wanted.nodes or any(node in nodes for node in wanted.nodes))
        and _is_in_time(query, job)
    )


def _is_in_time(query: HistoryQuery, job: Job) -> bool:
    """Whether the job is in the period; one that never started counts from its submission, an active one has no end."""
    began_at = job.submit_at if job.start_at is None else job.start_at
    is_over = job.state is JobState.ENDED and job.end_at is not None
    return (query.started_before is None or began_at < query.started_before) and (
        query.ended_after is None or not is_over or (job.end_at or 0.0) >= query.ended_after
    )
