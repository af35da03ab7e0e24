"""Limits, budgets and guarantees: where they bind, in what order jobs start, and when what is used is free again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.account import LIMITED, Holder, LimitAt, LimitInfo, MemberInfo, PreemptMode, QosInfo
from gq.model.ids import JobId
from gq.model.policy_tables import Billing
from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.sched.planner import Planner, plan_whole
from gqd.state.index.period import next_periods_at, periods_at
from gqd.state.input import NodeHeartbeat, Peer, PolicyChanged, Tick
from gqd.state.policy import Partition, Policy
from tests.builders import ADAM, ALICE, BOB, CARL, SHARED, attempt_id, hello, inventory, submit
from tests.control.test_accounts import add_account, add_member, add_qos, change_account
from tests.hosts import CoreHost

HOUR = 3600
NODE = {"n1": inventory(cpus=64, gpu_count=16, memory_mib=1 << 20)}


def cluster(policy: Policy = SHARED, nodes: Any = None) -> CoreHost:
    """Account `org` with `team` (alice, bob) and `rest` (carl) below it; 16 GPUs."""
    host = CoreHost(policy, nodes or NODE)
    add_account(host, "org")
    for account, users in (("team", ("alice", "bob")), ("rest", ("carl",))):
        add_account(host, account, parent="org")
        for user in users:
            add_member(host, user, account)
    return host


def limited(host: CoreHost, whose: str, resource: str, most: float, at: LimitAt = LimitAt.START) -> None:
    """`whose`: ``account team``, ``each user of qos high``."""
    *each, holder, name = whose.split()
    limit = LimitInfo(holder=Holder(holder), name=name, resource=resource, most=most, per_user=bool(each), at=at)
    host.ask(client.SetLimit(limit=limit), peer=ADAM)


def running(host: CoreHost) -> list[int]:
    return [
        int(one.job_id)
        for one in host.cluster.jobs.values()
        if one.state is not JobState.PENDING and one.end_at is None
    ]


def refusal(host: CoreHost, body: client.RequestBody, peer: Peer = ALICE) -> Refusal:
    with pytest.raises(Refusal) as caught:
        host.ask(body, peer=peer)
    return caught.value


def queue(host: CoreHost, *jobs: tuple[Peer, dict[str, Any]]) -> None:
    for peer, fields in jobs:
        host.submit(submit(**fields), peer=peer)


# ── at start ──────────────────────────────────────────────────────────────────────────────────────────────────

TWO = {"gpus": 2, "cpus_per_task": 2, "mem_per_node_mib": 1024, "gpu_type": "fake"}
MOST: dict[str, float] = {"gpus": 5, "gpus:fake": 5, "cpus": 5, "memory": 2500, "running_jobs": 2}
"""Room for two jobs of `TWO`, and not for three."""
WHOSE = {
    "user alice": ("AssocGrpGRES", "AssocMaxJobsLimit"),
    "account team": ("AssocGrpGRES", "AssocGrpJobsLimit"),
    "account org": ("AssocGrpGRES", "AssocGrpJobsLimit"),
    "account root": ("AssocGrpGRES", "AssocGrpJobsLimit"),
    "each user of account team": ("AssocGrpGRES", "AssocMaxJobsLimit"),
    "each user of account root": ("AssocGrpGRES", "AssocMaxJobsLimit"),
    "qos normal": ("QOSGrpGRES", "QOSGrpJobsLimit"),
    "each user of qos normal": ("QOSMaxGRESPerUser", "QOSMaxJobsPerUserLimit"),
}


@pytest.mark.parametrize("resource", MOST)
@pytest.mark.parametrize("whose", WHOSE)
def test_a_job_over_a_limit_waits_and_others_go_on(whose: str, resource: str) -> None:
    host = cluster()
    limited(host, whose, resource, MOST[resource])
    queue(host, (ALICE, TWO), (ALICE, TWO), (ALICE, TWO), (ALICE, TWO), (CARL, {}))
    host.schedule()
    is_carls_too = whose in ("account org", "account root", "qos normal") and resource == "running_jobs"
    assert running(host) == ([1, 2] if is_carls_too else [1, 2, 5])
    told = host.explain(3)
    words = {"gpus": WHOSE[whose][0], "gpus:fake": WHOSE[whose][0], "running_jobs": WHOSE[whose][1]}
    assert told.reason == words.get(resource, told.reason) != "Resources"
    assert set(told.blockers) >= {1, 2} and "job 1 (alice)" in told.why
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,))), peer=ALICE)
    host.obey()
    host.schedule()
    assert 3 in running(host) and 4 not in running(host)


def test_the_sentence_says_whose_limit_it_is_what_is_used_by_whom_and_what_would_help() -> None:
    host = cluster()
    limited(host, "account org", "gpus", 8)
    host.start(submit(gpus=4, time_limit_s=HOUR), peer=ALICE)
    host.start(submit(gpus=2), peer=CARL)
    host.submit(submit(gpus=4), peer=BOB)
    host.schedule()
    told = host.explain(3)
    assert told.why == (
        "account `org` may hold 8 GPUs, 6 are in use, the job asks for 4:"
        " job 1 (alice) holds 4 GPUs; job 2 (carl) holds 2 GPUs"
    )
    assert told.hint.startswith("a request for at most 2 GPUs is within the limit")
    host.ask(client.UpdateJob(job_id=3, resources=submit(gpus=2).spec.resources), peer=BOB)
    host.schedule()
    assert running(host) == [1, 2, 3]


def test_a_blocked_job_claims_no_nodes() -> None:
    host = cluster(nodes={"n1": inventory(gpu_count=4)})
    limited(host, "user alice", "gpus", 2)
    host.start(submit(gpus=1), peer=ALICE)
    queue(host, (ALICE, {"gpus": 2}), (BOB, {"gpus": 3}))
    host.schedule()
    assert running(host) == [1, 3]


def test_what_a_job_is_really_given_counts_and_not_only_what_it_asked_for() -> None:
    """Whole nodes, and GPUs of a type that nobody asked for."""
    nodes = {"n1": inventory(gpu_count=4, gpu_type="h100"), "n2": inventory(gpu_count=4, gpu_type="t4")}
    host = cluster(nodes=nodes)
    limited(host, "user alice", "gpus:h100", 2)
    limited(host, "user bob", "cpus", 4)
    queue(host, (ALICE, {"gpus": 3}), (ALICE, {"gpus": 3}), (BOB, {"is_exclusive": True}))
    host.schedule()
    assert running(host) == [1]
    assert host.attempt(1).batch_node == "n2", "the type that is limited is left alone where another fits"
    assert "user bob may hold 4 CPUs, 0 are in use, the job asks for 8" in host.explain(3).why
    assert "GPUs of type `h100`" in host.explain(2).why


def test_of_several_limits_each_binds() -> None:
    host = cluster()
    limited(host, "account team", "gpus", 6)
    limited(host, "each user of account team", "gpus", 4)
    limited(host, "user bob", "running_jobs", 1)
    for _ in range(5):
        queue(host, (ALICE, {"gpus": 1}), (BOB, {"gpus": 1}))
    host.schedule()
    users = [host.job(one).user for one in running(host)]
    assert (users.count("alice"), users.count("bob")) == (4, 1)


def test_tasks_of_an_array_start_as_far_as_the_limit_goes() -> None:
    host = cluster()
    limited(host, "user alice", "gpus", 3)
    host.submit(submit(gpus=1, array="1-10"), peer=ALICE)
    host.submit(submit(gpus=1), peer=BOB)
    host.schedule()
    host.obey()
    tasks = [one for one in host.cluster.jobs.values() if one.array_task_id is not None]
    assert [one.array_task_id for one in tasks] == [1, 2, 3]
    assert host.job(2).state is JobState.RUNNING
    assert host.explain(1).reason == "AssocGrpGRES"
    host.finish(tasks[1].job_id)
    host.schedule()
    assert [one.array_task_id for one in host.cluster.jobs.values() if one.array_task_id is not None] == [1, 2, 3, 4]


def test_of_many_jobs_those_over_a_limit_are_left_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gqd.sched.priority.order.MOST_ONE_BY_ONE", 3)
    host = cluster()
    limited(host, "user alice", "gpus", 1)
    limited(host, "each user of account rest", "gpu_hours_per_day", 1)
    queue(host, *[(ALICE, {"gpus": 1})] * 10, *[(CARL, {"gpus": 1, "time_limit_s": HOUR})] * 10, (BOB, {"gpus": 1}))
    while host.controller.wants_plan(host.now + 1):
        host.schedule(host.now + 1)
    assert [host.job(one).user for one in running(host)] == ["alice", "carl", "bob"]
    assert host.explain(9).reason == "AssocGrpGRES" and "the job asks for 1" in host.explain(9).why
    assert host.explain(20).reason == "AssocGrpGRESMinutes"
    assert not host.controller.snapshot(host.now).pending


# ── adoption ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_limit_that_is_set_after_the_snapshot_binds_when_the_plan_is_adopted() -> None:
    host = cluster()
    queue(host, (ALICE, {"gpus": 1}), (ALICE, {"gpus": 1}), (ALICE, {"gpus": 1}))
    plan = plan_whole(host.controller.snapshot(host.now))
    assert len(plan.starts) == 3
    limited(host, "user alice", "gpus", 2)
    host.adopt(plan)
    assert running(host) == [1, 2]
    assert host.controller.wants_plan(host.now + 1)
    host.schedule()
    assert host.explain(3).reason == "AssocGrpGRES"


def test_a_plan_that_is_adopted_twice_keeps_to_the_limit() -> None:
    host = cluster()
    limited(host, "account team", "gpus", 2)
    queue(host, (ALICE, {"gpus": 1}), (ALICE, {"gpus": 1}))
    plan = plan_whole(host.controller.snapshot(host.now))
    change_account(host, "team")  # now it is below the root
    host.adopt(plan)
    queue(host, (BOB, {"gpus": 1}))
    host.adopt(plan)
    host.schedule()
    assert running(host) == [1, 2]


# ── at submit ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("resource", ["gpus", "gpus:fake", "cpus", "memory", "pending_jobs"])
@pytest.mark.parametrize("whose", WHOSE)
def test_a_job_over_a_limit_at_submit_is_refused_with_what_is_left(whose: str, resource: str) -> None:
    host = cluster()
    limited(host, whose, resource, MOST.get(resource, 2), LimitAt.SUBMIT)
    queue(host, (ALICE, TWO), (ALICE, TWO))
    told = refusal(host, submit(**TWO))
    name = whose.split()[-1]
    assert told.code == "over_limit" and name in told.message and "left" in told.hint
    if whose.startswith("each user"):
        assert "user alice" in told.message
    if resource == "gpus" and whose == "account team":
        assert told.message == "account `team` may have 5 GPUs queued and running together, has 4, and this asks for 2"
        assert told.hint.startswith("1 left: ask for less, or submit it when others are done; ")
        queue(host, (ALICE, {"gpus": 1}))
        assert refusal(host, submit(gpus=1)).hint.startswith("none is left: submit it when others are done; ")
        host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(3,))), peer=ALICE)
    if "normal" not in whose and "o" not in name:
        queue(host, (CARL, TWO))
    if resource == "pending_jobs":
        host.schedule()  # those that have started are not pending any more
    else:
        host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,))), peer=ALICE)
    queue(host, (ALICE, TWO))


@pytest.mark.parametrize(
    ("resource", "most", "fields", "words"),
    [
        ("gpus", 4, {"gpus": 5}, "the job asks for 5 GPUs; account `team` may have 4 at most"),
        ("gpus:fake", 1, {"gpus": 2, "gpu_type": "fake"}, "2 GPUs of type `fake`; account `team` may have 1"),
        ("cpus", 4, {"cpus_per_task": 5}, "5 CPUs; account `team` may have 4"),
        ("memory", 1024, {"mem_per_node_mib": 2048}, "2G of memory; account `team` may have 1G"),
        ("running_jobs", 0, {}, "account `team` may run no jobs"),
        ("gpus_per_job", 2, {"gpus": 3}, "3 GPUs; account `team` may have 2 in one job"),
        ("nodes_per_job", 1, {"nodes_min": 2}, "2 nodes; account `team` may have 1 in one job"),
        ("time", 600, {"time_limit_s": 601}, "asks for a time limit of 10:01; account `team` has 10:00 at most"),
        ("time", 600, {"time_limit_s": 0}, "no time limit; account `team` has"),
        ("gpu_hours_per_day", 3, {"gpus": 2, "time_limit_s": 2 * HOUR}, "up to 4 GPU-hours; account `team` has 3 GPU-hours a day"),
    ],
)  # fmt: skip
def test_a_job_that_alone_is_over_a_limit_is_refused_at_once(
    resource: str, most: float, fields: dict[str, Any], words: str
) -> None:
    host = cluster(nodes={"n1": inventory(), "n2": inventory()})
    limited(host, "account team", resource, most)
    told = refusal(host, submit(**fields))
    assert told.code == "over_limit" and words in told.message and told.hint
    if resource != "running_jobs" and "gpu_type" not in fields:
        host.submit(submit(), peer=CARL)


def test_who_waits_for_a_limit_that_it_is_over_all_by_itself_is_not_told_to_wait_for_others() -> None:
    host = cluster()
    host.start(submit(gpus=1, array="1"), peer=ALICE)
    queue(host, (ALICE, {"gpus": 16}))
    limited(host, "account team", "gpus", 2)
    told = host.explain(3)
    assert "may hold 2 GPUs, 1 is in use, the job asks for 16: job 1_1 (alice) holds 1 GPU" in told.why
    assert told.hint.startswith("it cannot start within this limit, however long it waits: ask for at most 2 GPUs")
    queue(host, (CARL, {"gpus": 16}))
    change_account(host, "rest", guaranteed_gpus=1, borrow_gpus=0)
    assert "ask for at most 1 GPU" in host.explain(4).hint


def test_a_test_of_a_job_that_a_limit_would_hold_back_says_so_and_when_it_ends() -> None:
    host = cluster()
    limited(host, "account team", "gpus", 3)
    host.start(submit(gpus=2), peer=ALICE)
    told = host.ask(client.Submit(spec=submit(gpus=2).spec, test_only=True), peer=BOB)
    assert isinstance(told, client.Tested) and told.start_at == 3600  # when the other is expected to end
    assert "would wait: account `team` may hold 3 GPUs, 2 are in use, the job asks for 2" in told.why
    fits = host.ask(client.Submit(spec=submit(gpus=1).spec, test_only=True), peer=BOB)
    assert isinstance(fits, client.Tested) and fits.start_at is not None


def test_a_job_that_asks_for_more_than_its_account_is_guaranteed_and_may_borrow_is_refused() -> None:
    host = cluster()
    change_account(host, "rest", guaranteed_gpus=1, borrow_gpus=1)
    told = refusal(host, submit(gpus=3), CARL)
    assert told.message == "the job asks for 3 GPUs; account `rest` is guaranteed 1 and may borrow 1"
    assert told.code == "over_limit" and told.hint.startswith("ask for at most 2 GPUs")
    queue(host, (CARL, {"gpus": 2}))
    changed = client.UpdateJob(job_id=1, resources=submit(gpus=3).spec.resources)
    assert refusal(host, changed, CARL).code == "over_limit"
    change_account(host, "rest", borrow_gpus=0)
    assert refusal(host, submit(gpus=1), CARL).hint.startswith("submit it in another account")
    queue(host, (CARL, {}))


def test_a_time_limit_that_was_not_asked_for_is_cut_to_what_is_allowed() -> None:
    host = cluster()
    limited(host, "qos normal", "time", 900)
    limited(host, "account team", "time", 600)
    assert host.job(host.submit(submit(), peer=ALICE)).time_limit_s == 600
    assert host.job(host.submit(submit(), peer=CARL)).time_limit_s == 900
    assert refusal(host, client.UpdateJob(job_id=1, time_limit_s=700), ADAM).code == "over_limit"


def test_all_tasks_of_an_array_and_all_stages_of_a_chain_count_at_submit() -> None:
    host = cluster()
    limited(host, "account team", "pending_jobs", 10)
    host.submit(submit(array="1-8"), peer=ALICE)
    assert "this is 3 more" in refusal(host, submit(array="1-3"), BOB).message
    assert refusal(host, client.SubmitChain(stages=(submit("a"), submit("b"), submit("c"))), BOB).code == "over_limit"
    assert len(host.cluster.jobs) == 1
    host.ask(client.CancelJobs(filter=client.JobFilter(tasks={1: "2-7"})), peer=ALICE)
    host.ask(client.SubmitChain(stages=(submit("a"), submit("b"), submit("c"))), peer=BOB)
    host.submit(submit(array="1-5"), peer=BOB)
    assert refusal(host, submit(), BOB).code == "over_limit"


def test_a_job_that_is_changed_does_not_count_against_itself() -> None:
    host = cluster()
    limited(host, "account team", "gpus", 8, LimitAt.SUBMIT)
    limited(host, "account rest", "gpus", 3, LimitAt.SUBMIT)
    add_member(host, "alice", "rest")
    queue(host, (ALICE, {"gpus": 4, "account": "team"}), (BOB, {"gpus": 2}))
    host.ask(client.UpdateJob(job_id=1, resources=submit(gpus=6).spec.resources), peer=ALICE)
    more = client.UpdateJob(job_id=1, resources=submit(gpus=7).spec.resources)
    assert refusal(host, more).code == "over_limit"
    assert refusal(host, client.UpdateJob(job_id=1, account="rest")).code == "over_limit"
    host.ask(client.UpdateJob(job_id=2, name="as it was"), peer=BOB)


def test_a_limit_that_is_lowered_touches_nothing_that_is_queued_or_runs() -> None:
    host = cluster()
    host.start(submit(gpus=4), peer=ALICE)
    queue(host, (ALICE, {"gpus": 1}))
    limited(host, "user alice", "gpus", 2)
    host.schedule()
    assert running(host) == [1]
    assert "may hold 2 GPUs, 4 are in use" in host.explain(2).why
    host.ask(client.RemoveLimit(holder="user", name="alice", resource="gpus"), peer=ADAM)
    host.schedule()
    assert running(host) == [1, 2]


# ── what frees it again ───────────────────────────────────────────────────────────────────────────────────────


def _end_by_itself(host: CoreHost) -> None:
    host.finish(1)


def _cancel(host: CoreHost) -> None:
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,))), peer=ALICE)
    host.obey()


def _requeue_and_hold(host: CoreHost) -> None:
    host.ask(client.RequeueJobs(job_ids=(1,)), peer=ALICE)
    host.obey()
    host.ask(client.HoldJobs(job_ids=(1,)), peer=ALICE)


def _fail_to_launch(host: CoreHost) -> None:
    refused = wire.PrepareRefused(attempt_id=attempt_id(1), why="no room", is_job_fault=True)
    host.report("n1", refused)
    host.obey()


def _lose_the_node(host: CoreHost) -> None:
    host.handle(hello("n2", inventory(gpu_count=4)))
    route = host.controller.volatile.links["n2"]
    for _ in range(40):
        alive = wire.Heartbeat(node="n2", incarnation=host.cluster.nodes["n2"].incarnation, at=host.now)
        host.handle(NodeHeartbeat(route=route, heartbeat=alive), host.now + 10)
        host.handle(Tick())
    assert host.cluster.nodes["n1"].is_lost


@pytest.mark.parametrize("happens", [_end_by_itself, _cancel, _requeue_and_hold, _fail_to_launch, _lose_the_node])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_used_is_free_again_when_the_job_is_over(happens: Any, restarts: bool) -> None:
    host = cluster(nodes={"n1": inventory(gpu_count=4)})
    limited(host, "user alice", "gpus", 2)
    host.submit(submit(gpus=2, requeue=False), peer=ALICE)
    host.schedule()
    if happens is not _fail_to_launch:
        host.obey()
    queue(host, (ALICE, {"gpus": 2}))
    host.schedule()
    assert host.explain(2).reason == "AssocGrpGRES"
    happens(host)
    if restarts:
        names = list(host.cluster.nodes)
        host.restart()
        for name in names:
            host.handle(hello(name, inventory(gpu_count=4)))
    host.schedule()
    assert host.job(2).state is JobState.STARTING


def test_a_job_that_is_being_cleaned_away_still_counts() -> None:
    host = cluster()
    limited(host, "user alice", "gpus", 2)
    host.start(submit(gpus=2), peer=ALICE)
    queue(host, (ALICE, {"gpus": 2}))
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,))), peer=ALICE)
    host.schedule()
    assert host.job(1).state is JobState.COMPLETING and host.job(2).state is JobState.PENDING


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────────────────

BERLIN = msgspec.structs.replace(SHARED, zone=ZoneInfo("Europe/Berlin"))


def at(text: str, zone: Any = BERLIN.zone) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("now", "day", "week", "month", "next_day"),
    [
        ("2026-03-29T12:00", "2026-03-29", "2026-03-23", "2026-03-01", "2026-03-30"),  # the clock goes forward
        ("2026-10-25T02:30", "2026-10-25", "2026-10-19", "2026-10-01", "2026-10-26"),  # the clock goes back
        ("2026-11-01T00:00", "2026-11-01", "2026-10-26", "2026-11-01", "2026-11-02"),
        ("2027-01-01T05:00", "2027-01-01", "2026-12-28", "2027-01-01", "2027-01-02"),
        ("2028-02-29T23:59", "2028-02-29", "2028-02-28", "2028-02-01", "2028-03-01"),
    ],
)
def test_days_weeks_and_months_begin_by_the_calendar(now: str, day: str, week: str, month: str, next_day: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    assert periods_at(at(now), zone) == (at(day), at(week), at(month))
    assert next_periods_at(at(now), zone).day == at(next_day)
    assert next_periods_at(at(now), zone).week == at(week) + 7 * 86400 + {"2026-03-29": -HOUR}.get(day, 0) + (
        HOUR if day == "2026-10-25" else 0
    )
    assert periods_at(next_periods_at(at(now), zone).month, zone).month == next_periods_at(at(now), zone).month


def test_days_on_which_the_clock_is_changed_have_23_and_25_hours() -> None:
    zone = ZoneInfo("Europe/Berlin")
    for day, long in (("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)):
        assert next_periods_at(at(day), zone).day - at(day) == long * HOUR
    assert periods_at(at("2026-05-05T05:00", UTC), UTC).day == at("2026-05-05", UTC)


@pytest.mark.parametrize(
    ("word", "began", "next_begins"),
    [
        ("day", "2026-10-25T00:00", "2026-10-26T00:00"),
        ("week", "2026-10-19T00:00", "2026-10-26T00:00"),
        ("month", "2026-10-01T00:00", "2026-11-01T00:00"),
    ],
)
def test_a_budget_that_is_used_up_keeps_jobs_back_until_the_next_period(
    word: str, began: str, next_begins: str
) -> None:
    """4 GPUs for an hour of 5 GPU-hours; a job of 2 hours waits, one of a quarter of an hour does not."""
    host = cluster(BERLIN)
    host.beat(at(began) + 100)
    limited(host, "account team", f"gpu_hours_per_{word}", 5)
    host.start(submit(gpus=4, time_limit_s=HOUR), peer=ALICE)
    host.beat(host.now + HOUR)
    host.finish(1)
    queue(host, (BOB, {"gpus": 1, "time_limit_s": 2 * HOUR}), (BOB, {"gpus": 4, "time_limit_s": 900}))
    host.schedule()
    assert running(host) == [3]
    told = host.explain(2)
    assert told.reason == "AssocGrpGRESMinutes"
    assert f"account `team` has 5 GPU-hours a {word}, 5 are used or reserved by running jobs" in told.why
    assert f"the next {word} begins @{{{int(at(next_begins))}}}" in told.hint
    host.obey()
    host.finish(3)
    host.beat(at(next_begins) - 1)
    host.schedule()
    assert running(host) == []
    host.beat(at(next_begins))
    host.handle(Tick(), host.now)
    assert host.controller.wants_plan(host.now)
    host.schedule()
    assert running(host) == [2]


def test_what_runs_over_midnight_counts_for_each_day_as_long_as_it_ran_in_it() -> None:
    host = cluster(BERLIN)
    host.beat(at("2026-06-01T22:00"))
    limited(host, "user alice", "gpu_hours_per_day", 100)
    host.start(submit(gpus=2), peer=ALICE)
    assert used(host, at("2026-06-01T23:30")) == pytest.approx(3)
    assert used(host, at("2026-06-02T01:00")) == pytest.approx(2)
    host.restart()
    host.handle(hello("n1", NODE["n1"], attempts=(wire.AttemptStatus(attempt_id=attempt_id(1), phase="running"),)))
    assert used(host, at("2026-06-05T03:00")) == pytest.approx(6), "nobody looked for three days"
    host.finish(1)
    assert used(host, at("2026-06-05T23:00")) == pytest.approx(6)
    assert used(host, at("2026-06-06T23:00")) == 0


def used(host: CoreHost, now: float) -> float:
    answer = host.ask(client.ListAccounts(), now, peer=ALICE)
    assert isinstance(answer, client.Accounts)
    return answer.limits[0].used or 0.0


def test_a_budget_counts_from_when_it_was_set_and_by_what_is_billed() -> None:
    policy = msgspec.structs.replace(SHARED, billing=Billing(gpu=1, gpu_types={"fake": 2.0}, cpu=0.5))
    host = cluster(policy)
    add_qos(host, "double", usage_factor=2.0)
    host.start(submit(gpus=1, qos="double"), peer=ALICE)
    assert host.attempt(1).billing == 5_000_000, "(2 + 0.5) × 2"
    limited(host, "user alice", "gpu_hours_per_day", 100)
    assert used(host, HOUR) == pytest.approx(5)
    limited(host, "user alice", "gpu_hours_per_day", 50)
    assert used(host, 2 * HOUR) == pytest.approx(10), "a budget that is changed is the same budget"


def test_two_jobs_do_not_start_on_the_same_rest_of_a_budget() -> None:
    host = cluster()
    limited(host, "user alice", "gpu_hours_per_day", 5)
    queue(host, *[(ALICE, {"gpus": 1, "time_limit_s": 2 * HOUR})] * 3)
    host.schedule()
    assert running(host) == [1, 2]
    host.obey()
    host.beat(600)
    host.schedule()
    assert running(host) == [1, 2]
    host.finish(1)
    host.schedule()
    assert running(host) == [2, 3], "it gave back what it did not use"


def test_a_job_without_a_time_limit_starts_as_long_as_something_is_left_of_the_budget() -> None:
    host = cluster(msgspec.structs.replace(SHARED, partitions=(Partition(name="main", is_default=True),)))
    limited(host, "each user of account team", "gpu_hours_per_week", 1)
    host.start(submit(gpus=1), peer=ALICE)
    host.beat(HOUR + 1)
    queue(host, (ALICE, {"gpus": 1}), (BOB, {"gpus": 1}), (ALICE, {}))
    host.schedule()
    assert running(host) == [1, 3, 4], "what costs nothing is kept back by no budget"
    assert "user alice in account `team`" in host.explain(2).why


def test_a_budget_at_submit_refuses_what_would_not_fit_any_more() -> None:
    host = cluster()
    limited(host, "user alice", "gpu_hours_per_month", 3, LimitAt.SUBMIT)
    host.start(submit(gpus=1, time_limit_s=2 * HOUR), peer=ALICE)
    host.beat(HOUR)
    told = refusal(host, submit(gpus=1, time_limit_s=3 * HOUR))
    assert told.message == (
        "user alice has 3 GPU-hours a month, of which 1 are used and 2 left; the job may use up to 3"
    )
    host.submit(submit(gpus=1, time_limit_s=2 * HOUR), peer=ALICE)


def test_an_account_that_moves_takes_what_runs_to_the_budget_above() -> None:
    host = cluster()
    add_account(host, "new")
    limited(host, "account new", "gpu_hours_per_day", 100)
    limited(host, "account org", "gpu_hours_per_day", 100)
    host.start(submit(gpus=2), peer=ALICE)
    host.beat(HOUR)
    change_account(host, "team", parent="new")
    answer = host.ask(client.ListAccounts(), 2 * HOUR, peer=ALICE)
    assert isinstance(answer, client.Accounts)
    assert {one.name: one.used for one in answer.limits} == {"org": pytest.approx(2), "new": pytest.approx(2)}


# ── guarantees ────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_within_a_guarantee_go_before_older_ones_that_borrow() -> None:
    host = cluster(nodes={"n1": inventory(gpu_count=4)})
    change_account(host, "rest", parent="org", guaranteed_gpus=2)
    queue(
        host,
        (ALICE, {"gpus": 1}),
        (ALICE, {"gpus": 1}),
        (ALICE, {"gpus": 1}),
        (CARL, {"gpus": 1}),
        (CARL, {"gpus": 1}),
        (CARL, {"gpus": 1}),
    )
    turn = host.schedule()
    started = [one.attempt_id.job_id for one in turn.events if type(one).__name__ == "JobAllocated"]
    assert started == [4, 5, 1, 2], "two guaranteed, then those that borrow, in their order"


def test_who_waits_within_its_guarantee_gets_what_comes_free_before_those_who_borrow() -> None:
    host = cluster(nodes={"n1": inventory(gpu_count=4)})
    change_account(host, "rest", parent="org", guaranteed_gpus=4)
    never = QosInfo(name="normal", preempt_mode=PreemptMode.OFF)
    host.ask(client.SetQos(qos=never, is_new=False), peer=ADAM)
    for _ in range(4):
        host.start(submit(gpus=1), peer=ALICE)
    queue(host, (ALICE, {"gpus": 1, "time_limit_s": 2 * HOUR}), (CARL, {"gpus": 4}))
    host.schedule()
    assert host.explain(6).reason == host.explain(5).reason == "Resources"
    host.finish(1)
    host.schedule()
    assert running(host) == [2, 3, 4], "what comes free is kept for whom it is guaranteed to"
    for job_id in (2, 3, 4):
        host.finish(job_id)
    host.schedule()
    assert running(host) == [6]


def test_an_owner_takes_back_what_it_is_guaranteed_from_those_who_have_least_to_lose() -> None:
    host = cluster(nodes={"n1": inventory(gpu_count=4)})
    change_account(host, "rest", parent="org", guaranteed_gpus=2)
    for at in range(4):
        host.start(submit(gpus=1), 60.0 * at, peer=ALICE)
    queue(host, (CARL, {"gpus": 2}))

    host.schedule(600.0)

    claim = host.cluster.claims[JobId(5)]
    assert sorted(one.job_id for one in claim.victims) == [3, 4], "those that started last"
    ways = [host.cluster.attempts[one].preemption for one in claim.victims]
    assert all(way is not None and way.is_reclaim for way in ways)
    host.obey()
    host.schedule()
    assert running(host) == [1, 2, 5]


def test_an_account_borrows_so_many_and_no_more() -> None:
    host = cluster()
    change_account(host, "team", parent="org", guaranteed_gpus=2, borrow_gpus=3)
    for _ in range(4):
        queue(host, (ALICE, {"gpus": 2}))
    queue(host, (ALICE, {"gpus": 1}), (CARL, {"gpus": 9}))
    host.schedule()
    assert running(host) == [1, 2, 5, 6]
    told = host.explain(3)
    assert told.reason == "AssocGrpGRES" and told.why.startswith(
        "account `team` is guaranteed 2 GPUs and may borrow 3; it holds 5, the job asks for 2: job 1 (alice) holds 2 GPUs"
    )


def test_an_account_that_may_not_borrow_keeps_within_its_guarantee_also_for_those_below() -> None:
    host = cluster()
    change_account(host, "org", guaranteed_gpus=3, borrow_gpus=0)
    queue(host, (ALICE, {"gpus": 2}), (CARL, {"gpus": 2}), (BOB, {"gpus": 1}))
    host.schedule()
    assert running(host) == [1, 3]
    assert "may borrow none; it holds 3, the job asks for 2" in host.explain(2).why


def test_a_guarantee_of_an_account_above_is_shared_by_those_below() -> None:
    host = cluster(nodes={"n1": inventory(gpu_count=4)})
    add_account(host, "other")
    host.ask(client.SetMember(member=MemberInfo(user="olga", account="other"), is_new=True), peer=ADAM)
    change_account(host, "org", guaranteed_gpus=3)
    olga = msgspec.structs.replace(ALICE, user="olga", uid=2003)
    queue(
        host,
        *[(olga, {"gpus": 1})] * 4,
        (CARL, {"gpus": 1}),
        (ALICE, {"gpus": 1}),
        (BOB, {"gpus": 1}),
        (BOB, {"gpus": 1}),
    )
    turn = host.schedule()
    started = [one.attempt_id.job_id for one in turn.events if type(one).__name__ == "JobAllocated"]
    assert started == [5, 6, 7, 1]


def test_tasks_of_an_array_within_a_guarantee_go_first_and_the_others_wait_for_their_turn() -> None:
    host = cluster(nodes={"n1": inventory(gpu_count=4)})
    change_account(host, "team", parent="org", guaranteed_gpus=2)
    queue(host, (CARL, {"gpus": 1}), (ALICE, {"gpus": 1, "array": "1-4"}))
    starts = plan_whole(host.controller.snapshot(host.now)).starts
    assert [(one.job_id, one.task) for one in starts] == [(2, 1), (2, 2), (1, None), (2, 3)]


def test_a_job_without_gpus_is_guaranteed_nothing() -> None:
    host = cluster(nodes={"n1": inventory(cpus=1, gpu_count=4)})
    change_account(host, "team", parent="org", guaranteed_gpus=2)
    queue(host, (CARL, {"gpus": 1}), (ALICE, {}))
    host.schedule()
    assert running(host) == [1]


def test_a_plan_is_the_same_however_it_is_sliced() -> None:
    host = cluster(nodes={"n1": inventory(cpus=64, gpu_count=8)})
    change_account(host, "rest", parent="org", guaranteed_gpus=3)
    limited(host, "user alice", "gpus", 2)
    for fields in ({"gpus": 1, "array": "1-4"}, {"gpus": 2}, {"gpus": 1}):
        queue(host, (ALICE, fields), (BOB, fields), (CARL, fields))
    snapshot = host.controller.snapshot(host.now)
    plans = []
    for budget in (1, 2, 7, 1000):
        planner = Planner()
        planner.begin(snapshot, skip_reasons=False)
        while (plan := planner.step(budget)) is None:
            pass
        plans.append(plan)
    assert plans[0].starts and all(one == plans[0] for one in plans)


def test_a_new_time_zone_begins_its_own_day_at_once() -> None:
    host = cluster(msgspec.structs.replace(SHARED, zone=UTC))
    host.beat(at("2026-06-01T12:00"))
    limited(host, "user alice", "gpu_hours_per_day", 100)
    host.start(submit(gpus=1), peer=ALICE)
    host.handle(PolicyChanged(policy=BERLIN), at("2026-06-01T20:00"))
    host.beat(at("2026-06-02T01:00"))
    host.finish(1)
    assert used(host, at("2026-06-02T03:00")) == pytest.approx(1), "until then it was yesterday in Greenwich"


def test_a_later_time_zone_goes_on_with_the_day() -> None:
    host = cluster(BERLIN)
    host.beat(at("2026-06-01T12:00"))
    limited(host, "user alice", "gpu_hours_per_day", 100)
    host.start(submit(gpus=1), peer=ALICE)
    host.handle(PolicyChanged(policy=SHARED), at("2026-06-01T22:00"))
    assert used(host, at("2026-06-02T01:00")) == pytest.approx(13), "in Greenwich it is 23:00 of the same day"
    assert used(host, at("2026-06-02T03:00")) == pytest.approx(1)


def test_every_word_for_what_is_limited_is_tried_here() -> None:
    tried = {*MOST, "pending_jobs", "gpus_per_job", "nodes_per_job", "time"}
    budgets = {"gpu_hours_per_day", "gpu_hours_per_week", "gpu_hours_per_month"}
    assert tried - {"gpus:fake"} | budgets == set(LIMITED)
