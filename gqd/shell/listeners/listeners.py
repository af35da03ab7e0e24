"""All listeners of a controller: their sockets, the peers that each admits, and their closing.

clients         ipc, for users of this host
nodes           ipc, for node daemons of this host
remote-nodes    tcp, for node keys and tokens
remote-clients  tcp, for users' keys, and with MUNGE for keys that it vouches for
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import zmq

from gq.config.config import Config
from gq.connection.curve import read_keys, server_key_path
from gq.connection.input_queue import MAX_WAITING
from gq.connection.link_bounds import NO_WORD, SHARE_OF_HOST, Bounds, Links, Unproven, links_per_listener, local_bounds
from gq.connection.locate import Location
from gq.connection.loop_socket import LoopSocket, Receive, bind_ipc, router
from gq.connection.memory_guard import OF_USER, MemoryGuard
from gq.errors import Refusal
from gq.host.fd_limit import raise_descriptor_limit
from gq.wire.codec import MAX_MESSAGE_BYTES
from gq.wire.node import MAX_NODE_MESSAGE_BYTES
from gqd.shell.inbox import Inbox
from gqd.shell.listeners.auth import BACKLOG, CLIENT_DOMAIN, NODE_DOMAIN, NOT_KNOWN, KeyCheck, guard
from gqd.shell.listeners.clients import ClientListener, RequestHandler, enrolled_caller, local_caller
from gqd.shell.listeners.keys import KeyRing
from gqd.shell.listeners.nodes import NodeListener
from gqd.shell.listeners.rejections import Rejections
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.log import LOG
from gqd.shell.metrics import Counters
from gqd.state.input import ClientRequest

if TYPE_CHECKING:
    from gqd.shell.listeners.guest_listener import GuestListener
    from gqd.shell.listeners.munge_auth import MungeAuth

CLIENTS = "clients"
NODES = "nodes"
REMOTE_NODES = "remote-nodes"
REMOTE_CLIENTS = "remote-clients"
ENVELOPE_BYTES = 4096
"""Bytes by which a message may exceed its request.  Each unknown peer can make a tcp listener read one message."""
TCP_LISTENERS = 2
MAX_GUESTS = 4096
"""Links that are not introduced yet; `gq.connection.memory_guard` bounds the memory of all links."""
INTRODUCE_S = 15.0
"""Time within which a link must be introduced."""
NO_ROOM = "its key is not known, and too many unknown keys are not introduced yet"
MAX_WAITING_OF_NODE = 65_536
"""Unhandled messages of a node, which relays for all users of its host."""
LINGER_S = 0.5
"""Time for the last replies to leave at the end."""


class Listeners:
    """The listeners of a controller, `opened` by name.  `enter` receives clients' requests, the inbox other inputs."""

    def __init__(
        self,
        location: Location,
        config: Config,
        inbox: Inbox,
        counters: Counters,
        users: UserDirectory,
        ring: KeyRing,
        enter: Callable[[ClientRequest, dict[str, bytes]], None],
    ) -> None:
        self.opened: dict[str, LoopSocket] = {}
        self._location = location
        self._config = config
        self._inbox = inbox
        self._counters = counters
        self._users = users
        self._ring = ring
        self._rejections = Rejections(inbox, counters)
        self._handler = RequestHandler(users, config.limits, enter, counters, self._rejections)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._key_check: KeyCheck | None = None
        self._guest_listener: GuestListener | None = None
        """None: MUNGE is not used."""
        self._links: dict[zmq.Socket[bytes], Links] = {}
        self._memory_guard: MemoryGuard | None = None

    def open(self) -> None:
        """Open all listeners, those for nodes first, so that clients find a controller with links to its nodes."""
        self._open_local_nodes()
        settings = self._config.controller
        if settings.listen is not None:
            self._open_remote_nodes(settings.listen)
        if settings.listen_clients is not None:
            self._open_remote_clients(settings.listen_clients)
        self._open_clients()
        if self._users.is_shared:
            self._memory_guard = MemoryGuard(self._endpoints(), asyncio.get_running_loop().call_later, self._on_greedy)

    def poll_soon(self) -> None:
        """Read the listeners again, when there is room in the inbox."""
        for listener in self.opened.values():
            listener.poll_soon()

    def close(self) -> None:
        if self._memory_guard is not None:
            self._memory_guard.close()
        if self._guest_listener is not None:
            self._guest_listener.close()
        for links in self._links.values():
            links.close()
        for listener in self.opened.values():
            listener.close(LINGER_S)
        if self._key_check is not None:
            self._key_check.close()
        self._context.term()

    # ── ipc ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_clients(self) -> None:
        socket = router(self._context, MAX_MESSAGE_BYTES)
        if self._users.is_shared:
            bounds = local_bounds(raise_descriptor_limit())
            self._watch(
                socket, bounds, on_unproven=lambda user, how: None
            )  # a command that only tests whether a controller runs
        bind_ipc(socket, self._location.client_endpoint, self._users.is_shared)
        clients = ClientListener(self._handler, self._counters, partial(local_caller, self._users))
        clients.listener = self._add_listener(CLIENTS, socket, clients.receive)

    def _open_local_nodes(self) -> None:
        socket = router(self._context, MAX_NODE_MESSAGE_BYTES)
        bind_ipc(socket, self._location.node_endpoint)
        nodes = self._new_node_listener()
        nodes.listener = self._add_listener(NODES, socket, nodes.receive_local)

    # ── tcp ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_remote_nodes(self, endpoint: str) -> None:
        socket = self._listen(endpoint, "listen", NODE_DOMAIN, MAX_MESSAGE_BYTES)
        nodes = self._new_node_listener()
        nodes.listener = self._add_listener(REMOTE_NODES, socket, partial(nodes.receive_proven, ring=self._ring))

    def _open_remote_clients(self, endpoint: str) -> None:
        introductions = (
            self._new_munge_auth() if self._config.controller.munge else None
        )  # may raise `Refusal`, so before the listener opens
        socket = self._listen(endpoint, "listen_clients", CLIENT_DOMAIN, self._config.limits.message_bytes)
        clients = ClientListener(self._handler, self._counters, partial(enrolled_caller, self._users, self._ring))
        if introductions is not None:
            self._guest_listener = self._new_guest_listener(clients, self._links[socket], introductions)
            receive = self._guest_listener.receive
            self._guest_listener.listener = clients.listener = self._add_listener(
                REMOTE_CLIENTS, socket, receive, notes=False
            )
        else:
            clients.listener = self._add_listener(REMOTE_CLIENTS, socket, clients.receive)

    def _new_munge_auth(self) -> MungeAuth:
        from gqd.shell.listeners.munge_auth import MungeAuth  # imported only if MUNGE is used

        return MungeAuth(self._users, self._config.controller.munge_socket)

    def _new_guest_listener(self, clients: ClientListener, links: Links, introductions: MungeAuth) -> GuestListener:
        from gqd.shell.listeners.guest_listener import GuestListener  # imported only if MUNGE is used

        return GuestListener(
            clients, self._handler, self._users, self._ring, links, introductions, self._counters, self._rejections
        )

    def _why_no_guest(self, domain: bytes) -> str:
        if domain != CLIENT_DOMAIN or not self._config.controller.munge:
            return NOT_KNOWN
        strangers = sum(links.silent_count for links in self._links.values() if links.has_proof_limit)
        return "" if strangers <= self._max_guests() else NO_ROOM

    def _max_guests(self) -> int:
        return min(MAX_GUESTS, links_per_listener(raise_descriptor_limit(), TCP_LISTENERS, BACKLOG) // 2)

    def _bounds(self, domain: bytes) -> Bounds:
        most = links_per_listener(raise_descriptor_limit(), TCP_LISTENERS, BACKLOG)
        of_host = max(1, most // SHARE_OF_HOST)
        if domain != CLIENT_DOMAIN or not self._config.controller.munge:
            return Bounds(most, of_host)
        return Bounds(most, of_host, silent=self._max_guests() // SHARE_OF_HOST, proof_s=INTRODUCE_S)

    def _listen(self, endpoint: str, setting: str, domain: bytes, message_bytes: int) -> zmq.Socket[bytes]:
        keys = read_keys(server_key_path(self._location.keys_dir))
        if self._key_check is None:
            self._key_check = KeyCheck(self._context, self._ring.holder, self._on_refused_key, self._why_no_guest)
        socket = router(self._context, message_bytes + ENVELOPE_BYTES)
        guard(socket, keys, domain)
        self._watch(socket, self._bounds(domain), self._on_unproven)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            socket.close(linger=0)
            raise Refusal(
                "cannot_listen", f"cannot listen on {endpoint}: {error}", f"see [controller] {setting}"
            ) from error
        return socket

    def _endpoints(self) -> list[str]:
        settings = self._config.controller
        remote = [one for one in (settings.listen, settings.listen_clients) if one is not None]
        return [self._location.client_endpoint, self._location.node_endpoint, *remote]

    # ── parts of all listeners ────────────────────────────────────────────────────────────────────────────────────

    def _watch(self, socket: zmq.Socket[bytes], bounds: Bounds, on_unproven: Unproven) -> None:
        loop = asyncio.get_running_loop()
        self._links[socket] = Links(self._context, socket, bounds, loop, LOG, on_unproven, self._on_crowd)

    def _new_node_listener(self) -> NodeListener:
        return NodeListener(self._users, self._handler, self._inbox, self._counters, self._rejections)

    def _add_listener(self, name: str, socket: zmq.Socket[bytes], receive: Receive, notes: bool = True) -> LoopSocket:
        """Make and register a listener; `notes`: any message of a link counts as its proof of identity."""
        listener = LoopSocket(
            socket,
            asyncio.get_running_loop(),
            receive,
            self._on_flood,
            name=name,
            links=self._links.get(socket) if notes else None,
            has_room=self._inbox.has_room,
            on_malformed=self._count_malformed,
            max_waiting=MAX_WAITING_OF_NODE if name in (NODES, REMOTE_NODES) else MAX_WAITING,
        )
        self.opened[name] = listener
        return listener

    def _count_malformed(self) -> None:
        self._counters.malformed += 1

    def _on_refused_key(self, address: str, why: str) -> None:
        self._counters.handshakes_refused += 1
        for links in self._links.values():
            links.record_rejection(address)
        self._rejections.record("HandshakeRefused", address, why)

    def _on_unproven(self, address: str, how: str) -> None:
        self._counters.links_unproven += 1
        self._rejections.record("NoIntroduction" if how == NO_WORD else "NoHandshake", address, how)

    def _on_crowd(self, peer: str) -> None:
        """Record that links of a peer were cut; `peer` as `Links` names it: an address, or ``uid 1000``."""
        self._counters.links_cut += 1
        self._record_peer("TooManyLinks", peer, "it had too many links at once; the excess links were closed")

    def _on_greedy(self, peer: str, size: int) -> None:
        """Record that a peer's link was cut for an endless message; `peer` as in `_on_crowd`."""
        self._counters.links_cut += 1
        detail = f"it sent {size >> 20} MiB of an unfinished message and was disconnected"
        self._record_peer("TooMuchAtOnce", peer, detail)

    def _on_flood(self, peer: str) -> None:
        """Record that a peer's link was cut for too many messages; `peer` as in `_on_crowd`."""
        self._counters.links_cut += 1
        self._record_peer("TooMuchAtOnce", peer, "it sent more than can be handled and was disconnected")

    def _record_peer(self, action: str, peer: str, detail: str) -> None:
        uid = int(peer.removeprefix(OF_USER)) if peer.startswith(OF_USER) else None
        self._rejections.record(action, peer if uid is None else "local", detail, uid=uid)
