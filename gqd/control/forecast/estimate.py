"""When waiting jobs start, as they are told: what is rehearsed, and what is made of it.  Pure.

A *study* is a piece of work that may take many slices: the starts of all that waits (`StartsStudy`), or what
`gqsub --what-if` asks (`gqd.control.forecast.whatif`). The `Desk` does one after the other, a slice at a time, between
which requests are handled and jobs are started. What the last study of the queue said is kept (`Volatile.estimates`).

The first estimate that a waiting job is given is a fact (`StartEstimated`), so that later its error can be measured.
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
from gqd.sched.limits.ledger import Asker
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

EVERY_S = 30.0
"""So often at most the queue is studied where nobody asks."""
FRESH_S = 2.0
"""So old may an answer be, if it has something to say of every job that is asked about."""
DRIFT_S = 300.0
"""After so long it is studied again though nothing has happened: what is overdue goes on and on."""
MOST_FIRST_ESTIMATES = 200
"""That one study notes as facts."""
WAIT_S = 20.0
"""After so long whoever asks is told what was known before."""
QUICK_WORK = 20_000
"""Of a small cluster the answer is there at once: so many units of work, by the number of nodes."""
QUICK_SLICE = 50
MANY_AHEAD = 1_000_000
MOST_WAITING = 256


BESIDE_THE_POINT = (
    event.StartEstimated, event.Audited, event.RequestAnswered, event.RequestsForgotten, event.NoticeQueued,
    event.NoticeDropped, event.NoticeCommandQueued, event.NoticeDelivered, event.NoticeFailed, event.JobTold,
)  # fmt: skip
"""What may happen without any start being another."""


class Study(Protocol):
    """Work that is done in slices, and what comes of it."""

    @property
    def request_id(self) -> RequestId | None:
        """Of who waits for it alone."""
        ...

    def step(self, budget: int) -> bool:
        """Go on; True: it is done."""
        ...

    def finish(self, draft: TurnBuilder) -> None:
        """Tell it."""
        ...


class Asked(NamedTuple):
    """A request for estimates that is held back."""

    route: Route
    request_id: RequestId
    body: client.EstimateStarts
    at: float


class Desk:
    """One study after the other; whoever waits for the next one of the queue."""

    def __init__(self) -> None:
        self._studies: deque[Study] = deque()
        self._asked: list[Asked] = []

    def is_wanted(self, cluster: Cluster, volatile: Volatile, now: float) -> bool:
        if self._studies or self._asked:
            return True
        age_s = now - volatile.estimates_at
        return bool(cluster.queue) and age_s >= (EVERY_S if volatile.has_stale_estimates else DRIFT_S)

    @property
    def is_waited_for(self) -> bool:
        """Somebody wants an answer."""
        return bool(self._asked) or any(not isinstance(one, StartsStudy) for one in self._studies)

    def add(self, draft: TurnBuilder, study: Study) -> None:
        """Done at once, if that goes quickly."""
        if any(one.request_id == study.request_id for one in self._studies):
            return  # the client asks again, since it has not heard yet
        if len(self._studies) >= MOST_WAITING:
            raise Refusal("busy", f"{MOST_WAITING} such questions are being worked on already", "try again in a moment")
        self._studies.append(study)
        self._work_quickly(draft)

    def go_on(self, study: Study) -> None:
        """With this, in the place of one that is done."""
        self._studies.appendleft(study)

    def ask(self, draft: TurnBuilder, asked: Asked) -> None:
        self._asked = [one for one in self._asked if one.request_id != asked.request_id]
        if len(self._asked) >= MOST_WAITING:
            raise Refusal("busy", f"{MOST_WAITING} such questions are being worked on already", "try again in a moment")
        self._asked.append(asked)
        self._work_quickly(draft)

    def work(self, draft: TurnBuilder, budget: int) -> None:
        """A slice."""
        if not self._studies:
            asked, self._asked = self._asked, []
            self._studies.append(StartsStudy(draft, asked))
        if self._studies[0].step(budget):
            self._studies.popleft().finish(draft)

    def tick(self, draft: TurnBuilder) -> None:
        """Nobody waits for ever."""
        late = [one for one in self._asked if draft.now - one.at >= WAIT_S]
        self._asked = [one for one in self._asked if one not in late]
        _answer(draft, late)

    def _work_quickly(self, draft: TurnBuilder) -> None:
        work = 0 if len(self._studies) > 1 else QUICK_WORK // (10 + len(draft.cluster.nodes))
        while work > 0 and (self._studies or self._asked):
            self.work(draft, QUICK_SLICE)
            work -= QUICK_SLICE


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_estimate(draft: TurnBuilder, desk: Desk, request: ClientRequest, body: client.EstimateStarts) -> None:
    """At once where there are fresh ones, else when the next study is done."""
    volatile = draft.volatile
    asked = Asked(request.route, request.request_id, body, draft.now)
    wanted = (known_start(draft.cluster, volatile, job_id) for job_id in _wanted(draft.cluster, body))
    is_known = all(_stands(told, draft.now) for told in wanted)
    age_s = draft.now - volatile.estimates_at
    if is_known and volatile.estimates_at and (not volatile.has_stale_estimates or age_s < FRESH_S):
        _answer(draft, [asked])
    else:
        desk.ask(draft, asked)


def _stands(told: StartEstimate | None, now: float) -> bool:
    """It says something, and that is not over."""
    return told is not None and (told.start_at is None or told.start_at >= now)


def _wanted(cluster: Cluster, body: client.EstimateStarts) -> list[JobId]:
    """The waiting jobs of the filter, by id, one more than a page."""
    chosen = (one.job for one in select_jobs(cluster, body.filter) if one.job.is_waiting)
    ids = sorted({job.job_id for job in chosen if job.job_id > body.after})
    return ids[: max(1, body.limit) + 1]


def _answer(draft: TurnBuilder, asked: Iterable[Asked]) -> None:
    for one in asked:
        limit = max(1, one.body.limit)
        ids = _wanted(draft.cluster, one.body)
        told = tuple(known_start(draft.cluster, draft.volatile, job_id) or _not_yet(job_id) for job_id in ids[:limit])
        body = client.StartEstimates(estimates=told, made_at=draft.volatile.estimates_at, more=len(ids) > limit)
        draft.enqueue(Reply(route=one.route, request_id=one.request_id, body=body))


def known_start(cluster: Cluster, volatile: Volatile, job_id: JobId) -> StartEstimate | None:
    """What was rehearsed for it; of a job behind those a guess: the queue goes on as it did up to there."""
    told = volatile.estimates.get(job_id)
    if (told is not None and (told.start_at is not None or told.never or told.why)) or job_id not in volatile.positions:
        return told
    position, made_at = volatile.positions[job_id], volatile.estimates_at
    reached, start_at = volatile.reached.get(cluster.jobs[job_id].partition, (0, 0.0))
    if not reached:
        return StartEstimate(job_id=job_id, position=position, why="it is too far behind in the queue for an estimate")
    return StartEstimate(
        job_id=job_id,
        position=position,
        start_at=made_at + (start_at - made_at) * max(1.0, position / reached),
        why=f"a guess: as the {reached} before it in its partition go",
    )


def _not_yet(job_id: JobId) -> StartEstimate:
    return StartEstimate(job_id=job_id, position=0, why="it has not been estimated yet; it will be in a moment")


# ── what is rehearsed ─────────────────────────────────────────────────────────────────────────────────────────


class Setting(NamedTuple):
    """A scene, and the queue that it is about."""

    scene: ForecastInput
    estimated: list[JobId]
    """The first that wait, in order: they are rehearsed, or cannot start."""
    positions: dict[JobId, int]
    """Of all that wait, in their partitions, from 1."""
    behind: list[int]
    """By place in the scene's queue: the priority with its sign turned, for who is to be put in."""


def setting_of(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> Setting:
    """The head of the queue, and what comes into it later, with all that holds resources."""
    view = snapshot.take(cluster, policy, volatile, now)
    most = policy.scheduling.estimate_jobs
    bands: dict[JobId, int] = {}
    if view.columns is not None:
        bands = dict(zip(view.columns.job_id[:most].tolist(), view.columns.band[:most].tolist(), strict=True))
    view = replace(view, pending=tuple(islice(view.pending, most)), columns=None, resumes_at=None)
    ranking = rank(cluster, policy, now)
    ids = ranking.job_ids[ranking.order]
    estimated = ids[:most].tolist()
    rank_of = np.empty(len(ids), np.int64)
    rank_of[ranking.order] = np.arange(len(ids))
    standing = [_rank_of(cluster, rank_of, job.job_id) for job in view.pending]
    gates = []
    there = {job.job_id for job in view.pending}
    for place, job_id in enumerate(estimated):
        job = cluster.jobs[job_id]
        if job_id not in there and (gate := gate_of(cluster, policy, job, bisect_left(standing, place), now)):
            gates.append(gate)
    positions = _positions(ids, cluster.queue.integers("partition")[ranking.order])
    places = [cluster.queue.row_of(one.job_id) for one in view.pending]
    behind = [MANY_AHEAD if place is None else -int(ranking.priority[place]) for place in places]
    return Setting(scene_of(cluster, policy, view, tuple(gates), bands), estimated, positions, behind)


def _rank_of(cluster: Cluster, rank_of: Integers, job_id: JobId) -> int:
    place = cluster.queue.row_of(job_id)
    return len(rank_of) if place is None else int(rank_of[place])


def _positions(ids: Integers, partitions: Integers) -> dict[JobId, int]:
    """Of jobs in order, each in its partition."""
    positions = np.zeros(len(ids), np.int64)
    for partition in np.flatnonzero(np.bincount(partitions)).tolist():
        own = np.flatnonzero(partitions == partition)
        positions[own] = np.arange(1, len(own) + 1)
    return dict(zip(ids.tolist(), positions.tolist(), strict=True))


def scene_of(
    cluster: Cluster, policy: Policy, view: Snapshot, gates: tuple[DeferredJob, ...], bands: dict[JobId, int]
) -> ForecastInput:
    askers: dict[JobId, tuple[Asker, Amounts]] = {}
    if view.limits.binds or view.limits.has_guarantees:
        for job_id, amounts in cluster.tallies.held_by.items():
            job = cluster.jobs[job_id]
            askers[job_id] = (Asker(job.user, member_of(job)[1], job.qos), amounts)
    running = [cluster.jobs[one.job_id] for one in view.running if one.job_id in cluster.jobs]
    waiting = [cluster.jobs[one.job_id] for one in (*view.pending, *(gate.job for gate in gates))]
    arrays = {job.job_id: job.array_job_id for job in running if job.array_job_id is not None}
    late = {job.job_id: late_s for job in (*running, *waiting) if (late_s := _late_s(cluster, policy, job)) is not None}
    return ForecastInput(view, gates, askers, arrays, bands, late, deadlines_of(waiting))


def deadlines_of(jobs: Iterable[Job]) -> dict[JobId, float]:
    return {job.job_id: job.spec.deadline_at for job in jobs if job.spec.deadline_at is not None}


def _late_s(cluster: Cluster, policy: Policy, job: Job) -> float | None:
    """How long nine of ten of the last jobs like it took at most; None: it has a limit, or there were none."""
    return None if job.time_limit_s is not None else p90_length(cluster, policy, job)


def p90_length(cluster: Cluster, policy: Policy, job: Job) -> float | None:
    known = cluster.lengths.get(Signature(*member_of(job), min_demand(job.spec.resources).gpus))
    if known is None:
        return None
    last = sorted(known.lengths_s[-policy.scheduling.history_jobs :])
    return last[ceil(0.9 * len(last)) - 1]


def gate_of(cluster: Cluster, policy: Policy, job: Job, ahead: int, now: float) -> DeferredJob | None:
    """Of a job that is not in the queue yet; None: it never comes there, or nobody can say when."""
    if job.hold is not None or job.never:
        return None
    after, opens_at = _afters(cluster, job.user, job.spec.name, job.job_id, job.dependency)
    begin_at = job.spec.begin_at or 0.0
    if after is None or (job.dependency is None and begin_at <= now):
        return None
    pending = snapshot.pending_job(job, policy)
    if job.array is not None and not startable_tasks(job):
        pending = replace(pending, tasks=job.array.waiting)
    is_any = job.dependency is not None and job.dependency.is_any
    return DeferredJob(pending, ahead, max(begin_at, opens_at), after, is_any)


def _afters(
    cluster: Cluster, user: str, name: str, job_id: JobId, dependency: Dependency | None
) -> tuple[tuple[Prerequisite, ...] | None, float]:
    """(what has to come first, not before when); None: that something ends badly, which nobody expects."""
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
            after += [Prerequisite(one) for one in _namesakes(cluster, user, name, job_id)]
        else:
            after.append(_after(cluster, term))
    return tuple(after), opens_at


def _after(cluster: Cluster, term: DependencyTerm) -> Prerequisite:
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


# ── the starts of all that waits ──────────────────────────────────────────────────────────────────────────────


class StartsStudy:
    """Two rehearsals of the queue, as expected and late; and whom to tell."""

    def __init__(self, draft: TurnBuilder, asked: list[Asked]) -> None:
        draft.volatile.has_stale_estimates = False
        self.request_id: RequestId | None = None
        self._asked = asked
        self._began_at = draft.now
        self._setting = setting_of(draft.cluster, draft.policy, draft.volatile, draft.now)
        scene = self._setting.scene
        wanted = [job.job_id for job in scene.snapshot.pending] + [gate.job.job_id for gate in scene.gates]
        self._expected = Forecast(scene, wanted)
        self._late = Forecast(scene, wanted, is_pessimistic=True)

    def step(self, budget: int) -> bool:
        if not self._expected.is_over:
            self._expected.step(budget)
            return False
        return self._late.is_over or self._late.step(budget)

    def finish(self, draft: TurnBuilder) -> None:
        volatile = draft.volatile
        volatile.estimates, volatile.reached = {}, {}
        volatile.positions = self._setting.positions
        volatile.estimates_at = self._began_at
        promises = promises_of(self._expected.first_plan)
        for job_id in self._setting.estimated:
            job = draft.cluster.jobs.get(job_id)
            if job is None or not job.is_waiting:
                continue
            position = volatile.positions[job_id]
            told = volatile.estimates[job_id] = self._told(draft.cluster, job, position, promises)
            if told.start_at is not None:
                far = volatile.reached.get(job.partition, (0, 0.0))[1]
                volatile.reached[job.partition] = (told.position, max(far, told.start_at))
        _note_first(draft, self._setting.estimated)
        _answer(draft, self._asked)

    def _told(self, cluster: Cluster, job: Job, position: int, promises: dict[JobId, float]) -> StartEstimate:
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
            return StartEstimate(job_id=job.job_id, position=position)  # the rehearsal did not come so far
        if plan is not None and isinstance(plan.waits.get(job.job_id), CoresReservedForGpus):
            why = f"{explain.never_because(cluster, job, plan)}; whether and when others take these cannot be told"
            return StartEstimate(job_id=job.job_id, position=position, why=why)
        never = explain.without_private(explain.never_because(cluster, job, plan), job)  # everybody may see it
        if plan is not None and may_come_again(cluster, plan.waits.get(job.job_id)):
            return StartEstimate(job_id=job.job_id, position=position, why=f"{never}; when it starts cannot be told")
        if job.hold is None and (hangs_on_failure(cluster, job) or self._hangs_on_late(cluster, job)):
            why = f"{never}; whether and when cannot be told"
            return StartEstimate(job_id=job.job_id, position=position, why=why)
        return StartEstimate(job_id=job.job_id, position=position, never=never)

    def _hangs_on_late(self, cluster: Cluster, job: Job) -> bool:
        """On one that may start all the same, see `too_late`."""
        return any(one.job_id in self._expected.missed for one in line_of(cluster, job))


def promises_of(plan: Plan | None) -> dict[JobId, float]:
    """When those start at the latest to whom it is promised."""
    return {} if plan is None else {one.job_id: one.starts_at for one in plan.protected if one.is_promise}


def band(expected: ForecastStart, late: ForecastStart | None, promise: float | None) -> tuple[float, float | None]:
    """(start, p90): the second is the promise where there is one."""
    if promise is not None:
        return min(expected.starts_at, promise), promise
    return expected.starts_at, None if late is None else max(expected.starts_at, late.starts_at)


def too_late(rehearsal: Forecast, job_id: JobId) -> str:
    """What is said of a job that leaves the queue when it could not be over by its deadline; '': it does not.

    It may start all the same, if others end earlier than they are expected to.
    """
    last_at = rehearsal.missed.get(job_id)
    if last_at is None:
        return ""
    return f"no room for it is expected by @{{{int(last_at)}}}, when it would have to start for its deadline"


def _note_first(draft: TurnBuilder, job_ids: Iterable[JobId]) -> None:
    """What a waiting job was told first, once for each attempt; arrays wait task by task, and are left out."""
    noted = 0
    for job_id in job_ids:
        job, told = draft.cluster.jobs.get(job_id), draft.volatile.estimates.get(job_id)
        if job is None or told is None or told.start_at is None or told.why:
            continue
        if job.estimate is None and job.array is None and job.is_waiting and noted < MOST_FIRST_ESTIMATES:
            noted += 1
            first = FirstEstimate(draft.now, told.start_at, told.p90_at, told.is_promised)
            draft.emit(event.StartEstimated(at=draft.now, job_id=job_id, estimate=first))
