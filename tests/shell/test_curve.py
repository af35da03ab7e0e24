"""The tcp door: who may come in is who holds a pinned key, and a key speaks for one node only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zmq.asyncio

from gq.config.config import Config, ControllerSettings
from gq.connection.curve import (
    KeyPair,
    fresh_keys,
    make_keys,
    node_key_path,
    node_public_path,
    server_key_path,
    server_public_path,
)
from gq.errors import Refusal
from gq.wire import node as node_wire
from tests.shell.rig import Rig, Wire, hello, running, short_directory, until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TcpRig:
    """A shell with a tcp door; `server` is its key, `n1` the key of the node that may join."""

    def __init__(self, rig: Rig, endpoint: str, server: KeyPair, n1: KeyPair) -> None:
        self.rig = rig
        self.endpoint = endpoint
        self.server = server
        self.n1 = n1

    def dial(self, keys: KeyPair | None, server_public: bytes | None = None) -> Wire:
        def prepare(dealer: zmq.asyncio.Socket) -> None:
            if keys is not None:
                dealer.curve_publickey, dealer.curve_secretkey = keys
                dealer.curve_serverkey = server_public or self.server.public

        return self.rig.dial(self.endpoint, prepare)

    async def counter(self, name: str) -> int:
        return (await self.rig.counters())[name]


@asynccontextmanager
async def tcp_running() -> AsyncIterator[TcpRig]:
    with short_directory() as directory:
        keys = f"{directory}/keys"
        server = make_keys(server_key_path(keys), server_public_path(keys))
        n1 = make_keys(node_key_path(keys, "n1"), node_public_path(keys, "n1"))
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        config = Config(path="gq.toml", controller=ControllerSettings(listen=endpoint))
        async with running(config, directory=directory) as rig:
            yield TcpRig(rig, endpoint, server, n1)


def test_a_node_with_a_pinned_key_is_welcome() -> None:
    async def scenario() -> None:
        async with tcp_running() as tcp:
            node = tcp.dial(tcp.n1)
            await node.say(hello("n1"))
            assert isinstance(await node.hear(), node_wire.Welcome)
            assert await tcp.counter("handshakes_refused") == 0

    asyncio.run(scenario())


def test_a_key_that_is_not_pinned_does_not_get_through_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with tcp_running() as tcp:
            node = tcp.dial(fresh_keys())
            await node.say(hello("n1"))
            while not await tcp.counter("handshakes_refused"):
                await asyncio.sleep(0.01)
            assert await node.is_silent()
            assert await tcp.counter("hellos") == 0

    asyncio.run(scenario())
    [warning] = [record.getMessage() for record in caplog.records if "was rejected" in record.getMessage()]
    assert warning == "a host at 127.0.0.1 was rejected: its key is not known", "and is said once"


def test_without_a_key_nothing_gets_in() -> None:
    async def scenario() -> None:
        async with tcp_running() as tcp:
            bare = tcp.dial(None)
            await bare.say(hello("n1"))
            wrong_server = tcp.dial(tcp.n1, server_public=fresh_keys().public)
            await wrong_server.say(hello("n1"))
            assert await bare.is_silent(0.5)
            assert await wrong_server.is_silent()
            assert await tcp.counter("hellos") == 0

    asyncio.run(scenario())


def test_a_node_that_speaks_for_another_is_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with tcp_running() as tcp:
            node = tcp.dial(tcp.n1)
            await node.say(hello("n2"))
            heard = await node.hear()
            assert isinstance(heard, node_wire.Unwelcome)
            assert "n1" in heard.why
            assert "n2" in heard.why
            await node.say(node_wire.Heartbeat(node="n2", incarnation="first", at=0.0))
            while await tcp.counter("impostors") < 2:
                await asyncio.sleep(0.01)
            assert await tcp.counter("hellos") == await tcp.counter("heartbeats") == 0

    asyncio.run(scenario())
    assert "a host at 127.0.0.1 was rejected: this key belongs to node n1, not to n2" in caplog.messages


def test_a_node_can_be_pinned_while_the_controller_runs() -> None:
    async def scenario() -> None:
        async with tcp_running() as tcp:
            keys_dir = tcp.rig.location.keys_dir
            n2 = make_keys(node_key_path(keys_dir, "n2"), node_public_path(keys_dir, "n2"))
            node = tcp.dial(n2)
            await node.say(hello("n2"))
            assert isinstance(await node.hear(), node_wire.Welcome)

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["missing", "readable", "not a key"])
def test_the_tcp_door_does_not_open_without_a_key_that_is_its_own(fault: str) -> None:
    async def scenario() -> None:
        with short_directory() as directory:
            keys = f"{directory}/keys"
            path = server_key_path(keys)
            if fault != "missing":
                make_keys(path, server_public_path(keys))
            if fault == "readable":
                path.chmod(0o640)
            if fault == "not a key":
                path.write_text("hello\n")
            config = Config(path="gq.toml", controller=ControllerSettings(listen=f"tcp://127.0.0.1:{free_port()}"))
            async with running(config, directory=directory) as rig:
                assert rig.serving is not None
                await until(rig.serving.done)
                error = rig.serving.exception()
                assert isinstance(error, Refusal)
                assert str(path) in error.message

    asyncio.run(scenario())
