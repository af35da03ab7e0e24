"""What the rows say of past and present jobs: a `HistoryQuery` as SQL or as a test of one job."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable

from gq.model.job import JobInfo
from gq.model.state import JobState, state_word
from gqd.state.cluster import Attempt, Job, Step
from gqd.state.describe import job_info
from gqd.store.protocol import HistoryQuery, Row
from gqd.store.rows import COLUMNS, attempt_of, job_of, step_of

Condition = tuple[str, tuple[str | float, ...]]
"""An SQL condition and the values of its ``?``."""

_AMONG = "IN (SELECT value FROM json_each(?))"
"""A list is one value, so that it may be as long as it likes."""

_JOB_WIDTH = len(COLUMNS["jobs"])
_SELECTED = ", ".join(f"{table}.{name}" for table in ("jobs", "attempts") for name in COLUMNS[table])
_STEPS = (
    f"SELECT {', '.join(COLUMNS['steps'])} FROM steps"
    " WHERE (job_id, attempt) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"
    " ORDER BY job_id, step"
)
_ACTIVE = {state_word(state, None): state for state in JobState if state is not JobState.ENDED}
_ENDED_AFTER = (
    "jobs.job_id IN (SELECT job_id FROM jobs WHERE state IN ('PENDING', 'STARTING', 'RUNNING', 'COMPLETING')"
    " UNION ALL SELECT job_id FROM jobs WHERE state = 'ENDED' AND end_at >= ?)"
)
"""By the index over (state, end_at): a scan by job id would read years of rows for the jobs of the last hour."""


# ── from the database ─────────────────────────────────────────────────────────────────────────────────────────


def select_jobs(connection: sqlite3.Connection, query: HistoryQuery) -> list[JobInfo]:
    """One page, by job id."""
    conditions = conditions_of(query)
    sql = (
        f"SELECT {_SELECTED} FROM jobs LEFT JOIN attempts USING (job_id, attempt)"
        f" WHERE {' AND '.join(text for text, _ in conditions)} ORDER BY jobs.job_id LIMIT ?"
    )
    values = [value for _, values in conditions for value in values]
    rows = connection.execute(sql, (*values, query.limit)).fetchall()
    found = [_job_and_attempt(row) for row in rows]
    steps = _steps(connection, [job for job, _ in found]) if query.with_steps else {}
    return [job_info(job, attempt, steps.get(job.job_id, ())) for job, attempt in found]


def _job_and_attempt(row: Row) -> tuple[Job, Attempt | None]:
    attempt = row[_JOB_WIDTH:]
    return job_of(row[:_JOB_WIDTH]), None if attempt[0] is None else attempt_of(attempt)


def _steps(connection: sqlite3.Connection, jobs: Iterable[Job]) -> dict[int, list[Step]]:
    """Of the latest attempt of each job."""
    wanted = json.dumps([(job.job_id, job.attempt) for job in jobs if job.attempt])
    steps: dict[int, list[Step]] = {}
    for row in connection.execute(_STEPS, (wanted,)):
        steps.setdefault(row[0], []).append(step_of(row))
    return steps


def conditions_of(query: HistoryQuery) -> list[Condition]:
    """All must hold."""
    wanted = query.filter
    conditions: list[Condition] = [("jobs.job_id > ?", (query.after,))]
    for column, any_of in (
        ("jobs.job_id", wanted.job_ids),
        ("jobs.user", wanted.users),
        ("jobs.name", wanted.names),
        ("jobs.partition", wanted.partitions),
        ("''", wanted.accounts),  # no job has an account yet
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


def _in_states(words: tuple[str, ...]) -> Condition:
    active = [_ACTIVE[word] for word in words if word in _ACTIVE]
    outcomes = [word for word in words if word not in _ACTIVE]
    text = f"(jobs.state {_AMONG} OR jobs.state = 'ENDED' AND jobs.outcome {_AMONG})"
    return text, (json.dumps(active), json.dumps(outcomes))


# ── from objects ──────────────────────────────────────────────────────────────────────────────────────────────


def matches(query: HistoryQuery, job: Job, nodes: Collection[str]) -> bool:
    """The same test as `conditions_of`; `nodes`: all that any attempt of the job had a part on."""
    wanted = query.filter
    return (
        job.job_id > query.after
        and (not wanted.job_ids or job.job_id in wanted.job_ids)
        and (not wanted.users or job.user in wanted.users)
        and (not wanted.names or job.spec.name in wanted.names)
        and (not wanted.partitions or job.partition in wanted.partitions)
        and (not wanted.accounts or "" in wanted.accounts)
        and (not wanted.states or state_word(job.state, job.outcome) in wanted.states)
        and (not wanted.nodes or any(node in nodes for node in wanted.nodes))
        and _is_in_time(query, job)
    )


def _is_in_time(query: HistoryQuery, job: Job) -> bool:
    """A job that never started counts from its submission; one that has not ended, ends later than anything asked."""
    began_at = job.submit_at if job.start_at is None else job.start_at
    is_over = job.state is JobState.ENDED and job.end_at is not None
    return (query.started_before is None or began_at < query.started_before) and (
        query.ended_after is None or not is_over or (job.end_at or 0.0) >= query.ended_after
    )
