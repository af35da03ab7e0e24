"""What must always hold of arrays and their tasks.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gq.model.state import JobState, Outcome
from gq.model.tasks import parse_tasks, task_bit

if TYPE_CHECKING:
    from gqd.state.cluster import Cluster
    from gqd.state.records import ArrayTasks, Job


def check(cluster: Cluster) -> None:
    """Invariant 10; see `gqd.state.cluster`."""
    for job in cluster.jobs.values():
        if job.array is not None:
            _check_array(cluster, job, job.array)


def _check_array(cluster: Cluster, record: Job, array: ArrayTasks) -> None:
    """Each task is in exactly one place, and what the sets say of it is what its job says."""
    name, whole = f"10: array {record.job_id}", parse_tasks(record.spec.array)
    sets = (array.waiting, array.cancelled, array.succeeded, array.failed)
    together = _union(sets)
    assert sum(one.bit_count() for one in sets) == together.bit_count(), f"{name} has a task twice"
    assert not together & ~whole, f"{name} has tasks that it was not submitted with"
    own = {j.array_task_id or 0: j for j in cluster.jobs.values() if j.array_job_id == record.job_id}
    assert {task: job.job_id for task, job in own.items()} == array.jobs, f"{name} does not know its jobs"
    for task, job in own.items():
        bit = task_bit(task)
        assert not bit & (array.waiting | array.cancelled), f"{name}: task {task} left, and is in the record, too"
        said = (bool(array.succeeded & bit), bool(array.failed & bit))
        ended = (job.outcome is Outcome.COMPLETED, job.outcome not in (None, Outcome.COMPLETED))
        assert said == ended, f"{name}: task {task} is {job.outcome}, the sets say {said}"
    left = whole & ~together
    not_over = _union(task_bit(task) for task, job in own.items() if job.outcome is None)
    assert left == not_over, f"{name} lost a task"
    assert array.active == sum(job.holds_resources for job in own.values()), f"{name} miscounts what runs"
    is_over = not array.waiting and not left
    assert is_over == (record.state is JobState.ENDED), f"{name} is {record.state}, over: {is_over}"


def _union(sets: Iterable[int]) -> int:
    whole = 0
    for one in sets:
        whole |= one
    return whole
