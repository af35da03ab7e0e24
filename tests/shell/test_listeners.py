"""What comes through the doors from outside: noise, strangers, other versions, what is too large."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import msgspec
import pytest

from gq.config.config import Config, LimitSettings
from gq.connection.client import Client
from gq.errors import GqError, Refusal
from gq.model.ids import RequestId
from gq.model.resource import ResourceRequest
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire.codec import WIRE_VERSION
from tests.requires import needs_root
from tests.shell.rig import Rig, Wire, hello, job, running, until


def noise(seed: int) -> list[tuple[bytes, ...]]:
    """Random bytes, truncated messages and wrong numbers of frames."""
    dice = random.Random(seed)
    good = wire.request(RequestId(b"r" * 16), wire.Ping())
    return [
        *((dice.randbytes(dice.randrange(1, 400)),) for _ in range(60)),
        (b"",),
        (good[:-3],),
        (wire.request(RequestId(b"short"), wire.Ping()),),
        (b"", good),
        (good, good, good),
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("door", ["clients", "nodes"])
def test_noise_on_a_door_is_dropped_and_counted_and_nothing_else_changes(door: str, seed: int) -> None:
    async def scenario() -> None:
        async with running() as rig:
            noisy = rig.client_wire() if door == "clients" else rig.node_wire()
            sent = noise(seed)
            for frames in sent:
                await noisy.send(*frames)
            counters = await rig.counters()
            while counters["malformed"] + counters["refused_at_door"] < len(sent):
                counters = await rig.counters()
            assert counters["malformed"] + counters["refused_at_door"] == len(sent)
            others = counters["inputs"] - counters["requests"] - counters["incidents"]
            assert others <= counters["turns"], "only ticks beside the questions, and one word for the audit trail"
            assert counters["incidents"] <= 2
            assert await rig.ask(wire.ListJobs()) == wire.Jobs(jobs=())

    asyncio.run(scenario())


async def refusal(client: Wire, data: bytes) -> wire.Refused:
    await client.send(data)
    body = (await client.reply()).body
    assert isinstance(body, wire.Refused)
    return body


def test_an_unknown_request_is_refused_by_its_head_alone() -> None:
    async def scenario() -> None:
        async with running() as rig:
            client = rig.client_wire()
            newer = msgspec.msgpack.encode([WIRE_VERSION, b"r" * 16, {"type": "TeleportJob", "where": "moon"}])
            await client.send(newer)
            reply = await client.reply()
            assert reply.request_id == b"r" * 16
            assert isinstance(reply.body, wire.Refused)
            assert reply.body.code == "unknown_request"
            assert "TeleportJob" in reply.body.message

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        job(time_limit_s=2**63),
        job(nice=-(2**63)),
        job(umask=-1),
        job(resources=ResourceRequest(mem_per_node_mib=-1)),
        wire.UpdateJob(job_id=1, time_limit_s=2**63),
        wire.CancelJobs(filter=wire.JobFilter(job_ids=(1,)), signum=2**40),
        wire.EndInteractive(job_id=1, exit_code=2**63),
    ],
    ids=lambda body: type(body).__name__,
)
def test_numbers_that_no_database_holds_and_no_job_can_have_are_refused_at_the_door(body: wire.RequestBody) -> None:
    async def scenario() -> None:
        async with running() as rig:
            refused = await refusal(rig.client_wire(), wire.request(RequestId(b"r" * 16), body))
            assert refused.code == "unknown_request"
            assert await rig.ask(wire.ListJobs()) == wire.Jobs(jobs=())

    asyncio.run(scenario())


def test_another_version_of_the_protocol_is_refused_in_plain_words() -> None:
    async def scenario() -> None:
        async with running() as rig:
            data = wire.REQUESTS.encode(wire.Request(99, RequestId(b"r" * 16), wire.Ping()))
            refused = await refusal(rig.client_wire(), data)
            assert refused.code == "wrong_version"
            assert "99" in refused.message

    asyncio.run(scenario())


def test_what_is_too_large_is_refused_with_its_size_and_the_limit() -> None:
    async def scenario() -> None:
        limits = LimitSettings(message_bytes=5000, script_bytes=1000, environment_bytes=500)
        async with running(Config(path="gq.toml", limits=limits)) as rig:
            cases = {
                "too_large": wire.Submit(spec=job().spec, script=b"#" * 6000),
                "script_too_large": wire.Submit(spec=job().spec, script=b"#" * 1001),
                "environment_too_large": wire.Submit(spec=job().spec, environment={"A": "x" * 500}),
            }
            for code, body in cases.items():
                with pytest.raises(Refusal) as caught:
                    await rig.ask(body)
                assert caught.value.code == code
                assert any(str(limit) in caught.value.message for limit in (5000, 1000, 500))
            assert (await rig.counters())["refused_at_door"] == len(cases)

    asyncio.run(scenario())


def test_a_message_over_the_hard_limit_closes_only_that_connection() -> None:
    async def scenario() -> None:
        async with running() as rig:
            client = rig.client_wire()
            await client.send(b"x" * (9 * 1024 * 1024))
            assert await client.is_silent()
            assert await rig.ask(wire.Ping()) == wire.Done()

    asyncio.run(scenario())


def test_a_full_inbox_makes_the_peers_wait_and_loses_nothing() -> None:
    async def scenario() -> None:
        async with running(Config(path="gq.toml", limits=LimitSettings(inbox=4))) as rig:
            client = rig.client_wire()
            sent = {await client.request(job()) for _ in range(300)}
            answered = {(await client.reply()).request_id for _ in sent}
            assert answered == sent
            assert len(rig.store.load().jobs) == 300

    asyncio.run(scenario())


# ── who asks ──────────────────────────────────────────────────────────────────────────────────────────────────


def as_stranger(rig: Rig) -> int:
    """In a child of another uid: how a Ping ends there."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        os.setgid(65534)
        os.setuid(65534)
        with Client(rig.location, timeout_s=5) as client:
            client.ask(wire.Ping())
        status = 0
    except GqError as error:
        status = 10 if error.code == "not_served" and "uid 65534" in error.message else 11
        if "may not connect" in error.message:
            status = 12
    finally:
        os._exit(status)


async def stranger_status(rig: Rig) -> int:
    child = as_stranger(rig)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    return os.waitstatus_to_exitcode(status)


@needs_root
def test_another_user_is_refused_by_the_kernels_word_even_where_the_socket_is_open() -> None:
    async def scenario() -> None:
        async with running() as rig:
            assert await stranger_status(rig) == 12, "the directory is shut"
            for path, mode in ((rig.location.state_dir, 0o755), (rig.location.run_dir, 0o755)):
                Path(path).chmod(mode)
            assert await stranger_status(rig) == 12, "the socket is shut"
            Path(rig.location.client_socket).chmod(0o666)
            assert await stranger_status(rig) == 10, "the door asks the kernel"
            assert (await rig.counters())["not_served"] == 1

    asyncio.run(scenario())


def test_sockets_are_for_their_owner_only() -> None:
    async def scenario() -> None:
        async with running() as rig:
            for name in ("gqd.sock", "nodes.sock"):
                assert Path(rig.location.run_dir, name).stat().st_mode & 0o777 == 0o600

    asyncio.run(scenario())


def relay(uid: int, body: wire.RequestBody, relay_id: int = 7) -> node_wire.Relay:
    payload = wire.request(RequestId(b"r" * 16), body)
    return node_wire.Relay(
        node="n1", incarnation="first", relay_id=relay_id, uid=uid, gid=uid, user="whoever", payload=payload
    )


async def relayed(node: Wire) -> tuple[int, wire.Reply]:
    heard = await node.hear()
    assert isinstance(heard, node_wire.RelayReply)
    return heard.relay_id, wire.REPLIES.decode(heard.payload)


def test_a_relayed_request_is_answered_through_its_node() -> None:
    async def scenario() -> None:
        async with running() as rig:
            node = rig.node_wire()
            await node.say(relay(os.geteuid(), job(), relay_id=41))
            relay_id, reply = await relayed(node)
            assert (relay_id, reply) == (41, wire.Reply(WIRE_VERSION, RequestId(b"r" * 16), wire.Submitted(job_id=1)))
            [queued] = rig.store.load().jobs.values()
            assert queued.uid == os.geteuid()

    asyncio.run(scenario())


def test_a_relayed_stranger_is_refused_by_the_uid_that_the_node_vouches_for() -> None:
    async def scenario() -> None:
        async with running() as rig:
            node = rig.node_wire()
            await node.say(relay(os.geteuid() + 4321, job()))
            _, reply = await relayed(node)
            assert isinstance(reply.body, wire.Refused)
            assert reply.body.code == "not_served"
            assert not rig.store.load().jobs

    asyncio.run(scenario())


def test_a_node_of_another_version_is_told_so() -> None:
    async def scenario() -> None:
        async with running() as rig:
            node = rig.node_wire()
            await node.say(hello(version=99))
            heard = await node.hear()
            assert isinstance(heard, node_wire.Unwelcome)
            assert str(WIRE_VERSION) in heard.why

    asyncio.run(scenario())


def test_a_node_that_says_hello_is_welcome_and_gets_the_job_with_its_script_and_environment() -> None:
    async def scenario() -> None:
        async with running() as rig:
            node = rig.node_wire()
            await node.say(hello())
            welcome = await node.hear()
            assert isinstance(welcome, node_wire.Welcome)
            assert welcome.owner_uid == os.geteuid()
            body = wire.Submit(spec=job().spec, script=b"#!/bin/sh\nhi\n", environment={"B": "2", "A": "1"})
            await rig.ask(body)
            heard = await node.hear()
            assert isinstance(heard, node_wire.Orders)
            [order] = heard.orders
            assert isinstance(order, node_wire.Prepare)
            assert heard.blobs[order.launch.script_digest] == b"#!/bin/sh\nhi\n"
            environment = heard.blobs[order.launch.environment_digest]
            assert msgspec.msgpack.decode(environment, type=dict[str, str]) == {"A": "1", "B": "2"}

    asyncio.run(scenario())


def test_an_answer_to_a_client_that_has_gone_is_counted_and_harms_nobody() -> None:
    async def scenario() -> None:
        async with running() as rig:
            while not (await rig.counters())["replies_dropped"]:  # the door sees it go a moment later
                rig.store.hold()
                client = rig.client_wire()
                await client.request(job())
                await until(lambda: rig.store._waiting)
                client.socket.close(linger=0)
                rig.store.flush()
            assert rig.store.load().jobs

    asyncio.run(scenario())
