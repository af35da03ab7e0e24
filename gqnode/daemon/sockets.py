"""The listening sockets of a node: set up for users of this host or for other hosts, each with bounds on its links."""

from __future__ import annotations

import asyncio
import logging

import zmq

from gq.connection.curve import KeyPair, detect_lost_peer
from gq.connection.input_queue import credentials
from gq.connection.link_bounds import SHARE_OF_HOST, Bounds, Links, links_per_listener, local_bounds
from gq.connection.loop_socket import Context, LoopSocket, Receive, Socket, bind_ipc, router
from gq.host.fd_limit import raise_descriptor_limit

log = logging.getLogger(__name__)

BACKLOG = 256
"""Connections that the kernel holds until libzmq accepts them."""
LOST_AFTER_S = 15
"""Seconds without an acknowledgement after which a tcp link is ended."""


def listen_ipc(
    context: Context, endpoint: str, max_message_bytes: int, receive: Receive, is_for_all: bool = False
) -> LoopSocket:
    """A socket of this host; `is_for_all`: all users may connect, and each may have a part of its links."""
    socket = router(context, max_message_bytes)
    links = _watched(context, socket, local_bounds(raise_descriptor_limit())) if is_for_all else None
    bind_ipc(socket, endpoint, is_for_all)
    return LoopSocket(socket, asyncio.get_running_loop(), receive, log_flood, links=links)


def listen_tcp(context: Context, endpoint: str, max_message_bytes: int, receive: Receive, keys: KeyPair) -> LoopSocket:
    """A socket for other hosts; one address may have a part of its links."""
    socket = router(context, max_message_bytes)
    serve_curve(socket, keys)
    in_all = links_per_listener(raise_descriptor_limit(), listeners=1, backlog=BACKLOG)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    links = _watched(context, socket, Bounds(in_all, max(1, in_all // SHARE_OF_HOST)))
    socket.bind(endpoint)
    return LoopSocket(socket, asyncio.get_running_loop(), receive, log_flood, links=links)


def _watched(context: Context, socket: Socket, bounds: Bounds) -> Links:
    loop = asyncio.get_running_loop()
    return Links(context, socket, bounds, loop, log, on_unproven=lambda peer, how: None, on_crowd=lambda peer: None)


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


def log_flood(peer: str) -> None:
    log.warning("%s sent more than can be handled and was disconnected", peer)
