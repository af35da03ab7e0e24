"""A ZeroMQ socket driven by an event loop, and the set-up of a ROUTER socket that listens.

The socket's file descriptor is *edge-triggered*: it signals a possible change only once.  So a `LoopSocket` reads until
the socket has no more messages, reads again after every sending, and schedules itself when it stopped early.  A message
has one frame (after the peer's routing id on a ROUTER); other messages are dropped.  A `LoopSocket` does not know the
content of messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import zmq

from gq.connection.input_queue import MAX_WAITING, InputQueue, make_boundless
from gq.connection.link_bounds import Links, Loop

MAX_BURST = 512
"""Messages handled at once before the event loop does something else."""
LARGE_BYTES = 65_536
"""Messages of this size are passed to libzmq without a copy."""
SEND_HWM = 4096
"""Unread messages of a peer; further ones are dropped, since requests and orders are repeated."""
HANDSHAKE_MS = 5_000
"""Time for the handshake, over tcp with the proof of a key, after which the link is closed."""

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]
Receive = Callable[[bytes, zmq.Frame], None]
"""Called with a peer's routing id (empty on a DEALER) and the message's only frame."""


class LoopSocket:
    """Reads messages and passes each to `receive` while `has_room()`.

    `links`: the links of a socket that listens, for which each message counts as a proof of identity; they are closed
    with the socket.  For `on_flood`, `on_malformed` and `max_waiting` see `InputQueue`.
    """

    def __init__(
        self,
        socket: Socket,
        loop: Loop,
        receive: Receive,
        on_flood: Callable[[str], None],
        *,
        name: str = "",
        links: Links | None = None,
        has_room: Callable[[], bool] = lambda: True,
        on_malformed: Callable[[], None] = lambda: None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.name = name
        self._socket = socket
        self._loop = loop
        self._receive = receive
        self._links = links
        self._has_room = has_room
        self._input = InputQueue(socket, on_malformed, on_flood, loop.call_later, max_waiting)
        self._is_due = False
        self._is_open = True
        self._fd = int(socket.getsockopt(zmq.FD))
        loop.add_reader(self._fd, self._read)
        self.poll_soon()

    def poll_soon(self) -> None:
        """Schedule a read; call it when `has_room()` has become true."""
        if not self._is_due and self._is_open:
            self._is_due = True
            self._loop.call_soon(self._read)

    def send(self, data: bytes, peer: bytes | None = None) -> bool:
        """Pass a message to libzmq; False: the peer is gone or does not read, or this socket is closed."""
        if not self._is_open:
            return False
        try:
            if peer is not None:
                self._socket.send(peer, zmq.NOBLOCK | zmq.SNDMORE)
            self._socket.send(data, zmq.NOBLOCK, copy=len(data) < LARGE_BYTES)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        finally:
            self.poll_soon()
        return True

    def close(self, linger_s: float = 0.0) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            if self._links is not None:
                self._links.close()
            self._socket.close(linger=int(linger_s * 1000))

    def _read(self) -> None:
        self._is_due = False
        if self._is_open and self._input.hand_on(self._hand_on, self._may_receive, MAX_BURST):
            self.poll_soon()

    def _hand_on(self, peer: bytes, frame: zmq.Frame) -> None:
        if self._links is not None:
            self._links.record_proof(frame)
        self._receive(peer, frame)

    def _may_receive(self) -> bool:
        return self._is_open and self._has_room()


def router(context: Context, max_message_bytes: int) -> Socket:
    """A ROUTER socket with limits on everything that a peer could make grow."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # sending to an unknown peer is an error, so that it can be counted
    socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes)
    make_boundless(socket)
    socket.setsockopt(zmq.SNDHWM, SEND_HWM)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    return socket


def bind_ipc(socket: Socket, endpoint: str, is_shared: bool = False) -> None:
    """Bind an ipc endpoint: at first only this user may connect; if `is_shared`, then all users may.

    Call it only at start-up before any thread starts, since it changes the process's umask.
    """
    before = os.umask(0o177)
    try:
        socket.bind(endpoint)
    finally:
        os.umask(before)
    Path(endpoint.removeprefix("ipc://")).chmod(0o666 if is_shared else 0o600)
