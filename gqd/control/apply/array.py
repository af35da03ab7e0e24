"""Apply the events of arrays to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

import msgspec

from gq.model.ids import JobId
from gq.model.job import ExitStatus, JobSpec
from gq.model.state import Outcome
from gq.model.sweep import sweep_of_task
from gq.model.tasks import parse_tasks, task_bit, unpack_tasks
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index import dependants, job_tally
from gqd.state.lifecycle import next_state
from gqd.state.records import ArrayTasks, Job


def tasks_of(spec: JobSpec) -> ArrayTasks | None:
    """The tasks of a new array's record, all waiting; None: the job is no array."""
    return ArrayTasks(parse_tasks(spec.array), spec.array_throttle or None) if spec.array else None


def apply_task_left(cluster: Cluster, fact: event.ArrayTaskLeft) -> None:
    record, array = _record(cluster, fact.array_job_id)
    next_state(record.state, event.ArrayTaskLeft)
    next_state(None, event.ArrayTaskLeft)
    bit = task_bit(fact.task)
    assert array.waiting & bit, f"task {fact.task} of array {record.job_id} does not wait in its record"
    assert fact.job_id == cluster.next_job_id, f"job id {fact.job_id} is not the next one, {cluster.next_job_id}"
    array.waiting ^= bit
    array.jobs[fact.task] = fact.job_id
    job = _task(record, fact)  # which counts for the same user, account and QOS as it did in the record
    cluster.jobs[job.job_id] = job
    cluster.dependants.enter(job, cluster.jobs.values())
    cluster.next_job_id += 1
    _requeue(cluster, record, array)
    cluster.enqueue(job)
    cluster.changes.jobs[record.job_id] = cluster.changes.jobs[job.job_id] = None
    cluster.changes.next_job_id = True


def _shrink(cluster: Cluster, record: Job, array: ArrayTasks, count: int) -> None:
    """Count `by` fewer waiting tasks in the record."""
    cluster.count_active(record.user, -count)
    job_tally.count_waiting(cluster, record, -count)
    _requeue(cluster, record, array)


def _requeue(cluster: Cluster, record: Job, array: ArrayTasks) -> None:
    """Keep the record in the queue while a task waits in it; otherwise remove it."""
    if array.waiting:
        cluster.refresh(record)
    else:
        cluster.dequeue(record)


def _task(record: Job, fact: event.ArrayTaskLeft) -> Job:
    dependency, never = dependants.of_task(record, fact.task)
    return Job(
        job_id=fact.job_id,
        spec=_spec_of_task(record.spec, fact.task),
        user=record.user,
        uid=record.uid,
        gid=record.gid,
        partition=record.partition,
        time_limit_s=record.time_limit_s,
        requeue=record.requeue,
        submit_at=record.submit_at,
        eligible_at=record.eligible_at,
        hold=record.hold,
        avoid=dict(record.avoid),
        account=record.account,
        qos=record.qos,
        accrue_at=record.accrue_at,
        array_job_id=record.job_id,
        array_task_id=fact.task,
        dependency=dependency,
        never=never,
        hook=record.hook,
        expected_s=record.expected_s,
    )


def _spec_of_task(spec: JobSpec, task: int) -> JobSpec:
    """The spec of a task: the array's own, except in a sweep, where each task has only its own values."""
    return msgspec.structs.replace(spec, sweep=sweep_of_task(spec.sweep, task)) if spec.sweep else spec


def apply_tasks_cancelled(cluster: Cluster, fact: event.ArrayTasksCancelled) -> None:
    record, array = _record(cluster, fact.array_job_id)
    next_state(record.state, event.ArrayTasksCancelled)
    tasks = unpack_tasks(fact.tasks)
    assert tasks and not tasks & ~array.waiting, f"array {record.job_id} cannot cancel tasks that are not pending in it"
    array.waiting &= ~tasks
    array.cancelled |= tasks
    _shrink(cluster, record, array, tasks.bit_count())
    record.reason, record.why, record.end_at = fact.reason, fact.why, fact.at
    cluster.changes.jobs[record.job_id] = None


def apply_throttle_set(cluster: Cluster, fact: event.ArrayThrottleSet) -> None:
    record, array = _record(cluster, fact.array_job_id)
    next_state(record.state, event.ArrayThrottleSet)
    array.throttle = fact.throttle
    record.spec = msgspec.structs.replace(record.spec, array_auto=fact.is_auto)
    cluster.changes.jobs[record.job_id] = None


def end_task(cluster: Cluster, job: Job) -> None:
    """Record the end of a task in its array, which keeps the worst exit status.  Other jobs are ignored."""
    known = cluster.record_of(job)
    if known is None or job.array_task_id is None:
        return
    record, array = known
    if job.outcome is Outcome.COMPLETED:
        array.succeeded |= task_bit(job.array_task_id)
    else:
        array.failed |= task_bit(job.array_task_id)
    if job.exit is not None and _badness(job.exit) > _badness(record.exit):
        record.exit = job.exit
    cluster.changes.jobs[record.job_id] = None


def _badness(exit: ExitStatus | None) -> int:
    """The exit status as a shell's exit code; -1: unknown."""
    if exit is None:
        return -1
    return 128 + exit.signal if exit.signal else exit.code


def forget_task(cluster: Cluster, job: Job) -> None:
    known = cluster.record_of(job)
    if known is not None and job.array_task_id is not None:
        del known[1].jobs[job.array_task_id]


def warn_siblings(cluster: Cluster, job: Job) -> None:
    """Make the other tasks avoid the nodes where this task failed by the job's own fault: they would fail, too."""
    known = cluster.record_of(job)
    if known is None:
        return
    record = known[0]
    record.avoid = dict(job.avoid)
    cluster.changes.jobs[record.job_id] = None
    cluster.refresh(record)


def _record(cluster: Cluster, job_id: JobId) -> tuple[Job, ArrayTasks]:
    record = cluster.jobs[job_id]
    assert record.array is not None, f"job {job_id} is no array"
    return record, record.array
