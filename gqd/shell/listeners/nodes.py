"""Messages of nodes: decodes them and establishes the sender, for inputs of the deciding code.

Owns the rule that a node speaks only for itself: over tcp its CURVE key identifies it, over ipc its uid must be the
controller's or root's.  The key is looked up for each message, so that a revoked key stops working at once; a token is
valid for one message, `Join`.  Relayed requests go to the `RequestHandler` like any other, with the user that the node
vouches for.
"""

from __future__ import annotations

import time

import zmq

from gq.connection.input_queue import credentials
from gq.connection.loop_socket import LoopSocket
from gq.errors import ProtocolError
from gq.model.key import KeyKind
from gq.wire import node as wire
from gq.wire.codec import OLDEST_WIRE_VERSION, WIRE_VERSION
from gqd.shell.inbox import Inbox
from gqd.shell.listeners.auth import address, proven_key
from gqd.shell.listeners.clients import Caller, RequestHandler
from gqd.shell.listeners.keys import KeyHolder, KeyRing
from gqd.shell.listeners.node_limits import why_unacceptable
from gqd.shell.listeners.rejections import Rejections
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.metrics import Counters
from gqd.state.input import NodeHeartbeat, NodeHello, NodeJoin, NodeReport, Route

RELAY_ID_BYTES = 8
MAX_JOIN_BYTES = 4096
"""Size of a `Join`, the only message that a token may send."""
MAX_JOINS_PER_MINUTE = 20
"""Tries with one token; each is an entry of the audit trail, which a used token could otherwise fill."""


def relay_route(listener: str, peer_id: bytes, relay_id: int) -> Route:
    """The route of the reply to a relayed request: the node's link, and the node's number of the request."""
    return f"relay:{listener}", relay_id.to_bytes(RELAY_ID_BYTES, "big", signed=True) + peer_id


def relay_target(route: Route) -> tuple[Route, int] | None:
    """The inverse of `relay_route`; None: the route is not of a relayed request."""
    kind, _, listener = route[0].partition(":")
    if kind != "relay":
        return None
    relay_id = int.from_bytes(route[1][:RELAY_ID_BYTES], "big", signed=True)
    return (listener, route[1][RELAY_ID_BYTES:]), relay_id


class NodeListener:
    """Handles messages of nodes, for the local listener and the remote one."""

    def __init__(
        self, users: UserDirectory, handler: RequestHandler, inbox: Inbox, counters: Counters, rejections: Rejections
    ) -> None:
        self._users = users
        self._handler = handler
        self._inbox = inbox
        self._counters = counters
        self._rejections = rejections
        self._joins: dict[str, int] = {}
        self._joins_since = 0.0
        self.listener: LoopSocket | None = None
        """Set once the socket is open; messages come only then."""

    def receive_local(self, peer_id: bytes, frame: zmq.Frame) -> None:
        """Handle a message over ipc, from any node of this host, by the uid of its daemon."""
        who = credentials(frame)
        if who is None or not self._users.may_be_node(who[0]):
            self._counters.not_served += 1
            uid = None if who is None else who[0]
            self._rejections.record("NotServed", "local", f"uid {uid} may not be a node of this cluster", uid=uid)
            return
        message = self._read(peer_id, frame, "local")
        if isinstance(message, wire.Join):
            self._turn_away(peer_id, "a node joins over tcp, with a token")
        elif message is not None:
            self._take(peer_id, message)

    def receive_proven(self, peer_id: bytes, frame: zmq.Frame, ring: KeyRing) -> None:
        """Handle a message over tcp, from the node or the token whose key the link proved."""
        public = proven_key(frame)
        found = ring.holder(public)
        if found is None or found.kind is KeyKind.USER:
            self._counters.impostors += 1
            self._rejections.record("RevokedKey", address(frame), f"its key {public[:8]} is no longer valid")
            self._turn_away(peer_id, "the key of this link is no longer valid")
        elif found.kind is KeyKind.JOIN:
            self._join(peer_id, frame, public)
        else:
            self._take_from(peer_id, frame, found, "" if found.is_file else public)

    def _take_from(self, peer_id: bytes, frame: zmq.Frame, sender: KeyHolder, key: str) -> None:
        message = self._read(peer_id, frame, f"node {sender.name}")
        if message is None:
            return
        if message.node != sender.name:
            self._counters.impostors += 1
            why = f"this key belongs to node {sender.name}, not to {message.node}"
            self._rejections.record("Impostor", address(frame), why)
            self._turn_away(peer_id, why)
        elif isinstance(message, wire.Join):
            self._turn_away(peer_id, f"node {sender.name} is already a member; a token is for nodes that join")
        else:
            self._take(peer_id, message, key)

    def _join(self, peer_id: bytes, frame: zmq.Frame, token: str) -> None:
        assert self.listener is not None
        host = address(frame)
        is_small = len(frame) <= MAX_JOIN_BYTES
        message = self._read(peer_id, frame, host) if is_small else None
        if isinstance(message, wire.Join):
            if not self._may_try(token):
                self._turn_away(peer_id, "this token was used too often; wait a minute")
                return
            self._counters.joins += 1
            self._inbox.put(NodeJoin(route=(self.listener.name, peer_id), token=token, address=host, join=message))
            return
        self._counters.impostors += 1
        what = type(message).__name__ if message is not None else "an invalid message"
        self._rejections.record(
            "TokenMisused", host, f"token {token[:8]} was used for {what}; it is valid for Join only"
        )
        self._turn_away(peer_id, "a token is valid for joining only")

    def _may_try(self, token: str) -> bool:
        now = time.monotonic()
        if now - self._joins_since >= 60.0:
            self._joins_since = now
            self._joins.clear()
        self._joins[token] = self._joins.get(token, 0) + 1
        return self._joins[token] <= MAX_JOINS_PER_MINUTE

    def _read(self, peer_id: bytes, frame: zmq.Frame, origin: str) -> wire.NodeMessage | None:
        """Decode and check a message; None: it is malformed or has invalid values, and is rejected."""
        try:
            message = wire.NODE_MESSAGES.decode(frame.buffer)
            why = why_unacceptable(message)
        except ProtocolError as error:
            self._counters.malformed += 1
            self._rejections.record("Malformed", origin, error.message)
            return None
        if not why:
            return message
        self._counters.malformed += 1
        self._rejections.record("Malformed", origin, f"{type(message).__name__}: {why}")
        self._turn_away(peer_id, f"its {type(message).__name__} is not acceptable: {why}")
        return None

    def _take(
        self, peer_id: bytes, message: wire.Hello | wire.Heartbeat | wire.Report | wire.Relay, key: str = ""
    ) -> None:
        assert self.listener is not None
        route = (self.listener.name, peer_id)
        match message:
            case wire.Hello():
                self._counters.hellos += 1
                if not OLDEST_WIRE_VERSION <= message.version <= WIRE_VERSION:
                    why = f"the controller speaks protocol version {WIRE_VERSION}"
                    self._rejections.record("WrongVersion", f"node {message.node}", why)
                    self._turn_away(peer_id, why)
                    return
                self._inbox.put(NodeHello(route=route, hello=message, key=key))
            case wire.Heartbeat():
                self._counters.heartbeats += 1
                self._inbox.put(NodeHeartbeat(route=route, heartbeat=message))
            case wire.Report():
                self._counters.reports += 1
                self._inbox.put(
                    NodeReport(
                        route=route,
                        node=message.node,
                        incarnation=message.incarnation,
                        seq=message.seq,
                        body=message.body,
                    )
                )
            case wire.Relay():
                self._relay(peer_id, message)

    def _relay(self, peer_id: bytes, message: wire.Relay) -> None:
        assert self.listener is not None
        node, user, uid, gid = message.node, message.user, message.uid, message.gid
        caller = Caller(
            establish=lambda: self._users.relayed(node, user, uid, gid), origin=f"node {node}", uid=uid, user=user
        )
        refusal = self._handler.take(
            message.payload, relay_route(self.listener.name, peer_id, message.relay_id), caller
        )
        if refusal is not None:
            self._send(peer_id, wire.RelayReply(relay_id=message.relay_id, payload=refusal))

    def _turn_away(self, peer_id: bytes, why: str) -> None:
        self._send(peer_id, wire.Unwelcome(why=why))

    def _send(self, peer_id: bytes, message: wire.ControllerMessage) -> None:
        assert self.listener is not None
        if not self.listener.send(wire.CONTROLLER_MESSAGES.encode(message), peer_id):
            self._counters.replies_dropped += 1
