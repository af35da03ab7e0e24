"""A listener: one ROUTER socket driven by the event loop.

Owns the socket's limits and the order of reading.  The socket's file descriptor is *edge-triggered*: it signals a
possible change only once.  So a listener reads until the socket has no more messages, reads again after sending, and
schedules itself when it stopped early.  Messages for which there is no room wait in its backlog.  A listener does not
know the content of messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import zmq

from gq.connection.input_queue import MAX_WAITING, InputQueue, make_boundless

MAX_BURST = 512
"""Messages handled at once before the event loop does something else."""
SEND_HWM = 4096
"""Unread messages of a peer; further ones are dropped, since requests and orders are repeated."""

HANDSHAKE_MS = 5_000
"""Time for the handshake, over tcp with the proof of a key, after which the link is closed."""

Receive = Callable[[bytes, zmq.Frame], None]
"""Called with a peer's routing id and the message's only frame."""


class Listener:
    """Reads messages and passes each to `receive` while `has_room()`.

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
        """Schedule a read: after sending, or when there is room again."""
        if not self._is_due and self._is_open:
            self._is_due = True
            self._loop.call_soon(self._read)

    def send(self, peer: bytes, data: bytes) -> bool:
        """Pass a message to libzmq; False: the peer is gone or does not read.  Call `poll_soon` after the last one."""
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
        """Whether a message may be handled now; `poll_soon` is called once there is room again."""
        return self._is_open and self._has_room()


def router(context: zmq.Context[zmq.Socket[bytes]], max_message_bytes: int) -> zmq.Socket[bytes]:
    """A ROUTER socket with limits on everything that a peer could make grow."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # sending to an unknown peer is an error, so that it can be counted
    socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes)
    make_boundless(socket)
    socket.setsockopt(zmq.SNDHWM, SEND_HWM)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    return socket


def bind_ipc(socket: zmq.Socket[bytes], endpoint: str, mode: int = 0o600) -> None:
    """Bind an ipc endpoint: at first only this user may connect, then whoever `mode` permits.

    Call it only at start-up, since it changes the process's umask.
    """
    before = os.umask(0o177)
    try:
        socket.bind(endpoint)
    finally:
        os.umask(before)
    Path(endpoint.removeprefix("ipc://")).chmod(mode)
