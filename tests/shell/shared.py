"""A shared cluster's shell in this process, with both tcp doors, and strangers of several kinds.

The machine's own user database is read, never written: `root` is the administrator, and an account that every
machine has is the ordinary user.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import zmq.asyncio

from gq.config.config import AccessSettings, Config, ControllerSettings
from gq.connection.client import Client
from gq.connection.curve import KeyPair, fresh_keys, make_keys, server_key_path, server_public_path
from gq.connection.locate import Location
from gq.errors import GqError, Refusal
from gq.model.audit import AuditEntry
from gq.model.policy_tables import Timers
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire.codec import WIRE_VERSION
from tests.shell.rig import PATIENCE_S, Rig, Wire, hello, running, short_directory
from tests.shell.test_curve import free_port

USER = pwd.getpwnam("nobody")
"""Ordinary, and there on every machine."""


class SharedRig:
    """`server`: the controller's key."""

    def __init__(self, rig: Rig, nodes: str, clients: str, server: KeyPair) -> None:
        self.rig = rig
        self.nodes = nodes
        self.clients = clients
        self.server = server

    def dial(self, keys: KeyPair, endpoint: str = "") -> Wire:
        """To the door for nodes, if no other is named."""

        def prepare(dealer: zmq.asyncio.Socket) -> None:
            dealer.curve_publickey, dealer.curve_secretkey = keys
            dealer.curve_serverkey = self.server.public

        return self.rig.dial(endpoint or self.nodes, prepare)

    async def ask(self, body: wire.RequestBody) -> wire.ReplyBody:
        """As root, on the controller's host."""
        return await self.rig.ask(body)

    async def counter(self, name: str) -> int:
        return (await self.rig.counters())[name]

    async def until_counted(self, name: str, least: int = 1) -> None:
        async def wait() -> None:
            while await self.counter(name) < least:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), PATIENCE_S)

    async def audit(self, action: str) -> list[AuditEntry]:
        """The lines of the trail about this, once there are some."""
        for _ in range(500):
            answer = await self.ask(wire.QueryAudit(action=action))
            assert isinstance(answer, wire.AuditTrail)
            if answer.entries:
                return list(answer.entries)
            await asyncio.sleep(0.01)
        raise AssertionError(f"the audit trail says nothing of {action}")

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def token(self, **fields: object) -> KeyPair:
        keys = fresh_keys()
        body = wire.CreateToken(public=keys.public.decode(), **fields)  # type: ignore[arg-type]
        assert isinstance(await self.ask(body), wire.TokenCreated)
        return keys

    async def join(self, token: KeyPair, node: str, keys: KeyPair | None = None) -> tuple[KeyPair, Wire]:
        """Say `Join` with a token; the answer is on the wire."""
        mine = keys or fresh_keys()
        link = self.dial(token)
        await link.say(node_wire.Join(node=node, public_key=mine.public.decode(), version=WIRE_VERSION))
        return mine, link

    async def member(self, node: str = "n1", is_login: bool = False) -> tuple[KeyPair, Wire]:
        """A node that has joined and is welcome."""
        keys, joining = await self.join(await self.token(is_login=is_login), node)
        assert isinstance(await joining.hear(), node_wire.Joined)
        joining.socket.close(linger=0)
        link = self.dial(keys)
        await link.say(hello(node, is_relay=is_login))
        assert isinstance(await link.hear(), node_wire.Welcome)
        return keys, link

    async def enrolled(self, user: str = USER.pw_name) -> KeyPair:
        """The keys of a user, which root enrolled."""
        keys = fresh_keys()
        assert isinstance(await self.ask(wire.AddKey(public=keys.public.decode(), user=user)), wire.Done)
        return keys

    def laptop(self, keys: KeyPair, controller: str = "", server_key: bytes = b"") -> Location:
        """The location of a machine outside the cluster, as its gq.toml says."""
        home = Path(self.rig.location.state_dir, f"laptop-{keys.public[:6].hex()}")
        home.mkdir(mode=0o700, exist_ok=True)
        key_file = home / "key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(keys.secret)
        (home / "gq.toml").write_text(
            f'[client]\ncontroller = "{controller or self.clients}"\n'
            f'server_key = "{(server_key or self.server.public).decode()}"\nkey_file = "{key_file}"\n'
        )
        return Location(str(home / "gq.toml"), str(home), str(home), is_private=False, is_remote=True)


def shared_config(nodes: str, clients: str, munge_socket: str = "", **access: object) -> Config:
    return Config(
        path="gq.toml",
        controller=ControllerSettings(
            listen=nodes, listen_clients=clients, munge=bool(munge_socket), munge_socket=munge_socket
        ),
        access=AccessSettings(**access),  # type: ignore[arg-type]
        timers=Timers(tick_s=0.05),
    )


@asynccontextmanager
async def shared_running(munge_socket: str = "", **access: object) -> AsyncIterator[SharedRig]:
    """`munge_socket`: where MUNGE vouches for users."""
    with short_directory() as directory:
        keys = f"{directory}/keys"
        server = make_keys(server_key_path(keys), server_public_path(keys))
        nodes, clients = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        async with running(
            shared_config(nodes, clients, munge_socket, **access), directory=directory, is_shared=True
        ) as rig:
            yield SharedRig(rig, nodes, clients, server)


async def remotely(location: Location, body: wire.RequestBody, timeout_s: float = PATIENCE_S) -> wire.ReplyBody:
    """The answer that a command gets on a machine outside the cluster."""

    def ask() -> wire.ReplyBody:
        with Client(location, timeout_s=timeout_s) as client:
            return client.ask(body)

    return await asyncio.to_thread(ask)


async def as_uid(uid: int, gid: int, action: Callable[[], str]) -> str:
    """What `action` says in a child process of this user; of an error, its code."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            try:
                said = action()
            except GqError as error:
                said = error.code
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    await asyncio.to_thread(os.waitpid, child, 0)
    with os.fdopen(read) as told:
        return told.read()


def refusal_of(reply: wire.Reply) -> Refusal:
    assert isinstance(reply.body, wire.Refused), reply.body
    return Refusal(reply.body.code, reply.body.message, reply.body.hint)
