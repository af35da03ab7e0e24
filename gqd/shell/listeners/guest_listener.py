"""The tcp listener for clients with MUNGE: it also admits links whose key is not enrolled.

Owns what such a link may send before its user is known: one small message, an `Introduction`.  Other messages are
refused as ``introduce_first``, a few times.  Messages of enrolled keys pass directly.
"""

from __future__ import annotations

import asyncio

import zmq

from gq.connection.link_bounds import Links
from gq.connection.loop_socket import LoopSocket
from gq.connection.munge import MungeRefused
from gq.errors import ProtocolError, Refusal
from gq.model.ids import RequestId
from gq.wire import client as wire
from gqd.shell.listeners.auth import address, proven_key
from gqd.shell.listeners.clients import Caller, ClientListener, RequestHandler, action_of, check_version, head_of
from gqd.shell.listeners.keys import KeyRing
from gqd.shell.listeners.munge_auth import MungeAuth
from gqd.shell.listeners.rejections import Rejections
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.metrics import Counters

NO_INTRODUCTION = "NoIntroduction"
"""The audit trail's action for a message of an unknown key."""


class GuestListener:
    """Passes messages of enrolled keys to `enrolled`, and requests of users that MUNGE vouched for to `handler`."""

    def __init__(
        self,
        enrolled: ClientListener,
        handler: RequestHandler,
        users: UserDirectory,
        ring: KeyRing,
        links: Links,
        introductions: MungeAuth,
        counters: Counters,
        rejections: Rejections,
    ) -> None:
        self._enrolled = enrolled
        self._handler = handler
        self._users = users
        self._ring = ring
        self._links = links
        self._introductions = introductions
        self._counters = counters
        self._rejections = rejections
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """The tasks that check introductions, by key."""
        self.listener: LoopSocket | None = None
        """Set once the socket is open; messages come only then."""

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        self._introductions.close()

    def receive(self, peer_id: bytes, frame: zmq.Frame) -> None:
        public = proven_key(frame)
        if self._ring.holder(public) is not None:
            self._links.record_proof(frame)
            self._enrolled.receive(peer_id, frame)
        elif (introduction := _introduction(frame)) is not None:
            self._begin(peer_id, frame, public, introduction)
        elif self._introductions.holder(public) is not None:
            self._links.record_proof(frame)
            self._take(peer_id, frame, public)
        else:
            self._turn_back(peer_id, frame, public)

    # ── users with an introduced key ──────────────────────────────────────────────────────────────────────────────

    def _take(self, peer_id: bytes, frame: zmq.Frame, public: str) -> None:
        assert self.listener is not None
        refusal = self._handler.take(frame.buffer, (self.listener.name, peer_id), self._caller(public, address(frame)))
        if refusal is not None:
            self._send(peer_id, refusal)

    def _caller(self, public: str, host: str) -> Caller:
        found = self._introductions.holder(public)
        assert found is not None
        return Caller(
            establish=lambda: self._users.introduced(found.user, found.uid, host),
            origin=f"munge ({host})",
            uid=found.uid,
            user=found.user,
        )

    # ── introductions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, peer_id: bytes, frame: zmq.Frame, public: str, introduction: wire.Introduction) -> None:
        self._links.count_unproven(frame)
        if public in self._under_way:
            self._answer(peer_id, introduction.request_id, Refusal("busy", "this key is already being introduced"))
            return
        task = asyncio.ensure_future(self._introduce(peer_id, public, address(frame), introduction))
        self._under_way[public] = task
        task.add_done_callback(lambda done: self._under_way.pop(public))

    async def _introduce(self, peer_id: bytes, public: str, host: str, introduction: wire.Introduction) -> None:
        try:
            check_version(introduction.version)
            found = await self._introductions.introduce(public, introduction.body)
        except Refusal as refusal:
            self._counters.introductions_refused += 1
            uid = refusal.uid if isinstance(refusal, MungeRefused) else None
            self._rejections.record(action_of(refusal), host, refusal.message, uid=uid)
            self._answer(peer_id, introduction.request_id, refusal)
        else:
            self._counters.introductions += 1
            self._send(peer_id, wire.reply(introduction.request_id, wire.Done(text=f"user {found.user}")))

    # ── links that are not introduced ─────────────────────────────────────────────────────────────────────────────

    def _turn_back(self, peer_id: bytes, frame: zmq.Frame, public: str) -> None:
        """Refuse a message of a key that was never introduced, or too long ago; new links have few tries."""
        head = head_of(frame.buffer)
        is_new = self._links.is_silent(frame)
        if is_new:
            self._rejections.record(NO_INTRODUCTION, address(frame), "it sent a request before its key was introduced")
        elif not self._introductions.has_known(public):
            self._rejections.record(NO_INTRODUCTION, address(frame), "its key is no longer valid")
        if head is None or (is_new and len(frame.buffer) > wire.MAX_INTRODUCTION_BYTES):
            self._counters.malformed += 1
            self._links.hang_up(frame)
            return
        self._links.count_unproven(frame)
        refusal = Refusal(
            "introduce_first",
            "the controller does not know the key of this link, or no longer does",
            "`munge = true` in [client] of gq.toml introduces it; `gqctl key add` on a host of the cluster enrols it",
        )
        self._counters.refused_at_door += 1
        self._answer(peer_id, head.request_id, refusal)

    def _answer(self, peer_id: bytes, request_id: RequestId, refusal: Refusal) -> None:
        body = wire.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint)
        self._send(peer_id, wire.reply(request_id, body))

    def _send(self, peer_id: bytes, data: bytes) -> None:
        assert self.listener is not None
        if not self.listener.send(data, peer_id):
            self._counters.replies_dropped += 1


def _introduction(frame: zmq.Frame) -> wire.Introduction | None:
    if len(frame.buffer) > wire.MAX_INTRODUCTION_BYTES:
        return None
    try:
        found = wire.INTRODUCTIONS.decode(frame.buffer)
    except ProtocolError:
        return None
    return found if len(found.request_id) == wire.REQUEST_ID_BYTES else None
