"""Arrays that take what is idle: they grow to all of it, and start nothing beyond their share while others wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gq.errors import Refusal
from gq.model.account import AccountInfo, Holder, LimitInfo, MemberInfo
from gq.model.ids import JobId
from gq.model.reservation import Booking
from gq.model.resource import ResourceRequest
from gq.model.scheduling import Scheduling
from gq.model.state import JobState, Outcome
from gq.wire import client
from gqd.sched.cycle.auto_throttle import parts_due
from gqd.sched.planner import Planner, plan_whole
from gqd.state.input import Peer, Tick
from gqd.state.plan import OverFairShare
from gqd.state.policy import Partition
from tests.builders import ADAM, ALICE, BOB, CARL, SHARED, inventory, submit
from tests.hosts import CoreHost

PEERS = {one.user: one for one in (ALICE, BOB, CARL)}
LIVE = (JobState.STARTING, JobState.RUNNING)


def host_of(gpus: int = 8, nodes: int = 1, **scheduling: Any) -> CoreHost:
    policy = replace(SHARED, scheduling=Scheduling(**scheduling))
    return CoreHost(policy, {f"n{one + 1}": inventory(cpus=64, gpu_count=gpus) for one in range(nodes)})


def soak(host: CoreHost, peer: Peer = ALICE, **fields: Any) -> int:
    return host.submit(submit("soak", **{"array": "1-100", "array_auto": True, "gpus": 1, **fields}), peer=peer)


def rigid(host: CoreHost, peer: Peer = BOB, count: int = 1, **fields: Any) -> list[int]:
    return [host.submit(submit("rigid", **{"gpus": 1, **fields}), peer=peer) for _ in range(count)]


def run(host: CoreHost) -> None:
    """Everything that can start does."""
    for _ in range(3):
        host.schedule()
        host.obey()


def live(host: CoreHost, user: str) -> list[int]:
    return [job.job_id for job in host.cluster.jobs.values() if job.user == user and job.state in LIVE]


def held(host: CoreHost) -> dict[str, int]:
    """GPUs by user."""
    found: dict[str, int] = {}
    for attempt in host.cluster.holding.values():
        job = host.cluster.jobs[attempt.attempt_id.job_id]
        found[job.user] = found.get(job.user, 0) + sum(len(part.grant.gpus) for part in attempt.parts.values())
    return found


# ── growing and falling back ──────────────────────────────────────────────────────────────────────────────────


def test_an_array_takes_all_that_is_idle_while_nobody_else_waits() -> None:
    host = host_of(gpus=8, nodes=2)
    soak(host)
    run(host)
    assert held(host) == {"alice": 16}


def test_who_runs_and_does_not_wait_is_no_rival() -> None:
    host = host_of(gpus=8)
    rigid(host, count=3)
    run(host)
    soak(host)
    run(host)
    assert held(host) == {"alice": 5, "bob": 3}


def test_as_its_tasks_end_a_rival_gets_what_they_leave_until_the_array_is_at_its_share() -> None:
    host = host_of(gpus=8)
    soak(host)
    run(host)
    rigid(host, count=20)
    shares = []
    for _ in range(6):
        run(host)
        shares.append(held(host)["alice"])
        host.finish(live(host, "alice")[0])
    assert shares == [8, 7, 6, 5, 4, 4]
    assert held(host)["bob"] == 4


def test_no_task_is_ended_for_a_rival() -> None:
    host = host_of(gpus=4)
    soak(host)
    run(host)
    before = live(host, "alice")
    rigid(host, count=4)
    run(host)
    assert live(host, "alice") == before


def test_it_grows_again_when_the_others_have_gone() -> None:
    host = host_of(gpus=4)
    soak(host)
    jobs = rigid(host, count=2)
    run(host)
    assert held(host) == {"alice": 2, "bob": 2}
    for job_id in jobs:
        host.finish(job_id)
    run(host)
    assert held(host) == {"alice": 4}


def test_what_rivals_leave_over_is_taken_in_the_same_pass() -> None:
    host = host_of(gpus=8)
    rigid(host, CARL, 1)
    run(host)
    soak(host)
    rigid(host, BOB, 2)
    host.schedule()
    host.obey()
    assert held(host) == {"alice": 5, "bob": 2, "carl": 1}


def test_an_array_without_auto_goes_on_as_ever() -> None:
    host = host_of(gpus=4, order="fifo")
    soak(host, array_auto=False)
    rigid(host, count=4)
    run(host)
    host.finish(live(host, "alice")[0])
    run(host)
    assert held(host) == {"alice": 4}


def test_one_task_runs_as_any_job_though_the_share_is_less_than_that() -> None:
    host = host_of(gpus=1, order="fifo")
    soak(host)
    rigid(host, BOB, 2)
    rigid(host, CARL, 2)
    run(host)
    assert held(host) == {"alice": 1}


# ── who is a rival ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "is_rival"),
    [
        ({}, True),
        ({"gpus": 8}, True),
        ({"is_held": True}, False),
        ({"begin_at": 1e9}, False),
        ({"gpus": 9}, None),
        ({"gpus": 0, "cpus_per_task": 40}, False),
        ({"gpu_type": "v100"}, None),
    ],
)
def test_a_rival_is_who_waits_for_gpus_that_it_could_have(fields: dict[str, Any], is_rival: bool | None) -> None:
    host = host_of(gpus=8)
    soak(host)
    run(host)
    if is_rival is None:
        with pytest.raises(Refusal):
            rigid(host, **fields)
        return
    rigid(host, **fields)

    host.finish(live(host, "alice")[0])
    run(host)
    assert held(host).get("alice") == (7 if is_rival else 8)


def test_other_jobs_of_the_owner_are_no_rivals_and_count_for_the_share() -> None:
    host = host_of(gpus=8)
    rigid(host, ALICE, 3)
    run(host)
    soak(host)
    rigid(host, BOB, 20)
    run(host)
    assert held(host) == {"alice": 4, "bob": 4}
    assert len(live(host, "alice")) == 4


def test_who_waits_for_other_nodes_is_no_rival() -> None:
    host = host_of(gpus=4, nodes=2)
    rigid(host, CARL, 1, gpus=4, nodelist=("n2",))
    run(host)
    soak(host)
    rigid(host, BOB, 1, nodelist=("n2",))
    run(host)
    assert held(host) == {"alice": 4, "carl": 4}


def test_who_is_kept_back_by_a_limit_is_no_rival() -> None:
    host = host_of(gpus=4)
    limit = LimitInfo(holder=Holder.USER, name="bob", resource="running_jobs", most=1)
    host.ask(client.SetLimit(limit=limit), peer=ADAM)
    rigid(host, BOB, 3)
    soak(host)
    run(host)
    assert held(host) == {"alice": 3, "bob": 1}


def test_who_would_run_into_a_reservation_is_no_rival() -> None:
    """What it cannot use is not left idle for it."""
    bounded = Partition(name="main", is_default=True, max_time_s=100_000)
    host = CoreHost(replace(SHARED, partitions=(bounded,)), {"n1": inventory(cpus=64, gpu_count=4)})
    booking = Booking(name="later", begin_at=1000.0, duration_s=1000, resources=ResourceRequest(gpus=4))
    host.ask(client.SetReservation(booking=booking), peer=ADAM)
    rigid(host, BOB, 1, time_limit_s=2000)
    soak(host, time_limit_s=500)
    run(host)
    assert held(host) == {"alice": 4}


# ── what else is there ────────────────────────────────────────────────────────────────────────────────────────


def test_what_an_account_is_guaranteed_its_array_takes_as_any_job_does() -> None:
    host = host_of(gpus=8)
    account = AccountInfo(name="team", guaranteed_gpus=6)
    host.ask(client.SetAccount(account=account, is_new=True), peer=ADAM)
    host.ask(client.SetMember(member=MemberInfo(user="alice", account="team", is_default=True), is_new=True), peer=ADAM)
    soak(host)
    rigid(host, BOB, 20)
    for _ in range(3):
        run(host)
        host.finish(live(host, "bob")[0])
    run(host)
    assert held(host) == {"alice": 6, "bob": 2}


def test_a_task_that_was_requeued_is_put_off_like_the_others() -> None:
    host = host_of(gpus=4)
    array_id = soak(host, array="1-5")
    run(host)
    rigid(host, BOB, 1, gpus=4)
    host.ask(client.RequeueJobs(job_ids=(), tasks={array_id: "2"}), peer=ALICE)
    host.obey()
    run(host)
    assert held(host) == {"alice": 3}
    told = host.explain_task(array_id, 2)
    assert (told.reason, told.why.partition(",")[0]) == ("JobArrayTaskLimit", f"array {array_id} uses only idle GPUs")


def test_inside_of_a_reservation_those_are_rivals_who_may_use_it() -> None:
    bounded = Partition(name="main", is_default=True, max_time_s=100_000)
    host = CoreHost(replace(SHARED, partitions=(bounded,)), {"n1": inventory(cpus=64, gpu_count=8)})
    booking = Booking(
        name="talk", begin_at=0.0, duration_s=9000, resources=ResourceRequest(gpus=4), users=("alice", "bob")
    )
    host.ask(client.SetReservation(booking=booking), peer=ADAM)
    host.handle(Tick(), 1.0)
    soak(host, reservation="talk", time_limit_s=60)
    run(host)
    assert held(host) == {"alice": 4}
    rigid(host, CARL, 9, gpus=1, time_limit_s=60)
    rigid(host, BOB, 4, reservation="talk", time_limit_s=60)
    for _ in range(4):
        run(host)
        host.finish(live(host, "alice")[0])
    run(host)
    assert held(host) == {"alice": 2, "bob": 2, "carl": 4}


def test_its_start_is_estimated_as_it_will_be() -> None:
    host = host_of(gpus=4)
    array_id = soak(host, array="1-9", time_limit_s=1000)
    run(host)
    rigid(host, BOB, 2, gpus=4, time_limit_s=500)
    host.finish(live(host, "alice")[0])
    run(host)
    started = host.starts()
    rivals = [one for job_id, one in started.items() if job_id != array_id]
    assert all(one.start_at is not None for one in rivals)
    assert started[array_id].start_at is not None


# ── several arrays ────────────────────────────────────────────────────────────────────────────────────────────


def test_arrays_of_several_users_share_what_there_is_and_leave_nothing_idle() -> None:
    host = host_of(gpus=8)
    soak(host, ALICE)
    run(host)
    soak(host, BOB)
    soak(host, CARL)
    for _ in range(30):
        run(host)
        counts = held(host)
        assert sum(counts.values()) == 8
        host.finish(live(host, max(counts, key=lambda user: counts[user]))[0])
    run(host)
    assert sorted(held(host).values()) == [2, 3, 3]


def test_what_shares_leave_over_goes_to_who_holds_least_of_its_share() -> None:
    host = host_of(gpus=4)
    for name, shares in (("big", 3), ("small", 1)):
        host.ask(client.SetAccount(account=AccountInfo(name=name, shares=shares), is_new=True), peer=ADAM)
    for user, account in (("alice", "big"), ("bob", "small")):
        member = MemberInfo(user=user, account=account, is_default=True)
        host.ask(client.SetMember(member=member, is_new=True), peer=ADAM)
    soak(host, BOB)
    soak(host, ALICE)
    for _ in range(10):
        run(host)
        assert sum(held(host).values()) == 4
        host.finish(live(host, "bob")[0])
    run(host)
    assert held(host) == {"alice": 3, "bob": 1}


def test_shares_of_a_tree_are_divided_among_those_who_are_there() -> None:
    accounts = {one.name: one for one in (
        AccountInfo(name="vision", shares=3), AccountInfo(name="speech", shares=1), AccountInfo(name="idle", shares=9),
        AccountInfo(name="asr", parent="speech", shares=1),
    )}  # fmt: skip
    shares = {("ann", "vision"): 2, ("ben", "vision"): 1, ("eve", "idle"): 5}
    present = [("ann", "vision"), ("ben", "vision"), ("cal", "asr"), ("dan", "speech")]

    assert parts_due(accounts, shares, present) == pytest.approx({
        ("ann", "vision"): 3 / 4 * 2 / 3,
        ("ben", "vision"): 3 / 4 * 1 / 3,
        ("cal", "asr"): 1 / 4 * 1 / 2,
        ("dan", "speech"): 1 / 4 * 1 / 2,
    })  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", "z"])), min_size=1, unique=True))
def test_the_parts_of_all_who_are_there_are_the_whole(present: list[tuple[str, str]]) -> None:
    accounts = {one.name: one for one in (AccountInfo(name="x"), AccountInfo(name="y", parent="x", shares=7))}
    assert sum(parts_due(accounts, {("a", "x"): 4}, present).values()) == pytest.approx(1.0)


def test_a_plan_that_is_made_in_a_hurry_starts_the_same_and_says_the_same() -> None:
    host = host_of(gpus=8)
    array_id = soak(host)
    soak(host, CARL)
    run(host)
    rigid(host, BOB, 1, gpus=6)
    for _ in range(3):
        host.finish(live(host, "alice")[0])
    taken = host.controller.snapshot(host.now)
    planner = Planner()
    planner.begin(taken, skip_planned_starts=True)
    brief = planner.step(1_000_000)

    whole = plan_whole(taken)

    assert brief is not None
    assert brief.starts == whole.starts
    assert brief.waits[JobId(array_id)] == whole.waits[JobId(array_id)]
    assert isinstance(whole.waits[JobId(array_id)], OverFairShare)


def test_a_pass_that_is_cut_short_gives_nothing_beyond_the_share() -> None:
    """Who has not been reached yet could want it."""
    host = host_of(gpus=8, plan_steps=2)
    soak(host, CARL)
    rigid(host, BOB, 3, gpus=2)
    array_id = soak(host, ALICE)
    plan = plan_whole(host.controller.snapshot(host.now))
    assert plan.resumes_at is not None
    assert [one.job_id for one in plan.starts].count(JobId(array_id)) <= 1


def test_in_a_queue_that_is_cut_short_it_takes_what_those_who_were_not_looked_at_cannot_use() -> None:
    host = host_of(gpus=8, plan_steps=11)
    soak(host)
    rigid(host, BOB, 3, gpus=0, cpus_per_task=64)

    host.schedule()

    plan = host.controller.volatile.plan
    assert plan is not None and plan.resumes_at is not None
    assert held(host) == {"alice": 8}


def test_arrays_that_were_put_off_are_worked_through_in_slices() -> None:
    host = host_of(gpus=8)
    for _ in range(20):
        soak(host, array="1-2")
    rigid(host, BOB, 1, gpus=0, cpus_per_task=64)
    planner = Planner()
    planner.begin(host.controller.snapshot(host.now))

    slices = 1
    while (plan := planner.step(1)) is None:
        slices += 1

    assert slices > 40, "the walk, and then the arrays that were put off"
    assert plan.starts == plan_whole(host.controller.snapshot(host.now)).starts


# ── what is said ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reason_names_the_share_and_the_rival() -> None:
    host = host_of(gpus=4)
    array_id = soak(host)
    run(host)
    (rival,) = rigid(host, count=1, gpus=2)
    host.finish(live(host, "alice")[0])
    run(host)

    told = host.explain(array_id)

    assert (told.reason, told.blockers) == ("JobArrayTaskLimit", (rival,))
    assert told.why.startswith(
        f"array {array_id} uses only idle GPUs, and job {rival} (bob: rigid) waits for GPUs; alice holds 3 of the 4 in"
        " partition `main` that its tasks could use, the fair share is 2"
    )
    assert f"gqctl update {array_id} --array-throttle=0" in told.hint


def test_a_live_array_is_made_one_that_takes_what_is_idle_and_back() -> None:
    host = host_of(gpus=4)
    array_id = soak(host, array_auto=False, array_throttle=2)
    run(host)
    assert held(host) == {"alice": 2}

    host.ask(client.UpdateJob(job_id=array_id, array_auto=True), peer=ALICE)
    assert host.cluster.jobs[JobId(array_id)].spec.array_auto
    run(host)
    assert held(host) == {"alice": 4}
    shown = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(array_id,), states=("PENDING",))), peer=ALICE)
    assert isinstance(shown, client.Jobs)
    assert (shown.jobs[0].array_auto, shown.jobs[0].array_throttle) == (True, None)

    host.ask(client.UpdateJob(job_id=array_id, array_throttle=3, name="renamed"), peer=ALICE)
    record = host.cluster.jobs[JobId(array_id)]
    assert record.array is not None
    assert (record.spec.array_auto, record.array.throttle, record.spec.name) == (False, 3, "renamed")
    host.restart()
    record = host.cluster.jobs[JobId(array_id)]
    assert record.array is not None
    assert (record.spec.array_auto, record.array.throttle) == (False, 3)


def test_a_number_and_auto_at_once_are_refused() -> None:
    host = host_of()
    array_id = soak(host)
    with pytest.raises(Refusal, match="exclude each other"):
        host.ask(client.UpdateJob(job_id=array_id, array_auto=True, array_throttle=2), peer=ALICE)


# ── always ────────────────────────────────────────────────────────────────────────────────────────────────────

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("end"), st.sampled_from(["alice", "bob", "carl"]), st.integers(0, 7)),
        st.tuples(st.just("rigid"), st.sampled_from(["bob", "carl"]), st.sampled_from([1, 2, 4])),
        st.tuples(st.just("soak"), st.sampled_from(["alice", "bob"]), st.just(1)),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(_STEPS)
@pytest.mark.slow
def test_whatever_comes_no_task_fails_and_nothing_is_idle_that_somebody_could_have(
    steps: Iterable[tuple[str, str, int]],
) -> None:
    """And beyond the share nothing starts while another waits that could use it."""
    host = host_of(gpus=8)
    array_id = soak(host)
    for verb, user, number in steps:
        if verb == "end" and (running := live(host, user)):
            host.finish(running[number % len(running)])
        elif verb == "rigid":
            rigid(host, PEERS[user], 1, gpus=number)
        elif verb == "soak":
            soak(host, PEERS[user], gpus=number, array="1-5")
        before = held(host)
        run(host)
        after = held(host)
        assert sum(after.values()) <= 8
        waiting = [job for job in host.cluster.jobs.values() if job.is_waiting and not job.spec.array_auto]
        if waiting and after.get("alice", 0) > max(before.get("alice", 0), 1):
            present = {job.user for job in host.cluster.jobs.values() if job.state is not JobState.ENDED}
            assert after["alice"] <= 8 / len(present) + 1e-6
        if not waiting and host.cluster.jobs[JobId(array_id)].is_waiting:
            assert sum(after.values()) == 8
    ended = [job for job in host.cluster.jobs.values() if job.state is JobState.ENDED]
    assert all(job.outcome is Outcome.COMPLETED for job in ended)
