"""Who starts now: the queue in its order, with protected starts for some who wait, in one pass.  Pure.

The pass walks the queue once.  A job that fits starts.  For one that does not, `Scheduling.backfill` says what those
behind it in its partition may do: ``none``, nothing; ``skip``, start wherever they fit; ``protect``, start where they
do not delay those that have a protected start: the first `protected_jobs` that are blocked, and whom the slots take.
A job that cannot start even on its available nodes empty (they are down, drained or left out) holds up nobody, nor
does one that a limit of its user, account or QOS keeps back.

What reservations keep is no part of this: inside of each that is under way those who may use it are planned first, as
in a small cluster of its own, and outside nobody starts on it or would run into it (`gqd.sched.reservation.scope`).

Where accounts are guaranteed GPUs, jobs that stay within a guarantee go before all of this; all others borrow what is
left.  The record of an array stands for all of its tasks: each start is one of them, the lowest first.

A pass that has used up its `plan_steps` ends with what it has.  The next walks the first jobs of the queue with half
of its steps, and with the other half goes on where this one was cut short; so everybody is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from gq.model.ids import JobId
from gq.model.resource import Grant
from gq.model.tasks import first_task, task_bit
from gqd.sched.backfill.planned_starts import Protection
from gqd.sched.backfill.starvation import FIRST, RANKS, WIDE, Slot, slots_of, taken_by
from gqd.sched.backfill.windows import runs_into
from gqd.sched.cycle.auto_throttle import AutoThrottle
from gqd.sched.cycle.state import PlanDraft
from gqd.sched.cycle.wait_reasons import brief_reason, explain, set_missing_resource_reasons
from gqd.sched.limits.ledger import Asker, Wanted, hours, least_wanted
from gqd.sched.placement.billing import amounts_of, billing_of
from gqd.sched.placement.placement import is_possible
from gqd.sched.placement.placement import place as put
from gqd.sched.placement.prefilter import Glance
from gqd.sched.preemption.preempt import preempting
from gqd.sched.reasons.eligibility import Ground
from gqd.sched.reasons.unschedulable import is_picky, scarcest, why_not_yet
from gqd.sched.request import Shape, wanted_in_all
from gqd.sched.reservation.scope import elsewhere
from gqd.sched.reservation.windows import BookedWindow, Named, is_too_long, named_by, named_wait
from gqd.sched.snapshot.model import Booked, Overlay, PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.queue_scan import QueueScan, columns_of
from gqd.sched.timeline.timeline import Ends, ends_if_started
from gqd.state.index.queue import Booleans, Integers
from gqd.state.index.tally import account_path
from gqd.state.plan import (
    BeginsLater,
    Behind,
    CoresKept,
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

_NOTHING = Wanted({}, 0.0)
Objection = Callable[["SchedulingPass", PendingJob, tuple[Grant, ...]], Wait | None]
"""Why a job is not to start on these."""
_Found = tuple[tuple[Grant, ...] | None, Wanted, Wait | None]
"""(grants, what they come to, the limit that they would be over)"""


class PassOptions(NamedTuple):
    """See `Planner.begin`."""

    skip_reasons: bool
    asked: Collection[JobId] | None
    skip_planned_starts: bool


class SchedulingPass:
    """One pass under way over what is one cluster; `work` does it, one step after the other."""

    def __init__(
        self, snapshot: Snapshot, ground: Ground, options: PassOptions, draft: PlanDraft, preempts: bool = True
    ) -> None:
        """`preempts`: False, if nobody gives way to anybody in it."""
        self.snapshot = snapshot
        self.ground = ground
        self.scheduling = snapshot.policy.scheduling
        self.skip_reasons, self.asked, self.skip_planned_starts = options
        self.draft = draft
        self.scan = QueueScan(snapshot.columns or columns_of(snapshot.pending), self.scheduling)
        self.kinds = ground.kinds_of(self.scan, snapshot.pending)
        self.protection = Protection(snapshot, ground)
        self.guard = self.protection.guard
        self.ledger = draft.ledger
        self.preempting = preempting(snapshot, self.scan.columns) if preempts else None
        self.auto_throttle = AutoThrottle()
        self.is_guaranteed_round = False
        self.glance: Glance | None = None
        self.spent = 0
        self.resumes_at: JobId | None = None
        self.starts, self.tasks, self.array_room = draft.starts, draft.tasks, draft.array_room
        self.waits: dict[JobId, Wait] = dict(draft.claimants)
        self.heads: dict[str, JobId] = {}
        self.runs_into: dict[JobId, RunsIntoReservation] = {}
        """Those that fit, and would still run when something is reserved."""
        self.over: dict[tuple[Asker, Shape, int | None], Wait | None] = {}
        """Those alike of whom one is over a limit: all are, since in a pass what is held only grows."""
        self.unfit: dict[int, str] = {}
        """Codes of shapes that do not fit any more → their partition."""
        self.lacking: dict[int, Wait] = {}
        """Codes of shapes, where what they lack is not the nodes of those that go first → what that is."""
        self.slot_gpus: dict[tuple[str, str], int] = {}
        """By slot and partition: what those hold there that run already."""
        self.firsts: dict[str, int] = {}
        """By partition: how many have a protected start since they are first."""
        self.slots: set[tuple[str, str]] = set()
        """(slot, partition) of those that are taken."""
        self._slots = slots_of(self.scheduling)
        self._in_partition: dict[str, Booleans] = {}
        if self.preempting is not None:
            self.scan.exempt(self.preempting.who())
        if snapshot.inside is None and len(self.scan.columns.reservations) > 1:
            self.scan.exclude(elsewhere(snapshot, self.scan.columns))
        if seen_to := draft.seen_to():
            self.scan.exclude(np.isin(self.scan.columns.job_id, seen_to))

    @property
    def cost(self) -> int:
        """Units of work done."""
        return self.spent + self.protection.spent

    # ── the order ─────────────────────────────────────────────────────────────────────────────────────────────

    def work(self) -> Iterator[None]:
        if self.snapshot.limits.has_guarantees:
            yield from self._guaranteed()
        if self.scheduling.backfill == "protect":
            for names in RANKS:
                yield from self._keep_protected(names)
                yield from self._fill_slots(names)
        yield from self._walk_on()
        yield from self.auto_throttle.work(self)
        if self.preempting is not None:
            self.preempting.finish(self)
        if not self.skip_planned_starts or self.protection.binds:
            self.protection.settle()
        if self.skip_reasons:
            set_missing_resource_reasons(self)
        else:
            yield from explain(self)

    def _guaranteed(self) -> Iterator[None]:
        """Jobs that stay within what their account is guaranteed; the first that is blocked is always protected."""
        self.is_guaranteed_round = True
        place = self.scan.next(0)
        while place is not None:
            job = self.snapshot.pending[place]
            if not self.ledger.is_guaranteed(job.asker, wanted_in_all(job.shape)[0]):
                place = self.scan.next(place + 1)
                continue
            self.consider(place)
            yield
            place = self.scan.next(place)
        self.is_guaranteed_round = False
        for code, partition in self.unfit.items():
            if self._is_full(partition):
                self.scan.skip_shape(code)

    def _keep_protected(self, names: Collection[str]) -> Iterator[None]:
        """Who was promised a start goes before who gets one of these slots only now, so that those do not put it off.

        Not so where somebody came in ahead of them.  Who was protected already when something was promised to those of
        later ranks did not: while it is looked at these promises are kept, too.
        """
        later = RANKS[-1] if names == RANKS[0] else ()
        still = self._promised_still({*names, *later})
        for place, one in still:
            self.protection.remember(self.snapshot.pending[place], one)
        for place, one in still:
            if one.slot in names:
                self.consider(place, one.slot)
                yield
        if yielding := [one.job_id for _, one in still if one.slot in later]:
            self.protection.settle()  # beside those, too
            self.protection.forget(yielding)

    def _promised_still(self, names: Collection[str]) -> list[tuple[int, Protected]]:
        """With their places in the queue."""
        firsts = self._firsts_still()
        slots = {slot.name: slot for slot in self._slots}
        still: list[tuple[int, Protected]] = []
        for one in self.snapshot.protected:
            if not one.is_promise or one.slot not in names:
                continue
            place = self.scan.index_of(one.job_id)
            if place is None or not self.scan.is_unvisited[place]:
                continue
            slot = slots.get(one.slot)
            if one.job_id in firsts or (slot is not None and self._is_open(slot, self.snapshot.pending[place])):
                still.append((place, one))
        return still

    def _firsts_still(self) -> set[JobId]:
        """Those that are still the first of their partitions that could wait for nodes."""
        before = {one.job_id for one in self.snapshot.protected if one.slot == FIRST}
        others = {one.job_id for one in self.snapshot.protected} - before
        still: set[JobId] = set()
        partitions = {one for job_id in before if (one := self._partition_of(job_id)) is not None}
        for partition in sorted(partitions):
            for place in np.flatnonzero(self.scan.is_unvisited & self._is_in(partition)).tolist():
                job = self.snapshot.pending[place]
                if job.job_id in before:
                    still.add(job.job_id)
                elif (
                    job.job_id not in others
                    and self.waits_for_resources(job)
                    and not self.auto_throttle.is_over(self, job)
                ):
                    break
        return still

    def waits_for_resources(self, job: PendingJob) -> bool:
        return self.non_resource_reason(job) is None and self.ground.hopeless(self.snapshot, job) is None

    def _partition_of(self, job_id: JobId) -> str | None:
        place = self.scan.index_of(job_id)
        return None if place is None else self.snapshot.pending[place].shape.partition

    def _fill_slots(self, names: Collection[str]) -> Iterator[None]:
        slots = [one for one in self._slots if one.name in names]
        if not slots or not len(self.scan.is_candidate):
            return
        for partition in self._partitions():
            is_in = self._is_in(partition)
            is_wide = self._is_wide
            for slot in slots:
                if self._has(slot.name, partition):
                    continue
                taken = taken_by(slot, self.scan.columns, self.snapshot.now, self.scan.is_unvisited & is_in, is_wide)
                for place in taken:
                    if not self._is_open(slot, self.snapshot.pending[place]):
                        break
                    self.consider(place, slot.name)
                    yield
                    if self._has(slot.name, partition):
                        break

    def _walk_on(self) -> Iterator[None]:
        """All others; see the module for how a pass is cut short."""
        most = self.scheduling.plan_steps
        turn = None if self.snapshot.resumes_at is None else self.scan.index_of(self.snapshot.resumes_at)
        left_at: int | None = None
        place = self.scan.next(0)
        while True:
            if place is not None and turn is not None and place < turn and 2 * self.cost >= most:
                left_at, place, turn = place, self.scan.next(turn), None
            if place is None and left_at is not None:
                place, left_at = self.scan.next(left_at), None
            if place is None:
                return
            if self.cost >= most:
                self.resumes_at = self.snapshot.pending[place].job_id
                return
            self.consider(place)
            yield
            place = self.scan.next(place)

    # ── one job ───────────────────────────────────────────────────────────────────────────────────────────────

    def consider(self, place: int, slot: str = "") -> bool:
        """Start the job, or a task of it; False: it waits, and has been looked at."""
        job = self.snapshot.pending[place]
        self.spent += 1
        early = self.non_resource_reason(job)
        if early is None and self.auto_throttle.defers(self, place, job):
            return False
        if early is None:
            found = self._find(place, job)
            if found[0]:
                self._start(place, job, found[0], found[1], slot)
                return True
            early = found[2]
        self.scan.skip(place)
        if isinstance(early, OutOfLicenses | RunsIntoReservation | None) and self._preempts(place, job):
            return False
        if early is not None:
            self.waits[job.job_id] = early
        else:
            self._block(place, job, slot)
        return False

    def _preempts(self, place: int, job: PendingJob) -> bool:
        """Others give way to it, or to all of its tasks that wait."""
        return self.preempting is not None and self.preempting.decide(self, place, job)

    def starts_on(self, place: int, grants: tuple[Grant, ...]) -> bool:
        """Start the job on these, if all of them are free."""
        job = self.snapshot.pending[place]
        open_to_it = {self.snapshot.nodes[one].name: one for one in self.ground.available(job, self.snapshot.now)}
        wanted, ends = self.usage_of(job, grants), ends_if_started(job, self.snapshot.now, self.scheduling)
        if not is_possible(self.guard.now, grants, open_to_it) or self.ledger.over(job.asker, wanted) is not None:
            return False
        if self.guard.make_room(grants, ends) is not None:
            return False
        self._start(place, job, grants, wanted, "")
        return True

    def start_deferred_task(self, place: int, objection: Objection) -> bool:
        """Start a task of it, if nobody objects; True: there are more."""
        job = self.snapshot.pending[place]
        early = self.non_resource_reason(job)
        grants, wanted, wait = self._find(place, job) if early is None else (None, _NOTHING, early)
        if grants is not None and (wait := objection(self, job, grants)) is None:
            self._start(place, job, grants, wanted, "")
            return bool(self.tasks.get(job.job_id))
        if wait is not None or self.skip_reasons:
            self.waits[job.job_id] = wait or brief_reason(self, place, job)
        return False

    def _find(self, place: int, job: PendingJob) -> _Found:
        """Where it goes without delaying anybody who is protected."""
        code = int(self.scan.columns.shape[place])
        if code in self.unfit:
            return None, _NOTHING, None
        self.glance = self.glance or Glance(self.guard.now)
        if not self.glance.may_fit(job.shape):
            self._leave_out_shape(code, job.shape.partition)
            return None, _NOTHING, None
        places = self.ground.available(job, self.snapshot.now)
        ends = ends_if_started(job, self.snapshot.now, self.scheduling)
        found = self._place(job, self.guard.now, places)
        if found[2]:
            return found
        if found[0] is None:
            return None, _NOTHING, self._own_reason(code, job, places)
        self.protection.settle(job.job_id)
        blocker = self.guard.make_room(found[0], ends)
        if blocker is None:
            return found
        beside = self._place(job, self.guard.overlay(ends), places)
        if beside[0] is None and not is_picky(job.shape):
            self._leave_out_longer(place, code, ends)
        if beside[0] is None and isinstance(blocker, BookedWindow):
            self.runs_into[job.job_id] = runs_into(blocker, found[0], ends)
            if self.scheduling.backfill != "protect":  # what is reserved stops nobody else
                return None, _NOTHING, beside[2] or self.runs_into[job.job_id]
        return beside

    def _own_reason(self, code: int, job: PendingJob, places: Integers) -> Wait | None:
        """It has no place now.  What is said is why, if that is not that others have its nodes."""
        own = why_not_yet(self.snapshot, self.guard.now, job, places, self.snapshot.running, self.waited_s(job))
        if isinstance(own, WaitsForLocality):
            self.draft.changes_at = min(self.draft.changes_at, own.until)
        elif own is not None:
            self.draft.has_kept_cores |= isinstance(own, CoresKept)
            if job.avoid:
                return own  # another of its shape may use more nodes
            self.unfit[code] = job.shape.partition
            self.lacking[code] = own
            self.scan.skip_shape(code)
        elif not job.avoid and not is_picky(job.shape):
            self._leave_out_shape(code, job.shape.partition)
            if job.shape.resources and (short := self._short_of_generic(job, places)) is not None:
                self.lacking[code] = short
        return own

    def _short_of_generic(self, job: PendingJob, places: Integers) -> Insufficient | None:
        """A generic resource that too little of is free, without who holds it; None: it lacks something else."""
        name, wanted, free = scarcest(self.guard.now, job.shape, places)
        if name not in dict(job.shape.resources):
            return None
        return Insufficient(
            resource=name, wanted=wanted, free=free, holders=(), is_fragmented=free >= wanted, starts_at=None
        )

    def waited_s(self, job: PendingJob) -> float:
        return self.snapshot.now - job.since

    def _leave_out_shape(self, code: int, partition: str) -> None:
        self.unfit[code] = partition
        if self._is_full(partition):
            self.scan.skip_shape(code)

    def skip_shape_again(self, code: int) -> None:
        """Those of this shape who were spared until now."""
        if code in self.unfit and self._is_full(self.unfit[code]):
            self.scan.skip_shape(code)

    def _leave_out_longer(self, place: int, code: int, ends: Ends) -> None:
        """It would be in somebody's way; so would those of its shape that end later."""
        if not self._is_full(self.snapshot.pending[place].shape.partition) or self.snapshot.pending[place].avoid:
            return
        least = self.guard.longest_beside(self.guard.meets(ends))
        now = self.snapshot.now
        self.scan.skip_shape(code, least.by_limit - now, least.expected - now)

    def _is_full(self, partition: str) -> bool:
        """Nobody else there becomes protected for being first: who does not fit need not be looked at."""
        if self.scheduling.backfill != "protect":
            return True
        most = self.scheduling.protected_jobs
        return self.firsts.get(partition, 0) >= (max(1, most) if self.is_guaranteed_round else most)

    def _place(self, job: PendingJob, overlay: Overlay, places: Integers) -> _Found:
        """What is given may be more than the least that was asked for: whole nodes, or GPUs of a type that is limited;
        then nodes that have other types are tried.
        """
        self.spent += 1 + len(places) // 64
        nodes = self.snapshot.nodes
        first_over: Wait | None = None
        waited_s = self.waited_s(job)
        while (grants := put(overlay, job.shape, places, waited_s=waited_s, qos=job.qos)) is not None:
            wanted = self.usage_of(job, grants)
            over = self.ledger.over(job.asker, wanted)
            if over is None:
                return grants, wanted, None
            first_over = first_over or over
            gpu_type = over.limit.resource.partition(":")[2] if isinstance(over, OverLimit) else ""
            if not gpu_type or job.shape.gpu_type is not None:
                break
            places = np.array([one for one in places.tolist() if not nodes[one].type_mask(gpu_type)], np.int64)
        return None, _NOTHING, first_over

    def _start(self, place: int, job: PendingJob, grants: tuple[Grant, ...], wanted: Wanted, slot: str) -> None:
        ends = ends_if_started(job, self.snapshot.now, self.scheduling)
        self.protection.start(job, grants, ends)
        self.glance = None
        task = self.charge(place, job, wanted)
        billing = self._billing(wanted.amounts, job.qos)
        slot = "" if slot == FIRST else slot
        inside = self.snapshot.inside
        where = ("", 0) if inside is None else (inside.name, inside.number)
        priority = int(self.scan.columns.priority[place])
        self.starts.append(Start(job.job_id, job.attempt, grants, task, billing, slot, *where, priority=priority))

    def charge(self, place: int, job: PendingJob, wanted: Wanted) -> int | None:
        """It is seen to, and holds that; of an array's record the first task that waits."""
        self.ledger.take(job.asker, wanted)
        task = None
        if tasks := self.tasks.get(job.job_id, job.tasks):
            task = first_task(tasks)
            tasks = self.tasks[job.job_id] = tasks & ~task_bit(task)
        if not tasks:
            self.scan.skip(place)
        if job.array_job_id in self.array_room:
            self.array_room[job.array_job_id] -= 1
        return task

    # ── one job that waits for others ─────────────────────────────────────────────────────────────────────────

    def _block(self, place: int, job: PendingJob, slot: str) -> None:
        partition = job.shape.partition
        is_protecting = bool(slot) or not self._is_full(partition)
        is_stopping = self.scheduling.backfill == "none"
        if not is_protecting and job.job_id in self.runs_into:
            self.waits[job.job_id] = self.runs_into[job.job_id]
            return
        if partition in self.heads and not is_protecting and not is_stopping:
            return
        hopeless = self.ground.hopeless(self.snapshot, job)
        if hopeless is not None:
            self.waits[job.job_id] = hopeless
            return
        self.heads.setdefault(partition, job.job_id)
        if is_stopping:
            self.scan.skip_all(self._is_in(partition))
        elif self.scheduling.backfill == "protect" and is_protecting:
            self._protect(job, slot or FIRST)
        if self.skip_reasons and job.job_id not in self.waits:
            self.waits[job.job_id] = self.runs_into.get(job.job_id) or brief_reason(self, place, job)

    def _protect(self, job: PendingJob, slot: str) -> None:
        self.protection.protect(job, slot, self._is_outranked(job, slot))
        partition = job.shape.partition
        self.slots.add((slot, partition))
        if slot == FIRST:
            self.firsts[partition] = self.firsts.get(partition, 0) + 1
            if self._is_full(partition):
                for code in [one for one, its in self.unfit.items() if its == partition]:
                    self.scan.skip_shape(code)

    def _is_outranked(self, job: PendingJob, slot: str) -> bool:
        """Jobs over several nodes wait that may want its nodes, and go before whom the other slots take: nothing is
        promised to those.  So it is beside one that is protected itself, which may come to start earlier than that.
        """
        if slot in RANKS[0] or self.scheduling.protect_wide_after_s is None:
            return False
        members = self.ground.members(job.shape.partition)
        rivals = {one for one in self._partitions() if (self.ground.members(one) & members).any()}
        if any(self._has(WIDE, one) for one in rivals):
            return True
        is_wide = self.scan.expand_by_shape([kind.is_wide and kind.partition in rivals for kind in self.kinds])
        return bool((self.scan.is_unvisited & is_wide).any())

    # ── whole partitions ──────────────────────────────────────────────────────────────────────────────────────

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

    def _is_open(self, slot: Slot, job: PendingJob) -> bool:
        """With this job, what it started holds no more than its share; one job may always be of more."""
        if slot.share >= 1.0:
            return True
        partition = job.shape.partition
        members = self.ground.members(partition)
        key = (slot.name, partition)
        if key not in self.slot_gpus:
            running = (cell for job in self.snapshot.running if job.slot == slot.name for cell in job.cells)
            self.slot_gpus[key] = sum(gpus.bit_count() for name, _, gpus in running if self._is_member(name, members))
        starts = (grant for start in self.starts if start.slot == slot.name for grant in start.grants)
        held = self.slot_gpus[key] + sum(len(grant.gpus) for grant in starts if self._is_member(grant.node, members))
        return not held or held + wanted_in_all(job.shape)[0] <= slot.share * self.ground.gpus_of(partition)

    def _is_member(self, node: str, members: Booleans) -> bool:
        place = self.ground.places.get(node)
        return place is not None and bool(members[place])

    # ── limits ────────────────────────────────────────────────────────────────────────────────────────────────

    def non_resource_reason(self, job: PendingJob) -> Wait | None:
        """Reasons that no resource can lift."""
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
            self._reservation_wait(job) or self.ledger.barred(job.asker, job.shape, partition) or self._over_limit(job)
        )

    def _reservation_wait(self, job: PendingJob) -> Wait | None:
        """It may start neither outside nor, if this is inside of one, here."""
        inside, now = self.snapshot.inside, self.snapshot.now
        if inside is None and not job.reservation:
            return None
        if inside is not None and not is_too_long(job, inside, now):
            return None
        named = named_reservations(self.snapshot, job, self.snapshot.booked if inside is None else (inside,))
        wait = named_wait(named, job.user, job.time_limit_s, now)
        if wait is not None or named.is_flex:
            return wait
        return Behind(self.draft.heads_inside.get(job.reservation, job.job_id))

    def _over_limit(self, job: PendingJob) -> Wait | None:
        """The limit that it would be over with the least that it asks for."""
        asker = job.asker
        if not self.ledger.is_bounded(asker):
            return None
        key = (asker, job.shape, job.time_limit_s)
        if self.over.get(key) is None:
            self.over[key] = self.ledger.over(asker, self._wanted(job, least_wanted(job.shape)))
        return self.over[key]

    def usage_of(self, job: PendingJob, grants: tuple[Grant, ...]) -> Wanted:
        return self._wanted(job, amounts_of(grants, self.snapshot.nodes, self.ground.places))

    def _wanted(self, job: PendingJob, amounts: Mapping[str, int]) -> Wanted:
        return Wanted(amounts, hours(self._billing(amounts, job.qos), job.time_limit_s))

    def _billing(self, amounts: Mapping[str, int], qos: str) -> int:
        return billing_of(self.snapshot.policy.billing, amounts, self.snapshot.limits.usage_factor(qos))

    # ── the answer ────────────────────────────────────────────────────────────────────────────────────────────

    def has_started(self, job: PendingJob) -> bool:
        """All of it."""
        if job.tasks:
            return not self.tasks.get(job.job_id, job.tasks)
        return job.job_id in self._starting

    @cached_property
    def _starting(self) -> frozenset[JobId]:
        """When all has been decided."""
        return frozenset(start.job_id for start in self.starts)

    def started_jobs(self) -> list[RunningJob]:
        """What this pass starts, as if it ran."""
        return [self._as_running(*one) for one in self.protection.started]

    def _as_running(self, job: PendingJob, grants: tuple[Grant, ...], ends: Ends) -> RunningJob:
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
        snapshot, draft = self.snapshot, self.draft
        return Plan(
            made_at=snapshot.now,
            starts=tuple(self.starts),
            preemptions=tuple(draft.preemptions),
            waits=self.waits,
            protected=(*draft.protected, *self.protection.told()),
            heads=self.heads,
            heads_inside=draft.heads_inside,
            closes={
                (one.name, one.number): (one.closes_at, one.next_name)
                for one in snapshot.booked
                if one.closes_at < one.end_at
            },
            partitions={one.name: one.is_up for one in snapshot.policy.partitions},
            billing=snapshot.policy.billing,
            starting=self._starting,
            kept_back={(one.user, one.account, one.qos): self.ledger.used(one) for one in snapshot.kept_back},
            resumes_at=self.resumes_at,
            searches_from=draft.searches_from,
            changes_at=None if draft.changes_at == inf else draft.changes_at,
            is_worth_another=draft.has_kept_cores and bool(self.starts),
        )


def named_reservations(snapshot: Snapshot, job: PendingJob, booked: Iterable[Booked]) -> Named:
    return named_by(job, booked, account_path(snapshot.limits.accounts, job.account))
