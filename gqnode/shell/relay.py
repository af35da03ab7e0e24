"""The door for clients of a host that has no gqd: their requests go up over the node's link, the answers come back.

Who asks is the kernel's word about the ipc link, and is passed on with the request.  Only the cluster's owner and
root are served.  Requests are passed on as they are, and again whenever the link comes up, since a controller that was
away does not know them any more: a client here cannot see that it was.  What was forgotten, its client asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import zmq

from gq.errors import ProtocolError
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire.codec import MAX_MESSAGE_BYTES
from gqnode.shell.machine import user_name
from gqnode.shell.sockets import Context, LoopSocket, bind_ipc, peer_ids, router

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Requests on their way; the oldest are forgotten, and asked again by their clients."""
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""Of all of them together."""
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


class Relay:
    """`pass_on` does nothing while the controller is away."""

    def __init__(self, context: Context, endpoint: str, owner_uid: int, pass_on: Callable[[Asked], object]) -> None:
        self.owner_uid = owner_uid
        """The daemon's own until the controller says whose the cluster is."""
        self._pass_on = pass_on
        self._loop = asyncio.get_running_loop()
        self._next_id = 1
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        self._bytes = 0
        socket = router(context, MAX_MESSAGE_BYTES)
        bind_ipc(socket, endpoint)
        self._socket = LoopSocket(socket, self._on_request)

    def answer(self, reply: node_wire.RelayReply) -> None:
        waiting = self._forget(reply.relay_id)
        if waiting is not None:
            self._socket.send(reply.payload, waiting.peer)

    def link_is_up(self, owner_uid: int) -> None:
        """The controller is there, and has said whose the cluster is."""
        self.owner_uid = owner_uid
        self._forget_old()
        for waiting in self._waiting.values():
            if waiting.asked.uid in (owner_uid, 0):
                self._pass_on(waiting.asked)

    def close(self) -> None:
        self._socket.close(linger_s=0.2)

    def _on_request(self, peer: bytes, frame: zmq.Frame) -> None:
        who = peer_ids(frame)
        if who is None or who[0] not in (self.owner_uid, 0):
            self._refuse(peer, frame)
            return
        relay_id = self._next_id
        self._next_id += 1
        asked = Asked(relay_id, who[0], who[1], user_name(who[0]), frame.bytes)
        self._waiting[relay_id] = _Waiting(peer, self._loop.time(), asked)
        self._bytes += len(asked.payload)
        self._forget_old()
        self._pass_on(asked)

    def _refuse(self, peer: bytes, frame: zmq.Frame) -> None:
        try:
            head = wire.REQUEST_HEADS.decode(frame.buffer)
        except ProtocolError:
            return
        refused = wire.Refused(
            code="not_served", message=f"this cluster serves only {user_name(self.owner_uid)} and root"
        )
        self._socket.send(wire.reply(head.request_id, refused), peer)

    def _forget_old(self) -> None:
        """All but the latest may have to go."""
        horizon = self._loop.time() - FORGET_S
        while len(self._waiting) > 1:
            oldest = next(iter(self._waiting))
            is_room = len(self._waiting) <= MAX_WAITING and self._bytes <= MAX_KEPT_BYTES
            if is_room and self._waiting[oldest].at > horizon:
                return
            self._forget(oldest)

    def _forget(self, relay_id: int) -> _Waiting | None:
        waiting = self._waiting.pop(relay_id, None)
        if waiting is not None:
            self._bytes -= len(waiting.asked.payload)
        return waiting
