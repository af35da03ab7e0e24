"""Arrays: the jobs and tasks that a request selects, and how tasks become jobs of their own.  Pure.

An array is one job, its record; a task becomes a job of its own when it is materialised (see `ArrayTasks`), at the
latest when it starts.  Every request that names jobs uses `select`, so ``7``, ``7_3`` and ``7_[2-8]`` mean the same to
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gq.errors import Refusal
from gq.model.ids import JobId
from gq.model.job import JobSpec
from gq.model.state import Reason
from gq.model.sweep import check_sweep, tasks_of
from gq.model.tasks import MAX_TASK, first_task, format_tasks, pack_tasks, parse_tasks, task_bit, tasks_in
from gq.wire import client
from gqd.sched.snapshot.model import NO_AUTO_THROTTLE, AutoThrottleShares
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.queue import startable_tasks
from gqd.state.job_view import tasks_asked
from gqd.state.policy import Policy
from gqd.state.records import ArrayTasks, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_NEW_JOBS = 10_000
"""Tasks that one request may materialise; all other requests wait meanwhile."""

ALL = -1
"""Every task, as a bit set."""

# ── selection ─────────────────────────────────────────────────────────────────────────────────────────────────


class Selection(NamedTuple):
    """A selected job; for an array's record some of the tasks that wait in it."""

    job: Job
    tasks: int = 0
    """The selected waiting tasks of a record, as a bit set."""
    is_named: bool = True
    """The request names the job itself, not only its whole array: a failure for it is reported."""
    asked: int = ALL
    """The tasks of a record that the request names, waiting or not, as a bit set."""

    @property
    def is_whole(self) -> bool:
        """Whether the selection is a whole job or all waiting tasks of a record."""
        return self.job.array is None or self.tasks == self.job.array.waiting

    @property
    def width(self) -> int:
        return 1 if self.job.array is None else self.tasks.bit_count()


def select(cluster: Cluster, job_ids: Iterable[int], tasks: Mapping[int, str]) -> list[Selection]:
    """The selected jobs, by id; `Refusal` if an id does not exist or has left memory."""
    job_ids = tuple(job_ids)
    for job_id in job_ids:
        known(cluster, job_id)
    for array_id, text in tasks.items():
        _refuse_missing(*known_array(cluster, array_id), tasks_asked(text))
    return [
        selection
        for selection in named(cluster, job_ids, tasks)
        if selection.job.array is None or selection.tasks or selection.is_named
    ]


def named(cluster: Cluster, job_ids: Iterable[int], tasks: Mapping[int, str]) -> list[Selection]:
    """The selected jobs, by id, without those that do not exist; an array's record is kept even if no task waits.

    The id of an array selects its record and all its materialised tasks that are in memory.
    """
    chosen: dict[JobId, Selection] = {}
    for job_id in job_ids:
        job = cluster.jobs.get(JobId(job_id))
        if job is not None and job.array is not None:
            for left in job.array.jobs.values():
                chosen.setdefault(left, Selection(cluster.jobs[left], is_named=False))
            chosen[job.job_id] = Selection(job, job.array.waiting, is_named=not job.array.jobs)
        elif job is not None:
            chosen[job.job_id] = Selection(job)
    for array_id, text in tasks.items():
        record, asked = cluster.jobs.get(JobId(array_id)), tasks_asked(text)
        if record is not None and record.array is not None:
            for selection in _of_array(cluster, record, record.array, asked):
                chosen.setdefault(selection.job.job_id, selection)
    return [chosen[job_id] for job_id in sorted(chosen)]


def _of_array(cluster: Cluster, record: Job, array: ArrayTasks, asked: int) -> Iterator[Selection]:
    if asked & (array.waiting | array.cancelled):
        waiting = asked & array.waiting
        yield Selection(record, waiting, is_named=bool(waiting), asked=asked)
    for job_id in left_jobs(record, array, asked):
        yield Selection(cluster.jobs[job_id])


def left_jobs(record: Job, array: ArrayTasks, asked: int) -> list[JobId]:
    """The materialised tasks among `asked` that are in memory.

    It walks the asked tasks rather than all materialised ones, which may be many more.
    """
    left = asked & all_tasks(record.spec.array) & ~(array.waiting | array.cancelled)
    return [array.jobs[task] for task in tasks_in(left) if task in array.jobs]


def existing_tasks(record: Job, asked: int) -> int:
    """The tasks among `asked` that the array was submitted with; `Refusal` if there are none."""
    wanted = asked & all_tasks(record.spec.array)
    if not wanted:
        has = format_tasks(all_tasks(record.spec.array), 4)
        message = f"array {record.job_id} has no task {format_tasks(asked, 4)}"
        raise Refusal("unknown_task", message, f"it has {has}")
    return wanted


def _refuse_missing(record: Job, array: ArrayTasks, asked: int) -> None:
    """`Refusal` if the array has none of these tasks, or all of them are long over."""
    wanted = existing_tasks(record, asked)
    if not wanted & array.waiting and not left_jobs(record, array, wanted):
        what = "was cancelled" if wanted & array.cancelled else "ended long ago"
        raise Refusal("job_over", f"task {record.job_id}_{format_tasks(wanted, 4)} {what}", "gqacct shows it")


def known(cluster: Cluster, job_id: int) -> Job:
    """The job, or `Refusal`: never existed, or left memory."""
    job = cluster.jobs.get(JobId(job_id))
    if job is not None:
        return job
    if 0 < job_id < cluster.next_job_id:
        raise Refusal("job_over", f"job {job_id} ended long ago", "gqacct shows it")
    raise Refusal("unknown_job", f"job {job_id} does not exist", "gqstat lists the queue, gqacct ended jobs")


def known_array(cluster: Cluster, job_id: int) -> tuple[Job, ArrayTasks]:
    """The array with that id, or `Refusal`."""
    record = known(cluster, job_id)
    if record.array is None:
        hint = "a task is named by the id of its array" if record.array_job_id else f"name it as {job_id}"
        raise Refusal("not_an_array", f"job {job_id} is not an array and has no tasks", hint)
    return record, record.array


def one_of(cluster: Cluster, job_id: int, task: int | None) -> Job:
    """The single job that is named; for a waiting task its array's record.  `Refusal` as in `select`."""
    if task is None:
        return known(cluster, job_id)
    record, array = known_array(cluster, job_id)
    asked = tasks_asked(str(task))
    _refuse_missing(record, array, asked)
    return next(_of_array(cluster, record, array, asked)).job


def cancelled_in(cluster: Cluster, job_id: int, task: int | None) -> Job | None:
    """The record in which this task was cancelled; None: the task was not cancelled, or does not exist."""
    record = cluster.jobs.get(JobId(job_id))
    if task is None or record is None or record.array is None or not 0 <= task <= MAX_TASK:
        return None
    return record if record.array.cancelled & task_bit(task) else None


def started_one(cluster: Cluster, job_id: int, task: int | None) -> Job:
    """The single job that is named, which must not be an array or a waiting task (`Refusal`)."""
    job = one_of(cluster, job_id, task)
    if job.array is None:
        return job
    if task is not None:
        raise Refusal("not_running", f"task {job_id}_{task} is pending, not running")
    raise Refusal("is_array", f"job {job_id} is an array", f"name one of its tasks, for example {job_id}_{_any(job)}")


def _any(record: Job) -> int:
    """A task to give as an example."""
    assert record.array is not None
    return next(iter(record.array.jobs), first_task(all_tasks(record.spec.array)))


@lru_cache(maxsize=256)
def all_tasks(text: str) -> int:
    return parse_tasks(text)


class Extent(NamedTuple):
    """The array's bounds for the environment of its tasks; `step` is 1 if the task numbers are not evenly spaced."""

    least: int
    most: int
    step: int
    size: int


NO_ARRAY = Extent(0, 0, 1, 0)


@lru_cache(maxsize=256)
def extent_of(text: str) -> Extent:
    tasks = all_tasks(text)
    first, last, others = first_task(tasks), tasks.bit_length() - 1, tasks & (tasks - 1)
    step = first_task(others) - first if others else 1
    is_even = parse_tasks(f"{first}-{last}:{step}") == tasks
    return Extent(first, last, step if is_even else 1, tasks.bit_count())


# ── submit ────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse_bad_array(spec: JobSpec, policy: Policy) -> None:
    """`Refusal` if the array options of a new job are not valid."""
    if not spec.array:
        if spec.array_throttle is not None or spec.array_auto or spec.fail_fast or spec.sweep:
            raise Refusal("bad_array", "the job is not an array and has no tasks to limit", "give --array")
        return
    try:
        count = all_tasks(spec.array).bit_count()
    except ValueError as error:
        raise Refusal("bad_array", f"--array: {error}", "for example --array=1-100%8") from None
    max_tasks = policy.limits.array_tasks
    if count > max_tasks:
        hint = "submit several arrays; limits.array_tasks in gq.toml sets the maximum"
        raise Refusal("bad_array", f"the array has {count} tasks, the maximum is {max_tasks}", hint)
    if spec.is_interactive:
        raise Refusal("bad_array", "an interactive job cannot be an array", "submit it with gqsub")
    if spec.array_auto and spec.array_throttle is not None:
        raise Refusal("bad_array", "the array has both a limit on running tasks and `%auto`", "give one of them")
    if spec.sweep:
        _refuse_bad_sweep(spec)


def _refuse_bad_sweep(spec: JobSpec) -> None:
    try:
        check_sweep(spec.sweep)
    except ValueError as error:
        raise Refusal("bad_sweep", f"--sweep: {error}") from None
    count = tasks_of(spec.sweep)
    if all_tasks(spec.array) >> count:
        message = f"the array has tasks beyond the {count} combinations of its sweep"
        raise Refusal("bad_sweep", message, f"use tasks among 0-{count - 1}")


def width_of(spec: JobSpec) -> int:
    """Count of jobs that a submission counts as: its tasks, or 1."""
    return all_tasks(spec.array).bit_count() if spec.array else 1


# ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────


def array_room(cluster: Cluster) -> dict[JobId, int]:
    """Throttled array → how many more of its tasks may hold resources."""
    room = {}
    for job_id in cluster.arrays:
        array = cluster.jobs[job_id].array
        if array is not None and array.throttle is not None:
            room[job_id] = max(0, array.throttle - array.active)
    return room


def array_throttle(cluster: Cluster) -> dict[JobId, int]:
    """Throttled array → how many of its tasks may hold resources at once."""
    arrays = ((job_id, cluster.jobs[job_id].array) for job_id in cluster.arrays)
    return {job_id: array.throttle for job_id, array in arrays if array is not None and array.throttle is not None}


def auto_throttle(cluster: Cluster) -> AutoThrottleShares:
    """The arrays with `%auto`, whose tasks use idle resources, and the shares of all members."""
    arrays = frozenset(job_id for job_id in cluster.arrays if cluster.jobs[job_id].spec.array_auto)
    if not arrays:
        return NO_AUTO_THROTTLE
    return AutoThrottleShares(arrays, {member: known.info.shares for member, known in cluster.members.items()})


def may_start(cluster: Cluster, job: Job, task: int | None) -> bool:
    """Whether the array lets the job, or this task of a record, start now."""
    if (job.array is not None) != (task is not None):
        return False
    if job.array is not None and task is not None:
        return bool(startable_tasks(job) & task_bit(task)) and _has_room(job.array)
    record_entry = cluster.record_of(job)
    return record_entry is None or _has_room(record_entry[1])


def _has_room(array: ArrayTasks) -> bool:
    return array.throttle is None or array.active < array.throttle


def materialise_task(draft: TurnBuilder, record: Job, task: int) -> Job:
    """Make a waiting task a job of its own."""
    job_id = JobId(draft.cluster.next_job_id)
    draft.emit(event.ArrayTaskLeft(at=draft.now, array_job_id=record.job_id, task=task, job_id=job_id))
    return draft.cluster.jobs[job_id]


def materialise_tasks(draft: TurnBuilder, selection: Selection) -> list[Job]:
    """The jobs for exactly this selection: tasks that are only a part of their record are materialised."""
    if selection.is_whole:
        return [selection.job]
    return [materialise_task(draft, selection.job, task) for task in tasks_in(selection.tasks)]


def refuse_too_many(selections: Iterable[Selection]) -> None:
    """`Refusal` if the selections would materialise too many tasks at once; call it before any change."""
    leaving = sum(selection.width for selection in selections if not selection.is_whole)
    if leaving > MAX_NEW_JOBS:
        message = f"{leaving} tasks of a larger array would become separate jobs; the maximum is {MAX_NEW_JOBS} at once"
        raise Refusal("too_many_tasks", message, "name fewer tasks, or all pending tasks")


class Report:
    """The results of a request about many jobs, collected for its answer."""

    def __init__(self) -> None:
        self._job_ids: dict[JobId, None] = {}
        self._tasks: dict[JobId, int] = {}
        self._refused: list[tuple[int, str]] = []
        self._labels: list[tuple[int, str]] = []
        self._arrays: dict[JobId, None] = {}
        """Arrays in which some job or task was changed."""
        self._passed_over: dict[JobId, str] = {}
        """Array → why tasks that the request does not name individually could not be changed."""

    def did(self, selection: Selection) -> None:
        """Record a success.  Call it before the change, since a record is reported by its waiting tasks."""
        job = selection.job
        if job.array is not None:
            self._tasks[job.job_id] = self._tasks.get(job.job_id, 0) | selection.tasks
        if selection.is_whole:
            self._job_ids[job.job_id] = None
        self._arrays[_array_id(job)] = None

    def refuse(self, selection: Selection, why: str) -> None:
        array_id = _array_id(selection.job)
        if selection.is_named:
            self._refused.append((selection.job.job_id, why))
            if selection.job.array_job_id is not None:
                self._labels.append((selection.job.job_id, selection.job.label))
            elif not selection.is_whole:
                self._labels.append((selection.job.job_id, f"{selection.job.job_id}_[{format_tasks(selection.tasks)}]"))
        else:
            self._passed_over[array_id] = why

    def answer(self, skipped: Iterable[int] = (), is_reversed: bool = False) -> client.JobsDone:
        """The answer; `is_reversed`: list the results in reverse order."""
        passed_over = ((job_id, why) for job_id, why in self._passed_over.items() if job_id not in self._arrays)
        none_could = [(int(job_id), f"none of its tasks: {why}") for job_id, why in passed_over]
        order = -1 if is_reversed else 1
        return client.JobsDone(
            job_ids=tuple(self._job_ids)[::order],
            skipped=tuple(skipped),
            refused=(*self._refused[::order], *none_could),
            tasks=tuple([(int(job_id), format_tasks(tasks)) for job_id, tasks in self._tasks.items()]),
            labels=tuple(self._labels),
        )


def _array_id(job: Job) -> JobId:
    return job.job_id if job.array_job_id is None else job.array_job_id


# ── cancel ────────────────────────────────────────────────────────────────────────────────────────────────────


def cancel_tasks(draft: TurnBuilder, record: Job, tasks: int, why: str = "", reason: str = Reason.NONE.value) -> None:
    """Cancel tasks that wait in the record; `array_end` ends the record with its last task."""
    assert record.array is not None
    if tasks & record.array.waiting:
        packed = pack_tasks(tasks & record.array.waiting)
        job_id = record.job_id
        draft.emit(event.ArrayTasksCancelled(at=draft.now, array_job_id=job_id, tasks=packed, why=why, reason=reason))
