"""Jobs whose GPUs become more and fewer while they run: who takes what is idle, who gives it back, and the books."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gq.errors import Refusal
from gq.model.account import Holder, LimitInfo
from gq.model.job import SignalSpec
from gq.model.policy_tables import Timers
from gq.model.resource import ResourceRequest
from gq.model.state import JobState
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.control.accounts.association import with_defaults
from gqd.control.turn import Turn
from gqd.sched.planner import plan_whole
from gqd.state.events import event
from gqd.state.input import Tick
from gqd.state.policy import Partition, Policy
from tests.builders import OWNER, attempt_id, hello, inventory, submit
from tests.hosts import CoreHost

START = 1000.0


def cluster(nodes: int = 1, gpus: int = 8, can_resize: bool = True) -> CoreHost:
    host = CoreHost(Policy(owner_uid=OWNER.uid, timers=Timers(node_lost_s=1e6)))
    host.now = START
    for number in range(1, nodes + 1):
        host.handle(hello(f"n{number}", hardware(gpus, can_resize)), now=START)
    return host


def hardware(gpus: int = 8, can_resize: bool = True) -> Any:
    return replace(inventory(cpus=16, gpu_count=gpus), can_resize=can_resize)


def elastic(host: CoreHost, least: int = 1, most: int = 8, **fields: Any) -> int:
    """It runs, and has taken what was idle."""
    job_id = host.start(submit("elastic", gpus=least, most_gpus=most, **{"time_limit_s": 36_000} | fields))
    host.schedule()
    host.obey()
    return job_id


def rival(host: CoreHost, now: float, gpus: int = 4, **fields: Any) -> int:
    job_id = host.submit(submit("rival", gpus=gpus, **{"time_limit_s": 3600} | fields), now=now)
    host.schedule()
    return job_id


def tick(host: CoreHost, now: float) -> Turn:
    host.beat(now)
    return host.handle(Tick(), now)


def gpus(host: CoreHost, job_id: int) -> tuple[int, ...]:
    return host.attempt(job_id).grants[0].gpus


def resizes(host: CoreHost) -> list[wire.ResizeAttempt]:
    return [one.order for one in host.orders if isinstance(one.order, wire.ResizeAttempt)]


def shown(host: CoreHost, job_id: int) -> int:
    answer = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(job_id,))))
    assert isinstance(answer, client.Jobs)
    return answer.jobs[0].gpus


# ── growing ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_starts_with_its_least_and_takes_what_is_idle() -> None:
    host = cluster()
    job_id = host.start(submit("elastic", gpus=1, most_gpus=6, time_limit_s=36_000))
    assert (gpus(host, job_id), host.job(job_id).state) == ((0,), JobState.RUNNING)

    turn = host.schedule()

    assert [type(one).__name__ for one in turn.events] == ["GpusAdded"]
    assert len(gpus(host, job_id)) == 6 and shown(host, job_id) == 6
    order = resizes(host)[-1]
    assert (order.generation, order.gpus, order.keeps, order.ends_at) == (1, gpus(host, job_id), order.gpus, None)
    host.obey()
    assert not tick(host, START + 60).effects, "the node has said that it knows"


def test_a_job_waits_like_a_job_of_its_least() -> None:
    host = cluster(gpus=2)
    host.start(submit("full", gpus=2, time_limit_s=3600))
    waiting = host.submit(submit("elastic", gpus=2, most_gpus=64, time_limit_s=3600))
    host.schedule()
    assert "2 GPUs" in host.explain(waiting).why


def test_nothing_is_taken_that_somebody_who_waits_could_use() -> None:
    host = cluster()
    host.start(submit("holder", gpus=5, time_limit_s=3600))
    waits = host.submit(submit("wide", gpus=4, time_limit_s=3600))
    job_id = elastic(host)
    assert host.job(waits).state is JobState.PENDING
    assert len(gpus(host, job_id)) <= 1

    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(waits,))))
    tick(host, START + 6)
    host.schedule()

    assert len(gpus(host, job_id)) == 3


def test_several_share_what_is_idle_the_smallest_first() -> None:
    host = cluster(gpus=8)
    first = host.start(submit("one", gpus=1, most_gpus=8, time_limit_s=3600))
    second = host.start(submit("two", gpus=1, most_gpus=8, time_limit_s=3600), now=START)
    for _ in range(3):
        host.schedule()
        host.obey()
    assert len(gpus(host, first)) + len(gpus(host, second)) == 8
    assert not set(gpus(host, first)) & set(gpus(host, second))


def test_a_node_that_knows_no_better_leaves_its_jobs_as_they_are() -> None:
    host = cluster(can_resize=False)
    job_id = elastic(host)
    assert (gpus(host, job_id), resizes(host)) == ((0,), [])


def test_a_node_whose_gqnode_is_renewed_under_a_job_gives_it_more_from_then_on() -> None:
    host = cluster(can_resize=False)
    job_id = elastic(host)
    running = wire.AttemptStatus(attempt_id=attempt_id(job_id), phase="running", time_limit_s=36_000)
    host.handle(hello("n1", hardware(), attempts=(running,)), START + 20)
    host.schedule(START + 21)
    assert len(gpus(host, job_id)) == 8


def test_a_limit_holds_for_what_comes_while_it_runs() -> None:
    host = cluster()
    host.ask(client.SetLimit(limit=LimitInfo(holder=Holder.USER, name=OWNER.user, resource="gpus", most=3)))
    job_id = elastic(host)
    assert len(gpus(host, job_id)) == 3


def test_a_drained_gpu_is_not_taken() -> None:
    host = cluster(gpus=3)
    host.ask(client.UpdateNodes(names=("n1",), action="drain", gpu=2, reason="hot"))
    assert len(gpus(host, elastic(host))) == 2


# ── shrinking ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_told_and_what_it_gives_up_is_its_own_until_the_node_says_that_it_is_gone() -> None:
    host = cluster()
    job_id = elastic(host)
    assert len(gpus(host, job_id)) == 8

    wants = rival(host, START + 100)

    order = resizes(host)[-1]
    assert (len(order.gpus), len(order.keeps), order.ends_at) == (8, 4, START + 110)
    assert len(gpus(host, job_id)) == 8 and host.job(wants).state is JobState.PENDING
    host.obey()
    assert (gpus(host, job_id), shown(host, job_id)) == (order.keeps, 4)
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    host.schedule()
    assert len(gpus(host, job_id)) == 4, "nothing is idle"

    host.finish(wants, now=START + 200)
    host.schedule()
    assert len(gpus(host, job_id)) == 8


def test_no_more_is_given_up_than_is_wanted_and_never_the_least() -> None:
    host = cluster()
    job_id = elastic(host, least=2)
    rival(host, START + 100, gpus=1)
    assert len(resizes(host)[-1].keeps) == 7
    host.obey()
    host.schedule()
    host.obey()
    rival(host, START + 101, gpus=7)
    assert not resizes(host), "with two left to it there is no room for seven"
    assert len(gpus(host, job_id)) == 7


def test_its_own_signal_says_how_long_before_it_is_told() -> None:
    host = cluster()
    elastic(host, signal=SignalSpec(signum=10, before_s=45))
    rival(host, START + 100)
    assert resizes(host)[-1].ends_at == START + 145


def test_who_accepts_gives_up_at_once() -> None:
    host = cluster()
    job_id = elastic(host)
    rival(host, START + 100)
    before = resizes(host)[-1]
    host.orders.clear()

    host.ask(client.GiveUpGpus(job_id=job_id, generation=before.generation), now=START + 103)

    after = resizes(host)[-1]
    assert (after.generation, after.ends_at) == (before.generation, START + 103)
    host.orders.clear()
    host.ask(client.GiveUpGpus(job_id=job_id), now=START + 104)
    assert not host.orders, "said twice it means the same"


def test_what_an_older_change_says_frees_nothing() -> None:
    host = cluster()
    job_id = elastic(host)
    rival(host, START + 100)
    order = resizes(host)[-1]
    stale = wire.AttemptResized(attempt_id=attempt_id(job_id), generation=order.generation - 1, gpus=order.keeps)
    assert not host.report("n1", stale).events
    known = replace(stale, generation=order.generation, gpus=order.gpus)
    assert not host.report("n1", known).events
    assert len(gpus(host, job_id)) == 8


def test_an_order_is_repeated_until_the_node_answers_and_said_again_to_a_node_that_says_hello() -> None:
    host = cluster()
    job_id = elastic(host)
    rival(host, START + 100)
    order = resizes(host)[-1]
    host.orders.clear()
    assert resizes_in(tick(host, START + 106)) == [order]

    host.restart(START + 107)
    status = wire.AttemptStatus(attempt_id=attempt_id(job_id), phase="running", generation=order.generation - 1)
    again = host.handle(hello("n1", hardware(), attempts=(status,)), now=START + 108)

    assert resizes_in(again) == [order]


def resizes_in(turn: Turn) -> list[wire.ResizeAttempt]:
    orders = [getattr(one, "order", None) for one in turn.effects]
    return [one for one in orders if isinstance(one, wire.ResizeAttempt)]


def test_who_waits_and_who_shrinks_are_told_what_and_by_when() -> None:
    host = cluster()
    job_id = elastic(host, most=12)
    assert "it has 8 GPUs, and takes up to 12 while they are idle" in host.explain(job_id).why

    wants = rival(host, START + 100, gpus=3)

    assert f"job {job_id} gives up 3 GPUs by @{{1110}} for it" in host.explain(wants).why
    told = f"it has 8 GPUs, and keeps 5 of them: it gives up the others by @{{1110}}, which are kept for job {wants}"
    assert told in host.explain(job_id).why
    host.obey()
    assert "gives up" not in host.explain(wants).why
    assert "it has 5 GPUs" in host.explain(job_id).why


def test_a_long_signal_before_the_time_limit_keeps_nobody_waiting_for_longer_than_ten_minutes() -> None:
    host = cluster()
    elastic(host, signal=SignalSpec(signum=10, before_s=7200))
    rival(host, START + 100)
    assert resizes(host)[-1].ends_at == START + 700


# ── for whom ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_given_up_for_one_is_not_taken_by_another() -> None:
    """Not even by one that is ahead of it in the queue, and for whom all of it is free at that moment."""
    host = cluster()
    elastic(host)
    wants = rival(host, START + 100, gpus=4)
    assert host.cluster.claims[wants].grants[0].gpus == tuple(
        gpu for gpu in range(8) if gpu not in resizes(host)[-1].keeps
    )
    thief = host.submit(submit("thief", gpus=4, priority=10**9, time_limit_s=60), now=START + 101)
    host.obey()
    host.schedule()
    host.obey()
    assert (host.job(wants).state, host.job(thief).state) == (JobState.RUNNING, JobState.PENDING)


def test_what_was_idle_is_kept_with_what_is_given_up() -> None:
    host = cluster()
    first = host.start(submit("first", gpus=3, time_limit_s=36_000))
    job_id = elastic(host)
    assert len(gpus(host, job_id)) == 5
    host.finish(first, now=START + 90)
    wants = rival(host, START + 90, gpus=6)
    assert len(resizes(host)[-1].keeps) == 2
    small = rival(host, START + 91, gpus=2)
    assert host.job(small).state is JobState.PENDING, "three were idle, and are kept"
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING


def test_no_more_than_is_wanted_is_given_up_where_some_is_idle() -> None:
    host = cluster()
    first = host.start(submit("first", gpus=3, time_limit_s=36_000))
    job_id = elastic(host)
    host.finish(first, now=START + 90)
    rival(host, START + 90, gpus=4)
    assert len(resizes(host)[-1].keeps) == 4, "it has five, and three are idle"
    assert len(gpus(host, job_id)) == 5


def test_what_is_given_up_for_one_who_goes_away_is_for_the_next_and_nothing_more_is_given_up() -> None:
    host = cluster()
    job_id = elastic(host)
    first = rival(host, START + 100)
    before = resizes(host)[-1]
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(first,))))
    assert not host.cluster.claims
    second = rival(host, START + 102)
    assert resizes(host)[-1] == before and events_of(host, event.ShrinkDecided) == ["ShrinkDecided"]
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(second).state is JobState.RUNNING
    assert len(gpus(host, job_id)) == 4


def test_two_rivals_in_one_plan_have_one_change_and_each_its_own() -> None:
    host = cluster()
    elastic(host)
    first = host.submit(submit("one", gpus=2, time_limit_s=3600), now=START + 100)
    second = host.submit(submit("two", gpus=3, time_limit_s=3600), now=START + 100)
    host.schedule()
    [shrunk] = [one for one in host.log if isinstance(one, event.ShrinkDecided)]
    assert (len(shrunk.keeps), shrunk.to) == (3, ((first, 2), (second, 3)))
    host.obey()
    host.schedule()
    host.obey()
    assert {host.job(one).state for one in (first, second)} == {JobState.RUNNING}


def test_tasks_of_an_array_have_gpus_given_up_for_each() -> None:
    host = cluster()
    elastic(host)
    host.submit(submit("tasks", gpus=2, time_limit_s=3600, array="0-2"), now=START + 100)
    host.schedule()
    [shrunk] = [one for one in host.log if isinstance(one, event.ShrinkDecided)]
    assert len(shrunk.keeps) == 2
    assert {to for to, _ in shrunk.to} == set(host.cluster.claims) and len(shrunk.to) == 3


def test_who_would_start_sooner_anyway_has_nothing_given_up() -> None:
    host = cluster()
    host.start(submit("short", gpus=4, time_limit_s=105))
    elastic(host)
    rival(host, START + 100)
    assert not events_of(host, event.ShrinkDecided), "the other is over in five seconds"


def test_who_is_late_keeps_nobody_from_having_gpus_given_up_by_others() -> None:
    host = cluster(nodes=2, gpus=4)
    stuck = elastic(host, nodelist=("n1",))
    other = elastic(host, nodelist=("n2",))
    wants = rival(host, START + 100, gpus=3)
    [late] = [one.attempt_id.job_id for one in resizes(host) if len(one.keeps) < len(one.gpus)]
    host.orders.clear()
    tick(host, START + 110 + 299)
    host.schedule()
    assert len(events_of(host, event.ShrinkDecided)) == 1
    tick(host, START + 110 + 301)
    for _ in range(3):
        host.schedule()
    assert len(events_of(host, event.ShrinkDecided)) == 2
    assert late in (stuck, other)
    assert host.cluster.claims[wants].grants[0].node != host.attempt(late).batch_node


@pytest.mark.parametrize("is_decided", [True, False])
def test_it_is_told_when_who_waits_behind_starts(is_decided: bool) -> None:
    """Three GPUs are given up in ten seconds; the next to be free are those of the job that gets them."""
    host = cluster(gpus=4)
    elastic(host)
    first = host.submit(submit("first", gpus=3, time_limit_s=3600), now=START + 100)
    second = host.submit(submit("behind", gpus=3, time_limit_s=3600), now=START + 100)
    if is_decided:
        host.schedule()
    starts = host.starts()
    assert [starts[one].start_at for one in (first, second)] == [START + 110, START + 110 + 3600]


def test_a_plan_that_is_late_gives_up_nothing() -> None:
    host = cluster()
    job_id = elastic(host)
    wants = host.submit(submit("rival", gpus=4, time_limit_s=3600), now=START + 100)
    plan = plan_whole(host.controller.snapshot(host.now))
    assert [len(one.gpus) for one in plan.preemptions[0].shrinks] == [4]
    host.finish(job_id, now=START + 101)
    turn = host.adopt(plan)
    assert not [one for one in turn.events if isinstance(one, event.ShrinkDecided | event.PreemptionDecided)]
    assert wants not in host.cluster.claims


# ── CPUs that come with GPUs ──────────────────────────────────────────────────────────────────────────────────


def cpus(host: CoreHost, job_id: int) -> int:
    return len(host.attempt(job_id).grants[0].cpus)


def test_cpus_come_with_gpus_and_go_with_them() -> None:
    host = cluster()
    job_id = host.start(submit("elastic", gpus=1, most_gpus=8, cpus_per_gpu=2, time_limit_s=36_000))
    assert cpus(host, job_id) == 2
    host.schedule()
    assert (len(gpus(host, job_id)), cpus(host, job_id)) == (8, 16)
    order = resizes(host)[-1]
    assert order.cpus == order.keeps_cpus == tuple(range(16))
    host.obey()

    wants = rival(host, START + 100, gpus=3, cpus_per_gpu=2)

    order = resizes(host)[-1]
    assert order.keeps_cpus is not None
    assert (len(order.keeps), len(order.keeps_cpus), cpus(host, job_id)) == (5, 10, 16)
    host.obey()
    assert cpus(host, job_id) == 10
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING and cpus(host, wants) == 6


def test_without_idle_cpus_for_it_no_gpu_comes() -> None:
    host = cluster()
    host.start(submit("cpus", ntasks=11, time_limit_s=36_000))
    job_id = elastic(host, cpus_per_gpu=2)
    assert (len(gpus(host, job_id)), cpus(host, job_id)) == (2, 4)


def test_who_needs_more_cpus_than_go_with_its_gpus_has_more_gpus_given_up() -> None:
    host = cluster()
    job_id = elastic(host, cpus_per_gpu=2)
    wants = rival(host, START + 100, gpus=1, cpus_per_gpu=5)
    assert len(resizes(host)[-1].keeps) == 5
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING and cpus(host, job_id) == 10


def test_cpus_are_given_up_for_who_wants_no_gpu_and_not_taken_before_it() -> None:
    host = cluster()
    job_id = elastic(host, cpus_per_gpu=2)
    wants = host.submit(submit("cpus", ntasks=3, time_limit_s=3600), now=START + 100)
    host.schedule()
    assert f"job {job_id} gives up 3 CPUs by @{{1110}} for it" in host.explain(wants).why
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    assert (len(gpus(host, job_id)), cpus(host, job_id)) == (6, 12)
    host.submit(submit("more", ntasks=16, time_limit_s=3600), now=START + 110)
    host.finish(wants, now=START + 120)
    host.schedule()
    assert len(gpus(host, job_id)) == 6, "somebody waits for CPUs"


def test_where_a_partition_gives_memory_for_each_gpu_an_elastic_job_has_that_of_its_least() -> None:
    partition = Partition(name="batch", default_cpus_per_gpu=2, default_mem_per_gpu_mib=1024)
    request = with_defaults(ResourceRequest(gpus=2, most_gpus=8), partition)
    assert (request.cpus_per_gpu, request.mem_per_gpu_mib, request.mem_per_node_mib) == (2, None, 2048)


# ── giving way ────────────────────────────────────────────────────────────────────────────────────────────────


def events_of(host: CoreHost, *kinds: type) -> list[str]:
    return [type(one).__name__ for one in host.log if isinstance(one, kinds)]


def ended_for_others(host: CoreHost) -> list[int]:
    decided = [one for one in host.log if isinstance(one, event.PreemptionDecided)]
    return [attempt_id.job_id for one in decided for attempt_id, _ in one.victims]


@pytest.mark.parametrize("wanted", [1, 3, 7])
def test_no_elastic_job_is_queued_again_for_a_job_for_which_it_is_enough_that_it_shrinks(wanted: int) -> None:
    host = cluster()
    job_id = elastic(host, qos="scavenger")

    wants = rival(host, START + 100, gpus=wanted)

    assert events_of(host, event.ShrinkDecided) == ["ShrinkDecided"] and not ended_for_others(host)
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    assert (host.job(job_id).state, len(gpus(host, job_id))) == (JobState.RUNNING, 8 - wanted)


def test_an_elastic_job_gives_way_whole_where_what_it_could_give_up_is_not_enough() -> None:
    host = cluster()
    job_id = elastic(host, qos="scavenger")
    wants = rival(host, START + 100, gpus=8)
    assert events_of(host, event.PreemptionDecided, event.ShrinkDecided) == ["PreemptionDecided"]
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    assert host.job(job_id).state is JobState.PENDING


def test_one_who_would_give_way_stays_where_it_is_enough_that_another_shrinks() -> None:
    host = cluster(nodes=2, gpus=4)
    scavenger = host.start(submit("scavenger", gpus=4, qos="scavenger", time_limit_s=3600))
    job_id = elastic(host, qos="scavenger")
    assert len(gpus(host, job_id)) == 4
    wants = rival(host, START + 100, gpus=3)
    host.obey()
    host.schedule()
    host.obey()
    states = [host.job(one).state for one in (scavenger, job_id, wants)]
    assert states == [JobState.RUNNING] * 3
    assert not ended_for_others(host)


def test_a_second_one_for_whom_the_rest_is_not_enough_has_it_give_way_after_all() -> None:
    host = cluster()
    job_id = elastic(host, qos="scavenger")
    rival(host, START + 100, gpus=4)
    second = rival(host, START + 100, gpus=4)
    for now in range(101, 140, 2):
        tick(host, START + now)
        host.obey()
        host.schedule()
        host.obey()
    assert host.job(second).state is JobState.RUNNING
    assert host.job(job_id).state is JobState.PENDING


def test_for_a_gang_some_give_up_what_they_can_and_others_are_ended_whose_loss_is_least() -> None:
    """Two nodes: on one it is enough that a job shrinks; on the other the cheaper of two is ended."""
    host = cluster(nodes=2, gpus=4)
    dear = host.start(submit("dear", gpus=2, qos="scavenger", time_limit_s=3600, nodelist=("n2",)))
    cheap = host.start(submit("cheap", gpus=2, qos="scavenger", time_limit_s=3600, nodelist=("n2",)), now=START + 90)
    job_id = elastic(host, qos="scavenger", nodelist=("n1",))
    assert len(gpus(host, job_id)) == 4

    wants = host.submit(submit("gang", gpus_per_node=2, nodes_min=2, time_limit_s=3600), now=START + 100)
    host.schedule()

    assert ended_for_others(host) == [cheap]
    assert [len(one.keeps) for one in resizes(host)][-1] == 2
    for now in range(101, 140, 3):
        tick(host, START + now)
        host.obey()
        host.schedule()
        host.obey()
    states = [host.job(one).state for one in (wants, dear, job_id)]
    assert states == [JobState.RUNNING] * 3 and len(gpus(host, job_id)) == 2
    assert host.job(cheap).state is JobState.PENDING


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


def step_in(host: CoreHost, job_id: int, gpus: int | None = None) -> Any:
    return host.ask(client.CreateStep(job_id=job_id, step=StepRequest(name="s", ntasks=1, gpus=gpus)))


def test_a_step_that_begins_while_its_job_is_to_shrink_gets_what_stays() -> None:
    host = cluster()
    job_id = elastic(host)
    rival(host, START + 100)
    keeps = resizes(host)[-1].keeps
    made = step_in(host, job_id)
    assert isinstance(made, client.StepCreated)
    assert made.layout.parts[0].gpus == keeps
    with pytest.raises(Refusal, match="has 4 there"):
        step_in(host, job_id, gpus=5)


def test_a_step_of_which_the_node_has_not_heard_is_stopped_when_its_gpus_are_gone() -> None:
    host = cluster()
    job_id = elastic(host)
    step_in(host, job_id)
    host.orders.clear()
    rival(host, START + 100)
    host.obey()
    host.restart(START + 101)
    status = wire.AttemptStatus(attempt_id=attempt_id(job_id), phase="running", generation=2)
    turn = host.handle(hello("n1", hardware(), attempts=(status,)), now=START + 102)
    orders = [getattr(one, "order", None) for one in turn.effects]
    assert [type(one) for one in orders if isinstance(one, wire.LaunchStep | wire.StopStep)] == [wire.StopStep]


# ── the books ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_used_is_settled_when_the_rate_changes() -> None:
    host = cluster(gpus=2)
    job_id = elastic(host, most=2)
    place = host.cluster.members[OWNER.user, host.job(job_id).account]
    assert place.usage.rate == host.attempt(job_id).billing == 2_000_000
    rival(host, START + 100, gpus=1)
    host.obey()
    one = host.attempt(job_id).elastic
    assert one is not None
    assert (one.gpu_s_before, one.billed_s_before) == (pytest.approx(200), pytest.approx(200))
    assert place.usage.rate == host.attempt(job_id).billing == 1_000_000
    assert place.usage.value_at(START + 200, host.cluster.half_life_s) == pytest.approx(300, rel=1e-3)


def test_a_job_that_ends_while_it_is_to_shrink_frees_everything() -> None:
    host = cluster()
    job_id = elastic(host)
    wants = rival(host, START + 100)
    host.orders.clear()
    host.finish(job_id, now=START + 102)
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING
    assert not tick(host, START + 160).events


def test_a_requeued_job_begins_with_its_least_again() -> None:
    host = cluster()
    job_id = elastic(host)
    host.ask(client.RequeueJobs(job_ids=(job_id,)), now=START + 10)
    host.obey()
    host.schedule()
    assert len(gpus(host, job_id)) == 1 and host.attempt(job_id).attempt_id.attempt == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nodes_min": 2}, "one node"),
        ({"mem_per_gpu_mib": 1024}, "--mem-per-gpu"),
        ({"gpus_per_task": 1}, "--gpus-per-task"),
        ({"most_gpus": 0}, "not a range"),
    ],
)
def test_a_range_that_cannot_be_is_refused(fields: dict[str, Any], words: str) -> None:
    host = cluster()
    with pytest.raises(Refusal) as refused:
        host.ask(submit("elastic", **{"gpus": 1, "most_gpus": 8} | fields))
    assert words in refused.value.message


def test_who_is_not_elastic_has_nothing_to_accept() -> None:
    host = cluster()
    job_id = host.start(submit("plain", gpus=1))
    with pytest.raises(Refusal, match="cannot change while it runs"):
        host.ask(client.GiveUpGpus(job_id=job_id))


def test_events_say_what_came_and_went() -> None:
    host = cluster()
    elastic(host)
    rival(host, START + 100)
    host.obey()
    kinds = [
        type(one) for one in host.log if isinstance(one, event.GpusAdded | event.ShrinkDecided | event.GpusGivenUp)
    ]
    assert kinds == [event.GpusAdded, event.ShrinkDecided, event.GpusGivenUp]
