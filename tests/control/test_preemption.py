"""Jobs that give way: decided whole, told with notice, ended at their time; and what makes them stay after all."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.account import BUILT_IN_QOS, Holder, LimitInfo, PreemptMode, QosInfo
from gq.model.dependency import Dependency, DependencyKind, DependencyTerm
from gq.model.job import ExitStatus, JobInfo, SignalSpec
from gq.model.policy_tables import Limits, Timers
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.control.turn import Turn
from gqd.sched.planner import plan_whole
from gqd.state.events import event
from gqd.state.input import Tick, TimeLeapt
from gqd.state.plan import Plan
from gqd.state.policy import Policy
from gqd.state.preemption import PreemptionNotice
from tests.builders import OWNER, attempt_id, hello, inventory, submit
from tests.hosts import CoreHost

START = 1000.0
WARNED = SignalSpec(signum=signal.SIGUSR1, before_s=60)


def cluster(nodes: int = 1) -> CoreHost:
    host = CoreHost(Policy(owner_uid=OWNER.uid, timers=Timers(node_lost_s=1e6, grace_s=20)))
    host.now = START
    for number in range(1, nodes + 1):
        host.handle(hello(f"n{number}", inventory(cpus=8, gpu_count=4)), now=START)
    return host


def scavenger(host: CoreHost, gpus: int = 4, **fields: Any) -> int:
    """It runs on what is idle."""
    return host.start(submit("scavenger", qos="scavenger", gpus=gpus, **{"time_limit_s": 36_000} | fields))


def urgent(host: CoreHost, now: float, gpus: int = 4, **fields: Any) -> int:
    """It wants what others have; the planner decides who gives way."""
    job_id = host.submit(submit("urgent", gpus=gpus, **{"time_limit_s": 3600} | fields), now=now)
    host.schedule()
    return job_id


def tick(host: CoreHost, now: float) -> Turn:
    host.beat(now)
    return host.handle(Tick(), now)


def kinds(turn: Turn) -> list[str]:
    return [type(one).__name__ for one in turn.events]


def signals(host: CoreHost) -> list[tuple[str, int, str]]:
    """(node, signal, scope) of those that nodes have not been given yet."""
    found = [(one.node, one.order) for one in host.orders if isinstance(one.order, wire.SignalAttempt)]
    return [(node, order.signum, order.scope) for node, order in found]


def stops(host: CoreHost) -> list[tuple[str, wire.Stop]]:
    return [(one.node, one.order) for one in host.orders if isinstance(one.order, wire.Stop)]


def told(host: CoreHost) -> list[str]:
    """Lines for standard errors."""
    return [one.order.text for one in host.orders if isinstance(one.order, wire.Notify)]


# ── from the decision to the start ────────────────────────────────────────────────────────────────────────────


def test_a_job_without_a_signal_is_ended_at_once_and_queued_again_as_old_as_it_was() -> None:
    host = cluster()
    victim = scavenger(host)
    accrued = host.job(victim).accrue_at

    wants = urgent(host, START + 100)

    assert [order.outcome for _, order in stops(host)] == [Outcome.PREEMPTED]
    assert [order.grace_s for _, order in stops(host)] == [20]
    assert host.cluster.claims[host.job(wants).job_id].victims == (attempt_id(victim),)
    host.obey()
    job = host.job(victim)
    assert (job.state, job.restart_count, job.accrue_at) == (JobState.PENDING, 1, accrued)
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    assert not host.cluster.claims
    host.finish(wants)
    host.schedule()
    prepared = [one.order for one in host.orders if isinstance(one.order, wire.Prepare)]
    assert [(one.launch.restart_count, one.launch.open_mode) for one in prepared] == [(1, "append")]


def test_a_leap_of_the_clock_does_not_repeat_a_notice_early() -> None:
    host = cluster()
    scavenger(host, signal=WARNED)
    urgent(host, START + 100)
    resend_s = host.policy.timers.resend_s
    assert len(signals(host)) == 1

    now = START + 100 + 2 * resend_s
    host.handle(TimeLeapt(by_s=2 * resend_s), now)
    tick(host, now)
    assert len(signals(host)) == 1

    tick(host, now + resend_s)
    assert len(signals(host)) == 2


def test_a_job_with_a_signal_is_told_on_all_nodes_in_one_turn_and_ended_when_its_notice_is_over() -> None:
    host = cluster(nodes=2)
    victim = scavenger(host, gpus=8, nodes_min=2, gpus_per_node=4, signal=WARNED)
    host.orders.clear()

    urgent(host, START + 100)

    assert signals(host) == [("n1", signal.SIGUSR1, "steps"), ("n2", signal.SIGUSR1, "steps")]
    assert not stops(host), "all ranks are signalled before any is ended"
    host.orders.clear()
    assert tick(host, START + 159.9).effects == ()
    turn = tick(host, START + 160)
    assert kinds(turn) == ["JobEnding"]
    assert [node for node, _ in stops(host)] == ["n1", "n2"]
    assert host.attempt(victim).lost_gpu_s == pytest.approx(8 * 160)


def test_who_wants_its_signal_long_before_its_time_limit_gives_way_ten_minutes_after_it_all_the_same() -> None:
    host = cluster()
    victim = scavenger(host, signal=SignalSpec(signum=signal.SIGUSR1, before_s=604_800))
    wants = urgent(host, START + 100)
    assert [one.ends_at for one in ways(host, victim)] == [START + 700]

    tick(host, START + 700)
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING


def ways(host: CoreHost, *job_ids: int) -> list[PreemptionNotice]:
    """Of those jobs that give way."""
    return [way for one in job_ids if (way := host.attempt(one).preemption) is not None]


def test_with_b_the_signal_goes_to_the_script_alone() -> None:
    host = cluster(nodes=2)
    warned = SignalSpec(signum=signal.SIGUSR1, before_s=60, to_batch_shell=True)
    victim = scavenger(host, gpus=8, nodes_min=2, gpus_per_node=4, signal=warned)
    host.orders.clear()
    urgent(host, START + 100)
    assert signals(host) == [(host.attempt(victim).batch_node, signal.SIGUSR1, "batch")]


def test_what_is_free_already_and_what_becomes_free_is_kept_for_who_others_give_way_to() -> None:
    host = cluster()
    scavenger(host, gpus=3, signal=WARNED)
    wants = urgent(host, START + 100)

    third = host.submit(submit("third", gpus=1, time_limit_s=60))
    host.schedule(START + 101)
    assert host.job(third).state is JobState.PENDING

    tick(host, START + 160)
    host.obey()
    host.schedule()
    assert host.job(wants).state is JobState.STARTING


@pytest.mark.parametrize(("code", "outcome"), [(0, Outcome.COMPLETED), (1, Outcome.PREEMPTED)])
def test_who_ends_by_itself_meanwhile_is_done_or_gave_way_by_its_exit_code(code: int, outcome: Outcome) -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)

    host.finish(victim, code, START + 110)

    job = host.job(victim)
    if outcome is Outcome.COMPLETED:
        assert (job.state, job.outcome, job.preempted) == (JobState.ENDED, outcome, None)
    else:
        assert (job.state, job.restart_count) == (JobState.PENDING, 1)
        assert job.preempted is not None and job.preempted.lost_gpu_s == pytest.approx(4 * 110)
    host.schedule()
    assert host.job(wants).state is JobState.STARTING, "long before the notice would have been over"


def test_who_failed_before_it_was_told_has_failed_though_that_is_heard_later() -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    urgent(host, START + 100)
    attempt = host.attempt(victim)

    host.now = START + 101
    ended = wire.AttemptEnded(
        attempt_id=attempt.attempt_id,
        outcome=Outcome.FAILED,
        exit=ExitStatus(code=1),
        ended_at=START + 99.9,
        cell_emptied=True,
    )
    host.report(attempt.batch_node, ended)

    assert (host.job(victim).outcome, host.job(victim).restart_count) == (Outcome.FAILED, 0)


def test_a_task_that_gives_way_for_good_does_not_end_an_array_that_fails_fast() -> None:
    host = cluster()
    array = scavenger(host, gpus=2, array="0-2", fail_fast=True, requeue=False)
    tasks = [one for one in host.cluster.jobs.values() if one.array_job_id == array and one.array is None]
    assert len(tasks) == 2

    urgent(host, START + 100, gpus=2)
    host.obey()

    assert sorted(one.outcome or "" for one in tasks) == ["", Outcome.PREEMPTED]
    waiting = host.job(array).array
    assert waiting is not None and waiting.waiting == 1 << 2


def test_only_what_was_done_since_the_last_checkpoint_is_lost_and_all_losses_add_up() -> None:
    host = cluster()
    victim = scavenger(host)
    for number, start in enumerate((START, START + 1000)):
        host.ask(client.CheckpointDone(job_id=victim), now=start + 90)
        wants = urgent(host, start + 100)
        host.obey()
        host.schedule()
        host.obey()
        preempted = host.job(victim).preempted
        assert preempted is not None
        assert (preempted.by, preempted.at, preempted.lost_gpu_s) == (str(wants), start + 100, pytest.approx(40))
        assert (preempted.times, preempted.all_lost_gpu_s) == (number + 1, pytest.approx(40 * (number + 1)))
        host.finish(wants, now=start + 1000)
        host.schedule()
        host.obey()
    assert host.job(victim).state is JobState.RUNNING


def set_qos(host: CoreHost, name: str, **fields: Any) -> None:
    before = host.cluster.qos.get(name, BUILT_IN_QOS[name])
    host.ask(client.SetQos(qos=QosInfo(**({"name": name, "preempts": before.preempts} | fields)), is_new=False))


def test_in_the_mode_cancel_a_job_is_ended_for_good() -> None:
    host = cluster()
    set_qos(host, "scavenger", preempt_mode=PreemptMode.CANCEL)
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    host.obey()
    job = host.job(victim)
    assert (job.state, job.outcome) == (JobState.ENDED, Outcome.PREEMPTED)
    assert job.why == f"by job {wants} of {host.job(wants).user}"


@pytest.mark.parametrize(
    "fields", [{"requeue": False}, {"max_requeue": 0}, {"requeue_on": ("timeout",)}, {"is_interactive": True}]
)
def test_what_may_not_be_queued_again_is_ended_for_good(fields: dict[str, Any]) -> None:
    host = cluster()
    victim = scavenger(host, **fields)
    urgent(host, START + 30)
    host.obey()
    assert (host.job(victim).state, host.job(victim).outcome) == (JobState.ENDED, Outcome.PREEMPTED)


def test_in_the_mode_off_and_before_its_time_nobody_gives_way() -> None:
    host = cluster()
    set_qos(host, "scavenger", min_run_s=600)
    victim = scavenger(host)
    urgent(host, START + 599)
    assert host.attempt(victim).preemption is None
    set_qos(host, "scavenger", preempt_mode=PreemptMode.OFF)
    host.schedule(START + 700)
    assert host.attempt(victim).preemption is None
    set_qos(host, "scavenger", min_run_s=600)
    host.schedule(START + 701)
    assert host.attempt(victim).preemption is not None


@pytest.mark.parametrize(("left_s", "gives_way"), [(3600 + 80, True), (3600 + 79, False)])
def test_nobody_is_ended_for_a_job_that_could_not_start_in_time_for_its_deadline(left_s: int, gives_way: bool) -> None:
    """Its victim is told 60 s before it is ended, and has 20 s from TERM to KILL."""
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    urgent(host, START + 100, deadline_at=START + 100 + left_s)
    assert bool(ways(host, victim)) is gives_way


def test_who_is_gone_in_time_gives_way_to_a_job_with_a_deadline_though_others_would_lose_less() -> None:
    host = cluster(nodes=2)
    slow, quick = scavenger(host, signal=WARNED), scavenger(host)
    host.ask(client.CheckpointDone(job_id=slow), START + 100)
    late = urgent(host, START + 100, deadline_at=START + 100 + 3600 + 30)
    assert (ways(host, slow), host.attempt(quick).outcome) == ([], Outcome.PREEMPTED)
    assert late in host.cluster.claims

    another = urgent(host, START + 100, deadline_at=START + 100 + 3600 + 30)
    assert another not in host.cluster.claims
    assert not host.controller.volatile.wants_plan, "it is not tried again and again"
    patient = urgent(host, START + 100)
    assert patient in host.cluster.claims


def test_a_suspended_job_gives_way_to_nobody_also_if_it_was_suspended_after_the_plan_was_made() -> None:
    host = cluster()
    victim = scavenger(host)
    plan = planned(host, START + 100)
    host.ask(client.SuspendJobs(job_ids=(victim,)))
    host.adopt(plan)
    host.schedule()
    assert not ways(host, victim)

    host.ask(client.ResumeJobs(job_ids=(victim,)), START + 400)
    host.schedule()
    assert host.attempt(victim).outcome is Outcome.PREEMPTED


def planned(host: CoreHost, now: float) -> Plan:
    """An urgent job has come, and the plan for it is made, but not adopted yet."""
    host.submit(submit("urgent", gpus=4, time_limit_s=3600), now=now)
    plan = plan_whole(host.controller.snapshot(now))
    assert plan.preemptions
    return plan


@pytest.mark.parametrize(("at", "gives_way"), [(359, False), (360, True)])
def test_a_job_has_not_run_while_it_stood_still(at: int, gives_way: bool) -> None:
    host = cluster()
    set_qos(host, "scavenger", min_run_s=60)
    victim = scavenger(host)
    host.ask(client.SuspendJobs(job_ids=(victim,)), START + 10)
    host.ask(client.ResumeJobs(job_ids=(victim,)), START + 310)
    urgent(host, START + at)
    assert (host.attempt(victim).outcome is Outcome.PREEMPTED) is gives_way


def test_who_stood_still_has_lost_less_than_who_ran_as_long_and_is_chosen_before() -> None:
    host = cluster()
    ran, stood = scavenger(host, gpus=2), scavenger(host, gpus=2)
    host.ask(client.SuspendJobs(job_ids=(stood,)), START + 10)
    host.ask(client.ResumeJobs(job_ids=(stood,)), START + 90)
    urgent(host, START + 100, gpus=2)
    assert (host.attempt(ran).outcome, host.attempt(stood).outcome) == (None, Outcome.PREEMPTED)
    assert host.attempt(stood).lost_gpu_s == pytest.approx(2 * 20)


def test_a_task_of_an_array_leaves_its_record_before_others_give_way_to_it() -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    array_id = urgent(host, START + 100, array="3,5")
    (job_id,) = host.cluster.claims
    assert host.job(job_id).label == f"{array_id}_3"
    way = host.attempt(victim).preemption
    assert way is not None and way.preemptor == job_id


# ── what makes them stay ──────────────────────────────────────────────────────────────────────────────────────


def hold(host: CoreHost, job_id: int) -> None:
    host.ask(client.HoldJobs(job_ids=(job_id,)))


def cancel(host: CoreHost, job_id: int) -> None:
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))))


def shorten(host: CoreHost, job_id: int) -> None:
    host.ask(client.UpdateJob(job_id=job_id, time_limit_s=60))


def make_it_wait_for_another(host: CoreHost, job_id: int) -> None:
    other = host.submit(submit("other", is_held=True))
    dependency = Dependency((DependencyTerm(DependencyKind.AFTEROK, other),))
    host.ask(client.UpdateJob(job_id=job_id, dependency=dependency))


def drain(host: CoreHost, job_id: int) -> None:
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="fan"))


def drain_gpu(host: CoreHost, job_id: int) -> None:
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="fan", gpu=2))


def shut_it_out(host: CoreHost, job_id: int) -> None:
    """A limit leaves no room for it any more."""
    limit = LimitInfo(holder=Holder.USER, name=host.job(job_id).user, resource="gpus", most=0)
    host.ask(client.SetLimit(limit=limit))
    host.schedule()


@pytest.mark.parametrize("change", [hold, cancel, shorten, make_it_wait_for_another, drain, drain_gpu, shut_it_out])
def test_if_it_does_not_want_or_cannot_have_it_any_more_those_that_are_left_stay_and_are_told(change: Any) -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    host.obey()

    change(host, wants)

    assert not host.cluster.claims and host.attempt(victim).preemption is None
    assert told(host) == [f"job {victim} is no longer preempted and continues"]
    tick(host, START + 200)
    assert host.job(victim).state is JobState.RUNNING


@pytest.mark.parametrize("fields", [{"name": "other"}, {"comment": "why"}, {"nice": 5}])
def test_a_change_that_has_nothing_to_do_with_it_drops_nothing(fields: dict[str, Any]) -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    host.ask(client.UpdateJob(job_id=wants, **fields))
    way = host.attempt(victim).preemption
    assert way is not None and way.preemptor == wants


def test_after_a_drop_it_may_be_decided_anew() -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    host.obey()
    shorten(host, wants)
    host.orders.clear()
    host.schedule(START + 130)
    way = host.attempt(victim).preemption
    assert way is not None and (way.notified_at, way.ends_at) == (START + 130, START + 190)
    assert signals(host) == [("n1", signal.SIGUSR1, "steps")]


def test_if_it_finds_another_place_those_that_are_left_stay() -> None:
    host = cluster(nodes=2)
    other = host.start(submit("other", gpus=4, time_limit_s=36_000))
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    host.finish(other, now=START + 110)
    host.schedule()
    assert host.job(wants).state is JobState.STARTING
    assert told(host) == [f"job {victim} is no longer preempted and continues"]
    assert host.attempt(victim).preemption is None and not host.cluster.claims


def test_who_has_been_ended_already_is_queued_again_though_nobody_wants_its_place_any_more() -> None:
    host = cluster()
    warned, unwarned = scavenger(host, gpus=2, signal=WARNED), scavenger(host, gpus=2)
    wants = urgent(host, START + 100)
    host.obey()
    cancel(host, wants)
    host.schedule()
    host.obey()
    assert (host.job(warned).restart_count, host.job(unwarned).restart_count) == (0, 1)
    assert {host.job(one).state for one in (warned, unwarned)} == {JobState.RUNNING}


# ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────────


def again(host: CoreHost, phase: str = "running", incarnation: str = "1", nodes: tuple[str, ...] = ("n1",)) -> None:
    """The nodes meet a controller that has started again."""
    for name in nodes:
        held = host.cluster.nodes[name].held
        statuses = [wire.AttemptStatus(attempt_id=one, phase=phase) for one in held]
        host.handle(hello(name, inventory(cpus=8, gpu_count=4), attempts=tuple(statuses), incarnation=incarnation))


def test_a_controller_that_dies_before_its_orders_leave_has_them_signalled_when_nodes_say_hello() -> None:
    host = cluster(nodes=2)
    victim = scavenger(host, gpus=8, nodes_min=2, gpus_per_node=4, signal=WARNED)
    urgent(host, START + 100)
    way = host.attempt(victim).preemption

    host.restart(START + 110)
    again(host, nodes=("n1", "n2"))

    assert [node for node, _, _ in signals(host)] == ["n1", "n2"]
    orders = [one.order for one in host.orders if isinstance(one.order, wire.SignalAttempt)]
    assert way is not None and {(one.told_at, one.ends_at) for one in orders} == {(way.notified_at, way.ends_at)}
    tick(host, START + 160)
    host.obey()
    assert (host.job(victim).state, host.job(victim).restart_count) == (JobState.PENDING, 1)


@pytest.mark.parametrize(("is_new", "times"), [(True, 4), (False, 1)])
def test_only_a_node_that_does_once_what_is_said_twice_is_told_again(is_new: bool, times: int) -> None:
    host = cluster()
    has = msgspec.structs.replace(inventory(cpus=8, gpu_count=4), can_suspend=is_new)
    host.handle(hello("n1", has), START)
    scavenger(host, signal=SignalSpec(signum=signal.SIGUSR1, before_s=600))
    urgent(host, START + 100)
    host.handle(hello("n1", has, attempts=(wire.AttemptStatus(attempt_id=attempt_id(1), phase="running"),)))
    for second in range(110, 500, 10):
        tick(host, START + second)
    assert len(signals(host)) == times


def test_a_controller_that_was_away_when_the_notice_was_over_ends_them_when_it_is_back() -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    host.obey()
    host.restart(START + 500)
    again(host)
    host.handle(Tick(), START + 500)
    assert [order.outcome for _, order in stops(host)] == [Outcome.PREEMPTED]
    host.restart(START + 501)  # before the node has it
    again(host)
    assert {order.outcome for _, order in stops(host)} == {Outcome.PREEMPTED}
    host.obey()
    host.schedule()
    host.obey()
    assert (host.job(victim).restart_count, host.job(wants).state) == (1, JobState.RUNNING)


def test_a_controller_that_starts_again_still_tells_those_that_may_stay() -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    host.restart(START + 110)
    again(host)
    cancel(host, wants)
    assert told(host) == [f"job {victim} is no longer preempted and continues"]


def test_a_node_that_has_lost_the_victim_has_it_queued_again_once_and_the_claim_is_dropped_with_the_node() -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    urgent(host, START + 100)
    host.ask(client.UpdateNodes(names=("n1",), action="down", reason="smoke"))
    host.obey()
    assert not host.cluster.claims
    assert (host.job(victim).state, host.job(victim).restart_count) == (JobState.PENDING, 1)
    assert host.job(victim).preempted is None, "it did not give way: its node was lost"


# ── after other ends ──────────────────────────────────────────────────────────────────────────────────────────


def end(host: CoreHost, job_id: int, outcome: Outcome, now: float) -> None:
    ended = wire.AttemptEnded(
        attempt_id=host.attempt(job_id).attempt_id,
        outcome=outcome,
        exit=ExitStatus(code=1),
        ended_at=now,
        cell_emptied=True,
    )
    host.report("n1", ended, now)
    host.obey()


@pytest.mark.parametrize(
    ("outcome", "requeue_on", "is_again"),
    [
        (Outcome.TIMEOUT, (), False),
        (Outcome.TIMEOUT, ("timeout",), True),
        (Outcome.NODE_FAIL, (), True),
        (Outcome.NODE_FAIL, ("timeout", "preempt"), False),
        (Outcome.NODE_FAIL, ("node_fail",), True),
        (Outcome.FAILED, ("timeout", "node_fail", "preempt"), False),
    ],
)
def test_a_job_waits_again_after_the_ends_that_it_names(
    outcome: Outcome, requeue_on: tuple[str, ...], is_again: bool
) -> None:
    host = cluster()
    job_id = host.start(submit(time_limit_s=60, requeue_on=requeue_on))
    end(host, job_id, outcome, START + 60)
    assert host.job(job_id).state is (JobState.PENDING if is_again else JobState.ENDED)


def test_after_which_ends_it_waits_again_can_be_said_while_it_runs() -> None:
    host = cluster()
    job_id = host.start(submit(time_limit_s=60, requeue=False))
    host.ask(client.UpdateJob(job_id=job_id, requeue_on=("timeout",), max_requeue=1))
    for state in (JobState.PENDING, JobState.ENDED):
        end(host, job_id, Outcome.TIMEOUT, START + 60)
        assert host.job(job_id).state is state
        host.schedule()
        host.obey()
    with pytest.raises(Refusal) as refused:
        host.ask(client.UpdateJob(job_id=host.submit(submit()), requeue_on=("rain",)))
    assert refused.value.code == "bad_cause"


def test_how_long_jobs_run_is_not_learned_from_who_gave_way() -> None:
    host = cluster()
    scavenger(host, requeue=False)
    urgent(host, START + 100)
    host.obey()
    assert not host.cluster.lengths


def test_it_waits_again_no_more_often_than_it_asked_for() -> None:
    host = cluster()
    job_id = host.start(submit(time_limit_s=60, requeue_on=("timeout",), max_requeue=2))
    for count in (1, 2):
        end(host, job_id, Outcome.TIMEOUT, START + 60 * count)
        assert host.job(job_id).restart_count == count
        host.schedule()
        host.obey()
    end(host, job_id, Outcome.TIMEOUT, START + 180)
    assert (host.job(job_id).state, host.job(job_id).outcome) == (JobState.ENDED, Outcome.TIMEOUT)


def test_to_give_way_is_no_failure_and_counts_for_nothing_when_a_node_fails() -> None:
    host = CoreHost(Policy(owner_uid=OWNER.uid, timers=Timers(node_lost_s=1e6), limits=Limits(restarts=1)))
    host.handle(hello("n1", inventory(cpus=8, gpu_count=4)), now=START)
    victim = scavenger(host)
    for number in range(3):
        wants = urgent(host, START + 100 * (number + 1))
        host.obey()
        host.schedule()
        host.obey()
        host.finish(wants)
        host.schedule()
        host.obey()
    assert host.job(victim).restart_count == 3
    end(host, victim, Outcome.NODE_FAIL, START + 1000)
    assert host.job(victim).state is JobState.PENDING
    host.schedule()
    host.obey()
    end(host, victim, Outcome.NODE_FAIL, START + 1001)
    assert (host.job(victim).state, host.job(victim).outcome) == (JobState.ENDED, Outcome.NODE_FAIL)


def test_a_job_has_the_grace_that_it_asked_for() -> None:
    host = cluster()
    job_id = host.submit(submit(grace_s=7))
    host.schedule()
    (prepare,) = [one.order for one in host.orders if isinstance(one.order, wire.Prepare)]
    assert prepare.launch.grace_s == 7
    host.obey()
    cancel(host, job_id)
    assert [order.grace_s for _, order in stops(host)] == [7]


def test_orders_name_who_it_is_for() -> None:
    host = cluster()
    scavenger(host, signal=WARNED)
    host.orders.clear()
    wants = urgent(host, START + 100)
    [order] = [one.order for one in host.orders]
    assert isinstance(order, wire.SignalAttempt)
    assert order.text == f"PREEMPTED BY JOB {wants} OF {host.job(wants).user}, WILL BE ENDED AT {{time}}"
    assert any(isinstance(one, event.PreemptionDecided) for one in host.log)


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"grace_s": 21}, "long_grace"), ({"requeue_on": ("rain",)}, "bad_cause"), ({"max_requeue": 2**40}, "bad_number")],
)
def test_what_a_job_cannot_ask_for_of_its_end_is_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        cluster().submit(submit(**fields))
    assert refused.value.code == code


# ── what is told ──────────────────────────────────────────────────────────────────────────────────────────────


def test_who_gives_way_is_told_to_whom_and_until_when_and_the_other_for_whom_it_waits() -> None:
    host = cluster()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    user = host.job(wants).user
    until = int(START + 160)
    assert host.explain(victim).why.endswith(
        f"; it is preempted by job {wants} of {user}, and is ended by @{{{until}}}"
    )
    story = host.explain(wants)
    assert f"job {victim} is preempted for it by @{{{until}}} at the latest" in story.why
    assert story.blockers == (victim,)


def test_who_gave_way_is_told_by_whom_when_and_what_that_cost_while_it_waits_runs_again_and_when_it_is_over() -> None:
    host = cluster()
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    host.obey()
    host.schedule()
    host.obey()
    told = f"; it was preempted by job {wants} of {host.job(wants).user} at @{{{int(START + 100)}}}, which cost 6.7 GPU-minutes"
    assert host.explain(victim).why.endswith(told)
    host.finish(wants, now=START + 200)
    host.schedule()
    host.obey()
    assert host.explain(victim).why.endswith(told)

    again = urgent(host, START + 300)
    host.obey()
    assert "it was preempted 2 times, which cost 13.3 GPU-minutes in all" in host.explain(victim).why
    cancel(host, again)
    cancel(host, victim)
    [shown] = listed(host, victim)
    assert (shown.preempted, shown.preempted_by, shown.preempted_at) == (2, str(again), START + 300)
    assert shown.lost_gpu_s == pytest.approx(800)


def test_who_gave_way_for_good_is_shown_as_preempted() -> None:
    host = cluster()
    victim = scavenger(host, requeue=False)
    wants = urgent(host, START + 100)
    host.obey()
    story, user = host.explain(victim), host.job(wants).user
    assert story.why == f"it was preempted by job {wants} of {user} after 1 min 40 s, which cost 6.7 GPU-minutes"
    assert "with --requeue" not in story.why and "--requeue" in story.hint
    [shown] = listed(host, victim)
    assert (shown.state, shown.why) == ("PREEMPTED", story.why)


def listed(host: CoreHost, job_id: int) -> tuple[JobInfo, ...]:
    answer = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(job_id,))))
    assert isinstance(answer, client.Jobs)
    return answer.jobs
