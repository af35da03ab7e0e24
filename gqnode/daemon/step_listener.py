"""The step door: where `gqrun` brings tasks to this node and gets their output, and where `gqlog` reads files.

Owns the clients and which step each of them leads.  A step is opened by its key, a file by a ticket that the
controller sealed for this life of the daemon; a message that comes from somebody else is dropped.  Bytes pass
through: what is not acknowledged is kept by the shepherd, so nothing is buffered here and a lost client loses nothing.

On the socket of the host the kernel says who speaks, too: then neither a key nor a ticket is of use to others than the
user that it was made for, and root.
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
from gq.errors import GqError, ProtocolError
from gq.model.ids import AttemptId, StepId
from gq.wire import step as wire
from gqnode.daemon.host_listener import cells_for
from gqnode.daemon.sockets import Context, listen_ipc, listen_tcp, peer_uid

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""An `Attach` carries an environment."""
MAX_LOG_BYTES = 1024 * 1024
MAX_LOG_READS = 64
"""Files being read at once, for all clients; more are asked again by theirs."""
MAX_LOG_READS_EACH = 16
"""The same for one user."""
PROBE_S = 10.0
"""Between looks whether the clients are still there."""

ToTasks = wire.Stdin | wire.Resize | wire.SignalTasks | wire.Received | wire.Detach
FromTasks = wire.TaskStarted | wire.Output | wire.StdinTaken | wire.TaskExited


class StepHandler(Protocol):
    """What the daemon knows of steps and does for their clients."""

    def attach(self, attach: wire.Attach, is_first: bool) -> None:
        """Start the tasks the first time; tell what the client has not got.  → `Door.welcome`, or `Door.turn_away`"""
        ...

    def on_task_message(self, message: ToTasks) -> None: ...

    def client_lost(self, step_id: StepId) -> None: ...

    async def read_file(self, path: str, offset: int, max_bytes: int, uid: int) -> wire.LogData:
        """With the rights of this user; `OSError`, or a `GqError` if it cannot be known who that is."""
        ...

    def cells(self, uid: int) -> tuple[wire.CellPlace, ...]:
        """Those of this user that run here."""
        ...


@dataclass(slots=True)
class _Step:
    key: bytes
    uid: int
    """Whose it is."""
    client: bytes | None = None
    is_begun: bool = False
    """A client was there."""
    lost_at: float | None = None


class StepListener:
    """`keys` serve a tcp endpoint; `ticket_key` is what the controller seals log tickets with.

    ``may_be_shared``: everybody on this host may connect, and is served once the controller has said that the cluster
    is for all (`share`).
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
        """Whose each is."""
        self.dropped = 0
        """Messages of strangers and messages that are none."""
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
        """Whether others than the daemon's own user and root are served."""
        self._is_shared = is_shared

    def expect(self, step_id: StepId, key: bytes, uid: int, is_begun: bool) -> None:
        """Its client may come; `is_begun`: its tasks have been started in an earlier life of the daemon.

        It may come again until it says goodbye, also when the step is over: there may be output that it has not got.
        """
        self._steps.setdefault(step_id, _Step(key, uid, is_begun=is_begun))

    def forget(self, step_id: StepId) -> None:
        self._steps.pop(step_id, None)

    def forget_attempt(self, attempt_id: AttemptId) -> None:
        for step_id in [step_id for step_id in self._steps if step_id.attempt_id == attempt_id]:
            del self._steps[step_id]

    def confirm_attached(self, step_id: StepId) -> None:
        """The tasks of the client that attached are there."""
        self._send_to_client(step_id, wire.Attached(step_id=step_id))

    def refuse_client(self, step_id: StepId, code: str, why: str) -> None:
        self._send_to_client(step_id, wire.StepRefused(code=code, message=why))

    def forward_to_client(self, message: FromTasks) -> None:
        """To the client, if there is one; else it is told again when one comes."""
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
        """A client that is gone shows only when it is spoken to; one that does not come back has left its step."""
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
        """Whether who speaks may have what is `owner_uid`'s; on tcp the key or the ticket says all there is to say."""
        return not self._is_local or uid == owner_uid or uid in self._owner_uids

    def _attach(self, peer: bytes, attach: wire.Attach, uid: int | None) -> None:
        step = self._steps.get(attach.step_id)
        if step is None:
            self._refuse(peer, "not_yet", f"step {attach.step_id} is not known here yet")
        elif not self._may_access(uid, step.uid):
            self.dropped += 1
            self._refuse(peer, "not_owner", f"step {attach.step_id} is another user's")
        elif not hmac.compare_digest(step.key, attach.key):
            self.dropped += 1
            self._refuse(peer, "wrong_key", f"this key does not open step {attach.step_id}")
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
        reads_of_user = sum(one == ticket.uid for one in self._reads.values())
        if ticket.expires_at < self._wall():
            self._refuse(peer, "ticket_expired", "the ticket has expired; ask the controller for another")
        elif not self._may_access(uid, ticket.uid):
            self.dropped += 1
            self._refuse(peer, "not_owner", "the ticket was made for another user")
        elif len(self._reads) >= MAX_LOG_READS or reads_of_user >= MAX_LOG_READS_EACH:
            self._refuse(peer, "busy", "too many files are being read here")
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
