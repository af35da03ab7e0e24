"""Messages of nodes: from bytes and a proven identity to inputs; and which link leads to which node.

Owns the rule that a node speaks only for itself: over tcp its CURVE key says which node it is, over ipc its uid must
be the controller's own or root's.  Requests that a node relays go to the `RequestDesk` like any other, with the uid
that the node vouches for.
"""

from __future__ import annotations

import zmq

from gq.errors import ProtocolError
from gq.wire import node as wire
from gq.wire.codec import OLDEST_WIRE_VERSION, WIRE_VERSION
from gqd.shell.auth import LocalPeers, address, credentials, pinned_node
from gqd.shell.clients import RequestDesk
from gqd.shell.door import Door
from gqd.shell.inbox import Inbox
from gqd.shell.metrics import Counters
from gqd.shell.turned_away import TurnedAway
from gqd.state.input import NodeHeartbeat, NodeHello, NodeReport, Route

RELAY_ID_BYTES = 8


def relay_route(door: str, peer_id: bytes, relay_id: int) -> Route:
    """Where the answer to a relayed request goes: the node's link, and the node's number for the request."""
    return f"relay:{door}", relay_id.to_bytes(RELAY_ID_BYTES, "big", signed=True) + peer_id


def relay_target(route: Route) -> tuple[Route, int] | None:
    """The inverse of `relay_route`; None for a route that is not relayed."""
    kind, _, door = route[0].partition(":")
    if kind != "relay":
        return None
    relay_id = int.from_bytes(route[1][:RELAY_ID_BYTES], "big", signed=True)
    return (door, route[1][RELAY_ID_BYTES:]), relay_id


class NodeDoor:
    """One door for nodes.  `is_curve`: over tcp, where a key says who it is."""

    def __init__(
        self,
        is_curve: bool,
        peers: LocalPeers,
        desk: RequestDesk,
        inbox: Inbox,
        counters: Counters,
        turned_away: TurnedAway,
    ) -> None:
        self._is_curve = is_curve
        self._peers = peers
        self._desk = desk
        self._inbox = inbox
        self._counters = counters
        self._turned_away = turned_away
        self.door: Door | None = None
        """Set once the socket is open; messages come only then."""

    def receive(self, peer_id: bytes, frame: zmq.Frame) -> None:
        if not self._may_speak(frame):
            return
        try:
            message = wire.NODE_MESSAGES.decode(frame.buffer)
        except ProtocolError:
            self._counters.malformed += 1
            return
        if self._is_curve and (node := pinned_node(frame)) != message.node:
            self._counters.impostors += 1
            why = f"this key belongs to node {node}, not to {message.node}"
            self._turned_away.say(f"a host at {address(frame)}", why)
            self._turn_away(peer_id, message, why)
            return
        self._take(peer_id, message)

    def _may_speak(self, frame: zmq.Frame) -> bool:
        if self._is_curve:
            is_known = pinned_node(frame) is not None
            self._counters.impostors += not is_known
            return is_known
        who = credentials(frame)
        is_served = who is not None and self._peers.serves(who[0])
        self._counters.not_served += not is_served
        return is_served

    def _take(self, peer_id: bytes, message: wire.NodeMessage) -> None:
        assert self.door is not None
        route = (self.door.name, peer_id)
        match message:
            case wire.Hello():
                self._counters.hellos += 1
                if not OLDEST_WIRE_VERSION <= message.version <= WIRE_VERSION:
                    why = f"the controller speaks version {WIRE_VERSION} of the protocol"
                    self._turned_away.say(f"node {message.node}", why)
                    self._turn_away(peer_id, message, why)
                    return
                self._inbox.put(NodeHello(route=route, hello=message))
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
        assert self.door is not None
        if not -(2**63) <= message.relay_id < 2**63:
            self._counters.malformed += 1
            return
        route = relay_route(self.door.name, peer_id, message.relay_id)
        refusal = self._desk.take(message.payload, route, message.uid, message.gid, via_node=message.node)
        if refusal is not None:
            self._send(peer_id, wire.RelayReply(relay_id=message.relay_id, payload=refusal))

    def _turn_away(self, peer_id: bytes, message: wire.NodeMessage, why: str) -> None:
        """Only a hello is answered: whatever else an impostor says is not worth a word."""
        if isinstance(message, wire.Hello):
            self._send(peer_id, wire.Unwelcome(why=why))

    def _send(self, peer_id: bytes, message: wire.ControllerMessage) -> None:
        assert self.door is not None
        if not self.door.send(peer_id, wire.CONTROLLER_MESSAGES.encode(message)):
            self._counters.replies_dropped += 1
