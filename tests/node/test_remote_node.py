"""A gqnode on another host: CURVE on its link and its step door, and clients that it relays."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from gq.connection.curve import KeyPair, make_keys, node_key_path, node_public_path, server_key_path, server_public_path
from gq.connection.locate import Location
from gq.model.ids import AttemptId, JobId, RequestId, StepId
from gq.model.state import Outcome
from gq.wire import client as client_wire
from gq.wire import node as wire
from gq.wire import step as step_wire
from gqnode.daemon.machine import reached_at
from tests.clusters import wait_until
from tests.node.controller import NodeProcess, ScriptedController, private_cluster
from tests.requires import needs_user


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Host:
    """The node's directory with its keys, and a controller's door with CURVE."""

    def __init__(self, location: Location, link: str, door: str, server: KeyPair, node: KeyPair) -> None:
        self.location = location
        self.door = door
        self.node_keys = node
        self.controller = ScriptedController(link)
        self.controller.socket.setsockopt(zmq.CURVE_SERVER, 1)
        self.controller.socket.setsockopt(zmq.CURVE_PUBLICKEY, server.public)
        self.controller.socket.setsockopt(zmq.CURVE_SECRETKEY, server.secret)
        self.controller.bind()
        self.process = NodeProcess(location)

    def close(self) -> None:
        self.process.close()
        self.controller.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    link, door = (f"tcp://127.0.0.1:{_free_port()}" for _ in range(2))
    config = f"""
[[node]]
name = "n1"
gpus = []
address = "127.0.0.1"
controller = "{link}"
step_listen = "{door}"
"""
    with private_cluster(tmp_path / "host", config) as location:
        keys = location.keys_dir
        server = make_keys(server_key_path(keys), server_public_path(keys))
        node = make_keys(node_key_path(keys, "n1"), node_public_path(keys, "n1"))
        host = Host(location, link, door, server, node)
        yield host
        host.close()


def test_a_node_links_by_curve_and_says_how_its_step_door_is_reached(host: Host) -> None:
    host.process.start()

    hello = host.controller.hear(lambda: host.controller.hellos and host.controller.hellos[0])

    assert hello.address == "127.0.0.1"
    assert (hello.step_endpoint, hello.step_public_key) == (host.door, host.node_keys.public.decode())


def test_a_node_with_another_key_of_the_controller_says_nothing_to_it(host: Host) -> None:
    public = server_public_path(host.location.keys_dir)
    public.write_bytes(zmq.curve_keypair()[0] + b"\n")
    host.process.start()

    host.controller.serve(for_s=2.0)

    assert host.controller.hellos == []


def test_a_node_whose_key_others_may_read_does_not_start(host: Host) -> None:
    node_key_path(host.location.keys_dir, "n1").chmod(0o644)
    host.process.start()

    assert host.process.wait() == 1

    assert "is readable by others" in host.process.log()


def test_the_step_door_on_tcp_is_opened_by_its_public_key_only(host: Host) -> None:
    host.process.start()
    host.controller.hear(lambda: host.controller.hellos)
    attach = step_wire.Attach(step_id=StepId(JobId(7), 1, 0), key=b"", argv=("true",), environment={}, chdir="/")

    def answer(server_key: bytes) -> step_wire.FromDoor | None:
        with zmq.Context() as context, context.socket(zmq.DEALER) as client:
            client.setsockopt(zmq.LINGER, 0)
            public, secret = zmq.curve_keypair()
            client.setsockopt(zmq.CURVE_PUBLICKEY, public)
            client.setsockopt(zmq.CURVE_SECRETKEY, secret)
            client.setsockopt(zmq.CURVE_SERVERKEY, server_key)
            client.connect(host.door)
            client.send(step_wire.TO_DOOR.encode(attach))
            return step_wire.FROM_DOOR.decode(client.recv()) if client.poll(1500) else None

    right = answer(host.node_keys.public)
    wrong = answer(zmq.curve_keypair()[0])

    assert isinstance(right, step_wire.StepRefused)
    assert right.code == "not_yet"
    assert wrong is None


def test_a_request_that_comes_while_the_controller_is_away_is_passed_on_when_it_is_back(tmp_path: Path) -> None:
    link = f"tcp://127.0.0.1:{_free_port()}"
    config = f'[[node]]\nname = "n1"\ngpus = []\naddress = "127.0.0.1"\ncontroller = "{link}"\n'
    with private_cluster(tmp_path / "host", config) as location:
        keys = location.keys_dir
        server = make_keys(server_key_path(keys), server_public_path(keys))
        host = Host(location, link, "", server, make_keys(node_key_path(keys, "n1"), node_public_path(keys, "n1")))
        host.controller.socket.unbind(link)
        host.process.start()
        with zmq.Context() as context, context.socket(zmq.DEALER) as client:
            client.setsockopt(zmq.LINGER, 0)
            client.connect(location.client_endpoint)
            client.send(client_wire.request(RequestId(b"r" * 16), client_wire.Ping()))
            wait_until(lambda: Path(location.client_socket).exists())
            host.controller.bind()

            relay = host.controller.hear(lambda: host.controller.relays and host.controller.relays[0])

        host.close()
    assert relay.uid == os.geteuid()


def test_a_request_that_a_controller_did_not_live_to_answer_is_passed_on_to_the_next(host: Host) -> None:
    host.process.start()
    host.controller.hear(lambda: host.controller.hellos)
    host.controller.hear(lambda: Path(host.location.client_socket).exists())
    first, second = (client_wire.request(RequestId(bytes([number]) * 16), client_wire.Ping()) for number in (1, 2))
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.setsockopt(zmq.LINGER, 0)
        client.connect(host.location.client_endpoint)
        client.send(first)
        client.send(second)
        answered, _ = host.controller.hear(lambda: len(host.controller.relays) == 2 and host.controller.relays)
        host.controller.say(wire.RelayReply(relay_id=answered.relay_id, payload=b"answer"))
        assert client.poll(5000) and client.recv() == b"answer"

        host.controller.relays.clear()
        host.controller.say(wire.WhoIsThere())  # as one says that has just begun
        again = host.controller.hear(lambda: host.controller.relays and host.controller.relays[0])

    assert again.payload == second, "and not what has its answer"


def test_a_client_of_the_host_is_relayed_with_who_it_is_by_the_kernels_word(host: Host) -> None:
    host.process.start()
    host.controller.hear(lambda: host.controller.hellos)
    host.controller.hear(lambda: Path(host.location.client_socket).exists())
    asked = client_wire.request(RequestId(b"r" * 16), client_wire.Ping())
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.setsockopt(zmq.LINGER, 0)
        client.connect(host.location.client_endpoint)
        client.send(asked)

        relay = host.controller.hear(lambda: host.controller.relays and host.controller.relays[0])
        answer = client_wire.reply(RequestId(b"r" * 16), client_wire.Done(text="pong"))
        host.controller.say(wire.RelayReply(relay_id=relay.relay_id, payload=answer))

        assert client.poll(5000)
        assert client.recv() == answer
    assert (relay.uid, relay.gid, relay.payload) == (os.geteuid(), os.getegid(), asked)


@needs_user
def test_a_relay_serves_only_the_owner_and_root(host: Host) -> None:
    host.controller.owner_uid = os.geteuid() + 1
    host.process.start()
    host.controller.hear(lambda: host.controller.hellos)
    host.controller.serve(for_s=0.5)
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.setsockopt(zmq.LINGER, 0)
        client.connect(host.location.client_endpoint)
        client.send(client_wire.request(RequestId(b"r" * 16), client_wire.Ping()))

        assert client.poll(5000)
        answer = client_wire.REPLIES.decode(client.recv())

    assert isinstance(answer.body, client_wire.Refused)
    assert answer.body.code == "not_served"
    assert host.controller.relays == []


@pytest.mark.parametrize(
    ("step_listen", "address", "endpoint"),
    [
        ("tcp://10.0.0.2:7322", "n1.lab", "tcp://10.0.0.2:7322"),
        ("tcp://[fd00::2]:7322", "n1.lab", "tcp://[fd00::2]:7322"),
        ("tcp://0.0.0.0:7322", "n1.lab", "tcp://n1.lab:7322"),
        ("tcp://*:7322", "10.0.0.2", "tcp://10.0.0.2:7322"),
        ("tcp://[::]:7322", "fd00::2", "tcp://[fd00::2]:7322"),
    ],
)
def test_a_door_on_every_interface_is_reached_at_the_nodes_address(
    step_listen: str, address: str, endpoint: str
) -> None:
    assert reached_at(step_listen, address) == endpoint


def test_a_stop_order_over_the_wire_reaches_a_remote_node(host: Host) -> None:
    host.process.start()
    host.controller.hear(lambda: host.controller.hellos)

    host.controller.order(wire.Stop(attempt_id=AttemptId(JobId(3), 1), outcome=Outcome.CANCELLED))

    assert host.controller.report(wire.CellEmptied).attempt_id == AttemptId(JobId(3), 1)
