"""Events of one attempt to run a job: allocated, prepared, started, ended, requeued.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus, Usage
from gq.model.resource import Grant
from gq.model.state import Outcome
from gqd.state.events.record import EventBase
from gqd.state.phases import AfterEnding, Hold


class JobAllocated(EventBase, frozen=True, kw_only=True):
    """An adopted plan: the attempt holds these grants; the first is the batch node's.  PENDING → STARTING"""

    attempt_id: AttemptId
    grants: tuple[Grant, ...]
    billing: int = 0
    """Millionths of a weighted GPU that are billed while it runs."""
    slot: str = ""
    """It goes ahead of its turn: see `gqd.state.plan.Protected`."""
    reservation: str = ""
    """It runs in this one …"""
    occurrence: int = 0
    """… in this occurrence of it."""
    borrows: tuple[str, ...] = ()
    """Likewise as of `gqd.state.plan.Start`."""
    priority: int = 0
    """The priority that the job had in the queue."""


class PartPrepared(EventBase, frozen=True, kw_only=True):
    attempt_id: AttemptId
    node: str
    master_port: int = 0


class PartsReleased(EventBase, frozen=True, kw_only=True):
    """GO was decided for these nodes."""

    attempt_id: AttemptId
    nodes: tuple[str, ...]
    master_port: int


class PartWentLive(EventBase, frozen=True, kw_only=True):
    """The node acknowledged GO; the batch node: the script's process is alive."""

    attempt_id: AttemptId
    node: str


class JobStarted(EventBase, frozen=True, kw_only=True):
    """STARTING → RUNNING; ``at`` is the start by the node's clock, never before the allocation."""

    attempt_id: AttemptId
    master_port: int = 0


class JobEnding(EventBase, frozen=True, kw_only=True):
    """The attempt is over or is being ended; its parts are being stopped.  STARTING, RUNNING → COMPLETING"""

    attempt_id: AttemptId
    outcome: Outcome
    then: AfterEnding
    exit: ExitStatus | None = None
    """None: an end without a code."""
    reason: str = "None"
    why: str = ""
    failure_class: str = ""
    grace_s: int = 0
    lost_gpu_s: float = 0.0
    """Of one that gives way: what it had done and not saved."""


class LaunchFailed(EventBase, frozen=True, kw_only=True):
    """A node refused or was silent; it is left out until ``until``.  STARTING → COMPLETING, then PENDING again."""

    attempt_id: AttemptId
    node: str
    why: str
    is_job_fault: bool
    """The back-off is then this job's alone, and counts towards holding it; else the node is left out for all."""
    until: float
    reason: str = "LaunchFailed"


class PartEmptied(EventBase, frozen=True, kw_only=True):
    """Nothing of the attempt is left on the node; what it held there is free."""

    attempt_id: AttemptId
    node: str
    usage: Usage = Usage()


class PartStranded(EventBase, frozen=True, kw_only=True):
    """The node is lost or silent: the job no longer waits for it; what it held there stays withheld."""

    attempt_id: AttemptId
    node: str


class JobRequeued(EventBase, frozen=True, kw_only=True):
    """COMPLETING → PENDING.  ``counts``: the attempt had started (a restart); else it was a failed launch."""

    job_id: JobId
    counts: bool
    hold: Hold | None = None
    why: str = ""
    """One plain sentence: what ended a started attempt."""
