"""The link of `gqrun` to one node's step listener, with the streams received and the events still due.

It owns the socket and the positions of every stream, so that a link that was lost and is made again goes on where it
stopped: no byte is lost or comes twice.  It decides nothing about the step as a whole.
"""

from __future__ import annotations

import msgspec
import zmq

from gq.connection.curve import detect_lost_peer, is_ipv6
from gq.errors import ProtocolError
from gq.model.ids import StepId
from gq.model.step import StepNode
from gq.wire import step as wire

_REOPEN_S = 0.1
"""Delay between attempts to reach a listener that does not answer."""
_TCP_CONNECT_S = 3.0
"""How long a link over the network may take to come up."""
_ATTACH_AGAIN_S = 5.0
"""Interval at which `Attach` is repeated on a link without an answer."""
_NOT_YET_S = 0.05
_LOST_AFTER_S = 15
"""A node that acknowledges nothing for this many seconds counts as lost."""
_BATCH = 256
"""Messages read from one link before other links are served."""

Stream = tuple[int, str]


class StepLink:
    """The link to the node that runs one part of a step."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], node: StepNode, attach: wire.Attach) -> None:
        self.node = node
        self.name = node.part.node
        self.ranks = node.part.ranks
        self.step_id: StepId = attach.step_id
        self.exits: dict[int, wire.TaskExited] = {}
        self.is_attached = False
        self.failure: wire.StepRefused | None = None
        """Why this link will never bring its tasks."""
        self.stdin_taken = 0
        self.stdin_sent = 0
        self.is_stdin_closed = False
        self._context = context
        self._attach = attach
        self._socket: zmq.Socket[bytes] | None = None
        self._opened_at = 0.0
        self._attach_at = 0.0
        """When to send `Attach` (again)."""
        self._was_linked = False
        self._down_since: float | None = None
        self._positions: dict[Stream, int] = {}
        self._unacknowledged: set[Stream] = set()
        self._signals: list[int] = []
        """Signals requested before the tasks could be reached."""

    @property
    def is_over(self) -> bool:
        """Whether every task on this node has ended, or can no longer be reached."""
        return self.failure is not None or len(self.exits) == len(self.ranks)

    @property
    def socket(self) -> zmq.Socket[bytes] | None:
        return self._socket

    @property
    def polls_for(self) -> int:
        """Events to poll for; a link that comes up becomes writable."""
        return zmq.POLLIN if self._was_linked else zmq.POLLIN | zmq.POLLOUT

    def down_for(self, now: float) -> float:
        """Return the seconds since this link was last attached (or first tried)."""
        return 0.0 if self._down_since is None else now - self._down_since

    # ── the link ──────────────────────────────────────────────────────────────────────────────────────────────

    def keep_up(self, now: float) -> None:
        """Open the link and attach over it as needed."""
        if self._socket is None:
            self._open(now)
        elif self._is_linked():
            self._was_linked = True
            if not self.is_attached and now >= self._attach_at:
                self._attach_at = now + _ATTACH_AGAIN_S
                self._send_attach()
        elif self._was_linked or now - self._opened_at >= self._patience_s:
            self._hang_up(now)
            self._open(now)

    @property
    def _patience_s(self) -> float:
        return _REOPEN_S if self.node.endpoint.startswith("ipc:") else _TCP_CONNECT_S

    def _open(self, now: float) -> None:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # writable only while linked: that is how a lost link shows
        socket.setsockopt(zmq.RECONNECT_IVL, -1)  # a new link is a new socket: it must attach first
        socket.setsockopt(zmq.RCVHWM, 0)  # the node keeps to its window
        socket.setsockopt(zmq.SNDHWM, 0)
        if self.node.public_key:
            public, secret = zmq.curve_keypair()
            socket.setsockopt(zmq.IPV6, int(is_ipv6(self.node.endpoint)))
            socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
            socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
            socket.setsockopt(zmq.CURVE_SERVERKEY, self.node.public_key.encode())
            detect_lost_peer(socket, _LOST_AFTER_S)
        socket.connect(self.node.endpoint)
        self._socket = socket
        self._opened_at = now
        self._attach_at = now
        self._was_linked = False
        if self._down_since is None and not self.is_attached:
            self._down_since = now

    def _hang_up(self, now: float) -> None:
        assert self._socket is not None
        self._socket.close(linger=0)
        self._socket = None
        self.stdin_sent = self.stdin_taken
        if self.is_attached:
            self._down_since = now
        self.is_attached = False

    def _is_linked(self) -> bool:
        assert self._socket is not None
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def _send_attach(self) -> None:
        received = tuple(
            wire.StreamPosition(rank, stream, offset) for (rank, stream), offset in self._positions.items()
        )
        self._send(msgspec.structs.replace(self._attach, received=received))

    def close(self) -> None:
        """Send `Detach`, so that the node drops the data that it kept for this client."""
        if self._socket is not None:
            if self.is_attached:
                self._send(wire.Detach(step_id=self.step_id))
            self._socket.close(linger=500)
            self._socket = None

    # ── what comes ────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, now: float) -> list[wire.FromDoor]:
        """Return the new messages: repeated bytes are removed, refusals are noted."""
        news: list[wire.FromDoor] = []
        for _ in range(_BATCH):
            assert self._socket is not None
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            fresh = self._fresh(wire.FROM_DOOR.decode(frame), now)
            if fresh is not None:
                news.append(fresh)
        self._acknowledge()
        return news

    def _fresh(self, message: wire.FromDoor, now: float) -> wire.FromDoor | None:
        match message:
            case wire.Attached():
                self._on_attached()
                return message
            case wire.StepRefused(code="not_yet"):
                self._attach_at = now + _NOT_YET_S
                return None
            case wire.StepRefused():
                self.failure = message
                return message
            case wire.Output():
                return self._unseen_part(message)
            case wire.StdinTaken():
                self.stdin_taken = max(self.stdin_taken, message.offset)
                return None
            case wire.TaskExited():
                is_news = message.rank in self.ranks and message.rank not in self.exits
                self.exits[message.rank] = message
                return message if is_news else None
            case _:
                return message

    def _on_attached(self) -> None:
        """Note that the tasks can be reached; the node's probes repeat this message."""
        if self.is_attached:
            return
        self.is_attached = True
        self._down_since = None
        self.stdin_sent = self.stdin_taken
        waiting, self._signals = self._signals, []
        for signum in waiting:
            self.signal(signum)

    def _unseen_part(self, output: wire.Output) -> wire.Output | None:
        """Return the part of this output that has not been received before."""
        key = (output.rank, output.stream)
        position = self._positions.get(key, 0)
        if output.offset > position or output.rank not in self.ranks or output.stream not in ("stdout", "stderr"):
            raise ProtocolError("bad_output", f"node {self.name} skipped output of task {output.rank}")
        self._unacknowledged.add(key)
        data = output.data[position - output.offset :]
        self._positions[key] = position + len(data)
        if not data and not output.eof:
            return None
        return msgspec.structs.replace(output, offset=position, data=data)

    def _acknowledge(self) -> None:
        if not self._unacknowledged:
            return
        positions = tuple(wire.StreamPosition(*key, self._positions[key]) for key in sorted(self._unacknowledged))
        self._unacknowledged.clear()
        self._send(wire.Received(step_id=self.step_id, positions=positions))

    # ── what goes ─────────────────────────────────────────────────────────────────────────────────────────────

    def signal(self, signum: int) -> None:
        """Signal the tasks on this node, as soon as they can be reached."""
        if self.is_attached:
            self._send(wire.SignalTasks(step_id=self.step_id, signum=signum))
        else:
            self._signals.append(signum)

    def resize(self, size: wire.WindowSize) -> None:
        if self.is_attached:
            self._send(wire.Resize(step_id=self.step_id, size=size))

    def send_stdin(self, offset: int, data: bytes, eof: bool) -> None:
        self._send(wire.Stdin(step_id=self.step_id, offset=offset, data=data, eof=eof))
        self.stdin_sent = offset + len(data)

    def _send(self, message: wire.ToDoor) -> None:
        """Send the message; if the link was just lost, attaching again repairs the loss."""
        assert self._socket is not None
        try:
            self._socket.send(wire.TO_DOOR.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            pass
