"""Who is parked and not ended, as the planner decides it, and what others may count on then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gq.model.account import BUILT_IN_QOS, PreemptMode
from gq.model.ids import JobId
from gq.model.resource import Amount, Grant
from gqd.sched.planner import plan_whole
from gqd.sched.preemption.nominations import with_nominations
from gqd.sched.snapshot.model import Nomination, PendingJob, ReservedOccurrence, Snapshot
from gqd.state.plan import Plan
from gqd.state.policy import Policy
from tests.property.streams import scheduling
from tests.sched.test_preempt import NOW, node, pending, running, snapshot, victims

MODE = {"scavenger": msgspec.structs.replace(BUILT_IN_QOS["scavenger"], preempt_mode=PreemptMode.SUSPEND)}


def wants(number: int, **fields: Any) -> PendingJob:
    """It says what it needs of the memory of its GPUs."""
    return replace(pending(number, **fields), fits_beside=True)


def of(there: list[Any], waiting: list[PendingJob], nodes: int = 1, **fields: Any) -> Snapshot:
    known = fields.pop("qos", {**BUILT_IN_QOS, **MODE})
    return replace(snapshot(tuple(node(one) for one in range(nodes)), there, waiting, **fields), qos=known)


def parks(plan: Plan) -> list[set[int]]:
    return [{one.job_id for one in each.parks} for each in plan.preemptions]


def test_who_can_be_parked_is_parked_and_chosen_before_who_would_lose_its_work() -> None:
    there = [
        running(1, ("n0", 0, 2), saved_at=NOW - 10),
        running(2, ("n0", 2, 2), saved_at=NOW - 900, can_park=True),
    ]
    plan = plan_whole(of(there, [wants(7, gpus=2)]))
    assert (victims(plan), parks(plan)) == ([{2}], [{2}])


def test_where_one_is_not_enough_one_may_be_parked_and_the_other_ended() -> None:
    there = [running(1, ("n0", 0, 2)), running(2, ("n0", 2, 2), can_park=True)]
    plan = plan_whole(of(there, [wants(7, gpus=4)]))
    assert (victims(plan), parks(plan)) == ([{1, 2}], [{2}])


def test_it_is_parked_only_in_the_mode_suspend_and_for_who_says_what_it_needs() -> None:
    there = [running(1, ("n0", 0, 4), can_park=True)]
    assert parks(plan_whole(of(there, [wants(7, gpus=4)]))) == [{1}]
    assert parks(plan_whole(of(there, [wants(7, gpus=4)], qos=BUILT_IN_QOS))) == [set()]
    assert parks(plan_whole(of(there, [pending(7, gpus=4)]))) == [set()]


def test_what_a_promised_start_counts_on_is_ended() -> None:
    there = [running(1, ("n0", 0, 4), ends_at=NOW + 100, can_park=True)]
    policy = Policy(owner_uid=0, scheduling=scheduling("conservative"))
    first = pending(7, "scavenger", gpus=4, limit_s=600)
    short = wants(8, gpus=2, limit_s=100)

    beside = plan_whole(of(there, [first, short], policy=policy))
    alone = plan_whole(of(there, [short], policy=policy))

    assert (victims(beside), parks(beside)) == ([{1}], [set()])
    assert (victims(alone), parks(alone)) == ([{1}], [{1}])


def test_what_a_reservation_counts_on_is_ended() -> None:
    there = [running(1, ("n0", 0, 4), ends_at=NOW + 5000, can_park=True)]
    later = ReservedOccurrence("r", 1, NOW + 6000, NOW + 6060, NOW + 9000, (Grant(node="n0", gpus=(0,)),), "eve")
    plan = plan_whole(of(there, [wants(7, gpus=2, limit_s=100)], booked=(later,)))
    assert (victims(plan), parks(plan)) == ([{1}], [set()])


def test_what_a_parked_job_lends_is_free_for_its_own_guest_and_for_nobody_else() -> None:
    lent = Grant(node="n0", cpus=(0, 1, 2, 3), gpus=(0, 1, 2, 3))
    claim = Nomination(JobId(7), (lent,), NOW, parked=(lent,), parks=frozenset({JobId(1)}))
    view = of([running(1, ("n0", 0, 4), saved_at=None, can_park=True)], [wants(7, gpus=4), pending(8, gpus=1)])
    view = replace(view, claims=(claim,))

    assert with_nominations(view, but=JobId(7)).free_gpus == (0b1111,)
    assert with_nominations(view).free_gpus == (0,)
    plan = plan_whole(view)

    assert [(one.job_id, one.grants[0].gpus) for one in plan.starts] == [(7, (0, 1, 2, 3))]


def test_who_waits_is_not_told_that_it_has_the_gpus_when_the_guest_is_over() -> None:
    """They go back to the parked job, of which nobody knows when it is over."""
    lent = Grant(node="n0", cpus=(0, 1, 2, 3), gpus=(0, 1, 2, 3))
    claim = Nomination(JobId(7), (lent,), NOW, time_limit_s=60, parked=(lent,), parks=frozenset({JobId(1)}))
    view = of([running(1, ("n0", 0, 4), saved_at=None)], [wants(7, gpus=4, limit_s=60), pending(8, gpus=4, limit_s=60)])
    plan = plan_whole(replace(view, claims=(claim,)))
    assert [one.job_id for one in plan.starts] == [7]
    assert not [one for one in plan.protected if one.is_promise]


def test_who_keeps_a_licence_that_is_wanted_is_ended_where_it_could_be_parked_otherwise() -> None:
    """What a protected start elsewhere needs then would not be left for both."""
    tool = (Amount("tool", 1),)
    bare = running(1, ("n0", 0, 4), can_park=True)
    holder = replace(bare, grants=(msgspec.structs.replace(bare.grants[0], licenses=tool),))
    there = [holder, running(2, ("n1", 0, 4), qos="normal", ends_at=NOW + 100)]
    policy = Policy(owner_uid=0, scheduling=scheduling("conservative"), licenses={"tool": 2})
    first = pending(7, "scavenger", gpus=4, limit_s=600, licenses=tool, nodelist=("n1",))
    wanted = wants(8, gpus=2, limit_s=1000, licenses=tool)

    plan = plan_whole(of(there, [first, wanted], nodes=2, policy=policy, free_licenses={"tool": 1}))

    assert (victims(plan), parks(plan)) == ([{1}], [set()])
