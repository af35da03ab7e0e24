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

from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.backfill.starvation import FIRST, PRECEDENCE, WIDE, StarvationGuard, candidates_of, starvation_guards
from gqd.sched.backfill.windows import runs_into
from gqd.sched.cycle.auto_throttle import AutoThrottle, Objection
from gqd.sched.cycle.state import PassState, Placement
from gqd.sched.cycle.wait_reasons import brief_reason, explain, set_missing_resource_reasons
from gqd.sched.limits.ledger import LimitDemand
from gqd.sched.placement.placement import is_possible
from gqd.sched.placement.placement import place as place_job
from gqd.sched.placement.prefilter import Prefilter
from gqd.sched.preemption.preempt import preemption_planner
from gqd.sched.reasons.unschedulable import is_picky, scarcest, why_not_yet
from gqd.sched.request import wanted_in_all
from gqd.sched.reservation.windows import ReservationWindow
from gqd.sched.snapshot.model import Overlay, PendingJob
from gqd.sched.timeline.timeline import EndTimes, ends_if_started
from gqd.state.index.queue import Booleans, Integers
from gqd.state.plan import (
    CoresReservedForGpus,
    Insufficient,
    OutOfLicenses,
    OverLimit,
    Protected,
    RunsIntoReservation,
    Start,
    Wait,
    WaitsForLocality,
)  # fmt: skip

_NOT_PLACED = Placement()


class SchedulingPass:
    """A pass over the snapshot of a cluster, or of a reservation's part of it; `work` runs it step by step."""

    def __init__(self, state: PassState, preempts: bool = True) -> None:
        """`preempts`: False if no job may preempt others in this pass."""
        self.state = state
        columns = state.scan.columns
        present = np.flatnonzero(np.bincount(columns.qos, minlength=len(columns.names_of_qos)))
        names = [columns.names_of_qos[code] for code in present.tolist()]
        self.preemption_planner = preemption_planner(state.snapshot, names) if preempts else None
        self.auto_throttle = AutoThrottle()
        self.runs_into: dict[JobId, RunsIntoReservation] = {}
        """Jobs that fit, but would still run when reserved resources must be clear → that reservation."""
        self.slot_gpus: dict[tuple[str, str], int] = {}
        """(slot, partition) → GPUs there that running jobs started by the slot hold."""
        self.slots: set[tuple[str, str]] = set()
        """(slot, partition) of the slots that a job has taken."""
        self._slots = starvation_guards(state.scheduling)
        self._in_partition: dict[str, Booleans] = {}
        if self.preemption_planner is not None:
            state.scan.exempt(self.preemption_planner.may_preempt(columns))

    # ── the order ───────────────────────────────────────────────────────────────────────────────────────────────────

    def work(self) -> Iterator[None]:
        """Run the pass; yields after each step."""
        state = self.state
        if state.snapshot.limits.has_guarantees:
            yield from self._start_guaranteed()
        if state.scheduling.backfill == "protect":
            for names in PRECEDENCE:
                yield from self._retry_promised(names)
                yield from self._fill_slots(names)
        yield from self._scan_queue()
        yield from self.auto_throttle.work(state, self._start_deferred_task)
        if self.preemption_planner is not None:
            self.preemption_planner.finish(state)
        if not state.skip_planned_starts or state.planned_starts.constrains_next_plan:
            state.planned_starts.resolve()
        if state.skip_reasons:
            set_missing_resource_reasons(state)
        else:
            yield from explain(state)

    def _start_guaranteed(self) -> Iterator[None]:
        """Try the jobs within their account's guarantee; the first one blocked always gets a planned start."""
        state = self.state
        state.is_guaranteed_round = True
        queue_index = state.scan.next(0)
        while queue_index is not None:
            job = state.snapshot.pending[queue_index]
            if not state.ledger.is_guaranteed(job.subject, wanted_in_all(job.shape)[0]):
                queue_index = state.scan.next(queue_index + 1)
                continue
            self.consider(queue_index)
            yield
            queue_index = state.scan.next(queue_index)
        state.is_guaranteed_round = False
        for code, partition in state.unfit_shapes.items():
            if state.protects_no_more(partition):
                state.scan.skip_shape(code)

    def _retry_promised(self, names: Collection[str]) -> Iterator[None]:
        """Retry jobs that held a planned start before a job takes one of these slots, so that it delays no old promise.

        A job that has since been overtaken in the queue loses this precedence.  Planned starts of later slots stay in
        force meanwhile: they were given when the jobs retried here were already protected.
        """
        state = self.state
        later = PRECEDENCE[-1] if names == PRECEDENCE[0] else ()
        promised = self._still_promised({*names, *later})
        for queue_index, start in promised:
            state.planned_starts.carry_over(state.snapshot.pending[queue_index], start)
        for queue_index, start in promised:
            if start.slot in names:
                self.consider(queue_index, start.slot)
                yield
        if yielding := [start.job_id for _, start in promised if start.slot in later]:
            state.planned_starts.resolve()  # while the planned starts of later slots are still in force
            state.planned_starts.forget(yielding)

    def _still_promised(self, names: Collection[str]) -> list[tuple[int, Protected]]:
        """Return the queue index and the planned start of each job that still has precedence for one of these slots."""
        state = self.state
        first_jobs = self._still_first()
        slots = {slot.name: slot for slot in self._slots}
        promised: list[tuple[int, Protected]] = []
        for start in state.snapshot.protected:
            if not start.is_promise or start.slot not in names:
                continue
            queue_index = state.scan.index_of(start.job_id)
            if queue_index is None or not state.scan.is_unvisited[queue_index]:
                continue
            slot, job = slots.get(start.slot), state.snapshot.pending[queue_index]
            if start.job_id in first_jobs or (slot is not None and self._is_open(slot, job)):
                promised.append((queue_index, start))
        return promised

    def _still_first(self) -> set[JobId]:
        """Return the jobs with a planned start as first in the queue that no other waiting job has overtaken."""
        state = self.state
        before = {start.job_id for start in state.snapshot.protected if start.slot == FIRST}
        others = {start.job_id for start in state.snapshot.protected} - before
        still: set[JobId] = set()
        partitions = {name for job_id in before if (name := self._partition_of(job_id)) is not None}
        for partition in sorted(partitions):
            for queue_index in np.flatnonzero(state.scan.is_unvisited & self._is_in(partition)).tolist():
                job = state.snapshot.pending[queue_index]
                if job.job_id in before:
                    still.add(job.job_id)
                elif (
                    job.job_id not in others
                    and state.waits_for_resources(job)
                    and not self.auto_throttle.exceeds_share(state, job)
                ):
                    break
        return still

    def _partition_of(self, job_id: JobId) -> str | None:
        queue_index = self.state.scan.index_of(job_id)
        return None if queue_index is None else self.state.snapshot.pending[queue_index].shape.partition

    def _fill_slots(self, names: Collection[str]) -> Iterator[None]:
        """Try jobs for each of these slots that is still free in a partition, until one takes it."""
        state = self.state
        slots = [slot for slot in self._slots if slot.name in names]
        if not slots or not len(state.scan.is_candidate):
            return
        for partition in self._partitions():
            is_in = self._is_in(partition)
            is_wide = self._is_wide
            for slot in slots:
                if self._has(slot.name, partition):
                    continue
                taken = candidates_of(
                    slot, state.scan.columns, state.snapshot.now, state.scan.is_unvisited & is_in, is_wide
                )
                for queue_index in taken:
                    if not self._is_open(slot, state.snapshot.pending[queue_index]):
                        break
                    self.consider(queue_index, slot.name)
                    yield
                    if self._has(slot.name, partition):
                        break

    def _scan_queue(self) -> Iterator[None]:
        """Try all remaining jobs; the module docstring says how a pass that runs out of steps is continued."""
        state = self.state
        max_steps = state.scheduling.plan_steps
        resume_at = None if state.snapshot.resumes_at is None else state.scan.index_of(state.snapshot.resumes_at)
        left_at: int | None = None
        queue_index = state.scan.next(0)
        while True:
            if (
                queue_index is not None
                and resume_at is not None
                and queue_index < resume_at
                and 2 * state.cost >= max_steps
            ):
                left_at, queue_index, resume_at = queue_index, state.scan.next(resume_at), None
            if queue_index is None and left_at is not None:
                queue_index, left_at = state.scan.next(left_at), None
            if queue_index is None:
                return
            if state.cost >= max_steps:
                state.resumes_at = state.snapshot.pending[queue_index].job_id
                return
            self.consider(queue_index)
            yield
            queue_index = state.scan.next(queue_index)

    # ── one job ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def consider(self, queue_index: int, slot: str = "") -> bool:
        """Start the job, or a task of it; False: it does not start, and has been dealt with."""
        state = self.state
        job = state.snapshot.pending[queue_index]
        state.spent += 1
        reason = state.non_resource_reason(job)
        if reason is None and self.auto_throttle.defers(state, queue_index, job):
            return False
        if reason is None:
            found = self._find(queue_index, job)
            if found.grants:
                self._start(queue_index, job, found.grants, found.usage, slot)
                return True
            reason = found.reason
        state.scan.skip(queue_index)
        if isinstance(reason, OutOfLicenses | RunsIntoReservation | None) and self._preempts(queue_index, job):
            return False
        if reason is not None:
            state.waits[job.job_id] = reason
        else:
            self._block(queue_index, job, slot)
        return False

    def _preempts(self, queue_index: int, job: PendingJob) -> bool:
        """Return whether the job, or every waiting task of an array, gets victims."""
        return self.preemption_planner is not None and self.preemption_planner.decide(self.state, queue_index, job)

    def starts_on(self, queue_index: int, grants: tuple[Grant, ...]) -> bool:
        """Start the job on exactly these grants if they are free and no rule forbids it; return whether it starts."""
        state = self.state
        job = state.snapshot.pending[queue_index]
        available = {
            state.snapshot.nodes[index].name: index for index in state.eligibility.available(job, state.snapshot.now)
        }
        usage, ends = state.usage_of(job, grants), ends_if_started(job, state.snapshot.now, state.scheduling)
        if (
            not is_possible(state.backfill.now, grants, available)
            or state.ledger.exceeded_limit(job.subject, usage) is not None
        ):
            return False
        if state.backfill.relocate_conflicting(grants, ends) is not None:
            return False
        self._start(queue_index, job, grants, usage, "")
        return True

    def _start_deferred_task(self, queue_index: int, objection: Objection) -> bool:
        """Start a task of a deferred array unless `objection` forbids it; True: the array has more tasks to try."""
        state = self.state
        job = state.snapshot.pending[queue_index]
        reason = state.non_resource_reason(job)
        grants, usage, wait = self._find(queue_index, job) if reason is None else Placement(reason=reason)
        if grants is not None and (wait := objection(state, job, grants)) is None:
            self._start(queue_index, job, grants, usage, "")
            return bool(state.tasks.get(job.job_id))
        if wait is not None or state.skip_reasons:
            state.waits[job.job_id] = wait or brief_reason(state, queue_index, job)
        return False

    def _find(self, queue_index: int, job: PendingJob) -> Placement:
        """Find grants on which the job can start now without delaying a planned start or running into a reservation."""
        state = self.state
        code = int(state.scan.columns.shape[queue_index])
        if code in state.unfit_shapes:
            return _NOT_PLACED
        state.prefilter = state.prefilter or Prefilter(state.backfill.now)
        if not state.prefilter.may_fit(job.shape):
            state.mark_unfit(code, job.shape.partition)
            return _NOT_PLACED
        node_indices = state.eligibility.available(job, state.snapshot.now)
        ends = ends_if_started(job, state.snapshot.now, state.scheduling)
        found = self._place_within_limits(job, state.backfill.now, node_indices)
        if found.reason:
            return found
        if found.grants is None:
            return Placement(reason=self._handle_misfit(code, job, node_indices))
        state.planned_starts.resolve(job.job_id)
        blocker = state.backfill.relocate_conflicting(found.grants, ends)
        if blocker is None:
            return found
        beside = self._place_within_limits(job, state.backfill.overlay(ends), node_indices)
        if beside.grants is None and not is_picky(job.shape):
            self._skip_longer(queue_index, code, ends)
        if beside.grants is None and isinstance(blocker, ReservationWindow):
            self.runs_into[job.job_id] = runs_into(blocker, found.grants, ends)
            if state.scheduling.backfill != "protect":  # a job that only waits for a reservation blocks no other
                return Placement(reason=beside.reason or self.runs_into[job.job_id])
        return beside

    def _handle_misfit(self, code: int, job: PendingJob, node_indices: Integers) -> Wait | None:
        """Skip the jobs of a shape that does not fit now; return why, unless other jobs simply hold the nodes."""
        state = self.state
        reason = why_not_yet(
            state.snapshot, state.backfill.now, job, node_indices, state.snapshot.running, state.waited_s(job)
        )
        if isinstance(reason, WaitsForLocality):
            state.draft.changes_at = min(state.draft.changes_at, reason.until)
        elif reason is not None:
            state.draft.has_kept_cores |= isinstance(reason, CoresReservedForGpus)
            if job.avoid:
                return reason  # other jobs of its shape may use more nodes
            state.unfit_shapes[code] = job.shape.partition
            state.missing_by_shape[code] = reason
            state.scan.skip_shape(code)
        elif not job.avoid and not is_picky(job.shape):
            state.mark_unfit(code, job.shape.partition)
            if job.shape.resources and (short := self._short_of_generic(job, node_indices)) is not None:
                state.missing_by_shape[code] = short
        return reason

    def _short_of_generic(self, job: PendingJob, node_indices: Integers) -> Insufficient | None:
        """Return the generic resource that is short, without the jobs that hold it; None: something else is short."""
        name, wanted, free = scarcest(self.state.backfill.now, job.shape, node_indices)
        if name not in dict(job.shape.resources):
            return None
        return Insufficient(
            resource=name, wanted=wanted, free=free, holders=(), is_fragmented=free >= wanted, starts_at=None
        )

    def _skip_longer(self, queue_index: int, code: int, ends: EndTimes) -> None:
        """Skip the jobs of this shape that end no earlier than this one, which would delay a planned start."""
        state = self.state
        job = state.snapshot.pending[queue_index]
        if not state.protects_no_more(job.shape.partition) or job.avoid:
            return
        longest = state.backfill.latest_ends_meeting(state.backfill.count_met(ends))
        now = state.snapshot.now
        state.scan.skip_shape(code, longest.by_limit - now, longest.expected - now)

    def _place_within_limits(self, job: PendingJob, overlay: Overlay, node_indices: Integers) -> Placement:
        """Place the job on the overlay within its limits.

        Its grants may exceed the minimum that it asks for, with whole nodes or with GPUs of a type that is limited; if
        such a limit would be exceeded, nodes with other types are tried.
        """
        state = self.state
        state.spent += 1 + len(node_indices) // 64
        nodes = state.snapshot.nodes
        first_over: Wait | None = None
        waited_s = state.waited_s(job)
        while (grants := place_job(overlay, job.shape, node_indices, waited_s=waited_s, qos=job.qos)) is not None:
            usage = state.usage_of(job, grants)
            over = state.ledger.exceeded_limit(job.subject, usage)
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
        state = self.state
        ends = ends_if_started(job, state.snapshot.now, state.scheduling)
        state.planned_starts.start(job, grants, ends)
        state.prefilter = None
        task = state.charge(queue_index, job, usage)
        billing = state.billing(usage.amounts, job.qos)
        slot = "" if slot == FIRST else slot
        inside = state.snapshot.inside
        occurrence = ("", 0) if inside is None else (inside.name, inside.number)
        priority = int(state.scan.columns.priority[queue_index])
        state.starts.append(Start(job.job_id, job.attempt, grants, task, billing, slot, *occurrence, priority=priority))

    # ── a job without resources ─────────────────────────────────────────────────────────────────────────────────────

    def _block(self, queue_index: int, job: PendingJob, slot: str) -> None:
        """Deal with a job that does not fit: plan its start or stop its partition, as the backfill policy says."""
        state = self.state
        partition = job.shape.partition
        is_protecting = bool(slot) or not state.protects_no_more(partition)
        is_stopping = state.scheduling.backfill == "none"
        if not is_protecting and job.job_id in self.runs_into:
            state.waits[job.job_id] = self.runs_into[job.job_id]
            return
        if partition in state.heads and not is_protecting and not is_stopping:
            return
        never_fits_reason = state.eligibility.never_fits_reason(state.snapshot, job)
        if never_fits_reason is not None:
            state.waits[job.job_id] = never_fits_reason
            return
        state.heads.setdefault(partition, job.job_id)
        if is_stopping:
            state.scan.skip_all(self._is_in(partition))
        elif state.scheduling.backfill == "protect" and is_protecting:
            self._protect(job, slot or FIRST)
        if state.skip_reasons and job.job_id not in state.waits:
            state.waits[job.job_id] = self.runs_into.get(job.job_id) or brief_reason(state, queue_index, job)

    def _protect(self, job: PendingJob, slot: str) -> None:
        state = self.state
        state.planned_starts.protect(job, slot, self._is_outranked(job, slot))
        partition = job.shape.partition
        self.slots.add((slot, partition))
        if slot == FIRST:
            state.first_counts[partition] = state.first_counts.get(partition, 0) + 1
            if state.protects_no_more(partition):
                for code in [code for code, name in state.unfit_shapes.items() if name == partition]:
                    state.scan.skip_shape(code)

    def _is_outranked(self, job: PendingJob, slot: str) -> bool:
        """Return whether a waiting multi-node job, which has precedence, may need the nodes of a job of a later slot.

        The later job then gets no guaranteed start.  The same holds beside a multi-node job with a planned start, which
        may come to start earlier than planned.
        """
        state = self.state
        if slot in PRECEDENCE[0] or state.scheduling.protect_wide_after_s is None:
            return False
        members = state.eligibility.members(job.shape.partition)
        rivals = {name for name in self._partitions() if (state.eligibility.members(name) & members).any()}
        if any(self._has(WIDE, name) for name in rivals):
            return True
        is_wide = state.scan.expand_by_shape([kind.is_wide and kind.partition in rivals for kind in state.kinds])
        return bool((state.scan.is_unvisited & is_wide).any())

    # ── whole partitions ────────────────────────────────────────────────────────────────────────────────────────────

    def _partitions(self) -> list[str]:
        return sorted({kind.partition for kind in self.state.kinds})

    def _is_in(self, partition: str) -> Booleans:
        if partition not in self._in_partition:
            is_in = self.state.scan.expand_by_shape([kind.partition == partition for kind in self.state.kinds])
            is_in.flags.writeable = False
            self._in_partition[partition] = is_in
        return self._in_partition[partition]

    @cached_property
    def _is_wide(self) -> Booleans:
        return self.state.scan.expand_by_shape([kind.is_wide for kind in self.state.kinds])

    def _has(self, slot: str, partition: str) -> bool:
        return (slot, partition) in self.slots

    def _is_open(self, slot: StarvationGuard, job: PendingJob) -> bool:
        """Return whether the slot's jobs stay within its share with this one; a single job may exceed the share."""
        state = self.state
        if slot.share >= 1.0:
            return True
        partition = job.shape.partition
        members = state.eligibility.members(partition)
        key = (slot.name, partition)
        if key not in self.slot_gpus:
            running = (cell for job in state.snapshot.running if job.slot == slot.name for cell in job.cells)
            self.slot_gpus[key] = sum(gpus.bit_count() for name, _, gpus in running if self._is_member(name, members))
        starts = (grant for start in state.starts if start.slot == slot.name for grant in start.grants)
        held = self.slot_gpus[key] + sum(len(grant.gpus) for grant in starts if self._is_member(grant.node, members))
        return not held or held + wanted_in_all(job.shape)[0] <= slot.share * state.eligibility.gpus_of(partition)

    def _is_member(self, node: str, members: Booleans) -> bool:
        node_index = self.state.eligibility.places.get(node)
        return node_index is not None and bool(members[node_index])

    # ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────
