"""Who goes next: points of the factors, fair shares, usage, and what changes the order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from gq.errors import Refusal
from gq.model.account import AccountInfo, MemberInfo, QosInfo
from gq.model.policy_tables import Billing, PriorityWeights
from gq.model.scheduling import Scheduling
from gq.wire import client
from gqd.sched.plugins import PriorityFactor
from gqd.sched.priority.factor_check import SAMPLE_SIZES, sample, violation, violation_on
from gqd.sched.priority.factors import FACTORS, columns_of, rank
from gqd.sched.priority.fairshare import fair_tree
from gqd.sched.priority.order import priority_of
from gqd.state.cluster import Cluster
from gqd.state.index.queue import Columns, Floats
from gqd.state.index.usage import MILLION, DecayedUsage
from gqd.state.input import Peer, PolicyChanged
from gqd.state.policy import Partition, Policy
from gqd.state.records import Member
from tests.builders import ADAM, ALICE, BOB, OLGA, SHARED, client_request, inventory, submit
from tests.hosts import CoreHost

HOUR, DAY = 3600.0, 86400.0


def shared(policy: Policy = SHARED, gpus: int = 4, **fields: Any) -> CoreHost:
    policy = msgspec.structs.replace(policy, **fields)
    return CoreHost(policy, nodes={"n1": inventory(cpus=64, gpu_count=gpus)})


def order(host: CoreHost) -> list[int]:
    """As a pass looks at the queue."""
    return [job.job_id for job in host.controller.snapshot(host.now).pending]


def priorities(host: CoreHost, **fields: Any) -> client.Priorities:
    answer = host.ask(client.ListPriorities(**fields))
    assert isinstance(answer, client.Priorities)
    return answer


def shares(host: CoreHost, **fields: Any) -> client.Shares:
    answer = host.ask(client.ListShares(**fields))
    assert isinstance(answer, client.Shares)
    return answer


def usage_of(host: CoreHost, user: str) -> float:
    return sum(line.usage for line in shares(host).lines if line.user == user)


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_hundred_gpu_hours_of_one_user_the_equal_job_of_another_goes_first() -> None:
    host = shared()
    host.start(submit("long", gpus=4), peer=ALICE)
    host.submit(submit("first", gpus=4), peer=ALICE)
    host.submit(submit("second", gpus=4), peer=BOB)
    host.finish(1, now=25 * HOUR)

    assert usage_of(host, "alice") == pytest.approx(100 * HOUR, rel=0.2)
    assert order(host) == [3, 2]


def test_after_one_half_life_half_of_the_usage_is_left() -> None:
    host = shared()
    host.start(submit("long", gpus=4), peer=ALICE)
    host.finish(1, now=25 * HOUR)
    before = usage_of(host, "alice")
    host.now += 7 * DAY

    assert usage_of(host, "alice") == pytest.approx(before / 2, rel=1e-12)


def test_without_a_half_life_nothing_is_forgotten() -> None:
    host = shared(weights=PriorityWeights(half_life_s=None))
    host.start(submit("long", gpus=4), peer=ALICE)
    host.finish(1, now=25 * HOUR)
    host.now += 365 * DAY

    assert usage_of(host, "alice") == 100 * HOUR


def test_usage_survives_a_restart() -> None:
    host = shared()
    host.start(submit("ended", gpus=2), peer=ALICE)
    host.finish(1, now=HOUR)
    host.start(submit("runs", gpus=1), peer=ALICE)
    host.now = 5 * HOUR
    before = usage_of(host, "alice")
    host.restart()

    assert usage_of(host, "alice") == before > 0


def test_an_end_that_is_reported_after_the_half_life_changed_decays_as_it_held_then() -> None:
    host = shared(weights=PriorityWeights(half_life_s=None))
    host.start(submit("long", gpus=4), peer=ALICE)
    host.now = 10 * HOUR
    host.controller.handle(PolicyChanged(policy=with_weights(host, half_life_s=HOUR)), host.now)
    usage = host.cluster.members["alice", "default"].usage
    usage.change_rate(9 * HOUR, -4 * MILLION, host.cluster.half_life_s, host.cluster.half_lives)

    assert usage.value_at(10 * HOUR, HOUR) == pytest.approx(4 * 9 * HOUR, rel=1e-12)
    assert usage.value_at(11 * HOUR, HOUR) == pytest.approx(2 * 9 * HOUR, rel=1e-12)


def with_weights(host: CoreHost, **weights: Any) -> Policy:
    policy = host.controller.policy
    return msgspec.structs.replace(policy, weights=msgspec.structs.replace(policy.weights, **weights))


def test_what_a_half_life_is_set_to_holds_from_then_on() -> None:
    host = shared(weights=PriorityWeights(half_life_s=None))
    host.start(submit("long", gpus=4), peer=ALICE)
    host.finish(1, now=10 * HOUR)
    host.now = 20 * HOUR
    host.handle(PolicyChanged(policy=with_weights(host, half_life_s=HOUR)))
    assert usage_of(host, "alice") == 40 * HOUR
    host.now = 22 * HOUR
    assert usage_of(host, "alice") == pytest.approx(10 * HOUR, rel=1e-12)
    host.policy = host.controller.policy
    host.restart()
    assert usage_of(host, "alice") == pytest.approx(10 * HOUR, rel=1e-12)


def test_usage_is_weighted_by_the_type_of_gpu_and_the_qos() -> None:
    host = CoreHost(
        msgspec.structs.replace(
            SHARED, billing=Billing(gpu_types={"h100": 4.0}), weights=PriorityWeights(half_life_s=None)
        ),
        nodes={"n1": inventory(gpu_count=2, gpu_type="h100"), "n2": inventory(gpu_count=2, gpu_type="t4")},
    )
    host.ask(client.SetQos(qos=QosInfo(name="cheap", usage_factor=0.5), is_new=True), peer=OLGA)
    host.start(submit(gpus=1, gpu_type="h100"), peer=ALICE)
    host.start(submit(gpus=1, gpu_type="t4"), peer=BOB)
    host.start(submit(gpus=1, gpu_type="h100", qos="cheap"), peer=OLGA)
    for job_id in (1, 2, 3):
        host.finish(job_id, now=HOUR)

    assert [usage_of(host, user) / HOUR for user in ("alice", "bob", "olga")] == [4.0, 1.0, 2.0]


# ── the order ─────────────────────────────────────────────────────────────────────────────────────────────────


def queue_of(host: CoreHost, *jobs: client.Submit, peer: Peer = ALICE) -> list[int]:
    return [host.submit(one, now=host.now + 60, peer=peer) for one in jobs]


WEIGHTS = PriorityWeights(age=1000.0, fair_share=10_000.0, job_size=300.0, partition=1000.0, qos=2000.0)
PARTITIONS = (Partition(name="main", is_default=True, priority=1), Partition(name="fast", priority=4))


def busy(**fields: Any) -> CoreHost:
    """Jobs of all kinds that wait."""
    host = shared(weights=WEIGHTS, partitions=PARTITIONS, **fields)
    host.ask(client.SetQos(qos=QosInfo(name="urgent", priority=10), is_new=True), peer=OLGA)
    host.ask(client.SetQos(qos=QosInfo(name="low", priority=3), is_new=True), peer=OLGA)
    host.start(submit("holds", gpus=4), peer=BOB)
    queue_of(
        host, submit(gpus=1), submit(gpus=4, qos="urgent"), submit(gpus=2, partition="fast"), submit(gpus=1, nice=700)
    )
    queue_of(host, submit(gpus=1, qos="low"), submit(gpus=1, array="1-1000"), peer=BOB)
    queue_of(host, submit(gpus=1, priority=777, nice=3), submit(gpus=1, is_held=True), peer=OLGA)
    host.now += DAY
    return host


def test_the_points_of_each_factor_add_up_to_the_priority() -> None:
    host = busy()
    answer = priorities(host)

    assert len(answer.jobs) == 8
    for one in answer.jobs:
        assert sum(one.points.values()) == one.priority
        for name, weight in answer.weights.items():
            assert 0.0 <= one.factors[name] <= 1.0
            assert one.points[name] == (0 if "override" in one.points else round(weight * one.factors[name]))
    ranked = [(-one.priority, one.job_id) for one in answer.jobs]
    assert ranked == sorted(ranked)


def test_what_gqprio_prints_is_what_lists_show_and_the_order_in_which_jobs_are_considered() -> None:
    host = busy()
    answer = priorities(host)
    jobs = host.ask(client.ListJobs(in_queue_order=True))
    assert isinstance(jobs, client.Jobs)
    waiting = [one for one in jobs.jobs if one.state == "PENDING"]

    assert [(one.job_id, one.priority) for one in waiting] == [(one.job_id, one.priority) for one in answer.jobs]
    assert order(host) == [one.job_id for one in answer.jobs if one.job_id != 9]
    assert [one.state for one in jobs.jobs if one not in waiting] == ["RUNNING"]


def test_a_running_job_shows_the_priority_with_which_it_started() -> None:
    host = shared()
    first = host.start(submit("all", gpus=4))
    waiting = host.submit(submit("one", gpus=4, priority=777), peer=OLGA)

    def shown() -> tuple[str, int]:
        jobs = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(waiting,))))
        assert isinstance(jobs, client.Jobs)
        return jobs.jobs[0].state, jobs.jobs[0].priority

    assert shown() == ("PENDING", 777)
    host.finish(first)
    host.schedule(now=host.now + 1)
    host.obey()
    assert shown() == ("RUNNING", 777)

    host.restart()
    assert shown() == ("RUNNING", 777)


def test_each_factor_says_what_it_should() -> None:
    answer = {one.job_id: one for one in priorities(busy()).jobs}

    assert answer[3].factors["qos"] == 1.0 and answer[6].factors["qos"] == pytest.approx(0.3)
    assert answer[4].factors["partition"] == 1.0 and answer[2].factors["partition"] == 0.25
    assert answer[3].factors["job_size"] == 1.0 and answer[4].factors["job_size"] == 0.5
    assert answer[2].factors["age"] == pytest.approx((DAY + 420) / (7 * DAY))
    assert answer[9].factors["age"] == 0.0, "it is held"
    assert answer[2].factors["fair_share"] == 1.0 > answer[6].factors["fair_share"]
    assert answer[5].points["nice"] == -700
    assert answer[8].priority == answer[8].points["override"] == 777
    assert answer[7].array_tasks == "1-1000" and answer[7].array_job_id == 7


def test_priorities_are_paged_and_filtered() -> None:
    host = busy()
    whole = [one.job_id for one in priorities(host).jobs]
    first, rest = priorities(host, limit=3), priorities(host, skip=3, limit=5)

    assert [one.job_id for one in (*first.jobs, *rest.jobs)] == whole
    assert first.more and not rest.more
    mine = priorities(host, filter=client.JobFilter(users=("bob",))).jobs
    assert [one.job_id for one in mine] == [one for one in whole if one in (6, 7)]
    assert [one.job_id for one in priorities(host, filter=client.JobFilter(job_ids=(3, 1))).jobs] == [3]


def test_other_weights_reorder_the_queue_without_a_restart() -> None:
    host = busy()
    before = order(host)
    assert before[0] == 3, "the urgent one"
    host.handle(PolicyChanged(policy=with_weights(host, qos=0.0, fair_share=0.0, job_size=0.0, partition=50_000.0)))

    assert host.controller.wants_plan(host.now + 10)
    assert order(host)[0] == 4, "the one in the fast partition"


def test_an_operator_s_word_goes_before_the_factors() -> None:
    host = busy()
    host.ask(client.UpdateJob(job_id=5, priority=10**6), peer=OLGA)
    assert order(host)[0] == 5
    host.ask(client.UpdateJob(job_id=5, clear_priority=True), peer=OLGA)
    assert order(host)[0] == 3


def test_age_counts_from_when_the_owner_let_the_job_go_and_a_requeue_does_not_begin_it_anew() -> None:
    host = shared(gpus=1)
    host.submit(submit("held", gpus=1, is_held=True), now=10, peer=ALICE)
    host.ask(client.ReleaseJobs(job_ids=(1,)), now=1000, peer=ALICE)
    assert host.job(1).accrue_at == 1000
    host.submit(submit("later", gpus=1, begin_at=5000.0), now=1500, peer=ALICE)
    assert host.job(2).accrue_at == 5000
    host.schedule()
    host.obey()
    host.ask(client.RequeueJobs(job_ids=(1,)), now=2000, peer=ALICE)
    host.obey()
    assert host.job(1).accrue_at == 1000
    host.ask(client.HoldJobs(job_ids=(1,)), now=3000, peer=ALICE)
    assert host.job(1).accrue_at is None
    host.ask(client.ReleaseJobs(job_ids=(1,)), now=4000, peer=ALICE)
    assert host.job(1).accrue_at == 4000


def test_of_equal_jobs_the_older_id_goes_first_however_large_the_numbers() -> None:
    host = shared()
    for _ in range(40):
        host.submit(submit(gpus=1), peer=ALICE)
    for job_id in range(1, 41, 3):
        host.ask(client.HoldJobs(job_ids=(job_id,)), peer=ALICE)
        host.ask(client.ReleaseJobs(job_ids=(job_id,)), peer=ALICE)
    assert order(host) == list(range(1, 41))
    host.ask(client.UpdateJob(job_id=7, priority=2**31 - 1), peer=OLGA)
    host.ask(client.UpdateJob(job_id=9, nice=2**30), peer=OLGA)
    assert order(host) == [7, *(one for one in range(1, 41) if one not in (7, 9)), 9]


def test_a_pass_looks_at_every_job_that_could_start_if_there_were_room() -> None:
    down = Partition(name="down", is_up=False)
    host = shared(partitions=(*PARTITIONS, down))
    queue_of(host, *[submit(gpus=1) for _ in range(60)])
    queue_of(host, submit(partition="fast"), submit(partition="down"), submit(is_held=True), submit(begin_at=1e6))

    assert sorted(order(host)) == [*range(1, 62)]


def test_what_has_changed_since_a_pass_began_is_held_for_it_and_what_has_not_is_the_same_object() -> None:
    host = shared()
    queue_of(host, *[submit(gpus=4, partition=None) for _ in range(4)])
    before = host.controller.snapshot(host.now)
    same = before.pending[3]
    host.ask(client.UpdateJob(job_id=2, time_limit_s=60), peer=ALICE)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(3,))), peer=ALICE)

    assert [(one.job_id, one.is_held) for one in before.pending] == [(1, False), (2, True), (3, True), (4, False)]
    after = host.controller.snapshot(host.now)
    assert [(one.job_id, one.is_held, one.time_limit_s) for one in after.pending] == [
        (2, False, 60), (1, False, None), (4, False, None),
    ]  # fmt: skip
    assert after.pending[2] is same
    assert after.nodes is before.nodes


def test_a_queue_is_walked_by_arrival_or_by_expected_length_where_the_policy_says_so() -> None:
    for order_by, wanted in (("arrival", [1, 2, 3, 4]), ("shortest", [2, 4, 1, 3])):
        host = shared(scheduling=Scheduling(order=order_by))
        queue_of(host, *[submit(time_limit_s=one) for one in (300, 60, 900, 60)])
        host.ask(client.UpdateJob(job_id=3, priority=2**31 - 1), peer=OLGA)
        assert order(host) == wanted


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────


def tree_of(accounts: list[tuple[str, str, int]], users: list[tuple[str, str, int, float]]) -> Cluster:
    """Accounts: name, parent, shares.  Users: name, account, shares, usage."""
    cluster = Cluster()
    for name, parent, count in accounts:
        cluster.accounts[name] = AccountInfo(name=name, parent=parent, shares=count)
    for user, account, count, used in users:
        info = MemberInfo(user=user, account=account, shares=count)
        cluster.members[user, account] = Member(info, DecayedUsage(used, 0.0, 0))
    return cluster


def factors_of(cluster: Cluster) -> dict[str, float]:
    return {user: branch.fair_share for (user, _), branch in fair_tree(cluster, 0.0).users.items()}


def test_everybody_in_an_account_that_had_less_goes_before_everybody_in_one_that_had_more() -> None:
    """The example of Slurm's page: what a user did hardly matters against what the account did."""
    cluster = tree_of(
        [("a", "root", 40), ("b", "root", 60), ("b1", "b", 1), ("b2", "b", 1)],
        [("a1", "a", 1, 10.0), ("a2", "a", 1, 90.0), ("u1", "b1", 1, 40.0), ("u2", "b1", 2, 5.0), ("u3", "b2", 1, 1.0)],
    )
    assert factors_of(cluster) == {"u3": 1.0, "u2": 0.8, "u1": 0.6, "a1": 0.4, "a2": 0.2}


def test_ties_share_a_rank_and_tied_accounts_are_walked_as_one() -> None:
    cluster = tree_of(
        [("a", "root", 1), ("b", "root", 1)],
        [("a1", "a", 1, 10.0), ("a2", "a", 1, 30.0), ("b1", "b", 1, 20.0), ("b2", "b", 1, 20.0)],
    )
    assert factors_of(cluster) == {"a1": 1.0, "b1": 0.75, "b2": 0.75, "a2": 0.25}


def test_a_user_who_ties_with_an_account_comes_with_its_first() -> None:
    cluster = tree_of([("a", "root", 1)], [("own", "root", 1, 20.0), ("a1", "a", 1, 15.0), ("a2", "a", 1, 5.0)])
    assert factors_of(cluster) == {"own": 1.0, "a2": 1.0, "a1": 1 / 3}


def test_who_used_nothing_comes_first_and_who_has_no_shares_last() -> None:
    cluster = tree_of([("a", "root", 1)], [("new", "a", 1, 0.0), ("old", "a", 9, 1.0), ("none", "a", 0, 0.0)])
    assert factors_of(cluster) == {"new": 1.0, "old": 2 / 3, "none": 1 / 3}


# ── gqshare ───────────────────────────────────────────────────────────────────────────────────────────────────


def teams() -> CoreHost:
    host = shared(gpus=16, weights=PriorityWeights(half_life_s=None))
    for info in (
        AccountInfo(name="science", shares=3),
        AccountInfo(name="vision", parent="science", shares=2, guaranteed_gpus=4),
        AccountInfo(name="speech", parent="science", shares=1, guaranteed_gpus=2, borrow_gpus=6),
        AccountInfo(name="guests", shares=1),
    ):
        host.ask(client.SetAccount(account=info, is_new=True), peer=ADAM)
    for user, account in (("alice", "vision"), ("bob", "speech"), ("olga", "guests")):
        info = MemberInfo(user=user, account=account)
        host.ask(client.SetMember(member=info, is_new=True), peer=ADAM)
    host.start(submit(gpus=3), peer=ALICE)
    host.start(submit(gpus=6), peer=BOB)
    host.start(submit(gpus=5), peer=OLGA)
    host.now += HOUR
    return host


def test_gqshare_shows_the_tree_with_shares_usage_and_what_is_held() -> None:
    lines = {(line.account, line.user): line for line in shares(teams()).lines}

    assert next(iter(lines)) == ("root", "")
    assert lines["vision", ""].norm_shares == pytest.approx(3 / 5 * 2 / 3)
    assert lines["vision", "alice"].norm_shares == lines["vision", ""].norm_shares
    assert lines["vision", ""].usage == 3 * HOUR and lines["science", ""].usage == 9 * HOUR
    assert lines["science", ""].norm_usage == pytest.approx(9 / 14)
    assert lines["vision", ""].level_fs == pytest.approx((2 / 3) / (3 / 9))
    assert [lines[one].gpus for one in (("root", ""), ("science", ""), ("guests", "olga"))] == [14, 9, 5]
    assert lines["vision", "alice"].fair_share == 1.0
    assert lines["vision", ""].fair_share is None
    assert {line.depth for line in lines.values()} == {0, 1, 2, 3}


def test_gqshare_shows_who_borrowed_who_may_borrow_more_and_who_gives_back_first() -> None:
    lines = {line.account: line for line in shares(teams()).lines if not line.user}

    assert (lines["vision"].guaranteed_gpus, lines["vision"].borrowed_gpus, lines["vision"].gives_back) == (4, 0, None)
    assert (lines["speech"].borrowed_gpus, lines["speech"].may_borrow_gpus) == (4, 2)
    assert (lines["guests"].borrowed_gpus, lines["guests"].may_borrow_gpus) == (5, None)
    assert lines["science"].borrowed_gpus == lines["root"].borrowed_gpus == 0, "nobody is in them directly"
    # due: speech 16 x 1/5 = 3.2 of 6; guests 3.2 of 5
    assert [lines[one].gives_back for one in ("speech", "guests", "science")] == [1, 2, None]


def test_what_is_said_of_the_root_itself_does_no_harm() -> None:
    host = teams()
    host.ask(client.SetAccount(account=AccountInfo(name="root", coordinators=("alice",), shares=9)), peer=ADAM)
    host.submit(submit(gpus=16), peer=OLGA)

    assert order(host) == [4]
    assert [line.account for line in shares(host).lines if not line.depth] == ["root"]


def test_the_tree_cannot_be_deeper_than_can_be_walked() -> None:
    host = shared()
    parent = "root"
    with pytest.raises(Refusal, match="33 levels deep"):
        for number in range(100):
            host.ask(client.SetAccount(account=AccountInfo(name=f"a{number}", parent=parent), is_new=True), peer=ADAM)
            parent = f"a{number}"
    assert parent == "a30"
    host.ask(client.SetAccount(account=AccountInfo(name="top"), is_new=True), peer=ADAM)
    with pytest.raises(Refusal, match="33 levels deep"):
        host.ask(client.SetAccount(account=AccountInfo(name="a0", parent="top")), peer=ADAM)


def test_an_account_beside_guaranteed_ones_is_the_one_that_borrows_not_the_one_above() -> None:
    host = teams()
    host.ask(client.SetAccount(account=AccountInfo(name="robotics", parent="science"), is_new=True), peer=ADAM)
    host.ask(client.SetAccount(account=AccountInfo(name="arms", parent="robotics"), is_new=True), peer=ADAM)
    for account in ("arms", "science"):
        host.ask(client.SetMember(member=MemberInfo(user="olga", account=account), is_new=True), peer=ADAM)
        host.start(submit(gpus=1, account=account), peer=OLGA)
    lines = {line.account: line for line in shares(host).lines if not line.user}

    assert [lines[one].borrowed_gpus for one in ("science", "robotics", "arms")] == [1, 1, 0]
    assert lines["arms"].gpus == 1
    assert sum(line.borrowed_gpus for line in lines.values()) == 4 + 5 + 1 + 1


def test_nobody_has_borrowed_where_nothing_is_guaranteed() -> None:
    host = shared()
    host.start(submit(gpus=3), peer=ALICE)

    assert all(not line.borrowed_gpus and line.gives_back is None for line in shares(host).lines)


def test_gqshare_explains_in_words_why_one_stands_where_one_stands() -> None:
    why = shares(teams(), explain="bob").why

    for part in (
        "In account speech, bob has a fair-share of",
        "of 10100 points",
        "account speech is 33.3% of account science (1 of its shares); its usage is 6.00 of 9.00 weighted GPU-hours",
        "more than the share (level fair-share 0.500)",
        "account science is 60.0% of the cluster (3 of its shares)",
        "Past usage never decays",
    ):
        assert part in why


def test_gqshare_of_some_shows_them_and_what_is_above() -> None:
    host = teams()
    named = {(line.account, line.user) for line in shares(host, users=("bob",)).lines}
    assert named == {("root", ""), ("science", ""), ("speech", ""), ("speech", "bob")}
    below = {(line.account, line.user) for line in shares(host, accounts=("science",)).lines}
    assert below == {("science", ""), ("vision", ""), ("vision", "alice"), ("speech", ""), ("speech", "bob")}
    with pytest.raises(Refusal, match="bobb"):
        shares(host, explain="bobb")


# ── plug-ins ──────────────────────────────────────────────────────────────────────────────────────────────────


def short_first(jobs: Columns) -> Floats:
    """A site's own: the shorter the time limit, the better."""
    return 1.0 / (1.0 + np.nan_to_num(jobs.time_limit_s, posinf=1e9) / 3600.0)


@pytest.mark.parametrize("name", [*FACTORS, "short_first"])
def test_every_factor_keeps_to_the_contract(name: str) -> None:
    factor = {**FACTORS, "short_first": short_first}[name]
    host = busy()
    real = columns_of(host.cluster, host.policy, host.now)

    assert [violation_on(factor, jobs) for jobs in (*map(sample, SAMPLE_SIZES), real)] == [""] * (len(SAMPLE_SIZES) + 1)


def test_a_site_s_own_factor_orders_the_queue_and_is_shown() -> None:
    host = busy()
    policy = with_weights(host, factors={"short_first": 100_000.0})
    host.handle(PolicyChanged(policy=msgspec.structs.replace(policy, plugins={"short_first": short_first})))
    host.submit(submit("short", gpus=1, time_limit_s=60), peer=BOB)

    assert order(host)[0] == 10
    one = priorities(host).jobs[0]
    assert one.points["short_first"] == round(100_000 / (1 + 1 / 60))
    assert sum(one.points.values()) == one.priority


@pytest.mark.parametrize(
    "weights",
    [
        {},
        {"age": 50.0, "job_size": 20.0, "favor_small": True, "max_age_s": 3 * DAY},
        {"fair_share": 0.0, "short": 0.0, "partition": 0.0, "qos": 0.0},
        {"due": -70.0, "factors": {"short_first": 100.0}},
    ],
)
def test_a_pass_goes_by_the_priority_that_is_shown(weights: dict[str, Any]) -> None:
    host = busy()
    plugins: dict[str, PriorityFactor] = {"short_first": short_first}
    host.handle(PolicyChanged(policy=msgspec.structs.replace(with_weights(host, **weights), plugins=plugins)))
    ranking = rank(host.cluster, host.controller.policy, host.now)
    priority, band = priority_of(host.cluster, host.controller.policy, host.now)

    assert len(set(priority.tolist())) > 2
    assert (priority.tolist(), band.tolist()) == (ranking.priority.tolist(), ranking.band.tolist())


BREACHES: list[tuple[str, Callable[[Columns], object], str]] = [
    ("age", short_first, "a factor of gq's own"),
    ("no-word", short_first, "not a word"),
    ("raises", lambda jobs: 1 / 0, "fails on 0 jobs: ZeroDivisionError"),
    ("one", lambda jobs: 0.5, "a float, not an array of 0 numbers"),
    ("shape", lambda jobs: np.zeros(3), "an array of shape"),
    ("beyond", lambda jobs: np.full(len(jobs.job_id), 1.5), "from 1.5 to 1.5"),
    ("nan", lambda jobs: np.full(len(jobs.job_id), np.nan), "not finite"),
    ("chance", lambda jobs: np.random.default_rng().random(len(jobs.job_id)), "other numbers"),
    ("writes", lambda jobs: jobs.fair_share.__setitem__(slice(None), 1.0) or jobs.fair_share, "read-only"),
    ("words", lambda jobs: np.array(["x"] * len(jobs.job_id)), "not numbers"),
]


@pytest.mark.parametrize(("name", "factor", "said"), BREACHES, ids=[one[0] for one in BREACHES])
def test_what_breaks_the_contract_is_said(name: str, factor: Callable[[Columns], object], said: str) -> None:
    assert said in violation(name, factor)


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_order_of_many_jobs_is_what_sorting_them_one_by_one_says() -> None:
    host = busy()
    for number in range(300):
        host.controller.handle(
            client_request(submit(gpus=1 + number % 4, nice=number * 7 % 50), 1000 + number, BOB), host.now
        )
    ranking = rank(host.cluster, host.policy, host.now)
    points = dict(zip(ranking.job_ids.tolist(), ranking.priority.tolist(), strict=True))

    assert ranking.ordered_ids() == sorted(points, key=lambda job_id: (-points[job_id], job_id))
    assert set(points) == set(host.cluster.queue)


def test_the_order_is_the_same_after_a_restart() -> None:
    host = busy()
    before = [(one.job_id, one.priority) for one in priorities(host).jobs]
    host.restart()

    assert [(one.job_id, one.priority) for one in priorities(host).jobs] == before


def test_a_site_s_factor_cannot_move_jobs_beyond_its_weight_whatever_it_gives() -> None:
    host = busy()
    policy = with_weights(host, factors={"wild": 100.0})
    wild = {"wild": lambda jobs: np.where(jobs.job_id % 2 == 0, np.nan, 1e9)}
    host.handle(PolicyChanged(policy=msgspec.structs.replace(policy, plugins=wild)))
    points = {one.job_id: one.points["wild"] for one in priorities(host).jobs if one.job_id != 8}

    assert points == {job_id: 100 * (job_id % 2) for job_id in points}


def test_a_list_in_the_order_of_the_queue_has_every_job_once() -> None:
    host = busy()
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(2,))), peer=ADAM)
    listed = host.ask(client.ListJobs(in_queue_order=True))
    assert isinstance(listed, client.Jobs)

    assert [one.job_id for one in listed.jobs] == [1, *(one.job_id for one in priorities(host).jobs), 2]


def test_a_list_shows_the_order_as_it_is_now_also_right_after_another_list() -> None:
    host = shared()
    host.start(submit("all", gpus=4))
    first, second = (host.submit(submit(name, gpus=4)) for name in ("one", "two"))
    assert waiting_in_order(host) == [first, second]

    host.ask(client.UpdateJob(job_id=first, nice=100))
    assert waiting_in_order(host) == [second, first]
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(second,))))
    assert waiting_in_order(host) == [first]


def waiting_in_order(host: CoreHost) -> list[int]:
    listed = host.ask(client.ListJobs(filter=client.JobFilter(states=("PENDING",)), in_queue_order=True))
    assert isinstance(listed, client.Jobs)
    return [one.job_id for one in listed.jobs]
