"""The door for clients of a host that has no gqd: their requests go up over the node's link, the answers come back.

Who asks is the kernel's word about the ipc link, and is passed on with the request; who of them is served, and whether
this node may speak for them, is for the controller to say.  Only in a cluster that is not shared nobody but its owner
and root is served, and here already.

Requests are passed on as they are, and again whenever the link comes up, since a controller that was away does not
know them any more: a client here cannot see that it was.  What was forgotten, its client asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import zmq

from gq.connection.input_queue import credentials
from gq.connection.loop_socket import Context
from gq.errors import GqError, ProtocolError
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire.codec import MAX_MESSAGE_BYTES
from gqnode.daemon.machine import user_name
from gqnode.daemon.sockets import listen_ipc
from gqnode.daemon.users import Users

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Requests on their way.  Over it, those of who has most here are forgotten, oldest first; their clients ask again."""
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""Maximum size of all waiting requests; above it the oldest of the largest user are dropped, too."""
MAX_UNNAMED = 1_000
"""Requests that wait for the name service; more are dropped, and asked again."""
FORGET_S = 120.0


class Asked(NamedTuple):
    """A request as `Link` passes it on."""

    relay_id: int
    uid: int
    gid: int
    user: str
    payload: bytes


class _Waiting(NamedTuple):
    peer: bytes
    at: float
    asked: Asked


class _Queue:
    """Waiting requests, oldest first, and the share of each user."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        self._of: dict[int, OrderedDict[int, None]] = {}
        self._bytes: dict[int, int] = {}
        self._all_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def all(self) -> tuple[_Waiting, ...]:
        return tuple(self._waiting.values())

    def add(self, waiting: _Waiting) -> None:
        relay_id, uid = waiting.asked.relay_id, waiting.asked.uid
        self._waiting[relay_id] = waiting
        self._of.setdefault(uid, OrderedDict())[relay_id] = None
        self._count(uid, len(waiting.asked.payload))

    def take(self, relay_id: int) -> _Waiting | None:
        waiting = self._waiting.pop(relay_id, None)
        if waiting is not None:
            uid = waiting.asked.uid
            del self._of[uid][relay_id]
            self._count(uid, -len(waiting.asked.payload))
            if not self._of[uid]:
                del self._of[uid], self._bytes[uid]
        return waiting

    def forget_before(self, horizon: float) -> None:
        while self._waiting and (oldest := next(iter(self._waiting.values()))).at <= horizon:
            self.take(oldest.asked.relay_id)

    def forget_surplus(self) -> None:
        """Drop requests of the user with the most requests, so that other users lose none; the newest may stay."""
        while len(self._waiting) > 1:
            if len(self._waiting) > MAX_WAITING:
                greediest = max(self._of, key=lambda uid: len(self._of[uid]))
            elif self._all_bytes > MAX_KEPT_BYTES:
                greediest = max(self._bytes, key=self._bytes.__getitem__)
            else:
                return
            self.take(next(iter(self._of[greediest])))

    def _count(self, uid: int, count: int) -> None:
        self._bytes[uid] = self._bytes.get(uid, 0) + count
        self._all_bytes += count


class Relay:
    """`pass_on` does nothing while the controller is away.

    ``may_be_shared``: everybody on this host may connect, and is served once the controller has said that the cluster
    is for all.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        owner_uid: int,
        pass_on: Callable[[Asked], object],
        may_be_shared: bool = False,
    ) -> None:
        self.owner_uid = owner_uid
        """The daemon's own until the controller says whose the cluster is."""
        self._pass_on = pass_on
        self._loop = asyncio.get_running_loop()
        self._next_id = 1
        self._waiting = _Queue()
        self._naming: set[asyncio.Task[None]] = set()
        self.users: Users | None = None
        """Set once there may be threads; until then nobody is served in a shared cluster."""
        self._socket = listen_ipc(context, endpoint, MAX_MESSAGE_BYTES, self._on_request, is_for_all=may_be_shared)

    def answer(self, reply: node_wire.RelayReply) -> None:
        waiting = self._waiting.take(reply.relay_id)
        if waiting is not None:
            self._socket.send(reply.payload, waiting.peer)

    def link_is_up(self, owner_uid: int) -> None:
        """The controller is there, and has said whose the cluster is."""
        self.owner_uid = owner_uid
        self._waiting.forget_before(self._loop.time() - FORGET_S)
        for waiting in self._waiting.all():
            if self._is_served(waiting.asked.uid):
                self._pass_on(waiting.asked)

    def close(self) -> None:
        for task in self._naming:
            task.cancel()
        self._socket.close(linger_s=0.2)

    def _is_served(self, uid: int) -> bool:
        return uid in (self.owner_uid, 0) or (self.users is not None and self.users.is_shared)

    def _on_request(self, peer: bytes, frame: zmq.Frame) -> None:
        peer_ids = credentials(frame)
        is_told = self.users is not None and self.users.is_told
        if not is_told and (peer_ids is None or peer_ids[0] != 0):
            return  # whom the cluster serves is not known yet: they ask again
        if peer_ids is None or not self._is_served(peer_ids[0]):
            self._refuse(
                peer, frame.bytes, "not_served", f"this cluster serves only {user_name(self.owner_uid)} and root"
            )
        elif self.users is None or not self.users.is_shared:
            self._keep(peer, peer_ids, user_name(peer_ids[0]), frame.bytes)
        elif len(self._naming) < MAX_UNNAMED:
            self._start_naming(peer, peer_ids, frame.bytes)

    def _start_naming(self, peer: bytes, peer_ids: tuple[int, int], payload: bytes) -> None:
        task = self._loop.create_task(self._name(peer, peer_ids, payload))
        self._naming.add(task)
        task.add_done_callback(self._naming.discard)

    async def _name(self, peer: bytes, peer_ids: tuple[int, int], payload: bytes) -> None:
        """The name service may be slow: only who waits for it waits."""
        assert self.users is not None
        try:
            name = await self.users.name_of(peer_ids[0])
        except GqError as error:
            self._refuse(peer, payload, error.code, error.message)
        else:
            self._keep(peer, peer_ids, name, payload)

    def _keep(self, peer: bytes, peer_ids: tuple[int, int], name: str, payload: bytes) -> None:
        asked = Asked(self._next_id, peer_ids[0], peer_ids[1], name, payload)
        self._next_id += 1
        self._waiting.add(_Waiting(peer, self._loop.time(), asked))
        self._waiting.forget_before(self._loop.time() - FORGET_S)
        self._waiting.forget_surplus()
        self._pass_on(asked)

    def _refuse(self, peer: bytes, payload: bytes, code: str, why: str) -> None:
        try:
            head = wire.REQUEST_HEADS.decode(payload)
        except ProtocolError:
            return
        self._socket.send(wire.reply(head.request_id, wire.Refused(code=code, message=why)), peer)
