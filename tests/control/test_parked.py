"""Jobs that give way by standing still: what they lend and keep, when they go on, and what ends them instead."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from gq.model.account import BUILT_IN_QOS, PreemptMode
from gq.model.job import ExitStatus
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.state.records import Parked
from tests.builders import OWNER, ROOT, attempt_id, hello, inventory, submit
from tests.control.test_preemption import START, WARNED, cluster, kinds, signals, stops, tick
from tests.hosts import CoreHost

GPU_MIB = inventory().gpus[0].memory_mib
NEED_MIB = GPU_MIB // 2
LEFT_FREE = dict.fromkeys(range(4), GPU_MIB // 4)
"""What the parked job uses of each GPU."""


def host_of(nodes: int = 1, **node: Any) -> CoreHost:
    host = cluster(nodes=nodes)
    scavengers = msgspec.structs.replace(BUILT_IN_QOS["scavenger"], preempt_mode=PreemptMode.SUSPEND)
    host.ask(client.SetQos(qos=scavengers, is_new=False))
    return host


def scavenger(host: CoreHost, gpus: int = 4, **fields: Any) -> int:
    return host.start(
        submit("scavenger", qos="scavenger", gpus=gpus, **{"time_limit_s": 36_000, "mem_per_node_mib": 10_000} | fields)
    )


def urgent(host: CoreHost, now: float, gpus: int = 4, **fields: Any) -> int:
    peer = fields.pop("peer", OWNER)
    asked = {"time_limit_s": 3600, "min_gpu_mem_mib": NEED_MIB, "mem_per_node_mib": 1000} | fields
    job_id = host.submit(submit("urgent", gpus=gpus, **asked), now=now, peer=peer)
    host.schedule()
    return job_id


def freezes(host: CoreHost) -> list[tuple[str, bool, float | None]]:
    """Of orders that nodes have not been given yet."""
    found = [(one.node, one.order) for one in host.orders if isinstance(one.order, wire.SetSuspended)]
    return [(node, order.is_suspended, order.parked_at) for node, order in found]


def stands_still(host: CoreHost, job_id: int, used: dict[int, int] | None = None, node: str = "n1") -> None:
    """Its node says so, and what the job holds of the memory of the GPUs."""
    at = host.cluster.parked[host.attempt(job_id).attempt_id].at
    memory = tuple((LEFT_FREE if used is None else used).items())
    said = wire.SuspendedSet(
        attempt_id=host.attempt(job_id).attempt_id, is_suspended=True, parked_at=at, gpu_memory=memory
    )
    host.report(node, said)


def parked_for(host: CoreHost, now: float = START + 100, **fields: Any) -> tuple[int, int]:
    """(the parked job, the one that runs on its GPUs)"""
    victim = scavenger(host)
    wants = urgent(host, now, **fields)
    stands_still(host, victim)
    host.orders.clear()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    return victim, wants


# ── from the decision to the end ──────────────────────────────────────────────────────────────────────────────


def test_a_victim_stands_still_the_other_runs_on_its_gpus_and_then_it_goes_on_with_the_time_that_it_had() -> None:
    host = host_of()
    victim = scavenger(host)

    wants = urgent(host, START + 100)

    assert freezes(host) == [("n1", True, START + 100)]
    assert not stops(host)
    stands_still(host, victim)
    host.orders.clear()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    assert [grant.gpus for grant in host.attempt(wants).grants] == [(0, 1, 2, 3)]
    assert host.cluster.nodes["n1"].used_memory_mib == 11_000, "its memory stays taken"
    assert host.job(victim).state is JobState.RUNNING

    host.finish(wants, now=START + 1100)

    assert host.attempt(victim).suspended_at is None
    assert host.attempt(victim).suspended_s == pytest.approx(1000)
    assert host.cluster.nodes["n1"].held[attempt_id(victim)].gpus == (0, 1, 2, 3)
    assert not host.cluster.parked
    assert kinds_of(host) == ["JobParking", "JobParked", "JobUnparked"]


def kinds_of(host: CoreHost) -> list[str]:
    """Of facts about standing still."""
    return [kind for one in host.log if "park" in (kind := type(one).__name__).lower()]


def test_it_goes_on_in_the_turn_in_which_the_other_is_gone_and_its_node_is_told_then() -> None:
    host = host_of()
    _, wants = parked_for(host)
    scavenger_waits = host.submit(submit("scavenger", qos="scavenger", gpus=4, time_limit_s=60))
    other_waits = host.submit(submit("normal", gpus=4, time_limit_s=60))
    ended = wire.AttemptEnded(
        attempt_id=attempt_id(wants), outcome=Outcome.COMPLETED, exit=ExitStatus(), ended_at=START + 200,
        cell_emptied=True,
    )  # fmt: skip

    turn = host.report("n1", ended, START + 200)

    assert "JobUnparked" in kinds(turn)
    assert freezes(host) == [("n1", False, None)]
    host.schedule()
    assert {host.job(one).state for one in (scavenger_waits, other_waits)} == {JobState.PENDING}


def test_with_a_signal_it_is_told_first_and_stands_still_when_its_notice_is_over() -> None:
    host = host_of()
    victim = scavenger(host, signal=WARNED)
    host.orders.clear()

    urgent(host, START + 100)

    assert signals(host) == [("n1", signal.SIGUSR1, "steps")]
    texts = [one.order.text for one in host.orders if isinstance(one.order, wire.SignalAttempt)]
    assert [text.endswith("WILL BE SUSPENDED AT {time}") for text in texts] == [True]
    assert not freezes(host)
    assert kinds(tick(host, START + 160)) == ["JobParking"]
    assert tick(host, START + 161).events == (), "once"
    assert host.attempt(victim).suspended_at == START + 160


def test_only_what_the_other_uses_is_lent_and_nobody_else_gets_the_rest() -> None:
    host = host_of()
    victim = scavenger(host)
    wants = urgent(host, START + 100, gpus=2)
    stands_still(host, victim)
    host.orders.clear()
    host.schedule()
    host.obey()
    held = host.cluster.nodes["n1"].held
    assert len(held[attempt_id(wants)].gpus) == 2
    assert len(held[attempt_id(victim)].gpus) == 2

    another = urgent(host, START + 120, gpus=2)
    assert host.job(another).state is JobState.PENDING
    assert another not in host.cluster.claims, "who is parked gives nothing more, and who is lent to gives nothing away"


# ── what is in the memory of the GPUs ─────────────────────────────────────────────────────────────────────────


def test_a_job_that_does_not_say_what_memory_of_gpus_it_needs_has_others_ended() -> None:
    host = host_of()
    scavenger(host)
    urgent(host, START + 100, min_gpu_mem_mib=None)
    assert [order.outcome for _, order in stops(host)] == [Outcome.PREEMPTED]
    assert not freezes(host)


@pytest.mark.parametrize(
    ("used", "says"),
    [
        (dict.fromkeys(range(4), GPU_MIB - NEED_MIB + 1), "of memory on GPU 0"),
        (dict.fromkeys(range(3), 0), "cannot report how much memory of GPU 3"),
    ],
)
def test_one_that_holds_too_much_or_nobody_knows_how_much_is_ended_after_all(used: dict[int, int], says: str) -> None:
    host = host_of()
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    host.orders.clear()

    stands_still(host, victim, used)

    assert [order.outcome for _, order in stops(host)] == [Outcome.PREEMPTED]
    assert says in host.attempt(victim).why
    host.obey()
    assert (host.job(victim).state, host.job(victim).restart_count) == (JobState.PENDING, 1)
    assert says in host.explain(victim).why.partition("it was not parked: ")[2]
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING


def test_what_a_node_says_of_an_earlier_time_does_not_count() -> None:
    host = host_of()
    victim = scavenger(host)
    urgent(host, START + 100)
    for at in (None, START + 99):
        said = wire.SuspendedSet(
            attempt_id=attempt_id(victim), is_suspended=True, parked_at=at, gpu_memory=((0, 0), (1, 0), (2, 0), (3, 0))
        )
        assert host.report("n1", said).events == ()


# ── who is ended instead ──────────────────────────────────────────────────────────────────────────────────────


def test_one_on_several_nodes_an_elastic_one_and_one_on_a_node_that_cannot_are_ended() -> None:
    for fields, nodes, has in (
        ({"gpus": None, "gpus_per_node": 4, "nodes_min": 2}, 2, None),
        ({"gpus": 2, "most_gpus": 4}, 1, None),
        ({}, 1, msgspec.structs.replace(inventory(), can_park=False)),
    ):
        host = host_of(nodes=nodes)
        for number in range(1, nodes + 1):
            host.handle(hello(f"n{number}", has or inventory()))
        scavenger(host, **fields)
        urgent(host, START + 100)
        assert stops(host) and not freezes(host), fields


def test_where_the_memory_of_the_node_is_too_small_for_both_it_is_ended() -> None:
    host = host_of()
    scavenger(host, mem_per_node_mib=60_000)
    urgent(host, START + 100, mem_per_node_mib=10_000)
    assert stops(host) and not freezes(host)


# ── what comes in between ─────────────────────────────────────────────────────────────────────────────────────


def test_if_the_other_goes_away_before_it_stands_still_it_stays() -> None:
    host = host_of()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(wants,))), START + 110)
    assert tick(host, START + 170).events == ()
    assert host.attempt(victim).suspended_at is None


@pytest.mark.parametrize("has_said", [False, True])
def test_if_the_other_goes_away_before_it_starts_the_job_goes_on_at_once(has_said: bool) -> None:
    host = host_of()
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    if has_said:
        stands_still(host, victim)
    host.orders.clear()

    turn = host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(wants,))), START + 110)

    assert turn is not None
    assert freezes(host) == [("n1", False, None)]
    assert host.cluster.nodes["n1"].held[attempt_id(victim)].gpus == (0, 1, 2, 3)
    assert host.attempt(victim).suspended_s == 10


def test_if_the_other_is_queued_again_the_job_goes_on_until_it_is_decided_anew() -> None:
    host = host_of()
    victim, wants = parked_for(host)
    host.ask(client.RequeueJobs(job_ids=(wants,)), START + 200)
    host.orders = [one for one in host.orders if isinstance(one.order, wire.Stop)]
    host.obey()
    assert host.job(wants).state is JobState.PENDING
    assert host.attempt(victim).suspended_at is None
    host.schedule(START + 201)
    assert host.cluster.parked[attempt_id(victim)] == Parked(to=host.job(wants).job_id, at=START + 201)


def test_a_parked_job_that_is_cancelled_ends_at_once_and_leaves_what_it_lent_to_the_other() -> None:
    host = host_of()
    victim, wants = parked_for(host)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(victim,))), START + 200)
    assert [order.grace_s for _, order in stops(host)] == [0]
    host.obey()
    assert (host.job(victim).state, host.job(victim).outcome) == (JobState.ENDED, Outcome.CANCELLED)
    assert host.job(wants).state is JobState.RUNNING
    host.finish(wants, now=START + 300)
    next_one = host.submit(submit("normal", gpus=4, time_limit_s=60))
    host.schedule()
    assert host.job(next_one).state is JobState.STARTING


def test_a_node_that_is_lost_takes_both() -> None:
    host = host_of()
    victim, wants = parked_for(host)
    reborn = msgspec.structs.replace(hello("n1", incarnation="2").hello, boot_id="another")
    host.handle(msgspec.structs.replace(hello("n1", incarnation="2"), hello=reborn), START + 200)
    assert not host.cluster.parked
    host.obey()
    assert {host.job(one).state for one in (victim, wants)} == {JobState.PENDING}


def test_a_drained_node_lets_the_job_go_on_all_the_same() -> None:
    host = host_of()
    victim, wants = parked_for(host)
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="fans"), START + 200)
    host.finish(wants, now=START + 300)
    assert host.attempt(victim).suspended_at is None


def test_its_time_limit_is_the_nodes_and_its_deadline_ends_it_while_it_stands_still() -> None:
    host = host_of()
    victim = scavenger(host, deadline_at=START + 2000, time_limit_s=600)
    urgent(host, START + 100)
    stands_still(host, victim)
    host.schedule()
    host.obey()
    tick(host, START + 2000)
    assert host.attempt(victim).outcome is Outcome.DEADLINE
    assert [order.grace_s for _, order in stops(host)] == [0]


def test_administrators_can_neither_suspend_nor_resume_a_parked_job() -> None:
    host = host_of()
    victim, wants = parked_for(host)
    for body in (client.SuspendJobs(job_ids=(victim,)), client.ResumeJobs(job_ids=(victim,))):
        answer = host.ask(body, START + 200)
        assert isinstance(answer, client.JobsDone)
        assert answer.refused == ((victim, f"it is parked for job {wants}, and resumes when that job ends"),)


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_controller_that_starts_again_asks_the_node_what_it_was_asked_before() -> None:
    host = host_of()
    victim = scavenger(host)
    urgent(host, START + 100)
    host.restart(START + 101)
    running = wire.AttemptStatus(attempt_id=attempt_id(victim), phase="running", time_limit_s=36_000, is_suspended=True)
    host.handle(hello("n1", inventory(), attempts=(running,)), START + 102)
    assert freezes(host) == [("n1", True, START + 100)]
    stands_still(host, victim)
    assert host.cluster.parked[attempt_id(victim)].lent is not None


def test_a_controller_that_starts_again_gives_what_is_lent_to_nobody_else() -> None:
    host = host_of()
    victim = scavenger(host)
    wants = urgent(host, START + 100)
    stands_still(host, victim)
    host.restart(START + 101)
    running = wire.AttemptStatus(attempt_id=attempt_id(victim), phase="running", time_limit_s=36_000, is_suspended=True)
    host.handle(hello("n1", inventory(), attempts=(running,)), START + 102)
    another = host.submit(submit("another", gpus=1, time_limit_s=60))
    host.schedule(START + 103)
    assert host.job(wants).state is JobState.STARTING
    assert host.job(another).state is JobState.PENDING
    host.obey()
    host.finish(wants, now=START + 200)
    assert host.attempt(victim).suspended_at is None


# ── what is said of them ──────────────────────────────────────────────────────────────────────────────────────


def test_both_jobs_are_told_and_when_the_parked_one_goes_on() -> None:
    host = host_of()
    victim = scavenger(host, signal=WARNED)
    wants = urgent(host, START + 100)
    assert "and is suspended at @{1160}" in host.explain(victim).why
    tick(host, START + 160)
    assert "its node has not reported yet" in host.explain(victim).why
    stands_still(host, victim)
    host.schedule()
    host.obey()

    told = host.explain(victim)

    assert (told.state, told.reason) == ("SUSPENDED", "Parked")
    assert (
        "preempted by job 2 of" in told.why
        and "which uses 4 GPUs of it (up to 4G of the memory of each stays in use)" in told.why
    )
    assert told.why.endswith("resumes when that job has ended, by @{4760} at the latest")
    assert "job 1 is suspended for it" in host.explain(wants).why
    answer = host.ask(client.ListJobs())
    assert isinstance(answer, client.Jobs)
    assert {one.job_id: (one.parked_for, one.runs_on_parked) for one in answer.jobs} == {1: ("2", ()), 2: ("", ("1",))}


def test_the_planner_promises_nobody_what_comes_back_to_the_parked_job() -> None:
    host = host_of()
    parked_for(host)
    waits = host.submit(submit("normal", gpus=4, time_limit_s=60))
    host.schedule(START + 200)
    told = host.explain(waits)
    assert told.expected_start_at is None, told.why
    assert not [one for one in host.controller.volatile.plan.protected if one.is_promise]  # type: ignore[union-attr]


def test_the_mode_is_off_for_who_is_lent_to() -> None:
    """A job of better right has the parked one give way again when it has gone on."""
    host = host_of()
    qos = msgspec.structs.replace(BUILT_IN_QOS["normal"], preempt_mode=PreemptMode.SUSPEND)
    host.ask(client.SetQos(qos=qos, is_new=False))
    victim, wants = parked_for(host)
    high = urgent(host, START + 200, qos="high", peer=ROOT)
    assert high not in host.cluster.claims
    host.finish(wants, now=START + 300)
    host.schedule()
    assert host.cluster.parked[attempt_id(victim)].to == high
