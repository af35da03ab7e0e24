"""Events of one attempt to run a job: allocated, prepared, started, ended, requeued.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus, Usage
from gq.model.resource import Grant
from gq.model.state import Outcome
from gqd.state.events.record import EventBase
from gqd.state.phases import AfterEnding, Hold


class JobAllocated(EventBase, frozen=True, kw_only=True):
    """A start of the plan was adopted: the attempt holds these grants, the batch node's first.  PENDING → STARTING."""

    attempt_id: AttemptId
    grants: tuple[Grant, ...]
    billing: int = 0
    """Billing rate while the attempt runs, in millionths of a weighted GPU."""
    slot: str = ""
    """Slot in which the attempt starts ahead of its turn: see `gqd.state.plan.Protected`."""
    reservation: str = ""
    """Reservation in which the attempt runs; empty: outside reservations."""
    occurrence: int = 0
    """Number of the reservation's occurrence."""
    borrows: tuple[str, ...] = ()
    """Reservations that lend resources: see `gqd.state.plan.Start.borrows`."""
    priority: int = 0
    """Priority of the job in the queue."""


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
    """The node acknowledged GO; on the batch node the script's process is running."""

    attempt_id: AttemptId
    node: str


class JobStarted(EventBase, frozen=True, kw_only=True):
    """The attempt started.  STARTING → RUNNING.  ``at``: the start by the node's clock, never before the allocation."""

    attempt_id: AttemptId
    master_port: int = 0


class JobEnding(EventBase, frozen=True, kw_only=True):
    """The attempt has ended or is being ended, and its parts are being stopped.  STARTING, RUNNING → COMPLETING."""

    attempt_id: AttemptId
    outcome: Outcome
    then: AfterEnding
    exit: ExitStatus | None = None
    """Exit status; None: the attempt ended without an exit code."""
    reason: str = "None"
    why: str = ""
    failure_class: str = ""
    grace_s: int = 0
    lost_gpu_s: float = 0.0
    """GPU-seconds of unsaved work that a preemption costs."""


class LaunchFailed(EventBase, frozen=True, kw_only=True):
    """A node refused the launch or was silent; it is left out until ``until``.  STARTING → COMPLETING, then PENDING."""

    attempt_id: AttemptId
    node: str
    why: str
    is_job_fault: bool
    """Only this job leaves out the node, and the failure counts towards holding the job; otherwise all jobs do."""
    until: float
    reason: str = "LaunchFailed"


class PartEmptied(EventBase, frozen=True, kw_only=True):
    """Nothing of the attempt is left on the node; the part's resources are free."""

    attempt_id: AttemptId
    node: str
    usage: Usage = Usage()


class PartStranded(EventBase, frozen=True, kw_only=True):
    """The node is lost or silent: the job no longer waits for the part, whose resources stay withheld."""

    attempt_id: AttemptId
    node: str


class JobRequeued(EventBase, frozen=True, kw_only=True):
    """The job was queued again.  COMPLETING → PENDING.  ``counts``: the attempt had started, so that this is a
    restart."""

    job_id: JobId
    counts: bool
    hold: Hold | None = None
    why: str = ""
    """A plain sentence: what ended a started attempt."""
