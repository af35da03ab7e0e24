"""One gqd, from its files to its last word: puts the parts together, opens the doors, and closes them in order.

Owns the process: signals, the pid file, the exit status.  The lock that keeps a second gqd out is the store's.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zmq

from gq.clock import Clock
from gq.config import Config
from gq.curve import read_keys, server_key_path
from gq.errors import GqError, Refusal
from gq.locate import Location, make_own_directory, make_run_dir
from gq.wire.codec import MAX_MESSAGE_BYTES
from gq.wire.node import MAX_NODE_MESSAGE_BYTES
from gqd.control.controller import Controller
from gqd.sched.planner import Planner
from gqd.shell.auth import KeyCheck, LocalPeers, guard
from gqd.shell.clients import ClientDoor, RequestDesk
from gqd.shell.door import Door, bind_ipc, router
from gqd.shell.history import HistoryDesk
from gqd.shell.inbox import Inbox
from gqd.shell.log import LOG
from gqd.shell.loop import Loop
from gqd.shell.metrics import Counters
from gqd.shell.nodes import NodeDoor
from gqd.shell.outgoing import Outgoing
from gqd.shell.planning import Planning
from gqd.shell.release import Releaser
from gqd.shell.settings import policy_of
from gqd.shell.turned_away import TurnedAway
from gqd.state.effect import Reply
from gqd.store.blobs import SqliteBlobStore
from gqd.store.protocol import BlobStore, Store
from gqd.store.sqlite import SqliteStore

CLIENTS = "clients"
NODES = "nodes"
REMOTE_NODES = "remote-nodes"
LINGER_S = 0.5
"""How long the last answers may take to leave."""


class Doors:
    """All front doors of one controller; `opened` by name."""

    def __init__(self, location: Location, config: Config, inbox: Inbox, counters: Counters, peers: LocalPeers) -> None:
        self.opened: dict[str, Door] = {}
        self._location = location
        self._config = config
        self._inbox = inbox
        self._counters = counters
        self._peers = peers
        self._desk = RequestDesk(peers, config.limits, inbox, counters)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._key_check: KeyCheck | None = None
        self._turned_away = TurnedAway()

    def open(self) -> None:
        """Nodes first: clients find a controller that can hear its nodes."""
        self._open_local_nodes()
        if self._config.controller.listen is not None:
            self._open_remote_nodes(self._config.controller.listen)
        self._open_clients()

    def look(self) -> None:
        """There is room in the inbox again."""
        for door in self.opened.values():
            door.look()

    def close(self) -> None:
        for door in self.opened.values():
            door.close(LINGER_S)
        if self._key_check is not None:
            self._key_check.close()
        self._context.term()

    def _open_clients(self) -> None:
        socket = router(self._context, MAX_MESSAGE_BYTES)
        bind_ipc(socket, self._location.client_endpoint)
        clients = ClientDoor(self._desk, self._counters)
        clients.door = self._door(CLIENTS, socket, clients)

    def _open_local_nodes(self) -> None:
        socket = router(self._context, MAX_NODE_MESSAGE_BYTES)
        bind_ipc(socket, self._location.node_endpoint)
        self._serve_nodes(NODES, socket, is_curve=False)

    def _open_remote_nodes(self, endpoint: str) -> None:
        keys = read_keys(server_key_path(self._location.keys_dir))
        self._key_check = KeyCheck(self._context, self._location.keys_dir, self._on_refused_key)
        socket = router(self._context, MAX_NODE_MESSAGE_BYTES)
        guard(socket, keys)
        socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise Refusal(
                "cannot_listen", f"cannot listen on {endpoint}: {error}", "see [controller] listen"
            ) from error
        self._serve_nodes(REMOTE_NODES, socket, is_curve=True)

    def _serve_nodes(self, name: str, socket: zmq.Socket[bytes], is_curve: bool) -> None:
        nodes = NodeDoor(is_curve, self._peers, self._desk, self._inbox, self._counters, self._turned_away)
        nodes.door = self._door(name, socket, nodes)

    def _door(self, name: str, socket: zmq.Socket[bytes], taker: ClientDoor | NodeDoor) -> Door:
        door = Door(name, socket, taker.receive, self._inbox.has_room, self._count_malformed)
        self.opened[name] = door
        return door

    def _count_malformed(self) -> None:
        self._counters.malformed += 1

    def _on_refused_key(self, address: str) -> None:
        self._counters.handshakes_refused += 1
        self._turned_away.say(f"a host at {address}", "its key is not in keys/nodes")


async def serve(location: Location, config: Config, store: Store, blobs: BlobStore) -> None:
    """Until SIGTERM or SIGINT.  Raises what ended it otherwise; then nothing is acknowledged any more."""
    clock = Clock()
    counters = Counters()
    owner_uid = os.geteuid()
    policy = policy_of(config, owner_uid)
    core = Controller(store.load(), policy)
    loop = Loop(core, Planning(core, Planner()), clock, policy.timers.tick_s, counters)
    with ExitStack() as stack:
        inbox = Inbox(config.limits.inbox, on_item=loop.wake, on_room=lambda: doors.look())
        doors = Doors(location, config, inbox, counters, LocalPeers(owner_uid))
        stack.callback(doors.close)
        history = HistoryDesk(store, policy.limits.page, lambda reply: _answer(releaser, doors, reply))
        stack.callback(history.close)
        releaser = Releaser(doors.opened, policy, counters, history.ask)
        outgoing = Outgoing(store, blobs, releaser.release, on_change=loop.wake)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, loop.stop)
        doors.open()
        stack.enter_context(_pid_file(Path(location.state_dir, "gqd.pid")))
        LOG.info("gqd serves", extra={"fields": {"cluster": config.cluster, "doors": location.run_dir}})
        await loop.run(inbox, blobs, outgoing)
        LOG.info("gqd ends", extra={"fields": {"cluster": config.cluster}})


def _answer(releaser: Releaser, doors: Doors, reply: Reply) -> None:
    releaser.reply(reply)
    doors.look()


def run(location: Location, config: Config) -> int:
    """The exit status: 0 after a signal, 1 after a failure, which has been logged."""
    try:
        make_own_directory(Path(location.state_dir))
        make_run_dir(location)
        with _stores(location) as (store, blobs):
            asyncio.run(serve(location, config, store, blobs))
    except GqError as error:
        LOG.critical("%s", error)
        return 1
    except Exception:
        LOG.critical("gqd ends, because it may not go on", exc_info=True)
        return 1
    return 0


@contextmanager
def _stores(location: Location) -> Iterator[tuple[SqliteStore, SqliteBlobStore]]:
    with ExitStack() as stack:
        store = SqliteStore(f"{location.state_dir}/gq.db")
        stack.callback(store.close)
        blobs = SqliteBlobStore(f"{location.state_dir}/blobs.db")
        stack.callback(blobs.close)
        yield store, blobs


@contextmanager
def _pid_file(path: Path) -> Iterator[None]:
    """Written in one step; taken away at a clean end."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(f"{os.getpid()}\n")
    fresh.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
