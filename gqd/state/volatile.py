"""What may be forgotten: who was heard when, links, repeats of orders, held-back answers, the last plan.  Pure.

After a restart all of it is empty, and nothing that must survive depends on it.
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
from gqd.state.owed_order import OwedKey
from gqd.state.plan import Plan
from gqd.state.preemption import PreemptionNotice
from gqd.state.reservation import OccurrenceKey


@dataclass(slots=True)
class OrderClock:
    """An order that is owed to a node."""

    first_sent_at: float
    last_sent_at: float
    is_received: bool = False


class Target(NamedTuple):
    """What is waited for: a job, all of an array, or some of its tasks."""

    job_id: JobId
    tasks: int | None = None
    """A bit set."""


@dataclass(slots=True)
class JobWaiter:
    """A `WaitJobs` whose answer is held back."""

    route: Route
    request_id: RequestId
    targets: tuple[Target, ...]
    until: str
    wait_any: bool
    deadline_at: float
    watched: frozenset[JobId] = frozenset()
    """Their ids, to look one up."""
    place: int = 0
    """Of the job that is looked at first: it had not come so far when it was last looked at."""
    shown_to: Peer | None = None
    """See `gqd.state.job_view.visible_to`."""


@dataclass(slots=True)
class StepWaiter:
    """A `CreateStep` that waits for resources of its allocation."""

    peer: Peer
    route: Route
    request_id: RequestId
    body: CreateStep
    entropy: bytes
    deadline_at: float


@dataclass(slots=True)
class Volatile:
    links: dict[str, Route] = field(default_factory=dict)
    """Node → where it was last heard from; nodes that are not here get no jobs."""
    heard_at: dict[str, float] = field(default_factory=dict)
    gpu_readings: dict[str, tuple[GpuReading, ...]] = field(default_factory=dict)
    """Node → what its last heartbeat said of its GPUs."""
    lives: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node → the incarnations that were let in, the newest last; a daemon of an older one is shut out."""
    report_seqs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Node → (incarnation, the highest number of its reports that was heard)."""
    part_orders: dict[tuple[AttemptId, str], OrderClock] = field(default_factory=dict)
    step_orders: dict[tuple[StepId, str], float] = field(default_factory=dict)
    """Orders about steps that a node owes an answer to: when they were last sent."""
    ending_steps: set[StepId] = field(default_factory=set)
    """Steps that were asked to end: their nodes are owed the order until they say that it is so."""
    limit_orders: dict[tuple[AttemptId, str], float] = field(default_factory=dict)
    """Time limits that a node has not said it enforces: when they were last sent."""
    owed_orders: dict[OwedKey, float] = field(default_factory=dict)
    """Orders that a node has not confirmed (`Cluster.owed_orders`): when they were last sent."""
    suspend_orders: dict[tuple[AttemptId, str], float] = field(default_factory=dict)
    """Whether an attempt stands still, where its node has not said that it is so: when it was last told."""
    resize_orders: dict[tuple[AttemptId, str], float] = field(default_factory=dict)
    """Changes of GPUs and nodes that a node has not said it knows: when they were last sent."""
    stop_orders: dict[tuple[AttemptId, str], float] = field(default_factory=dict)
    """Stops for attempts of which no part is known here: when they were last sent."""
    preemption_notices: dict[AttemptId, PreemptionNotice] = field(default_factory=dict)
    """Victims whose nodes were notified of the preemption, until it is withdrawn or carried out."""
    notice_sent_at: dict[AttemptId, float] = field(default_factory=dict)
    """When each victim was last notified."""
    client_seen_at: dict[JobId, float] = field(default_factory=dict)
    """Interactive jobs: when their client was last heard."""
    job_waiters: list[JobWaiter] = field(default_factory=list)
    step_waiters: list[StepWaiter] = field(default_factory=list)
    plan: Plan | None = None
    """The last one adopted: why pending jobs wait."""
    estimates: dict[JobId, StartEstimate] = field(default_factory=dict)
    """When the first of the waiting jobs start, as of `estimates_at` (0: never yet)."""
    positions: dict[JobId, int] = field(default_factory=dict)
    """Of every job that waited then, in its partition, from 1."""
    reached: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By partition: a position for which there is an estimate, and when the last up to there starts."""
    estimates_at: float = 0.0
    has_stale_estimates: bool = True
    """Something has happened since."""
    wants_plan: bool = True
    planned_at: float = 0.0
    is_planning: bool = False
    """A pass is under way; what it says of ends is as they were when it began."""
    changes: int = 0
    """How often something happened that may let a plan be another."""
    updated_jobs: set[JobId] = field(default_factory=set)
    """Changed since the snapshot of the plan that is being made: what it says of them is out of date."""
    next_time_event_at: float | None = None
    """The next instant at which time alone may let a job start."""
    started_at: float = 0.0
    there_since: float = 0.0
    """The controller has been there all the time since then: it had started, or time had leapt."""
    periods_until: float = 0.0
    """When the next day begins, and with it perhaps a week or a month of budgets."""
    nodes_view: tuple[object, ...] = ()
    """What the planner was last told of the nodes (`gqd.control.snapshot`)."""
    zones: dict[str, tzinfo] = field(default_factory=dict)
    """Time zones that something in the cluster names, by name; their rules are in memory."""
    bookings_due_at: float = 0.0
    """When time alone, or what has happened, next changes something about reservations."""
    cron_due: dict[EntryKey, float] | None = None
    """When each entry of a crontab is due next; None: not looked at yet."""
    cron_asked: dict[EntryKey, float] = field(default_factory=dict)
    """Entries that are being fired, and since when."""
    cron_next_at: float = 0.0
    """When the next is due."""
    delivery: Delivery = field(default_factory=Delivery)
    """Which notices go out when."""
    time_marks: list[tuple[float, JobId, int]] = field(default_factory=list)
    """A heap: when owners are told how far attempts are in their time limits."""
    bookings_tried: dict[OccurrenceKey, float] = field(default_factory=dict)
    """When what is missing of them was last looked for."""
    possible_shapes: set[Hashable] = field(default_factory=set)
    """Shapes of requests that the nodes, as they are registered, can meet; only ever looked up."""

    def leap(self, by_s: float, now: float) -> None:
        """Time leapt forward: whoever was waited for has as long as before."""
        self.there_since = now
        self.started_at += by_s
        instants: tuple[dict[Any, float], ...] = (
            self.heard_at, self.step_orders, self.limit_orders, self.suspend_orders, self.stop_orders,
            self.resize_orders, self.owed_orders,
            self.client_seen_at,
        )  # fmt: skip
        for by_key in instants:
            for key in by_key:
                by_key[key] += by_s
        for clock in self.part_orders.values():
            clock.first_sent_at += by_s
            clock.last_sent_at += by_s
        for job_waiter in self.job_waiters:
            job_waiter.deadline_at += by_s
        for step_waiter in self.step_waiters:
            step_waiter.deadline_at += by_s
