"""The end of arrays: the record ends with its last task, and with --fail-fast a failure ends all tasks.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.state import JobState, Outcome
from gqd.control import array as array_control
from gqd.control.job import cancel
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.job_view import cancelled_outcome
from gqd.state.records import ArrayTasks, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

_NO_FAILURE = (Outcome.COMPLETED, Outcome.CANCELLED, Outcome.PREEMPTED)
"""Outcomes that do not trigger --fail-fast; a preemption says nothing about the other tasks."""


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """After the end of tasks: end the other tasks of a fail-fast array, and the record when no task is left."""
    if isinstance(fact, event.ArrayTasksCancelled):
        _end_if_over(draft, draft.cluster.jobs[fact.array_job_id])
    elif isinstance(fact, event.JobEnded) and (job := draft.cluster.jobs.get(fact.job_id)) is not None:
        found = draft.cluster.record_of(job)
        if found is not None:
            record, _array = found
            if record.spec.fail_fast and job.outcome not in _NO_FAILURE:
                _end_others(draft, record, job)
            _end_if_over(draft, record)


def _end_others(draft: TurnBuilder, record: Job, failed: Job) -> None:
    assert record.array is not None
    why = f"task {record.job_id}_{failed.array_task_id} failed, and the array was submitted with --fail-fast"
    array_control.cancel_tasks(draft, record, record.array.waiting, why)
    for job_id in list(record.array.jobs.values()):
        if draft.cluster.jobs[job_id].state is not JobState.ENDED:
            cancel(draft, draft.cluster.jobs[job_id], why=why)


def _end_if_over(draft: TurnBuilder, record: Job) -> None:
    array = record.array
    if array is None or record.state is JobState.ENDED or array.waiting:
        return
    if array.cancelled | array.succeeded | array.failed != array_control.all_tasks(record.spec.array):
        return
    outcome = _outcome(draft.cluster, record, array)
    draft.emit(
        event.JobEnded(
            at=draft.now,
            job_id=record.job_id,
            outcome=outcome,
            exit=None if outcome is Outcome.CANCELLED else record.exit,
            reason=record.reason,
            why=record.why,
        )
    )


def _outcome(cluster: Cluster, record: Job, array: ArrayTasks) -> Outcome:
    """COMPLETED if all tasks succeeded; CANCELLED or the like if all were cancelled; else FAILED.

    Tasks that have left memory count as failed.
    """
    if not array.cancelled and not array.failed:
        return Outcome.COMPLETED
    if array.succeeded:
        return Outcome.FAILED
    left = [cluster.jobs[job_id].outcome for job_id in array.jobs.values()]
    if len(left) < array.failed.bit_count() or any(outcome is not Outcome.CANCELLED for outcome in left):
        return Outcome.FAILED
    return cancelled_outcome(record)
