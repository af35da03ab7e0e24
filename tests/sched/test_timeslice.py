"""Who gives its turn to whom as the planner decides it, at what price, and when it looks again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gq.explain.sentence import Context
from gq.explain.waits import wait_sentence
from gq.model.account import BUILT_IN_QOS, PreemptMode, QosInfo
from gq.model.explanation import JobName
from gq.model.ids import AttemptId, JobId
from gq.model.scheduling import PRESETS, Scheduling
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.planner import plan_whole
from gqd.sched.preemption.timeslice import (
    Contender,
    Holders,
    holders_now,
    holders_of,
    pays_off_at,
    sliceable_at,
    sliceable_now,
)
from gqd.sched.snapshot.model import PendingJob, RunningJob, Snapshot
from gqd.state.plan import NotWorthPreemptingYet, Plan, Preemption
from gqd.state.policy import Policy
from tests.sched.test_preempt import node, pending, running, snapshot, victims

H = 3600.0
NOW = 100 * H
R = 60.0
POLICY = Policy(owner_uid=0, scheduling=Scheduling(**PRESETS["las"]))
RULES = POLICY.scheduling


def runs(number: int, *cells: tuple[str, int, int], here_s: float, before_s: float = 0.0, **fields: Any) -> RunningJob:
    """For so long since it started, and so long before."""
    began_at = NOW - here_s
    usual = {"began_at": began_at, "saved_at": began_at, "since": float(number), "ran_s": before_s, "qos": "normal"}
    return running(number, *cells, **usual | {"resume_s": R, "saves": True, "comes_back": True} | fields)


def waits(number: int, waited_s: float = H, **fields: Any) -> PendingJob:
    told = {one: fields.pop(one) for one in ("since", "ran_s", "resume_s") if one in fields}
    job = pending(number, **fields)
    return replace(job, **{"since": NOW - waited_s} | told, waits_since=NOW - waited_s)


def seen(there: list[RunningJob], *waiting: PendingJob, nodes: int = 1, gpus: int = 4, **fields: Any) -> Snapshot:
    made = snapshot(tuple(node(one, gpus) for one in range(nodes)), there, list(waiting), policy=POLICY, **fields)
    return replace(made, now=NOW)


def planned(there: list[RunningJob], *waiting: PendingJob, **fields: Any) -> Plan:
    return plan_whole(seen(there, *waiting, **fields))


# ── whose turn it is ──────────────────────────────────────────────────────────────────────────────────────────

EARLY, LATE = 1.0, 1e6
IS_THROUGH, IS_GANG = True, True


@pytest.mark.parametrize(
    ("taker", "at"),
    [
        (Contender(LATE, not IS_THROUGH, not IS_GANG), 2 * H),  # when its trial is over: it had run for an hour
        (Contender(EARLY, not IS_THROUGH, not IS_GANG), 2 * H),  # that comes with its turn
        (Contender(EARLY, IS_THROUGH, not IS_GANG), 2 * H),
        (Contender(LATE, IS_THROUGH, not IS_GANG), float("inf")),
    ],
)
def test_when_a_job_within_its_trial_gives_its_turn(taker: Contender, at: float) -> None:
    [told] = sliceable_at(holders_of([runs(7, ("n0", 0, 1), here_s=0.0, before_s=H)], RULES), taker) - NOW

    assert told == at


@pytest.mark.parametrize(
    ("taker", "at"),
    [
        (Contender(LATE, not IS_THROUGH, not IS_GANG), 3 * R),
        (Contender(LATE, IS_THROUGH, not IS_GANG), float("inf")),
        (Contender(EARLY, IS_THROUGH, not IS_GANG), 2 * H),
    ],
)
def test_when_one_gives_its_turn_that_has_had_its_trial(taker: Contender, at: float) -> None:
    [told] = sliceable_at(holders_of([runs(7, ("n0", 0, 1), here_s=0.0, before_s=9 * H)], RULES), taker) - NOW

    assert told == at


def test_the_dearer_its_resume_the_longer_a_job_is_left_alone() -> None:
    dear = runs(7, ("n0", 0, 1), here_s=0.0, before_s=9 * H, resume_s=1200.0)
    first, last = Contender(EARLY, IS_THROUGH, not IS_GANG), Contender(LATE, not IS_THROUGH, not IS_GANG)

    assert sliceable_at(holders_of([dear], RULES), first) - NOW == 20 * 1200
    assert sliceable_at(holders_of([dear], RULES), last) - NOW == 3 * 1200


def test_a_gang_gives_its_turn_to_a_gang_and_time_in_which_it_stood_still_is_no_turn() -> None:
    gang = runs(7, ("n0", 0, 1), ("n1", 0, 1), here_s=9 * H, before_s=9 * H, stood_s=9 * H)
    givers = holders_of([gang], RULES)

    assert sliceable_at(givers, Contender(LATE, not IS_THROUGH, not IS_GANG)) == float("inf")
    assert sliceable_at(givers, Contender(LATE, not IS_THROUGH, IS_GANG)) - NOW == 3 * R


@pytest.mark.parametrize("taker", [Contender(4 * H, *one) for one in itertools.product((False, True), repeat=2)])
def test_who_gives_its_turn_now_is_who_gives_it_from_now_or_before(taker: Contender) -> None:
    instants = range(3, 7)
    columns = [np.array(one, np.float64) * H for one in zip(*itertools.product(instants, repeat=4), strict=True)]
    givers = Holders(*columns[:4], np.arange(len(columns[0])) % 3 == 0)

    told = sliceable_now(holders_now(givers, 5 * H), taker)

    assert told.any()
    assert (told == (sliceable_at(givers, taker) <= 5 * H)).all()


def test_a_price_is_waited_for_by_each_of_ones_own_gpus() -> None:
    assert pays_off_at(100.0, 8 * R, 8) == 100 + R / 2
    assert pays_off_at(100.0, 8 * R, 1) == 100 + 8 * R / 2
    assert pays_off_at(100.0, 8 * R, 0) == 100 + 8 * R / 2, "a job without GPUs counts as one"


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_those_go_that_have_least_gpus_and_of_equal_ones_who_came_last() -> None:
    old = {"here_s": H, "before_s": 9 * H}
    there = [runs(1, ("n0", 0, 2), **old), runs(2, ("n0", 2, 1), **old), runs(3, ("n0", 3, 1), **old)]

    assert victims(planned(there, waits(9, gpus=1))) == [{3}]
    assert victims(planned(there, waits(9, gpus=2))) == [{2, 3}], "the first of them came later than the other"
    assert victims(planned(there, waits(9, gpus=3))) == [{1, 3}]


def test_a_gang_goes_only_where_others_would_lose_twice_as_much() -> None:
    old = {"here_s": H, "before_s": 9 * H}
    gang = runs(9, ("n0", 0, 4), ("n1", 0, 4), **old)
    small = [runs(one, (f"n{one + 1}", 0, 4), **old) for one in (1, 2)]
    wants = waits(20, gpus=8, is_dense=True)

    assert victims(planned([gang, *small], wants, nodes=4)) == [{1, 2}], "though it came last"
    assert victims(planned([gang, small[0]], wants, nodes=3)) == [{9}]
    early = planned([gang], waits(20, waited_s=29.0, gpus=8, is_dense=True), nodes=2)
    assert early.waits == {20: NotWorthPreemptingYet(victims=(), at=NOW + 1)}, "what is waited for is what is lost"


def test_who_does_not_save_its_work_when_it_is_told_loses_it_and_goes_last() -> None:
    old = {"here_s": 9 * H, "before_s": 9 * H}
    there = [runs(1, ("n0", 0, 2), **old), runs(2, ("n0", 2, 1), saves=False, **old), runs(3, ("n0", 3, 1), here_s=9.0)]

    assert victims(planned(there, waits(9, gpus=1))) == [{1}]


@pytest.mark.parametrize(
    "fields", [{"comes_back": False}, {"qos": "kept"}, {"qos": "ended"}, {"saved_at": None}, {"is_stranded": True}]
)
def test_nobody_gives_its_turn_who_would_not_wait_again_or_whose_qos_is_protected(fields: dict[str, Any]) -> None:
    qos = {
        **BUILT_IN_QOS,
        "kept": QosInfo(name="kept", preempt_mode=PreemptMode.OFF),
        "ended": QosInfo(name="ended", preempt_mode=PreemptMode.CANCEL),
    }
    there = [runs(1, ("n0", 0, 4), here_s=9 * H, **fields)]

    assert not planned(there, waits(9, gpus=1), qos=qos).preemptions


def test_a_job_waits_for_as_long_as_the_stop_is_worth_and_says_so_then_it_is_looked_at_again() -> None:
    there = [runs(1, ("n0", 0, 4), here_s=9 * H)]

    early = planned(there, waits(9, waited_s=119.0, gpus=1))

    assert not early.preemptions
    assert early.waits == {9: NotWorthPreemptingYet(victims=(JobId(1),), at=NOW + 1)}
    assert early.changes_at == NOW + 1
    assert victims(planned(there, waits(9, waited_s=120.0, gpus=1))) == [{1}]


def test_where_it_has_not_waited_long_enough_for_whoever_it_were_nobody_is_looked_for() -> None:
    plan = planned([runs(1, ("n0", 0, 4), here_s=9 * H)], waits(9, waited_s=29.0, gpus=1))

    assert plan.waits == {9: NotWorthPreemptingYet(victims=(), at=NOW + 1)}
    words = wait_sentence(Context(JobName(9, "9", "ada", "late"), lambda _: None), plan.waits[JobId(9)])
    assert words.why.startswith("other jobs may be preempted for it at")


def test_a_plan_says_when_somebody_who_waits_may_take_the_next_turn() -> None:
    there = [runs(5, ("n0", 0, 4), here_s=H, before_s=9 * H)]

    assert planned(there, waits(9, since=1.0, ran_s=9 * H, gpus=1)).changes_at == NOW + H
    assert planned(there, waits(9, ran_s=9 * H, gpus=1)).changes_at is None, "it came later"


def test_a_job_that_a_pass_starts_has_a_turn_too() -> None:
    jobs = waits(2, since=1.0, gpus=4, ran_s=9 * H), waits(3, since=2.0, gpus=4, resume_s=R)
    plan = planned([], *reversed(jobs))

    assert [one.job_id for one in plan.starts] == [3]
    assert plan.changes_at == NOW + 3 * H, "when its trial is over the first has its place"


def test_what_qos_gives_a_job_it_need_not_wait_for() -> None:
    there = [runs(1, ("n0", 0, 4), here_s=60.0)]

    assert victims(planned(there, waits(9, waited_s=0.0, gpus=1, qos="high"))) == [{1}]
    assert not planned(there, waits(9, waited_s=0.0, gpus=1)).preemptions


def test_of_those_alike_only_the_first_is_looked_at() -> None:
    """The others would find nobody whom it does not, or would go before it."""
    there = [runs(1, ("n0", 0, 4), here_s=9 * H)]

    plan = planned(there, waits(8, waited_s=10.0, gpus=4), waits(9, gpus=4))

    assert not plan.preemptions


def test_a_decision_that_does_not_hold_any_more_is_not_adopted() -> None:
    there = runs(1, ("n0", 0, 4), here_s=9 * H)
    one = Preemption(job_id=JobId(9), attempt=0, grants=there.grants, victims=(AttemptId(JobId(1), 1),))
    late = StartRequest(JobId(9), "ada", "", "", None, since=NOW)

    assert PlanValidator(seen([there])).admit_preemption(one, late)
    assert not PlanValidator(seen([there])).admit_preemption(one, late._replace(ran_s=9 * H)), (
        "it has had its trial as well"
    )
    assert not PlanValidator(seen([replace(there, began_at=NOW - 1)])).admit_preemption(one, late)
    by_qos = replace(seen([there]), policy=Policy(owner_uid=0))
    assert not PlanValidator(by_qos).admit_preemption(one, late), "nobody takes turns any more"


# ── searches ──────────────────────────────────────────────────────────────────────────────────────────────────


ONE_STAYS = [runs(1, ("n0", 0, 3), here_s=9 * H, qos="scavenger"), runs(2, ("n0", 3, 1), here_s=9.0, qos="high")]


@pytest.mark.parametrize("policy", [POLICY, Policy(owner_uid=0)])
def test_who_could_not_have_enough_gpus_costs_no_search(policy: Policy) -> None:
    vain = [waits(10 + one, waited_s=2 * H, gpus=4, cpus_per_task=one + 1) for one in range(25)]

    plan = plan_whole(replace(seen(ONE_STAYS, *vain, waits(90, gpus=1)), policy=policy))

    assert victims(plan) == [{1}]


@pytest.mark.parametrize("policy", [POLICY, Policy(owner_uid=0)])
def test_many_who_find_nobody_keep_nobody_behind_them_from_finding_somebody(policy: Policy) -> None:
    """Each wants something else, and all want more CPUs than could be had; the next passes go on where one stopped."""
    vain = [waits(10 + one, waited_s=2 * H, gpus=3, cpus_per_task=8, mem_per_node_mib=one + 1) for one in range(25)]
    first = replace(seen(ONE_STAYS, *vain, waits(90, gpus=1)), policy=policy)

    view, passes = first, 1
    while not (plan := plan_whole(view)).preemptions and plan.searches_from is not None and passes < 20:
        view, passes = replace(view, searches_from=plan.searches_from), passes + 1

    assert victims(plan) == [{1}]
    assert 1 < passes <= 6
