"""The record that a node keeps of one attempt, in memory and in its spool.  Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gq.model.job import ExitStatus, Usage
from gq.model.state import Outcome
from gq.wire.node import Launch, LaunchStep, ReportBody, ResizeAttempt
from gqnode.control.account import Account


class Phase(StrEnum):
    PREPARING = "preparing"
    PREPARED = "prepared"
    STARTING = "starting"
    """The fork is imminent: after a crash it is unknown whether the script ran, so it is never started again."""
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    """The cell is empty; the record waits for the controller's acknowledgement."""


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    order: LaunchStep
    expires_at: float
    """The step is cancelled if no client has attached by this time."""
    is_attached: bool = False
    is_ended: bool = False
    exit: ExitStatus = ExitStatus()
    outcome: Outcome = Outcome.COMPLETED
    usage: Usage = Usage()
    ended_at: float | None = None
    stopped_as: Outcome | None = None
    """Outcome of a step that is being stopped early: CANCELLED (ordered), FAILED (a task failed)."""
    kill_at: float | None = None
    """When the grace of a stopped step ends; None again once KILL is sent."""

    @property
    def is_running(self) -> bool:
        return self.is_attached and not self.is_ended


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An immutable record: every change makes a new value and saves it."""

    launch: Launch
    phase: Phase
    account: Account | None = None
    """Account of the processes, known once the cell is made; None if they run as the daemon's user."""
    go: bool = False
    """Whether `Go` has arrived: the attempt starts as soon as it is prepared."""
    master_port: int = 0
    time_limit_s: int | None = None
    """The present time limit; the launch holds the original time limit."""
    started_at: float | None = None
    slept_s: float = 0.0
    """Seconds since the start that do not count against the time limit: suspended or asleep (`ClockLeapt`)."""
    suspended_at: float | None = None
    """When the attempt was suspended; None if it runs."""
    signal_sent: bool = False
    """Whether the warning signal before the time limit was sent."""
    resize: ResizeAttempt | None = None
    """The newest change of its GPUs; the launch's grant holds the GPUs that it can use now."""
    told_at: float | None = None
    """When the attempt was last notified of its preemption."""
    outcome: Outcome | None = None
    """Set when the node or the controller begins to end the attempt: TIMEOUT, CANCELLED, …"""
    exit: ExitStatus | None = None
    """Exit status of the batch script, once it has ended."""
    usage: Usage = Usage()
    ended_at: float | None = None
    why: str = ""
    launch_failure: str = ""
    kill_at: float | None = None
    """When the grace after TERM ends."""
    steps: dict[int, StepRecord] = {}
    """Running steps, and ended steps whose end is not acknowledged."""
    had_oom: bool = False
    """Whether a step on this node ran out of memory."""
    stop_ordered: bool = False
    """Whether the controller ordered the stop, rather than the node on its own."""
    confirmed: tuple[bytes, ...] = ()
    """Ids of the latest orders that were carried out once (`gq.wire.node.OneOffOrder`)."""
    last_report: ReportBody | None = None
    """The last report of an ENDED attempt; the record is dropped when the controller has it."""

    @property
    def going_gpus(self) -> tuple[int, ...]:
        """GPUs that the attempt has to give up."""
        keeps = self.launch.grant.gpus if self.resize is None else self.resize.keeps
        return tuple(gpu for gpu in self.launch.grant.gpus if gpu not in keeps)
