"""Messages between `gqrun` or `gqlog` and a node's step listener: bulk data, which never passes through the controller.

A client (DEALER) connects to the step listener (ROUTER) of each node of its step.  It opens with `Attach` (a step: the
key that the controller created for it) or `OpenLog` (a file: a ticket that the controller signed).  Output is numbered
by byte offsets per (rank, stream) and kept by the node until acknowledged, so that output is neither lost nor repeated
when a client reconnects or a node daemon restarts.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated

import msgspec

from gq.errors import ProtocolError
from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus
from gq.wire.codec import Codec


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all messages: tagged with the class name."""


# ── client → door ─────────────────────────────────────────────────────────────────────────────────────────────


_Cells = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]
"""The range of the kernel's ``struct winsize``."""
_Signum = Annotated[int, msgspec.Meta(ge=1, le=64)]


class WindowSize(msgspec.Struct, frozen=True, array_like=True):
    rows: _Cells
    columns: _Cells


class StreamPosition(msgspec.Struct, frozen=True, array_like=True):
    """The position up to which a client has received one stream of one task."""

    rank: int
    stream: str
    offset: int


class Attach(_Message, frozen=True, kw_only=True):
    """Start this node's tasks of a step, or reattach to them after a lost link.  → `Attached` or `StepRefused`"""

    step_id: StepId
    key: bytes
    argv: tuple[str, ...]
    environment: dict[str, str]
    """Environment of the `gqrun` process; the node adds the step's and the task's own variables."""
    chdir: str
    umask: int = 0o022
    pty: WindowSize | None = None
    """Rank 0 gets a terminal of this size."""
    stdin_rank: int | None = None
    """Only this rank gets standard input; None: every rank; -1: none (``/dev/null``)."""
    received: tuple[StreamPosition, ...] = ()
    """After a lost link: the positions from which the node sends again."""
    programs: dict[str, tuple[str, ...]] = {}
    """Role → the command of its tasks, instead of `argv`."""


class Stdin(_Message, frozen=True, kw_only=True):
    """Bytes for the tasks; ``offset`` is the position of the first, ``eof`` closes the stream.  → `StdinTaken`"""

    step_id: StepId
    offset: int
    data: bytes = b""
    eof: bool = False


class Resize(_Message, frozen=True, kw_only=True):
    step_id: StepId
    size: WindowSize


class SignalTasks(_Message, frozen=True, kw_only=True):
    """Signal all tasks of the step on this node."""

    step_id: StepId
    signum: _Signum


class Received(_Message, frozen=True, kw_only=True):
    """The client has received these streams up to the positions; the node may discard that output and read more."""

    step_id: StepId
    positions: tuple[StreamPosition, ...]


class Detach(_Message, frozen=True, kw_only=True):
    """The client has received everything and disconnects."""

    step_id: StepId


class OpenLog(_Message, frozen=True, kw_only=True):
    """Read a file by a ticket.  → `LogData` …, the last with ``eof`` at the current end of the file"""

    ticket: bytes
    offset: int = 0
    max_bytes: int = 256 * 1024


class FindCells(_Message, frozen=True, kw_only=True):
    """List the attempts of a user that run on this node.  → `Cells`

    The node answers only over the local socket of its host: to root, and to the user without the fields that only root
    can use.  The caller's uid comes from the kernel.
    """

    uid: int


ToDoor = Attach | Stdin | Resize | SignalTasks | Received | Detach | OpenLog | FindCells


# ── door → client ─────────────────────────────────────────────────────────────────────────────────────────────


class Attached(_Message, frozen=True, kw_only=True):
    step_id: StepId


class StepRefused(_Message, frozen=True, kw_only=True):
    """The step cannot start; ``code`` ``not_yet``: the controller's order has not arrived on the node; try again."""

    code: str
    message: str


class TaskStarted(_Message, frozen=True, kw_only=True):
    step_id: StepId
    rank: int
    pid: int


class Output(_Message, frozen=True, kw_only=True):
    """Output of one task; ``stream``: ``stdout`` or ``stderr``; ``offset`` of the first byte; ``eof`` at the end."""

    step_id: StepId
    rank: int
    stream: str
    offset: int
    data: bytes = b""
    eof: bool = False


class StdinTaken(_Message, frozen=True, kw_only=True):
    """Standard input up to ``offset`` is in the tasks' pipes; at most 256 KiB may be in flight."""

    step_id: StepId
    offset: int


class TaskExited(_Message, frozen=True, kw_only=True):
    """A task ended, after all of its output.  ``oom``: the memory limit ended it.  ``why``: its start failed."""

    step_id: StepId
    rank: int
    exit: ExitStatus
    oom: bool = False
    why: str = ""


class LogData(_Message, frozen=True, kw_only=True):
    offset: int
    data: bytes = b""
    eof: bool = False
    is_missing: bool = False
    """The file does not exist (yet)."""


class CellPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cell of an attempt on this node, for processes that join it; other users than root get only `attempt_id`."""

    attempt_id: AttemptId
    procs_files: tuple[str, ...] = ()
    """``cgroup.procs`` files: a process joins by writing ``0`` into each, in this order."""
    namespace_pid: int = 0
    """Process whose mount namespace is the attempt's (its own ``/tmp`` and ``/dev/shm``); 0: none."""
    marker: str = ""
    """Value of ``GQ_CELL`` in the environment of the attempt's processes, which identifies stray processes."""


class Cells(_Message, frozen=True, kw_only=True):
    """The attempts that run on the node, oldest first."""

    cells: tuple[CellPlace, ...] = ()


FromDoor = Attached | StepRefused | TaskStarted | Output | StdinTaken | TaskExited | LogData | Cells

TO_DOOR: Codec[ToDoor] = Codec(ToDoor)
FROM_DOOR: Codec[FromDoor] = Codec(FromDoor)
STDIN_WINDOW_BYTES = 256 * 1024
OUTPUT_WINDOW_BYTES = 256 * 1024
"""Maximum unacknowledged output per (rank, stream) that the node keeps before it stops reading the task's pipe."""


# ── tickets ───────────────────────────────────────────────────────────────────────────────────────────────────


class LogTicket(msgspec.Struct, frozen=True, array_like=True):
    """The permission to read `path` of this job's output until `expires_at`."""

    job_id: int
    attempt: int
    path: str
    uid: int
    expires_at: float


def seal(ticket: LogTicket, key: bytes) -> bytes:
    """Return the ticket with its HMAC-SHA256 in front."""
    body = msgspec.msgpack.encode(ticket)
    return hmac.digest(key, body, hashlib.sha256) + body


def unseal(sealed: bytes, key: bytes) -> LogTicket:
    """Return the ticket, or raise `ProtocolError` if it was not sealed with `key`."""
    mac, body = sealed[:32], sealed[32:]
    if not hmac.compare_digest(mac, hmac.digest(key, body, hashlib.sha256)):
        raise ProtocolError("bad_ticket", "the ticket was not signed for this node")
    try:
        return msgspec.msgpack.decode(body, type=LogTicket)
    except msgspec.MsgspecError as error:
        raise ProtocolError("bad_ticket", f"the ticket cannot be read: {error}") from error
