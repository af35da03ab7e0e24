"""The step listener: `gqrun` starts tasks on this node and gets their output here, and `gqlog` reads files.

It owns the clients and which step each client leads.  A step is opened by its key, a file by a ticket that the
controller sealed for this run of the daemon; other messages are dropped.  Bytes pass through: unacknowledged bytes are
kept by the shepherd, so nothing is buffered here and a lost client loses nothing.

On the host's local socket the kernel also authenticates the user: then a key or a ticket is valid only for its owner
and for root.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, assert_never

import zmq

from gq.connection.curve import KeyPair
from gq.connection.loop_socket import Context
from gq.errors import GqError, ProtocolError
from gq.model.ids import AttemptId, StepId
from gq.wire import step as wire
from gqnode.daemon.host_listener import cells_for
from gqnode.daemon.sockets import listen_ipc, listen_tcp, peer_uid

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Maximum message size; an `Attach` carries an environment."""
MAX_LOG_BYTES = 1024 * 1024
MAX_LOG_READS = 64
"""Files read at once for all clients; further requests are refused, and the clients repeat them."""
MAX_LOG_READS_EACH = 16
"""Files read at once for one user."""
PROBE_S = 10.0
"""Interval between checks whether the clients are still connected."""

ToTasks = wire.Stdin | wire.Resize | wire.SignalTasks | wire.Received | wire.Detach
FromTasks = wire.TaskStarted | wire.Output | wire.StdinTaken | wire.TaskExited


class StepHandler(Protocol):
    """The daemon's functions that the step listener calls."""

    def attach(self, attach: wire.Attach, is_first: bool) -> None:
        """Start the tasks at the first attach and send the client the events that it lacks.

        → `StepListener.confirm_attached`, or `StepListener.refuse_client`
        """
        ...

    def on_task_message(self, message: ToTasks) -> None: ...

    def client_lost(self, step_id: StepId) -> None: ...

    async def read_file(self, path: str, offset: int, max_bytes: int, uid: int) -> wire.LogData:
        """Read a file with this user's permissions; `OSError`, or `GqError` if the user cannot be resolved."""
        ...

    def cells(self, uid: int) -> tuple[wire.CellPlace, ...]:
        """Return the cells of this user's attempts that run here."""
        ...


@dataclass(slots=True)
class _Step:
    key: bytes
    uid: int
    """Owner of the step."""
    client: bytes | None = None
    is_begun: bool = False
    """Whether a client has attached before."""
    lost_at: float | None = None


class StepListener:
    """Serves the clients of steps; `keys` is for a tcp endpoint, `ticket_key` seals log tickets.

    ``may_be_shared``: all users of this host may connect, and are served once the controller has said that the cluster
    is shared (`share`).
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        keys: KeyPair | None,
        ticket_key: bytes,
        handler: StepHandler,
        wall: Callable[[], float],
        owner_uids: tuple[int, ...],
        client_lost_s: float,
        probe_s: float = PROBE_S,
        may_be_shared: bool = False,
    ) -> None:
        self._ticket_key = ticket_key
        self._handler = handler
        self._wall = wall
        self._owner_uids = owner_uids
        self._probe_s = probe_s
        self._client_lost_s = client_lost_s
        self._is_local = endpoint.startswith("ipc://")
        self._is_shared = False
        self._loop = asyncio.get_running_loop()
        self._steps: dict[StepId, _Step] = {}
        self._reads: dict[asyncio.Task[None], int] = {}
        """Running file reads and the user of each."""
        self.dropped = 0
        """Count of dropped messages: unauthorised or malformed."""
        if self._is_local:
            self._socket = listen_ipc(context, endpoint, MAX_MESSAGE_BYTES, self._on_frame, is_for_all=may_be_shared)
        else:
            assert keys is not None, "a door on tcp has a key"
            self._socket = listen_tcp(context, endpoint, MAX_MESSAGE_BYTES, self._on_frame, keys)
        self._probe_timer = self._loop.call_later(self._probe_s, self._probe)

    def close(self) -> None:
        self._probe_timer.cancel()
        for task in self._reads:
            task.cancel()
        self._socket.close(linger_s=0.2)

    # ── what the daemon tells ─────────────────────────────────────────────────────────────────────────────────

    def share(self, is_shared: bool) -> None:
        """Set whether users other than the daemon's own and root are served."""
        self._is_shared = is_shared

    def expect(self, step_id: StepId, key: bytes, uid: int, is_begun: bool) -> None:
        """Admit the step's client; `is_begun`: its tasks were started before the daemon restarted.

        The client may attach again until it sends `Detach`, also after the step's end: it may lack output.
        """
        self._steps.setdefault(step_id, _Step(key, uid, is_begun=is_begun))

    def forget(self, step_id: StepId) -> None:
        self._steps.pop(step_id, None)

    def forget_attempt(self, attempt_id: AttemptId) -> None:
        for step_id in [step_id for step_id in self._steps if step_id.attempt_id == attempt_id]:
            del self._steps[step_id]

    def confirm_attached(self, step_id: StepId) -> None:
        """Tell the client that the tasks are reachable."""
        self._send_to_client(step_id, wire.Attached(step_id=step_id))

    def refuse_client(self, step_id: StepId, code: str, why: str) -> None:
        self._send_to_client(step_id, wire.StepRefused(code=code, message=why))

    def forward_to_client(self, message: FromTasks) -> None:
        """Send the event to the client, if it is connected; otherwise it is sent again when it attaches."""
        self._send_to_client(message.step_id, message)

    def _send_to_client(self, step_id: StepId, message: wire.FromDoor) -> None:
        step = self._steps.get(step_id)
        if step is not None and step.client is not None and not self._send(step.client, message):
            self._lose_client(step)

    def _lose_client(self, step: _Step) -> None:
        step.client = None
        step.lost_at = self._loop.time()

    def _send(self, peer: bytes, message: wire.FromDoor) -> bool:
        return self._socket.send(wire.FROM_DOOR.encode(message), peer)

    def _probe(self) -> None:
        """Send to each client, since only that reveals a lost link; a client away too long has left its step."""
        self._probe_timer = self._loop.call_later(self._probe_s, self._probe)
        now = self._loop.time()
        for step_id, step in tuple(self._steps.items()):
            if step.client is not None:
                self._send_to_client(step_id, wire.Attached(step_id=step_id))
            elif step.lost_at is not None and now - step.lost_at > self._client_lost_s:
                del self._steps[step_id]
                self._handler.client_lost(step_id)

    # ── what clients say ──────────────────────────────────────────────────────────────────────────────────────

    def _on_frame(self, peer: bytes, frame: zmq.Frame) -> None:
        uid = peer_uid(frame) if self._is_local else None
        if self._is_local and not self._is_served(uid):
            self.dropped += 1
            return
        try:
            message = wire.TO_DOOR.decode(frame.buffer)
        except ProtocolError:
            self.dropped += 1
            return
        match message:
            case wire.Attach():
                self._attach(peer, message, uid)
            case wire.OpenLog():
                self._open_log(peer, message, uid)
            case wire.FindCells():
                self._send(peer, cells_for(self._handler, message.uid, uid))
            case wire.Stdin() | wire.Resize() | wire.SignalTasks() | wire.Received() | wire.Detach():
                self._forward_to_tasks(peer, message)
            case _:
                assert_never(message)

    def _is_served(self, uid: int | None) -> bool:
        return uid is not None and (self._is_shared or uid in self._owner_uids)

    def _may_access(self, uid: int | None, owner_uid: int) -> bool:
        """Whether the user may access what belongs to `owner_uid`; on tcp the key or ticket alone decides."""
        return not self._is_local or uid == owner_uid or uid in self._owner_uids

    def _attach(self, peer: bytes, attach: wire.Attach, uid: int | None) -> None:
        step = self._steps.get(attach.step_id)
        if step is None:
            self._refuse(peer, "not_yet", f"step {attach.step_id} is not known on this node yet")
        elif not self._may_access(uid, step.uid):
            self.dropped += 1
            self._refuse(peer, "not_owner", f"step {attach.step_id} belongs to another user")
        elif not hmac.compare_digest(step.key, attach.key):
            self.dropped += 1
            self._refuse(peer, "wrong_key", f"this key is not valid for step {attach.step_id}")
        else:
            is_first = not step.is_begun
            step.client, step.is_begun, step.lost_at = peer, True, None
            self._handler.attach(attach, is_first)

    def _refuse(self, peer: bytes, code: str, why: str) -> None:
        self._send(peer, wire.StepRefused(code=code, message=why))

    def _forward_to_tasks(self, peer: bytes, message: ToTasks) -> None:
        step = self._steps.get(message.step_id)
        if step is None or step.client != peer:
            self.dropped += 1
            return
        if isinstance(message, wire.Detach):
            del self._steps[message.step_id]
        self._handler.on_task_message(message)

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_log(self, peer: bytes, asked: wire.OpenLog, uid: int | None) -> None:
        try:
            ticket = wire.unseal(asked.ticket, self._ticket_key)
        except ProtocolError as error:
            self.dropped += 1
            self._refuse(peer, error.code, error.message)
            return
        reads_of_user = sum(read == ticket.uid for read in self._reads.values())
        if ticket.expires_at < self._wall():
            self._refuse(peer, "ticket_expired", "the ticket has expired; ask the controller for another")
        elif not self._may_access(uid, ticket.uid):
            self.dropped += 1
            self._refuse(peer, "not_owner", "the ticket was made for another user")
        elif len(self._reads) >= MAX_LOG_READS or reads_of_user >= MAX_LOG_READS_EACH:
            self._refuse(peer, "busy", "too many log files are being read from this node")
        elif asked.offset < 0 or asked.max_bytes < 1:
            self._refuse(peer, "bad_range", "an offset is at least 0, a size at least 1")
        else:
            self._start_reading(peer, ticket, asked)

    def _start_reading(self, peer: bytes, ticket: wire.LogTicket, asked: wire.OpenLog) -> None:
        async def read() -> None:
            try:
                max_bytes = min(asked.max_bytes, MAX_LOG_BYTES)
                part = await self._handler.read_file(ticket.path, asked.offset, max_bytes, ticket.uid)
            except GqError as error:
                self._refuse(peer, error.code, error.message)
            except (OSError, OverflowError) as error:
                why = getattr(error, "strerror", None) or error
                self._refuse(peer, "unreadable", f"{ticket.path} cannot be read: {why}")
            else:
                self._send(peer, part)

        task = self._loop.create_task(read())
        self._reads[task] = ticket.uid
        task.add_done_callback(self._reads.pop)
