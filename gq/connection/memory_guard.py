"""Bounds the memory that unfinished messages take: libzmq keeps the parts of a message until the last part comes, and
bounds only each part.

When a daemon has grown by much, its peers are disconnected one after the other, those with most unread data first,
until the memory is free again.  An innocent peer reconnects and repeats its request, as after any lost link.
Descriptors belong to libzmq: they are inspected and shut down, never closed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

LOOK_S = 0.25
SETTLE_S = 0.1
QUIET_LOOKS = 4
"""Looks without shrinking memory after which disconnecting has had its full effect: a busy machine is slow."""
MAX_GROWTH_BYTES = 512 * 1024 * 1024
SETTLED_BYTES = 8 * 1024 * 1024
"""Growth or shrinking that a daemon may show for other reasons."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
OF_USER = "uid "
"""Prefix of a user's uid in the name of a peer."""
_CREDENTIALS = struct.Struct("3i")
_COUNT = struct.Struct("i")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Link(NamedTuple):
    """A link; `peer`: an address, or ``uid 1000``; `waiting`: bytes that arrived and were not read."""

    descriptor: int
    peer: str
    waiting: int


class MemoryGuard:
    """Watches the daemon's memory.  `on_flood` is called with a disconnected peer and the bytes that this freed."""

    def __init__(
        self,
        listeners: Iterable[str],
        call_later: Callable[[float, Callable[[], None]], Timer],
        on_flood: Callable[[str, int], None],
    ) -> None:
        self._listeners = {_local_name(endpoint) for endpoint in listeners}
        self._call_later = call_later
        self._on_greedy = on_flood
        self._level = resident_bytes()
        """The memory that the daemon needs for itself."""
        self._suspects: list[str] = []
        self._timer = call_later(LOOK_S, self._check)

    def close(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        used = resident_bytes()
        self._level = min(self._level, used)
        if used - self._level <= MAX_GROWTH_BYTES:
            self._timer = self._call_later(LOOK_S, self._check)
            return
        self._suspects = _by_unread_bytes(links(self._listeners))
        self._try_next(used)

    def _try_next(self, used: int) -> None:
        """Disconnect the next suspect, until the memory is free again or no suspect is left."""
        if used - self._level <= MAX_GROWTH_BYTES // 2 or not self._suspects:
            self._level = used
            self._timer = self._call_later(LOOK_S, self._check)
            return
        suspect = self._suspects.pop(0)
        for link in links(self._listeners):
            if link.peer == suspect:
                _shut_down(link, self._listeners)
        self._timer = self._call_later(SETTLE_S, lambda: self._await_effect(suspect, used, used, QUIET_LOOKS))

    def _await_effect(self, suspect: str, before: int, last: int, looks: int) -> None:
        _trim_heap()
        used = resident_bytes()
        left = QUIET_LOOKS if last - used > SETTLED_BYTES else looks - 1
        if left:
            self._timer = self._call_later(SETTLE_S, lambda: self._await_effect(suspect, before, used, left))
            return
        if before - used > MAX_GROWTH_BYTES // 8:
            self._on_greedy(suspect, before - used)
        self._try_next(used)


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - several times a second
        return int(file.read().split()[1]) * _PAGE_BYTES


def links(listeners: set[str]) -> list[Link]:
    """Return this process's links that were accepted at these listeners."""
    found = (_link(int(name), listeners) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - many thousands
    return [link for link in found if link is not None]


def _by_unread_bytes(found: Iterable[Link]) -> list[str]:
    waiting: dict[str, int] = {}
    for link in found:
        waiting[link.peer] = waiting.get(link.peer, 0) + link.waiting
    return sorted(waiting, key=lambda peer: (-waiting[peer], peer == f"{OF_USER}0", peer))


def _link(descriptor: int, listeners: set[str]) -> Link | None:
    """Return the link; None for descriptors that are no link at these listeners, or not open any more."""
    try:
        link_socket = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        if link_socket.type != socket.SOCK_STREAM or _name_here(link_socket) not in listeners:
            return None
        waiting = _COUNT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_COUNT.size)))[0]
        return Link(descriptor, peer_name(link_socket), waiting)
    except OSError:  # the socket listens, or the link has ended
        return None
    finally:
        link_socket.detach()


def _shut_down(link: Link, listeners: set[str]) -> None:
    """Shut the link down; libzmq then closes it and discards its data."""
    if _link(link.descriptor, listeners) is not None:  # else the descriptor has been reused
        hang_up(link.descriptor, link.peer)


def hang_up(descriptor: int, peer: str) -> None:
    """Shut a link down, and libzmq closes it.  A descriptor that belongs to another peer by now is left alone."""
    try:
        link_socket = socket.socket(fileno=descriptor)
    except OSError:
        return
    try:
        if peer_name(link_socket) == peer:
            link_socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the link has ended already
    finally:
        link_socket.detach()


def peer_name(link_socket: socket.socket) -> str:
    """Return the peer's address, or the user on this host.  `OSError` if the link has ended."""
    if link_socket.family == socket.AF_UNIX:
        link_socket.getpeername()
        _, uid, _ = _CREDENTIALS.unpack(
            link_socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return f"{OF_USER}{uid}"
    address = link_socket.getpeername()
    if not isinstance(address, tuple):
        raise OSError("the link has ended, and its descriptor now belongs to a local socket")
    return str(address[0]).removeprefix("::ffff:")


def _name_here(link_socket: socket.socket) -> str:
    if link_socket.family == socket.AF_UNIX:
        return str(link_socket.getsockname())
    return str(link_socket.getsockname()[1]) if link_socket.family in (socket.AF_INET, socket.AF_INET6) else ""


def _local_name(endpoint: str) -> str:
    """Return the path, or the port, in the form of `_name_here`."""
    scheme, _, place = endpoint.partition("://")
    return place if scheme == "ipc" else place.rpartition(":")[2]


def _trim_heap() -> None:
    """Return freed memory from the C library to the kernel, so that the effect can be measured."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # another C library
