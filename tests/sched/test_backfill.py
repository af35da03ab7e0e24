"""Who overtakes whom: the orders and what may fill holes, slots, promises and estimates, passes that are cut short."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gq.model.ids import JobId
from gq.model.resource import ResourceRequest
from gq.model.scheduling import Scheduling
from gqd.sched.backfill.starvation import starvation_guards
from gqd.sched.planner import Planner, plan_whole
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import PendingJob, Snapshot
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.plan import BehindPlannedStart, Insufficient, Plan, WouldDelay
from gqd.state.policy import Partition, Policy
from tests.property.streams import Stream, node, scheduling

TWO_NODES = (node(1, 8, 8), node(2, 8, 8))
EASY = scheduling("easy-user")


def stream(policy: Scheduling = EASY, nodes: tuple[NodeFacts, ...] = TWO_NODES) -> Stream:
    return Stream(0, policy, nodes=nodes)


def job(number: int, gpus: int, limit_s: int | None = None, **fields: Any) -> PendingJob:
    """A job of so many GPUs, over two nodes where one has too few."""
    shape = shape_of(ResourceRequest(gpus=gpus, is_dense=True), fields.pop("partition", "main"))
    return PendingJob(JobId(number), 0, "ada", shape, limit_s, is_held=False, begin_at=None, **fields)


def running(one: Stream, number: int, gpus: int, limit_s: int | None, **fields: Any) -> None:
    """It started at once, on the first node that has room."""
    known = job(number, gpus, limit_s, **fields)
    one.pending.append(known)
    (start,) = plan_whole(replace(one.snapshot(), pending=(known,), protected=())).starts
    one.start(known, start.grants)


def started(plan: Plan) -> list[int]:
    return [int(start.job_id) for start in plan.starts]


def planned(one: Stream, *pending: PendingJob) -> Plan:
    one.pending = list(pending)
    return plan_whole(one.snapshot())


# ── what those behind a blocked job may do ────────────────────────────────────────────────────────────────────


def test_with_none_a_blocked_job_stops_everybody_behind_it_in_its_partition_and_nobody_else() -> None:
    one = stream(scheduling("fifo"))
    one.policy = Policy(
        owner_uid=0, scheduling=one.scheduling, partitions=(Partition(name="main"), Partition(name="other"))
    )
    running(one, 1, 4, 100)
    plan = planned(one, job(2, 4), job(3, 16), job(4, 1, 10), job(5, 1, partition="other"))
    assert started(plan) == [2, 5]
    assert isinstance(plan.waits[JobId(3)], Insufficient)
    assert plan.waits[JobId(4)] == BehindPlannedStart(JobId(3))


def test_with_skip_everybody_starts_who_fits() -> None:
    one = stream(scheduling("fifo-skip"))
    running(one, 1, 4, 100)
    assert started(planned(one, job(2, 16), job(3, 13), job(4, 8, 10**6), job(5, 1))) == [4, 5]


def test_with_protect_the_first_that_is_blocked_is_delayed_by_nobody() -> None:
    one = stream()
    running(one, 1, 8, 100)
    plan = planned(one, job(2, 16, 50), job(3, 2, 100), job(4, 2, 101), job(5, 2, None), job(6, 3, 99))
    assert started(plan) == [3, 6], "who is over by then"
    (first,) = plan.protected
    assert (first.job_id, first.slot, first.starts_at, first.is_promise) == (2, "first", 100.0, True)
    assert plan.waits[JobId(4)] == WouldDelay(job_id=JobId(2), starts_at=100.0, ends_at=101.0, nodes=("n2",))
    assert plan.waits[JobId(5)] == WouldDelay(job_id=JobId(2), starts_at=100.0, ends_at=None, nodes=("n2",))


def test_who_takes_nothing_that_is_kept_may_take_as_long_as_it_likes() -> None:
    one = stream()
    running(one, 1, 6, 100)
    running(one, 2, 7, 200)
    plan = planned(one, job(3, 8, 50), job(4, 1, None))
    assert plan.protected[0].nodes == ("n1",)
    assert [(int(start.job_id), start.grants[0].node) for start in plan.starts] == [(4, "n2")]


def test_several_protected_jobs_follow_one_another_and_holes_are_beside_all_of_them() -> None:
    one = stream(scheduling("conservative"))
    running(one, 1, 16, 100)
    plan = planned(one, job(2, 16, 50), job(3, 8, 1000), job(4, 8, 1000), job(5, 8, 10))
    assert [(int(told.job_id), told.starts_at) for told in plan.protected] == [
        (2, 100.0),
        (3, 150.0),
        (4, 150.0),
        (5, 1150.0),
    ]


# ── promises and estimates ────────────────────────────────────────────────────────────────────────────────────


def test_a_start_behind_jobs_without_limits_is_an_estimate_by_what_is_expected() -> None:
    one = stream(scheduling("default", protected_jobs=1))
    running(one, 1, 8, None, expected_s=100.0)
    plan = planned(one, job(2, 16), job(3, 1, None, expected_s=90.0), job(4, 1, None, expected_s=110.0))
    assert started(plan) == [3]
    assert (plan.protected[0].starts_at, plan.protected[0].is_promise) == (100.0, False)


def test_who_is_overdue_is_expected_to_run_as_long_again_as_it_has() -> None:
    one = stream(scheduling("default", protected_jobs=1))
    running(one, 1, 8, None, expected_s=100.0)
    one.now = 150.0
    assert planned(one, job(2, 16)).protected[0].starts_at == 300.0


def test_a_prediction_makes_no_promise_earlier_than_the_limits_do() -> None:
    one = stream(scheduling("default", protected_jobs=1))
    running(one, 1, 8, 1000, expected_s=100.0)
    plan = planned(one, job(2, 16), job(3, 1, None, expected_s=10.0), job(4, 1, 1000))
    assert (plan.protected[0].starts_at, plan.protected[0].is_promise) == (1000.0, True)
    assert started(plan) == [4], "what is only predicted to be over must not make a promise slip"


def test_what_nobody_knows_the_end_of_is_not_waited_for_by_limits_alone() -> None:
    one = stream()
    one.scheduling = scheduling("easy-user")
    running(one, 1, 8, None)
    plan = planned(one, job(2, 16), job(3, 1, None))
    assert plan.protected == () and started(plan) == [3]


# ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_oldest_wide_job_is_protected_when_it_has_waited_for_ten_minutes() -> None:
    one = stream(scheduling("default"))
    running(one, 1, 8, 5000)
    one.now = 700.0
    young = planned(one, job(2, 4, 9000, since=650.0), job(3, 16, 100, since=101.0), job(4, 10, 100, since=102.0))
    assert started(young) == [2] and young.protected == ()
    one.now = 701.0
    old = planned(one, job(2, 4, 9000, since=650.0), job(3, 16, 100, since=101.0), job(4, 10, 100, since=102.0))
    assert started(old) == []
    assert [(int(told.job_id), told.slot, told.starts_at) for told in old.protected] == [(3, "wide", 5000.0)]


def test_any_job_is_protected_when_it_has_waited_for_two_hours_and_its_slot_holds_no_more_than_its_share_with_it() -> (
    None
):
    one = stream(scheduling("default"), TWO_NODES[:1])
    running(one, 1, 1, 90000)
    running(one, 2, 1, 90000)
    one.now = 7300.0
    waiting = (job(3, 8, 100, since=50.0), job(4, 6, 90000, since=7200.0))
    plan = planned(one, *waiting)
    assert started(plan) == [] and [(int(told.job_id), told.slot) for told in plan.protected] == [(3, "fair")]
    holder, *others = one.running.values()
    held = (replace(holder, slot="fair"), *others)
    taken = plan_whole(replace(one.snapshot(), running=held)).protected[0]
    assert taken.slot == "oldest", "fair holds something, and with 8 more it would hold more than a fifth"


def test_while_wide_jobs_wait_the_other_slots_promise_nothing() -> None:
    one = stream(scheduling("default"))
    running(one, 1, 8, 10000)
    running(one, 2, 8, 10000)
    one.now = 7300.0
    alone, wide = job(3, 8, 100, since=50.0), job(4, 16, 100, since=7299.0)
    assert [(told.slot, told.is_promise) for told in planned(one, alone, wide).protected] == [("fair", False)]
    promising = planned(one, alone)
    assert [(told.slot, told.is_promise) for told in promising.protected] == [("fair", True)]
    kept = replace(one.snapshot(), pending=(alone, job(5, 8, 100, since=50.0)), protected=promising.protected)
    assert [(int(told.job_id), told.is_promise) for told in plan_whole(kept).protected] == [(3, True), (5, True)]


def test_beside_a_wide_job_that_is_promised_a_start_the_other_slots_promise_nothing_as_it_may_start_earlier() -> None:
    one = stream(scheduling("default"))
    running(one, 1, 8, 10000)
    running(one, 2, 8, 8000)
    one.now = 7300.0
    alone, wide = job(3, 8, 100, since=50.0), job(4, 16, 400, since=6000.0)
    before = planned(one, alone, wide)
    told = [(int(told.job_id), told.starts_at, told.is_promise) for told in before.protected]
    assert told == [(4, 10000.0, True), (3, 8000.0, False)]
    freed = replace(one.snapshot(), now=7900.0, running=(), free_gpus=(255, 255), free_cpus=(255, 255))
    assert started(plan_whole(replace(freed, protected=before.protected))) == [4]


def test_who_is_protected_for_being_first_does_not_start_earlier_where_that_would_break_what_a_slot_promised() -> None:
    one = stream(scheduling("default", protected_jobs=1), TWO_NODES[:1])
    running(one, 1, 4, 8000)
    running(one, 2, 4, 9000)
    one.now = 7300.0
    fair, first = job(3, 8, 100, since=50.0), job(4, 4, 2000, since=7000.0)
    before = planned(one, first, fair)
    assert {int(told.job_id): (told.slot, told.starts_at) for told in before.protected} == {
        3: ("fair", 9000.0),
        4: ("first", 9100.0),
    }
    one.end(JobId(1))
    after = plan_whole(replace(one.snapshot(), now=7400.0, protected=before.protected))
    assert started(after) == [], "it would still run at 9000"
    assert {int(told.job_id): told.starts_at for told in after.protected} == {3: 9000.0, 4: 9100.0}


def test_a_promise_is_kept_also_where_one_of_the_same_shape_is_known_not_to_fit() -> None:
    one = stream(scheduling("default", protected_jobs=1), TWO_NODES[:1])
    running(one, 1, 8, 10000)
    one.now = 7300.0
    waiting = (job(5, 8, 300, since=7200.0), job(3, 8, 100, since=50.0), job(4, 6, 50, since=60.0))
    promised = {3: 10000.0, 4: 10100.0, 5: 10150.0}
    before = planned(one, *waiting)
    assert {int(told.job_id): told.starts_at for told in before.protected} == promised
    after = plan_whole(replace(one.snapshot(), now=7310.0, protected=before.protected))
    assert {int(told.job_id): told.starts_at for told in after.protected} == promised


def test_who_starts_from_a_slot_is_counted_to_it() -> None:
    one = stream(scheduling("default"))
    one.now = 8000.0
    plan = planned(one, job(2, 2, 100, since=0.0), job(3, 3, 100, since=7999.0))
    assert [(int(start.job_id), start.slot) for start in plan.starts] == [(2, "fair"), (3, "")]


def test_each_slot_can_be_switched_off() -> None:
    assert [slot.name for slot in starvation_guards(Scheduling())] == ["wide", "fair", "oldest"]
    assert starvation_guards(Scheduling(protect_wide_after_s=None, protect_any_after_s=None)) == ()
    assert starvation_guards(Scheduling(backfill="skip")) == ()


# ── passes that are cut short ─────────────────────────────────────────────────────────────────────────────────


def test_a_pass_that_is_cut_short_is_gone_on_with_so_that_everybody_is_reached() -> None:
    """500 jobs of as many shapes ahead of one that fits: with steps for a few dozen, each pass gets further."""
    one = stream(msgspec.structs.replace(scheduling("fifo-skip"), plan_steps=60))
    running(one, 1, 8, 10**6)
    one.pending = [job(number, 16, 100, since=float(number)) for number in range(2, 502)]
    apart = [
        replace(this, shape=this.shape._replace(mem_per_node_mib=number)) for number, this in enumerate(one.pending, 1)
    ]
    one.pending = [*apart, job(1000, 1)]
    passes = 0
    while JobId(1000) not in one.started_at:
        planner = Planner()
        planner.begin(one.snapshot())
        while (plan := planner.step(10)) is None:
            pass
        one.plan = plan
        for start in plan.starts:
            one.start(next(this for this in one.pending if this.job_id == start.job_id), start.grants)
        passes += 1
        assert plan.resumes_at is not None or plan.starts
        assert passes < 100
    assert passes > 2, "it was cut short"


def test_a_brief_plan_starts_the_same_jobs() -> None:
    for seed in range(8):
        one = Stream(seed, scheduling("default", protect_wide_after_s=50.0, protect_any_after_s=100.0))
        for _ in range(12):
            one.go_on()
            snapshot, planner = one.snapshot(), Planner()
            planner.begin(snapshot, skip_planned_starts=True)
            brief = planner.step(10**9)
            assert brief is not None and brief.starts == plan_whole(snapshot).starts
            one.schedule()


def test_512_gpus_are_given_to_one_gang_in_one_pass() -> None:
    nodes = tuple(node(number, 8, 8) for number in range(64))
    shape = shape_of(ResourceRequest(nodes_min=64, gpus_per_node=8), "main")
    gang = PendingJob(JobId(1), 0, "ada", shape, 100, is_held=False, begin_at=None)
    snapshot: Snapshot = replace(stream(nodes=nodes).snapshot(), pending=(gang,))
    (start,) = plan_whole(snapshot).starts
    assert sum(len(grant.gpus) for grant in start.grants) == 512
