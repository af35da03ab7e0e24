"""When waiting jobs will start: the planner itself run forward on values, from one expected end to the next.  Pure.

A rehearsal begins with a snapshot.  It plans, lets the starts of the plan hold their resources, goes on to the next
instant at which something ends (or begins, or is not left out any more; jobs, nodes, reservations), plans again, and so
on, until the jobs that are asked about have started or its passes are used up.  It decides nothing itself: whatever the
planner does for the cluster, it does here.

How long jobs run is a guess.  *As expected*: as the policy predicts (`PendingJob.expected_s`); a job that has run
longer than that is expected to run as long again as it has.  *Late*: to its time limit; a job without one as long as
nine of ten jobs like it, else three times as long as expected.  At its deadline a job ends in any case; one that could
not be over by then leaves the queue.

After `EXACT_PASSES` what ends soon after one another is taken as one instant, the coarser the further ahead, so that a
rehearsal of any queue comes to an end.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np

from gq.model.account import BUDGETS
from gq.model.ids import JobId
from gq.model.tasks import task_bit
from gqd.sched.limits.ledger import Asker, LimitView, hours
from gqd.sched.planner import Planner
from gqd.sched.preemption.nominations import told_to_go, without_claim
from gqd.sched.preemption.partial_release import given
from gqd.sched.reservation.windows import as_told_before
from gqd.sched.snapshot.model import Claim, Overlay, PendingColumns, PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.queue_scan import columns_of
from gqd.state.index.tally import Amounts, account_path, add, granted_amounts, places_of
from gqd.state.plan import NotInReservation, Plan, Preemption, Start

EXACT_PASSES = 100
MAX_PASSES = 400
GRAIN = 1 / 16
"""Of the time that has been rehearsed: beyond `EXACT_PASSES`, what ends within it ends at once."""
LATE_FACTOR = 3.0
LEFT_OUT = "left out"
"""How the reason begins of a node that is out for a while by itself."""


class ForecastStart(NamedTuple):
    """A job's start in the rehearsal; of an array's record that of its first task."""

    starts_at: float
    ends_at: float
    nodes: tuple[str, ...]


class Prerequisite(NamedTuple):
    """Another job has to end (or to start) first, and then some time to pass."""

    job_id: JobId
    is_start: bool = False
    is_success: bool = False
    """It has to end well."""
    delay_s: float = 0.0


@dataclass(slots=True, frozen=True)
class DeferredJob:
    """A job that comes into the queue later: at an instant, or when others have come so far."""

    job: PendingJob
    ahead: int
    """So many of the snapshot's pending jobs stand before it."""
    opens_at: float = 0.0
    after: tuple[Prerequisite, ...] = ()
    is_any: bool = False
    """One of them is enough."""


@dataclass(slots=True, frozen=True)
class ForecastInput:
    """What is rehearsed."""

    snapshot: Snapshot
    gates: tuple[DeferredJob, ...] = ()
    askers: Mapping[JobId, tuple[Asker, Amounts]] = field(default_factory=dict)
    """Of running jobs, where limits count: what they hold, and for whom."""
    arrays: Mapping[JobId, JobId] = field(default_factory=dict)
    """Running task of an array → the array."""
    bands: Mapping[JobId, int] = field(default_factory=dict)
    """Of waiting jobs: see `gqd.sched.snapshot.model.PendingColumns`."""
    late_s: Mapping[JobId, float] = field(default_factory=dict)
    """By job without a time limit: how long nine of ten jobs like it ran at most."""
    deadlines: Mapping[JobId, float] = field(default_factory=dict)
    """Of waiting jobs."""


class _Held(NamedTuple):
    """What ends at some instant."""

    ends_at: float
    number: int
    running: RunningJob
    asker: Asker | None
    amounts: Amounts
    hours_left: float
    """GPU-hours of budgets that it was counted with and does not use."""


class Forecast:
    """`step` until it is over; then `entries` tells who started when."""

    def __init__(
        self,
        scene: ForecastInput,
        wanted: Collection[JobId],
        is_pessimistic: bool = False,
        max_passes: int = MAX_PASSES,
    ) -> None:
        self.entries: dict[JobId, ForecastStart] = {}
        self.missed: dict[JobId, float] = {}
        """Who could not be over by its deadline any more, and the last moment at which it should have started."""
        self.first_plan: Plan | None = None
        self.last_plan: Plan | None = None
        """Of a rehearsal that came to a standstill: why those that are left do not start even now."""
        self.is_over = False
        self._scene = scene
        self._wanted = set(wanted)
        self._is_pessimistic = is_pessimistic
        self._most_passes = max_passes
        self._passes = 0
        self._is_standing = False
        """Nothing ends and nothing begins any more."""
        self._too_late: dict[JobId, str] = {}
        """Who has not started before the reservation that it names was over."""
        self._planner = Planner()
        snapshot = scene.snapshot
        self._now = self._began_at = snapshot.now
        self._snapshot = snapshot
        self._overlay = Overlay.of(snapshot)
        self._places = {node.name: place for place, node in enumerate(snapshot.nodes)}
        self._queue = [((place, 1, 0), job) for place, job in enumerate(snapshot.pending)]
        self._gates = list(enumerate(scene.gates))
        self._numbers = count()
        self._ends: list[_Held] = []
        self._stays: list[RunningJob] = []
        """Nobody knows when these end."""
        self._alive: dict[JobId, int] = {}
        self._started = {one.job_id for one in snapshot.running}
        self._over_at: dict[JobId, float] = {}
        self._failed: set[JobId] = set()
        """They missed their deadlines, or tasks of them did."""
        self._array_room = dict(snapshot.array_room)
        self._arrays = dict(scene.arrays)
        self._counts = snapshot.limits.binds or snapshot.limits.has_guarantees
        self._held = {place: dict(amounts) for place, amounts in snapshot.limits.held.items()}
        self._spent = dict(snapshot.limits.spent)
        self._types: dict[str, dict[int, str]] = {}
        for running in snapshot.running:
            self._hold_running(running)
        for job in (*snapshot.pending, *(gate.job for gate in scene.gates)):
            for one in self._family(job):
                self._alive[one] = self._alive.get(one, 0) + max(1, job.tasks.bit_count())

    # ── going on ──────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, budget: int) -> bool:
        """Go on for so many units of the planner's work; True: it is over."""
        while budget > 0 and not self.is_over:
            if not self._planner.is_busy:
                self._planner.begin(self._as_it_stands())
            plan = self._planner.step(budget)
            budget -= 1 + (budget if plan is None else len(self._queue))
            if plan is not None:
                self._play(plan)
        return self.is_over

    def _play(self, plan: Plan) -> None:
        if self._is_standing:
            self._tell_why_not(plan)
            return
        self.first_plan = self.first_plan or plan
        self._passes += 1
        for start in plan.starts:
            self._start(start)
        for one in plan.preemptions:
            self._give_way(one)
        if self._is_known_of_all or self._passes >= self._most_passes:
            self.is_over = True
        elif self._is_cut_short(plan):
            self._go_on(plan, plan.resumes_at, plan.searches_from)
        else:
            self._go_on(plan, None, None)
            self._advance(plan)

    def _is_cut_short(self, plan: Plan) -> bool:
        """The next pass goes on from there, in the same instant."""
        before = self._snapshot
        is_elsewhere = plan.searches_from not in (None, before.searches_from)
        return plan.is_worth_another or plan.resumes_at not in (None, before.resumes_at) or is_elsewhere

    def _go_on(self, plan: Plan, resumes_at: JobId | None, searches_from: JobId | None) -> None:
        self._snapshot = replace(
            self._snapshot, resumes_at=resumes_at, searches_from=searches_from, protected=plan.protected
        )

    def _tell_why_not(self, plan: Plan) -> None:
        """That the reservation which they name is over by now is no reason: another plan says what was in the way."""
        if self.last_plan is not None:
            earlier = {job_id: as_told_before(name, plan.waits.get(job_id)) for job_id, name in self._too_late.items()}
            self.last_plan = msgspec.structs.replace(self.last_plan, waits=self.last_plan.waits | earlier)
            self.is_over = True
            return
        self.last_plan = plan
        gone = {job_id for job_id, wait in plan.waits.items() if isinstance(wait, NotInReservation) and wait.is_gone}
        late = tuple(job for _, job in self._queue if job.job_id in gone)
        self._too_late = {job.job_id: job.reservation for job in late}
        self.is_over = not late
        if late:
            self._planner.begin(replace(self._scene.snapshot, pending=late, columns=None), skip_reasons=False)

    @property
    def _is_known_of_all(self) -> bool:
        return self._wanted <= self.entries.keys() | self.missed.keys()

    def _advance(self, plan: Plan) -> None:
        """On to the next instant at which something is different; if there is none, a last plan says why."""
        due = [at for at in self._instants(plan) if at > self._now]
        if self._ends and self._ends[0].ends_at <= self._now:
            due = [self._now]  # somebody who gives way goes at once
        if not due:
            self._is_standing = True
            left = self._wanted - self.entries.keys() - self.missed.keys()
            self._planner.begin(self._as_it_stands(), skip_reasons=False, asked=left)
            return
        until = min(due)
        if self._passes > EXACT_PASSES:
            until = max(at for at in due if at <= until + (until - self._began_at) * GRAIN)
        before, self._now = self._now, until
        while self._ends and self._ends[0].ends_at <= until:
            self._end(heapq.heappop(self._ends))
        self._renew_budgets(before)
        self._bring_back_nodes(before)
        self._open_gates()
        self._leave_out_late()
        self.is_over = self._is_known_of_all

    def _instants(self, plan: Plan) -> Iterator[float]:
        """When something may be different, among them those that are over."""
        if self._passes > EXACT_PASSES:
            yield from (one.ends_at for one in self._ends)
        elif self._ends:
            yield self._ends[0].ends_at
        for _, gate in self._gates:
            if (at := self._opens_at(gate)) is not None:
                yield at
        for _, job in self._queue:
            if job.begin_at is not None:
                yield job.begin_at
            yield from (until for _, until in job.avoid)
        yield from self._instants_of_booked()
        for job in self._with_deadlines():
            yield math.nextafter(self._last_start_at(job), math.inf)
        yield from (node.backoff_until for node in self._snapshot.nodes)
        yield from (until for wait in plan.waits.values() if (until := getattr(wait, "until", None)) is not None)
        if plan.changes_at is not None:
            yield plan.changes_at
        if self._spent:
            yield from self._snapshot.limits.until.values()

    def _instants_of_booked(self) -> Iterator[float]:
        """When those inside may start, and when others have back what is kept."""
        booked = self._snapshot.booked
        names = {job.reservation for _, job in self._queue} if booked else set()
        for one in booked:
            if one.is_magnetic or one.name in names:
                yield one.begin_at
            yield one.end_at

    def _as_it_stands(self) -> Snapshot:
        limits = self._snapshot.limits
        if self._counts:
            limits = replace(limits, held=self._held, spent=self._spent)
        overlay, pending = self._overlay, tuple([job for _, job in self._queue])
        self._snapshot = replace(
            self._snapshot,
            now=self._now,
            free_cpus=tuple(overlay.free_cpus),
            free_gpus=tuple(overlay.free_gpus),
            free_memory_mib=tuple(overlay.free_memory_mib),
            free_resources={name: tuple(free.tolist()) for name, free in overlay.free_resources.items()},
            free_licenses=dict(overlay.free_licenses or {}),
            since=() if overlay.since is None else tuple(overlay.since.tolist()),
            pending=pending,
            running=(*self._stays, *(one.running for one in self._ends)),
            array_room=dict(self._array_room),
            limits=limits,
            columns=self._columns(pending),
        )
        return self._snapshot

    def _columns(self, pending: tuple[PendingJob, ...]) -> PendingColumns:
        bands = self._scene.bands
        return replace(columns_of(pending), band=np.array([bands.get(one.job_id, 0) for one in pending], np.int64))

    # ── starts and ends ───────────────────────────────────────────────────────────────────────────────────────

    def _start(self, start: Start) -> None:
        at, job = next((at, job) for at, (_, job) in enumerate(self._queue) if job.job_id == start.job_id)
        if start.task is not None:
            job = replace(job, tasks=job.tasks & ~task_bit(start.task))
            self._queue[at] = (self._queue[at][0], job)
        if not job.tasks:
            del self._queue[at]
        length_s = self._length_of(job)
        self._started.add(job.job_id)
        nodes = tuple(grant.node for grant in start.grants)
        self.entries.setdefault(job.job_id, ForecastStart(self._now, self._now + length_s, nodes))
        limit_s = self._left_s(job, job.time_limit_s)
        running = RunningJob(
            job_id=job.job_id,
            user=job.user,
            account=job.account,
            grants=start.grants,
            ends_at=None if limit_s is None else self._now + limit_s,
            began_at=self._now,
            expected_s=job.expected_s,
            slot=start.slot,
            reservation=start.reservation,
            occurrence=start.occurrence,
            saved_at=self._now if start.borrows else None,  # it may be asked to go
            is_borrowing=bool(start.borrows),
        )
        self._overlay.take_all(self._places, start.grants)
        if self._snapshot.claims:
            self._snapshot = without_claim(self._snapshot, job.job_id)
        if job.array_job_id is not None:
            self._arrays[job.job_id] = job.array_job_id
        if job.array_job_id in self._array_room:
            self._array_room[job.array_job_id] -= 1
        asker, amounts = Asker(job.user, job.account, job.qos), Amounts()
        if self._counts:
            amounts = granted_amounts(start.grants, self._types_of(start))
            self._count(asker, amounts, 1)
        left = self._spend(asker, start.billing, job.time_limit_s, length_s)
        heapq.heappush(self._ends, _Held(self._now + length_s, next(self._numbers), running, asker, amounts, left))

    def _give_way(self, one: Preemption) -> None:
        """Its victims end when they would; that they wait again is left out.  Nothing is kept for tasks of arrays."""
        ids, until = {each.job_id for each in one.victims}, self._now
        held = [*self._ends, *(self._held_of(math.inf, each) for each in self._stays)]
        for gift in one.gifts:
            giver = next(each for each in held if each.running.job_id == gift.attempt_id.job_id)
            stays, part = given([giver.running], [gift], one.job_id)
            self._replace(giver, giver._replace(running=stays))
            heapq.heappush(self._ends, self._held_of(gift.ends_at, part))
            until = max(until, gift.ends_at)
        for each in (each for each in held if each.running.job_id in ids and not each.running.is_part):
            [going] = told_to_go([each.running], ids, one.job_id, self._now)
            ends_at = min(each.ends_at, going.ends_at or self._now)
            until = max(until, ends_at)
            self._replace(each, each._replace(ends_at=ends_at, running=going))
        if one.task is None:
            job = next(job for _, job in self._queue if job.job_id == one.job_id)
            where = (one.reservation, one.occurrence)
            claim = Claim(one.job_id, one.grants, until, job.user, job.time_limit_s, job.expected_s, *where)
            self._snapshot = replace(self._snapshot, claims=(*self._snapshot.claims, claim))

    def _replace(self, before: _Held, after: _Held) -> None:
        self._stays = [one for one in self._stays if one is not before.running]
        self._ends = [one for one in self._ends if one.running is not before.running]
        if after.ends_at == math.inf:
            self._stays.append(after.running)
        else:
            self._ends.append(after)
        heapq.heapify(self._ends)

    def _hold_running(self, running: RunningJob) -> None:
        """What runs when the rehearsal begins."""
        array = self._arrays.get(running.job_id)
        for one in () if running.is_part else (running.job_id, array):
            if one is not None:
                self._alive[one] = self._alive.get(one, 0) + 1
        ends_at = self._end_of(running)
        if ends_at is None:
            self._stays.append(running)
            return
        heapq.heappush(self._ends, self._held_of(ends_at, running))

    def _held_of(self, ends_at: float, running: RunningJob) -> _Held:
        known = None if running.is_part else self._scene.askers.get(running.job_id)
        asker, amounts = known or (None, Amounts())
        return _Held(ends_at, next(self._numbers), running, asker, amounts, 0.0)

    def _end(self, held: _Held) -> None:
        running = held.running
        for grant in running.grants:
            if grant.node in self._places:
                self._overlay.give_back(self._places[grant.node], grant)
                if grant.gpus:
                    self._overlay.renew(self._places[grant.node])
        if held.asker is not None and self._counts:
            self._count(held.asker, held.amounts, -1)
            self._give_back_hours(held.asker, held.hours_left)
        if running.is_part:
            return
        array = self._arrays.get(running.job_id, running.job_id)
        if array in self._array_room:
            self._array_room[array] += 1
        for one in dict.fromkeys((running.job_id, array)):
            self._count_out(one, 1, held.ends_at)

    def _count_out(self, job_id: JobId, tasks: int, at: float) -> None:
        self._alive[job_id] = self._alive.get(job_id, tasks) - tasks
        if self._alive[job_id] <= 0:
            self._over_at[job_id] = at

    def _family(self, job: PendingJob) -> Iterator[JobId]:
        """The job, and the array of which it is a task."""
        yield job.job_id
        if job.array_job_id is not None and job.array_job_id != job.job_id:
            yield job.array_job_id

    # ── how long ──────────────────────────────────────────────────────────────────────────────────────────────

    def _length_of(self, job: PendingJob) -> float:
        return self._length(job.job_id, job.expected_s, self._left_s(job, job.time_limit_s))

    def _left_s(self, job: PendingJob, limit_s: float | None) -> float | None:
        """How long it may run if it starts now: as it was allowed to, and no longer than until its deadline."""
        deadline_at = self._scene.deadlines.get(job.job_id, math.inf)
        left_s = min(math.inf if limit_s is None else limit_s, deadline_at - self._now)
        return None if left_s == math.inf else left_s

    def _length(self, job_id: JobId, expected_s: float | None, limit_s: float | None) -> float:
        if expected_s is None:
            expected_s = self._snapshot.policy.scheduling.expected_without_history_s
        if not self._is_pessimistic:
            return expected_s if limit_s is None else min(expected_s, limit_s)
        if limit_s is not None:
            return limit_s
        return max(expected_s, self._scene.late_s.get(job_id, LATE_FACTOR * expected_s))

    def _end_of(self, running: RunningJob) -> float | None:
        """When it is expected to end; None: nobody knows."""
        if running.is_stranded:
            return None
        if (running.gives_way_to is not None or running.is_part) and running.ends_at is not None:
            return max(self._now, running.ends_at)
        limit_s = None if running.ends_at is None else running.ends_at - running.began_at
        ends_at = running.began_at + self._length(running.job_id, running.expected_s, limit_s)
        if ends_at <= self._now:
            ends_at = self._now + max(1.0, self._now - running.began_at)
        return ends_at if running.ends_at is None else max(self._now, min(ends_at, running.ends_at))

    # ── who comes into the queue ──────────────────────────────────────────────────────────────────────────────

    def _open_gates(self) -> None:
        left = []
        for number, gate in self._gates:
            opens_at = self._opens_at(gate)
            if opens_at is not None and opens_at <= self._now:
                insort(
                    self._queue, ((gate.ahead, 0, number), replace(gate.job, since=self._now)), key=lambda one: one[0]
                )
            else:
                left.append((number, gate))
        self._gates = left

    def _opens_at(self, gate: DeferredJob) -> float | None:
        """None: not known yet."""
        if not gate.after:
            return gate.opens_at
        due = [self._is_due_at(one) for one in gate.after]
        known = [at for at in due if at is not None]
        if not known or (len(known) < len(due) and not gate.is_any):
            return None
        return max(gate.opens_at, min(known) if gate.is_any else max(known))

    def _is_due_at(self, after: Prerequisite) -> float | None:
        if after.is_start:
            entry = self.entries.get(after.job_id)
            came_at = self._began_at if entry is None else entry.starts_at
            return came_at + after.delay_s if after.job_id in self._started else None
        over_at = self._over_at.get(after.job_id)
        is_lost = after.is_success and after.job_id in self._failed
        return None if over_at is None or is_lost else over_at + after.delay_s

    # ── who is too late for its deadline ──────────────────────────────────────────────────────────────────────

    def _with_deadlines(self) -> Iterator[PendingJob]:
        deadlines = self._scene.deadlines
        if deadlines:
            yield from (job for _, job in self._queue if job.job_id in deadlines)
            yield from (gate.job for _, gate in self._gates if gate.job.job_id in deadlines)

    def _last_start_at(self, job: PendingJob) -> float:
        return self._scene.deadlines.get(job.job_id, math.inf) - (job.time_limit_s or 0)

    def _leave_out_late(self) -> None:
        """They end without having started; of an array the tasks that have not."""
        late = {job.job_id: job for job in self._with_deadlines() if self._last_start_at(job) < self._now}
        if not late:
            return
        self._queue = [one for one in self._queue if one[1].job_id not in late]
        self._gates = [one for one in self._gates if one[1].job.job_id not in late]
        for job in late.values():
            self.missed[job.job_id] = self._last_start_at(job)
            for one in self._family(job):
                self._failed.add(one)
                self._count_out(one, max(1, job.tasks.bit_count()), self._now)

    # ── what limits count, and nodes that come back ───────────────────────────────────────────────────────────

    def _count(self, asker: Asker, amounts: Amounts, times: int) -> None:
        path = account_path(self._snapshot.limits.accounts, asker.account)
        for place in places_of(asker.user, path, asker.qos):
            add(self._held.setdefault(place, {}), amounts, times)

    def _types_of(self, start: Start) -> dict[str, dict[int, str]]:
        for grant in start.grants:
            if grant.node not in self._types:
                node = self._snapshot.nodes[self._places[grant.node]]
                of_node = {index: name for name, mask in node.gpu_types for index in _bits(mask)}
                self._types[grant.node] = of_node
        return self._types

    def _spend(self, asker: Asker, billing: int, limit_s: int | None, length_s: float) -> float:
        """Count with budgets, as the planner does; what of it is given back at the end."""
        if not self._spent:
            return 0.0
        counted = hours(billing, limit_s) or 0.0
        self._give_back_hours(asker, -counted)
        return counted - (hours(billing, int(length_s)) or 0.0)

    def _give_back_hours(self, asker: Asker, gpu_hours: float) -> None:
        limits: LimitView = self._snapshot.limits
        if not gpu_hours or not self._spent:
            return
        path = account_path(limits.accounts, asker.account)
        for holder, name, user in places_of(asker.user, path, asker.qos):
            for limit in limits.limits.get((holder, name), ()):
                if limit.resource in BUDGETS and limit.per_user == bool(user):
                    key = (limit, user)
                    self._spent[key] = self._spent.get(key, 0.0) - gpu_hours

    def _renew_budgets(self, before: float) -> None:
        for resource, until in self._snapshot.limits.until.items():
            if before < until <= self._now:
                self._spent = {key: 0.0 if key[0].resource == resource else used for key, used in self._spent.items()}

    def _bring_back_nodes(self, before: float) -> None:
        """Nodes whose back-off is over."""
        nodes = self._snapshot.nodes
        if any(before < node.backoff_until <= self._now for node in nodes):
            back = [
                replace(node, unavailable="")
                if before < node.backoff_until <= self._now and node.unavailable.startswith(LEFT_OUT)
                else node
                for node in nodes
            ]
            self._snapshot = replace(self._snapshot, nodes=tuple(back))


def _bits(mask: int) -> Iterator[int]:
    return (index for index in range(mask.bit_length()) if mask >> index & 1)
