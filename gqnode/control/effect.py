"""What the node's shell must do, in the order given.  Pure.

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
    """The controller knows the end: remove the attempt from the spool."""

    attempt_id: AttemptId


class SendReport(msgspec.Struct, frozen=True, kw_only=True):
    """Kept by the agent and repeated until acknowledged."""

    seq: int
    body: ReportBody


class MakeCell(msgspec.Struct, frozen=True, kw_only=True):
    """Find the user, then limits, devices, directories, on the batch node a leased port.  → `CellMade`, `CellFailed`"""

    launch: Launch
    master_port: int = 0
    """The port that was leased before a restart of the daemon and told to the controller; 0: lease one."""


class StartProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Start the shepherd, and on the batch node the script under it.

    → `ProcessStarted`, or `ProcessEnded` with ``why``.
    """

    launch: Launch
    master_port: int


class WidenCell(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt may use the GPUs of its grant from now on."""

    launch: Launch


class RevokeGpus(msgspec.Struct, frozen=True, kw_only=True):
    """Deny these GPUs to the attempt, and KILL those of its processes that still use one.  → `GpusTaken`"""

    launch: Launch
    """With what it keeps."""
    gpus: tuple[int, ...]
    generation: int


class WriteElasticFile(msgspec.Struct, frozen=True, kw_only=True):
    """Write for the job which GPUs it has, and which of them are to go when (`gq.elastic`)."""

    record: AttemptRecord


class AdoptProcess(msgspec.Struct, frozen=True, kw_only=True):
    """After a restart: meet its shepherd again.  → `ProcessStarted` or `ProcessEnded` (``is_lost``: there is none)"""

    attempt_id: AttemptId


class CheckCell(msgspec.Struct, frozen=True, kw_only=True):
    """Does anything still run in the cell?  → `CellQuiet` if not"""

    attempt_id: AttemptId


class SignalProcess(msgspec.Struct, frozen=True, kw_only=True):
    """``scope``: ``steps``, ``batch``, ``all``."""

    attempt_id: AttemptId
    signum: int
    scope: str


class FreezeCell(msgspec.Struct, frozen=True, kw_only=True):
    """Let everything in the cell stand still, or go on.  May be asked for again.

    With ``parked_at``: → `CellFrozen`, when it does stand still.
    """

    attempt_id: AttemptId
    is_frozen: bool
    parked_at: float | None = None


class EmptyCell(msgspec.Struct, frozen=True, kw_only=True):
    """KILL everything in the cell, until it is empty, and remove it.  → `CellEmpty`"""

    attempt_id: AttemptId


class WriteLine(msgspec.Struct, frozen=True, kw_only=True):
    """Append a line to the job's standard error."""

    attempt_id: AttemptId
    text: str
    at: float | None = None
    """Where set, ``{time}`` in the text stands for this instant in local time, as in ``2026-11-21T01:25:32``."""


class ExpectStep(msgspec.Struct, frozen=True, kw_only=True):
    """Let a client with this key start the step's tasks.  → `StepAttached`, `StepTasksEnded`"""

    step_id: StepId


class ForgetStep(msgspec.Struct, frozen=True, kw_only=True):
    """No client may attach to this step any more: it was over before one came."""

    step_id: StepId


class SignalStepTasks(msgspec.Struct, frozen=True, kw_only=True):
    step_id: StepId
    signum: int


Effect = (
    SaveRecord | DropRecord | SendReport | MakeCell | WidenCell | RevokeGpus | WriteElasticFile | StartProcess
    | AdoptProcess | SignalProcess | CheckCell | FreezeCell | EmptyCell | WriteLine | ExpectStep | ForgetStep
    | SignalStepTasks
)  # fmt: skip
