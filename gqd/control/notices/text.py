"""The body of a notice: JSON with a sentence for people.  gq-notify(7) lists its keys.  Pure."""

from __future__ import annotations

from datetime import UTC
from itertools import islice
from typing import Any

import msgspec

from gq.model.notice import ASK, BEGIN, INVALID_DEPEND, REQUEUE, TIMEOUTS
from gq.model.resource import gpus_in
from gq.model.state import JobState, Outcome, state_word
from gq.model.tasks import tasks_in
from gq.units import iso_instant, render_instants, spoken_duration
from gqd.control.array import all_tasks
from gqd.state.cluster import Cluster
from gqd.state.end_reason import how_it_ended
from gqd.state.index.deadlines import time_limit_of
from gqd.state.job_view import output_paths
from gqd.state.records import ArrayTasks, Attempt, Job

Body = dict[str, Any]
FIRST_FAILED = 10
"""Failed tasks of an array that a notice names with their output files."""


def body_of_job(cluster: Cluster, job: Job, on: str, now: float, why: str = "") -> Body:
    """The body about a job, or about an array as a whole; `why` is used where the job has no reason of its own."""
    attempt = cluster.attempt_of(job)
    body: Body = {
        "event": on,
        "at": moment(now),
        "user": job.user,
        "job_id": int(job.job_id),
        "array_job_id": job.array_job_id if job.array is None else int(job.job_id),
        "array_task_id": job.array_task_id,
        "name": job.spec.name,
        "account": job.account,
        "partition": job.partition,
        "state": state_word(job.state, job.outcome),
        "reason": job.reason,
        "why": render_instants(why, zone=UTC) or _why(job),
        "exit_code": None if job.exit is None else job.exit.code,
        "signal": None if job.exit is None else job.exit.signal,
        "attempt": job.attempt,
        "restart_count": job.restart_count,
        "nodes": [] if attempt is None else [grant.node for grant in attempt.grants],
        "gpus": 0 if attempt is None else gpus_in(attempt.grants),
        "time_limit_s": job.time_limit_s if attempt is None else time_limit_of(job, attempt),
        "submit_at": moment(job.submit_at),
        "start_at": moment(job.start_at),
        "end_at": moment(job.end_at),
        "output_path": "" if job.spec.is_interactive or job.array is not None else output_paths(job, attempt)[0],
    }
    if job.array is not None:
        body["array"] = _summary(cluster, job, job.array)
    return {**body, "text": _sentence(job, attempt, on, body, now)}


def moment(at: float | None) -> str | None:
    """The instant in ISO 8601, UTC."""
    return iso_instant(at, UTC)


def _why(job: Job) -> str:
    why = how_it_ended(job)[0] if job.state is JobState.ENDED else job.why
    return render_instants(why, zone=UTC)


def _sentence(job: Job, attempt: Attempt | None, on: str, body: Body, now: float) -> str:
    kind = "array" if job.array is not None else "job"
    name = f"{kind} {job.label} ({job.spec.name})"
    match on:
        case _ if on == BEGIN:
            return f"{name} has started{_where(body)}"
        case _ if on == REQUEUE:
            return f"{name} is requeued{_because(body)}"
        case _ if on == ASK and job.asks:
            return f"{name}: {job.asks[-1].by} asks: {job.asks[-1].text}"
        case _ if on == INVALID_DEPEND:
            return f"{name} can never start: {job.never}"
        case _ if on in TIMEOUTS:
            limit_s, start_at = body["time_limit_s"] or 0, job.start_at or now
            left = spoken_duration(max(0.0, start_at + limit_s - now))
            return f"{name} has used {TIMEOUTS[on]:.0%} of its time limit: {left} is left{_where(body)}"
        case _ if job.array is not None:
            return f"{name} has ended: {_counts(body['array'])}"
        case _:
            return f"{name} has ended {body['state']}{_because(body)}"


def _where(body: Body) -> str:
    return f" on {','.join(body['nodes'])}" if body["nodes"] else ""


def _because(body: Body) -> str:
    return f": {body['why']}" if body["why"] else ""


# ── arrays ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _summary(cluster: Cluster, record: Job, array: ArrayTasks) -> Body:
    """Counts of an array's tasks; a task that left memory is only a number, and failed unless it succeeded."""
    stopped = {task for task, job_id in array.jobs.items() if cluster.jobs[job_id].outcome is Outcome.CANCELLED}
    failed = (task for task in tasks_in(array.failed) if task not in stopped)
    return {
        "tasks": all_tasks(record.spec.array).bit_count(),
        "completed": array.succeeded.bit_count(),
        "failed": array.failed.bit_count() - len(stopped),
        "cancelled": array.cancelled.bit_count() + len(stopped),
        "first_failed": [_failed_task(cluster, record, array, task) for task in islice(failed, FIRST_FAILED)],
    }


def _failed_task(cluster: Cluster, record: Job, array: ArrayTasks, task: int) -> Body:
    job = cluster.jobs.get(array.jobs[task]) if task in array.jobs else None
    if job is None:
        return {"task": f"{record.job_id}_{task}"}
    return {
        "task": job.label,
        "state": state_word(job.state, job.outcome),
        "exit_code": None if job.exit is None else job.exit.code,
        "why": _why(job),
        "output_path": output_paths(job, cluster.attempt_of(job))[0],
    }


def _counts(array: Body) -> str:
    parts = [f"{array[word]} {word}" for word in ("completed", "failed", "cancelled") if array[word]]
    told = f"{array['tasks']} tasks, {', '.join(parts) or 'none begun'}"
    failed = [f"{one['task']} {one.get('output_path', '')}".strip() for one in array["first_failed"]]
    return f"{told}; failed first: {'; '.join(failed)}" if failed else told


def encoded(body: Body) -> str:
    return msgspec.json.encode(body).decode()
