"""A scheduling pass: it decides which jobs of the queue start now, and which get a planned start.  Pure.

The pass scans the queue once, in its order.  A job that fits starts.  If a job does not fit, `Scheduling.backfill`
decides what later jobs of its partition may do.  ``none``: nothing.  ``skip``: start wherever they fit.  ``protect``:
start where they delay no planned start; planned starts go to the first `protected_jobs` blocked jobs and to the jobs
that the slots take (`gqd.sched.backfill.starvation`).  A job blocks no other job if it could not start even on its
available nodes when they were idle (the others are down, drained or avoided), or if a limit of its user, account or
QOS holds it back.

Reserved resources take no part in this.  Jobs of an active reservation are planned first, as in a small cluster of
their own.  Outside, no job starts on reserved resources or where it would run into a reservation
(`gqd.sched.reservation.scope`).

If accounts have guaranteed GPUs, jobs within a guarantee are tried before all others, which borrow what is left.  The
record of a job array stands for all of its tasks: each start is one task, the lowest first.

A pass ends when it has used up its `plan_steps`.  The next pass then spends half of its steps on the first jobs of the
queue, and the other half from where this pass ended, so that every job is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from math import inf

import numpy as np

from gq.model.ids import JobId
from gq.model.resource import Grant
from gq.model.tasks import first_task, task_bit
from gqd.sched.backfill.planned_starts import PlannedStarts
from gqd.sched.backfill.starvation import FIRST, PRECEDENCE, WIDE, StarvationGuard, candidates_of, starvation_guards
from gqd.sched.backfill.windows import runs_into
from gqd.sched.cycle.auto_throttle import AutoThrottle
from gqd.sched.cycle.state import PassOptions, Placement, PlanDraft
from gqd.sched.cycle.wait_reasons import brief_reason, explain, set_missing_resource_reasons
from gqd.sched.limits.ledger import LimitDemand, LimitSubject, hours, min_amounts
from gqd.sched.placement.billing import amounts_of, billing_of
from gqd.sched.placement.placement import is_possible
from gqd.sched.placement.placement import place as place_job
from gqd.sched.placement.prefilter import Prefilter
from gqd.sched.preemption.preempt import preemption_planner
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.reasons.unschedulable import is_picky, scarcest, why_not_yet
from gqd.sched.request import Shape, wanted_in_all
from gqd.sched.reservation.scope import elsewhere
from gqd.sched.reservation.windows import (
    ReservationWindow,
    is_too_long,
    named_reservations,
    named_wait,
)
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.queue_scan import QueueScan, columns_of
from gqd.sched.timeline.timeline import EndTimes, ends_if_started
from gqd.state.index.queue import Booleans, Integers
from gqd.state.plan import (
    BeginsLater,
    BehindPlannedStart,
    CoresReservedForGpus,
    Held,
    Insufficient,
    OutOfLicenses,
    OverLimit,
    PartitionIsDown,
    Plan,
    Protected,
    RunsIntoReservation,
    Start,
    Throttled,
    Wait,
    WaitsForLocality,
)  # fmt: skip

Objection = Callable[["SchedulingPass", PendingJob, tuple[Grant, ...]], Wait | None]
"""A function that returns why the job must not start on these grants; None: it may."""


_NOT_PLACED = Placement()


class SchedulingPass:
    """A pass over the snapshot of a cluster, or of a reservation's part of it; `work` runs it step by step."""

    def __init__(
        self,
        snapshot: Snapshot,
        eligibility: EligibilityCache,
        options: PassOptions,
        draft: PlanDraft,
        preempts: bool = True,
    ) -> None:
        """Begin a pass that adds to `draft`; `preempts`: False if no job may preempt others in it."""
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
        self.preemption_planner = preemption_planner(snapshot, self.scan.columns) if preempts else None
        self.auto_throttle = AutoThrottle()
        self.is_guaranteed_round = False
        self.prefilter: Prefilter | None = None
        self.spent = 0
        self.resumes_at: JobId | None = None
        self.starts, self.tasks, self.array_room = draft.starts, draft.tasks, draft.array_room
        self.waits: dict[JobId, Wait] = dict(draft.claimants)
        self.heads: dict[str, JobId] = {}
        self.runs_into: dict[JobId, RunsIntoReservation] = {}
        """Jobs that fit, but would still run when reserved resources must be clear → that reservation."""
        self.exceeded_limits: dict[tuple[LimitSubject, Shape, int | None], Wait | None] = {}
        """Jobs that are alike → the limit that they exceed; it stays so, since within a pass usage only grows."""
        self.unfit_shapes: dict[int, str] = {}
        """Code of each shape that no longer fits → its partition."""
        self.missing_by_shape: dict[int, Wait] = {}
        """Code of a shape → what its jobs lack, unless they only lack nodes that other jobs hold."""
        self.slot_gpus: dict[tuple[str, str], int] = {}
        """(slot, partition) → GPUs there that running jobs started by the slot hold."""
        self.first_counts: dict[str, int] = {}
        """Partition → number of jobs that have a planned start because they are first in the queue."""
        self.slots: set[tuple[str, str]] = set()
        """(slot, partition) of the slots that a job has taken."""
        self._slots = starvation_guards(self.scheduling)
        self._in_partition: dict[str, Booleans] = {}
        if self.preemption_planner is not None:
            self.scan.exempt(self.preemption_planner.who())
        if snapshot.inside is None and len(self.scan.columns.reservations) > 1:
            self.scan.exclude(elsewhere(snapshot, self.scan.columns))
        if decided := draft.decided_jobs():
            self.scan.exclude(np.isin(self.scan.columns.job_id, decided))

    @property
    def cost(self) -> int:
        """Units of work done so far."""
        return self.spent + self.planned_starts.spent

    # ── the order ───────────────────────────────────────────────────────────────────────────────────────────────────

    def work(self) -> Iterator[None]:
        """Run the pass; yields after each step."""
        if self.snapshot.limits.has_guarantees:
            yield from self._start_guaranteed()
        if self.scheduling.backfill == "protect":
            for names in PRECEDENCE:
                yield from self._retry_promised(names)
                yield from self._fill_slots(names)
        yield from self._scan_queue()
        yield from self.auto_throttle.work(self)
        if self.preemption_planner is not None:
            self.preemption_planner.finish(self)
        if not self.skip_planned_starts or self.planned_starts.constrains_next_plan:
            self.planned_starts.resolve()
        if self.skip_reasons:
            set_missing_resource_reasons(self)
        else:
            yield from explain(self)

    def _start_guaranteed(self) -> Iterator[None]:
        """Try the jobs within their account's guarantee; the first one blocked always gets a planned start."""
        self.is_guaranteed_round = True
        queue_index = self.scan.next(0)
        while queue_index is not None:
            job = self.snapshot.pending[queue_index]
            if not self.ledger.is_guaranteed(job.subject, wanted_in_all(job.shape)[0]):
                queue_index = self.scan.next(queue_index + 1)
                continue
            self.consider(queue_index)
            yield
            queue_index = self.scan.next(queue_index)
        self.is_guaranteed_round = False
        for code, partition in self.unfit_shapes.items():
            if self._protects_no_more(partition):
                self.scan.skip_shape(code)

    def _retry_promised(self, names: Collection[str]) -> Iterator[None]:
        """Retry jobs that held a planned start before a job takes one of these slots, so that it delays no old promise.

        A job that has since been overtaken in the queue loses this precedence.  Planned starts of later slots stay in
        force meanwhile: they were given when the jobs retried here were already protected.
        """
        later = PRECEDENCE[-1] if names == PRECEDENCE[0] else ()
        promised = self._still_promised({*names, *later})
        for queue_index, start in promised:
            self.planned_starts.carry_over(self.snapshot.pending[queue_index], start)
        for queue_index, start in promised:
            if start.slot in names:
                self.consider(queue_index, start.slot)
                yield
        if yielding := [start.job_id for _, start in promised if start.slot in later]:
            self.planned_starts.resolve()  # while the planned starts of later slots are still in force
            self.planned_starts.forget(yielding)

    def _still_promised(self, names: Collection[str]) -> list[tuple[int, Protected]]:
        """Return the queue index and the planned start of each job that still has precedence for one of these slots."""
        first_jobs = self._still_first()
        slots = {slot.name: slot for slot in self._slots}
        promised: list[tuple[int, Protected]] = []
        for start in self.snapshot.protected:
            if not start.is_promise or start.slot not in names:
                continue
            queue_index = self.scan.index_of(start.job_id)
            if queue_index is None or not self.scan.is_unvisited[queue_index]:
                continue
            slot, job = slots.get(start.slot), self.snapshot.pending[queue_index]
            if start.job_id in first_jobs or (slot is not None and self._is_open(slot, job)):
                promised.append((queue_index, start))
        return promised

    def _still_first(self) -> set[JobId]:
        """Return the jobs with a planned start as first in the queue that no other waiting job has overtaken."""
        before = {start.job_id for start in self.snapshot.protected if start.slot == FIRST}
        others = {start.job_id for start in self.snapshot.protected} - before
        still: set[JobId] = set()
        partitions = {name for job_id in before if (name := self._partition_of(job_id)) is not None}
        for partition in sorted(partitions):
            for queue_index in np.flatnonzero(self.scan.is_unvisited & self._is_in(partition)).tolist():
                job = self.snapshot.pending[queue_index]
                if job.job_id in before:
                    still.add(job.job_id)
                elif (
                    job.job_id not in others
                    and self.waits_for_resources(job)
                    and not self.auto_throttle.exceeds_share(self, job)
                ):
                    break
        return still

    def waits_for_resources(self, job: PendingJob) -> bool:
        """Return whether the job could start if enough resources were free."""
        return self.non_resource_reason(job) is None and self.eligibility.never_fits_reason(self.snapshot, job) is None

    def _partition_of(self, job_id: JobId) -> str | None:
        queue_index = self.scan.index_of(job_id)
        return None if queue_index is None else self.snapshot.pending[queue_index].shape.partition

    def _fill_slots(self, names: Collection[str]) -> Iterator[None]:
        """Try jobs for each of these slots that is still free in a partition, until one takes it."""
        slots = [slot for slot in self._slots if slot.name in names]
        if not slots or not len(self.scan.is_candidate):
            return
        for partition in self._partitions():
            is_in = self._is_in(partition)
            is_wide = self._is_wide
            for slot in slots:
                if self._has(slot.name, partition):
                    continue
                taken = candidates_of(
                    slot, self.scan.columns, self.snapshot.now, self.scan.is_unvisited & is_in, is_wide
                )
                for queue_index in taken:
                    if not self._is_open(slot, self.snapshot.pending[queue_index]):
                        break
                    self.consider(queue_index, slot.name)
                    yield
                    if self._has(slot.name, partition):
                        break

    def _scan_queue(self) -> Iterator[None]:
        """Try all remaining jobs; the module docstring says how a pass that runs out of steps is continued."""
        max_steps = self.scheduling.plan_steps
        resume_at = None if self.snapshot.resumes_at is None else self.scan.index_of(self.snapshot.resumes_at)
        left_at: int | None = None
        queue_index = self.scan.next(0)
        while True:
            if (
                queue_index is not None
                and resume_at is not None
                and queue_index < resume_at
                and 2 * self.cost >= max_steps
            ):
                left_at, queue_index, resume_at = queue_index, self.scan.next(resume_at), None
            if queue_index is None and left_at is not None:
                queue_index, left_at = self.scan.next(left_at), None
            if queue_index is None:
                return
            if self.cost >= max_steps:
                self.resumes_at = self.snapshot.pending[queue_index].job_id
                return
            self.consider(queue_index)
            yield
            queue_index = self.scan.next(queue_index)

    # ── one job ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def consider(self, queue_index: int, slot: str = "") -> bool:
        """Start the job, or a task of it; False: it does not start, and has been dealt with."""
        job = self.snapshot.pending[queue_index]
        self.spent += 1
        reason = self.non_resource_reason(job)
        if reason is None and self.auto_throttle.defers(self, queue_index, job):
            return False
        if reason is None:
            found = self._find(queue_index, job)
            if found.grants:
                self._start(queue_index, job, found.grants, found.usage, slot)
                return True
            reason = found.reason
        self.scan.skip(queue_index)
        if isinstance(reason, OutOfLicenses | RunsIntoReservation | None) and self._preempts(queue_index, job):
            return False
        if reason is not None:
            self.waits[job.job_id] = reason
        else:
            self._block(queue_index, job, slot)
        return False

    def _preempts(self, queue_index: int, job: PendingJob) -> bool:
        """Return whether the job, or every waiting task of an array, gets victims."""
        return self.preemption_planner is not None and self.preemption_planner.decide(self, queue_index, job)

    def starts_on(self, queue_index: int, grants: tuple[Grant, ...]) -> bool:
        """Start the job on exactly these grants if they are free and no rule forbids it; return whether it starts."""
        job = self.snapshot.pending[queue_index]
        available = {
            self.snapshot.nodes[index].name: index for index in self.eligibility.available(job, self.snapshot.now)
        }
        usage, ends = self.usage_of(job, grants), ends_if_started(job, self.snapshot.now, self.scheduling)
        if (
            not is_possible(self.backfill.now, grants, available)
            or self.ledger.exceeded_limit(job.subject, usage) is not None
        ):
            return False
        if self.backfill.relocate_conflicting(grants, ends) is not None:
            return False
        self._start(queue_index, job, grants, usage, "")
        return True

    def start_deferred_task(self, queue_index: int, objection: Objection) -> bool:
        """Start a task of a deferred array unless `objection` forbids it; True: the array has more tasks to try."""
        job = self.snapshot.pending[queue_index]
        reason = self.non_resource_reason(job)
        grants, usage, wait = self._find(queue_index, job) if reason is None else Placement(reason=reason)
        if grants is not None and (wait := objection(self, job, grants)) is None:
            self._start(queue_index, job, grants, usage, "")
            return bool(self.tasks.get(job.job_id))
        if wait is not None or self.skip_reasons:
            self.waits[job.job_id] = wait or brief_reason(self, queue_index, job)
        return False

    def _find(self, queue_index: int, job: PendingJob) -> Placement:
        """Find grants on which the job can start now without delaying a planned start or running into a reservation."""
        code = int(self.scan.columns.shape[queue_index])
        if code in self.unfit_shapes:
            return _NOT_PLACED
        self.prefilter = self.prefilter or Prefilter(self.backfill.now)
        if not self.prefilter.may_fit(job.shape):
            self._mark_unfit(code, job.shape.partition)
            return _NOT_PLACED
        node_indices = self.eligibility.available(job, self.snapshot.now)
        ends = ends_if_started(job, self.snapshot.now, self.scheduling)
        found = self._place_within_limits(job, self.backfill.now, node_indices)
        if found.reason:
            return found
        if found.grants is None:
            return Placement(reason=self._handle_misfit(code, job, node_indices))
        self.planned_starts.resolve(job.job_id)
        blocker = self.backfill.relocate_conflicting(found.grants, ends)
        if blocker is None:
            return found
        beside = self._place_within_limits(job, self.backfill.overlay(ends), node_indices)
        if beside.grants is None and not is_picky(job.shape):
            self._skip_longer(queue_index, code, ends)
        if beside.grants is None and isinstance(blocker, ReservationWindow):
            self.runs_into[job.job_id] = runs_into(blocker, found.grants, ends)
            if self.scheduling.backfill != "protect":  # a job that only waits for a reservation blocks no other
                return Placement(reason=beside.reason or self.runs_into[job.job_id])
        return beside

    def _handle_misfit(self, code: int, job: PendingJob, node_indices: Integers) -> Wait | None:
        """Skip the jobs of a shape that does not fit now; return why, unless other jobs simply hold the nodes."""
        reason = why_not_yet(
            self.snapshot, self.backfill.now, job, node_indices, self.snapshot.running, self.waited_s(job)
        )
        if isinstance(reason, WaitsForLocality):
            self.draft.changes_at = min(self.draft.changes_at, reason.until)
        elif reason is not None:
            self.draft.has_kept_cores |= isinstance(reason, CoresReservedForGpus)
            if job.avoid:
                return reason  # other jobs of its shape may use more nodes
            self.unfit_shapes[code] = job.shape.partition
            self.missing_by_shape[code] = reason
            self.scan.skip_shape(code)
        elif not job.avoid and not is_picky(job.shape):
            self._mark_unfit(code, job.shape.partition)
            if job.shape.resources and (short := self._short_of_generic(job, node_indices)) is not None:
                self.missing_by_shape[code] = short
        return reason

    def _short_of_generic(self, job: PendingJob, node_indices: Integers) -> Insufficient | None:
        """Return the generic resource that is short, without the jobs that hold it; None: something else is short."""
        name, wanted, free = scarcest(self.backfill.now, job.shape, node_indices)
        if name not in dict(job.shape.resources):
            return None
        return Insufficient(
            resource=name, wanted=wanted, free=free, holders=(), is_fragmented=free >= wanted, starts_at=None
        )

    def waited_s(self, job: PendingJob) -> float:
        """Return for how long the job has been ready to start."""
        return self.snapshot.now - job.since

    def _mark_unfit(self, code: int, partition: str) -> None:
        """Record that the shape no longer fits, and skip its jobs unless one may still get a planned start."""
        self.unfit_shapes[code] = partition
        if self._protects_no_more(partition):
            self.scan.skip_shape(code)

    def skip_shape_again(self, code: int) -> None:
        """Skip the jobs of an unfit shape whose exemption has ended."""
        if code in self.unfit_shapes and self._protects_no_more(self.unfit_shapes[code]):
            self.scan.skip_shape(code)

    def _skip_longer(self, queue_index: int, code: int, ends: EndTimes) -> None:
        """Skip the jobs of this shape that end no earlier than this one, which would delay a planned start."""
        job = self.snapshot.pending[queue_index]
        if not self._protects_no_more(job.shape.partition) or job.avoid:
            return
        longest = self.backfill.latest_ends_meeting(self.backfill.count_met(ends))
        now = self.snapshot.now
        self.scan.skip_shape(code, longest.by_limit - now, longest.expected - now)

    def _protects_no_more(self, partition: str) -> bool:
        """Return whether no further job of the partition gets a planned start as first in the queue.

        Then jobs that do not fit need not be visited.
        """
        if self.scheduling.backfill != "protect":
            return True
        max_protected = self.scheduling.protected_jobs
        if self.is_guaranteed_round:
            max_protected = max(1, max_protected)
        return self.first_counts.get(partition, 0) >= max_protected

    def _place_within_limits(self, job: PendingJob, overlay: Overlay, node_indices: Integers) -> Placement:
        """Place the job on the overlay within its limits.

        Its grants may exceed the minimum that it asks for, with whole nodes or with GPUs of a type that is limited; if
        such a limit would be exceeded, nodes with other types are tried.
        """
        self.spent += 1 + len(node_indices) // 64
        nodes = self.snapshot.nodes
        first_over: Wait | None = None
        waited_s = self.waited_s(job)
        while (grants := place_job(overlay, job.shape, node_indices, waited_s=waited_s, qos=job.qos)) is not None:
            usage = self.usage_of(job, grants)
            over = self.ledger.exceeded_limit(job.subject, usage)
            if over is None:
                return Placement(grants, usage)
            first_over = first_over or over
            gpu_type = over.limit.resource.partition(":")[2] if isinstance(over, OverLimit) else ""
            if not gpu_type or job.shape.gpu_type is not None:
                break
            node_indices = np.array(
                [index for index in node_indices.tolist() if not nodes[index].type_mask(gpu_type)], np.int64
            )
        return Placement(reason=first_over)

    def _start(
        self, queue_index: int, job: PendingJob, grants: tuple[Grant, ...], usage: LimitDemand, slot: str
    ) -> None:
        ends = ends_if_started(job, self.snapshot.now, self.scheduling)
        self.planned_starts.start(job, grants, ends)
        self.prefilter = None
        task = self.charge(queue_index, job, usage)
        billing = self._billing(usage.amounts, job.qos)
        slot = "" if slot == FIRST else slot
        inside = self.snapshot.inside
        occurrence = ("", 0) if inside is None else (inside.name, inside.number)
        priority = int(self.scan.columns.priority[queue_index])
        self.starts.append(Start(job.job_id, job.attempt, grants, task, billing, slot, *occurrence, priority=priority))

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

    # ── a job without resources ─────────────────────────────────────────────────────────────────────────────────────

    def _block(self, queue_index: int, job: PendingJob, slot: str) -> None:
        """Deal with a job that does not fit: plan its start or stop its partition, as the backfill policy says."""
        partition = job.shape.partition
        is_protecting = bool(slot) or not self._protects_no_more(partition)
        is_stopping = self.scheduling.backfill == "none"
        if not is_protecting and job.job_id in self.runs_into:
            self.waits[job.job_id] = self.runs_into[job.job_id]
            return
        if partition in self.heads and not is_protecting and not is_stopping:
            return
        never_fits_reason = self.eligibility.never_fits_reason(self.snapshot, job)
        if never_fits_reason is not None:
            self.waits[job.job_id] = never_fits_reason
            return
        self.heads.setdefault(partition, job.job_id)
        if is_stopping:
            self.scan.skip_all(self._is_in(partition))
        elif self.scheduling.backfill == "protect" and is_protecting:
            self._protect(job, slot or FIRST)
        if self.skip_reasons and job.job_id not in self.waits:
            self.waits[job.job_id] = self.runs_into.get(job.job_id) or brief_reason(self, queue_index, job)

    def _protect(self, job: PendingJob, slot: str) -> None:
        self.planned_starts.protect(job, slot, self._is_outranked(job, slot))
        partition = job.shape.partition
        self.slots.add((slot, partition))
        if slot == FIRST:
            self.first_counts[partition] = self.first_counts.get(partition, 0) + 1
            if self._protects_no_more(partition):
                for code in [code for code, name in self.unfit_shapes.items() if name == partition]:
                    self.scan.skip_shape(code)

    def _is_outranked(self, job: PendingJob, slot: str) -> bool:
        """Return whether a waiting multi-node job, which has precedence, may need the nodes of a job of a later slot.

        The later job then gets no guaranteed start.  The same holds beside a multi-node job with a planned start, which
        may come to start earlier than planned.
        """
        if slot in PRECEDENCE[0] or self.scheduling.protect_wide_after_s is None:
            return False
        members = self.eligibility.members(job.shape.partition)
        rivals = {name for name in self._partitions() if (self.eligibility.members(name) & members).any()}
        if any(self._has(WIDE, name) for name in rivals):
            return True
        is_wide = self.scan.expand_by_shape([kind.is_wide and kind.partition in rivals for kind in self.kinds])
        return bool((self.scan.is_unvisited & is_wide).any())

    # ── whole partitions ────────────────────────────────────────────────────────────────────────────────────────────

    def _partitions(self) -> list[str]:
        return sorted({kind.partition for kind in self.kinds})

    def _is_in(self, partition: str) -> Booleans:
        if partition not in self._in_partition:
            is_in = self.scan.expand_by_shape([kind.partition == partition for kind in self.kinds])
            is_in.flags.writeable = False
            self._in_partition[partition] = is_in
        return self._in_partition[partition]

    @cached_property
    def _is_wide(self) -> Booleans:
        return self.scan.expand_by_shape([kind.is_wide for kind in self.kinds])

    def _has(self, slot: str, partition: str) -> bool:
        return (slot, partition) in self.slots

    def _is_open(self, slot: StarvationGuard, job: PendingJob) -> bool:
        """Return whether the slot's jobs stay within its share with this one; a single job may exceed the share."""
        if slot.share >= 1.0:
            return True
        partition = job.shape.partition
        members = self.eligibility.members(partition)
        key = (slot.name, partition)
        if key not in self.slot_gpus:
            running = (cell for job in self.snapshot.running if job.slot == slot.name for cell in job.cells)
            self.slot_gpus[key] = sum(gpus.bit_count() for name, _, gpus in running if self._is_member(name, members))
        starts = (grant for start in self.starts if start.slot == slot.name for grant in start.grants)
        held = self.slot_gpus[key] + sum(len(grant.gpus) for grant in starts if self._is_member(grant.node, members))
        return not held or held + wanted_in_all(job.shape)[0] <= slot.share * self.eligibility.gpus_of(partition)

    def _is_member(self, node: str, members: Booleans) -> bool:
        node_index = self.eligibility.places.get(node)
        return node_index is not None and bool(members[node_index])

    # ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────

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
        return LimitDemand(amounts, hours(self._billing(amounts, job.qos), job.time_limit_s))

    def _billing(self, amounts: Mapping[str, int], qos: str) -> int:
        return billing_of(self.snapshot.policy.billing, amounts, self.snapshot.limits.usage_factor(qos))

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def has_started(self, job: PendingJob) -> bool:
        """Return whether the job, or every task of an array, has started in this plan."""
        if job.tasks:
            return not self.tasks.get(job.job_id, job.tasks)
        return job.job_id in self._starting

    @cached_property
    def _starting(self) -> frozenset[JobId]:
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
            starting=self._starting,
            kept_back={
                (subject.user, subject.account, subject.qos): self.ledger.used(subject)
                for subject in snapshot.kept_back
            },
            resumes_at=self.resumes_at,
            searches_from=draft.searches_from,
            changes_at=None if draft.changes_at == inf else draft.changes_at,
            is_worth_another=draft.has_kept_cores and bool(self.starts),
        )
