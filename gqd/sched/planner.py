"""Who starts now: the queue in its order, with protected starts for some who wait, as a resumable pass.  Pure.

The pass walks the queue once.  A job that fits starts.  For one that does not, `Scheduling.backfill` says what those
behind it in its partition may do: ``none``, nothing; ``skip``, start wherever they fit; ``protect``, start where they
do not delay those that have a protected start: the first `protected_jobs` that are blocked, and whom the slots take.
A job that cannot start even on its available nodes empty (they are down, drained or left out) holds up nobody, nor
does one that a limit of its user, account or QOS keeps back.

Where accounts are guaranteed GPUs, jobs that stay within a guarantee go before all of this; all others borrow what is
left.  The record of an array stands for all of its tasks: each start is one of them, the lowest first.

A pass that has used up its `plan_steps` ends with what it has.  The next walks the first jobs of the queue with half
of its steps, and with the other half goes on where this one was cut short; so everybody is reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from math import inf

import numpy as np

from gq.model.ids import JobId
from gq.model.resource import Grant
from gq.model.tasks import first_task, task_bit
from gqd.sched.backfill import Guard, Reservation, overlap
from gqd.sched.billing import billing_of
from gqd.sched.blocked import is_picky, why_not_now, why_not_yet
from gqd.sched.glance import Glance
from gqd.sched.ground import Ground
from gqd.sched.limit import Asker, Ledger, Wanted, hours, least_wanted
from gqd.sched.placement import is_possible
from gqd.sched.placement import place as put
from gqd.sched.shape import Shape, wanted_in_all
from gqd.sched.slots import FIRST, Slot, slots_of, taken_by
from gqd.sched.timeline import Ends, Fit, Timeline, beside, ending_of, ends_if_started, expected_length
from gqd.sched.view import Overlay, PendingJob, RunningJob, Snapshot
from gqd.sched.walk import Booleans, Walk, columns_of
from gqd.state.cluster import mask_of
from gqd.state.plan import (
    BeginsLater,
    Behind,
    CoresKept,
    Held,
    Insufficient,
    OverLimit,
    PartitionIsDown,
    Plan,
    Protected,
    Start,
    Throttled,
    Wait,
    WaitsForLocality,
    WouldDelay,
)  # fmt: skip
from gqd.state.queue import Integers

_NOTHING = Wanted({}, 0.0)
_Found = tuple[tuple[Grant, ...] | None, Wanted, Wait | None]
"""(grants, what they come to, the limit that they would be over)"""


class _Pass:
    """One pass under way; `work` does it, one step after the other."""

    def __init__(
        self, snapshot: Snapshot, ground: Ground, stops_early: bool, asked: Collection[JobId] | None, is_brief: bool
    ) -> None:
        self.snapshot = snapshot
        self.ground = ground
        self.scheduling = snapshot.policy.scheduling
        self.stops_early = stops_early
        self.asked = asked
        self.is_brief = is_brief
        self.walk = Walk(snapshot.columns or columns_of(snapshot.pending), self.scheduling)
        self.kinds = ground.kinds_of(self.walk, snapshot.pending)
        self.guard = Guard(Overlay.of(snapshot), ground.places)
        self.ledger = Ledger(snapshot.limits)
        self.is_guaranteed_round = False
        self.glance: Glance | None = None
        self.spent = 0
        self.resumes_at: JobId | None = None
        self.starts: list[Start] = []
        self.waits: dict[JobId, Wait] = {}
        self.heads: dict[str, JobId] = {}
        self.started: list[tuple[PendingJob, tuple[Grant, ...], Ends]] = []
        self.tasks: dict[JobId, int] = {}
        """By array record, of which one has started: what this pass has not started of it."""
        self.array_room = dict(snapshot.array_room)
        self.over: dict[tuple[Asker, Shape, int | None], Wait | None] = {}
        """Those alike of whom one is over a limit: all are, since in a pass what is held only grows."""
        self.unfit: dict[int, str] = {}
        """Codes of shapes that do not fit any more → their partition."""
        self.firsts: dict[str, int] = {}
        """By partition: how many have a protected start since they are first."""
        self.slots: set[tuple[str, str]] = set()
        """(slot, partition) of those that are taken."""
        self.unsettled: list[tuple[PendingJob, str]] = []
        """Who is protected, with the slot, and when they start is not worked out yet."""
        self.changes_at = inf
        """When somebody stops to hold out for better nodes."""
        self.has_kept_cores = False
        """Somebody was refused CPUs that are kept for GPUs which were idle then."""
        self.promised: dict[JobId, tuple[int, Protected]] = {}
        """Whom the plan before promised a start, and is still to be looked at first: place in the queue, and that."""
        self.kept: dict[JobId, Reservation] = {}
        """What is kept of these promises until they have been looked at."""
        self.by_limit: Timeline | None = None
        self.expected: Timeline | None = None

    # ── the order ─────────────────────────────────────────────────────────────────────────────────────────────

    def work(self) -> Iterator[None]:
        if self.snapshot.limits.has_guarantees:
            yield from self._guaranteed()
        if self.scheduling.backfill == "protect":
            yield from self._keep_protected()
            yield from self._fill_slots()
        yield from self._walk_on()
        if not self.is_brief:
            self._settle()
        if not self.stops_early:
            yield from self._explain()

    def _guaranteed(self) -> Iterator[None]:
        """Jobs that stay within what their account is guaranteed; the first that is blocked is always protected."""
        self.is_guaranteed_round = True
        place = self.walk.next(0)
        while place is not None:
            job = self.snapshot.pending[place]
            if not self.ledger.is_guaranteed(_asker(job), wanted_in_all(job.shape)[0]):
                place = self.walk.next(place + 1)
                continue
            self._consider(place)
            yield
            place = self.walk.next(place)
        self.is_guaranteed_round = False
        for code, partition in self.unfit.items():
            if self._is_full(partition):
                self.walk.leave_out_shape(code)

    def _keep_protected(self) -> Iterator[None]:
        """Who was promised a start goes before who gets a slot only now, so that those do not put it off.

        Not so where somebody came in ahead of them.
        """
        firsts = self._firsts_still()
        slots = {slot.name: slot for slot in slots_of(self.scheduling)}
        still: list[tuple[int, Protected]] = []
        for one in self.snapshot.protected:
            if not one.is_promise:
                continue
            place = self.walk.place_of(one.job_id)
            if place is None or not self.walk.is_left[place]:
                continue
            partition = self.snapshot.pending[place].shape.partition
            slot = slots.get(one.slot)
            if one.job_id in firsts or (slot is not None and self._is_open(slot, partition)):
                still.append((place, one))
        self.promised = {one.job_id: (place, one) for place, one in still if one.grants}
        for place, one in still:
            self._consider(place, one.slot)
            yield

    def _firsts_still(self) -> set[JobId]:
        """Those that are still the first of their partitions that could wait for nodes."""
        before = {one.job_id for one in self.snapshot.protected if one.slot == FIRST}
        others = {one.job_id for one in self.snapshot.protected} - before
        still: set[JobId] = set()
        partitions = {one for job_id in before if (one := self._partition_of(job_id)) is not None}
        for partition in sorted(partitions):
            for place in np.flatnonzero(self.walk.is_left & self._is_in(partition)).tolist():
                job = self.snapshot.pending[place]
                if job.job_id in before:
                    still.add(job.job_id)
                elif job.job_id not in others and self._waits_for_room(job):
                    break
        return still

    def _waits_for_room(self, job: PendingJob) -> bool:
        return self._waits_anyway(job) is None and self.ground.hopeless(self.snapshot, job) is None

    def _partition_of(self, job_id: JobId) -> str | None:
        place = self.walk.place_of(job_id)
        return None if place is None else self.snapshot.pending[place].shape.partition

    def _fill_slots(self) -> Iterator[None]:
        slots = slots_of(self.scheduling)
        if not slots or not len(self.walk.is_left):
            return
        for partition in self._partitions():
            is_in = self._is_in(partition)
            is_wide = self.walk.by_shape([kind.is_wide for kind in self.kinds])
            for slot in slots:
                if self._has(slot.name, partition) or not self._is_open(slot, partition):
                    continue
                taken = taken_by(slot, self.walk.columns, self.snapshot.now, self.walk.is_left & is_in, is_wide)
                for place in taken:
                    if not self.walk.is_left[place]:
                        continue
                    has_started = self._consider(place, slot.name)
                    yield
                    is_reserved = self._has(slot.name, partition)
                    if is_reserved or (has_started and not self._is_open(slot, partition)):
                        break

    def _walk_on(self) -> Iterator[None]:
        """All others; see the module for how a pass is cut short."""
        most = self.scheduling.plan_steps
        turn = None if self.snapshot.resumes_at is None else self.walk.place_of(self.snapshot.resumes_at)
        left_at: int | None = None
        place = self.walk.next(0)
        while True:
            if place is not None and turn is not None and place < turn and 2 * self.spent >= most:
                left_at, place, turn = place, self.walk.next(turn), None
            if place is None and left_at is not None:
                place, left_at = self.walk.next(left_at), None
            if place is None:
                return
            if self.spent >= most:
                self.resumes_at = self.snapshot.pending[place].job_id
                return
            self._consider(place)
            yield
            place = self.walk.next(place)

    # ── one job ───────────────────────────────────────────────────────────────────────────────────────────────

    def _consider(self, place: int, slot: str = "") -> bool:
        """Start the job, or a task of it; False: it waits, and has been looked at."""
        job = self.snapshot.pending[place]
        self.spent += 1
        early = self._waits_anyway(job)
        if early is None:
            found = self._find(place, job)
            if found[0]:
                self._start(place, job, found[0], found[1], slot)
                return True
            early = found[2]
        self.walk.leave_out(place)
        if early is not None:
            self.waits[job.job_id] = early
        else:
            self._block(place, job, slot)
        return False

    def _find(self, place: int, job: PendingJob) -> _Found:
        """Where it goes without delaying anybody who is protected."""
        code = int(self.walk.columns.shape[place])
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
        self._settle(job.job_id)
        if self.guard.make_room(found[0], ends) is None:
            return found
        found = self._place(job, self.guard.overlay(ends), places)
        if found[0] is None and not is_picky(job.shape):
            self._leave_out_longer(place, code, ends)
        return found

    def _own_reason(self, code: int, job: PendingJob, places: Integers) -> Wait | None:
        """It has no place now.  What is said is why, if that is not that others have its nodes."""
        own = why_not_yet(self.snapshot, self.guard.now, job, places, self.snapshot.running, self._waited_s(job))
        if isinstance(own, WaitsForLocality):
            self.changes_at = min(self.changes_at, own.until)
        elif own is not None:
            self.has_kept_cores |= isinstance(own, CoresKept)
            if job.avoid:
                return own  # another of its shape may use more nodes
            self.unfit[code] = job.shape.partition
            self.walk.leave_out_shape(code)
        elif not job.avoid and not is_picky(job.shape):
            self._leave_out_shape(code, job.shape.partition)
        return own

    def _waited_s(self, job: PendingJob) -> float:
        return self.snapshot.now - job.since

    def _leave_out_shape(self, code: int, partition: str) -> None:
        self.unfit[code] = partition
        if self._is_full(partition):
            self.walk.leave_out_shape(code)

    def _leave_out_longer(self, place: int, code: int, ends: Ends) -> None:
        """It would be in somebody's way; so would those of its shape that end later."""
        if not self._is_full(self.snapshot.pending[place].shape.partition) or self.snapshot.pending[place].avoid:
            return
        least = self.guard.longest_beside(self.guard.meets(ends))
        now = self.snapshot.now
        self.walk.leave_out_shape(code, least.by_limit - now, least.expected - now)

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
        waited_s = self._waited_s(job)
        while (grants := put(overlay, job.shape, places, waited_s=waited_s, qos=job.qos)) is not None:
            wanted = self._wanted(job, self._amounts(grants))
            over = self.ledger.over(_asker(job), wanted)
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
        self.guard.start(grants, ends)
        self.glance = None
        self.ledger.take(_asker(job), wanted)
        task = None
        if tasks := self.tasks.get(job.job_id, job.tasks):
            task = first_task(tasks)
            tasks = self.tasks[job.job_id] = tasks & ~task_bit(task)
        if not tasks:
            self.walk.leave_out(place)
        if job.array_job_id in self.array_room:
            self.array_room[job.array_job_id] -= 1
        billing = self._billing(wanted.amounts, job.qos)
        self.starts.append(Start(job.job_id, job.attempt, grants, task, billing, "" if slot == FIRST else slot))
        self.started.append((job, grants, ends))
        if self.by_limit is not None:
            self.by_limit.add(ending_of(ends.by_limit, self.ground.places, grants))
        if self.expected is not None:
            self.expected.add(ending_of(ends.expected, self.ground.places, grants))

    # ── one job that waits for others ─────────────────────────────────────────────────────────────────────────

    def _block(self, place: int, job: PendingJob, slot: str) -> None:
        partition = job.shape.partition
        is_protecting = bool(slot) or not self._is_full(partition)
        is_stopping = self.scheduling.backfill == "none"
        if partition in self.heads and not is_protecting and not is_stopping:
            return
        hopeless = self.ground.hopeless(self.snapshot, job)
        if hopeless is not None:
            self.waits[job.job_id] = hopeless
            return
        self.heads.setdefault(partition, job.job_id)
        if is_stopping:
            self.walk.leave_out_all(self._is_in(partition))
        elif self.scheduling.backfill == "protect" and is_protecting:
            self._protect(job, slot or FIRST)
        if self.stops_early and job.job_id not in self.waits:
            self.waits[job.job_id] = self._told_briefly(job)

    def _protect(self, job: PendingJob, slot: str) -> None:
        self.unsettled.append((job, slot))
        partition = job.shape.partition
        self.slots.add((slot, partition))
        if slot == FIRST:
            self.firsts[partition] = self.firsts.get(partition, 0) + 1
            if self._is_full(partition):
                for code in [one for one, its in self.unfit.items() if its == partition]:
                    self.walk.leave_out_shape(code)

    def _settle(self, starting: JobId | None = None) -> None:
        """Work out when those start who have become protected: nobody can start before that is known.

        As long as one has not been looked at, what was promised to it before is kept for it.
        """
        if len(self.promised) > 1 and not self.kept:
            self._keep_promises()
        self._drop_kept(starting)
        for job, slot in self.unsettled:
            self._drop_kept(job.job_id)
            reservation = self._reservation(job, slot)
            if reservation is not None:
                self.guard.add(reservation)
        self.unsettled.clear()

    def _keep_promises(self) -> None:
        """Whatever was promised before and can still be kept."""
        timeline = self._timeline_by_limit()
        for job_id, (place, one) in self.promised.items():
            if one.starts_at < self.snapshot.now:
                continue
            job = self.snapshot.pending[place]
            trial = beside(timeline.at(one.starts_at), self.ground.places, one.starts_at, one.until, self.kept.values())
            self.spent += 1
            if is_possible(trial, one.grants, self.ground.places):
                places = self.ground.available(job, self.snapshot.now)
                kept = Reservation(job, one.slot, one.starts_at, one.until, True, one.grants, places, None)
                self.kept[job_id] = kept
                self.guard.add(kept)
        self.promised.clear()

    def _drop_kept(self, job_id: JobId | None) -> None:
        kept = None if job_id is None else self.kept.pop(job_id, None)
        if kept is not None:
            self.guard.remove(kept)

    def _reservation(self, job: PendingJob, slot: str) -> Reservation | None:
        """None: as far as can be seen it never fits; nothing can be kept for it then."""
        places = self.ground.available(job, self.snapshot.now)
        self.spent += 1 + len(places)
        limit_s = inf if job.time_limit_s is None else float(job.time_limit_s)
        expected_s = expected_length(job, self.scheduling)
        windows = self.guard.reservations
        fit: Fit | None = None
        is_promise = self.scheduling.expect != "exact" and all(one.is_promise for one in windows)
        if is_promise:
            fit = self._timeline_by_limit().earliest(job.shape, places, limit_s, windows)
        if fit is None and self.scheduling.expect != "limit":
            is_promise = False
            fit = self._timeline_expected().earliest(job.shape, places, expected_s, windows)
        if fit is None:
            return None
        until = fit.at + (limit_s if is_promise else expected_s)
        return Reservation(job, slot, fit.at, until, is_promise, fit.grants, places, fit.profile)

    def _timeline_by_limit(self) -> Timeline:
        if self.by_limit is None:
            self.by_limit = self._timeline(0)
        return self.by_limit

    def _timeline_expected(self) -> Timeline:
        if self.expected is None:
            self.expected = self._timeline(1)
        return self.expected

    def _timeline(self, which: int) -> Timeline:
        """`which` of the two ends."""
        now = self.snapshot.now
        running = self.ground.endings(self.snapshot.running, now, by_limit=which == 0)
        started = [ending_of(ends[which], self.ground.places, grants) for _, grants, ends in self.started]
        return Timeline(self.guard.now, self.ground.places, now, running + started)

    def _told_briefly(self, job: PendingJob) -> Insufficient:
        """What it wants, without who holds it."""
        gpus, cpus = wanted_in_all(job.shape)
        places = self.ground.available(job, self.snapshot.now)
        now = self.guard.now
        counts = now.gpu_counts if gpus else now.cpu_counts
        free = int(counts[places].sum()) if len(places) else 0
        wanted = gpus or cpus
        return Insufficient(
            resource="GPUs" if gpus else "CPUs",
            wanted=wanted,
            free=free,
            holders=(),
            is_fragmented=free >= wanted,
            starts_at=self._protected_at(job.job_id),
        )

    def _protected_at(self, job_id: JobId) -> float | None:
        """When it is promised to start."""
        return next((one.at for one in self.guard.reservations if one.job.job_id == job_id and one.is_promise), None)

    # ── whole partitions ──────────────────────────────────────────────────────────────────────────────────────

    def _partitions(self) -> list[str]:
        return sorted({kind.partition for kind in self.kinds})

    def _is_in(self, partition: str) -> Booleans:
        return self.walk.by_shape([kind.partition == partition for kind in self.kinds])

    def _has(self, slot: str, partition: str) -> bool:
        return (slot, partition) in self.slots

    def _is_open(self, slot: Slot, partition: str) -> bool:
        """What it started holds less than its share."""
        if slot.share >= 1.0:
            return True
        members = self.ground.members(partition)
        running = (cell for job in self.snapshot.running if job.slot == slot.name for cell in job.cells)
        held = sum(gpus.bit_count() for name, _, gpus in running if self._is_member(name, members))
        starts = (grant for start in self.starts if start.slot == slot.name for grant in start.grants)
        held += sum(len(grant.gpus) for grant in starts if self._is_member(grant.node, members))
        return held < slot.share * self.ground.gpus_of(partition)

    def _is_member(self, node: str, members: Booleans) -> bool:
        place = self.ground.places.get(node)
        return place is not None and bool(members[place])

    # ── limits ────────────────────────────────────────────────────────────────────────────────────────────────

    def _waits_anyway(self, job: PendingJob) -> Wait | None:
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
        return self.ledger.barred(_asker(job), job.shape, partition) or self._over_limit(job)

    def _over_limit(self, job: PendingJob) -> Wait | None:
        """The limit that it would be over with the least that it asks for."""
        asker = _asker(job)
        if not self.ledger.is_bounded(asker):
            return None
        key = (asker, job.shape, job.time_limit_s)
        if self.over.get(key) is None:
            self.over[key] = self.ledger.over(asker, self._wanted(job, least_wanted(job.shape)))
        return self.over[key]

    def _wanted(self, job: PendingJob, amounts: Mapping[str, int]) -> Wanted:
        return Wanted(amounts, hours(self._billing(amounts, job.qos), job.time_limit_s))

    def _billing(self, amounts: Mapping[str, int], qos: str) -> int:
        return billing_of(self.snapshot.policy.billing, amounts, self.snapshot.limits.usage_factor(qos))

    def _amounts(self, grants: tuple[Grant, ...]) -> dict[str, int]:
        """What grants come to, as limits and billing count it."""
        amounts = {"jobs": 1, "gpus": 0, "cpus": 0, "memory": 0}
        for grant in grants:
            amounts["gpus"] += len(grant.gpus)
            amounts["cpus"] += len(grant.cpus)
            amounts["memory"] += grant.memory_mib
            mask = mask_of(grant.gpus)
            for gpu_type, of_type in self.snapshot.nodes[self.ground.places[grant.node]].gpu_types if mask else ():
                if count := (mask & of_type).bit_count():
                    amounts[f"gpus:{gpu_type}"] = amounts.get(f"gpus:{gpu_type}", 0) + count
        return amounts

    # ── the answer ────────────────────────────────────────────────────────────────────────────────────────────

    def _explain(self) -> Iterator[None]:
        """Why everybody else waits, as things stand after all starts."""
        running = [*self.snapshot.running, *(self._as_running(*one) for one in self.started)]
        known: dict[tuple[Shape, tuple[tuple[str, float], ...]], Wait] = {}
        for job in self.snapshot.pending:
            is_through = job.job_id in self.waits or (self.asked is not None and job.job_id not in self.asked)
            if is_through or self._has_started(job):
                continue
            wait = self._waits_anyway(job) or self.ground.hopeless(self.snapshot, job)
            self.waits[job.job_id] = wait or self._why_blocked(job, running, known)
            yield

    def _has_started(self, job: PendingJob) -> bool:
        """All of it."""
        if job.tasks:
            return not self.tasks.get(job.job_id, job.tasks)
        return job.job_id in self._starting

    @cached_property
    def _starting(self) -> frozenset[JobId]:
        """When all has been decided."""
        return frozenset(start.job_id for start in self.starts)

    def _why_blocked(
        self, job: PendingJob, running: list[RunningJob], known: dict[tuple[Shape, tuple[tuple[str, float], ...]], Wait]
    ) -> Wait:
        places = self.ground.available(job, self.snapshot.now)
        key = (job.shape, job.avoid)
        if key not in known:
            waited_s = self._waited_s(job)
            grants = put(self.guard.now, job.shape, places, waited_s=waited_s)
            if grants is not None:
                return self._would_delay(job, grants)
            why = why_not_now(self.snapshot, self.guard.now, job, places, running, waited_s)
            if is_picky(job.shape):
                return why
            known[key] = why
        return known[key]

    def _would_delay(self, job: PendingJob, grants: tuple[Grant, ...]) -> Wait:
        """It fits, and does not start."""
        ends = ends_if_started(job, self.snapshot.now, self.scheduling)
        blocker = self.guard.make_room(grants, ends)
        if blocker is None:
            return Behind(self.heads.get(job.shape.partition, job.job_id))
        end = blocker.end_of(ends)
        nodes = overlap(grants, blocker.grants)
        return WouldDelay(
            job_id=blocker.job.job_id, starts_at=blocker.at, ends_at=end if end < inf else None, nodes=nodes
        )

    def _as_running(self, job: PendingJob, grants: tuple[Grant, ...], ends: Ends) -> RunningJob:
        ends_at = None if ends.by_limit == inf else ends.by_limit
        return RunningJob(job.job_id, job.user, grants, ends_at, began_at=self.snapshot.now, expected_s=job.expected_s)

    def _unsettled(self) -> list[Protected]:
        """In a brief plan: who is protected from nobody; what was promised to them before is promised still."""
        before = {one.job_id: one for one in self.snapshot.protected}
        told = [
            Protected(job_id=job.job_id, slot=slot, starts_at=inf, is_promise=False, nodes=())
            for job, slot in self.unsettled
        ]
        return [one if (was := before.get(one.job_id)) is None or was.slot != one.slot else was for one in told]

    def plan(self) -> Plan:
        snapshot = self.snapshot
        return Plan(
            made_at=snapshot.now,
            starts=tuple(self.starts),
            waits=self.waits,
            protected=(*(one.told() for one in self.guard.reservations), *self._unsettled()),
            heads=self.heads,
            partitions={one.name: one.is_up for one in snapshot.policy.partitions},
            billing=snapshot.policy.billing,
            starting=self._starting,
            kept_back={(one.user, one.account, one.qos): self.ledger.used(one) for one in snapshot.kept_back},
            resumes_at=self.resumes_at,
            changes_at=None if self.changes_at == inf else self.changes_at,
            is_worth_another=self.has_kept_cores and bool(self.starts),
        )


class Planner:
    """`begin` a pass on a snapshot, then `step` until a plan comes out."""

    def __init__(self) -> None:
        self._pass: _Pass | None = None
        self._work: Iterator[None] = iter(())
        self._ground: Ground | None = None

    @property
    def is_busy(self) -> bool:
        return self._pass is not None

    def begin(
        self,
        snapshot: Snapshot,
        stops_early: bool = True,
        asked: Collection[JobId] | None = None,
        *,
        is_brief: bool = False,
    ) -> None:
        """Forget a pass that is under way and start on this snapshot.

        A pass that stops early leaves out reasons that would have to be worked out; else each job has its own, or
        those that are asked for.  A brief one also leaves out when the protected start, where nothing hangs on it:
        what it starts is the same.
        """
        if self._ground is None or not self._ground.is_of(snapshot):
            self._ground = Ground(snapshot.nodes, snapshot.policy)
        self._pass = _Pass(snapshot, self._ground, stops_early, asked, is_brief)
        self._work = self._pass.work()

    def step(self, budget: int) -> Plan | None:
        """Go on for so many units of work; the plan when the pass is over, else None.

        Deterministic: the same snapshot gives the same plan, however the budget slices it.
        """
        assert self._pass is not None, "begin first"
        until = self._pass.spent + budget
        for _ in self._work:
            if self._pass.spent >= until:
                return None
        plan, self._pass = self._pass.plan(), None
        return plan


def plan_whole(snapshot: Snapshot, asked: Collection[JobId] | None = None) -> Plan:
    """A whole pass at once, with the reason of every job, or of those asked: for explanations, estimates and tests."""
    planner = Planner()
    planner.begin(snapshot, stops_early=False, asked=asked)
    while (plan := planner.step(1_000_000)) is None:
        pass
    return plan


def _asker(job: PendingJob) -> Asker:
    return Asker(job.user, job.account, job.qos)
