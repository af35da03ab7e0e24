"""State that may be lost at a restart: links, instants of order repeats, held-back replies, the last plan.  Pure.

After a restart all of it is empty; nothing that must survive a restart depends on it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, NamedTuple

from gq.model.estimate import StartEstimate
from gq.model.ids import AttemptId, JobId, RequestId, StepId
from gq.model.node import GpuReading
from gq.wire.client import CreateStep
from gqd.state.crontab import EntryKey
from gqd.state.input import Peer, Route
from gqd.state.notice import Delivery
from gqd.state.order_clocks import OrderClocks
from gqd.state.plan import Plan
from gqd.state.preemption import PreemptionNotice
from gqd.state.reservation import OccurrenceKey


class Target(NamedTuple):
    """The job that a `WaitJobs` waits for: a single job, a whole array, or some tasks of an array."""

    job_id: JobId
    tasks: int | None = None
    """Bit set of the array's tasks; None: the job, or the whole array."""


@dataclass(slots=True)
class JobWaiter:
    """A `WaitJobs` request whose reply is held back."""

    route: Route
    request_id: RequestId
    targets: tuple[Target, ...]
    until: str
    wait_any: bool
    deadline_at: float
    watched: frozenset[JobId] = frozenset()
    """Ids of the targets, for look-ups."""
    place: int = 0
    """Index of the target to check first, which was not done at the last check."""
    shown_to: Peer | None = None
    """User for whom private fields are blanked (`gqd.state.job_view.visible_to`); None: no fields are blanked."""


@dataclass(slots=True)
class StepWaiter:
    """A `CreateStep` request that waits for resources of its allocation."""

    peer: Peer
    route: Route
    request_id: RequestId
    body: CreateStep
    entropy: bytes
    deadline_at: float


@dataclass(slots=True)
class Volatile:
    """The controller's state in memory that is never stored."""

    links: dict[str, Route] = field(default_factory=dict)
    """Node → route from which the node was last heard; a node without a link gets no jobs."""
    heard_at: dict[str, float] = field(default_factory=dict)
    """Node → instant of its last message."""
    gpu_readings: dict[str, tuple[GpuReading, ...]] = field(default_factory=dict)
    """Node → GPU readings in its last heartbeat."""
    lives: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node → incarnations that were welcomed, the newest last; older daemons of the node are refused."""
    report_seqs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Node → (incarnation, highest sequence number of its reports)."""
    order_clocks: OrderClocks = field(default_factory=OrderClocks)
    """Clocks of the orders that nodes have not confirmed."""
    ending_steps: set[StepId] = field(default_factory=set)
    """Steps that were asked to end; their nodes are sent the order until the steps have ended."""
    preemption_notices: dict[AttemptId, PreemptionNotice] = field(default_factory=dict)
    """Victims whose nodes were notified of the preemption, until it is withdrawn or carried out."""
    notice_sent_at: dict[AttemptId, float] = field(default_factory=dict)
    """Instant of each victim's last notice."""
    client_seen_at: dict[JobId, float] = field(default_factory=dict)
    """Interactive job → instant at which its client was last heard."""
    job_waiters: list[JobWaiter] = field(default_factory=list)
    step_waiters: list[StepWaiter] = field(default_factory=list)
    plan: Plan | None = None
    """The plan adopted last, which says why pending jobs wait."""
    estimates: dict[JobId, StartEstimate] = field(default_factory=dict)
    """Estimated starts of the first pending jobs, computed at `estimates_at`."""
    positions: dict[JobId, int] = field(default_factory=dict)
    """Position of every pending job in the queue of its partition, from 1, as of `estimates_at`."""
    reached: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Partition → (last position with an estimate, latest estimated start up to that position)."""
    estimates_at: float = 0.0
    """Instant at which the estimates were computed; 0: never."""
    has_stale_estimates: bool = True
    """The cluster has changed since the estimates were computed."""
    wants_plan: bool = True
    """The cluster has changed so that a new plan is needed."""
    planned_at: float = 0.0
    """Instant at which the last scheduling pass began."""
    is_planning: bool = False
    """A scheduling pass runs on a snapshot; predicted ends in it are as of the pass's begin."""
    changes: int = 0
    """Number of changes since the start that may lead to another plan."""
    updated_jobs: set[JobId] = field(default_factory=set)
    """Jobs that changed since the snapshot of the running pass, whose results for these jobs are outdated."""
    next_time_event_at: float | None = None
    """Next instant at which a job may start merely because time has passed."""
    started_at: float = 0.0
    there_since: float = 0.0
    """Start of the controller's uninterrupted operation: its start, or the last leap of the clock."""
    periods_until: float = 0.0
    """Begin of the next day, and perhaps of the next week or month, of budgets."""
    nodes_view: tuple[object, ...] = ()
    """Node views of the last snapshot (`gqd.control.snapshot`), for reuse."""
    zones: dict[str, tzinfo] = field(default_factory=dict)
    """Time zones that the cluster's records name, by name, with their rules loaded."""
    bookings_due_at: float = 0.0
    """Next instant at which reservations must be looked at again."""
    cron_due: dict[EntryKey, float] | None = None
    """Crontab entry → its next due time; None: not computed yet."""
    cron_asked: dict[EntryKey, float] = field(default_factory=dict)
    """Crontab entries that are being fired → since when."""
    cron_next_at: float = 0.0
    """Earliest due time of all crontab entries."""
    delivery: Delivery = field(default_factory=Delivery)
    """Schedule of outgoing notices."""
    time_marks: list[tuple[float, JobId, int]] = field(default_factory=list)
    """Heap of (instant, job, attempt) at which owners are notified that part of the time limit has passed."""
    bookings_tried: dict[OccurrenceKey, float] = field(default_factory=dict)
    """Occurrence → instant at which replacements for its missing resources were last searched."""
    possible_shapes: set[Hashable] = field(default_factory=set)
    """Request shapes that the registered nodes can satisfy; only used for look-ups."""

    def leap(self, by_s: float, now: float) -> None:
        """Shift all deadlines by a forward leap of the clock, so that no node or client loses waiting time."""
        self.there_since = now
        self.started_at += by_s
        self.order_clocks.leap(by_s)
        instants: tuple[dict[Any, float], ...] = (self.heard_at, self.client_seen_at, self.notice_sent_at)
        for by_key in instants:
            for key in by_key:
                by_key[key] += by_s
        for job_waiter in self.job_waiters:
            job_waiter.deadline_at += by_s
        for step_waiter in self.step_waiters:
            step_waiter.deadline_at += by_s
