"""Between `gqrun` or `gqlog` and the step door of a node: bulk bytes, which never pass through the controller.

A client (DEALER) connects to the door (ROUTER) of each node of its step.  It opens with `Attach` (a step: the
key that the controller gave it) or `OpenLog` (a file: a ticket that the controller signed).  Output is numbered
by byte offsets per (rank, stream) and kept by the node until acknowledged, so that a client that reconnects, or a
node daemon that restarts, loses nothing and repeats nothing.
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
"""As wide as the kernel's ``struct winsize``."""
_Signum = Annotated[int, msgspec.Meta(ge=1, le=64)]


class WindowSize(msgspec.Struct, frozen=True, array_like=True):
    rows: _Cells
    columns: _Cells


class StreamPosition(msgspec.Struct, frozen=True, array_like=True):
    """How far a client has one stream of one task."""

    rank: int
    stream: str
    offset: int


class Attach(_Message, frozen=True, kw_only=True):
    """Start (or, after a lost link, meet again) this node's tasks of a step.  → `Attached` or `StepRefused`"""

    step_id: StepId
    key: bytes
    argv: tuple[str, ...]
    environment: dict[str, str]
    """Of the `gqrun` process; the node adds the step's and the task's own variables."""
    chdir: str
    umask: int = 0o022
    pty: WindowSize | None = None
    """Rank 0 gets a terminal of this size."""
    stdin_rank: int | None = None
    """Only this rank gets standard input; None: every rank; -1: none (``/dev/null``)."""
    received: tuple[StreamPosition, ...] = ()
    """On meeting again: where to go on."""
    programs: dict[str, tuple[str, ...]] = {}
    """By role: what its tasks run instead of `argv`."""


class Stdin(_Message, frozen=True, kw_only=True):
    """Bytes for the tasks; ``offset`` is the position of the first, ``eof`` closes after them.  → `StdinTaken`"""

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
    """The client has these streams so far; the node may forget them, and read on."""

    step_id: StepId
    positions: tuple[StreamPosition, ...]


class Detach(_Message, frozen=True, kw_only=True):
    """The client has everything and goes."""

    step_id: StepId


class OpenLog(_Message, frozen=True, kw_only=True):
    """Read a file by a ticket.  → `LogData` …, ended by ``eof`` when the end of the file is reached now"""

    ticket: bytes
    offset: int = 0
    max_bytes: int = 256 * 1024


class FindCells(_Message, frozen=True, kw_only=True):
    """Which attempts of this user run here?  → `Cells`

    Answered only over the socket of the host itself, by the kernel's word to root, and to the user: then without what
    only root can make use of.
    """

    uid: int


ToDoor = Attach | Stdin | Resize | SignalTasks | Received | Detach | OpenLog | FindCells


# ── door → client ─────────────────────────────────────────────────────────────────────────────────────────────


class Attached(_Message, frozen=True, kw_only=True):
    step_id: StepId


class StepRefused(_Message, frozen=True, kw_only=True):
    """``code`` ``not_yet``: the controller's order has not arrived here; try again in a moment."""

    code: str
    message: str


class TaskStarted(_Message, frozen=True, kw_only=True):
    step_id: StepId
    rank: int
    pid: int


class Output(_Message, frozen=True, kw_only=True):
    """``stream``: ``stdout`` or ``stderr``; ``offset`` of the first byte; ``eof`` after the last."""

    step_id: StepId
    rank: int
    stream: str
    offset: int
    data: bytes = b""
    eof: bool = False


class StdinTaken(_Message, frozen=True, kw_only=True):
    """Standard input up to ``offset`` is in the tasks' pipes; at most 256 KiB may be on the way."""

    step_id: StepId
    offset: int


class TaskExited(_Message, frozen=True, kw_only=True):
    """Comes after all output of that task.  ``oom``: the memory limit ended it.  ``why``: it could not be started."""

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
    """There is no such file (yet)."""


class CellPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an attempt lives on this node, for who joins it; only `attempt_id` is told to others than root."""

    attempt_id: AttemptId
    procs_files: tuple[str, ...] = ()
    """``cgroup.procs`` files: a process joins by writing ``0`` into each, in this order."""
    namespace_pid: int = 0
    """Process whose mount namespace is the attempt's (its own ``/tmp`` and ``/dev/shm``); 0: it has none."""
    marker: str = ""
    """Value of ``GQ_CELL`` in the environment of the attempt's processes, by which strays are found."""


class Cells(_Message, frozen=True, kw_only=True):
    """Those that run, oldest first."""

    cells: tuple[CellPlace, ...] = ()


FromDoor = Attached | StepRefused | TaskStarted | Output | StdinTaken | TaskExited | LogData | Cells

TO_DOOR: Codec[ToDoor] = Codec(ToDoor)
FROM_DOOR: Codec[FromDoor] = Codec(FromDoor)
STDIN_WINDOW_BYTES = 256 * 1024
OUTPUT_WINDOW_BYTES = 256 * 1024
"""Per (rank, stream): how much the node keeps unacknowledged before it stops reading the task's pipe."""


# ── tickets ───────────────────────────────────────────────────────────────────────────────────────────────────


class LogTicket(msgspec.Struct, frozen=True, array_like=True):
    """What a ticket allows: read `path` of this job's output until `expires_at`."""

    job_id: int
    attempt: int
    path: str
    uid: int
    expires_at: float


def seal(ticket: LogTicket, key: bytes) -> bytes:
    """HMAC-SHA256 over the ticket, in front of it."""
    body = msgspec.msgpack.encode(ticket)
    return hmac.digest(key, body, hashlib.sha256) + body


def unseal(sealed: bytes, key: bytes) -> LogTicket:
    """The ticket, or `ProtocolError` if it was not sealed with `key`."""
    mac, body = sealed[:32], sealed[32:]
    if not hmac.compare_digest(mac, hmac.digest(key, body, hashlib.sha256)):
        raise ProtocolError("bad_ticket", "the ticket was not signed for this node")
    try:
        return msgspec.msgpack.decode(body, type=LogTicket)
    except msgspec.MsgspecError as error:
        raise ProtocolError("bad_ticket", f"the ticket cannot be read: {error}") from error
