"""A front door: one ROUTER socket driven by the event loop.

Owns the socket's limits and the reading discipline.  The socket's file descriptor is *edge-triggered*: it tells that
something may have changed, once; so a door reads until the socket says that there is no more, looks again after
every burst of sending, and comes back by itself when it stopped early.  What nobody has room for waits in its backlog.
It knows nothing of what is in a message.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import zmq

from gq.connection.input_queue import MAX_WAITING, InputQueue, make_boundless

MAX_BURST = 512
"""Messages handled before the loop gets a chance to do something else."""
SEND_HWM = 4096
"""Messages per peer that it may leave unread; what comes then is dropped: requests and orders are repeated."""

HANDSHAKE_MS = 5_000
"""Whoever has not said how it speaks, and over tcp proved a key, by then is hung up on, however slowly it speaks."""

Receive = Callable[[bytes, zmq.Frame], None]
"""Takes a peer's routing id and the message's only frame."""


class Listener:
    """Reads what comes; hands each message to `receive` while `has_room()`.

    For the other arguments see `InputQueue`.
    """

    def __init__(
        self,
        name: str,
        socket: zmq.Socket[bytes],
        receive: Receive,
        has_room: Callable[[], bool],
        on_malformed: Callable[[], None],
        on_flood: Callable[[str], None],
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.name = name
        self._socket = socket
        self._receive = receive
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._backlog = InputQueue(socket, on_malformed, on_flood, self._loop.call_later, max_waiting)
        self._is_due = False
        self._is_open = True
        self._loop.add_reader(int(socket.getsockopt(zmq.FD)), self._read)
        self.poll_soon()

    def poll_soon(self) -> None:
        """Read soon, if there may be something: after sending, or when there is room again."""
        if not self._is_due and self._is_open:
            self._is_due = True
            self._loop.call_soon(self._read)

    def send(self, peer: bytes, data: bytes) -> bool:
        """Hand a message to libzmq; False if the peer has gone or does not read.  Call `poll_soon` after the last."""
        try:
            self._socket.send(peer, zmq.NOBLOCK | zmq.SNDMORE)
            self._socket.send(data, zmq.NOBLOCK, copy=len(data) < 65536)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def close(self, linger_s: float) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(int(self._socket.getsockopt(zmq.FD)))
            self._socket.close(linger=int(linger_s * 1000))

    def _read(self) -> None:
        self._is_due = False
        if not self._is_open:
            return
        if self._backlog.hand_on(self._receive, self._may_receive, MAX_BURST):
            self.poll_soon()

    def _may_receive(self) -> bool:
        """`poll_soon` is called once there is room again."""
        return self._is_open and self._has_room()


def router(context: zmq.Context[zmq.Socket[bytes]], max_message_bytes: int) -> zmq.Socket[bytes]:
    """A ROUTER with limits on everything that a peer could make grow."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a message to nobody is an error, so that it can be counted
    socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes)
    make_boundless(socket)
    socket.setsockopt(zmq.SNDHWM, SEND_HWM)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    return socket


def bind_ipc(socket: zmq.Socket[bytes], endpoint: str, mode: int = 0o600) -> None:
    """Bind so that only this user may connect, from the first moment on, and then whom `mode` lets in.

    At start-up only: umask is the process's.
    """
    before = os.umask(0o177)
    try:
        socket.bind(endpoint)
    finally:
        os.umask(before)
    Path(endpoint.removeprefix("ipc://")).chmod(mode)
