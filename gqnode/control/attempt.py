"""What a node knows of one attempt, and keeps in its spool.  Pure."""

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
    """About to fork: after a crash it is not known whether the script ran, so it is never started again."""
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    """The cell is empty; the record waits for the controller's acknowledgement."""


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    order: LaunchStep
    expires_at: float
    """If no client has attached by then the step is over."""
    is_attached: bool = False
    is_ended: bool = False
    exit: ExitStatus = ExitStatus()
    outcome: Outcome = Outcome.COMPLETED
    usage: Usage = Usage()
    ended_at: float | None = None
    stopped_as: Outcome | None = None
    """Set when its tasks are being ended before their time: CANCELLED (ordered), FAILED (one of them failed)."""
    kill_at: float | None = None
    """When the grace of that is over; None again once KILL is sent."""

    @property
    def is_running(self) -> bool:
        return self.is_attached and not self.is_ended


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value: every change makes a new one and saves it."""

    launch: Launch
    phase: Phase
    account: Account | None = None
    """Known once the cell is made; None: its processes run as the daemon itself."""
    go: bool = False
    """`Go` has come: start as soon as prepared."""
    master_port: int = 0
    time_limit_s: int | None = None
    """As it is now; the launch holds what it was at first."""
    started_at: float | None = None
    slept_s: float = 0.0
    """Since then, but not lived through (`ClockLeapt`), or suspended: does not count against its time limit."""
    suspended_at: float | None = None
    """Its processes stand still since then."""
    signal_sent: bool = False
    """The warning signal before the time limit."""
    resize: ResizeAttempt | None = None
    """The newest change of its GPUs; what it can use now is in the launch's grant."""
    told_at: float | None = None
    """The last time that it was told to give way to another job."""
    outcome: Outcome | None = None
    """Set when the node or the controller began to end it: TIMEOUT, CANCELLED, …"""
    exit: ExitStatus | None = None
    """Of the batch script, once it is over."""
    usage: Usage = Usage()
    ended_at: float | None = None
    why: str = ""
    launch_failure: str = ""
    kill_at: float | None = None
    """When the grace after TERM is over."""
    steps: dict[int, StepRecord] = {}
    """Running ones, and ended ones whose end is not acknowledged."""
    had_oom: bool = False
    """A step on this node ran out of memory."""
    stop_ordered: bool = False
    """The controller wants it ended, rather than the node on its own."""
    confirmed: tuple[bytes, ...] = ()
    """Ids of the latest orders that were carried out once (`gq.wire.node.OneOffOrder`)."""
    last_report: ReportBody | None = None
    """What is left to say once it has ENDED; the record goes when the controller has it."""

    @property
    def going_gpus(self) -> tuple[int, ...]:
        """Those that it is to give up."""
        keeps = self.launch.grant.gpus if self.resize is None else self.resize.keeps
        return tuple(gpu for gpu in self.launch.grant.gpus if gpu not in keeps)
