"""What the rows say of past and present jobs: a `HistoryQuery` as SQL or as a test of one job, and `JobInfo`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence

from gq.model.job import JobInfo, StepInfo, Usage
from gq.model.state import JobState, Reason, state_word
from gq.patterns import error_pattern, expand_pattern, input_pattern, output_pattern
from gqd.state.after import Hold
from gqd.state.cluster import Attempt, Job, Step
from gqd.store.protocol import HistoryQuery, Row
from gqd.store.rows import COLUMNS, attempt_of, job_demand, job_of, step_of

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
_HOLD_REASONS = {
    Hold.USER: Reason.HELD_USER,
    Hold.ADMIN: Reason.HELD_ADMIN,
    Hold.LAUNCH: Reason.LAUNCH_FAILED_HELD,
}


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


# ── as shown ──────────────────────────────────────────────────────────────────────────────────────────────────


def job_info(job: Job, attempt: Attempt | None, steps: Sequence[Step] = ()) -> JobInfo:
    """A job as it is shown; `attempt` is its latest.  Why it waits now only the planner knows, so it is not here."""
    spec = job.spec
    grants = attempt.grants if attempt is not None else ()
    demand = job_demand(job, grants)
    output, error, source = _paths(job, attempt)
    return JobInfo(
        job_id=job.job_id,
        name=spec.name,
        user=job.user,
        uid=job.uid,
        partition=job.partition,
        state=state_word(job.state, job.outcome),
        reason=_reason(job),
        why=job.why,
        attempt=job.attempt,
        restart_count=job.restart_count,
        grants=grants,
        nodes_wanted=demand.nodes,
        tasks=demand.tasks,
        cpus=demand.cpus,
        gpus=demand.gpus,
        memory_mib=demand.memory_mib,
        gpu_type=spec.resources.gpu_type,
        time_limit_s=job.time_limit_s,
        submit_at=job.submit_at,
        eligible_at=job.eligible_at,
        start_at=job.start_at,
        end_at=job.end_at,
        exit_code=None if job.exit is None else job.exit.code,
        signal=None if job.exit is None else job.exit.signal,
        failure_class=job.failure_class,
        nice=spec.nice,
        is_held=job.hold is not None,
        requeue=job.requeue,
        begin_at=spec.begin_at,
        chdir=spec.chdir,
        output_path=output,
        error_path=error,
        input_path=source,
        command=spec.command,
        args=spec.args,
        comment=spec.comment,
        submit_dir=spec.submit_dir,
        submit_host=spec.submit_host,
        is_interactive=spec.is_interactive,
        usage=Usage() if attempt is None else attempt.usage,
        resources=spec.resources,
        steps=tuple([step_info(step) for step in steps]),
    )


def _reason(job: Job) -> str:
    if job.state is JobState.PENDING and job.hold is not None:
        return _HOLD_REASONS[job.hold].value
    return job.reason


def _paths(job: Job, attempt: Attempt | None) -> tuple[str, str, str]:
    """(output, error, input) of the batch script, as far as known; where error goes with output they are equal."""
    spec, node = job.spec, None if attempt is None else attempt.batch_node
    patterns = (output_pattern(spec), error_pattern(spec) or output_pattern(spec), input_pattern(spec))
    output, error, source = (
        expand_pattern(pattern, job_id=job.job_id, name=spec.name, user=job.user, node=node, rank=0, node_rank=0)
        for pattern in patterns
    )
    return output, error, source


def step_info(step: Step) -> StepInfo:
    parts = step.layout.parts
    return StepInfo(
        job_id=step.step_id.job_id,
        attempt=step.step_id.attempt,
        step=step.step_id.step,
        name=step.layout.name,
        state="RUNNING" if step.outcome is None else step.outcome.value,
        nodes=tuple([part.node for part in parts]),
        tasks=step.layout.ntasks,
        cpus=sum([len(part.cpus) for part in parts]),
        gpus=sum([len(part.gpus) for part in parts]),
        start_at=step.start_at,
        end_at=step.end_at,
        exit_code=None if step.exit is None else step.exit.code,
        signal=None if step.exit is None else step.exit.signal,
        usage=step.usage,
    )
