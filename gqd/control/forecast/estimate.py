"""Start estimates of pending jobs: forecasts of the queue, and the answers to requests about them.  Pure.

A *forecast task* is work that may take many slices: the starts of all pending jobs (`QueueForecastTask`), or the answer
to `gqsub --what-if` (`gqd.control.forecast.whatif`).  The `ForecastQueue` runs one task at a time, slice by slice;
between slices the controller handles requests and starts jobs.  `Volatile.estimates` holds the results of the last
forecast of the queue.

The first estimate of a pending job is recorded as an event (`StartEstimated`), so that its error can be measured later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from gq.errors import Refusal
from gq.model.dependency import Dependency, DependencyKind, DependencyTerm
from gq.model.estimate import FirstEstimate, StartEstimate
from gq.model.ids import JobId, RequestId
from gq.model.resource import min_demand
from gq.model.state import JobState
from gq.wire import client
from gqd.control import snapshot
from gqd.control.explain import explain
from gqd.control.explain.dependency import hangs_on_failure, line_of
from gqd.control.explain.reservation import may_come_again
from gqd.control.job_filter import select_jobs
from gqd.sched.forecast import DeferredJob, Forecast, ForecastInput, ForecastStart, Prerequisite
from gqd.sched.limits.ledger import LimitSubject
from gqd.sched.priority.factors import rank
from gqd.sched.snapshot.model import Snapshot
from gqd.state.cluster import Cluster
from gqd.state.effect import Reply
from gqd.state.events import event
from gqd.state.index.queue import Integers, member_of, startable_tasks
from gqd.state.index.tally import Amounts
from gqd.state.input import ClientRequest, Route
from gqd.state.plan import CoresReservedForGpus, Plan
from gqd.state.policy import Policy
from gqd.state.records import Job
from gqd.state.runtime_history import Signature
from gqd.state.volatile import Volatile

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

INTERVAL_S = 30.0
"""Minimum time between two forecasts of the queue that no client asked for."""
MAX_AGE_S = 2.0
"""Maximum age of estimates that answer a request at once, provided that they cover every job of the request."""
DRIFT_S = 300.0
"""Time after which the queue is forecast again although nothing has happened: overdue jobs go on running."""
MAX_FIRST_ESTIMATES = 200
"""First estimates that one forecast records as events."""
WAIT_S = 20.0
"""Time after which a held request is answered with the estimates of the last forecast."""
QUICK_WORK = 20_000
"""Units of work that a new request may use at once, divided by the number of nodes: small clusters answer at once."""
QUICK_SLICE = 50
MANY_AHEAD = 1_000_000
MAX_WAITING = 256


BESIDE_THE_POINT = (
    event.StartEstimated, event.Audited, event.RequestAnswered, event.RequestsForgotten, event.NoticeQueued,
    event.NoticeDropped, event.NoticeCommandQueued, event.NoticeDelivered, event.NoticeFailed, event.JobTold,
)  # fmt: skip
"""Events that change no start time."""


class ForecastTask(Protocol):
    """Work that is done in slices and then answers its request."""

    @property
    def request_id(self) -> RequestId | None:
        """The id of the only request that waits for this task; None: any number of requests do."""
        ...

    def step(self, budget: int) -> bool:
        """Do at most `budget` units of work; True: the task is done."""
        ...

    def finish(self, draft: TurnBuilder) -> None:
        """Send the answer, or store the results."""
        ...


class EstimateRequest(NamedTuple):
    """A request for start estimates whose reply is held back until the next forecast."""

    route: Route
    request_id: RequestId
    body: client.EstimateStarts
    at: float


class ForecastQueue:
    """The forecast tasks, run in order, and the requests that wait for the next forecast of the queue."""

    def __init__(self) -> None:
        self._tasks: deque[ForecastTask] = deque()
        self._requests: list[EstimateRequest] = []

    def is_wanted(self, cluster: Cluster, volatile: Volatile, now: float) -> bool:
        if self._tasks or self._requests:
            return True
        age_s = now - volatile.estimates_at
        return bool(cluster.queue) and age_s >= (INTERVAL_S if volatile.has_stale_estimates else DRIFT_S)

    @property
    def is_waited_for(self) -> bool:
        """Whether a client waits for an answer."""
        return bool(self._requests) or any(not isinstance(task, QueueForecastTask) for task in self._tasks)

    def add(self, draft: TurnBuilder, task: ForecastTask) -> None:
        """Append a task, and finish it at once if that takes little work.  `Refusal` if the queue is full."""
        if any(waiting.request_id == task.request_id for waiting in self._tasks):
            return  # the client repeated its request
        if len(self._tasks) >= MAX_WAITING:
            raise Refusal(
                "busy", f"{MAX_WAITING} requests of this kind are already in progress", "try again in a moment"
            )
        self._tasks.append(task)
        self._work_quickly(draft)

    def resume_with(self, task: ForecastTask) -> None:
        """Run this task next, in place of one that is done."""
        self._tasks.appendleft(task)

    def enqueue_request(self, draft: TurnBuilder, request: EstimateRequest) -> None:
        self._requests = [waiting for waiting in self._requests if waiting.request_id != request.request_id]
        if len(self._requests) >= MAX_WAITING:
            raise Refusal(
                "busy", f"{MAX_WAITING} requests of this kind are already in progress", "try again in a moment"
            )
        self._requests.append(request)
        self._work_quickly(draft)

    def work(self, draft: TurnBuilder, budget: int) -> None:
        """Run one slice of the first task; without any task, begin a forecast of the queue."""
        if not self._tasks:
            requests, self._requests = self._requests, []
            self._tasks.append(QueueForecastTask(draft, requests))
        if self._tasks[0].step(budget):
            self._tasks.popleft().finish(draft)

    def tick(self, draft: TurnBuilder) -> None:
        """Answer the requests that have waited for `WAIT_S`."""
        late = [request for request in self._requests if draft.now - request.at >= WAIT_S]
        self._requests = [request for request in self._requests if request not in late]
        _answer(draft, late)

    def _work_quickly(self, draft: TurnBuilder) -> None:
        work = 0 if len(self._tasks) > 1 else QUICK_WORK // (10 + len(draft.cluster.nodes))
        while work > 0 and (self._tasks or self._requests):
            self.work(draft, QUICK_SLICE)
            work -= QUICK_SLICE


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


def decide_estimate(
    draft: TurnBuilder, forecasts: ForecastQueue, request: ClientRequest, body: client.EstimateStarts
) -> None:
    """Answer at once if the estimates are recent, else when the next forecast of the queue is done."""
    volatile = draft.volatile
    estimate_request = EstimateRequest(request.route, request.request_id, body, draft.now)
    starts = (known_start(draft.cluster, volatile, job_id) for job_id in _selected_ids(draft.cluster, body))
    is_known = all(_is_current(start, draft.now) for start in starts)
    age_s = draft.now - volatile.estimates_at
    if is_known and volatile.estimates_at and (not volatile.has_stale_estimates or age_s < MAX_AGE_S):
        _answer(draft, [estimate_request])
    else:
        forecasts.enqueue_request(draft, estimate_request)


def _is_current(start: StartEstimate | None, now: float) -> bool:
    """Whether there is an estimate and its start is not in the past."""
    return start is not None and (start.start_at is None or start.start_at >= now)


def _selected_ids(cluster: Cluster, body: client.EstimateStarts) -> list[JobId]:
    """Ids of the pending jobs that the filter selects, in order; one more than a page holds."""
    chosen = (selected.job for selected in select_jobs(cluster, body.filter) if selected.job.is_waiting)
    ids = sorted({job.job_id for job in chosen if job.job_id > body.after})
    return ids[: max(1, body.limit) + 1]


def _answer(draft: TurnBuilder, requests: Iterable[EstimateRequest]) -> None:
    for request in requests:
        limit = max(1, request.body.limit)
        ids = _selected_ids(draft.cluster, request.body)
        starts = tuple(known_start(draft.cluster, draft.volatile, job_id) or _not_yet(job_id) for job_id in ids[:limit])
        body = client.StartEstimates(estimates=starts, made_at=draft.volatile.estimates_at, more=len(ids) > limit)
        draft.enqueue(Reply(route=request.route, request_id=request.request_id, body=body))


def known_start(cluster: Cluster, volatile: Volatile, job_id: JobId) -> StartEstimate | None:
    """The start estimate of a pending job.

    For a job behind those that the forecast reached, the start is extrapolated from the queue's progress up to there.
    """
    estimate = volatile.estimates.get(job_id)
    if (
        estimate is not None and (estimate.start_at is not None or estimate.never or estimate.why)
    ) or job_id not in volatile.positions:
        return estimate
    position, made_at = volatile.positions[job_id], volatile.estimates_at
    reached, start_at = volatile.reached.get(cluster.jobs[job_id].partition, (0, 0.0))
    if not reached:
        return StartEstimate(
            job_id=job_id, position=position, why="the job is too far back in the queue for an estimate"
        )
    return StartEstimate(
        job_id=job_id,
        position=position,
        start_at=made_at + (start_at - made_at) * max(1.0, position / reached),
        why=f"a rough estimate from the {reached} jobs before it in its partition",
    )


def _not_yet(job_id: JobId) -> StartEstimate:
    return StartEstimate(job_id=job_id, position=0, why="the estimate is not ready yet; ask again in a moment")


# ── input of the forecast ─────────────────────────────────────────────────────────────────────────────────────────


class QueueInput(NamedTuple):
    """The input of a forecast, and where the pending jobs stand in the queue."""

    forecast_input: ForecastInput
    estimated: list[JobId]
    """The first pending jobs in queue order: each is part of the forecast, or cannot start."""
    positions: dict[JobId, int]
    """The position of every pending job in its partition, from 1."""
    behind: list[int]
    """Negated priorities by index in the forecast's queue, ascending, to find where a job would be inserted."""


def queue_input_of(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> QueueInput:
    """The head of the queue, the jobs that enter it later, and everything that holds resources."""
    view = snapshot.take(cluster, policy, volatile, now)
    max_jobs = policy.scheduling.estimate_jobs
    bands: dict[JobId, int] = {}
    if view.columns is not None:
        bands = dict(zip(view.columns.job_id[:max_jobs].tolist(), view.columns.band[:max_jobs].tolist(), strict=True))
    view = replace(view, pending=tuple(islice(view.pending, max_jobs)), columns=None, resumes_at=None)
    ranking = rank(cluster, policy, now)
    ids = ranking.job_ids[ranking.order]
    estimated = ids[:max_jobs].tolist()
    rank_of = np.empty(len(ids), np.int64)
    rank_of[ranking.order] = np.arange(len(ids))
    ranks = [_rank_of(cluster, rank_of, job.job_id) for job in view.pending]
    gates = []
    queued_ids = {job.job_id for job in view.pending}
    for queue_index, job_id in enumerate(estimated):
        job = cluster.jobs[job_id]
        if job_id not in queued_ids and (gate := gate_of(cluster, policy, job, bisect_left(ranks, queue_index), now)):
            gates.append(gate)
    positions = _positions(ids, cluster.queue.integers("partition")[ranking.order])
    queue_indices = [cluster.queue.row_of(one.job_id) for one in view.pending]
    behind = [
        MANY_AHEAD if queue_index is None else -int(ranking.priority[queue_index]) for queue_index in queue_indices
    ]
    return QueueInput(forecast_input_of(cluster, policy, view, tuple(gates), bands), estimated, positions, behind)


def _rank_of(cluster: Cluster, rank_of: Integers, job_id: JobId) -> int:
    queue_index = cluster.queue.row_of(job_id)
    return len(rank_of) if queue_index is None else int(rank_of[queue_index])


def _positions(ids: Integers, partitions: Integers) -> dict[JobId, int]:
    """The position of each job in its partition, from 1, for ids in queue order."""
    positions = np.zeros(len(ids), np.int64)
    for partition in np.flatnonzero(np.bincount(partitions)).tolist():
        own = np.flatnonzero(partitions == partition)
        positions[own] = np.arange(1, len(own) + 1)
    return dict(zip(ids.tolist(), positions.tolist(), strict=True))


def forecast_input_of(
    cluster: Cluster, policy: Policy, view: Snapshot, gates: tuple[DeferredJob, ...], bands: dict[JobId, int]
) -> ForecastInput:
    askers: dict[JobId, tuple[LimitSubject, Amounts]] = {}
    if view.limits.binds or view.limits.has_guarantees:
        for job_id, amounts in cluster.tallies.held_by.items():
            job = cluster.jobs[job_id]
            askers[job_id] = (LimitSubject(job.user, member_of(job)[1], job.qos), amounts)
    running = [cluster.jobs[one.job_id] for one in view.running if one.job_id in cluster.jobs]
    waiting = [cluster.jobs[one.job_id] for one in (*view.pending, *(gate.job for gate in gates))]
    arrays = {job.job_id: job.array_job_id for job in running if job.array_job_id is not None}
    late = {job.job_id: late_s for job in (*running, *waiting) if (late_s := _late_s(cluster, policy, job)) is not None}
    return ForecastInput(view, gates, askers, arrays, bands, late, deadlines_of(waiting))


def deadlines_of(jobs: Iterable[Job]) -> dict[JobId, float]:
    return {job.job_id: job.spec.deadline_at for job in jobs if job.spec.deadline_at is not None}


def _late_s(cluster: Cluster, policy: Policy, job: Job) -> float | None:
    """Pessimistic run time of a job without a time limit, see `p90_length`; None: it has a limit, or no history."""
    return None if job.time_limit_s is not None else p90_length(cluster, policy, job)


def p90_length(cluster: Cluster, policy: Policy, job: Job) -> float | None:
    samples = cluster.lengths.get(Signature(*member_of(job), min_demand(job.spec.resources).gpus))
    if samples is None:
        return None
    recent = sorted(samples.lengths_s[-policy.scheduling.history_jobs :])
    return recent[ceil(0.9 * len(recent)) - 1]


def gate_of(cluster: Cluster, policy: Policy, job: Job, ahead: int, now: float) -> DeferredJob | None:
    """The forecast's entry for a job that cannot start yet; None: it never can, or the time is unknown.

    `ahead` is the number of jobs of the queue before it.
    """
    if job.hold is not None or job.never:
        return None
    after, opens_at = _prerequisites(cluster, job.user, job.spec.name, job.job_id, job.dependency)
    begin_at = job.spec.begin_at or 0.0
    if after is None or (job.dependency is None and begin_at <= now):
        return None
    pending = snapshot.pending_job(job, policy)
    if job.array is not None and not startable_tasks(job):
        pending = replace(pending, tasks=job.array.waiting)
    is_any = job.dependency is not None and job.dependency.is_any
    return DeferredJob(pending, ahead, max(begin_at, opens_at), after, is_any)


def _prerequisites(
    cluster: Cluster, user: str, name: str, job_id: JobId, dependency: Dependency | None
) -> tuple[tuple[Prerequisite, ...] | None, float]:
    """(prerequisites, earliest instant) of a dependency; no prerequisites (None) if it needs a job to fail."""
    after: list[Prerequisite] = []
    opens_at = 0.0
    for term in () if dependency is None else dependency.terms:
        if term.kind is DependencyKind.AFTERNOTOK:
            if dependency is not None and dependency.is_any:
                continue
            return None, 0.0
        if term.since is not None:
            opens_at = max(opens_at, term.since + term.delay_s)
        elif term.kind is DependencyKind.SINGLETON:
            after += [Prerequisite(namesake_id) for namesake_id in _namesakes(cluster, user, name, job_id)]
        else:
            after.append(_prerequisite(cluster, term))
    return tuple(after), opens_at


def _prerequisite(cluster: Cluster, term: DependencyTerm) -> Prerequisite:
    job_id = JobId(term.job_id)
    parent = cluster.jobs.get(job_id)
    if parent is not None and parent.array is not None and term.task is not None:
        job_id = parent.array.jobs.get(term.task, job_id)
    is_success = term.kind in (DependencyKind.AFTEROK, DependencyKind.AFTERCORR)
    return Prerequisite(job_id, term.kind is DependencyKind.AFTER, is_success, float(term.delay_s))


def _namesakes(cluster: Cluster, user: str, name: str, before: JobId) -> Iterator[JobId]:
    for job_id, job in cluster.jobs.items():
        is_one = job.user == user and job.spec.name == name and job.state is not JobState.ENDED
        if is_one and job_id < before and job.array_task_id is None:
            yield job_id


# ── the starts of all pending jobs ────────────────────────────────────────────────────────────────────────────────


class QueueForecastTask:
    """Two forecasts of the queue, with expected and with pessimistic run times, and the requests to answer."""

    def __init__(self, draft: TurnBuilder, asked: list[EstimateRequest]) -> None:
        draft.volatile.has_stale_estimates = False
        self.request_id: RequestId | None = None
        self._requests = asked
        self._began_at = draft.now
        self._queue_input = queue_input_of(draft.cluster, draft.policy, draft.volatile, draft.now)
        forecast_input = self._queue_input.forecast_input
        wanted = [job.job_id for job in forecast_input.snapshot.pending] + [
            gate.job.job_id for gate in forecast_input.gates
        ]
        self._expected = Forecast(forecast_input, wanted)
        self._late = Forecast(forecast_input, wanted, is_pessimistic=True)

    def step(self, budget: int) -> bool:
        if not self._expected.is_over:
            self._expected.step(budget)
            return False
        return self._late.is_over or self._late.step(budget)

    def finish(self, draft: TurnBuilder) -> None:
        volatile = draft.volatile
        volatile.estimates, volatile.reached = {}, {}
        volatile.positions = self._queue_input.positions
        volatile.estimates_at = self._began_at
        promises = promises_of(self._expected.first_plan)
        for job_id in self._queue_input.estimated:
            job = draft.cluster.jobs.get(job_id)
            if job is None or not job.is_waiting:
                continue
            position = volatile.positions[job_id]
            told = volatile.estimates[job_id] = self._start_estimate(draft.cluster, job, position, promises)
            if told.start_at is not None:
                far = volatile.reached.get(job.partition, (0, 0.0))[1]
                volatile.reached[job.partition] = (told.position, max(far, told.start_at))
        _note_first(draft, self._queue_input.estimated)
        _answer(draft, self._requests)

    def _start_estimate(self, cluster: Cluster, job: Job, position: int, promises: dict[JobId, float]) -> StartEstimate:
        promise = promises.get(job.job_id)
        expected, late = self._expected.starts.get(job.job_id), self._late.starts.get(job.job_id)
        if expected is not None:
            start_at, p90_at = band(expected, late, promise)
            return StartEstimate(
                job_id=job.job_id,
                position=position,
                start_at=start_at,
                p90_at=p90_at,
                end_at=start_at + expected.ends_at - expected.starts_at,
                is_promised=promise is not None,
                nodes=expected.nodes,
            )
        if late_for := too_late(self._expected, job.job_id):
            return StartEstimate(job_id=job.job_id, position=position, why=late_for)
        plan = self._expected.last_plan
        if plan is None and job.hold is None and job.dependency is None:
            return StartEstimate(job_id=job.job_id, position=position)  # the forecast did not reach it
        if plan is not None and isinstance(plan.waits.get(job.job_id), CoresReservedForGpus):
            why = f"{explain.never_because(cluster, job, plan)}; its start on other CPUs cannot be estimated"
            return StartEstimate(job_id=job.job_id, position=position, why=why)
        never = explain.without_private(explain.never_because(cluster, job, plan), job)  # every user may see it
        if plan is not None and may_come_again(cluster, plan.waits.get(job.job_id)):
            return StartEstimate(job_id=job.job_id, position=position, why=f"{never}; its start cannot be estimated")
        if job.hold is None and (hangs_on_failure(cluster, job) or self._depends_on_late_job(cluster, job)):
            why = f"{never}; whether and when it starts cannot be estimated"
            return StartEstimate(job_id=job.job_id, position=position, why=why)
        return StartEstimate(job_id=job.job_id, position=position, never=never)

    def _depends_on_late_job(self, cluster: Cluster, job: Job) -> bool:
        """Whether it depends on a job that is expected to miss its deadline but may still start, see `too_late`."""
        return any(ancestor.job_id in self._expected.missed for ancestor in line_of(cluster, job))


def promises_of(plan: Plan | None) -> dict[JobId, float]:
    """The latest starts that the plan guarantees, by job."""
    return (
        {}
        if plan is None
        else {
            planned_start.job_id: planned_start.starts_at
            for planned_start in plan.protected
            if planned_start.is_promise
        }
    )


def band(expected: ForecastStart, late: ForecastStart | None, promise: float | None) -> tuple[float, float | None]:
    """(start, P90 of the start): a guaranteed start is also the P90."""
    if promise is not None:
        return min(expected.starts_at, promise), promise
    return expected.starts_at, None if late is None else max(expected.starts_at, late.starts_at)


def too_late(rehearsal: Forecast, job_id: JobId) -> str:
    """Why a job is expected to miss its deadline and leave the queue; '': it is not.

    The job may still start if others end earlier than expected.
    """
    last_at = rehearsal.missed.get(job_id)
    if last_at is None:
        return ""
    return f"it is not expected to start by @{{{int(last_at)}}}, the latest start for its deadline"


def _note_first(draft: TurnBuilder, job_ids: Iterable[JobId]) -> None:
    """Record the first estimate of each pending job, once for each attempt; array records are left out."""
    noted = 0
    for job_id in job_ids:
        job, estimate = draft.cluster.jobs.get(job_id), draft.volatile.estimates.get(job_id)
        if job is None or estimate is None or estimate.start_at is None or estimate.why:
            continue
        if job.estimate is None and job.array is None and job.is_waiting and noted < MAX_FIRST_ESTIMATES:
            noted += 1
            first = FirstEstimate(draft.now, estimate.start_at, estimate.p90_at, estimate.is_promised)
            draft.emit(event.StartEstimated(at=draft.now, job_id=job_id, estimate=first))
