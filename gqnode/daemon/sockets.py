"""ZeroMQ sockets driven by the event loop.

A socket's file descriptor is *edge-triggered*: it tells once that something may have changed.  So a `LoopSocket`
reads until there is no more, looks again after every sending, and comes back by itself when it stopped early.
Messages have one frame each (behind the peer's routing id on a ROUTER); others are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import zmq

from gq.connection.curve import KeyPair, detect_lost_peer
from gq.connection.input_queue import InputQueue, credentials, make_boundless
from gq.connection.link_bounds import SHARE_OF_HOST, Bounds, Links, links_per_listener, local_bounds
from gq.host.fd_limit import raise_descriptor_limit

log = logging.getLogger(__name__)

MAX_BURST = 256
"""Messages handled before the loop gets a chance to do something else."""
_LARGE_BYTES = 65_536
HANDSHAKE_MS = 5_000
"""A peer that has not said how it speaks by then, and over tcp proved a key, is hung up on."""
BACKLOG = 256
"""Connections that the kernel holds until libzmq accepts them."""
LOST_AFTER_S = 15
"""A tcp link whose peer acknowledges nothing for so long is ended."""

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]
Receive = Callable[[bytes, zmq.Frame], None]
"""Takes the peer's routing id (empty on a DEALER) and the frame."""


class LoopSocket:
    """`links`: those of a socket that listens; they are closed with it."""

    def __init__(self, socket: Socket, receive: Receive, links: Links | None = None) -> None:
        self._socket = socket
        self._receive = receive
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._backlog = InputQueue(socket, self._count_malformed, _say_greedy, self._loop.call_later)
        self._is_due = False
        self._is_open = True
        self.malformed = 0
        """Messages that were dropped for their number of frames."""
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._read)
        self.look()

    def look(self) -> None:
        """Read soon, if there may be something."""
        if not self._is_due and self._is_open:
            self._is_due = True
            self._loop.call_soon(self._read)

    def send(self, data: bytes, peer: bytes | None = None) -> bool:
        """Hand over; False if the peer is not there or does not read."""
        if not self._is_open:
            return False
        try:
            if peer is not None:
                self._socket.send(peer, zmq.NOBLOCK | zmq.SNDMORE)
            self._socket.send(data, zmq.NOBLOCK, copy=len(data) < _LARGE_BYTES)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        finally:
            self.look()
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
        if not self._is_open:
            return
        if self._backlog.hand_on(self._hand_on, lambda: self._is_open, MAX_BURST):
            self.look()

    def _hand_on(self, peer: bytes, frame: zmq.Frame) -> None:
        if self._links is not None:
            self._links.record_proof(frame)
        self._receive(peer, frame)

    def _count_malformed(self) -> None:
        self.malformed += 1


def listen_ipc(
    context: Context, endpoint: str, max_message_bytes: int, receive: Receive, is_for_all: bool = False
) -> LoopSocket:
    """A socket of this host; `is_for_all`: as `bind_ipc`, and each user may have a part of its links."""
    socket = router(context, max_message_bytes)
    links = _watched(context, socket, local_bounds(raise_descriptor_limit())) if is_for_all else None
    bind_ipc(socket, endpoint, is_for_all)
    return LoopSocket(socket, receive, links)


def listen_tcp(context: Context, endpoint: str, max_message_bytes: int, receive: Receive, keys: KeyPair) -> LoopSocket:
    """A socket for other hosts; one address may have a part of its links."""
    socket = router(context, max_message_bytes)
    serve_curve(socket, keys)
    in_all = links_per_listener(raise_descriptor_limit(), listeners=1, backlog=BACKLOG)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    links = _watched(context, socket, Bounds(in_all, max(1, in_all // SHARE_OF_HOST)))
    socket.bind(endpoint)
    return LoopSocket(socket, receive, links)


def _watched(context: Context, socket: Socket, bounds: Bounds) -> Links:
    loop = asyncio.get_running_loop()
    return Links(context, socket, bounds, loop, log, on_unproven=lambda peer, how: None, on_crowd=lambda peer: None)


def router(context: Context, max_message_bytes: int) -> Socket:
    """A ROUTER with limits on what a peer could make grow, and which tells when a peer is gone."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes)
    make_boundless(socket)
    socket.setsockopt(zmq.SNDHWM, 4096)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    return socket


def bind_ipc(socket: Socket, endpoint: str, is_for_all: bool = False) -> None:
    """Bind so that only this user may connect, from the first moment on.  Before any thread starts: umask is global.

    ``is_for_all``: everybody may connect; who each is says the kernel, message by message.
    """
    path = Path(endpoint.removeprefix("ipc://"))
    before = os.umask(0o177)
    try:
        socket.bind(endpoint)
    finally:
        os.umask(before)
    path.chmod(0o666 if is_for_all else 0o600)


def serve_curve(socket: Socket, keys: KeyPair) -> None:
    """Prove by this key who listens.  That somebody connects proves nothing: the messages must."""
    socket.setsockopt(zmq.IPV6, 1)  # and IPv4
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    detect_lost_peer(socket, LOST_AFTER_S)


def peer_uid(frame: zmq.Frame) -> int | None:
    """Return the uid of the process at the other end of an ipc link; None if the kernel gave none."""
    found = credentials(frame)
    return None if found is None else found[0]


def _say_greedy(peer: str) -> None:
    log.warning("%s sent more than can be handled, and was hung up on", peer)
