"""What reservations mean to the planner: who keeps off, who starts inside, and what is said of who waits for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gq.model.account import AccountInfo, Holder, LimitInfo
from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest
from gq.model.scheduling import PRESETS
from gqd.sched.forecast import Forecast, ForecastInput
from gqd.sched.limits.ledger import LimitView
from gqd.sched.planner import plan_whole
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import PendingJob, ReservedOccurrence, RunningJob, Snapshot
from gqd.state.plan import (
    BehindPlannedStart,
    Insufficient,
    NotInReservation,
    OverLimit,
    Plan,
    ReservationBegins,
    ReservationTooShort,
    RunsIntoReservation,
    Start,
)
from tests.property.streams import Stream, node, scheduling

CLEAR_S = 10.0
EASY = "easy-user"


def job(number: int, gpus: int = 1, limit_s: int | None = 100, **fields: Any) -> PendingJob:
    asked = {key: fields.pop(key) for key in list(fields) if key in ResourceRequest.__struct_fields__}
    request = ResourceRequest(**({"gpus": gpus} if gpus else {}), **asked)
    fields = {"user": "ada", "is_held": False, "begin_at": None, "attempt": 0} | fields
    return PendingJob(job_id=JobId(number), shape=shape_of(request, "main"), time_limit_s=limit_s, **fields)


def named(number: int, gpus: int = 1, limit_s: int | None = 100, **fields: Any) -> PendingJob:
    return job(number, gpus, limit_s, reservation="talk", **fields)


def half(name: str, memory_mib: int = 500, first: int = 0) -> Grant:
    """Four of the eight CPUs and GPUs of a node."""
    ids = tuple(range(first, first + 4))
    return Grant(node=name, cpus=ids, gpus=ids, memory_mib=memory_mib)


def whole(name: str) -> Grant:
    return Grant(node=name, cpus=tuple(range(8)), gpus=tuple(range(8)), memory_mib=1000)


def booked(begin_at: float, end_at: float, *grants: Grant, number: int = 1, **fields: Any) -> ReservedOccurrence:
    fields = {"name": "talk", "owner": "ada"} | fields
    return ReservedOccurrence(
        number=number, clear_at=begin_at - CLEAR_S, begin_at=begin_at, end_at=end_at, grants=grants, **fields
    )


def runs(number: int, ends_at: float, *grants: Grant, **fields: Any) -> RunningJob:
    return RunningJob(JobId(number), "bob", grants, ends_at, **fields)


def view(
    *pending: PendingJob,
    reserved: tuple[ReservedOccurrence, ...] = (),
    running: tuple[RunningJob, ...] = (),
    now: float = 0.0,
    policy: str = EASY,
    nodes: int = 1,
    **fields: Any,
) -> Snapshot:
    """Nodes of eight CPUs and GPUs each, and 1000 MiB."""
    stream = Stream(0, scheduling(policy), nodes=tuple(node(number, 8, 8) for number in range(1, nodes + 1)), now=now)
    stream.running = {one.job_id: one for one in running}
    stream.pending = list(pending)
    return replace(stream.snapshot(), booked=reserved, **fields)


def planned(*pending: PendingJob, **fields: Any) -> Plan:
    return plan_whole(view(*pending, **fields))


def started(plan: Plan) -> list[int]:
    return [int(start.job_id) for start in plan.starts]


def the_start(plan: Plan) -> Start:
    [start] = plan.starts
    return start


def insufficient(plan: Plan, number: int) -> Insufficient:
    wait = plan.waits[JobId(number)]
    assert isinstance(wait, Insufficient)
    return wait


# ── who does not use it, before it begins ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_a_job_may_have_what_is_reserved_if_its_limit_ends_when_that_is_to_be_clear(policy: str) -> None:
    reserved = (booked(200, 400, whole("n1")),)
    assert started(planned(job(1, 8, 190), reserved=reserved, policy=policy)) == [1]


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_no_job_runs_into_what_is_reserved_whatever_the_policy(policy: str) -> None:
    plan = planned(job(1, 8, 191, expected_s=5.0), reserved=(booked(200, 400, whole("n1")),), policy=policy)
    assert started(plan) == []
    assert plan.waits[JobId(1)] == RunsIntoReservation(
        name="talk", clear_at=190, begins_at=200, ends_at=191, nodes=("n1",)
    )


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_a_job_takes_what_is_beside_it(policy: str) -> None:
    plan = planned(job(1, 4, 1000), reserved=(booked(200, 400, half("n1")),), policy=policy)
    assert the_start(plan).grants[0].gpus == (4, 5, 6, 7)


def test_a_job_without_a_limit_runs_into_everything() -> None:
    plan = planned(job(1, 8, None), reserved=(booked(10**6, 10**6 + 1, whole("n1")),))
    wait = plan.waits[JobId(1)]
    assert isinstance(wait, RunsIntoReservation) and wait.ends_at is None


@pytest.mark.parametrize("policy", ["fifo", "sjf", "fifo-skip"])
def test_who_only_waits_for_a_reservation_to_pass_stops_nobody(policy: str) -> None:
    plan = planned(job(1, 8, 500), job(2, 4, 100), reserved=(booked(200, 400, whole("n1")),), policy=policy)
    assert started(plan) == [2]


def test_who_is_first_is_promised_a_start_after_it_and_nobody_behind_delays_that() -> None:
    reserved = (booked(200, 400, whole("n1")),)
    plan = planned(job(1, 8, 500), job(2, 4, 190), job(3, 4, 300), reserved=reserved)
    [first] = plan.protected
    assert (first.job_id, first.starts_at, first.is_promise) == (1, 400, True)
    assert started(plan) == [2], "what is free before is used"


def test_a_promised_start_is_in_no_reservation_that_comes_later() -> None:
    held = runs(9, 100, whole("n1"))
    reserved = (booked(150, 300, half("n1")), booked(350, 600, half("n1", first=4), name="other"))
    plan = planned(job(1, 8, 50), reserved=reserved, running=(held,))
    assert plan.protected[0].starts_at == 600, "neither 100 … 150 nor 300 … 350 leaves room to clear it"
    assert planned(job(1, 8, 30), reserved=reserved, running=(held,)).protected[0].starts_at == 100


def test_an_estimate_counts_limits_before_what_is_reserved() -> None:
    endless = replace(runs(9, 0, half("n1"), expected_s=50.0), ends_at=None)
    reserved = (booked(200, 400, whole("n1")),)
    plan = planned(job(1, 8, 500, expected_s=5.0), reserved=reserved, running=(endless,), policy="conservative")
    [first] = plan.protected
    assert (first.starts_at, first.is_promise) == (400, False)


def test_memory_is_kept_too() -> None:
    reserved = (booked(200, 400, half("n1", memory_mib=800)),)
    plan = planned(job(1, 1, 300, mem_per_gpu_mib=300), job(2, 1, 300, mem_per_gpu_mib=200), reserved=reserved)
    assert started(plan) == [2]
    assert isinstance(plan.waits[JobId(1)], RunsIntoReservation)


def test_memory_that_comes_back_before_it_begins_may_be_taken_now() -> None:
    held = runs(9, 150, Grant(node="n1", cpus=(7,), gpus=(7,), memory_mib=500))
    reserved = (booked(200, 400, half("n1", memory_mib=600)),)
    plan = planned(job(1, 1, 300, mem_per_gpu_mib=400), reserved=reserved, running=(held,))
    assert started(plan) == [1]


def test_guarantees_do_not_reach_what_is_reserved() -> None:
    limits = LimitView(accounts={"team": AccountInfo(name="team", guaranteed_gpus=8)})
    reserved = (booked(200, 400, whole("n1")),)
    assert started(planned(job(1, 8, 500, account="team"), reserved=reserved, limits=limits)) == []


def test_slots_for_who_waits_longest_do_not_either() -> None:
    old = job(1, 8, 500, since=-(10.0**7))
    plan = planned(old, reserved=(booked(200, 400, whole("n1")),), policy="default")
    assert started(plan) == [] and plan.protected[0].starts_at >= 400


# ── who does not use it, while it is under way ────────────────────────────────────────────────────────────────


def test_what_nobody_holds_of_it_is_not_free_and_is_said_to_be_kept() -> None:
    plan = planned(job(1, 5, user="bob"), reserved=(booked(0, 400, half("n1")),), now=100)
    wait = insufficient(plan, 1)
    assert (wait.wanted, wait.free, wait.starts_at) == (5, 4, 400)
    [holder] = wait.holders
    assert (holder.reservation, holder.gpus, holder.nodes, holder.ends_at) == ("talk", 4, ("n1",), 400)


def test_it_is_kept_from_when_it_is_to_be_clear() -> None:
    reserved = (booked(200, 400, whole("n1")),)
    plan = planned(job(1, 1, 1), reserved=reserved, now=195)
    assert started(plan) == [] and insufficient(plan, 1).starts_at == 400


def test_what_ends_inside_does_not_come_back_to_others_before_it_is_over() -> None:
    inside = runs(9, 150, half("n1"), reservation="talk", occurrence=1)
    plan = planned(job(1, 8, user="bob"), reserved=(booked(0, 400, half("n1")),), running=(inside,), now=100)
    assert plan.protected[0].starts_at == 400
    assert insufficient(plan, 1).starts_at == 400


def test_what_goes_on_beyond_it_is_waited_for() -> None:
    outlives = runs(9, 700, half("n1"), reservation="talk", occurrence=1)
    plan = planned(job(1, 8, user="bob"), reserved=(booked(0, 400, half("n1")),), running=(outlives,), now=100)
    assert plan.protected[0].starts_at == 700


def test_of_two_one_after_the_other_the_second_keeps_what_the_first_gives_back() -> None:
    first, second = booked(0, 400, whole("n1")), booked(400, 600, whole("n1"), name="next")
    plan = planned(job(1, 8, user="bob"), reserved=(first, second), now=395)
    assert plan.protected[0].starts_at == 600


def test_one_that_is_over_keeps_nothing_though_no_tick_has_ended_it() -> None:
    assert started(planned(job(1, 8), reserved=(booked(0, 400, whole("n1")),), now=400)) == [1]


# ── who uses it ───────────────────────────────────────────────────────────────────────────────────────────────


def test_who_names_one_waits_until_it_begins() -> None:
    plan = planned(named(1), reserved=(booked(200, 400, half("n1")),), now=199)
    assert (started(plan), plan.waits[JobId(1)]) == ([], ReservationBegins(name="talk", at=200))


def test_who_names_one_starts_on_what_it_keeps_only() -> None:
    reserved = (booked(200, 400, half("n1", first=4)),)
    start = the_start(planned(named(1, 2), reserved=reserved, now=200))
    assert (start.reservation, start.occurrence, start.grants[0].gpus) == ("talk", 1, (4, 5))
    plan = planned(named(1, 2), named(2, 4), reserved=reserved, now=200)
    assert started(plan) == [1], "outside there would be room"
    assert (insufficient(plan, 2).wanted, insufficient(plan, 2).free) == (4, 2)


def test_who_is_first_inside_goes_before_who_is_first_outside() -> None:
    plan = planned(job(1, 8, user="bob"), named(2, 4), reserved=(booked(0, 400, half("n1")),))
    assert started(plan) == [2] and plan.protected[0].job_id == 1


def test_memory_inside_is_what_is_kept_there() -> None:
    reserved = (booked(0, 400, half("n1", memory_mib=500)),)
    inside = runs(9, 300, Grant(node="n1", cpus=(0,), gpus=(0,), memory_mib=300), reservation="talk", occurrence=1)
    big, small = named(1, 1, mem_per_gpu_mib=300), named(2, 1, mem_per_gpu_mib=200)
    assert started(planned(big, small, reserved=reserved, running=(inside,))) == [2]


def test_a_job_that_would_not_be_over_with_it_waits_and_the_next_that_is_long_enough_is_named() -> None:
    now, later = booked(0, 400, half("n1")), booked(1000, 1600, half("n1"), number=2)
    plan = planned(named(1, 1, 301), named(2, 1, 300), named(3, 1, 601), reserved=(now, later), now=100)
    assert started(plan) == [2]
    told = {"name": "talk", "begins_at": 0, "ends_at": 400, "longest_s": 300}
    assert plan.waits[JobId(1)] == ReservationTooShort(**told, next_at=1000)
    assert plan.waits[JobId(3)] == ReservationTooShort(**told, next_at=None)


def test_a_job_that_is_longer_than_one_that_is_to_come_is_told_so_at_once() -> None:
    plan = planned(named(1, 1, 201), reserved=(booked(200, 400, half("n1")),))
    told = ReservationTooShort(name="talk", begins_at=200, ends_at=400, longest_s=200, next_at=None)
    assert plan.waits[JobId(1)] == told


def test_who_waits_for_room_inside_is_promised_none_beyond_its_end() -> None:
    reserved = (booked(0, 400, half("n1")),)
    inside = runs(9, 350, half("n1"), reservation="talk", occurrence=1)
    plan = planned(named(1, 4, 100), reserved=reserved, running=(inside,), now=100)
    assert plan.protected == () and insufficient(plan, 1).starts_at is None
    plan = planned(named(1, 4, 50), reserved=reserved, running=(inside,), now=100)
    assert [(one.reservation, one.starts_at) for one in plan.protected] == [("talk", 350)]


def test_one_that_is_gone_or_not_for_its_user_is_said_to_be_so() -> None:
    gone = planned(named(1)).waits[JobId(1)]
    assert isinstance(gone, NotInReservation) and gone.why == "that has ended or was deleted"
    not_his = planned(named(1, user="bob"), reserved=(booked(0, 400, half("n1")),)).waits[JobId(1)]
    assert isinstance(not_his, NotInReservation) and not_his.why == "that is not for user bob any more"


def test_it_is_for_its_owner_for_users_and_for_accounts_with_those_below_them() -> None:
    limits = LimitView(accounts={"team": AccountInfo(name="team"), "lab": AccountInfo(name="lab", parent="team")})
    one = booked(0, 400, half("n1"), users=("bob",), accounts=("team",))
    several = (named(1), named(2, user="bob"), named(3, user="carl", account="lab"), named(4, user="carl", account="x"))
    assert started(planned(*several, reserved=(one,), limits=limits)) == [1, 2, 3]


def test_what_never_fits_inside_is_said_by_what_is_kept() -> None:
    wait = planned(named(1, 5), reserved=(booked(0, 400, half("n1")),)).waits[JobId(1)]
    assert isinstance(wait, NotInReservation)
    assert wait.why == "does not fit in what that keeps (4 GPUs): it asks for 5 GPUs; its nodes have 4"


@pytest.mark.parametrize(("grant", "starts"), [(half("n1"), []), (whole("n1"), [1])])
def test_whole_nodes_are_had_only_where_whole_nodes_are_kept(grant: Grant, starts: list[int]) -> None:
    alone = named(1, 0, nodes_min=1, is_exclusive=True)
    assert started(planned(alone, reserved=(booked(0, 400, grant),))) == starts


def test_a_gang_is_wholly_inside() -> None:
    reserved = (booked(0, 400, half("n1"), half("n2")),)
    plan = planned(named(1, 0, nodes_min=2, gpus_per_node=4), reserved=reserved, nodes=3)
    assert [(one.node, one.gpus) for one in the_start(plan).grants] == [("n1", (0, 1, 2, 3)), ("n2", (0, 1, 2, 3))]
    assert started(planned(named(1, 0, nodes_min=3, gpus_per_node=2), reserved=reserved, nodes=3)) == []


@pytest.mark.parametrize("grants", [(), (whole("n9"),)])
def test_one_that_has_lost_all_its_nodes_keeps_nothing_and_starts_nobody(grants: tuple[Grant, ...]) -> None:
    plan = planned(job(1, 8), named(2), reserved=(booked(0, 400, *grants), booked(500, 600, *grants, number=2)))
    assert started(plan) == [1]
    assert plan.waits[JobId(2)] == NotInReservation(name="talk", why="may use none of the nodes that it keeps")


def test_limits_count_inside_as_outside() -> None:
    most = LimitInfo(holder=Holder.USER, name="ada", resource="gpus", most=5)
    limits = LimitView(limits={(Holder.USER, "ada"): (most,)})
    plan = planned(job(1, 2), named(2, 4), job(3, 1), reserved=(booked(0, 400, half("n1")),), limits=limits)
    assert started(plan) == [2, 3] and isinstance(plan.waits[JobId(1)], OverLimit)


def test_tasks_of_an_array_start_inside_within_its_throttle() -> None:
    array = named(1, 1, tasks=0b11110, array_job_id=JobId(1))
    plan = planned(array, reserved=(booked(0, 400, half("n1")),), array_room={JobId(1): 3})
    assert [(start.task, start.reservation) for start in plan.starts] == [(1, "talk"), (2, "talk"), (3, "talk")]


def test_inside_a_job_is_gone_in_time_for_the_next_that_keeps_some_of_the_same() -> None:
    soon_to_be_clear = (booked(0, 400, whole("n1"), next_clear_at=390, next_name="next"),)
    plan = planned(named(1, limit_s=291), named(2, limit_s=290), reserved=soon_to_be_clear, now=100)
    assert started(plan) == [2]
    told = ReservationTooShort(name="talk", begins_at=0, ends_at=390, longest_s=290, for_next="next")
    assert plan.waits[JobId(1)] == told
    assert plan.closes == {("talk", 1): (390, "next")}


def test_inside_nothing_starts_while_it_is_cleared_for_the_next() -> None:
    reserved = (booked(0, 400, whole("n1"), next_clear_at=390, next_name="next"),)
    assert started(planned(named(1, limit_s=4), reserved=reserved, now=395)) == []


# ── magnetic and flexible ones ────────────────────────────────────────────────────────────────────────────────


def test_a_magnetic_one_takes_its_users_jobs_first_and_what_does_not_fit_goes_outside() -> None:
    reserved = (booked(0, 400, half("n1"), is_magnetic=True),)
    plan = planned(job(1, 4), job(2, 2), job(3, 2, user="bob"), reserved=reserved)
    assert [(int(one.job_id), one.reservation) for one in plan.starts] == [(1, "talk"), (2, ""), (3, "")]


def test_a_magnetic_one_takes_nobody_who_would_outlive_it() -> None:
    plan = planned(job(1, 4, 500), reserved=(booked(0, 400, half("n1"), is_magnetic=True),))
    assert the_start(plan).reservation == ""


def test_who_fits_neither_inside_a_magnetic_one_nor_outside_is_told_what_is_short_outside() -> None:
    plan = planned(job(1, 5), reserved=(booked(0, 400, half("n1"), is_magnetic=True),))
    assert insufficient(plan, 1).holders[0].reservation == "talk"


def test_who_names_a_flexible_one_may_begin_before_it_and_outside_of_it() -> None:
    reserved = (booked(200, 400, half("n1"), is_flex=True),)
    start = the_start(planned(named(1, 4, 1000), reserved=reserved))
    assert (start.reservation, start.grants[0].gpus) == ("", (4, 5, 6, 7))


def test_who_names_a_flexible_one_may_end_after_it_but_not_run_into_what_comes_then() -> None:
    reserved = (booked(0, 400, whole("n1"), is_flex=True),)
    assert the_start(planned(named(1, 8, 1000), reserved=reserved, now=10)).reservation == "talk"
    after = booked(900, 1000, half("n1"), name="other", owner="bob")
    assert started(planned(named(1, 8, 1000), reserved=(*reserved, after), now=10)) == []
    assert started(planned(named(1, 4, 1000), reserved=(*reserved, after), now=10)) == [1]


def test_only_who_names_a_flexible_one_may_end_after_it() -> None:
    reserved = (booked(0, 400, half("n1"), is_flex=True, is_magnetic=True),)
    plan = planned(job(1, 4, 1000), reserved=reserved)
    assert the_start(plan).reservation == ""


# ── reasons and estimates ─────────────────────────────────────────────────────────────────────────────────────


def test_who_is_not_looked_at_inside_is_behind_the_first_that_waits_there() -> None:
    reserved = (booked(0, 400, half("n1")),)
    inside = runs(9, 350, half("n1"), reservation="talk", occurrence=1)
    plan = planned(named(1, 4, 50), named(2, 4, 50), reserved=reserved, running=(inside,))
    assert plan.heads_inside == {"talk": 1}
    assert isinstance(plan.waits[JobId(2)], Insufficient | BehindPlannedStart)


def test_a_rehearsal_starts_jobs_as_reservations_begin_and_end() -> None:
    reserved = (booked(200, 400, whole("n1")),)
    pending = (job(1, 8, 500), named(2, 4), named(3, 8), job(4, 8, 150))
    rehearsal = Forecast(ForecastInput(view(*pending, reserved=reserved)), [one.job_id for one in pending])
    while not rehearsal.step(1000):
        pass
    assert {int(one): entry.starts_at for one, entry in rehearsal.starts.items()} == {4: 0, 2: 200, 3: 300, 1: 400}


def test_where_nothing_is_reserved_a_plan_has_nothing_of_it() -> None:
    plan = planned(job(1, 4), job(2, 8))
    assert (started(plan), plan.heads_inside) == ([1], {})
    assert all(not one.reservation for one in (*plan.starts, *plan.protected))
