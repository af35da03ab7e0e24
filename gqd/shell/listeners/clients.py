"""Requests of clients: decodes them and identifies the caller, for an input or an immediate refusal.

Owns all refusals before the deciding code: unknown users, other versions of the protocol, unknown requests, messages
that are too large.  A request refused here has changed nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import zmq

from gq.config.config import LimitSettings
from gq.connection.input_queue import credentials
from gq.connection.loop_socket import LoopSocket
from gq.errors import ProtocolError, Refusal
from gq.model.ids import RequestId
from gq.model.key import KeyKind
from gq.wire import client as wire
from gq.wire.codec import OLDEST_WIRE_VERSION, WIRE_VERSION
from gqd.shell.listeners.auth import address, proven_key
from gqd.shell.listeners.keys import KeyRing
from gqd.shell.listeners.rejections import Rejections
from gqd.shell.listeners.submission import take_blobs, take_chain_blobs, take_crontab_blobs
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.metrics import Counters
from gqd.shell.zones import load_zones, zones_named_by
from gqd.state.input import ClientRequest, NamedUser, Peer, Route

ENTROPY_BYTES = 32
MAX_LOOKED_UP = 100
"""Users of one request that are looked up."""
Bytes = bytes | memoryview


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request as the listener knows it; `establish` identifies it, or raises `Refusal`."""

    establish: Callable[[], Peer]
    origin: str
    """Origin of the request, as in `AuditEntry`."""
    uid: int | None = None
    user: str = ""


class RequestHandler:
    """Accepts requests of all listeners: of local clients, of clients with keys, and requests that a node relays.

    `enter` receives each accepted request with the blobs that must be durable before it is handled.
    """

    def __init__(
        self,
        users: UserDirectory,
        limits: LimitSettings,
        enter: Callable[[ClientRequest, dict[str, bytes]], None],
        counters: Counters,
        rejections: Rejections,
    ) -> None:
        self._users = users
        self._limits = limits
        self._enter = enter
        self._counters = counters
        self._rejections = rejections

    def take(self, data: Bytes, route: Route, caller: Caller) -> bytes | None:
        """Accept a request, or return the bytes of a refusal.  A message that cannot be answered is dropped."""
        head = head_of(data)
        if head is None:
            self._counters.malformed += 1
            self._rejections.record("Malformed", caller.origin, "the message is not a request", caller.user, caller.uid)
            return None
        try:
            peer = self._identify(caller)
            request = self._read(data, head)
            body, blobs = self._without_blobs(request.body)
        except Refusal as refusal:
            self._counters.refused_at_door += 1
            return wire.reply(
                head.request_id, wire.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint)
            )
        self._counters.requests += 1
        entered = _input(peer, route, request.request_id, body, self._named_user(body), self._strangers(body))
        self._enter(entered, blobs)
        return None

    def _identify(self, caller: Caller) -> Peer:
        try:
            return caller.establish()
        except Refusal as refusal:
            self._counters.not_served += 1
            self._rejections.record(action_of(refusal), caller.origin, refusal.message, caller.user, caller.uid)
            raise

    def _named_user(self, body: wire.RequestBody) -> NamedUser | None:
        return self._users.named(body.user) if isinstance(body, wire.AddKey | wire.SetCrontab) and body.user else None

    def _strangers(self, body: wire.RequestBody) -> tuple[str, ...]:
        """Users of a booking that this host does not know, among the first `MAX_LOOKED_UP`."""
        users = body.booking.users if isinstance(body, wire.SetReservation) else ()
        return tuple(user for user in users[:MAX_LOOKED_UP] if self._users.named(user) is None)

    def _read(self, data: Bytes, head: wire.RequestHead) -> wire.Request:
        check_version(head.version)
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
                f"this controller does not know the request: {error.message}",
                "check that gqd is not older than this command",
            ) from error

    def _without_blobs(self, body: wire.RequestBody) -> tuple[wire.RequestBody, dict[str, bytes]]:
        if isinstance(body, wire.Submit):
            return take_blobs(body, self._limits.script_bytes, self._limits.environment_bytes)
        if isinstance(body, wire.SubmitChain):
            return take_chain_blobs(body, self._limits.script_bytes, self._limits.environment_bytes)
        if isinstance(body, wire.SetCrontab):
            return take_crontab_blobs(body, self._limits.script_bytes, self._limits.environment_bytes)
        return body, {}


class ClientListener:
    """A listener for clients; `identify` returns the caller, None: the message cannot be answered."""

    def __init__(
        self, handler: RequestHandler, counters: Counters, identify: Callable[[zmq.Frame], Caller | None]
    ) -> None:
        self._handler = handler
        self._counters = counters
        self._identify = identify
        self.listener: LoopSocket | None = None
        """Set once the socket is open; messages come only then."""

    def receive(self, peer_id: bytes, frame: zmq.Frame) -> None:
        assert self.listener is not None
        caller = self._identify(frame)
        if caller is None:
            self._counters.malformed += 1
            return
        refusal = self._handler.take(frame.buffer, (self.listener.name, peer_id), caller)
        if refusal is not None and not self.listener.send(refusal, peer_id):
            self._counters.replies_dropped += 1


def local_caller(users: UserDirectory, frame: zmq.Frame) -> Caller | None:
    """A client of this host, over ipc, identified by the kernel."""
    who = credentials(frame)
    if who is None:
        return None
    uid, gid = who
    return Caller(establish=lambda: users.local(uid, gid), origin="local", uid=uid)


def enrolled_caller(users: UserDirectory, ring: KeyRing, frame: zmq.Frame) -> Caller:
    """A client outside of the cluster, identified by the key of its link, which may have been revoked since."""
    public, host = proven_key(frame), address(frame)

    def establish() -> Peer:
        found = ring.holder(public)
        if found is None or found.kind is not KeyKind.USER or found.uid is None:
            raise Refusal("revoked_key", "the key of this link is no longer valid", "`gqctl key add` enrols a new one")
        return users.enrolled(found.name, found.uid, public, host)

    return Caller(establish=establish, origin=f"key {public[:8]} ({host})")


def action_of(refusal: Refusal) -> str:
    """The audit trail's action for a rejection, made from the refusal's code."""
    return "".join(word.capitalize() for word in refusal.code.split("_"))


def _input(
    peer: Peer,
    route: Route,
    request_id: RequestId,
    body: wire.RequestBody,
    named_user: NamedUser | None,
    strangers: tuple[str, ...],
) -> ClientRequest:
    return ClientRequest(
        peer=peer,
        route=route,
        request_id=request_id,
        body=body,
        entropy=os.urandom(ENTROPY_BYTES),
        named_user=named_user,
        strangers=strangers,
        zones=load_zones(zones_named_by(body)),
    )


def head_of(data: Bytes) -> wire.RequestHead | None:
    """The head of a request, which suffices for an answer; None: it cannot be decoded."""
    try:
        head = wire.REQUEST_HEADS.decode(data)
    except ProtocolError:
        return None
    return head if len(head.request_id) == wire.REQUEST_ID_BYTES else None


def check_version(version: int) -> None:
    if not OLDEST_WIRE_VERSION <= version <= WIRE_VERSION:
        raise Refusal(
            "wrong_version",
            f"this controller speaks versions {OLDEST_WIRE_VERSION} to {WIRE_VERSION} of the protocol, not {version}",
            "use the commands of the same release as the controller",
        )
