"""A node is taken out for good: what it held ends, its keys are void, and nothing of it is left."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.ids import AttemptId, JobId
from gq.model.state import JobState, Outcome
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.control.turn import Turn
from gqd.sched.planner import plan_whole
from gqd.state.effect import AskWhoIsThere, CloseLink, RemoveKeyFile, Reply, SendOrder
from gqd.state.events import event
from gqd.state.input import KeyFileDeleted, NodeHeartbeat, Tick
from gqd.state.order_clocks import ONE_OFF, PART, RESIZE, STEP, STOP_ORPHAN, SUSPEND, TIME_LIMIT
from tests.builders import ADAM, ALICE, SHARED, client_request, hello, inventory, join, public_key, report, submit
from tests.hosts import CoreHost

TOKEN, KEY = public_key(1), public_key(2)


def cluster(**gpus: int) -> CoreHost:
    return CoreHost(SHARED, {name: inventory(gpu_count=count) for name, count in gpus.items()})


def remove(host: CoreHost, node: str, reason: str = "") -> client.ReplyBody | None:
    return host.ask(client.RemoveNode(name=node, reason=reason), peer=ADAM)


def test_an_idle_node_goes_with_its_key_and_its_link() -> None:
    host = cluster(n1=4)
    host.ask(client.CreateToken(public=TOKEN), peer=ADAM)
    host.handle(join("n2", TOKEN, KEY))
    host.handle(msgspec.structs.replace(hello("n2"), key=KEY))
    turn = host.handle(client_request(client.RemoveNode(name="n2", reason="sold\n"), 900, ADAM), now=5)

    assert [type(one) for one in turn.events] == [event.NodeRemoved, event.RequestAnswered, event.Audited]
    assert turn.events[0] == event.NodeRemoved(at=5, node="n2", reason=r"sold\n", by="adam")
    closed, key_file, reply = turn.effects
    assert isinstance(closed, CloseLink)
    assert closed.why == r"node n2 was removed by adam: sold\n"
    assert closed.is_removed
    assert key_file == RemoveKeyFile(node="n2")
    assert isinstance(reply, Reply)
    assert list(host.cluster.nodes) == ["n1"]
    assert KEY not in host.cluster.keys
    assert "n2" not in host.controller.volatile.links


def test_a_job_that_may_run_again_is_queued_again_and_one_that_may_not_ends() -> None:
    host = cluster(n1=4)
    for requeue in (True, False):
        host.start(submit(gpus=1, requeue=requeue), peer=ALICE)
    remove(host, "n1", "burnt")

    assert host.job(1).state is JobState.PENDING
    assert host.job(1).restart_count == 1
    assert (host.job(2).state, host.job(2).outcome) == (JobState.ENDED, Outcome.NODE_FAIL)
    assert "removed by adam: burnt" in host.job(2).why
    host.handle(hello("n2"))
    host.schedule()
    host.obey()
    assert host.attempt(1).batch_node == "n2"


def test_a_node_that_still_hears_is_told_to_stop_what_it_has_before_its_link_is_closed() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=1), peer=ALICE)
    turn = host.handle(client_request(client.RemoveNode(name="n1"), 900, ADAM))
    kinds = [type(one) for one in turn.effects]
    [order] = [one.order for one in turn.effects if isinstance(one, SendOrder)]
    assert isinstance(order, wire.Stop)
    assert kinds.index(SendOrder) < kinds.index(CloseLink)


def test_a_lost_node_that_never_comes_back_gives_back_what_was_withheld_for_it() -> None:
    host = cluster(n1=4, n2=4)
    host.start(submit(nodes_min=2, gpus_per_node=2), peer=ALICE)
    host.handle(Tick(), now=30)
    route = host.controller.volatile.links["n2"]
    host.handle(NodeHeartbeat(route=route, heartbeat=wire.Heartbeat(node="n2", incarnation="1", at=30)))
    host.handle(Tick(), now=61)
    host.obey()
    assert host.cluster.nodes["n1"].is_lost
    held = host.cluster.attempts[AttemptId(JobId(1), 1)]
    assert [node for node, part in held.parts.items() if part.is_stranded] == ["n1"]

    remove(host, "n1")

    assert list(host.cluster.nodes) == ["n2"]
    assert not any("n1" in one.parts for one in host.cluster.attempts.values())
    clocks = host.controller.volatile.order_clocks
    assert [node for kind in (PART, STOP_ORPHAN) for _, node, _ in clocks.owed(kind) if node == "n1"] == []


def test_no_order_is_owed_to_a_removed_node() -> None:
    host = CoreHost(SHARED)
    for name in ("n1", "n2"):
        host.handle(hello(name, msgspec.structs.replace(inventory(), can_join=True, confirms_orders=True)))
    host.start(submit(nodes_min=1, nodes_max=2, is_elastic=True, gpus_per_node=4, time_limit_s=3600), peer=ALICE)
    host.schedule()
    attempt = host.attempt(1)
    for body in (wire.Prepared(attempt_id=attempt.attempt_id), wire.GoReceived(attempt_id=attempt.attempt_id)):
        host.report("n2", body)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,)), signum=10), peer=ALICE)
    clocks = host.controller.volatile.order_clocks
    assert {node for kind in (RESIZE, ONE_OFF) for _, node, _ in clocks.owed(kind)} == {"n1", "n2"}

    remove(host, attempt.batch_node)

    kinds = (PART, STEP, TIME_LIMIT, SUSPEND, RESIZE, STOP_ORPHAN, ONE_OFF)
    assert {node for kind in kinds for _, node, _ in clocks.owed(kind)} == {"n2"}
    assert {key.node for key in host.cluster.owed_orders} == {"n2"}


@pytest.mark.parametrize("no_kill", [True, False])
def test_a_gang_loses_one_of_its_nodes(no_kill: bool) -> None:
    host = cluster(n1=2, n2=2)
    host.start(submit(nodes_min=2, gpus_per_node=2, no_kill=no_kill), peer=ALICE)
    other = next(name for name in ("n1", "n2") if name != host.attempt(1).batch_node)
    host.ask(client.CreateStep(job_id=1, step=StepRequest(name="s", ntasks=2)), peer=ALICE)
    remove(host, other)

    if no_kill:
        assert host.job(1).state is JobState.RUNNING
        assert list(host.attempt(1).parts) == [host.attempt(1).batch_node]
        answer = host.ask(client.GetJobEnvironment(job_id=1), peer=ALICE)
        assert isinstance(answer, client.JobEnvironment)
    else:
        assert host.job(1).state is JobState.COMPLETING
        host.obey()
        assert host.job(1).state is JobState.PENDING


def test_a_launch_that_needs_it_is_rolled_back() -> None:
    host = cluster(n1=2, n2=2)
    host.submit(submit(nodes_min=2, gpus_per_node=2), peer=ALICE)
    host.schedule()
    remove(host, "n2")
    host.obey()
    assert host.job(1).state is JobState.PENDING
    assert not host.cluster.nodes["n1"].held


def test_a_plan_made_before_starts_nothing_on_it() -> None:
    host = cluster(n1=4)
    host.submit(submit(gpus=1), peer=ALICE)
    plan = plan_whole(host.controller.snapshot(host.now))
    assert plan.starts
    remove(host, "n1")
    assert host.adopt(plan).events == ()


def test_what_it_still_says_changes_nothing() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=1, requeue=False), peer=ALICE)
    route = host.controller.volatile.links["n1"]
    remove(host, "n1")
    late = wire.CellEmptied(attempt_id=AttemptId(JobId(1), 1))
    beat = NodeHeartbeat(route=route, heartbeat=wire.Heartbeat(node="n1", incarnation="1", at=2))
    for said in (report("n1", late), beat):
        turn = host.handle(said, now=2)
        assert turn.events == ()
        assert turn.effects == (AskWhoIsThere(route=route),)


def test_the_jobs_it_ran_can_still_be_looked_at() -> None:
    host = cluster(n1=4)
    host.start(submit(requeue=False), peer=ALICE)
    remove(host, "n1")
    answer = host.ask(client.ListJobs(with_steps=True), peer=ALICE)
    assert isinstance(answer, client.Jobs)
    assert answer.jobs[0].nodes == ("n1",)
    with pytest.raises(Refusal, match="on n1, which was removed"):
        host.ask(client.AccessLog(job_id=1), peer=ALICE)


def test_a_login_node_is_known_by_its_key_alone_and_can_be_removed() -> None:
    host = cluster(n1=4)
    host.ask(client.CreateToken(public=TOKEN, is_login=True), peer=ADAM)
    host.handle(join("login1", TOKEN, KEY))
    remove(host, "login1")
    assert not host.cluster.login_nodes
    with pytest.raises(Refusal, match="`login1` does not exist"):
        remove(host, "login1")


def test_a_removed_node_that_joins_again_starts_anew() -> None:
    host = cluster(n1=4, n2=4)
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="fan"), peer=ADAM)
    remove(host, "n1")
    host.ask(client.CreateToken(public=TOKEN), peer=ADAM)
    host.handle(join("n1", TOKEN, KEY))
    host.handle(msgspec.structs.replace(hello("n1", incarnation="2"), key=KEY))
    assert not host.cluster.nodes["n1"].is_drained


def test_a_node_that_joins_again_gets_no_jobs_until_what_it_still_runs_is_stopped() -> None:
    """What that uses is in nobody's books."""
    host = cluster(n1=4)
    host.start(submit(gpus=1, requeue=False), peer=ALICE)
    attempt_id = host.attempt(1).attempt_id
    remove(host, "n1")
    host.handle(hello("n1", incarnation="2", attempts=(wire.AttemptStatus(attempt_id=attempt_id, phase="running"),)))
    host.submit(submit(gpus=1), peer=ALICE)
    host.schedule()
    assert host.job(2).state is JobState.PENDING
    assert "cleaning up after earlier jobs" in host.explain(2).why

    host.report("n1", wire.CellEmptied(attempt_id=attempt_id))
    assert host.controller.wants_plan(host.now)
    host.schedule()
    assert host.job(2).state is JobState.STARTING


def test_until_its_key_file_is_deleted_that_is_wanted_at_every_start() -> None:
    host = cluster(n1=4)
    remove(host, "n1")
    for _ in range(2):
        assert host.controller.resume(now=10).effects == (RemoveKeyFile(node="n1"),)

    gone = host.handle(KeyFileDeleted(node="n1"), now=11)

    assert gone == Turn(events=(event.KeyFileGone(at=11, node="n1"),))
    assert host.controller.resume(now=12) == Turn()
    assert host.handle(KeyFileDeleted(node="n1"), now=13) == Turn()


def test_removing_it_twice_by_one_request_is_done_once() -> None:
    host = cluster(n1=4)
    request = client_request(client.RemoveNode(name="n1"), 900, ADAM)
    first, again = host.handle(request), host.handle(request)
    assert again.events == ()
    assert again.effects == (first.effects[-1],)
