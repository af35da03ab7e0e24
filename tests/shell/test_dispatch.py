"""Effects become messages: grouped by node, with the blobs they name, and counted where they cannot be delivered."""

from __future__ import annotations

import pytest

from gq.model.ids import AttemptId, JobId, RequestId
from gq.model.node import GpuSummary
from gq.model.resource import Grant
from gq.model.state import Outcome
from gq.wire import client, node
from gqd.shell.dispatch import MAX_BLOB_BYTES, EffectDispatcher, wanted_blobs
from gqd.shell.listeners.nodes import relay_route, relay_target
from gqd.shell.metrics import Counters
from gqd.state import effect
from gqd.state.policy import Policy


class FakeListener:
    """Remembers what was sent; peers in `gone` cannot be reached."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.gone: set[bytes] = set()

    def send(self, data: bytes, peer: bytes) -> bool:
        if peer in self.gone:
            return False
        self.sent.append((peer, data))
        return True

    def said(self, peer: bytes) -> list[node.ControllerMessage]:
        return [node.CONTROLLER_MESSAGES.decode(data) for one, data in self.sent if one == peer]


class Rig:
    def __init__(self) -> None:
        self.nodes, self.clients = FakeListener(), FakeListener()
        self.counters = Counters()
        self.history: list[effect.ReplyHistory] = []
        listeners = {"nodes": self.nodes, "clients": self.clients}
        self.dispatcher = EffectDispatcher(listeners, Policy(), self.counters, self.history.append)  # type: ignore[arg-type]

    def release(self, *effects: effect.Effect, blobs: dict[str, bytes] | None = None) -> None:
        self.dispatcher.release(effects, blobs or {})


def prepare(job_id: int, script: str = "", environment: str = "") -> node.Prepare:
    launch = node.Launch(
        attempt_id=AttemptId(JobId(job_id), 1),
        job_name="x",
        cluster="gq",
        user="u",
        uid=1,
        gid=1,
        partition="main",
        node_rank=0,
        members=(),
        grant=Grant(node="n1"),
        script_digest=script,
        environment_digest=environment,
    )
    return node.Prepare(launch=launch)


def stop(job_id: int) -> node.Stop:
    return node.Stop(attempt_id=AttemptId(JobId(job_id), 1), outcome=Outcome.CANCELLED)


def send(order: node.Order, to: str = "n1") -> effect.SendOrder:
    return effect.SendOrder(node=to, order=order)


def welcome(name: str = "n1", peer: bytes = b"one") -> effect.SendWelcome:
    return effect.SendWelcome(route=("nodes", peer), node=name)


def test_orders_of_a_turn_go_to_each_node_in_one_message_in_sequence_with_their_blobs() -> None:
    rig = Rig()
    blobs = {"s": b"script", "e": b"env", "other": b"-"}
    rig.release(
        welcome(), welcome("n2", b"two"), send(prepare(1, "s", "e")), send(stop(2), "n2"), send(stop(3)), blobs=blobs
    )
    assert rig.nodes.said(b"one")[1:] == [
        node.Orders(orders=(prepare(1, "s", "e"), stop(3)), blobs={"s": b"script", "e": b"env"})
    ]
    assert rig.nodes.said(b"two")[1:] == [node.Orders(orders=(stop(2),))]
    assert rig.counters.orders == 3


def test_a_node_is_welcomed_before_it_gets_orders_and_a_new_link_replaces_the_old() -> None:
    rig = Rig()
    rig.release(send(stop(1)), welcome())
    rig.release(welcome(peer=b"new"), send(stop(2)))
    assert [type(one) for one in rig.nodes.said(b"one")] == [node.Welcome, node.Orders]
    assert [type(one) for one in rig.nodes.said(b"new")] == [node.Welcome, node.Orders]


def test_orders_without_a_link_are_counted_and_dropped() -> None:
    rig = Rig()
    rig.release(send(stop(1)))
    rig.release(welcome())
    rig.nodes.gone.add(b"one")
    rig.release(send(stop(1)), send(stop(2)))
    rig.nodes.gone.clear()
    rig.release(effect.CloseLink(route=("nodes", b"one"), why="not you"))
    rig.release(send(stop(1)))
    assert rig.counters.orders == 0
    assert rig.counters.orders_dropped == 4
    assert rig.nodes.said(b"one")[-1] == node.Unwelcome(why="not you")


def test_a_node_that_is_turned_away_hears_first_what_it_shall_stop() -> None:
    rig = Rig()
    rig.release(welcome())
    rig.release(effect.CloseLink(route=("nodes", b"one"), why="removed", is_removed=True), send(stop(1)))
    last = node.Unwelcome(why="removed", is_removed=True)
    assert rig.nodes.said(b"one")[1:] == [node.Orders(orders=(stop(1),)), last]


def test_blobs_that_are_too_many_for_one_message_are_spread_over_several() -> None:
    rig = Rig()
    blobs = {str(number): bytes(MAX_BLOB_BYTES // 3) for number in range(1, 8)}
    rig.release(welcome(), *(send(prepare(number, str(number))) for number in range(1, 8)), blobs=blobs)
    bunches = [one for one in rig.nodes.said(b"one") if isinstance(one, node.Orders)]
    assert [len(one.orders) for one in bunches] == [3, 3, 1]
    assert [order for one in bunches for order in one.orders] == [prepare(n, str(n)) for n in range(1, 8)]
    assert all(len(one.blobs) == len(one.orders) for one in bunches)


def test_acknowledgements_of_a_link_go_in_one_message() -> None:
    rig = Rig()
    route = ("nodes", b"one")
    rig.release(*(effect.AckReport(route=route, seq=seq) for seq in (4, 5, 9)))
    assert rig.nodes.said(b"one") == [node.Ack(seqs=(4, 5, 9))]


@pytest.mark.parametrize("is_relayed", [False, True])
def test_a_reply_finds_its_client_directly_or_through_the_node_that_relays(is_relayed: bool) -> None:
    rig = Rig()
    route = relay_route("nodes", b"one", -3) if is_relayed else ("clients", b"c")
    rig.release(effect.Reply(route=route, request_id=RequestId(b"r" * 16), body=client.Done(text="hi")))
    expected = client.reply(RequestId(b"r" * 16), client.Done(text="hi"))
    if is_relayed:
        assert rig.nodes.said(b"one") == [node.RelayReply(relay_id=-3, payload=expected)]
    else:
        assert rig.clients.sent == [(b"c", expected)]
    assert rig.counters.replies == 1


def test_routes_of_relays_come_back_as_they_went() -> None:
    assert relay_target(relay_route("nodes", b"\0peer", 2**40)) == (("nodes", b"\0peer"), 2**40)
    assert relay_target(("nodes", b"\0peer")) is None


def test_the_shells_counters_are_added_where_the_cluster_is_shown() -> None:
    rig = Rig()
    rig.counters.malformed = 3
    info = client.ClusterInfo(
        cluster="gq", gq_version="0", started_at=0.0, gpus=(GpuSummary(type="a", total=1, free=1),), counters={"x": 1}
    )
    rig.release(effect.Reply(route=("clients", b"c"), request_id=RequestId(b"r" * 16), body=client.Cluster(info=info)))
    body = client.REPLIES.decode(rig.clients.sent[0][1]).body
    assert isinstance(body, client.Cluster)
    assert body.info.counters["x"] == 1
    assert body.info.counters["malformed"] == 3
    assert body.info.gpus == info.gpus


def test_a_script_is_answered_from_the_blobs() -> None:
    rig = Rig()
    wanted = effect.ReplyScript(route=("clients", b"c"), request_id=RequestId(b"r" * 16), digest="s")
    assert wanted_blobs((wanted, send(prepare(1, "s", "e")))) == ("s", "e")
    rig.release(wanted, blobs={"s": b"#!/bin/sh\n"})
    assert client.REPLIES.decode(rig.clients.sent[0][1]).body == client.Script(data=b"#!/bin/sh\n")


def test_a_history_query_is_passed_to_its_queue() -> None:
    rig = Rig()
    asked = effect.ReplyHistory(route=("clients", b"c"), request_id=RequestId(b"r" * 16), query=client.QueryHistory())
    rig.release(asked)
    assert rig.history == [asked]
