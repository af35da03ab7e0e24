"""Forecast of start times: the planner run forward on a snapshot, from one expected event to the next.  Pure.

A forecast plans, lets the jobs that start hold their resources, and advances to the next instant at which something
changes: a job, an occurrence of a reservation or a node's back-off ends or begins.  It repeats this until the jobs
asked about have started or `max_passes` is reached.  It decides nothing itself: it adopts what the planner decides.

Run times are estimates.  *Expected*: as the policy predicts (`PendingJob.expected_s`); a job that has run longer than
that is expected to run as long again as it has.  *Pessimistic*: up to the time limit; a job without one as long as the
90th percentile of similar jobs, or else three times as long as expected.  At its deadline every job ends; a job that
could not end by its deadline leaves the queue.

After `EXACT_PASSES` passes, ends that follow each other soon count as one instant, more coarsely the further ahead, so
that the forecast of any queue terminates.
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
from gqd.sched.limits.ledger import LimitSubject, LimitView, hours
from gqd.sched.planner import Planner
from gqd.sched.preemption.nominations import as_preempted, without_nomination
from gqd.sched.preemption.partial_release import given
from gqd.sched.reservation.windows import as_told_before
from gqd.sched.snapshot.model import Nomination, Overlay, PendingColumns, PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.queue_scan import columns_of
from gqd.state.index.tally import Amounts, account_path, add, granted_amounts, tally_keys
from gqd.state.plan import NotInReservation, Plan, Preemption, Shrink, Start

EXACT_PASSES = 100
"""Number of passes for which every end is an instant of its own."""
MAX_PASSES = 400
GRAIN = 1 / 16
"""Part of the time forecast so far: after `EXACT_PASSES`, ends within it count as one instant."""
PESSIMISTIC_FACTOR = 3.0
"""Pessimistic run time, divided by the expected one, of a job without a time limit and without history."""
LEFT_OUT = "avoided after a failed launch"
"""Text of `NodeFacts.unavailable` for a node that becomes available again when its back-off ends."""


class ForecastStart(NamedTuple):
    """The forecast start of a job; for an array, that of its first task."""

    starts_at: float
    ends_at: float
    nodes: tuple[str, ...]


class Prerequisite(NamedTuple):
    """A dependency: another job must end (or start), and then a delay must pass."""

    job_id: JobId
    is_start: bool = False
    """The other job must start; else it must end."""
    is_success: bool = False
    """The other job must succeed."""
    delay_s: float = 0.0
    """Time that must pass after that."""


@dataclass(slots=True, frozen=True)
class DeferredJob:
    """A job that enters the queue later: at an instant, or when its dependencies are satisfied."""

    job: PendingJob
    ahead: int
    """Number of the snapshot's pending jobs that come before it in the queue."""
    opens_at: float = 0.0
    """When the job enters the queue at the earliest."""
    after: tuple[Prerequisite, ...] = ()
    """Dependencies of the job."""
    is_any: bool = False
    """A single satisfied dependency is enough; else all must be satisfied."""


@dataclass(slots=True, frozen=True)
class ForecastInput:
    """The cluster, its queue and what else a forecast needs."""

    snapshot: Snapshot
    gates: tuple[DeferredJob, ...] = ()
    """Jobs that enter the queue later."""
    askers: Mapping[JobId, tuple[LimitSubject, Amounts]] = field(default_factory=dict)
    """For each running job, if there are limits: the subject of its limits and the amounts that it holds."""
    arrays: Mapping[JobId, JobId] = field(default_factory=dict)
    """Job id of each running array task → job id of the array."""
    bands: Mapping[JobId, int] = field(default_factory=dict)
    """`gqd.sched.snapshot.model.PendingColumns.band` of each waiting job."""
    late_s: Mapping[JobId, float] = field(default_factory=dict)
    """90th percentile of the run times of similar jobs, for each job without a time limit."""
    deadlines: Mapping[JobId, float] = field(default_factory=dict)
    """Deadline of each waiting job that has one."""


class _Held(NamedTuple):
    """A running job, or a part of one, that ends at a known instant; ordered by that instant."""

    ends_at: float
    number: int
    """Breaks ties, in the order of creation."""
    running: RunningJob
    subject: LimitSubject | None
    amounts: Amounts
    hours_left: float
    """GPU-hours that were charged to budgets at the start and will not be used."""


class Forecast:
    """A forecast: call `step` until `is_over`; `starts` then holds the start of each job."""

    def __init__(
        self,
        forecast_input: ForecastInput,
        asked: Collection[JobId],
        is_pessimistic: bool = False,
        max_passes: int = MAX_PASSES,
    ) -> None:
        self.starts: dict[JobId, ForecastStart] = {}
        self.missed: dict[JobId, float] = {}
        """Jobs that could no longer end by their deadlines → the latest start that would have met the deadline."""
        self.first_plan: Plan | None = None
        """The plan for the snapshot itself."""
        self.last_plan: Plan | None = None
        """A plan with the reasons of the jobs that never start, if no more events were left; else None."""
        self.is_over = False
        self._input = forecast_input
        self._asked = set(asked)
        self._is_pessimistic = is_pessimistic
        self._max_passes = max_passes
        self._passes = 0
        self._has_no_events = False
        """No events are left."""
        self._too_late: dict[JobId, str] = {}
        """Jobs that had not started when their reservation ended → its name."""
        self._planner = Planner()
        snapshot = forecast_input.snapshot
        self._now = self._began_at = snapshot.now
        self._snapshot = snapshot
        self._overlay = Overlay.of(snapshot)
        self._node_indices = {node.name: index for index, node in enumerate(snapshot.nodes)}
        self._queue = [((queue_index, 1, 0), job) for queue_index, job in enumerate(snapshot.pending)]
        """Pending jobs with their sort keys."""
        self._deferred = list(enumerate(forecast_input.gates))
        self._numbers = count()
        self._ends: list[_Held] = []
        self._endless: list[RunningJob] = []
        """Running jobs that end at an unknown instant."""
        self._unfinished: dict[JobId, int] = {}
        """Number of unfinished tasks of each array; 1 for any other job."""
        self._started = {running.job_id for running in snapshot.running}
        self._over_at: dict[JobId, float] = {}
        """When each finished job or array ended."""
        self._failed: set[JobId] = set()
        """Jobs that missed their deadline, and arrays of which a task did."""
        self._array_room = dict(snapshot.array_room)
        self._arrays = dict(forecast_input.arrays)
        self._counts = snapshot.limits.binds or snapshot.limits.has_guarantees
        self._held = {key: dict(amounts) for key, amounts in snapshot.limits.held.items()}
        self._spent = dict(snapshot.limits.spent)
        self._types: dict[str, dict[int, str]] = {}
        for running in snapshot.running:
            self._add_running(running)
        for job in (*snapshot.pending, *(deferred.job for deferred in forecast_input.gates)):
            for job_id in self._with_array(job):
                self._unfinished[job_id] = self._unfinished.get(job_id, 0) + max(1, job.tasks.bit_count())

    # ── in time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, budget: int) -> bool:
        """Do about `budget` units of the planner's work; return whether the forecast is complete."""
        while budget > 0 and not self.is_over:
            if not self._planner.is_busy:
                self._planner.begin(self._current_snapshot())
            plan = self._planner.step(budget)
            budget -= 1 + (budget if plan is None else len(self._queue))
            if plan is not None:
                self._apply_plan(plan)
        return self.is_over

    def _apply_plan(self, plan: Plan) -> None:
        """Adopt the plan and advance to the next instant, unless the planner has more to do at this one."""
        if self._has_no_events:
            self._keep_reasons(plan)
            return
        self.first_plan = self.first_plan or plan
        self._passes += 1
        for start in plan.starts:
            self._start(start)
        for preemption in plan.preemptions:
            self._preempt(preemption)
        if self._is_answered or self._passes >= self._max_passes:
            self.is_over = True
        elif self._is_cut_short(plan):
            self._resume_at(plan, plan.resumes_at, plan.searches_from)
        else:
            self._resume_at(plan, None, None)
            self._advance(plan)

    def _is_cut_short(self, plan: Plan) -> bool:
        """Return whether the planner ran out of steps, so that the next pass continues at the same instant."""
        before = self._snapshot
        has_moved = plan.searches_from not in (None, before.searches_from)
        return plan.is_worth_another or plan.resumes_at not in (None, before.resumes_at) or has_moved

    def _resume_at(self, plan: Plan, resumes_at: JobId | None, searches_from: JobId | None) -> None:
        self._snapshot = replace(
            self._snapshot, resumes_at=resumes_at, searches_from=searches_from, protected=plan.protected
        )

    def _keep_reasons(self, plan: Plan) -> None:
        """Keep the reasons of the jobs that never start.

        That its reservation has ended by now does not explain why a job did not start before.  A plan of such jobs on
        the original snapshot does.
        """
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
            self._planner.begin(replace(self._input.snapshot, pending=late, columns=None), skip_reasons=False)

    @property
    def _is_answered(self) -> bool:
        """Return whether every job asked about has a start or has missed its deadline."""
        return self._asked <= self.starts.keys() | self.missed.keys()

    def _advance(self, plan: Plan) -> None:
        """Advance to the next instant at which something changes; if there is none, plan once more for the reasons."""
        due = [at for at in self._instants(plan) if at > self._now]
        if self._ends and self._ends[0].ends_at <= self._now:
            due = [self._now]  # a victim without notice time ends at once
        if not due:
            self._has_no_events = True
            left = self._asked - self.starts.keys() - self.missed.keys()
            self._planner.begin(self._current_snapshot(), skip_reasons=False, asked=left)
            return
        until = min(due)
        if self._passes > EXACT_PASSES:
            until = max(at for at in due if at <= until + (until - self._began_at) * GRAIN)
        before, self._now = self._now, until
        while self._ends and self._ends[0].ends_at <= until:
            self._end(heapq.heappop(self._ends))
        self._renew_budgets(before)
        self._recover_nodes(before)
        self._admit_deferred()
        self._drop_late()
        self.is_over = self._is_answered

    def _instants(self, plan: Plan) -> Iterator[float]:
        """Yield the instants at which something may change; some of them may be past."""
        if self._passes > EXACT_PASSES:
            yield from (held.ends_at for held in self._ends)
        elif self._ends:
            yield self._ends[0].ends_at
        for _, deferred in self._deferred:
            if (at := self._opens_at(deferred)) is not None:
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
        """Yield when occurrences begin, if a job can start in them, and when they end."""
        booked = self._snapshot.booked
        names = {job.reservation for _, job in self._queue} if booked else set()
        for occurrence in booked:
            if occurrence.is_magnetic or occurrence.name in names:
                yield occurrence.begin_at
            yield occurrence.end_at

    def _current_snapshot(self) -> Snapshot:
        """Return the snapshot of the forecast's present instant."""
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
            running=(*self._endless, *(held.running for held in self._ends)),
            array_room=dict(self._array_room),
            limits=limits,
            columns=self._columns(pending),
        )
        return self._snapshot

    def _columns(self, pending: tuple[PendingJob, ...]) -> PendingColumns:
        bands = self._input.bands
        return replace(columns_of(pending), band=np.array([bands.get(job.job_id, 0) for job in pending], np.int64))

    # ── starts and ends ─────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, start: Start) -> None:
        """Let the job, or the task of an array, run from now on."""
        at, job = next((at, job) for at, (_, job) in enumerate(self._queue) if job.job_id == start.job_id)
        if start.task is not None:
            job = replace(job, tasks=job.tasks & ~task_bit(start.task))
            self._queue[at] = (self._queue[at][0], job)
        if not job.tasks:
            del self._queue[at]
        run_time_s = self._run_time_of(job)
        self._started.add(job.job_id)
        nodes = tuple(grant.node for grant in start.grants)
        self.starts.setdefault(job.job_id, ForecastStart(self._now, self._now + run_time_s, nodes))
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
            saved_at=self._now if start.borrows else None,  # a borrower may be preempted
            is_borrowing=bool(start.borrows),
        )
        self._overlay.take_all(self._node_indices, start.grants)
        if self._snapshot.claims:
            self._snapshot = without_nomination(self._snapshot, job.job_id)
        if job.array_job_id is not None:
            self._arrays[job.job_id] = job.array_job_id
        if job.array_job_id in self._array_room:
            self._array_room[job.array_job_id] -= 1
        subject, amounts = LimitSubject(job.user, job.account, job.qos), Amounts()
        if self._counts:
            amounts = granted_amounts(start.grants, self._types_of(start))
            self._count(subject, amounts, 1)
        left = self._spend(subject, start.billing, job.time_limit_s, run_time_s)
        heapq.heappush(self._ends, _Held(self._now + run_time_s, next(self._numbers), running, subject, amounts, left))

    def _preempt(self, preemption: Preemption) -> None:
        """Let the victims end; that they are requeued is ignored, and nothing is kept for tasks of arrays."""
        victim_ids, until = {attempt_id.job_id for attempt_id in preemption.victims}, self._now
        shrinks: dict[JobId, list[Shrink]] = {}
        for shrink in preemption.shrinks:
            shrinks.setdefault(shrink.attempt_id.job_id, []).append(shrink)
        all_held = [*self._ends, *(self._held_of(math.inf, running) for running in self._endless)]
        for giver in (held for held in all_held if held.running.job_id in shrinks and not held.running.is_part):
            own = shrinks[giver.running.job_id]
            stays, *parts = given([giver.running], own, preemption.job_id)
            self._replace(giver, giver._replace(running=stays))
            for shrink, part in zip(own, parts, strict=True):
                heapq.heappush(self._ends, self._held_of(shrink.ends_at, part))
                until = max(until, shrink.ends_at)
        victims = (held for held in all_held if held.running.job_id in victim_ids and not held.running.is_part)
        for victim in victims:
            [going] = as_preempted([victim.running], victim_ids, preemption.job_id, self._now)
            ends_at = min(victim.ends_at, going.ends_at or self._now)
            until = max(until, ends_at)
            self._replace(victim, victim._replace(ends_at=ends_at, running=going))
        if preemption.task is None:
            job = next(job for _, job in self._queue if job.job_id == preemption.job_id)
            limits = (job.user, job.time_limit_s, job.expected_s)
            occurrence = (preemption.reservation, preemption.occurrence)
            claim = Nomination(job.job_id, preemption.grants, until, *limits, *occurrence)
            self._snapshot = replace(self._snapshot, claims=(*self._snapshot.claims, claim))

    def _replace(self, before: _Held, after: _Held) -> None:
        self._endless = [running for running in self._endless if running is not before.running]
        self._ends = [held for held in self._ends if held.running is not before.running]
        if after.ends_at == math.inf:
            self._endless.append(after.running)
        else:
            self._ends.append(after)
        heapq.heapify(self._ends)

    def _add_running(self, running: RunningJob) -> None:
        """Take over a job, or a part of one, that runs when the forecast begins."""
        array = self._arrays.get(running.job_id)
        for job_id in () if running.is_part else (running.job_id, array):
            if job_id is not None:
                self._unfinished[job_id] = self._unfinished.get(job_id, 0) + 1
        ends_at = self._end_of(running)
        if ends_at is None:
            self._endless.append(running)
            return
        heapq.heappush(self._ends, self._held_of(ends_at, running))

    def _held_of(self, ends_at: float, running: RunningJob) -> _Held:
        holder = None if running.is_part else self._input.askers.get(running.job_id)
        subject, amounts = holder or (None, Amounts())
        return _Held(ends_at, next(self._numbers), running, subject, amounts, 0.0)

    def _end(self, held: _Held) -> None:
        """End the job: free its resources and what it counts against limits."""
        running = held.running
        for grant in running.grants:
            if grant.node in self._node_indices:
                self._overlay.give_back(self._node_indices[grant.node], grant)
                if grant.gpus:
                    self._overlay.renew(self._node_indices[grant.node])
        if held.subject is not None and self._counts:
            self._count(held.subject, held.amounts, -1)
            self._give_back_hours(held.subject, held.hours_left)
        if running.is_part:
            return
        array = self._arrays.get(running.job_id, running.job_id)
        if array in self._array_room:
            self._array_room[array] += 1
        for job_id in dict.fromkeys((running.job_id, array)):
            self._count_out(job_id, 1, held.ends_at)

    def _count_out(self, job_id: JobId, tasks: int, at: float) -> None:
        """Count that many tasks as finished; the last one finishes the job."""
        self._unfinished[job_id] = self._unfinished.get(job_id, tasks) - tasks
        if self._unfinished[job_id] <= 0:
            self._over_at[job_id] = at

    def _with_array(self, job: PendingJob) -> Iterator[JobId]:
        """Yield the ids of the job and, if it is an array task with its own record, of the array."""
        yield job.job_id
        if job.array_job_id is not None and job.array_job_id != job.job_id:
            yield job.array_job_id

    # ── run times ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _run_time_of(self, job: PendingJob) -> float:
        return self._run_time(job.job_id, job.expected_s, self._left_s(job, job.time_limit_s))

    def _left_s(self, job: PendingJob, limit_s: float | None) -> float | None:
        """Return how long the job may run if it starts now: up to its limit and its deadline; None: forever."""
        deadline_at = self._input.deadlines.get(job.job_id, math.inf)
        left_s = min(math.inf if limit_s is None else limit_s, deadline_at - self._now)
        return None if left_s == math.inf else left_s

    def _run_time(self, job_id: JobId, expected_s: float | None, limit_s: float | None) -> float:
        """Return the estimated run time; see the module docstring."""
        if expected_s is None:
            expected_s = self._snapshot.policy.scheduling.expected_without_history_s
        if not self._is_pessimistic:
            return expected_s if limit_s is None else min(expected_s, limit_s)
        if limit_s is not None:
            return limit_s
        return max(expected_s, self._input.late_s.get(job_id, PESSIMISTIC_FACTOR * expected_s))

    def _end_of(self, running: RunningJob) -> float | None:
        """Return when the running job is expected to end; None: unknown."""
        if running.is_stranded:
            return None
        if (running.preemptor is not None or running.is_part) and running.ends_at is not None:
            return max(self._now, running.ends_at)
        limit_s = None if running.ends_at is None else running.ends_at - running.began_at
        ends_at = running.began_at + self._run_time(running.job_id, running.expected_s, limit_s)
        if ends_at <= self._now:
            ends_at = self._now + max(1.0, self._now - running.began_at)
        return ends_at if running.ends_at is None else max(self._now, min(ends_at, running.ends_at))

    # ── jobs entering the queue ─────────────────────────────────────────────────────────────────────────────────────

    def _admit_deferred(self) -> None:
        """Insert the deferred jobs that are due into the queue."""
        left = []
        for number, deferred in self._deferred:
            opens_at = self._opens_at(deferred)
            if opens_at is not None and opens_at <= self._now:
                item = (deferred.ahead, 0, number), replace(deferred.job, since=self._now)
                insort(self._queue, item, key=lambda item: item[0])
            else:
                left.append((number, deferred))
        self._deferred = left

    def _opens_at(self, deferred: DeferredJob) -> float | None:
        """Return when the job enters the queue; None: not known yet."""
        if not deferred.after:
            return deferred.opens_at
        instants = [self._satisfied_at(prerequisite) for prerequisite in deferred.after]
        satisfied = [at for at in instants if at is not None]
        if not satisfied or (len(satisfied) < len(instants) and not deferred.is_any):
            return None
        return max(deferred.opens_at, min(satisfied) if deferred.is_any else max(satisfied))

    def _satisfied_at(self, after: Prerequisite) -> float | None:
        """Return when the dependency is satisfied; None: not yet, or never."""
        if after.is_start:
            entry = self.starts.get(after.job_id)
            started_at = self._began_at if entry is None else entry.starts_at
            return started_at + after.delay_s if after.job_id in self._started else None
        over_at = self._over_at.get(after.job_id)
        is_failed = after.is_success and after.job_id in self._failed
        return None if over_at is None or is_failed else over_at + after.delay_s

    # ── jobs that miss their deadlines ──────────────────────────────────────────────────────────────────────────────

    def _with_deadlines(self) -> Iterator[PendingJob]:
        """Yield the waiting and deferred jobs that have deadlines."""
        deadlines = self._input.deadlines
        if deadlines:
            yield from (job for _, job in self._queue if job.job_id in deadlines)
            yield from (deferred.job for _, deferred in self._deferred if deferred.job.job_id in deadlines)

    def _last_start_at(self, job: PendingJob) -> float:
        """Return the latest start with which the job can end by its deadline."""
        return self._input.deadlines.get(job.job_id, math.inf) - (job.time_limit_s or 0)

    def _drop_late(self) -> None:
        """Remove the jobs, and the waiting tasks of arrays, that can no longer end by their deadlines."""
        late = {job.job_id: job for job in self._with_deadlines() if self._last_start_at(job) < self._now}
        if not late:
            return
        self._queue = [(key, job) for key, job in self._queue if job.job_id not in late]
        self._deferred = [(number, deferred) for number, deferred in self._deferred if deferred.job.job_id not in late]
        for job in late.values():
            self.missed[job.job_id] = self._last_start_at(job)
            for job_id in self._with_array(job):
                self._failed.add(job_id)
                self._count_out(job_id, max(1, job.tasks.bit_count()), self._now)

    # ── limits, budgets and nodes that recover ──────────────────────────────────────────────────────────────────────

    def _count(self, subject: LimitSubject, amounts: Amounts, times: int) -> None:
        """Add `times` the amounts to what the user, accounts and QOS hold."""
        path = account_path(self._snapshot.limits.accounts, subject.account)
        for key in tally_keys(subject.user, path, subject.qos):
            add(self._held.setdefault(key, {}), amounts, times)

    def _types_of(self, start: Start) -> dict[str, dict[int, str]]:
        """Return the type of each GPU, by node and index, at least for the nodes of the start."""
        for grant in start.grants:
            if grant.node not in self._types:
                node = self._snapshot.nodes[self._node_indices[grant.node]]
                self._types[grant.node] = {index: name for name, mask in node.gpu_types for index in _bits(mask)}
        return self._types

    def _spend(self, subject: LimitSubject, billing: int, limit_s: int | None, run_time_s: float) -> float:
        """Charge the whole time limit to budgets, as the planner does; return the GPU-hours to give back at the end."""
        if not self._spent:
            return 0.0
        charged = hours(billing, limit_s) or 0.0
        self._give_back_hours(subject, -charged)
        return charged - (hours(billing, int(run_time_s)) or 0.0)

    def _give_back_hours(self, subject: LimitSubject, gpu_hours: float) -> None:
        limits: LimitView = self._snapshot.limits
        if not gpu_hours or not self._spent:
            return
        path = account_path(limits.accounts, subject.account)
        for holder, name, user in tally_keys(subject.user, path, subject.qos):
            for limit in limits.limits.get((holder, name), ()):
                if limit.resource in BUDGETS and limit.per_user == bool(user):
                    key = (limit, user)
                    self._spent[key] = self._spent.get(key, 0.0) - gpu_hours

    def _renew_budgets(self, before: float) -> None:
        """Reset the budgets of which a new period has begun since `before`."""
        for resource, until in self._snapshot.limits.until.items():
            if before < until <= self._now:
                self._spent = {key: 0.0 if key[0].resource == resource else used for key, used in self._spent.items()}

    def _recover_nodes(self, before: float) -> None:
        """Make the nodes available whose back-off has ended since `before`."""
        nodes = self._snapshot.nodes
        if any(before < node.backoff_until <= self._now for node in nodes):
            recovered = [
                replace(node, unavailable="")
                if before < node.backoff_until <= self._now and node.unavailable == LEFT_OUT
                else node
                for node in nodes
            ]
            self._snapshot = replace(self._snapshot, nodes=tuple(recovered))


def _bits(mask: int) -> Iterator[int]:
    return (index for index in range(mask.bit_length()) if mask >> index & 1)
