"""The effects that the agent asks the daemon to carry out, in the order given.  Pure.

The spool comes first, so that nothing is reported or started that could be forgotten.
"""

from __future__ import annotations

import msgspec

from gq.model.ids import AttemptId, StepId
from gq.wire.node import Launch, ReportBody
from gqnode.control.attempt import AttemptRecord


class SaveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Write the attempt's record to the spool, durably, before the effects that follow."""

    record: AttemptRecord
    blobs: dict[str, bytes] = {}


class DropRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the attempt from the spool: the controller knows its end."""

    attempt_id: AttemptId


class SendReport(msgspec.Struct, frozen=True, kw_only=True):
    """Send a report; the agent keeps it and repeats it until it is acknowledged."""

    seq: int
    body: ReportBody


class MakeCell(msgspec.Struct, frozen=True, kw_only=True):
    """Look up the user, make the cell and, on the batch node, lease a port.  → `CellMade`, `CellFailed`"""

    launch: Launch
    master_port: int = 0
    """The port that was leased before a restart and reported to the controller; 0: lease a port."""


class StartProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Start the shepherd, and on the batch node the script under it.

    → `ProcessStarted`, or `ProcessEnded` with ``why``.
    """

    launch: Launch
    master_port: int


class WidenCell(msgspec.Struct, frozen=True, kw_only=True):
    """Let the attempt use all GPUs of its grant."""

    launch: Launch


class RevokeGpus(msgspec.Struct, frozen=True, kw_only=True):
    """Deny these GPUs to the attempt and KILL its processes that still use one.  → `GpusTaken`"""

    launch: Launch
    """The launch with the GPUs that the attempt keeps."""
    gpus: tuple[int, ...]
    generation: int


class WriteElasticFile(msgspec.Struct, frozen=True, kw_only=True):
    """Write the file that lists the job's GPUs, and the GPUs to give up with their deadline (`gq.elastic`)."""

    record: AttemptRecord


class AdoptProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Connect to the shepherd again after a restart.  → `ProcessStarted`, `ProcessEnded` (``is_lost``: none found)"""

    attempt_id: AttemptId


class CheckCell(msgspec.Struct, frozen=True, kw_only=True):
    """Check whether a process still runs in the cell.  → `CellQuiet` if none does"""

    attempt_id: AttemptId


class SignalProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Send a signal; ``scope`` is ``steps``, ``batch`` or ``all``."""

    attempt_id: AttemptId
    signum: int
    scope: str


class FreezeCell(msgspec.Struct, frozen=True, kw_only=True):
    """Suspend or resume all processes in the cell; the effect may be repeated.

    With ``parked_at``, `CellFrozen` follows once all processes are suspended.
    """

    attempt_id: AttemptId
    is_frozen: bool
    parked_at: float | None = None


class EmptyCell(msgspec.Struct, frozen=True, kw_only=True):
    """KILL every process in the cell until it is empty, and remove it.  → `CellEmpty`"""

    attempt_id: AttemptId


class WriteLine(msgspec.Struct, frozen=True, kw_only=True):
    """Append a line to the job's standard error."""

    attempt_id: AttemptId
    text: str
    at: float | None = None
    """If set, ``{time}`` in the text stands for this instant in local time, as in ``2026-11-21T01:25:32``."""


class ExpectStep(msgspec.Struct, frozen=True, kw_only=True):
    """Let a client with this key start the step's tasks.  → `StepAttached`, `StepTasksEnded`"""

    step_id: StepId


class ForgetStep(msgspec.Struct, frozen=True, kw_only=True):
    """Let no client attach to this step any more: it was over before a client came."""

    step_id: StepId


class SignalStepTasks(msgspec.Struct, frozen=True, kw_only=True):
    step_id: StepId
    signum: int


Effect = (
    SaveRecord | DropRecord | SendReport | MakeCell | WidenCell | RevokeGpus | WriteElasticFile | StartProcess
    | AdoptProcess | SignalProcess | CheckCell | FreezeCell | EmptyCell | WriteLine | ExpectStep | ForgetStep
    | SignalStepTasks
)  # fmt: skip
