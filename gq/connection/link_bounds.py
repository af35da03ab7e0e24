"""The links of a listening ZeroMQ socket: how many there are, whose, and which of them have brought no message.

This module owns the bounds that keep descriptors and memory free for others when a peer opens thousands of links.
libzmq itself accepts until no descriptor is left; then its tcp listener spins and its ipc listener ends the process.

* One peer (an address; on this host, a user) may have a fraction of all links. For each further link, the peer's
  oldest link without a message is closed, so that an honest process at the same address can still connect.
* A link that brings no message may have a time limit. It applies where unknown peers may connect (MUNGE) and on the
  sockets of this host.
* A user of this host who continues to open links beyond the bound is blocked by the kernel for a minute
  (`gq.connection.user_block`), because libzmq accepts links faster than Python closes them.
* At the bound of all links, a packet filter drops a tcp listener's new connections until enough links have ended;
  the peer's kernel tries again by itself. On a socket of this host, the user with most links loses a link instead.

Links that have brought a message are closed only in that last case, and when their user is blocked.
"""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import zmq

from gq.connection.memory_guard import OF_USER, Timer, hang_up, peer_name
from gq.connection.user_block import BLOCK_S, UserBlock

V = TypeVar("V")

RESERVED_DESCRIPTORS = 512
"""Descriptors for nodes of this host, and the databases."""
SHARE_OF_HOST = 4
"""Divisor: the fraction of a tcp listener's links that one address may have."""
SHARE_OF_USER = 16
"""Divisor: the fraction of the descriptors that one user's links may have on this host."""
MAX_LINKS = 50_000
MAX_LINKS_OF_USER = 2048
SILENCE_S = 30.0
"""Time within which a link of this host must bring a message: every client sends a request at once."""
BLOCK_WINDOW_S = 10.0
"""A user who, within this time, opens as many links beyond the bound as the bound allows is blocked."""
REOPEN_AT = 0.75
"""Fraction of the bound at which a listener that was shut opens again."""
UNPROVEN_AGAIN_S = 3600.0
"""Minimum interval between reports about one host's unproven links: a scanner may probe the port every minute."""
MAX_HOSTS = 1000
MAX_BURST = 128
"""Events taken before the loop gets a chance to do something else."""
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_EVENT = struct.Struct("=hi")
"""The event, and a number: mostly a descriptor."""
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A program of classic BPF with one instruction: return 0."""
_WATCHED = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
"""EVENT_HANDSHAKE_FAILED_PROTOCOL must not be among them: reporting it may change errno before libzmq looks at errno,
and libzmq then takes a forged message for one that must wait, and keeps the link and its descriptor."""

UNKNOWN = "an unknown address"
NO_CURVE = "it did not use CURVE, or disconnected before it sent anything"
NO_PROOF = "it disconnected, or was disconnected, before it proved a key"
NO_WORD = "it did not identify its key in time"
SWEEP_S = 1.0
MAX_UNPROVEN = 8
"""Messages that a link may bring before one of them must prove a key."""

Unproven = Callable[[str, str], None]
"""Called with the address of a host whose link ended before it proved a key, and how it ended."""


def links_per_listener(descriptors: int, listeners: int, backlog: int) -> int:
    """Return the maximum number of links of one tcp listener, from getrlimit's `descriptors` (RLIM_INFINITY is
    negative).

    Half of the descriptors are left to the clients of this host.  A listener that is shut still accepts the links in
    its backlog.
    """
    room = MAX_LINKS if descriptors < 0 else (descriptors // 2 - RESERVED_DESCRIPTORS) // max(1, listeners) - backlog
    return max(16, min(MAX_LINKS, room))


def links_per_user(descriptors: int) -> int:
    """Return one user's maximum; at libzmq's 23 KiB for an idle link, one user's links cost at most about 50 MiB."""
    return MAX_LINKS_OF_USER if descriptors < 0 else max(32, min(MAX_LINKS_OF_USER, descriptors // SHARE_OF_USER))


class Bounds(NamedTuple):
    """The maximum numbers of a socket's links."""

    all: int
    peer: int
    """Links of one peer."""
    silent: int = MAX_LINKS
    """Links of one peer that have brought no message."""
    proof_s: float | None = None
    """Seconds within which a link must bring a message; None: no limit."""


def local_bounds(descriptors: int) -> Bounds:
    """Return the bounds for a socket of this host open to all users; `descriptors` as in `links_per_listener`."""
    of_user = links_per_user(descriptors)
    in_all = MAX_LINKS if descriptors < 0 else max(of_user, min(MAX_LINKS, descriptors // 4))
    return Bounds(in_all, of_user, silent=max(16, of_user // 4), proof_s=SILENCE_S)


class Loop(Protocol):
    """The methods of an event loop that `Links` needs; an event loop of asyncio has them."""

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> object: ...

    def remove_reader(self, fd: int, /) -> object: ...

    def call_soon(self, callback: Callable[[], None], /) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer: ...


@dataclass(slots=True)
class _Silence:
    """The state of a link that has proved no key."""

    since: float
    unproven: int = 0


@dataclass(slots=True)
class _Crowd:
    """The links that a user opened beyond the bound since an instant."""

    since: float
    count: int = 0


class Links:
    """Watches one socket from before it is bound until it is closed."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        watched: zmq.Socket[bytes],
        bounds: Bounds,
        loop: Loop,
        log: logging.Logger,
        on_unproven: Unproven,
        on_crowd: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = bounds
        self._loop = loop
        self._log = log
        self._on_unproven = on_unproven
        self._on_crowd = on_crowd
        self._now = now
        self._open: dict[int, str] = {}
        """Descriptor → name of the peer."""
        self._of_peer: dict[str, dict[int, None]] = {}
        """Name of the peer → descriptors, without links that were disconnected."""
        self._silent: dict[str, dict[int, _Silence]] = {}
        """Name of the peer → its open links without a valid message, the oldest first."""
        self._reported_at: dict[str, float] = {}
        """Address of a host with unproven links → when it was reported last."""
        self._failed_how = ""
        self._listener: socket.socket | None = None
        self.is_shut = False
        self.times_shut = 0
        endpoint = f"inproc://links-{id(self)}"
        watched.monitor(endpoint, _WATCHED)
        self._watched = watched
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.setsockopt(zmq.RCVHWM, 0)  # libzmq's thread must never wait for this thread
        self._events.connect(endpoint)
        self._loop.add_reader(int(self._events.getsockopt(zmq.FD)), self._read)
        self._loop.call_soon(self._read)
        self._crowds: dict[str, _Crowd] = {}
        """Users of this host who opened links beyond their bound."""
        self._user_block: UserBlock | None = None
        """The access list of a socket of this host, once it listens."""
        self._sweeping: Timer | None = None
        if bounds.proof_s is not None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def has_proof_limit(self) -> bool:
        """Whether a link may bring no valid message for a while."""
        return self._bounds.proof_s is not None

    @property
    def silent_count(self) -> int:
        return sum(len(links) for links in self._silent.values())

    def record_proof(self, frame: zmq.Frame) -> None:
        """Record a valid message: its link has proved its key."""
        descriptor = int(frame.get(zmq.SRCFD))
        self._silent.get(self._open.get(descriptor, ""), {}).pop(descriptor, None)

    def is_silent(self, frame: zmq.Frame) -> bool:
        """Whether the frame's link has proved nothing so far."""
        return self._silence(frame) is not None

    def count_unproven(self, frame: zmq.Frame) -> None:
        """Count a message that proves nothing; a link that brings too many is disconnected."""
        silence = self._silence(frame)
        if silence is not None:
            silence.unproven += 1
            if silence.unproven >= MAX_UNPROVEN:
                self.hang_up(frame)

    def hang_up(self, frame: zmq.Frame) -> None:
        """Disconnect the frame's link."""
        descriptor = int(frame.get(zmq.SRCFD))
        peer = self._open.get(descriptor)
        if peer is not None:
            self._disconnect(descriptor, peer)

    def _silence(self, frame: zmq.Frame) -> _Silence | None:
        descriptor = int(frame.get(zmq.SRCFD))
        return self._silent.get(self._open.get(descriptor, ""), {}).get(descriptor)

    def close(self) -> None:
        """Stop watching; call it before the watched socket is closed."""
        if self._events.closed:
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._loop.remove_reader(int(self._events.getsockopt(zmq.FD)))
        self._watched.disable_monitor()
        self._events.close(linger=0)
        if self._listener is not None:
            self._listener.close()

    # ── libzmq's events ───────────────────────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        """Handle one burst of events: ten thousand simultaneous links must not block the loop."""
        for _ in range(MAX_BURST):
            if self._events.closed:
                return
            try:
                event = self._events.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._events.recv()  # the listener's own endpoint
            self._take(*_EVENT.unpack(event))
        self._loop.call_soon(self._read)

    def _take(self, event: int, value: int) -> None:
        if event == zmq.EVENT_LISTENING:
            self._listens(socket.socket(fileno=os.dup(value)))
        elif event == zmq.EVENT_ACCEPTED:
            self._accepted(value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._ended(value)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._failed_how = NO_PROOF

    def _accepted(self, descriptor: int) -> None:
        peer = _peer_of(descriptor)
        self._open[descriptor] = peer
        self._of_peer.setdefault(peer, {})[descriptor] = None
        self._silent.setdefault(peer, {})[descriptor] = _Silence(self._now())
        if self._is_crowd(peer):
            self._disconnect(next(iter(self._silent[peer])), peer)  # not empty: this link is new
            self._on_crowd(peer)
            self._count_crowd(peer)
        if len(self._open) >= self._bounds.all and not self.is_shut:
            self._make_room()

    def _listens(self, listener: socket.socket) -> None:
        self._listener = listener
        if listener.family == socket.AF_UNIX:
            self._user_block = UserBlock(str(listener.getsockname()), self._loop.call_later)

    def _count_crowd(self, peer: str) -> None:
        """Block a user who continues to open links, however many are disconnected."""
        if self._user_block is None or not peer.startswith(OF_USER):
            return
        now = self._now()
        crowd = self._crowds.get(peer)
        if crowd is None or now - crowd.since > BLOCK_WINDOW_S:
            if len(self._crowds) >= MAX_HOSTS:
                self._crowds.clear()
            crowd = self._crowds[peer] = _Crowd(now)
        crowd.count += 1
        if crowd.count >= self._bounds.peer:
            del self._crowds[peer]
            self._log.warning("%s keeps opening links beyond the limit and is blocked for %g s", peer, BLOCK_S)
            self._user_block.block(int(peer.removeprefix(OF_USER)))

    def _is_crowd(self, peer: str) -> bool:
        bounds = self._bounds
        is_over = len(self._of_peer[peer]) > bounds.peer or len(self._silent[peer]) > bounds.silent
        return is_over and peer != UNKNOWN

    def _disconnect(self, descriptor: int, peer: str) -> None:
        self._forget(descriptor, peer)
        hang_up(descriptor, peer)
        self._is_news(peer)  # do not report the end of the peer's links

    def _sweep(self) -> None:
        """Hang up on the links that brought no message in time."""
        assert self._bounds.proof_s is not None
        before = self._now() - self._bounds.proof_s
        for peer, links in list(self._silent.items()):
            late = [descriptor for descriptor, silence in links.items() if silence.since < before]
            for descriptor in late:
                self._disconnect(descriptor, peer)
            if late:
                self._on_unproven(peer, NO_WORD)
        self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    def _forget(self, descriptor: int, peer: str) -> None:
        _drop(self._of_peer, peer, descriptor)
        _drop(self._silent, peer, descriptor)

    def _ended(self, descriptor: int) -> None:
        """Handle the end of a link; libzmq reports a failed handshake just before it."""
        peer = self._open.pop(descriptor, UNKNOWN)
        was_silent = descriptor in self._silent.get(peer, {})
        self._forget(descriptor, peer)
        how, self._failed_how = self._failed_how or (NO_CURVE if was_silent else ""), ""
        if how and self._is_news(peer):
            self._on_unproven(peer, how)
        if self.is_shut and len(self._open) <= self._bounds.all * REOPEN_AT:
            self._reopen()

    def record_rejection(self, host: str) -> None:
        """Record that a link of the host is about to end for a reason that has been reported."""
        self._is_news(host)

    def _is_news(self, host: str) -> bool:
        now = self._now()
        if now - self._reported_at.get(host, float("-inf")) < UNPROVEN_AGAIN_S:
            return False
        if len(self._reported_at) >= MAX_HOSTS:
            self._reported_at.clear()
        self._reported_at[host] = now
        return True

    # ── the bound ─────────────────────────────────────────────────────────────────────────────────────────────

    def _make_room(self) -> None:
        if self._user_block is None:
            self._shut()
            return
        greediest = max(self._of_peer, key=lambda peer: len(self._of_peer[peer]), default=UNKNOWN)
        links = self._silent.get(greediest) or self._of_peer.get(greediest, {})
        if links:
            self._disconnect(next(iter(links)), greediest)
            self._on_crowd(greediest)

    def _shut(self) -> None:
        if self._listener is None:
            return
        program = ctypes.create_string_buffer(_DROP_ALL)
        try:
            self._listener.setsockopt(
                socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program))
            )
        except OSError as error:
            self._log.error("a tcp listener has %d links and cannot be closed: %s", len(self._open), error.strerror)
            self._listener.close()
            self._listener = None  # not tried again: the machine does not support it
            return
        self.is_shut = True
        self.times_shut += 1
        self._log.warning("a tcp listener has %d links and accepts no more until some have closed", len(self._open))

    def _reopen(self) -> None:
        assert self._listener is not None
        self._listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        self.is_shut = False


def _drop(table: dict[str, dict[int, V]], peer: str, descriptor: int) -> None:
    links = table.get(peer, {})
    links.pop(descriptor, None)
    if not links:
        table.pop(peer, None)


def _peer_of(descriptor: int) -> str:
    """Return the peer's address, or the user on this host, for a descriptor of libzmq's, which is only inspected."""
    try:
        peer_socket = socket.socket(fileno=descriptor)
    except OSError:
        return UNKNOWN
    try:
        return peer_name(peer_socket)
    except OSError:
        return UNKNOWN
    finally:
        peer_socket.detach()
