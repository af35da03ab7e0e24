"""Requests of clients: from bytes and a proven uid to an input, or to the refusal that goes back at once.

Owns all that is refused before the deciding code sees it: strangers, other versions of the protocol, unknown
requests, what is too large.  A request that was refused here has changed nothing.
"""

from __future__ import annotations

import os

import msgspec
import zmq

from gq.config import LimitSettings
from gq.errors import ProtocolError, Refusal
from gq.model.ids import RequestId
from gq.wire import client as wire
from gq.wire.codec import OLDEST_WIRE_VERSION, WIRE_VERSION
from gqd.shell.auth import LocalPeers, credentials
from gqd.shell.door import Door
from gqd.shell.inbox import Inbox
from gqd.shell.metrics import Counters
from gqd.shell.submission import take_blobs
from gqd.state.input import ClientRequest, Peer, Route

ENTROPY_BYTES = 32
Bytes = bytes | memoryview


class RequestDesk:
    """Takes requests from any door: from clients of this host, and from those that a node relays."""

    def __init__(self, peers: LocalPeers, limits: LimitSettings, inbox: Inbox, counters: Counters) -> None:
        self._peers = peers
        self._limits = limits
        self._inbox = inbox
        self._counters = counters

    def take(self, data: Bytes, route: Route, uid: int, gid: int, via_node: str = "") -> bytes | None:
        """Put the request into the inbox; or return the bytes of a refusal.  What cannot be answered is dropped."""
        head = _head(data)
        if head is None:
            self._counters.malformed += 1
            return None
        try:
            request = self._read(data, head, uid)
            body, blobs = self._without_blobs(request.body)
        except Refusal as refusal:
            self._counters.refused_at_door += 1
            return wire.reply(
                head.request_id, wire.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint)
            )
        peer = self._peers.peer(uid, gid)
        if via_node:
            peer = msgspec.structs.replace(peer, via_node=via_node)
        self._counters.requests += 1
        self._inbox.put(_input(peer, route, request.request_id, body), blobs)
        return None

    def _read(self, data: Bytes, head: wire.RequestHead, uid: int) -> wire.Request:
        if not self._peers.serves(uid):
            self._counters.not_served += 1
            raise Refusal(
                "not_served",
                f"this controller serves only {self._peers.owner} and root, not uid {uid}",
                "`gq up` starts a cluster of your own",
            )
        _check_version(head.version)
        if len(data) > self._limits.message_bytes:
            raise Refusal(
                "too_large",
                f"the request is {len(data)} bytes long, the limit is {self._limits.message_bytes}",
                "make the script or the environment smaller",
            )
        try:
            return wire.REQUESTS.decode(data)
        except ProtocolError as error:
            raise Refusal(
                "unknown_request",
                f"this controller does not know that request: {error.message}",
                "is gqd older than this command?",
            ) from error

    def _without_blobs(self, body: wire.RequestBody) -> tuple[wire.RequestBody, dict[str, bytes]]:
        if not isinstance(body, wire.Submit):
            return body, {}
        return take_blobs(body, self._limits.script_bytes, self._limits.environment_bytes)


class ClientDoor:
    """The clients of this host, over ipc: the kernel says who they are."""

    def __init__(self, desk: RequestDesk, counters: Counters) -> None:
        self._desk = desk
        self._counters = counters
        self.door: Door | None = None
        """Set once the socket is open; messages come only then."""

    def receive(self, peer_id: bytes, frame: zmq.Frame) -> None:
        assert self.door is not None
        who = credentials(frame)
        if who is None:
            self._counters.malformed += 1
            return
        refusal = self._desk.take(frame.buffer, (self.door.name, peer_id), *who)
        if refusal is not None and not self.door.send(peer_id, refusal):
            self._counters.replies_dropped += 1


def _input(peer: Peer, route: Route, request_id: RequestId, body: wire.RequestBody) -> ClientRequest:
    return ClientRequest(peer=peer, route=route, request_id=request_id, body=body, entropy=os.urandom(ENTROPY_BYTES))


def _head(data: Bytes) -> wire.RequestHead | None:
    """What can be answered even where the rest is unknown."""
    try:
        head = wire.REQUEST_HEADS.decode(data)
    except ProtocolError:
        return None
    return head if len(head.request_id) == wire.REQUEST_ID_BYTES else None


def _check_version(version: int) -> None:
    if not OLDEST_WIRE_VERSION <= version <= WIRE_VERSION:
        raise Refusal(
            "wrong_version",
            f"this controller speaks versions {OLDEST_WIRE_VERSION} to {WIRE_VERSION} of the protocol, not {version}",
            "use the commands of the same release as the controller",
        )
