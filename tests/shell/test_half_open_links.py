"""Strangers at the tcp doors: links by the thousand, links that drip, and peers that speak no CURVE."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from gq.connection import link_bounds as links
from gq.connection import loop_socket
from gq.connection.link_bounds import NO_CURVE, NO_PROOF, Bounds, Links, links_per_listener, links_per_user
from gq.model.node import Inventory
from gq.wire import client as wire
from gq.wire import node as node_wire
from gqd.shell.listeners import auth, listeners
from gqd.shell.log import LOG
from tests.requires import needs_root
from tests.shell.rig import Wire, hello, until
from tests.shell.shared import USER, as_uid, remotely, shared_running

MANY = 2000
FEW = Bounds(all=50, peer=10)
SIGNATURE = b"\xff\0\0\0\0\0\0\0\x01\x7f"
"""How a ZMTP greeting begins."""

CROWD = """
import socket, sys, time
port, count, word = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
links = []
for number in range(count):
    link = socket.create_connection(("127.0.0.1", port), timeout=60)
    link.sendall(word[: number % (len(word) + 1)])
    links.append(link)
print("there", flush=True)
sys.stdin.read()
"""


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


@contextlib.contextmanager
def crowd(endpoint: str, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds `count` links open, each of which says a different part of a greeting and no more."""
    argv = [sys.executable, "-c", CROWD, str(port_of(endpoint)), str(count), (SIGNATURE + b"\x03\0CURVE").hex()]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def is_there(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return await asyncio.to_thread(process.stdout.readline) == b"there\n"


async def beats(link: Wire) -> bool:
    """Whether the controller still hears a node that it knows."""
    await link.say(node_wire.Heartbeat(node="n1", incarnation="first", at=1.0))
    return isinstance(await link.hear(), node_wire.HeartbeatSeen)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@needs_root
@pytest.mark.slow
def test_thousands_of_half_open_links_stop_nobody_and_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_socket, "HANDSHAKE_MS", 3000)

    async def scenario() -> None:
        async with shared_running() as shared:
            keys = await shared.enrolled()
            _, link = await shared.member("n1")
            before = descriptors()
            with crowd(shared.nodes, MANY) as one, crowd(shared.clients, MANY) as other:
                assert await is_there(one)
                assert await is_there(other)
                assert await beats(link)
                assert await remotely(shared.laptop(keys), wire.Ping()) == wire.Done()
                assert await shared.ask(wire.Ping()) == wire.Done()
                await shared.member("n2")
                await until(lambda: descriptors() < before + 100, within_s=20)
                assert await beats(link)
            [told] = await shared.audit("TooManyLinks")
            assert told.origin == "127.0.0.1"

    asyncio.run(scenario())


@needs_root
@pytest.mark.slow
def test_a_door_with_too_many_links_takes_no_more_and_keeps_those_it_has(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_socket, "HANDSHAKE_MS", 60_000)
    monkeypatch.setattr(auth, "BACKLOG", 16)
    monkeypatch.setattr(listeners, "links_per_listener", lambda descriptors, count, backlog: 100)
    monkeypatch.setattr(listeners, "SHARE_OF_HOST", 1)

    async def scenario() -> None:
        async with shared_running() as shared:
            keys = await shared.enrolled()
            _, link = await shared.member("n1")
            before = descriptors()
            with crowd(shared.nodes, 400) as strangers:
                await until(lambda: "accepts no more" in caplog.text)
                assert descriptors() < before + 250, "libzmq has not accepted them all"
                assert await beats(link)
                assert await remotely(shared.laptop(keys), wire.Ping()) == wire.Done(), "the other door is open"
                strangers.kill()
            await until(lambda: descriptors() < before + 20, within_s=30)
            await shared.member("n2")
            assert await beats(link)

    asyncio.run(scenario())


@needs_root
def test_a_user_of_this_host_who_opens_links_without_end_takes_none_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "links_per_user", lambda descriptors: 50)

    async def scenario() -> None:
        async with shared_running() as shared:
            before = descriptors()

            def crowd_in() -> str:
                links = [socket.socket(socket.AF_UNIX) for _ in range(300)]
                for link in links:
                    link.settimeout(5)
                    with contextlib.suppress(OSError):  # also once the kernel keeps this user out
                        link.connect(shared.rig.location.client_socket)
                        link.sendall(greeting(b"NULL")[:10])
                alive = 0
                for link in links:
                    with contextlib.suppress(OSError):
                        alive += bool(link.recv(1))
                return f"{len(links)} {alive}"

            held = await as_uid(USER.pw_uid, USER.pw_gid, crowd_in)
            assert held.startswith("300")
            await until(lambda: descriptors() < before + 20, within_s=20)
            [told] = await shared.audit("TooManyLinks")
            assert (told.origin, told.uid) == ("local", USER.pw_uid)
            assert await shared.counter("links_cut") > 0
            assert await shared.ask(wire.Ping()) == wire.Done()

    asyncio.run(scenario())


@needs_root
def test_a_link_that_drips_is_hung_up_on_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_socket, "HANDSHAKE_MS", 1000)

    async def scenario() -> None:
        async with shared_running() as shared:
            _, link = await shared.member("n1")
            for endpoint in (shared.nodes, shared.clients):
                lived_s = await asyncio.to_thread(drip, port_of(endpoint))
                assert lived_s < 5
            assert await beats(link)

    asyncio.run(scenario())


def drip(port: int) -> float:
    """Say a greeting a byte at a time; how long that is listened to."""
    greeting = SIGNATURE + b"\x03\0CURVE" + bytes(47) + b"\x04\xc8\x05HELLO" + bytes(194)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link, contextlib.suppress(OSError):
        for byte in greeting * 100:
            link.sendall(bytes([byte]))
            link.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                if not link.recv(4096):
                    break
    return time.monotonic() - began


# ── downgrades ────────────────────────────────────────────────────────────────────────────────────────────────


def hears(port: int, said: bytes) -> bytes:
    """All that the door says to these bytes until it hangs up."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as link, contextlib.suppress(ConnectionError):
        link.sendall(said)
        while data := link.recv(4096):
            heard += data
    return heard


def until_hung_up_on(link: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while link.recv(4096):
            pass


def greeting(mechanism: bytes, as_server: bool = False) -> bytes:
    return SIGNATURE + b"\x03\0" + mechanism.ljust(20, b"\0") + bytes([as_server]) + bytes(31)


DOWNGRADES = {
    "no security": greeting(b"NULL") + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06DEALER" + b"\0\x05hello",
    "a password": greeting(b"PLAIN") + b"\x04\x0c\x05HELLO\x01a\x01b",
    "two servers": greeting(b"CURVE", as_server=True) + b"\x04\x06\x05READY",
    "an old protocol": b"\x01\0\x05hello",
    "version two": SIGNATURE + b"\x01\x05\0\0\0\x05hello",
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "curve without a hello": greeting(b"CURVE") + b"\x04\x06\x05READY" + b"\0\x05hello",
    "noise": bytes(range(256)) * 4,
}


@needs_root
@pytest.mark.parametrize("what", DOWNGRADES)
def test_a_peer_that_speaks_no_curve_is_hung_up_on_and_brings_nothing_in(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_socket, "HANDSHAKE_MS", 1000)

    async def scenario() -> None:
        async with shared_running() as shared:
            for endpoint in (shared.nodes, shared.clients):
                heard = await asyncio.to_thread(hears, port_of(endpoint), DOWNGRADES[what])
                assert b"READY" not in heard, "no link was made"
            counters = await shared.rig.counters()
            assert counters["hellos"] == counters["malformed"] == 0
            assert counters["requests"] == 1, "the one that asked for the counters"

    asyncio.run(scenario())


@needs_root
def test_a_peer_without_security_is_in_the_audit_trail_with_its_address() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", port_of(shared.nodes)), timeout=15) as link:
                    assert await asyncio.to_thread(link.recv, 64), "the door greets"
                    await shared.ask(wire.Ping())  # it has looked at the link by then
                    link.sendall(DOWNGRADES["no security"])
                    await asyncio.to_thread(until_hung_up_on, link)
            [told] = await shared.audit("NoHandshake")
            assert (told.origin, told.detail) == ("127.0.0.1", NO_CURVE)

    asyncio.run(scenario())


@needs_root
@pytest.mark.parametrize("mechanism", ["null", "plain"])
def test_libzmqs_own_peers_without_curve_get_no_link(mechanism: str) -> None:
    async def scenario() -> None:
        async with shared_running() as shared:

            def prepare(dealer: zmq.asyncio.Socket) -> None:
                if mechanism == "plain":
                    dealer.plain_username, dealer.plain_password = b"root", b"root"

            link = shared.rig.dial(shared.nodes, prepare)
            await link.say(hello("n1"))
            await shared.until_counted("links_unproven")
            assert await link.is_silent()
            assert await shared.counter("hellos") == 0

    asyncio.run(scenario())


class Recorder:
    """A tcp proxy that keeps what went through it, to say it again."""

    def __init__(self) -> None:
        self.said = b""

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keeps: bool) -> None:
        while data := await reader.read(65536):
            self.said += data if keeps else b""
            writer.write(data)


@contextlib.asynccontextmanager
async def recording(endpoint: str) -> AsyncIterator[tuple[Recorder, str]]:
    recorder = Recorder()
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def on_link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port_of(endpoint))
        writers.extend((writer, back))
        tasks.append(asyncio.create_task(recorder.pass_on(reader, back, keeps=True)))
        tasks.append(asyncio.create_task(recorder.pass_on(there, writer, keeps=False)))

    server = await asyncio.start_server(on_link, "127.0.0.1", 0)
    try:
        yield recorder, f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for writer in writers:
            writer.close()


@needs_root
def test_a_recorded_link_of_a_node_played_again_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_socket, "HANDSHAKE_MS", 1000)

    async def scenario() -> None:
        async with shared_running() as shared:
            keys, _ = await shared.member("n1")
            async with recording(shared.nodes) as (recorder, endpoint):
                link = shared.dial(keys, endpoint)
                await link.say(hello("n1", inventory=Inventory(cpus=3, memory_mib=4096)))
                assert isinstance(await link.hear(), node_wire.Welcome)
                before = await shared.counter("hellos")
                assert len(recorder.said) > 300
                await asyncio.to_thread(hears, port_of(shared.nodes), recorder.said)
                assert await shared.counter("hellos") == before
                assert await beats(link)

    asyncio.run(scenario())


# ── the bound ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_doors_leave_descriptors_for_others() -> None:
    for most in (4096, 20_000, 2**20):
        assert 2 * (links_per_listener(most, 2, 512) + 512) <= max(most // 2, 2048)
    assert links_per_listener(-1, 2, 512) == links_per_listener(10**9, 2, 512)
    assert links_per_listener(100, 2, 512) > 0, "a door always opens"
    assert links_per_user(20_000) == 1250
    assert links_per_user(-1) == links_per_user(2**40)


def test_a_watched_socket_counts_its_links() -> None:
    async def scenario() -> None:
        told: list[tuple[str, str]] = []
        crowds: list[str] = []
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            links = Links(
                context,
                router,
                FEW,
                asyncio.get_running_loop(),
                LOG,
                lambda host, how: told.append((host, how)),
                crowds.append,
            )
            port = router.bind_to_random_port("tcp://127.0.0.1")
            one, two = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
            await until(lambda: links.count == 2)
            one.close()
            await until(lambda: links.count == 1)
            two.close()
            await until(lambda: links.count == 0)
            many = [socket.create_connection(("127.0.0.1", port)) for _ in range(FEW.peer + 3)]
            await until(lambda: len(crowds) == 3)
            await until(lambda: links.count == FEW.peer)
            for link in many:
                link.close()
            await until(lambda: links.count == 0)
            assert not links._of_peer, "it forgets who has gone"
            links.close()
        assert told == [("127.0.0.1", NO_PROOF)], "once in a while"

    asyncio.run(scenario())


def test_watching_links_leaves_no_descriptor_behind() -> None:
    def once() -> None:
        async def scenario() -> None:
            with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
                links = Links(
                    context, router, FEW, asyncio.get_running_loop(), LOG, lambda host, how: None, lambda host: None
                )
                router.bind_to_random_port("tcp://127.0.0.1")
                await until(lambda: links._listener)
                links.close()

        asyncio.run(scenario())

    once()
    before = descriptors()
    once()
    assert descriptors() == before
