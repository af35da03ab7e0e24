"""The inputs of a node's agent, made by the daemon.  Pure."""

from __future__ import annotations

import msgspec

from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus, Usage
from gq.wire.node import Order
from gqnode.control.account import Account


class OrderReceived(msgspec.Struct, frozen=True, kw_only=True):
    order: Order
    blobs: dict[str, bytes] = {}
    """Scripts and environments that the order refers to, by digest."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The controller has these reports on disk."""

    seqs: tuple[int, ...]


class LinkUp(msgspec.Struct, frozen=True, kw_only=True):
    """The controller answered `Welcome`: the agent sends all unacknowledged reports again."""


class CellMade(msgspec.Struct, frozen=True, kw_only=True):
    attempt_id: AttemptId
    master_port: int = 0
    account: Account | None = None
    """Account for the attempt's processes; None if they run as the daemon's user."""


class GpusTaken(msgspec.Struct, frozen=True, kw_only=True):
    """These GPUs are denied to the attempt; ``is_done``: no process of the attempt uses them any more."""

    attempt_id: AttemptId
    generation: int
    is_done: bool


class CellFrozen(msgspec.Struct, frozen=True, kw_only=True):
    """All processes in the cell are suspended (answer to `FreezeCell.parked_at`)."""

    attempt_id: AttemptId
    parked_at: float
    gpu_memory: tuple[tuple[int, int], ...]
    """GPU memory in use as (GPU index, MiB), without GPUs that do not report it."""


class CellFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The user is unknown here, or the cell or its port could not be made; partial results are undone."""

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
    """The value of `AttemptEnded.launch_failure`."""
    is_lost: bool = False
    """The shepherd is gone, so the exit status is unknown."""


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
    """A client with the right key has attached and the tasks have been started."""

    step_id: StepId


class StepTaskFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the step on this node failed; other tasks of it may still run."""

    step_id: StepId


class CellQuiet(msgspec.Struct, frozen=True, kw_only=True):
    """No process runs in the cell at this moment (answer to `CheckCell`; no answer comes while a process runs)."""

    attempt_id: AttemptId


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """The controller has removed this node from the cluster: all attempts here end within the grace."""

    grace_s: int


class ClockLeapt(msgspec.Struct, frozen=True, kw_only=True):
    """The clock moved forward while nothing ran: the machine slept, or its clock was corrected."""

    by_s: float


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time passed."""


Input = (
    OrderReceived | Acknowledged | LinkUp | CellMade | GpusTaken | CellFrozen | CellFailed | ProcessStarted
    | ProcessEnded | CellEmpty | StepTasksEnded | StepAttached | StepTaskFailed | CellQuiet | Removed | ClockLeapt
    | Tick
)  # fmt: skip
