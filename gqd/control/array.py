"""Arrays: which jobs and waiting tasks a request means, and how tasks leave their record.  Pure.

An array is one job, its record; a task is a job of its own only once it has left it (see `ArrayTasks`).  Every request
that names jobs comes through `select`, so that ``7``, ``7_3`` and ``7_[2-8]`` mean the same to all of them.
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

MAX_LEAVING = 10_000
"""Tasks that one request may have leave their record: each becomes a job of its own, while everybody waits."""

ALL = -1
"""Every task, as a bit set."""

# ── which tasks ───────────────────────────────────────────────────────────────────────────────────────────────


class Selection(NamedTuple):
    """A job; or of an array's record those of the tasks that wait in it, a bit set."""

    job: Job
    tasks: int = 0
    is_named: bool = True
    """By itself, not only with all of its array: that it cannot be done is worth saying."""
    asked: int = ALL
    """Of a record: the tasks that were named, wherever they are."""

    @property
    def is_whole(self) -> bool:
        """Not a part of a record."""
        return self.job.array is None or self.tasks == self.job.array.waiting

    @property
    def width(self) -> int:
        return 1 if self.job.array is None else self.tasks.bit_count()


def select(cluster: Cluster, job_ids: Iterable[int], tasks: Mapping[int, str]) -> list[Selection]:
    """What these ids mean, by id; `Refusal` if one of them does not exist or is out of memory."""
    job_ids = tuple(job_ids)
    for job_id in job_ids:
        known(cluster, job_id)
    for array_id, text in tasks.items():
        _refuse_missing(*known_array(cluster, array_id), tasks_asked(text))
    return [one for one in named(cluster, job_ids, tasks) if one.job.array is None or one.tasks or one.is_named]


def named(cluster: Cluster, job_ids: Iterable[int], tasks: Mapping[int, str]) -> list[Selection]:
    """As `select`, by id; what is not there is passed over, and a record is there though nothing waits in it.

    The id of an array: its record, and all of its tasks that left and are in memory.
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
            for one in _of_array(cluster, record, record.array, asked):
                chosen.setdefault(one.job.job_id, one)
    return [chosen[job_id] for job_id in sorted(chosen)]


def _of_array(cluster: Cluster, record: Job, array: ArrayTasks, asked: int) -> Iterator[Selection]:
    if asked & (array.waiting | array.cancelled):
        waiting = asked & array.waiting
        yield Selection(record, waiting, is_named=bool(waiting), asked=asked)
    for job_id in left_jobs(record, array, asked):
        yield Selection(cluster.jobs[job_id])


def left_jobs(record: Job, array: ArrayTasks, asked: int) -> list[JobId]:
    """Of the tasks that have left and are in memory.

    Not by looking at each that is there: to look one up in a large set takes as long as to walk a small one.
    """
    left = asked & all_tasks(record.spec.array) & ~(array.waiting | array.cancelled)
    return [array.jobs[task] for task in tasks_in(left) if task in array.jobs]


def tasks_of_it(record: Job, asked: int) -> int:
    """Those of the tasks that the array was submitted with; `Refusal` if there is none."""
    wanted = asked & all_tasks(record.spec.array)
    if not wanted:
        has = format_tasks(all_tasks(record.spec.array), 4)
        message = f"array {record.job_id} has no task {format_tasks(asked, 4)}"
        raise Refusal("unknown_task", message, f"it has {has}")
    return wanted


def _refuse_missing(record: Job, array: ArrayTasks, asked: int) -> None:
    """`Refusal` if the array has none of these tasks, or all of them are long over."""
    wanted = tasks_of_it(record, asked)
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
    raise Refusal("unknown_job", f"job {job_id} does not exist", "gqstat lists the queue, gqacct what has ended")


def known_array(cluster: Cluster, job_id: int) -> tuple[Job, ArrayTasks]:
    record = known(cluster, job_id)
    if record.array is None:
        hint = "a task is named by the id of its array" if record.array_job_id else f"name it as {job_id}"
        raise Refusal("not_an_array", f"job {job_id} is no array, and has no tasks", hint)
    return record, record.array


def one_of(cluster: Cluster, job_id: int, task: int | None) -> Job:
    """The one job that is meant: of a task that waits its record; `Refusal` as of `select`."""
    if task is None:
        return known(cluster, job_id)
    record, array = known_array(cluster, job_id)
    asked = tasks_asked(str(task))
    _refuse_missing(record, array, asked)
    return next(_of_array(cluster, record, array, asked)).job


def cancelled_in(cluster: Cluster, job_id: int, task: int | None) -> Job | None:
    """The record in which this task was cancelled; None: it was not, or there is none."""
    record = cluster.jobs.get(JobId(job_id))
    if task is None or record is None or record.array is None or not 0 <= task <= MAX_TASK:
        return None
    return record if record.array.cancelled & task_bit(task) else None


def started_one(cluster: Cluster, job_id: int, task: int | None) -> Job:
    """As `one_of`, for what only a job that has left its record has."""
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
    """What a task is told of its array; `step` is 1 where the tasks are not evenly apart."""

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
    """`Refusal` unless the tasks, if there are any, can be an array's."""
    if not spec.array:
        if spec.array_throttle is not None or spec.array_auto or spec.fail_fast or spec.sweep:
            raise Refusal("bad_array", "the job is no array, and has no tasks to limit", "give --array")
        return
    try:
        count = all_tasks(spec.array).bit_count()
    except ValueError as error:
        raise Refusal("bad_array", f"--array: {error}", "for example --array=1-100%8") from None
    most = policy.limits.array_tasks
    if count > most:
        hint = "submit several; limits.array_tasks in gq.toml sets it"
        raise Refusal("bad_array", f"the array has {count} tasks, the most that one may have is {most}", hint)
    if spec.is_interactive:
        raise Refusal("bad_array", "an interactive job cannot be an array", "submit it with gqsub")
    if spec.array_auto and spec.array_throttle is not None:
        raise Refusal("bad_array", "the array has both a number of tasks at once and `%auto`", "give one of them")
    if spec.sweep:
        _refuse_bad_sweep(spec)


def _refuse_bad_sweep(spec: JobSpec) -> None:
    try:
        check_sweep(spec.sweep)
    except ValueError as error:
        raise Refusal("bad_sweep", f"--sweep: {error}") from None
    count = tasks_of(spec.sweep)
    if all_tasks(spec.array) >> count:
        message = f"the array has other tasks than the {count} combinations of its sweep"
        raise Refusal("bad_sweep", message, f"its tasks are among 0-{count - 1}")


def width_of(spec: JobSpec) -> int:
    """How many jobs it will count as."""
    return all_tasks(spec.array).bit_count() if spec.array else 1


# ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────


def array_room(cluster: Cluster) -> dict[JobId, int]:
    """By array with a throttle: how many more of its tasks may hold resources."""
    room = {}
    for job_id in cluster.arrays:
        array = cluster.jobs[job_id].array
        if array is not None and array.throttle is not None:
            room[job_id] = max(0, array.throttle - array.active)
    return room


def array_throttle(cluster: Cluster) -> dict[JobId, int]:
    """By array with a throttle: how many of its tasks may hold resources."""
    arrays = ((job_id, cluster.jobs[job_id].array) for job_id in cluster.arrays)
    return {job_id: array.throttle for job_id, array in arrays if array is not None and array.throttle is not None}


def auto_throttle(cluster: Cluster) -> AutoThrottleShares:
    """The arrays that take what is idle."""
    arrays = frozenset(job_id for job_id in cluster.arrays if cluster.jobs[job_id].spec.array_auto)
    if not arrays:
        return NO_AUTO_THROTTLE
    return AutoThrottleShares(arrays, {member: known.info.shares for member, known in cluster.members.items()})


def may_start(cluster: Cluster, job: Job, task: int | None) -> bool:
    """The job, or this task of a record, as far as its array goes."""
    if (job.array is not None) != (task is not None):
        return False
    if job.array is not None and task is not None:
        return bool(startable_tasks(job) & task_bit(task)) and _has_room(job.array)
    known_record = cluster.record_of(job)
    return known_record is None or _has_room(known_record[1])


def _has_room(array: ArrayTasks) -> bool:
    return array.throttle is None or array.active < array.throttle


def materialise_task(draft: TurnBuilder, record: Job, task: int) -> Job:
    """The task becomes a job of its own."""
    job_id = JobId(draft.cluster.next_job_id)
    draft.emit(event.ArrayTaskLeft(at=draft.now, array_job_id=record.job_id, task=task, job_id=job_id))
    return draft.cluster.jobs[job_id]


def materialise_tasks(draft: TurnBuilder, one: Selection) -> list[Job]:
    """The jobs that stand for exactly this: the tasks leave a record of which they are only a part."""
    if one.is_whole:
        return [one.job]
    return [materialise_task(draft, one.job, task) for task in tasks_in(one.tasks)]


def refuse_too_many(chosen: Iterable[Selection]) -> None:
    """Before anything is changed."""
    leaving = sum(one.width for one in chosen if not one.is_whole)
    if leaving > MAX_LEAVING:
        message = f"{leaving} tasks of a larger array would become jobs of their own, at most {MAX_LEAVING} at once"
        raise Refusal("too_many_tasks", message, "name fewer, or all that still wait")


class Report:
    """What a request about many jobs came to, for its answer."""

    def __init__(self) -> None:
        self._job_ids: dict[JobId, None] = {}
        self._tasks: dict[JobId, int] = {}
        self._refused: list[tuple[int, str]] = []
        self._labels: list[tuple[int, str]] = []
        self._arrays: dict[JobId, None] = {}
        """Of which something was done."""
        self._passed_over: dict[JobId, str] = {}
        """Arrays of which something could not be done that was not named by itself."""

    def did(self, one: Selection) -> None:
        """Called before it changes: a part of a record is told by its tasks, all that waits in it by its id, too."""
        job = one.job
        if job.array is not None:
            self._tasks[job.job_id] = self._tasks.get(job.job_id, 0) | one.tasks
        if one.is_whole:
            self._job_ids[job.job_id] = None
        self._arrays[_array_id(job)] = None

    def refuse(self, one: Selection, why: str) -> None:
        array_id = _array_id(one.job)
        if one.is_named:
            self._refused.append((one.job.job_id, why))
            if one.job.array_job_id is not None:
                self._labels.append((one.job.job_id, one.job.label))
            elif not one.is_whole:
                self._labels.append((one.job.job_id, f"{one.job.job_id}_[{format_tasks(one.tasks)}]"))
        else:
            self._passed_over[array_id] = why

    def answer(self, skipped: Iterable[int] = (), is_reversed: bool = False) -> client.JobsDone:
        """`is_reversed`: what was done last is told first."""
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
    """Tasks that wait in the record never will start; how it ends `array_end` says."""
    assert record.array is not None
    if tasks & record.array.waiting:
        packed = pack_tasks(tasks & record.array.waiting)
        job_id = record.job_id
        draft.emit(event.ArrayTasksCancelled(at=draft.now, array_job_id=job_id, tasks=packed, why=why, reason=reason))
        draft.volatile.wants_plan = True
