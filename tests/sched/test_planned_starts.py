"""Promised starts that were once given away, and what is only counted (memory) beside them."""

from __future__ import annotations

from gq.model.ids import JobId
from gq.model.resource import ResourceRequest
from gqd.sched.planner import plan_whole
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import PendingJob
from gqd.state.plan import Plan, WouldDelay
from tests.property.streams import MEMORY_MIB, Stream, node, scheduling


def cluster(protected_jobs: int) -> Stream:
    """One node with 8 CPUs, 4 GPUs and 1000 MiB; so many of those that wait are promised a start."""
    return Stream(0, scheduling("conservative", protected_jobs=protected_jobs), nodes=(node(1, 8, 4),))


def job(number: int, limit_s: int, gpus: int = 0, memory_mib: int | None = None) -> PendingJob:
    request = ResourceRequest(gpus=gpus or None, mem_per_node_mib=memory_mib, cpus_per_task=1)
    shape = shape_of(request, "main")
    return PendingJob(JobId(number), 0, "ada", shape, limit_s, is_held=False, begin_at=None)


def run(one: Stream, *jobs: PendingJob) -> None:
    one.pending = list(jobs)
    assert len(one.schedule().starts) == len(jobs)


def planned(one: Stream) -> Plan:
    plan = one.plan = plan_whole(one.snapshot())
    return plan


def promised(plan: Plan) -> dict[int, float]:
    assert all(one.is_promise for one in plan.protected)
    return {int(one.job_id): one.starts_at for one in plan.protected}


def test_a_promise_is_kept_while_it_is_tried_whether_its_job_can_start_earlier() -> None:
    """The first, which may start earlier since somebody ended early, once took the place of the second for that."""
    one = cluster(protected_jobs=2)
    run(one, job(1, 1000, gpus=1), job(2, 200, gpus=1), job(3, 100, gpus=1))
    one.pending = [job(4, 500, gpus=4), job(5, 300, gpus=2)]
    assert promised(planned(one)) == {4: 1000.0, 5: 100.0}
    one.now = 50.0
    one.end(JobId(1))

    plan = planned(one)

    assert [int(start.job_id) for start in plan.starts] == [5]
    assert promised(plan) == {4: 400.0}, "beside what was promised"
    one.start(one.pending[1], plan.starts[0].grants)
    one.plan = plan
    assert promised(planned(one)) == {4: 350.0}, "beside what became of it"


def test_memory_that_is_used_by_one_after_the_other_does_not_add_up() -> None:
    """What the second will use was once counted as if the second were there from the first's start on."""
    one = cluster(protected_jobs=2)
    run(one, job(1, 100, memory_mib=500), job(2, 200, memory_mib=300))
    one.pending = [job(3, 300, memory_mib=500), job(4, 300, memory_mib=500)]
    assert promised(planned(one)) == {3: 100.0, 4: 200.0}
    assert promised(planned(one)) == {3: 100.0, 4: 200.0}


def test_who_leaves_enough_memory_for_a_protected_job_may_run_beside_it() -> None:
    """What the protected one will use, after others have given it back, was once missing now."""
    one = cluster(protected_jobs=1)
    run(one, job(1, 100, memory_mib=700))
    one.pending = [job(2, 50, memory_mib=750), job(3, 1000, memory_mib=300), job(4, 1000, memory_mib=250)]

    plan = planned(one)

    assert promised(plan) == {2: 100.0}
    assert [int(start.job_id) for start in plan.starts] == [4], f"{MEMORY_MIB} MiB are enough for 750 and 250"
    one.pending.pop()
    assert planned(one).waits[JobId(3)] == WouldDelay(job_id=JobId(2), starts_at=100.0, ends_at=1000.0, nodes=("n1",))


def test_nothing_is_kept_any_more_for_a_wide_job_that_starts() -> None:
    """Two others had been promised starts; with these it was once kept a second time, and they waited for that."""
    one = Stream(0, scheduling("default"), nodes=(node(1, 8, 4), node(2, 8, 4)))
    one.now = 8000.0
    whole = ResourceRequest(nodes_min=2, gpus_per_node=4)
    run(one, wide(1, whole))
    one.pending = [job(2, 300, gpus=4), job(3, 300, gpus=4)]
    assert [(told.slot, told.starts_at) for told in planned(one).protected] == [("fair", 8100.0), ("oldest", 8100.0)]
    one.pending.append(wide(4, whole))
    assert [told.slot for told in planned(one).protected] == ["wide", "fair", "oldest"]
    one.now = 8100.0
    one.end(JobId(1))

    plan = planned(one)

    assert [int(start.job_id) for start in plan.starts] == [4]
    assert [(int(told.job_id), told.starts_at) for told in plan.protected] == [(2, 8200.0), (3, 8200.0)]


def wide(number: int, request: ResourceRequest) -> PendingJob:
    shape = shape_of(request, "main")
    return PendingJob(JobId(number), 0, "ada", shape, 100, is_held=False, begin_at=None)
