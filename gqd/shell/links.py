"""The links of a tcp door before anybody has said a word: how many there are, and which of them prove nothing.

Owns the bound on links, so that strangers who open them by the thousand leave descriptors for everybody else: at the
bound the kernel is told to drop what comes to the listening socket (a packet filter), until enough have gone.  Links
that stand are not touched, and who knocks meanwhile is let in when its own kernel tries again.  libzmq itself would
accept until there is no descriptor left, and then spin.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import struct
import time
from collections.abc import Callable

import zmq
from zmq.utils.monitor import parse_monitor_message

from gqd.shell.log import LOG

RESERVED_DESCRIPTORS = 512
"""For local clients, nodes of this host, and the databases."""
MAX_LINKS = 50_000
REOPEN_AT = 0.75
"""Of the bound."""
UNPROVEN_AGAIN_S = 3600.0
"""How often one host is told of whose links end without a proof: something may look at the port every minute."""
MAX_HOSTS = 1000
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""One instruction of classic BPF: return 0."""
_WATCHED = (
    zmq.EVENT_LISTENING
    | zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)

NO_CURVE = "it spoke no CURVE"
NO_PROOF = "it went, or was hung up on, before it proved a key"

Unproven = Callable[[str, str], None]
"""Told the address of a host whose link ended before it proved a key, and how."""


def links_per_door(descriptors: int, doors: int) -> int:
    """`descriptors` as of getrlimit: RLIM_INFINITY is negative."""
    room = MAX_LINKS if descriptors < 0 else (descriptors - RESERVED_DESCRIPTORS) // max(1, doors)
    return max(16, min(MAX_LINKS, room))


class Links:
    """Watches one socket from before it is bound until it is closed."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        watched: zmq.Socket[bytes],
        most: int,
        on_unproven: Unproven,
        on_shut: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._on_unproven = on_unproven
        self._on_shut = on_shut
        self._now = now
        self._open: dict[int, str] = {}
        """Descriptor → address of the host at the other end."""
        self._told_at: dict[str, float] = {}
        """By the address of a host whose links ended without a proof."""
        self._failed_how = ""
        self._listener: socket.socket | None = None
        self.is_shut = False
        endpoint = f"inproc://links-{id(self)}"
        watched.monitor(endpoint, _WATCHED)
        self._watched = watched
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.setsockopt(zmq.RCVHWM, 0)  # the thread of libzmq must never wait for this one
        self._events.connect(endpoint)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(int(self._events.getsockopt(zmq.FD)), self._read)
        self._loop.call_soon(self._read)

    @property
    def count(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Before the socket that is watched."""
        if self._events.closed:
            return
        self._loop.remove_reader(int(self._events.getsockopt(zmq.FD)))
        self._watched.disable_monitor()
        self._events.close(linger=0)
        if self._listener is not None:
            self._listener.close()

    # ── what libzmq tells ─────────────────────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        while not self._events.closed and int(self._events.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            told = parse_monitor_message(self._events.recv_multipart())
            self._take(int(told["event"]), int(told["value"]))

    def _take(self, event: int, value: int) -> None:
        if event == zmq.EVENT_LISTENING:
            self._listener = socket.socket(fileno=os.dup(value))
        elif event == zmq.EVENT_ACCEPTED:
            self._open[value] = _host_of(value)
            if len(self._open) >= self._most and not self.is_shut:
                self._shut()
        elif event == zmq.EVENT_DISCONNECTED:
            self._ended(self._open.pop(value, "an unknown address"))
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            self._failed_how = NO_CURVE
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._failed_how = NO_PROOF

    def _ended(self, host: str) -> None:
        """How a link failed is told just before it ends."""
        how, self._failed_how = self._failed_how, ""
        if how and (how == NO_CURVE or self._is_news(host)):
            self._on_unproven(host, how)
        if self.is_shut and len(self._open) <= self._most * REOPEN_AT:
            self._reopen()

    def _is_news(self, host: str) -> bool:
        now = self._now()
        if now - self._told_at.get(host, float("-inf")) < UNPROVEN_AGAIN_S:
            return False
        if len(self._told_at) >= MAX_HOSTS:
            self._told_at.clear()
        self._told_at[host] = now
        return True

    # ── the bound ─────────────────────────────────────────────────────────────────────────────────────────────

    def _shut(self) -> None:
        if self._listener is None:
            return
        program = ctypes.create_string_buffer(_DROP_ALL)
        try:
            self._listener.setsockopt(
                socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program))
            )
        except OSError as error:
            LOG.error("a tcp door has %d links and cannot be shut: %s", len(self._open), error.strerror)
            self._listener.close()
            self._listener = None  # and is not tried again: this is a matter of the machine
            return
        self.is_shut = True
        self._on_shut()
        LOG.warning("a tcp door has %d links and takes no more until some have gone", len(self._open))

    def _reopen(self) -> None:
        assert self._listener is not None
        self._listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        self.is_shut = False


def _host_of(descriptor: int) -> str:
    """The address at the other end of a descriptor of libzmq's, which is only looked at."""
    try:
        seen = socket.socket(fileno=descriptor)
    except OSError:
        return "an unknown address"
    try:
        return str(seen.getpeername()[0]).removeprefix("::ffff:")
    except OSError:
        return "an unknown address"
    finally:
        seen.detach()
