"""The doors of a shared cluster: every named user is served as who they are, and nobody as who they say they are."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import zmq.asyncio

from gq.connection.client import Client
from gq.connection.curve import fresh_keys, node_public_path
from gq.errors import Refusal, Unreachable
from gq.model.ids import RequestId
from gq.wire import client as wire
from gq.wire import node as node_wire
from gqd.shell.listeners.nodes import MAX_JOINS_PER_MINUTE
from tests.requires import needs_root
from tests.shell.rig import Wire, hello, job
from tests.shell.shared import USER, SharedRig, as_uid, refusal_of, remotely, shared_running

pytestmark = needs_root
NAMELESS_UID = 2**31 - 7


# ── users of the controller's host ────────────────────────────────────────────────────────────────────────────


def who_am_i(shared: SharedRig) -> str:
    with Client(shared.rig.location, timeout_s=5) as client:
        me = client.ask(wire.WhoAmI())
    assert isinstance(me, wire.Identity)
    return f"{me.user} {me.uid} {me.role} {me.origin}"


def test_every_user_with_a_name_is_served_as_who_the_kernel_says_and_others_are_not() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            found = await as_uid(USER.pw_uid, USER.pw_gid, lambda: who_am_i(shared))
            assert found == f"{USER.pw_name} {USER.pw_uid} user local"
            assert await as_uid(NAMELESS_UID, NAMELESS_UID, lambda: who_am_i(shared)) == "unknown_user"
            [told] = await shared.audit("UnknownUser")
            assert (told.uid, told.origin) == (NAMELESS_UID, "local")

    asyncio.run(scenario())


def test_sockets_and_directories_have_the_modes_of_a_shared_cluster() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            location = shared.rig.location
            modes = {
                name: Path(path).stat().st_mode & 0o777
                for name, path in {
                    "state": location.state_dir,
                    "run": location.run_dir,
                    "clients": location.client_socket,
                    "nodes": f"{location.run_dir}/nodes.sock",
                    "keys": location.keys_dir,
                }.items()
            }
            assert modes == {"state": 0o711, "run": 0o755, "clients": 0o666, "nodes": 0o600, "keys": 0o700}

    asyncio.run(scenario())


def test_an_ordinary_user_is_no_node_even_where_the_socket_is_open() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            Path(shared.rig.location.run_dir, "nodes.sock").chmod(0o666)

            def pretend() -> str:
                with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
                    dealer.linger = 1000
                    dealer.connect(shared.rig.location.node_endpoint)
                    dealer.send(node_wire.NODE_MESSAGES.encode(hello("n1")))
                    return "answered" if dealer.poll(300) else "silence"

            assert await as_uid(USER.pw_uid, USER.pw_gid, pretend) == "silence"
            [told] = await shared.audit("NotServed")
            assert told.uid == USER.pw_uid
            assert await shared.counter("hellos") == 0

    asyncio.run(scenario())


# ── nodes: tokens and keys ────────────────────────────────────────────────────────────────────────────────────


def test_a_host_joins_with_a_token_and_is_welcome_with_its_own_key() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            await shared.member("n1")
            [joined] = await shared.audit("Join")
            assert (joined.object, joined.origin, joined.outcome) == ("node n1", "127.0.0.1", "done")
            nodes = await shared.ask(wire.ListNodes())
            assert isinstance(nodes, wire.Nodes)
            assert [one.node for one in nodes.nodes] == ["n1"]

    asyncio.run(scenario())


def test_a_token_lets_one_host_in_and_that_one_again() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            token = await shared.token()
            keys, first = await shared.join(token, "n1")
            assert isinstance(await first.hear(), node_wire.Joined)
            _, again = await shared.join(token, "n1", keys)
            assert isinstance(await again.hear(), node_wire.Joined), "the answer may have been lost"
            stranger, other = await shared.join(token, "n2")
            assert isinstance(await other.hear(), node_wire.Unwelcome)
            [reused] = await shared.audit("TokenReused")
            assert reused.object == "node n2"
            refused = shared.dial(stranger)
            await refused.say(hello("n2"))
            await shared.until_counted("handshakes_refused")
            assert await refused.is_silent()

    asyncio.run(scenario())


def test_a_token_whose_time_is_over_opens_nothing_also_on_a_link_that_stands() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            token = await shared.token(ttl_s=1)
            standing = shared.dial(token)
            await standing.say(node_wire.Heartbeat(node="n1", incarnation="x", at=1.0))
            assert isinstance(await standing.hear(), node_wire.Unwelcome), "it is linked"

            async def keys_left() -> int:
                answer = await shared.ask(wire.ListKeys())
                assert isinstance(answer, wire.Keys)
                return len(answer.keys)

            while await keys_left():
                await asyncio.sleep(0.02)
            join = node_wire.Join(node="n1", public_key=fresh_keys().public.decode(), version=1)
            await standing.say(join)
            heard = await standing.hear()
            assert isinstance(heard, node_wire.Unwelcome)
            assert "no longer valid" in heard.why
            late = shared.dial(token)
            await late.say(join)
            await shared.until_counted("handshakes_refused")
            assert await late.is_silent()
            assert (await shared.audit("HandshakeRefused"))[0].origin == "127.0.0.1"
            assert await shared.counter("joins") == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "message",
    [hello("n1"), node_wire.Relay(node="n1", incarnation="x", relay_id=1, uid=0, gid=0, user="root", payload=b"x")],
    ids=lambda message: type(message).__name__,
)
def test_a_token_is_good_for_joining_only(message: node_wire.NodeMessage) -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            link = shared.dial(await shared.token())
            await link.say(message)
            assert isinstance(await link.hear(), node_wire.Unwelcome)
            [told] = await shared.audit("TokenMisused")
            assert type(message).__name__ in told.detail
            assert await shared.counter("hellos") == await shared.counter("joins") == 0

    asyncio.run(scenario())


def test_a_used_token_that_is_tried_again_and_again_does_not_fill_the_audit_trail() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            token = await shared.token()
            _, first = await shared.join(token, "n1")
            assert isinstance(await first.hear(), node_wire.Joined)
            link = shared.dial(token)
            for number in range(100):
                join = node_wire.Join(node=f"x{number}", public_key=fresh_keys().public.decode(), version=1)
                await link.say(join)
                assert isinstance(await link.hear(), node_wire.Unwelcome)
            assert len(await shared.audit("TokenReused")) < MAX_JOINS_PER_MINUTE
            await shared.member("n2")

    asyncio.run(scenario())


def test_a_removed_node_is_told_and_its_link_that_stands_is_dead_at_once() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            keys, link = await shared.member("n1")
            assert isinstance(await shared.ask(wire.RemoveNode(name="n1", reason="sold")), wire.Done)
            assert isinstance(await link.hear(), node_wire.Unwelcome)
            await link.say(hello("n1"))
            heard = await link.hear()
            assert isinstance(heard, node_wire.Unwelcome)
            assert "no longer valid" in heard.why
            [told] = await shared.audit("RevokedKey")
            assert told.origin == "127.0.0.1"
            again = shared.dial(keys)
            await again.say(hello("n1"))
            await shared.until_counted("handshakes_refused")
            nodes = await shared.ask(wire.ListNodes())
            assert nodes == wire.Nodes(nodes=())

    asyncio.run(scenario())


def test_removing_a_node_removes_the_key_that_was_pinned_by_hand() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            keys = fresh_keys()
            path = node_public_path(shared.rig.location.keys_dir, "n1")
            path.parent.mkdir(mode=0o700)
            path.write_bytes(keys.public)
            link = shared.dial(keys)
            await link.say(hello("n1"))
            assert isinstance(await link.hear(), node_wire.Welcome)
            await shared.ask(wire.RemoveNode(name="n1"))
            assert not path.exists()
            assert isinstance(await link.hear(), node_wire.Unwelcome)
            await link.say(hello("n1"))
            assert isinstance(await link.hear(), node_wire.Unwelcome)

    asyncio.run(scenario())


def test_a_node_that_speaks_for_another_is_turned_away_and_audited() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            await shared.member("n2")
            _, link = await shared.member("n1")
            await link.say(node_wire.Heartbeat(node="n2", incarnation="first", at=1.0))
            assert isinstance(await link.hear(), node_wire.Unwelcome)
            [told] = await shared.audit("Impostor")
            assert "n1" in told.detail
            assert "n2" in told.detail

    asyncio.run(scenario())


# ── users' keys ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_command_on_a_laptop_is_served_as_the_user_whose_key_it_has() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            keys = await shared.enrolled()
            me = await remotely(shared.laptop(keys), wire.WhoAmI())
            assert isinstance(me, wire.Identity)
            assert (me.user, me.uid, me.role) == (USER.pw_name, USER.pw_uid, "user")
            assert "key" in me.origin
            assert "127.0.0.1" in me.origin
            submitted = await remotely(shared.laptop(keys), job())
            assert submitted == wire.Submitted(job_id=1)
            [queued] = shared.rig.store.load().jobs.values()
            assert (queued.user, queued.uid) == (USER.pw_name, USER.pw_uid)

    asyncio.run(scenario())


def test_a_revoked_key_of_a_user_is_dead_on_the_link_that_stands_and_refused_on_the_next() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            keys = await shared.enrolled()
            location = shared.laptop(keys)
            with Client(location, timeout_s=10) as client:
                assert await asyncio.to_thread(client.ask, wire.Ping()) == wire.Done()
                await shared.ask(wire.RevokeKey(public=keys.public.decode()))
                with pytest.raises(Refusal) as caught:
                    await asyncio.to_thread(client.ask, wire.Ping())
                assert caught.value.code == "revoked_key"
            with pytest.raises(Refusal) as caught:
                await remotely(location, wire.Ping())
            assert caught.value.code == "key_refused"
            assert "gqctl key add" in caught.value.hint

    asyncio.run(scenario())


def test_each_key_opens_only_the_door_that_it_is_for() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            user_keys = await shared.enrolled()
            node_keys, _ = await shared.member("n1")
            token = await shared.token()
            pretender = shared.dial(user_keys)
            await pretender.say(hello("n1"))
            await shared.until_counted("handshakes_refused", 1)
            for number, keys in enumerate((node_keys, token), 2):
                client = shared.dial(keys, shared.clients)
                await client.request(wire.Ping())
                await shared.until_counted("handshakes_refused", number)
                assert await client.is_silent()
            assert await pretender.is_silent()
            details = [line.detail for line in await shared.audit("HandshakeRefused")]
            assert "is not valid on the listener nodes" in details[0]

    asyncio.run(scenario())


def test_nobody_listening_and_a_wrong_controller_are_told_apart() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            keys = await shared.enrolled()
            with pytest.raises(Unreachable, match="no controller listens"):
                await remotely(shared.laptop(keys, controller="tcp://127.0.0.1:1"), wire.Ping())
            with pytest.raises(Unreachable, match="does not have the server_key"):
                await remotely(shared.laptop(keys, server_key=fresh_keys().public), wire.Ping())

    asyncio.run(scenario())


def test_a_key_file_that_others_may_read_is_not_used() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            location = shared.laptop(await shared.enrolled())
            Path(location.state_dir, "key").chmod(0o644)
            with pytest.raises(Refusal) as caught:
                await remotely(location, wire.Ping())
            assert caught.value.code == "unsafe_key"

    asyncio.run(scenario())


def test_a_configuration_that_others_may_write_sends_nobody_anywhere() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            location = shared.laptop(await shared.enrolled())
            Path(location.config_path).chmod(0o666)
            with pytest.raises(Refusal) as caught:
                await remotely(location, wire.Ping())
            assert caught.value.code == "unsafe_config"

    asyncio.run(scenario())


# ── users of other hosts ──────────────────────────────────────────────────────────────────────────────────────


async def relayed(link: Wire, user: str, uid: int, body: wire.RequestBody, node: str = "n1") -> wire.Reply:
    payload = wire.request(RequestId(os.urandom(16)), body)
    await link.say(
        node_wire.Relay(node=node, incarnation="first", relay_id=5, uid=uid, gid=0, user=user, payload=payload)
    )
    heard = await link.hear()
    assert isinstance(heard, node_wire.RelayReply)
    return wire.REPLIES.decode(heard.payload)


def test_a_login_node_vouches_for_every_user_that_both_hosts_know_alike() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            _, link = await shared.member("n1", is_login=True)
            me = (await relayed(link, USER.pw_name, USER.pw_uid, wire.WhoAmI())).body
            assert isinstance(me, wire.Identity)
            assert (me.user, me.uid, me.origin) == (USER.pw_name, USER.pw_uid, "node n1")
            other_uid = refusal_of(await relayed(link, USER.pw_name, 4321, wire.WhoAmI()))
            assert other_uid.code == "identity_mismatch"
            assert "4321" in other_uid.message
            assert str(USER.pw_uid) in other_uid.message
            assert other_uid.hint
            unknown = refusal_of(await relayed(link, "no-such-user", USER.pw_uid, wire.WhoAmI()))
            assert unknown.code == "identity_mismatch"
            told = await shared.audit("IdentityMismatch")
            assert (told[0].origin, told[0].user, told[0].uid) == ("node n1", USER.pw_name, 4321)

    asyncio.run(scenario())


def test_a_compute_node_vouches_for_no_stranger() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            _, link = await shared.member("n1")
            for user, uid in ((USER.pw_name, USER.pw_uid), ("root", 0)):
                refused = refusal_of(await relayed(link, user, uid, wire.ListJobs()))
                assert refused.code == "not_vouched"

    asyncio.run(scenario())
