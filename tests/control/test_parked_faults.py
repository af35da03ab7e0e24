"""Jobs that were to stand still for others: nodes that do not answer, and what an old gqnode makes of it."""

from __future__ import annotations

import msgspec
import pytest

from gq.model.account import BUILT_IN_QOS, PreemptMode
from gq.model.job import ExitStatus
from gq.model.notice import Target
from gq.model.resource import ResourceRequest
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.control.parked import PARK_S
from gqd.state.parked import fits_beside
from tests.builders import attempt_id, hello, inventory
from tests.control.test_parked import GPU_MIB, freezes, host_of, parked_for, scavenger, stands_still, urgent
from tests.control.test_preemption import START, WARNED, kinds, stops, tick
from tests.hosts import CoreHost


def is_met(host: CoreHost, victim: int, wants: int) -> bool:
    """What was asked for came about: the one is ended, the other runs on what it had."""
    host.obey()
    host.schedule()
    host.obey()
    return host.job(victim).state is JobState.PENDING and host.job(wants).state is JobState.RUNNING


def test_a_node_that_never_says_that_it_stands_still_keeps_nobody_waiting() -> None:
    host = host_of()
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    host.orders.clear()
    assert "JobEnding" not in kinds(tick(host, START + 100 + PARK_S - 1))

    tick(host, START + 100 + PARK_S)

    assert [order.outcome for _, order in stops(host)] == [Outcome.PREEMPTED]
    assert "it was not parked: node n1 did not report the suspension in time" in host.attempt(victim).why
    assert is_met(host, victim, wants)


def test_nor_does_one_that_says_so_without_what_is_in_its_gpus() -> None:
    """A gqnode from before parking, in place of a newer one."""
    host = host_of()
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    host.restart(START + 101)
    tick(host, START + 102)
    running = wire.AttemptStatus(attempt_id=attempt_id(victim), phase="running", time_limit_s=36_000, is_suspended=True)
    old = msgspec.structs.replace(inventory(), can_park=False)
    host.handle(hello("n1", old, attempts=(running,)), START + 103)
    host.report("n1", wire.SuspendedSet(attempt_id=attempt_id(victim), is_suspended=True), START + 104)
    assert "JobEnding" not in kinds(tick(host, START + 100 + PARK_S)), "it has its time anew"
    tick(host, START + 101 + PARK_S)
    assert is_met(host, victim, wants)


def test_a_node_that_was_exchanged_for_an_old_one_during_the_notice_ends_the_job() -> None:
    host = host_of()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    running = wire.AttemptStatus(attempt_id=attempt_id(victim), phase="running", time_limit_s=36_000)
    host.handle(hello("n1", msgspec.structs.replace(inventory(), can_park=False), attempts=(running,)), START + 120)
    host.orders.clear()
    tick(host, START + 160)
    assert not freezes(host)
    assert "it was not parked: node n1 can no longer" in host.attempt(victim).why
    assert is_met(host, victim, wants)


def test_how_far_it_is_is_told_after_it_has_gone_on() -> None:
    host = host_of()
    target = Target(kind="command", to="true", on=("timeout_50",))
    victim = scavenger(host, notify=(target,), time_limit_s=1000)
    wants = urgent(host, START + 100)
    stands_still(host, victim)
    host.schedule()
    host.obey()
    tick(host, START + 700)  # half of it, if it had run
    host.finish(wants, now=START + 1100)
    assert "JobTold" not in kinds(tick(host, START + 1400))
    assert "JobTold" in kinds(tick(host, START + 1600))


@pytest.mark.parametrize("mode", [PreemptMode.OFF, PreemptMode.REQUEUE])
def test_another_mode_of_its_qos_leaves_a_parked_job_where_it_is(mode: PreemptMode) -> None:
    host = host_of()
    victim, wants = parked_for(host)
    qos = msgspec.structs.replace(BUILT_IN_QOS["scavenger"], preempt_mode=mode, borrows_reserved=False)
    host.ask(client.SetQos(qos=qos, is_new=False), START + 200)
    host.schedule(START + 201)
    assert attempt_id(victim) in host.cluster.parked
    host.finish(wants, now=START + 300)
    assert host.attempt(victim).suspended_at is None


def test_the_removal_of_its_node_takes_both() -> None:
    host = host_of()
    victim, wants = parked_for(host)
    host.ask(client.RemoveNode(name="n1", reason="sold"), START + 200)
    assert not host.cluster.parked
    assert {host.job(one).state for one in (victim, wants)} == {JobState.PENDING}


def test_a_job_that_has_its_node_alone_has_all_of_its_gpus_and_says_what_it_needs_of_them() -> None:
    assert not fits_beside(ResourceRequest(is_exclusive=True))
    assert fits_beside(ResourceRequest(is_exclusive=True, min_gpu_mem_mib=1))


def test_who_has_others_ended_is_told_what_would_have_them_stand_still() -> None:
    host = host_of()
    scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100, min_gpu_mem_mib=None)
    assert "--min-gpu-mem" in host.explain(wants).hint
    host = host_of()
    scavenger(host, signal=WARNED)
    assert "--min-gpu-mem" not in host.explain(urgent(host, START + 100)).hint


def test_a_node_whose_gqnode_is_renewed_under_a_job_can_park_it_from_then_on() -> None:
    host = host_of()
    host.handle(hello("n1", msgspec.structs.replace(inventory(), can_park=False)))
    victim = scavenger(host)
    host.schedule(START + 50)
    running = wire.AttemptStatus(attempt_id=attempt_id(victim), phase="running", time_limit_s=36_000)
    host.handle(hello("n1", inventory(), attempts=(running,)), START + 60)
    urgent(host, START + 100)
    assert freezes(host) and not stops(host)


def test_who_only_has_to_stand_still_runs_until_the_last_of_the_others_is_to_go() -> None:
    host = host_of()
    first = scavenger(host, gpus=2)
    second = scavenger(host, gpus=2, signal=WARNED)
    wants = urgent(host, START + 100)
    assert not freezes(host)
    assert kinds(tick(host, START + 159)) == []
    assert kinds(tick(host, START + 160)) == ["JobParking", "JobParking"]
    for one in (first, second):
        stands_still(host, one)
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING


def test_on_several_nodes_each_goes_on_when_nothing_is_left_on_its_own() -> None:
    host = host_of(nodes=2)
    first, second = scavenger(host), scavenger(host)
    wants = urgent(host, START + 100, gpus=None, gpus_per_node=4, nodes_min=2)
    at = {one: host.attempt(one).batch_node for one in (first, second)}
    assert sorted(at.values()) == ["n1", "n2"]
    stands_still(host, first, node=at[first])
    host.schedule()
    assert host.job(wants).state is JobState.PENDING, "not before both do"
    stands_still(host, second, node=at[second])
    host.orders.clear()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING

    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(wants,))), START + 200)
    over = wire.AttemptEnded(
        attempt_id=attempt_id(wants), outcome=Outcome.CANCELLED, exit=ExitStatus(), ended_at=START + 201,
        cell_emptied=True,
    )  # fmt: skip
    host.report(at[first], over, START + 201)
    assert host.attempt(first).suspended_at is None
    assert host.attempt(second).suspended_at is not None
    host.report(at[second], over, START + 202)
    assert host.attempt(second).suspended_at is None


def test_a_job_of_which_one_was_parked_and_one_could_not_be_has_both() -> None:
    host = host_of(nodes=2)
    first, second = scavenger(host), scavenger(host)
    wants = urgent(host, START + 100, gpus=None, gpus_per_node=4, nodes_min=2)
    stands_still(host, first, node=host.attempt(first).batch_node)
    host.restart(START + 110)
    for node, job_id in ((host.attempt(one).batch_node, one) for one in (first, second)):
        said = wire.AttemptStatus(
            attempt_id=attempt_id(job_id), phase="running", time_limit_s=36_000, is_suspended=True
        )
        host.handle(hello(node, inventory(cpus=8, gpu_count=4), attempts=(said,)))
    stands_still(host, second, dict.fromkeys(range(4), GPU_MIB), node=host.attempt(second).batch_node)
    assert is_met(host, second, wants)
    assert host.attempt(first).suspended_at is not None


def test_if_the_other_cannot_be_launched_the_job_goes_on_and_is_not_stopped_again_until_it_may_be_tried() -> None:
    host = host_of()
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    stands_still(host, victim)
    host.orders.clear()
    host.schedule()
    assert host.job(wants).state is JobState.STARTING
    host.orders.clear()
    host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(wants), why="its prolog failed"), START + 102)
    for now in range(103, 110):
        tick(host, START + now)
        host.schedule()
    assert (host.attempt(victim).suspended_at, host.cluster.parked) == (None, {})
    assert host.job(wants).state is JobState.PENDING
    assert {is_stopped for _, is_stopped, _ in freezes(host)} == {False}
