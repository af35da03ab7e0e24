"""What can happen to a node's agent.  Made by the shell; pure."""

from __future__ import annotations

import msgspec

from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus, Usage
from gq.wire.node import Order
from gqnode.control.account import Account


class OrderReceived(msgspec.Struct, frozen=True, kw_only=True):
    order: Order
    blobs: dict[str, bytes] = {}
    """Scripts and environments that the order names."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The controller has these reports on disk."""

    seqs: tuple[int, ...]


class LinkUp(msgspec.Struct, frozen=True, kw_only=True):
    """The controller said `Welcome`: say again what it has not acknowledged."""


class CellMade(msgspec.Struct, frozen=True, kw_only=True):
    attempt_id: AttemptId
    master_port: int = 0
    account: Account | None = None
    """Whom the processes are to run as; None: as the daemon."""


class GpusTaken(msgspec.Struct, frozen=True, kw_only=True):
    """These GPUs are denied to the attempt; ``is_done``: and no process of it uses one any more."""

    attempt_id: AttemptId
    generation: int
    is_done: bool


class CellFrozen(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing in the cell moves; so much of the memory of its GPUs is in use (answer to `FreezeCell.parked_at`)."""

    attempt_id: AttemptId
    parked_at: float
    gpu_memory: tuple[tuple[int, int], ...]
    """(GPU, MiB); one that does not tell is not here."""


class CellFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The user is not known here, or the cell or its port could not be had; what was made is undone."""

    attempt_id: AttemptId
    why: str
    is_job_fault: bool = False


class ProcessStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The shepherd runs and (batch node) the script's process is alive."""

    attempt_id: AttemptId
    at: float


class ProcessEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The batch script's process is over.  ``oom``: the memory limit ended it.  ``why``: it could not be started."""

    attempt_id: AttemptId
    exit: ExitStatus
    usage: Usage
    ended_at: float
    oom: bool = False
    why: str = ""
    launch_failure: str = ""
    """The field of that name of `AttemptEnded`."""
    is_lost: bool = False
    """Nobody saw how it ended: the shepherd is gone."""


class CellEmpty(msgspec.Struct, frozen=True, kw_only=True):
    """No process is left and the cell is removed."""

    attempt_id: AttemptId
    usage: Usage = Usage()


class StepTasksEnded(msgspec.Struct, frozen=True, kw_only=True):
    """All tasks of the step on this node are over."""

    step_id: StepId
    exit: ExitStatus
    oom: bool = False
    usage: Usage = Usage()


class StepAttached(msgspec.Struct, frozen=True, kw_only=True):
    """A client with the right key is there and the tasks have been started."""

    step_id: StepId


class StepTaskFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the step on this node ended badly; others of it may still run."""

    step_id: StepId


class CellQuiet(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing runs in the cell at this moment (answer to `CheckCell`; no answer while something runs)."""

    attempt_id: AttemptId


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """The controller has taken this node out of the cluster: whatever is here ends, within the grace."""

    grace_s: int


class ClockLeapt(msgspec.Struct, frozen=True, kw_only=True):
    """Forward: the machine slept, or its clock was set right.  Nothing ran in these seconds."""

    by_s: float


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time passed."""


Input = (
    OrderReceived | Acknowledged | LinkUp | CellMade | GpusTaken | CellFrozen | CellFailed | ProcessStarted
    | ProcessEnded | CellEmpty | StepTasksEnded | StepAttached | StepTaskFailed | CellQuiet | Removed | ClockLeapt
    | Tick
)  # fmt: skip
