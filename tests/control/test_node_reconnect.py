"""Nodes that go away and come back, and what they say then: nothing is stuck, lost, or taken for something else."""

from __future__ import annotations

import pytest

from gq.errors import Refusal
from gq.model.ids import JobId, StepId
from gq.model.job import ExitStatus
from gq.model.state import JobState, Outcome
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.control.node import MAX_LIVES
from gqd.control.turn import Turn
from gqd.sched.planner import plan_whole
from gqd.state.effect import CloseLink
from gqd.state.input import Tick, TimeLeapt
from gqd.state.policy import Partition, Policy
from tests.builders import OWNER, attempt_id, hello, inventory, route_of, submit
from tests.hosts import CoreHost

GANG = submit("gang", nodes_min=2, gpus_per_node=4, time_limit_s=600)


def cluster(count: int = 2) -> CoreHost:
    return CoreHost(nodes={f"n{number}": inventory() for number in range(1, count + 1)})


def orders_to(host: CoreHost, node: str) -> list[wire.Order]:
    """What this node has been sent since the last look at any."""
    sent, host.orders = host.orders, []
    return [one.order for one in sent if one.node == node]


def lose(host: CoreHost, node: str, now: float) -> None:
    """Every node but this one is heard until this one counts as lost."""
    others = [name for name in host.cluster.nodes if name != node]
    for name in others:
        host.handle(hello(name, attempts=statuses(host, name)), now=now - 1)
    host.handle(Tick(), now=now)
    assert host.cluster.nodes[node].is_lost


def statuses(host: CoreHost, node: str, phase: str = "running") -> tuple[wire.AttemptStatus, ...]:
    """What the node would say it has, if it has all that we believe."""
    held = host.cluster.nodes[node].held
    limits = {one: host.cluster.jobs[one.job_id].time_limit_s for one in held}
    return tuple(wire.AttemptStatus(attempt_id=one, phase=phase, time_limit_s=limits[one]) for one in held)


def ended(job_id: int, outcome: Outcome = Outcome.COMPLETED, code: int = 0, attempt: int = 1) -> wire.AttemptEnded:
    return wire.AttemptEnded(
        attempt_id=attempt_id(job_id, attempt),
        outcome=outcome,
        exit=ExitStatus(code=code),
        ended_at=1.0,
        started_at=1.0,
        cell_emptied=True,
    )


# ── a controller that slept ───────────────────────────────────────────────────────────────────────────────────────


def test_time_that_leapt_is_nobodys_silence() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.handle(hello("n1"), now=100)

    leap = host.handle(TimeLeapt(by_s=36000), now=36103)
    tick = host.handle(Tick(), now=36103)

    assert (leap, tick) == (Turn(), Turn())
    silence_s = host.policy.timers.node_lost_s
    host.handle(Tick(), now=36100 + silence_s - 1)
    assert not host.cluster.nodes["n1"].is_lost
    host.handle(Tick(), now=36100 + silence_s)
    assert host.cluster.nodes["n1"].is_lost


# ── a node that was given up ──────────────────────────────────────────────────────────────────────────────────


def test_a_lost_batch_node_comes_back_with_the_end_of_a_job_that_was_queued_again() -> None:
    host = cluster(1)
    host.start(submit(gpus=4), now=1)
    host.handle(Tick(), now=61.5)
    assert host.job(1).state is JobState.PENDING

    host.handle(hello("n1", attempts=statuses(host, "n1")), now=80)
    host.report("n1", ended(1), now=81)

    assert host.job(1).state is JobState.PENDING, "it is another attempt's turn"
    assert host.cluster.nodes["n1"].free_gpu_mask == 0b1111
    host.schedule(now=82)
    assert host.job(1).attempt == 2


def test_a_lost_batch_node_comes_back_with_the_end_of_a_job_that_is_over() -> None:
    host = cluster(1)
    host.start(submit(gpus=4, requeue=False), now=1)
    host.handle(Tick(), now=61.5)
    host.handle(hello("n1", attempts=statuses(host, "n1")), now=80)
    host.report("n1", ended(1), now=81)
    assert host.job(1).outcome is Outcome.NODE_FAIL
    assert host.cluster.nodes["n1"].free_gpu_mask == 0b1111


def test_a_node_that_loses_its_cell_after_it_was_ready_fails_the_launch() -> None:
    """Its daemon started again and could not make the cell again; GO had been sent."""
    for ready in (("n1",), ("n1", "n2")):
        host = cluster()
        host.submit(GANG, now=1)
        host.schedule(now=1)
        for node in ready:
            host.report(node, wire.Prepared(attempt_id=attempt_id(1), master_port=20000))
        host.report("n2", wire.GoReceived(attempt_id=attempt_id(1)))

        host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(1), why="no cgroup"), now=2)
        host.obey()

        assert host.job(1).state is JobState.PENDING
        assert host.cluster.nodes["n1"].backoff_until > 2
        assert not host.cluster.nodes["n2"].held


def test_no_node_is_called_silent_before_it_has_a_link() -> None:
    """After a restart of the controller nodes need a heartbeat to notice."""
    host = cluster()
    host.submit(GANG, now=1)
    host.schedule(now=1)
    host.restart(now=2)
    host.handle(Tick(), now=8)
    assert host.job(1).state is JobState.STARTING
    assert host.cluster.nodes["n1"].backoff_failures == 0
    for node in ("n1", "n2"):
        host.handle(hello(node, attempts=statuses(host, node, "preparing")), now=9)
    host.obey()
    assert host.job(1).state is JobState.RUNNING


def test_all_silent_nodes_of_a_gang_are_given_up_at_once() -> None:
    host = cluster(3)
    host.submit(submit(nodes_min=3, gpus_per_node=4), now=1)
    host.schedule(now=1)
    host.report("n1", wire.Prepared(attempt_id=attempt_id(1), master_port=20000), now=1.5)
    host.handle(Tick(), now=3)
    host.report("n1", wire.CellEmptied(attempt_id=attempt_id(1)), now=3.1)
    assert host.job(1).state is JobState.PENDING
    for node in ("n2", "n3"):
        assert host.cluster.nodes[node].backoff_until == 33
        assert host.cluster.nodes[node].free_gpu_mask == 0


def test_a_hello_that_is_older_than_it_looks_frees_nothing() -> None:
    """It was on its way while the node started the job; the controller that knew its number has died."""
    host = cluster(1)
    host.start(submit(gpus=4), now=1)
    host.restart(now=2)
    host.orders.clear()

    host.handle(hello("n1"), now=3)
    assert host.job(1).state is JobState.RUNNING

    host.handle(hello("n1", incarnation="0"), now=4)
    assert host.job(1).state is JobState.COMPLETING, "of another life it may be true"
    assert host.cluster.nodes["n1"].free_gpu_mask == 0, "but that does not make the GPUs free"
    host.obey()
    assert host.cluster.nodes["n1"].free_gpu_mask == 0b1111


# ── jobs that go on without a node ────────────────────────────────────────────────────────────────────────────


def test_a_job_that_goes_on_without_a_node_does_so_however_the_node_went() -> None:
    for way in ("lost", "rebooted", "forgetful"):
        host = cluster()
        host.start(submit(nodes_min=2, gpus_per_node=4, no_kill=True), now=1)
        host.ask(client.CreateStep(job_id=1, step=StepRequest(name="step")))
        match way:
            case "lost":
                lose(host, "n2", now=62)
            case "rebooted":
                host.report("n2", ended(1, Outcome.NODE_FAIL), now=62)
            case _:
                host.handle(hello("n2", incarnation="2"), now=62)
                host.obey()
        assert host.job(1).state is JobState.RUNNING, way
        (step,) = host.attempt(1).steps.values()
        assert set(step.part_ends) == {"n2"}
        host.finish(1)
        assert host.job(1).outcome is Outcome.COMPLETED


def test_a_node_that_a_job_went_on_without_is_given_back() -> None:
    for way in ("lost", "down"):
        host = cluster()
        host.start(submit(nodes_min=2, gpus_per_node=4, no_kill=True), now=1)
        if way == "lost":
            lose(host, "n2", now=62)
            host.handle(hello("n2", attempts=statuses(host, "n2")), now=70)
        else:
            host.ask(client.UpdateNodes(names=("n2",), action="down", reason="fire"), now=70)
        host.obey()
        assert host.job(1).state is JobState.RUNNING
        assert host.cluster.nodes["n2"].free_gpu_mask == 0b1111, way


# ── what ends keeps why and how gently ────────────────────────────────────────────────────────────────────────


def test_the_scripts_exit_does_not_hasten_the_other_nodes_nor_hide_why_it_ended() -> None:
    host = cluster(3)
    host.start(submit(nodes_min=3, gpus_per_node=4, requeue=False), now=1)
    lose(host, "n3", now=62)
    host.orders.clear()

    host.report("n1", ended(1, Outcome.CANCELLED, code=3), now=63)
    host.handle(Tick(), now=68)

    stops = [one for one in orders_to(host, "n2") if isinstance(one, wire.Stop)]
    assert [one.grace_s for one in stops] == [30]
    host.report("n2", wire.CellEmptied(attempt_id=attempt_id(1)))
    assert (host.job(1).outcome, host.job(1).failure_class) == (Outcome.NODE_FAIL, "node")
    assert host.job(1).exit == ExitStatus(code=3)


# ── interactive jobs ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_interactive_job_whose_launch_failed_still_ends_with_its_client() -> None:
    host = cluster(1)
    host.submit(submit(is_interactive=True), now=0)
    host.schedule()
    host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(1), why="full"), now=1)
    assert host.job(1).state is JobState.PENDING
    host.handle(Tick(), now=61)
    assert host.job(1).outcome is Outcome.CANCELLED


def test_a_client_may_leave_while_the_launch_is_rolled_back() -> None:
    host = cluster()
    host.submit(submit(is_interactive=True, nodes_min=2), now=0)
    host.schedule()
    host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(1), why="full"), now=1)
    host.ask(client.EndInteractive(job_id=1, exit_code=0))
    host.obey()
    assert host.job(1).outcome is Outcome.CANCELLED


def test_a_launch_that_is_rolled_back_has_not_started_the_job() -> None:
    host = cluster()
    host.submit(GANG, now=0)
    assert host.ask(client.WaitJobs(job_ids=(1,), until="started", timeout_s=30)) is None
    host.schedule()
    host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(1), why="full"), now=1)
    assert not [one for one in host.replies if isinstance(one.body, client.Waited)]


# ── orders that must arrive ───────────────────────────────────────────────────────────────────────────────────


def test_a_time_limit_is_sent_until_every_node_enforces_it() -> None:
    host = cluster()
    host.start(GANG, now=1)
    host.orders.clear()
    host.ask(client.UpdateJob(job_id=1, time_limit_s=1200), now=2)
    host.report("n1", wire.TimeLimitSet(attempt_id=attempt_id(1), time_limit_s=1200))
    host.orders.clear()

    host.handle(Tick(), now=7)
    order = wire.SetTimeLimit(attempt_id=attempt_id(1), time_limit_s=1200)
    assert [(one.node, one.order) for one in host.orders] == [("n2", order)]
    host.report("n2", wire.TimeLimitSet(attempt_id=attempt_id(1), time_limit_s=1200))
    host.orders.clear()
    host.handle(Tick(), now=30)
    assert host.orders == []


def test_a_time_limit_outlives_a_restart_of_the_controller_and_an_older_order_that_comes_late() -> None:
    host = cluster(1)
    host.start(submit(time_limit_s=600), now=1)
    before = statuses(host, "n1")
    host.ask(client.UpdateJob(job_id=1, time_limit_s=60), now=2)
    host.restart(now=3)
    host.handle(hello("n1", attempts=before), now=4)
    assert wire.SetTimeLimit(attempt_id=attempt_id(1), time_limit_s=60) in orders_to(host, "n1")
    host.handle(hello("n1", attempts=statuses(host, "n1")), now=5)
    assert orders_to(host, "n1") == []
    host.report("n1", wire.TimeLimitSet(attempt_id=attempt_id(1), time_limit_s=600), now=6)
    assert orders_to(host, "n1") == [wire.SetTimeLimit(attempt_id=attempt_id(1), time_limit_s=60)]


def test_a_time_limit_that_changes_during_the_launch_reaches_the_nodes() -> None:
    host = cluster()
    host.submit(GANG, now=1)
    host.schedule(now=1)
    host.report("n1", wire.PrepareReceived(attempt_id=attempt_id(1)))
    host.ask(client.UpdateJob(job_id=1, time_limit_s=1200), now=2)
    assert wire.SetTimeLimit(attempt_id=attempt_id(1), time_limit_s=1200) in orders_to(host, "n1")


def test_a_stranger_is_stopped_until_the_node_says_that_it_is_gone() -> None:
    host = cluster(1)
    stranger = wire.AttemptStatus(attempt_id=attempt_id(77), phase="prepared")
    host.handle(hello("n1", attempts=(stranger,)), now=1)
    assert len(orders_to(host, "n1")) == 1
    host.handle(Tick(), now=6)
    (again,) = orders_to(host, "n1")
    assert isinstance(again, wire.Stop)
    host.report("n1", wire.CellEmptied(attempt_id=attempt_id(77)), now=7)
    host.handle(Tick(), now=12)
    assert orders_to(host, "n1") == []


def test_the_end_of_a_step_is_ordered_until_the_nodes_say_that_it_has() -> None:
    host = cluster()
    host.start(GANG, now=1)
    host.ask(client.CreateStep(job_id=1, step=StepRequest(name="step")), now=2)
    host.obey()
    host.ask(client.SignalStep(job_id=1, step=0), now=3)
    host.report("n1", wire.StepEnded(step_id=StepId(JobId(1), 1, 0)))
    host.orders.clear()
    host.handle(Tick(), now=8)
    assert [(one.node, type(one.order)) for one in host.orders] == [("n2", wire.StopStep)]
    host.report("n2", wire.StepEnded(step_id=StepId(JobId(1), 1, 0)))
    host.orders.clear()
    host.handle(Tick(), now=20)
    assert host.orders == []


# ── news of people ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_does_not_start_what_was_changed_while_it_was_made() -> None:
    host = cluster(1)
    host.submit(submit(gpus=4), now=1)
    plan = plan_whole(host.controller.snapshot(1.0))
    host.ask(client.UpdateJob(job_id=1, resources=submit(gpus=1).spec.resources), now=2)
    host.adopt(plan)
    assert host.job(1).state is JobState.PENDING
    assert host.controller.wants_plan(2.0)
    host.schedule(now=3)
    assert len(host.attempt(1).grants[0].gpus) == 1


NONSENSE: list[client.RequestBody] = [
    submit(time_limit_s=-5),
    submit(time_limit_s=2**63),
    submit(begin_at=float("nan")),
    submit(begin_at=float("inf")),
    submit(umask=-1),
    client.UpdateJob(job_id=1, time_limit_s=-5),
    client.UpdateJob(job_id=2, begin_at=float("nan")),
    client.CancelJobs(filter=client.JobFilter(job_ids=(1,)), signum=2**40),
    client.EndInteractive(job_id=1, exit_code=2**63),
    client.CreateStep(job_id=1, step=StepRequest(name="step", ntasks=-1)),
    client.CreateStep(job_id=1, step=StepRequest(name="step", ntasks=2**40, overlap=True)),
]


@pytest.mark.parametrize("body", NONSENSE, ids=[str(place) for place in range(len(NONSENSE))])
def test_numbers_out_of_all_bounds_are_refused_and_change_nothing(body: client.RequestBody) -> None:
    host = cluster(1)
    host.start(submit(is_interactive=True))
    host.submit(submit(is_held=True))
    events = len(host.log)
    with pytest.raises(Refusal, match="between"):
        host.ask(body)
    assert len(host.log) == events


def test_a_step_takes_its_gpus_where_the_job_has_them() -> None:
    host = CoreHost(nodes={"n1": inventory(gpu_count=3), "n2": inventory(gpu_count=1)})
    host.start(submit(nodes_min=2, nodes_max=2, gpus=4))
    assert [len(one.gpus) for one in host.attempt(1).grants] == [3, 1]
    created = host.ask(client.CreateStep(job_id=1, step=StepRequest(name="step", gpus=4)))
    assert isinstance(created, client.StepCreated)
    assert [len(part.gpus) for part in created.layout.parts] == [3, 1]


def test_a_job_whose_partition_is_gone_says_so_and_can_be_moved() -> None:
    old = Partition(name="old", is_default=True)
    host = CoreHost(Policy(owner_uid=OWNER.uid, partitions=(old,)), {"n1": inventory()})
    host.start(submit(time_limit_s=60))
    host.submit(submit())
    host.policy = Policy(owner_uid=OWNER.uid)
    host.restart(now=1)
    host.handle(hello("n1", attempts=statuses(host, "n1")))
    host.schedule()

    told = host.explain(2)
    assert "partition `old` no longer exists" in told.why
    host.ask(client.UpdateJob(job_id=1, time_limit_s=600, name="renamed"))
    assert host.job(1).time_limit_s == 600
    host.ask(client.UpdateJob(job_id=2, partition="main"))
    host.schedule()
    assert host.job(2).state is JobState.STARTING


# ── many jobs ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_that_cannot_start_anyway_do_not_keep_others_from_being_looked_at() -> None:
    partitions = (Partition(name="main", is_default=True), Partition(name="side", nodes=("n2",)))
    policy = Policy(owner_uid=OWNER.uid, partitions=partitions)
    host = CoreHost(policy, {"n1": inventory(), "n2": inventory()})
    for _ in range(5):
        host.submit(submit(is_held=True))
        host.submit(submit(begin_at=1000.0))
    for _ in range(5):
        host.submit(submit(gpus_per_node=4, nodelist=("n1",)))
    last = host.submit(submit(partition="side"))
    host.schedule()
    assert host.job(11).state is JobState.STARTING
    assert host.job(last).state is JobState.STARTING
    assert host.explain(1).reason == "JobHeldUser"
    assert host.explain(2).reason == "BeginTime"
    host.handle(Tick())
    assert host.controller.next_wakeup(0.0) == 1000.0


def test_a_job_that_cannot_start_even_when_its_nodes_are_empty_claims_none_of_them() -> None:
    """Also while an older job waits for one of them."""
    host = cluster(3)
    host.start(submit(gpus=4))
    host.ask(client.UpdateNodes(names=("n3",), action="drain", reason="fan"))
    host.submit(submit("head", gpus_per_node=4, nodelist=("n1",)))
    host.submit(submit("hopeless", nodes_min=3, gpus_per_node=4))
    host.submit(submit("small", gpus=1))
    host.schedule()
    assert host.explain(3).reason == "ReqNodeNotAvail"
    assert host.job(4).state is JobState.STARTING


# ── two daemons of one node ───────────────────────────────────────────────────────────────────────────────────


def test_of_two_daemons_of_one_node_the_one_that_registered_first_is_shut_out() -> None:
    host = cluster(1)
    host.handle(hello("n1", incarnation="2"), now=3)

    turn = host.handle(hello("n1", incarnation="1"), now=4)

    why = (
        "two daemons register as node n1: this one (incarnation 1) is older than the one that registered last "
        "(incarnation 2)"
    )
    assert turn == Turn(effects=(CloseLink(route=route_of("n1"), why=why),))
    assert host.controller.volatile.links["n1"] == route_of("n1", "2")
    assert host.cluster.nodes["n1"].incarnation == "2"


def test_the_incarnations_of_a_node_that_are_remembered_are_bounded() -> None:
    host = cluster(1)
    for number in range(2, 100):
        host.handle(hello("n1", incarnation=str(number)), now=number)

    assert host.controller.volatile.lives["n1"] == tuple(str(number) for number in range(100 - MAX_LIVES, 100))
