"""The state of planning: the draft of the plan, and the state of the scheduling pass that adds to it.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from gq.model.ids import JobId
from gq.model.resource import Grant
from gq.model.tasks import first_task, task_bit
from gqd.sched.backfill.planned_starts import PlannedStarts
from gqd.sched.limits.ledger import Ledger, LimitDemand, LimitSubject, hours, min_amounts
from gqd.sched.placement.billing import amounts_of, billing_of
from gqd.sched.placement.prefilter import Prefilter
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.request import Shape
from gqd.sched.reservation.scope import elsewhere
from gqd.sched.reservation.windows import is_too_long, named_reservations, named_wait
from gqd.sched.snapshot.model import Nomination, PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.queue_scan import QueueScan, columns_of
from gqd.sched.timeline.timeline import EndTimes
from gqd.state.plan import (
    BeginsLater,
    BehindPlannedStart,
    Held,
    PartitionIsDown,
    Plan,
    Preemption,
    Protected,
    Shrink,
    Start,
    Throttled,
    Wait,
)


@dataclass(slots=True)
class PlanDraft:
    """The decisions of the passes so far, inside reservations and outside."""

    ledger: Ledger
    """Usage counted against limits, with that of the jobs started so far."""
    array_room: dict[JobId, int]
    """How many more tasks of each throttled array may start."""
    running: Sequence[RunningJob] = ()
    """The running jobs, with all their grants, as they were when planning began."""
    starts: list[Start] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    claimants: dict[JobId, Wait] = field(default_factory=dict)
    """Jobs that already have victims, and why each does not start yet."""
    protected: list[Protected] = field(default_factory=list)
    """Planned starts of jobs inside reservations."""
    heads_inside: dict[str, JobId] = field(default_factory=dict)
    """The first job of each reservation that waits for resources."""
    waits_inside: dict[JobId, Wait] = field(default_factory=dict)
    """Why the jobs inside reservations wait."""
    tasks: dict[JobId, int] = field(default_factory=dict)
    """Bit set of the tasks that still wait, for each array of which this plan has started a task."""
    changes_at: float = inf
    """The earliest instant at which a job stops waiting for better nodes or for an overdue victim, or may preempt."""
    searches_from: JobId | None = None
    """See `gqd.state.plan.Plan`."""
    has_kept_cores: bool = False
    """A job was refused CPUs that are reserved for GPUs which were idle at that time."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> PlanDraft:
        """Return the empty draft of a plan for this snapshot."""
        return cls(Ledger(snapshot.limits), dict(snapshot.array_room), snapshot.running)

    def decided_jobs(self) -> list[JobId]:
        """Return the jobs that later passes leave out, because nothing of them is left to decide."""
        job_ids = [*(start.job_id for start in self.starts), *(preemption.job_id for preemption in self.preemptions)]
        return [*(job_id for job_id in job_ids if not self.tasks.get(job_id)), *self.claimants]


class PassOptions(NamedTuple):
    """Options of a plan; see `Planner.begin`."""

    skip_reasons: bool
    asked: Collection[JobId] | None
    skip_planned_starts: bool


class Placement(NamedTuple):
    """The result of placing a job."""

    grants: tuple[Grant, ...] | None = None
    """None: the job does not fit, or not within its limits."""
    usage: LimitDemand = LimitDemand({}, 0.0)
    """The usage that the grants add against limits."""
    reason: Wait | None = None
    """Why the job is not placed, if it lacks more than nodes that other jobs hold."""


class Decided(NamedTuple):
    """A decision to preempt: the nominated job, the jobs that stop for it and the parts that elastic jobs release."""

    claim: Nomination
    victims: frozenset[JobId]
    shrinks: tuple[Shrink, ...] = ()


class PassState:
    """The state of a scheduling pass: what it works on, what it has decided, and the questions that only need these.

    The steps of a pass share it.  It starts no job: that is up to `gqd.sched.cycle.scheduling_pass`.
    """

    def __init__(
        self, snapshot: Snapshot, eligibility: EligibilityCache, options: PassOptions, draft: PlanDraft
    ) -> None:
        """Begin a pass over the snapshot that adds to `draft`."""
        self.snapshot = snapshot
        self.eligibility = eligibility
        self.scheduling = snapshot.policy.scheduling
        self.skip_reasons, self.asked, self.skip_planned_starts = options
        self.draft = draft
        self.scan = QueueScan(snapshot.columns or columns_of(snapshot.pending), self.scheduling)
        self.kinds = eligibility.kinds_of(self.scan, snapshot.pending)
        self.planned_starts = PlannedStarts(snapshot, eligibility)
        self.backfill = self.planned_starts.backfill
        self.ledger = draft.ledger
        self.is_guaranteed_round = False
        self.prefilter: Prefilter | None = None
        self.spent = 0
        self.resumes_at: JobId | None = None
        self.starts, self.tasks, self.array_room = draft.starts, draft.tasks, draft.array_room
        self.decided: list[Decided] = []
        self.waits: dict[JobId, Wait] = dict(draft.claimants)
        self.heads: dict[str, JobId] = {}
        self.exceeded_limits: dict[tuple[LimitSubject, Shape, int | None], Wait | None] = {}
        """Jobs that are alike → the limit that they exceed; it stays so, since within a pass usage only grows."""
        self.unfit_shapes: dict[int, str] = {}
        """Code of each shape that no longer fits → its partition."""
        self.missing_by_shape: dict[int, Wait] = {}
        """Code of a shape → what its jobs lack, unless they only lack nodes that other jobs hold."""
        self.first_counts: dict[str, int] = {}
        """Partition → number of jobs that have a planned start because they are first in the queue."""
        if snapshot.inside is None and len(self.scan.columns.reservations) > 1:
            self.scan.exclude(elsewhere(snapshot, self.scan.columns))
        if decided := draft.decided_jobs():
            self.scan.exclude(np.isin(self.scan.columns.job_id, decided))

    @property
    def cost(self) -> int:
        """Units of work done so far."""
        return self.spent + self.planned_starts.spent

    def waits_for_resources(self, job: PendingJob) -> bool:
        """Return whether the job could start if enough resources were free."""
        return self.non_resource_reason(job) is None and self.eligibility.never_fits_reason(self.snapshot, job) is None

    def waited_s(self, job: PendingJob) -> float:
        """Return for how long the job has been ready to start."""
        return self.snapshot.now - job.since

    def mark_unfit(self, code: int, partition: str) -> None:
        """Record that the shape no longer fits, and skip its jobs unless one may still get a planned start."""
        self.unfit_shapes[code] = partition
        if self.protects_no_more(partition):
            self.scan.skip_shape(code)

    def skip_shape_again(self, code: int) -> None:
        """Skip the jobs of an unfit shape whose exemption has ended."""
        if code in self.unfit_shapes and self.protects_no_more(self.unfit_shapes[code]):
            self.scan.skip_shape(code)

    def protects_no_more(self, partition: str) -> bool:
        """Return whether no further job of the partition gets a planned start as first in the queue.

        Then jobs that do not fit need not be visited.
        """
        if self.scheduling.backfill != "protect":
            return True
        max_protected = self.scheduling.protected_jobs
        if self.is_guaranteed_round:
            max_protected = max(1, max_protected)
        return self.first_counts.get(partition, 0) >= max_protected

    def charge(self, queue_index: int, job: PendingJob, usage: LimitDemand) -> int | None:
        """Count the usage against limits and mark the job as decided; return its lowest waiting task, if an array."""
        self.ledger.take(job.subject, usage)
        task = None
        if tasks := self.tasks.get(job.job_id, job.tasks):
            task = first_task(tasks)
            tasks = self.tasks[job.job_id] = tasks & ~task_bit(task)
        if not tasks:
            self.scan.skip(queue_index)
        if job.array_job_id in self.array_room:
            self.array_room[job.array_job_id] -= 1
        return task

    def non_resource_reason(self, job: PendingJob) -> Wait | None:
        """Return why the job could not start even if all resources were free; None: only resources can be missing."""
        if job.is_held:
            return Held()
        if job.begin_at is not None and job.begin_at > self.snapshot.now:
            return BeginsLater(job.begin_at)
        partition = self.snapshot.policy.partition(job.shape.partition)
        if partition is None or not partition.is_up:
            return PartitionIsDown(job.shape.partition)
        if job.array_job_id is not None and self.array_room.get(job.array_job_id, 1) <= 0:
            return Throttled(most=self.snapshot.array_throttle.get(job.array_job_id, 0))
        return (
            self._reservation_wait(job)
            or self.ledger.access_refusal(job.subject, job.shape, partition)
            or self._over_limit(job)
        )

    def _reservation_wait(self, job: PendingJob) -> Wait | None:
        """Return why the job's reservation keeps it from starting in this pass."""
        inside, now = self.snapshot.inside, self.snapshot.now
        if inside is None and not job.reservation:
            return None
        if inside is not None and not is_too_long(job, inside, now):
            return None
        named = named_reservations(self.snapshot, job, self.snapshot.booked if inside is None else (inside,))
        wait = named_wait(named, job.user, job.time_limit_s, now)
        if wait is not None or named.is_flex:
            return wait
        return BehindPlannedStart(self.draft.heads_inside.get(job.reservation, job.job_id))

    def _over_limit(self, job: PendingJob) -> Wait | None:
        """Return the limit that the job would exceed even with the minimum that it asks for."""
        subject = job.subject
        if not self.ledger.is_bounded(subject):
            return None
        key = (subject, job.shape, job.time_limit_s)
        if self.exceeded_limits.get(key) is None:
            self.exceeded_limits[key] = self.ledger.exceeded_limit(subject, self._usage(job, min_amounts(job.shape)))
        return self.exceeded_limits[key]

    def usage_of(self, job: PendingJob, grants: tuple[Grant, ...]) -> LimitDemand:
        """Return what the job would count against limits with these grants."""
        return self._usage(job, amounts_of(grants, self.snapshot.nodes, self.eligibility.places))

    def _usage(self, job: PendingJob, amounts: Mapping[str, int]) -> LimitDemand:
        return LimitDemand(amounts, hours(self.billing(amounts, job.qos), job.time_limit_s))

    def billing(self, amounts: Mapping[str, int], qos: str) -> int:
        return billing_of(self.snapshot.policy.billing, amounts, self.snapshot.limits.usage_factor(qos))

    def has_started(self, job: PendingJob) -> bool:
        """Return whether the job, or every task of an array, has started in this plan."""
        if job.tasks:
            return not self.tasks.get(job.job_id, job.tasks)
        return job.job_id in self.starting

    @cached_property
    def starting(self) -> frozenset[JobId]:
        """The jobs that start; read only once all decisions have been made."""
        return frozenset(start.job_id for start in self.starts)

    def started_jobs(self) -> list[RunningJob]:
        """Return the jobs that this pass starts, as running jobs."""
        return [self._as_running(*started) for started in self.planned_starts.started]

    def _as_running(self, job: PendingJob, grants: tuple[Grant, ...], ends: EndTimes) -> RunningJob:
        inside = self.snapshot.inside
        return RunningJob(
            job_id=job.job_id,
            user=job.user,
            grants=grants,
            ends_at=None if ends.by_limit == inf else ends.by_limit,
            began_at=self.snapshot.now,
            expected_s=job.expected_s,
            reservation="" if inside is None else inside.name,
            occurrence=0 if inside is None else inside.number,
            qos=job.qos,
            since=job.since,
            ran_s=job.ran_s,
            resume_s=job.resume_s,
            comes_back=True,
        )

    def plan(self) -> Plan:
        """Return the plan that this pass and the passes before it have made."""
        snapshot, draft = self.snapshot, self.draft
        return Plan(
            made_at=snapshot.now,
            starts=tuple(self.starts),
            preemptions=tuple(draft.preemptions),
            waits=self.waits,
            protected=(*draft.protected, *self.planned_starts.as_protected()),
            heads=self.heads,
            heads_inside=draft.heads_inside,
            closes={
                (occurrence.name, occurrence.number): (occurrence.closes_at, occurrence.next_name)
                for occurrence in snapshot.booked
                if occurrence.closes_at < occurrence.end_at
            },
            partitions={partition.name: partition.is_up for partition in snapshot.policy.partitions},
            billing=snapshot.policy.billing,
            starting=self.starting,
            kept_back={
                (subject.user, subject.account, subject.qos): self.ledger.used(subject)
                for subject in snapshot.kept_back
            },
            resumes_at=self.resumes_at,
            searches_from=draft.searches_from,
            changes_at=None if draft.changes_at == inf else draft.changes_at,
            is_worth_another=draft.has_kept_cores and bool(self.starts),
        )
