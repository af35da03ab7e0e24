"""When waiting jobs will start: the planner itself run forward on values, from one expected end to the next.  Pure.

A rehearsal begins with a snapshot.  It plans, lets the starts of the plan hold their resources, goes on to the next
instant at which something ends (or begins, or is not left out any more), plans again, and so on, until the jobs that
are asked about have started or its passes are used up.  It decides nothing itself: whatever the planner does for the
cluster, it does here.

How long jobs run is a guess.  *As expected*: as the policy predicts (`PendingJob.expected_s`); a job that has run
longer than that is expected to run as long again as it has.  *Late*: to its time limit; a job without one as long as
nine of ten jobs like it, else three times as long as expected.

After `EXACT_PASSES` what ends soon after one another is taken as one instant, the coarser the further ahead, so that a
rehearsal of any queue comes to an end.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from gq.model.account import BUDGETS
from gq.model.ids import JobId
from gq.model.tasks import task_bit
from gqd.sched.limit import Asker, LimitView, hours
from gqd.sched.planner import Planner
from gqd.sched.view import Overlay, PendingColumns, PendingJob, RunningJob, Snapshot
from gqd.sched.walk import columns_of
from gqd.state.plan import Plan, Start
from gqd.state.tally import Amounts, account_path, add, granted_amounts, places_of

EXACT_PASSES = 100
MOST_PASSES = 400
GRAIN = 1 / 16
"""Of the time that has been rehearsed: beyond `EXACT_PASSES`, what ends within it ends at once."""
LATE_FACTOR = 3.0
LEFT_OUT = "left out"
"""How the reason begins of a node that is out for a while by itself."""


class Entry(NamedTuple):
    """A job's start in the rehearsal; of an array's record that of its first task."""

    starts_at: float
    ends_at: float
    nodes: tuple[str, ...]


class After(NamedTuple):
    """Another job has to end (or to start) first, and then some time to pass."""

    job_id: JobId
    is_start: bool = False
    delay_s: float = 0.0


@dataclass(slots=True, frozen=True)
class Gate:
    """A job that comes into the queue later: at an instant, or when others have come so far."""

    job: PendingJob
    ahead: int
    """So many of the snapshot's pending jobs stand before it."""
    opens_at: float = 0.0
    after: tuple[After, ...] = ()
    is_any: bool = False
    """One of them is enough."""


@dataclass(slots=True, frozen=True)
class Scene:
    """What is rehearsed."""

    snapshot: Snapshot
    gates: tuple[Gate, ...] = ()
    askers: Mapping[JobId, tuple[Asker, Amounts]] = field(default_factory=dict)
    """Of running jobs, where limits count: what they hold, and for whom."""
    arrays: Mapping[JobId, JobId] = field(default_factory=dict)
    """Running task of an array → the array."""
    bands: Mapping[JobId, int] = field(default_factory=dict)
    """Of waiting jobs: see `gqd.sched.view.PendingColumns`."""
    late_s: Mapping[JobId, float] = field(default_factory=dict)
    """By job without a time limit: how long nine of ten jobs like it ran at most."""


class _Held(NamedTuple):
    """What ends at some instant."""

    ends_at: float
    number: int
    running: RunningJob
    asker: Asker | None
    amounts: Amounts
    hours_left: float
    """GPU-hours of budgets that it was counted with and does not use."""


class Rehearsal:
    """`step` until it is over; then `entries` tells who started when."""

    def __init__(
        self, scene: Scene, wanted: Collection[JobId], is_late: bool = False, most_passes: int = MOST_PASSES
    ) -> None:
        self.entries: dict[JobId, Entry] = {}
        self.first_plan: Plan | None = None
        self.last_plan: Plan | None = None
        """Of a rehearsal that came to a standstill: why those that are left do not start even now."""
        self.is_over = False
        self._scene = scene
        self._wanted = set(wanted)
        self._is_late = is_late
        self._most_passes = most_passes
        self._passes = 0
        self._is_standing = False
        """Nothing ends and nothing begins any more."""
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
            self.last_plan, self.is_over = plan, True
            return
        self.first_plan = self.first_plan or plan
        self._passes += 1
        for start in plan.starts:
            self._start(start)
        if self._wanted <= self.entries.keys() or self._passes >= self._most_passes:
            self.is_over = True
        elif plan.is_worth_another or plan.resumes_at not in (None, self._snapshot.resumes_at):
            self._snapshot = replace(self._snapshot, resumes_at=plan.resumes_at, protected=plan.protected)
        else:
            self._snapshot = replace(self._snapshot, resumes_at=None, protected=plan.protected)
            self._advance(plan)

    def _advance(self, plan: Plan) -> None:
        """On to the next instant at which something is different; if there is none, a last plan says why."""
        due = [at for at in self._instants(plan) if at > self._now]
        if not due:
            self._is_standing = True
            left = self._wanted - self.entries.keys()
            self._planner.begin(self._as_it_stands(), stops_early=False, asked=left)
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
        yield from (node.backoff_until for node in self._snapshot.nodes)
        yield from (until for wait in plan.waits.values() if (until := getattr(wait, "until", None)) is not None)
        if plan.changes_at is not None:
            yield plan.changes_at
        if self._spent:
            yield from self._snapshot.limits.until.values()

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
        self.entries.setdefault(job.job_id, Entry(self._now, self._now + length_s, nodes))
        limit_s = job.time_limit_s
        running = RunningJob(
            job_id=job.job_id,
            user=job.user,
            grants=start.grants,
            ends_at=None if limit_s is None else self._now + limit_s,
            began_at=self._now,
            expected_s=job.expected_s,
            slot=start.slot,
        )
        self._overlay.take_all(self._places, start.grants)
        if job.array_job_id is not None:
            self._arrays[job.job_id] = job.array_job_id
        if job.array_job_id in self._array_room:
            self._array_room[job.array_job_id] -= 1
        asker, amounts = Asker(job.user, job.account, job.qos), Amounts()
        if self._counts:
            amounts = granted_amounts(start.grants, self._types_of(start))
            self._count(asker, amounts, 1)
        left = self._spend(asker, start.billing, limit_s, length_s)
        heapq.heappush(self._ends, _Held(self._now + length_s, next(self._numbers), running, asker, amounts, left))

    def _hold_running(self, running: RunningJob) -> None:
        """What runs when the rehearsal begins."""
        array = self._arrays.get(running.job_id)
        for one in (running.job_id, array):
            if one is not None:
                self._alive[one] = self._alive.get(one, 0) + 1
        ends_at = self._end_of(running)
        if ends_at is None:
            self._stays.append(running)
            return
        asker, amounts = self._scene.askers.get(running.job_id, (None, Amounts()))
        heapq.heappush(self._ends, _Held(ends_at, next(self._numbers), running, asker, amounts, 0.0))

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
        array = self._arrays.get(running.job_id, running.job_id)
        if array in self._array_room:
            self._array_room[array] += 1
        for one in dict.fromkeys((running.job_id, array)):
            self._alive[one] = self._alive.get(one, 1) - 1
            if self._alive[one] <= 0:
                self._over_at[one] = held.ends_at

    def _family(self, job: PendingJob) -> Iterator[JobId]:
        """The job, and the array of which it is a task."""
        yield job.job_id
        if job.array_job_id is not None and job.array_job_id != job.job_id:
            yield job.array_job_id

    # ── how long ──────────────────────────────────────────────────────────────────────────────────────────────

    def _length_of(self, job: PendingJob) -> float:
        return self._length(job.job_id, job.expected_s, job.time_limit_s)

    def _length(self, job_id: JobId, expected_s: float | None, limit_s: float | None) -> float:
        if expected_s is None:
            expected_s = self._snapshot.policy.scheduling.expected_without_history_s
        if not self._is_late:
            return expected_s if limit_s is None else min(expected_s, limit_s)
        if limit_s is not None:
            return limit_s
        return max(expected_s, self._scene.late_s.get(job_id, LATE_FACTOR * expected_s))

    def _end_of(self, running: RunningJob) -> float | None:
        """When it is expected to end; None: nobody knows."""
        if running.is_stranded:
            return None
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

    def _opens_at(self, gate: Gate) -> float | None:
        """None: not known yet."""
        if not gate.after:
            return gate.opens_at
        due = [self._is_due_at(one) for one in gate.after]
        known = [at for at in due if at is not None]
        if not known or (len(known) < len(due) and not gate.is_any):
            return None
        return max(gate.opens_at, min(known) if gate.is_any else max(known))

    def _is_due_at(self, after: After) -> float | None:
        if after.is_start:
            entry = self.entries.get(after.job_id)
            came_at = self._began_at if entry is None else entry.starts_at
            return came_at + after.delay_s if after.job_id in self._started else None
        over_at = self._over_at.get(after.job_id)
        return None if over_at is None else over_at + after.delay_s

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
