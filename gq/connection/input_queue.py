"""Messages read from a socket and not yet handled, by peer.

The queue bounds the messages of each peer of a ROUTER: a peer beyond the bound is disconnected, and its further
messages are dropped.  A user of this host is also blocked for a while, since libzmq accepts messages ten times faster
than they can be dropped.

libzmq must have no bound of its own there (`make_boundless`).  When a link ends while some of its messages wait at
ZMQ_RCVHWM, libzmq 4.3 ends the *process* at a PING among them, or at the link's next heartbeat (``Assertion failed:
!_io_error``, zeromq/libzmq issue 4364), so that anybody who may connect could end a daemon.  So all messages are read
at once, and wait here; and no socket of gq uses libzmq's heartbeats (`gq.connection.curve.detect_lost_peer`).

Peers may not choose their routing ids either: libzmq would never read the link of a second peer with the same id, and
keep its messages until the socket is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import zmq

from gq.connection.memory_guard import OF_USER, Timer, hang_up
from gq.connection.user_block import UserBlock

MAX_READ = 2048
"""Messages read before the loop gets a chance to do something else."""
MAX_DROPPED = 16_384
"""Messages of disconnected peers that are dropped before the loop gets a chance to do something else."""
MAX_WAITING = 4096
"""Maximum for one link; a client that waits for its answers has far fewer in flight."""

Socket = zmq.Socket[bytes]


class Message(NamedTuple):
    """A message; `peer`: the routing id on a ROUTER, else empty."""

    peer: bytes
    frame: zmq.Frame


class InputQueue:
    """The input queue of a socket that is bound or connected, and has not been read.

    `on_malformed` is called for a message with another number of frames, or from a link older than ZMTP 3.  `on_flood`
    is called with the name of a disconnected peer: an address, or ``uid 1000``; the peer that a socket connected to is
    trusted.  `call_later`: an event loop's.
    """

    def __init__(
        self,
        socket: Socket,
        on_malformed: Callable[[], None],
        on_flood: Callable[[str], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._socket = socket
        self._on_malformed = on_malformed
        self._on_greedy = on_flood
        self._max_waiting = max_waiting
        self._is_router = socket.getsockopt(zmq.TYPE) == zmq.ROUTER
        self._waiting: deque[tuple[bytes, zmq.Frame | None]] = deque()
        """(peer, frame); None: a message with another number of frames."""
        self._waiting_of: dict[bytes, int] = {}
        """Peer → its number of waiting messages."""
        self._read_count: dict[bytes, int] = {}
        """Peer → messages read since the socket was last empty; libzmq may hold more of them."""
        self._disconnected: set[bytes] = set()
        """Disconnected peers, until the socket is empty."""
        self._user_block = UserBlock(_path(socket), call_later)
        if self._is_router:
            _assign_routing_ids(socket)

    def __len__(self) -> int:
        return len(self._waiting)

    def read(self) -> bool:
        """Read from the socket; True: there may be more."""
        taken = dropped = 0
        while taken < MAX_READ and dropped < MAX_DROPPED:
            try:
                peer = self._socket.recv(zmq.NOBLOCK) if self._is_router else b""
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._read_count.clear()
                self._disconnected.clear()
                return False
            is_single = not frame.more
            if not is_single:
                self._skip_rest()
            if peer in self._disconnected:
                dropped += 1
            elif self._is_router and not _has_source(frame):
                dropped += 1
                self._on_malformed()
            else:
                taken += 1
                self._add(peer, frame, is_single)
        return True

    def hand_on(self, receive: Callable[[bytes, zmq.Frame], None], may: Callable[[], bool], max_messages: int) -> bool:
        """Read, and pass up to `max_messages` to `receive` while `may` permits; True: there may be more."""
        has_more = self.read()
        for _ in range(max_messages):
            message = self.take() if may() else None
            if message is None:
                return has_more
            receive(*message)
        return True

    def take(self) -> Message | None:
        """Remove and return the oldest message; None: the queue is empty."""
        while self._waiting:
            peer, frame = self._waiting.popleft()
            self._waiting_of[peer] -= 1
            if not self._waiting_of[peer]:
                del self._waiting_of[peer]
            if frame is not None:
                return Message(peer, frame)
            self._on_malformed()
        return None

    def _skip_rest(self) -> None:
        while self._socket.recv(copy=False).more:
            pass

    def _add(self, peer: bytes, frame: zmq.Frame, is_single: bool) -> None:
        read_count = self._read_count[peer] = self._read_count.get(peer, 0) + 1
        waiting = self._waiting_of.get(peer, 0) + 1
        if self._is_router and max(read_count, waiting) > self._max_waiting:
            self._disconnect(peer, frame)
            return
        self._waiting_of[peer] = waiting
        self._waiting.append((peer, frame if is_single else None))

    def _disconnect(self, peer: bytes, frame: zmq.Frame) -> None:
        self._disconnected.add(peer)
        name = sender(frame)
        hang_up(int(frame.get(zmq.SRCFD)), name)
        if name.startswith(OF_USER):
            self._user_block.block(int(name.removeprefix(OF_USER)))
        self._on_greedy(name)


def make_boundless(socket: Socket) -> None:
    """Remove libzmq's bound, before the socket is bound or connected; its reader uses an `InputQueue`, or trusts the
    peer."""
    socket.setsockopt(zmq.RCVHWM, 0)


def sender(frame: zmq.Frame) -> str:
    """Return the name of the peer that sent a frame, as `peer_name` does."""
    ids = credentials(frame)
    return str(frame.get("Peer-Address")).removeprefix("::ffff:") if ids is None else f"{OF_USER}{ids[0]}"


def credentials(frame: zmq.Frame) -> tuple[int, int] | None:
    """Return (uid, gid) of the peer process of an ipc link from the kernel; None: the kernel has none."""
    try:
        _, uid, gid, _ = str(frame.get("Peer-Address")).split(":")
        return int(uid), int(gid)
    except (zmq.ZMQError, ValueError):
        return None


def _has_source(frame: zmq.Frame) -> bool:
    """Whether libzmq knows the frame's link; it does not for links of ZMTP 1 and 2, which gq never speaks."""
    try:
        frame.get(zmq.SRCFD)
    except zmq.ZMQError:
        return False
    return True


def _assign_routing_ids(socket: Socket) -> None:
    """Make libzmq assign routing ids to new peers.  The second line reverts the first one's effect on frames, but not
    on ids; links of this socket speak ZMTP as before, since it was bound before."""
    socket.setsockopt(zmq.ROUTER_RAW, 1)
    socket.setsockopt(zmq.ROUTER_RAW, 0)


def _path(socket: Socket) -> str:
    """Return the path at which the socket is bound on this host; empty: it has none."""
    endpoint = str(socket.get_string(zmq.LAST_ENDPOINT)).rstrip("\0")
    return endpoint.removeprefix("ipc://") if endpoint.startswith("ipc://") else ""
