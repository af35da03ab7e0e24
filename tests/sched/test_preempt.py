"""Who gives way to whom as the planner decides it: victims, what is kept for whom, and who starts on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gq.model.account import BUILT_IN_QOS, AccountInfo, Holder, LimitInfo, PreemptMode, QosInfo
from gq.model.ids import AttemptId, JobId
from gq.model.resource import Amount, Grant, ResourceRequest
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.forecast import Forecast, ForecastInput, ForecastStart
from gqd.sched.limits.ledger import LimitView
from gqd.sched.planner import plan_whole
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import (
    Nomination,
    PendingJob,
    ReservedOccurrence,
    ResizeBounds,
    RunningJob,
    Share,
    Snapshot,
)
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.plan import Insufficient, Plan, Preempts
from gqd.state.policy import Policy
from gqd.state.records import mask_of
from tests.property.streams import scheduling

NOW = 1000.0
MEMORY_MIB = 1000


def node(number: int, gpus: int = 4, cpus: int = 8) -> NodeFacts:
    return NodeFacts(f"n{number}", cpus, MEMORY_MIB, (("a", (1 << gpus) - 1),))


def running(number: int, *cells: tuple[str, int, int], qos: str = "scavenger", **fields: Any) -> RunningJob:
    """`cells`: (node, first GPU, how many), with as many CPUs; saved when it began, if nothing else is said."""
    grants = tuple(
        Grant(node=name, cpus=tuple(range(first, first + count)), gpus=tuple(range(first, first + count)))
        for name, first, count in cells
    )
    fields = {"began_at": 100.0, "saved_at": 100.0, "ends_at": None, **fields}
    return RunningJob(job_id=JobId(number), user="eve", grants=grants, qos=qos, attempt=1, **fields)


def pending(number: int, qos: str = "normal", limit_s: int | None = None, **request: Any) -> PendingJob:
    return PendingJob(
        job_id=JobId(number),
        attempt=0,
        user="ada",
        shape=shape_of(ResourceRequest(**request), "main"),
        time_limit_s=limit_s,
        is_held=False,
        begin_at=None,
        qos=qos,
        since=NOW,
    )


def snapshot(
    nodes: tuple[NodeFacts, ...], there: list[RunningJob], waiting: list[PendingJob], **fields: Any
) -> Snapshot:
    places = {one.name: place for place, one in enumerate(nodes)}
    cpus, gpus = [one.cpu_mask for one in nodes], [one.gpu_mask for one in nodes]
    memory = [one.memory_mib for one in nodes]
    for job in there:
        for grant in job.grants:
            cpus[places[grant.node]] &= ~mask_of(grant.cpus)
            gpus[places[grant.node]] &= ~mask_of(grant.gpus)
            memory[places[grant.node]] -= grant.memory_mib
    return Snapshot(
        now=NOW,
        policy=fields.pop("policy", Policy(owner_uid=0)),
        nodes=nodes,
        free_cpus=tuple(cpus),
        free_gpus=tuple(gpus),
        free_memory_mib=tuple(memory),
        pending=tuple(waiting),
        running=tuple(there),
        **fields,
    )


def victims(plan: Plan) -> list[set[int]]:
    return [{int(one.job_id) for one in each.victims} for each in plan.preemptions]


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_lost_least_since_its_checkpoint_gives_way_and_no_more_than_are_needed() -> None:
    there = [running(1, ("n0", 0, 2)), running(2, ("n0", 2, 1), saved_at=990.0), running(3, ("n0", 3, 1))]

    plan = plan_whole(snapshot((node(0),), there, [pending(7, gpus=1)]))

    assert [one.victims for one in plan.preemptions] == [(AttemptId(JobId(2), 1),)]
    assert plan.preemptions[0].grants[0].gpus == (2,)
    assert plan.waits == {7: Preempts(victims=(JobId(2),), until=NOW)}
    assert not plan.starts


def test_nobody_gives_way_to_a_job_that_fits_beside_them() -> None:
    plan = plan_whole(snapshot((node(0),), [running(1, ("n0", 0, 3))], [pending(7, gpus=1)]))

    assert not plan.preemptions
    assert [one.job_id for one in plan.starts] == [7]


def test_nobody_gives_way_where_even_all_of_them_would_not_suffice() -> None:
    there = [running(1, ("n0", 0, 3)), running(2, ("n0", 3, 1), qos="normal")]

    plan = plan_whole(snapshot((node(0),), there, [pending(7, gpus=4)]))

    assert not plan.preemptions
    assert isinstance(plan.waits[JobId(7)], Insufficient)


def test_who_gives_way_to_whom_is_said_by_the_qos() -> None:
    there = [running(1, ("n0", 0, 4), qos="normal")]

    assert not plan_whole(snapshot((node(0),), there, [pending(7, gpus=1)])).preemptions
    assert not plan_whole(snapshot((node(0),), there, [pending(7, "scavenger", gpus=1)])).preemptions
    assert victims(plan_whole(snapshot((node(0),), there, [pending(7, "high", gpus=1)]))) == [{1}]


def test_who_has_not_run_for_as_long_as_its_qos_protects_it_stays_and_so_does_one_of_a_qos_that_never_gives_way() -> (
    None
):
    there = [running(1, ("n0", 0, 2), began_at=950.0), running(2, ("n0", 2, 2))]
    protected = {**BUILT_IN_QOS, "scavenger": QosInfo(name="scavenger", min_run_s=60)}
    never = {**BUILT_IN_QOS, "scavenger": QosInfo(name="scavenger", preempt_mode=PreemptMode.OFF)}

    assert victims(plan_whole(snapshot((node(0),), there, [pending(7, gpus=2)], qos=protected))) == [{2}]
    assert not plan_whole(snapshot((node(0),), there, [pending(7, gpus=2)], qos=never)).preemptions


def test_who_is_being_started_or_ended_or_gives_way_already_is_no_victim() -> None:
    there = [
        running(1, ("n0", 0, 1), saved_at=None),
        running(2, ("n0", 1, 1), preemptor=JobId(9)),
        running(3, ("n0", 2, 1), is_stranded=True),
    ]

    assert not plan_whole(snapshot((node(0, gpus=3),), there, [pending(7, gpus=1)])).preemptions


def test_a_gang_takes_the_cheapest_nodes_and_a_victim_over_several_counts_once() -> None:
    there = [
        running(1, ("n0", 0, 4), ("n1", 0, 4), saved_at=800.0),
        running(2, ("n2", 0, 4), saved_at=880.0),
        running(3, ("n3", 0, 4), saved_at=860.0),
    ]
    cluster = tuple(node(number) for number in range(4))

    plan = plan_whole(snapshot(cluster, there, [pending(7, nodes_min=2, gpus_per_node=4)]))

    assert victims(plan) == [{2, 3}]  # 480 + 560 GPU-seconds, against 1600 of the one over two nodes
    there[0] = replace(there[0], saved_at=900.0)
    assert victims(plan_whole(snapshot(cluster, there, [pending(7, nodes_min=2, gpus_per_node=4)]))) == [{1}]


def test_two_jobs_do_not_share_a_victim_and_the_first_in_the_queue_chooses_first() -> None:
    there = [running(1, ("n0", 0, 2), saved_at=999.0), running(2, ("n0", 2, 2))]

    plan = plan_whole(snapshot((node(0),), there, [pending(7, gpus=2), pending(8, gpus=2), pending(9, gpus=2)]))

    assert [(one.job_id, one.victims[0].job_id) for one in plan.preemptions] == [(7, 1), (8, 2)]


def test_what_is_free_of_it_is_kept_from_those_behind_in_the_same_plan() -> None:
    there = [running(1, ("n0", 0, 3))]

    plan = plan_whole(snapshot((node(0),), there, [pending(7, gpus=4), pending(8, gpus=1, limit_s=10)]))

    assert victims(plan) == [{1}]
    assert not plan.starts


def test_tasks_of_an_array_are_decided_one_by_one() -> None:
    there = [running(1, ("n0", 0, 1)), running(2, ("n0", 1, 1))]
    array = replace(pending(7, gpus=1), tasks=0b1110, array_job_id=JobId(7))

    plan = plan_whole(snapshot((node(0, gpus=2),), there, [array]))

    assert [(one.job_id, one.task) for one in plan.preemptions] == [(7, 1), (7, 2)]
    assert sorted(victims(plan), key=min) == [{1}, {2}]
    assert isinstance(plan.waits[JobId(7)], Insufficient)


def test_nobody_is_told_to_go_for_a_job_that_would_start_no_later_anyway() -> None:
    there = [running(1, ("n0", 0, 4), lead_s=120.0, ends_at=NOW + 3600), running(2, ("n1", 0, 4), qos="normal")]
    soon = replace(there[1], ends_at=NOW + 100)

    nodes = (node(0), node(1))
    plan = plan_whole(snapshot(nodes, there, [pending(7, gpus=4, limit_s=60)]))
    assert victims(plan) == [{1}]
    assert plan.waits[JobId(7)] == Preempts(victims=(JobId(1),), until=NOW + 120)
    assert not plan_whole(snapshot(nodes, [there[0], soon], [pending(7, gpus=4, limit_s=60)])).preemptions


def test_who_is_told_long_before_does_not_keep_others_from_going_at_once() -> None:
    there = [
        running(1, ("n0", 0, 4)),
        running(2, ("n1", 0, 1), lead_s=300.0),
        running(3, ("n1", 1, 3), qos="normal"),
    ]
    whole = Grant(node="n0", cpus=tuple(range(8)), gpus=(0, 1, 2, 3))
    soon = ReservedOccurrence("r", 1, NOW + 500, NOW + 560, NOW + 1000, (whole,), "eve")

    plan = plan_whole(snapshot((node(0), node(1)), there, [pending(7, gpus=4, limit_s=400)], booked=(soon,)))

    assert victims(plan) == [{1}]


def test_where_those_who_lose_least_would_go_too_late_others_go() -> None:
    there = [
        running(1, ("n0", 0, 4), saved_at=990.0, lead_s=300.0),
        running(2, ("n1", 0, 4)),
        running(3, ("n2", 0, 4), qos="normal", ends_at=NOW + 100),
    ]

    plan = plan_whole(snapshot((node(0), node(1), node(2)), there, [pending(7, gpus=4, limit_s=60)]))

    assert victims(plan) == [{2}]


def test_nobody_gives_way_to_a_job_as_long_as_it_leaves_out_nodes_where_it_could_not_be_launched() -> None:
    there = [running(1, ("n0", 0, 4))]

    def asked(until: float) -> list[set[int]]:
        job = replace(pending(7, gpus=4), avoid=(("n1", until),))
        return victims(plan_whole(snapshot((node(0), node(1, gpus=2)), there, [job])))

    assert asked(NOW + 60) == []
    assert asked(NOW) == [{1}]


def test_who_may_not_have_what_others_would_leave_does_not_keep_another_user_from_it() -> None:
    most = LimitInfo(holder=Holder.USER, name="ada", resource="gpus:a", most=2)
    limits = LimitView(limits={(Holder.USER, "ada"): (most,)})
    waiting = [pending(7, gpus=4), pending(8, gpus=4), replace(pending(9, gpus=4), user="bob")]

    plan = plan_whole(snapshot((node(0),), [running(1, ("n0", 0, 4))], waiting, limits=limits))

    assert [one.job_id for one in plan.preemptions] == [9]


def test_types_of_gpus_memory_generic_resources_and_licences_are_freed_as_they_are_needed() -> None:
    mixed = NodeFacts("n0", 8, MEMORY_MIB, (("a", 3), ("b", 12)), resources=(("nvme", 2),))
    policy = Policy(owner_uid=0, licenses={"matlab": 2})

    def who(free: dict[str, Any], given: dict[str, Any], **request: Any) -> list[set[int]]:
        """Of two scavengers the second has more to lose, and has something of what is asked for."""
        first, second = running(1, ("n0", 0, 2), saved_at=NOW), running(2, ("n0", 2, 2))
        second = replace(second, grants=(msgspec.structs.replace(second.grants[0], **given),))
        view = snapshot((mixed,), [first, second], [pending(7, **request)], policy=policy, **free)
        return victims(plan_whole(view))

    assert who({}, {}, gpus=1) == [{1}]
    assert who({}, {}, gpus=1, gpu_type="b") == [{2}]
    assert who({}, {"memory_mib": 900}, gpus=1, mem_per_node_mib=500) == [{2}]
    nvme = (Amount("nvme", 2),)
    assert who({"free_resources": {"nvme": (0,)}}, {"resources": nvme}, gpus=1, resources=(Amount("nvme", 1),)) == [{2}]
    matlab = (Amount("matlab", 2),)
    licensed = who({"free_licenses": {"matlab": 0}}, {"licenses": matlab}, ntasks=1, licenses=(Amount("matlab", 1),))
    assert licensed == [{2}]


def test_who_is_protected_and_what_is_reserved_is_not_put_off() -> None:
    there = [running(1, ("n0", 0, 4)), running(2, ("n1", 0, 4), qos="normal", ends_at=NOW + 100)]
    whole = Grant(node="n0", cpus=tuple(range(8)), gpus=(0, 1, 2, 3))
    soon = ReservedOccurrence("r", 1, NOW + 500, NOW + 560, NOW + 1000, (whole,), "eve")
    nodes = (node(0), node(1))

    def asked(limit_s: int) -> list[set[int]]:
        return victims(plan_whole(snapshot(nodes, there, [pending(7, gpus=2, limit_s=limit_s)], booked=(soon,))))

    assert asked(400) == [{1}]
    assert asked(600) == []


def test_nobody_gives_way_to_a_job_that_would_put_off_a_promised_start_before_it() -> None:
    there = [running(1, ("n0", 0, 4), ends_at=NOW + 100)]
    policy = Policy(owner_uid=0, scheduling=scheduling("conservative"))
    first = pending(7, "scavenger", gpus=4, limit_s=600)

    def asked(limit_s: int) -> Plan:
        waiting = [first, pending(8, gpus=2, limit_s=limit_s)]
        return plan_whole(snapshot((node(0),), there, waiting, policy=policy))

    assert victims(asked(100)) == [{1}]
    long = asked(101)
    assert not long.preemptions
    assert long.protected[0].job_id == 7
    assert long.protected[0].starts_at == NOW + 100


def test_inside_of_a_reservation_who_runs_there_gives_way_and_nobody_who_is_outside() -> None:
    there = [
        running(1, ("n0", 0, 2), reservation="r", occurrence=1, ends_at=NOW + 500),
        running(2, ("n0", 2, 2), saved_at=NOW, ends_at=NOW + 500),
    ]
    half = Grant(node="n0", cpus=(0, 1), gpus=(0, 1))
    now = ReservedOccurrence("r", 1, NOW - 60, NOW, NOW + 1000, (half,), "ada")
    inner = replace(pending(7, gpus=2, limit_s=600), reservation="r")

    [one] = plan_whole(snapshot((node(0),), there, [inner], booked=(now,))).preemptions
    assert (one.victims[0].job_id, one.reservation, one.occurrence) == (1, "r", 1)
    outer = pending(7, gpus=2, limit_s=600)
    assert victims(plan_whole(snapshot((node(0),), there, [outer], booked=(now,)))) == [{2}]
    view = snapshot((node(0),), there, [inner], booked=(now,))
    assert PlanValidator(view).admit_preemption(one, StartRequest(JobId(7), "ada", "", "r", 600))
    assert not PlanValidator(view).admit_preemption(one, StartRequest(JobId(7), "bob", "", "r", 600))


# ── guarantees ────────────────────────────────────────────────────────────────────────────────────────────────


def lent(held: dict[str, int], **guaranteed: int) -> LimitView:
    """Accounts, what they hold, and what some of them are guaranteed."""
    accounts = {name: AccountInfo(name=name, guaranteed_gpus=guaranteed.get(name)) for name in held}
    return LimitView(accounts=accounts, held={(Holder.ACCOUNT, name, ""): {"gpus": n} for name, n in held.items()})


def of(account: str, job: PendingJob) -> PendingJob:
    return replace(job, account=account)


def test_an_owner_takes_back_what_it_is_guaranteed_from_those_who_borrowed_it() -> None:
    there = [
        running(1, ("n0", 0, 2), qos="normal", account="guests"),
        running(2, ("n0", 2, 2), qos="normal", account="lab", saved_at=NOW),
    ]
    limits = lent({"lab": 2, "guests": 2}, lab=4)

    plan = plan_whole(snapshot((node(0),), there, [of("lab", pending(7, gpus=2))], limits=limits))

    assert [(one.is_reclaim, one.victims[0].job_id) for one in plan.preemptions] == [(True, 1)]
    applicant = StartRequest(JobId(7), "ada", "lab", "", None)
    view = snapshot((node(0),), there, [], limits=limits)
    assert PlanValidator(view).admit_preemption(plan.preemptions[0], applicant)
    assert not PlanValidator(view).admit_preemption(plan.preemptions[0], applicant._replace(account="guests"))


def test_nothing_is_taken_back_for_who_would_be_over_its_guarantee_or_has_none() -> None:
    there = [running(1, ("n0", 0, 4), qos="normal", account="guests")]
    limits = lent({"lab": 0, "guests": 4, "others": 0}, lab=2)

    for account, gpus in (("lab", 3), ("others", 1)):
        waiting = [of(account, pending(7, gpus=gpus))]
        assert not plan_whole(snapshot((node(0),), there, waiting, limits=limits)).preemptions


def test_nobody_falls_below_a_guarantee_and_only_what_is_borrowed_is_taken_back() -> None:
    there = [
        running(1, ("n0", 0, 2), qos="normal", account="team", saved_at=NOW - 1),
        running(2, ("n0", 2, 2), qos="normal", account="team", saved_at=NOW - 2),
        running(3, ("n1", 0, 4), qos="normal", account="guests"),
    ]
    limits = lent({"lab": 0, "team": 4, "guests": 4}, lab=4, team=2)
    nodes = (node(0), node(1))

    two = plan_whole(snapshot(nodes, there, [of("lab", pending(7, gpus=2))], limits=limits))
    four = plan_whole(snapshot(nodes, there, [of("lab", pending(7, nodes_min=1, nodes_max=1, gpus=4))], limits=limits))

    assert victims(two) == [{1}]
    assert victims(four) == [{3}]  # though job 1 and job 2 have less to lose


def test_of_those_who_lose_the_same_who_is_furthest_over_what_is_due_gives_back_first() -> None:
    there = [
        running(1, ("n0", 0, 2), qos="normal", account="some"),
        running(2, ("n0", 2, 2), qos="normal", account="more"),
    ]
    limits = lent({"lab": 0, "some": 2, "more": 2}, lab=2)

    for first in ("some", "more"):
        gives_back = {"some": 1 if first == "some" else 2, "more": 1 if first == "more" else 2}
        view = snapshot((node(0),), there, [of("lab", pending(7, gpus=2))], limits=limits, gives_back=gives_back)
        assert victims(plan_whole(view)) == [{1 if first == "some" else 2}]


# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────


def claimed(until: float = NOW + 60) -> tuple[list[RunningJob], Nomination]:
    """Job 1 gives way to job 7, which is to have all of n0."""
    there = [running(1, ("n0", 0, 3), preemptor=JobId(7), ends_at=until)]
    whole = Grant(node="n0", cpus=(0, 1, 2, 3), gpus=(0, 1, 2, 3))
    return there, Nomination(job_id=JobId(7), grants=(whole,), until=until, user="ada", time_limit_s=600)


def test_what_is_free_of_a_claim_is_nobody_elses() -> None:
    there, claim = claimed()

    policy = Policy(owner_uid=0, scheduling=scheduling("conservative"))

    view = snapshot((node(0),), there, [pending(8, gpus=1), pending(7, gpus=4)], claims=(claim,), policy=policy)
    plan = plan_whole(view)

    assert not plan.starts
    assert not plan.preemptions
    assert plan.waits[JobId(7)] == Preempts(victims=(JobId(1),), until=NOW + 60)
    assert plan.heads == {"main": 8}
    [told] = plan.protected
    assert told.starts_at == NOW + 660  # when what it waits for is over


def test_a_claimant_starts_before_all_others_when_its_victims_have_gone() -> None:
    _, claim = claimed(NOW)

    plan = plan_whole(snapshot((node(0),), [], [pending(8, gpus=1), pending(7, gpus=4)], claims=(claim,)))

    assert [(one.job_id, one.grants) for one in plan.starts] == [(7, claim.grants)]
    assert isinstance(plan.waits[JobId(8)], Insufficient)


def test_a_claimant_starts_elsewhere_when_that_is_free_sooner() -> None:
    there, claim = claimed()

    plan = plan_whole(snapshot((node(0), node(1)), there, [pending(7, gpus=4)], claims=(claim,)))

    assert [one.grants[0].node for one in plan.starts] == ["n1"]


def test_a_claimant_whose_victims_are_gone_and_that_does_not_fit_even_so_waits_as_any_other() -> None:
    _, claim = claimed(NOW)
    there = [running(3, ("n0", 0, 1), qos="normal")]

    plan = plan_whole(snapshot((node(0),), there, [pending(7, gpus=4)], claims=(claim,)))

    assert isinstance(plan.waits[JobId(7)], Insufficient)
    assert not plan.preemptions


def test_a_claimant_waits_as_any_other_when_who_was_to_give_way_has_not_gone_long_after_its_time() -> None:
    for ended_at, is_claim in ((NOW - 299, True), (NOW - 300, False)):
        there, claim = claimed(until=ended_at)
        view = snapshot((node(0),), there, [pending(7, gpus=4)], claims=(claim,))

        plan = plan_whole(view)

        assert isinstance(plan.waits[JobId(7)], Preempts if is_claim else Insufficient)
        assert plan.changes_at == (NOW + 1 if is_claim else None)


def test_the_recheck_gives_a_claim_to_nobody_but_its_job() -> None:
    _, claim = claimed(NOW)
    view = snapshot((node(0),), [], [pending(8, gpus=1), pending(7, gpus=4)], claims=(claim,))
    [start] = plan_whole(view).starts
    [other] = plan_whole(replace(view, claims=())).starts

    validator = PlanValidator(view)
    assert other.job_id == 8
    assert not PlanValidator(view).admit(other, StartRequest(JobId(8), "ada", "", "", None))
    assert validator.admit(start, StartRequest(JobId(7), "ada", "", "", 600))
    assert not validator.admit(other, StartRequest(JobId(8), "ada", "", "", None))


def test_the_recheck_of_a_preemption_lets_no_victim_go_twice() -> None:
    there = [running(1, ("n0", 0, 4))]
    view = snapshot((node(0),), there, [pending(7, gpus=2)])
    [one] = plan_whole(view).preemptions

    validator = PlanValidator(view)
    applicant = StartRequest(JobId(7), "ada", "", "", None)
    assert validator.admit_preemption(one, applicant)
    assert not validator.admit_preemption(one, applicant)
    assert not PlanValidator(view).admit_preemption(one, applicant._replace(qos="scavenger"))
    ended = replace(view, running=(replace(there[0], saved_at=None),))
    assert not PlanValidator(ended).admit_preemption(one, applicant)


# ── what is foreseen ──────────────────────────────────────────────────────────────────────────────────────────


def rehearsed(view: Snapshot, *wanted: int) -> dict[int, ForecastStart]:
    rehearsal = Forecast(ForecastInput(view), [JobId(one) for one in wanted])
    while not rehearsal.step(10_000):
        pass
    return {int(job_id): entry for job_id, entry in rehearsal.starts.items()}


def test_a_job_to_which_others_give_way_is_expected_when_the_last_of_them_is_ended_and_others_after_it() -> None:
    there, claim = claimed()
    waiting = [pending(8, gpus=1), pending(7, gpus=4, limit_s=600)]

    entries = rehearsed(snapshot((node(0),), there, waiting, claims=(claim,)), 7, 8)

    assert (entries[7].starts_at, entries[8].starts_at) == (NOW + 60, NOW + 660)


def test_what_will_give_way_is_foreseen_with_its_notice_whatever_its_limit() -> None:
    there = [running(1, ("n0", 0, 4), lead_s=120.0), running(2, ("n1", 0, 4), lead_s=30.0, ends_at=NOW + 90_000)]
    waiting = [pending(7, gpus=4, limit_s=600), pending(8, gpus=4, limit_s=600)]

    entries = rehearsed(snapshot((node(0), node(1)), there, waiting), 7, 8)

    assert sorted(one.starts_at for one in entries.values()) == [NOW + 30, NOW + 120]


def test_an_elastic_job_that_gives_up_two_nodes_holds_the_others_only_once() -> None:
    share = Share(ResourceRequest(nodes_min=1, nodes_max=1, gpus_per_node=4), "main")
    bounds = ResizeBounds((), 3, None, 0, 0, lead_s=30.0, share=share, joined=("n1", "n2"))
    elastic = running(1, ("n0", 0, 4), ("n1", 0, 4), ("n2", 0, 4), expected_s=2000.0, resize_bounds=bounds)
    two_nodes = {"nodes_min": 2, "gpus_per_node": 4}
    waiting = [pending(7, limit_s=6000, **two_nodes), pending(8, limit_s=600, **two_nodes)]

    entries = rehearsed(snapshot((node(0), node(1), node(2)), [elastic], waiting), 7, 8)

    assert (entries[7].starts_at, entries[7].nodes) == (NOW + 30, ("n1", "n2"))
    assert entries[8].starts_at == entries[7].ends_at == NOW + 3630  # it is expected to run for an hour
