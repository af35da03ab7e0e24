"""Jobs whose nodes become more and fewer while they run: who joins, who leaves, and what harms nobody."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gq.errors import Refusal
from gq.model.account import Holder, LimitInfo
from gq.model.job import ExitStatus, SignalSpec
from gq.model.policy_tables import Timers
from gq.model.resource import ResourceRequest, Role, RoleRequest
from gq.model.state import JobState, Outcome
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.control.turn import Turn
from gqd.state.events import event
from gqd.state.input import Tick
from gqd.state.parked import fits_beside
from gqd.state.phases import PartPhase
from gqd.state.policy import Partition, Policy
from tests.builders import OWNER, hello, inventory, submit
from tests.hosts import CoreHost

START = 1000.0
ROLES = (Role(name="ps", resources=RoleRequest(ntasks=1)), Role(name="worker", resources=RoleRequest(ntasks=2)))


def cluster(nodes: int = 3, gpus: int = 4, can_join: bool = True, **policy: Any) -> CoreHost:
    host = CoreHost(Policy(owner_uid=OWNER.uid, timers=Timers(node_lost_s=30), **policy))
    host.now = START
    for number in range(1, nodes + 1):
        host.handle(hello(f"n{number}", hardware(gpus, can_join)), now=START)
    return host


def hardware(gpus: int = 4, can_join: bool = True) -> Any:
    return replace(inventory(cpus=16, gpu_count=gpus), can_join=can_join)


def begun(host: CoreHost, least: int = 1, most: int = 3, **fields: Any) -> int:
    """It runs on its least."""
    wanted = {"gpus_per_node": 4, "cpus_per_gpu": 2, "time_limit_s": 36_000} | fields
    return host.start(submit("elastic", nodes_min=least, nodes_max=most, is_elastic=True, **wanted))


def grown(host: CoreHost, least: int = 1, most: int = 3, **fields: Any) -> int:
    """It runs, and has taken what was idle."""
    job_id = begun(host, least, most, **fields)
    settle(host)
    return job_id


def settle(host: CoreHost, rounds: int = 6) -> None:
    for _ in range(rounds):
        host.schedule()
        host.obey()


def rival(host: CoreHost, now: float, gpus: int = 4, **fields: Any) -> int:
    job_id = host.submit(submit("rival", gpus=gpus, **{"time_limit_s": 3600} | fields), now=now)
    host.schedule()
    return job_id


def tick(host: CoreHost, now: float, silent: str = "") -> Turn:
    host.now = now
    for name, route in list(host.controller.volatile.links.items()):
        if name != silent:
            host.controller.volatile.heard_at[name] = now
            assert route
    return host.handle(Tick(), now)


def nodes(host: CoreHost, job_id: int) -> list[str]:
    return [one.node for one in host.attempt(job_id).grants]


def told(host: CoreHost, node: str = "n1") -> wire.ResizeAttempt:
    """What that node was told last."""
    orders = (one.order for one in host.orders if one.node == node)
    return [one for one in orders if isinstance(one, wire.ResizeAttempt)][-1]


def joining(host: CoreHost) -> tuple[int, str]:
    """A job that runs on one node, with another on its way."""
    job_id = begun(host)
    host.schedule()
    return job_id, nodes(host, job_id)[-1]


# ── growing ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_starts_on_its_least_and_takes_whole_shares_of_idle_nodes() -> None:
    host = cluster()
    job_id = begun(host)
    assert nodes(host, job_id) == ["n1"]

    turn = host.schedule()

    assert [type(one).__name__ for one in turn.events] == ["NodeAdded"]
    [sent] = [one for one in host.orders if isinstance(one.order, wire.Prepare)]
    assert isinstance(sent.order, wire.Prepare)
    launch = sent.order.launch
    assert (sent.node, launch.node_rank, launch.join, launch.most_nodes) == ("n2", 1, 1, 3)
    assert [one.node for one in launch.members] == ["n1", "n2"] and len(launch.grant.gpus) == 4
    settle(host)
    assert nodes(host, job_id) == ["n1", "n2", "n3"]
    assert all(part.phase is PartPhase.LIVE for part in host.attempt(job_id).parts.values())


def test_all_its_nodes_are_told_when_one_lives_and_not_before() -> None:
    host = cluster(2)
    job_id, node = joining(host)
    assert not [one for one in host.orders if isinstance(one.order, wire.ResizeAttempt)]
    attempt_id = host.attempt(job_id).attempt_id
    host.orders.clear()

    host.report(node, wire.Prepared(attempt_id=attempt_id))
    assert [(one.node, type(one.order).__name__) for one in host.orders] == [(node, "Go")]
    host.orders.clear()
    host.report(node, wire.GoReceived(attempt_id=attempt_id))

    assert sorted(one.node for one in host.orders) == ["n1", "n2"]
    order = told(host)
    assert [(one.node, one.joined) for one in order.members] == [("n1", 0), ("n2", 1)] and (
        order.leaving,
        order.ends_at,
    ) == ((), None)
    host.obey()
    assert not tick(host, START + 20).effects, "all have said that they know"


def test_a_node_that_has_not_answered_is_told_again() -> None:
    host = cluster(2)
    begun(host)
    settle(host, 1)
    host.orders.clear()
    assert not [one for one in tick(host, START + 1).effects if "Resize" in str(one)]
    host2 = cluster(2)
    job_id, node = joining(host2)
    attempt_id = host2.attempt(job_id).attempt_id
    host2.report(node, wire.Prepared(attempt_id=attempt_id))
    host2.report(node, wire.GoReceived(attempt_id=attempt_id))
    host2.orders.clear()
    tick(host2, START + 10)
    assert sorted(one.node for one in host2.orders) == ["n1", "n2"]


def test_no_node_joins_that_somebody_who_waits_could_use() -> None:
    host = cluster(3)
    host.start(submit("holder", gpus=4, nodelist=("n3",), time_limit_s=3600))
    waits = host.submit(submit("wide", nodes_min=3, gpus_per_node=1, cpus_per_gpu=16, time_limit_s=3600))
    job_id = grown(host, time_limit_s=600)
    assert (host.job(waits).state, nodes(host, job_id)) == (JobState.PENDING, ["n1"])

    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(waits,))))
    settle(host)
    assert nodes(host, job_id) == ["n1", "n2"]


def test_a_share_that_is_not_whole_is_not_taken() -> None:
    host = cluster(2)
    host.start(submit("one", gpus=1, nodelist=("n2",), time_limit_s=3600))
    assert nodes(host, grown(host)) == ["n1"]


def test_a_node_that_knows_no_better_joins_nobody_and_is_joined_by_nobody() -> None:
    host = cluster(2, can_join=False)
    host.handle(hello("n3", hardware()), now=START)
    first = grown(host, nodelist=("n1",))
    assert nodes(host, first) == ["n1"]
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(first,))))
    host.obey()
    assert nodes(host, grown(host, nodelist=("n3",))) == ["n3"]


def test_a_limit_on_gpus_and_the_most_of_the_partition_hold_for_what_joins() -> None:
    host = cluster()
    host.ask(client.SetLimit(limit=LimitInfo(holder=Holder.USER, name=OWNER.user, resource="gpus", most=8)))
    assert len(nodes(host, grown(host))) == 2
    narrow = cluster(partitions=(Partition(name="main", is_default=True, max_nodes=2),))
    assert len(nodes(narrow, grown(narrow))) == 2


def test_what_it_holds_is_billed_and_counted() -> None:
    host = cluster()
    job_id = begun(host)
    alone = host.attempt(job_id).billing
    settle(host)
    assert host.attempt(job_id).billing == 3 * alone
    assert host.cluster.tallies.held_by[host.job(job_id).job_id]["gpus"] == 12


def test_what_it_held_until_a_node_left_is_settled_then() -> None:
    host = cluster()
    job_id = grown(host)
    host.ask(client.UpdateNodes(names=("n2",), action="down", reason="smoke"), now=START + 100)
    one = host.attempt(job_id).elastic
    assert one is not None and (one.gpu_s_before, one.cpu_s_before) == (pytest.approx(1200), pytest.approx(2400))


# ── one that fails on its way ─────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_refuses_is_taken_out_and_the_job_runs_on() -> None:
    host = cluster(2)
    job_id, node = joining(host)
    refused = wire.PrepareRefused(attempt_id=host.attempt(job_id).attempt_id, why="no disk")

    host.report(node, refused)

    assert (host.job(job_id).state, nodes(host, job_id)) == (JobState.RUNNING, ["n1"])
    assert not host.cluster.nodes[node].held and host.cluster.nodes[node].backoff_until > host.now
    settle(host)
    assert nodes(host, job_id) == ["n1"], "it is left out for a while"


def test_a_node_that_never_answers_is_taken_out_and_may_come_later() -> None:
    host = cluster(2)
    job_id, node = joining(host)
    host.orders.clear()

    tick(host, START + 6)

    assert (host.job(job_id).state, nodes(host, job_id)) == (JobState.RUNNING, ["n1"])
    assert [type(one.order).__name__ for one in host.orders if one.node == node] == ["Stop"]
    assert host.cluster.nodes[node].held, "nobody else gets it until it has said that nothing is there"
    host.obey()
    assert not host.cluster.nodes[node].held
    tick(host, START + 60)
    settle(host)
    assert nodes(host, job_id) == ["n1", node]


def test_a_late_answer_of_the_time_before_means_nothing() -> None:
    host = cluster(2)
    job_id, node = joining(host)
    tick(host, START + 6)
    host.obey()
    tick(host, START + 60)
    host.schedule()
    assert nodes(host, job_id) == ["n1", node]
    attempt_id = host.attempt(job_id).attempt_id

    turn = host.report(node, wire.CellEmptied(attempt_id=attempt_id, join=1))

    assert not turn.events and nodes(host, job_id) == ["n1", node]


def test_a_job_that_ends_while_a_node_joins_ends_there_too() -> None:
    host = cluster(2)
    job_id, node = joining(host)
    host.orders.clear()
    host.finish(job_id, now=START + 5)
    assert host.job(job_id).state is JobState.ENDED and not host.cluster.nodes[node].held


def test_a_job_that_is_suspended_while_a_node_joins_stands_still_there_too() -> None:
    host = cluster(2)
    for number in (1, 2):
        has = replace(hardware(), can_suspend=True)
        host.handle(hello(f"n{number}", has, incarnation=f"again{number}"), now=START)
    job_id, node = joining(host)
    host.ask(client.SuspendJobs(job_ids=(job_id,)))
    attempt_id = host.attempt(job_id).attempt_id
    host.report(node, wire.Prepared(attempt_id=attempt_id))
    host.report(node, wire.GoReceived(attempt_id=attempt_id))
    host.orders.clear()
    tick(host, START + 10)
    orders = [one.order for one in host.orders if one.node == node]
    assert any(isinstance(one, wire.SetSuspended) and one.is_suspended for one in orders)


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_is_to_go_is_told_and_is_its_own_until_it_is_empty() -> None:
    host = cluster()
    job_id = grown(host)

    wants = rival(host, START + 100)

    order = told(host)
    [going] = order.leaving
    assert going in ("n2", "n3") and order.ends_at == START + 110
    assert {one.node for one in host.orders} == {"n1", "n2", "n3"}, "all of its nodes are told"
    host.obey()
    assert len(nodes(host, job_id)) == 3 and host.job(wants).state is JobState.PENDING
    tick(host, START + 111)
    assert going not in nodes(host, job_id) and host.cluster.nodes[going].held
    host.schedule()
    assert host.job(wants).state is JobState.PENDING, "it is not empty"
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING and nodes(host, wants) == [going]
    assert host.job(job_id).state is JobState.RUNNING

    host.finish(wants, now=START + 200)
    settle(host)
    assert sorted(nodes(host, job_id)) == ["n1", "n2", "n3"]
    elastic = host.attempt(job_id).elastic
    assert elastic is not None and elastic.join_of(going) > order.generation, "it joined with another number"


def test_no_more_nodes_go_than_are_wanted_and_never_the_least() -> None:
    host = cluster()
    job_id = grown(host, least=2)
    wants = rival(host, START + 100, gpus=8, nodes_min=2, nodes_max=2)
    assert not [one for one in host.orders if isinstance(one.order, wire.ResizeAttempt)]
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(wants,))))
    rival(host, START + 101, gpus=1)
    assert told(host).leaving == (nodes(host, job_id)[2],)


def test_two_nodes_go_for_one_who_wants_two() -> None:
    host = cluster()
    job_id = grown(host)
    wants = rival(host, START + 100, gpus=8, nodes_min=2, nodes_max=2)
    assert set(told(host).leaving) == {"n2", "n3"}
    host.obey()
    tick(host, START + 111)
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING and nodes(host, job_id) == ["n1"]


def test_what_is_given_up_on_several_nodes_for_one_job_is_counted_together() -> None:
    host = cluster()
    job_id = grown(host)
    wants = rival(host, START + 100, gpus=8, nodes_min=2, nodes_max=2)
    one = host.attempt(job_id).elastic
    assert one is not None and one.to == ((wants, 8),)


def test_who_accepts_gives_the_node_up_at_once() -> None:
    host = cluster()
    job_id = grown(host)
    wants = rival(host, START + 100)
    order = told(host)
    host.ask(client.GiveUpGpus(job_id=job_id, generation=order.generation), now=START + 103)
    host.obey()
    host.schedule()
    host.obey()
    assert host.job(wants).state is JobState.RUNNING and len(nodes(host, job_id)) == 2


def test_its_own_signal_says_how_long_before_it_is_told() -> None:
    host = cluster()
    grown(host, signal=SignalSpec(signum=10, before_s=45))
    rival(host, START + 100)
    assert told(host).ends_at == START + 145


@pytest.mark.parametrize("at", [101.0, 112.0])
def test_a_restart_forgets_neither_who_goes_nor_who_has_gone(at: float) -> None:
    host = cluster()
    job_id = grown(host)
    wants = rival(host, START + 100)
    [going] = told(host).leaving
    if at > 110:
        tick(host, START + 111)
    host.restart(now=START + at)
    attempt_id = host.attempt(job_id).attempt_id
    for name in ("n1", "n2", "n3"):
        status = wire.AttemptStatus(attempt_id=attempt_id, phase="running", generation=0, time_limit_s=36_000)
        host.handle(hello(name, hardware(), attempts=(status,)), now=START + at)
    for now in (113, 114, 115):
        host.schedule(now=START + now)
        tick(host, START + now)
        host.obey()
    settle(host)
    assert host.job(wants).state is JobState.RUNNING and nodes(host, wants) == [going]
    assert host.job(job_id).state is JobState.RUNNING and len(nodes(host, job_id)) == 2


# ── one that dies ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_joined_and_is_lost_is_only_one_fewer() -> None:
    host = cluster()
    job_id = grown(host)
    for at in (10, 20, 31):
        tick(host, START + at, silent="n3")
    assert host.cluster.nodes["n3"].is_lost
    assert (host.job(job_id).state, nodes(host, job_id)) == (JobState.RUNNING, ["n1", "n2"])
    assert host.attempt(job_id).parts["n3"].is_stranded
    host.restart()
    assert host.attempt(job_id).parts["n3"].is_stranded, "what it has left is remembered"


def test_a_node_that_it_began_with_takes_the_job_with_it() -> None:
    host = cluster()
    job_id = grown(host, least=2, most=3)
    lost = nodes(host, job_id)[1]
    for at in (10, 20, 31):
        tick(host, START + at, silent=lost)
    assert host.job(job_id).state is JobState.COMPLETING


def test_a_node_that_is_set_down_leaves() -> None:
    host = cluster()
    job_id = grown(host)
    host.ask(client.UpdateNodes(names=("n2",), action="down", reason="smoke"))
    host.obey()
    assert (host.job(job_id).state, nodes(host, job_id)) == (JobState.RUNNING, ["n1", "n3"])
    assert not host.cluster.nodes["n2"].held


def test_a_node_that_is_removed_leaves() -> None:
    host = cluster()
    job_id = grown(host)
    host.ask(client.RemoveNode(name="n2", reason="sold"))
    host.obey()
    assert (host.job(job_id).state, nodes(host, job_id)) == (JobState.RUNNING, ["n1", "n3"])


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


def step(host: CoreHost, job_id: int, **request: Any) -> client.StepCreated:
    answer = host.ask(client.CreateStep(job_id=job_id, step=StepRequest(name="step", **request)))
    assert isinstance(answer, client.StepCreated)
    return answer


def test_a_step_uses_the_nodes_that_are_there_and_not_those_that_go() -> None:
    host = cluster()
    job_id = grown(host)
    rival(host, START + 100)
    [going] = told(host).leaving
    made = step(host, job_id, ntasks_per_node=1)
    assert {one.node for one in made.layout.parts} == {"n1", "n2", "n3"} - {going}


def test_what_ends_with_a_node_that_leaves_fails_no_step() -> None:
    host = cluster()
    job_id = grown(host)
    made = step(host, job_id, ntasks_per_node=1)
    host.obey()
    rival(host, START + 100)
    [going] = told(host).leaving
    host.obey()
    tick(host, START + 111)
    attempt = host.attempt(job_id)
    running = attempt.steps[made.step]
    killed = ExitStatus(signal=9)
    host.report(going, wire.StepEnded(step_id=running.step_id, exit=killed, outcome=Outcome.CANCELLED))
    first, last = [name for name in ("n1", "n2", "n3") if name != going]
    host.report(first, wire.StepEnded(step_id=running.step_id))
    turn = host.report(last, wire.StepEnded(step_id=running.step_id))
    [finished] = [one for one in turn.events if isinstance(one, event.StepFinished)]
    assert (finished.outcome, finished.exit) == (Outcome.COMPLETED, ExitStatus())


# ── what is asked for ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nodes_min": 2, "nodes_max": None}, "range of nodes"),
        ({"nodes_min": 2, "nodes_max": 2}, "range of nodes"),
        ({"gpus": 4, "gpus_per_node": None}, "--gpus exclude each other"),
        ({"gpus": 1, "most_gpus": 4, "gpus_per_node": None}, "a range of --gpus exclude each other"),
        ({"ntasks": 4}, "--ntasks exclude each other"),
        ({"switches": 1}, "--switches exclude each other"),
        ({"constraint": "[a|b]"}, "counts in --constraint"),
        ({"nodes_min": None, "nodes_max": None, "gpus_per_node": None, "roles": ROLES}, "without roles"),
    ],
)
def test_what_does_not_go_with_a_range_of_nodes_is_refused(fields: dict[str, Any], words: str) -> None:
    host = cluster()
    wanted = {"nodes_min": 1, "nodes_max": 3, "gpus_per_node": 1} | fields
    with pytest.raises(Refusal, match=words):
        host.ask(submit("elastic", is_elastic=True, **wanted))


def test_why_it_runs_says_how_many_nodes_it_has_and_takes() -> None:
    host = cluster(2)
    job_id = grown(host)
    assert "2 nodes, and takes up to 3 while they are idle" in host.explain(job_id).why
    wants = rival(host, START + 100)
    assert "gives up node n2" in host.explain(wants).why
    assert "gives up node n2 by" in host.explain(job_id).why


def test_one_whose_nodes_come_and_go_does_not_run_on_what_a_parked_job_lends() -> None:
    request = ResourceRequest(nodes_min=1, gpus_per_node=1, min_gpu_mem_mib=100)
    assert fits_beside(request)
    assert not fits_beside(replace(request, nodes_max=2, is_elastic=True))
