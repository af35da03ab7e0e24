"""``gqsub --test-only`` and ``--what-if``: when a job would start, and which other requests would start sooner.  Pure.

The job is inserted into the input of a forecast at its position in the queue, and the queue is forecast until the job
starts; the cluster does not change.  Alternatives are checked like submissions of this user, so only permitted requests
are offered, and only those that start sooner are shown.

The search is bounded: `MAX_REHEARSED` forecasts and `MAX_CHECKED` checks, none begun after `MAX_SEARCH_S`.  Like every
forecast task it runs in slices, between which the controller handles requests and starts jobs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gq.errors import Refusal
from gq.model.dependency import format_dependency
from gq.model.estimate import Alternative
from gq.model.ids import RequestId
from gq.model.job import JobSpec
from gq.model.tasks import parse_tasks
from gq.units import counted
from gq.wire import client
from gqd.control import job, snapshot
from gqd.control.access import Caller
from gqd.control.apply.job import job_of
from gqd.control.explain import explain, limits
from gqd.control.forecast.alternatives import Search, Variant, is_sooner, searches
from gqd.control.forecast.estimate import (
    ForecastQueue,
    QueueInput,
    band,
    deadlines_of,
    gate_of,
    promises_of,
    queue_input_of,
    too_late,
)
from gqd.sched.forecast import DeferredJob, Forecast, ForecastInput, ForecastStart
from gqd.sched.limits.ledger import NO_LIMITS
from gqd.sched.priority.factors import rank
from gqd.sched.priority.order import order_of
from gqd.state.cluster import Cluster
from gqd.state.effect import Reply
from gqd.state.events import event
from gqd.state.index.queue import PendingQueue
from gqd.state.input import ClientRequest
from gqd.state.plan import OverLimit, OverQuota, Plan
from gqd.state.policy import Policy
from gqd.state.records import Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_REHEARSED = 64
MAX_CHECKED = 256
MAX_SEARCH_S = 15.0
MAX_STUDY_S = 20.0
"""Time after which no further forecast is made: alternatives are shown without a P90."""
MAX_SHOWN = 10
MAX_OF_FAMILY = 3
"""Alternatives of one family (numbers of GPUs, time limits …) that are shown."""


class Supposed(NamedTuple):
    """A job that is not queued, and the input of a forecast in which it is."""

    job: Job
    forecast_input: ForecastInput


class Prediction(NamedTuple):
    expected: ForecastStart | None
    p90_at: float | None
    is_promised: bool
    why: str
    """Why no start is known; empty: one is."""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


def decide_test(
    draft: TurnBuilder, forecasts: ForecastQueue, who: Caller, request: ClientRequest, body: client.Submit
) -> None:
    """Forecast when and where the job would start; replies `Tested`.  `Refusal` if it could not be queued."""
    queue_input = queue_input_of(draft.cluster, draft.policy, draft.volatile, draft.now)
    supposed = suppose(draft, queue_input, job.prepare(draft, who, request, body.spec).fact)
    forecasts.add(draft, _TestTask(request, supposed, first_of(body.spec)))


def decide_what_if(
    draft: TurnBuilder, forecasts: ForecastQueue, who: Caller, request: ClientRequest, body: client.WhatIf
) -> None:
    """Search alternatives; replies `Alternatives`.  `Refusal` if the request itself could not be queued."""
    queue_input = queue_input_of(draft.cluster, draft.policy, draft.volatile, draft.now)
    asked = job.prepare(draft, who, request, body.spec).fact
    first = first_of(body.spec)
    what = f"as asked; all times are for {first}" if first else "as asked"
    trial = _Trial(suppose(draft, queue_input, asked))
    forecasts.add(
        draft,
        _WhatIfTask(draft, forecasts, who, request, queue_input, asked, _Tried(Variant("", what, body.spec), trial)),
    )


def first_of(spec: JobSpec) -> str:
    """``the first of its 8 tasks``, which stands for the array in a forecast; '': not an array, or of one task."""
    count = parse_tasks(spec.array).bit_count() if spec.array else 1
    return "" if count == 1 else f"the first of its {count} tasks"


def _key(fact: event.JobSubmitted) -> tuple[object, ...]:
    return fact.spec.resources, fact.partition, fact.qos, fact.time_limit_s, fact.spec.reservation


# ── a job that is not queued ──────────────────────────────────────────────────────────────────────────────────────


def suppose(draft: TurnBuilder, queue_input: QueueInput, fact: event.JobSubmitted) -> Supposed:
    """The forecast input with this job inserted at its position in the queue."""
    cluster, policy = draft.cluster, draft.policy
    supposed = _job_of(fact)
    forecast_input = queue_input.forecast_input
    if fact.spec.is_held or fact.never:
        return Supposed(supposed, forecast_input)
    alone = _alone(cluster, supposed)
    ahead = _ahead_of(alone, policy, queue_input, supposed, draft.now)
    forecast_input = replace(
        forecast_input,
        bands={**forecast_input.bands, supposed.job_id: _band_of(alone, policy, draft.now)},
        deadlines={**forecast_input.deadlines, **deadlines_of([supposed])},
    )
    pending = snapshot.pending_job(supposed, policy)
    if supposed.dependency is not None or (fact.spec.begin_at or 0.0) > draft.now:
        gate = gate_of(cluster, policy, supposed, ahead, draft.now)
        return Supposed(
            supposed, forecast_input if gate is None else replace(forecast_input, gates=(*forecast_input.gates, gate))
        )
    view = forecast_input.snapshot
    queue = (*view.pending[:ahead], pending, *view.pending[ahead:])
    gates = tuple(_moved(gate, ahead) for gate in forecast_input.gates)
    return Supposed(supposed, replace(forecast_input, snapshot=replace(view, pending=queue, columns=None), gates=gates))


def _moved(gate: DeferredJob, ahead: int) -> DeferredJob:
    return replace(gate, ahead=gate.ahead + 1) if gate.ahead > ahead else gate


def _job_of(fact: event.JobSubmitted) -> Job:
    """The job of a submission, for an array one task of it; it accrues age priority at once."""
    supposed = job_of(msgspec.structs.replace(fact, spec=msgspec.structs.replace(fact.spec, array="")))
    supposed.accrue_at = supposed.eligible_at
    return supposed


def _ahead_of(alone: Cluster, policy: Policy, queue_input: QueueInput, supposed: Job, now: float) -> int:
    """Number of jobs of the forecast's queue that are before it."""
    pending = queue_input.forecast_input.snapshot.pending
    order = policy.scheduling.order
    if order == "arrival" or not pending:
        return len(pending)
    if order == "shortest":
        own = _length(supposed.expected_s)
        return bisect_right([_length(queued_job.expected_s) for queued_job in pending], own)
    return bisect_right(queue_input.behind, -priority_of(alone, policy, now))


def _length(expected_s: float | None) -> float:
    return float("inf") if expected_s is None else expected_s


def priority_of(alone: Cluster, policy: Policy, now: float) -> int:
    """The priority of the only job in this cluster's queue."""
    return int(rank(alone, policy, now).priority[0])


def _band_of(alone: Cluster, policy: Policy, now: float) -> int:
    band = order_of(alone, policy, now, NO_LIMITS).band
    return int(band[0]) if len(band) else 0


def _alone(cluster: Cluster, supposed: Job) -> Cluster:
    """A copy of the cluster whose queue holds only this job."""
    alone = copy(cluster)
    alone.queue = PendingQueue.of([supposed])
    return alone


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Trial:
    """Forecasts until one job starts: with expected run times and, if `has_late`, with pessimistic ones."""

    def __init__(self, supposed: Supposed, has_late: bool = True) -> None:
        self._supposed = supposed
        self.has_late = has_late
        self._expected: Forecast | None = None
        self._late: Forecast | None = None

    def step(self, budget: int) -> bool:
        wanted = (self._supposed.job.job_id,)
        if self._expected is None:
            self._expected = Forecast(self._supposed.forecast_input, wanted)
        if not self._expected.is_over:
            return self._expected.step(budget) and not self.has_late
        if self.entry is None or not self.has_late:
            return True
        if self._late is None:
            self._late = Forecast(self._supposed.forecast_input, wanted, is_pessimistic=True)
        return self._late.step(budget)

    @property
    def entry(self) -> ForecastStart | None:
        """The estimated start and end of the job; None: none so far."""
        return None if self._expected is None else self._expected.starts.get(self._supposed.job.job_id)

    def first_word(self) -> str:
        """The first fact of the answer about a job that will start."""
        supposed = self._supposed.job
        if supposed.dependency is not None:
            return f"it would wait for {format_dependency(supposed.dependency)}"
        plan = None if self._expected is None else self._expected.first_plan
        wait = None if plan is None else plan.waits.get(supposed.job_id)
        if isinstance(wait, OverLimit | OverQuota):
            return f"it would wait: {limits.waits_for(wait)}"
        return "it could be queued"

    def prediction(self, cluster: Cluster) -> Prediction:
        assert self._expected is not None
        supposed = self._supposed.job
        entry = self._expected.starts.get(supposed.job_id)
        if entry is None:
            late_for = too_late(self._expected, supposed.job_id)
            why = late_for or _why_not(cluster, supposed, self._expected.last_plan)
            return Prediction(None, None, False, why)
        promise = promises_of(self._expected.first_plan).get(supposed.job_id)
        late = None if self._late is None else self._late.starts.get(supposed.job_id)
        start_at, p90_at = band(entry, late, promise)
        moved = ForecastStart(start_at, start_at + entry.ends_at - entry.starts_at, entry.nodes)
        return Prediction(moved, p90_at, promise is not None, "")


def _why_not(cluster: Cluster, supposed: Job, plan: Plan | None) -> str:
    if supposed.spec.is_held:
        return "it would be held"
    if plan is None and supposed.dependency is None:
        return "its start is too far ahead to estimate"
    if supposed.dependency is not None:
        return f"it would wait for {format_dependency(supposed.dependency)}"
    return f"it would wait: {explain.never_because(cluster, supposed, plan)}"


class _TestTask:
    def __init__(self, request: ClientRequest, supposed: Supposed, first: str) -> None:
        self.request_id: RequestId | None = request.request_id
        self._request = request
        self._supposed = supposed
        self._first = f"; this is for {first}" if first else ""
        self._trial = _Trial(supposed)

    def step(self, budget: int) -> bool:
        return self._trial.step(budget)

    def finish(self, draft: TurnBuilder) -> None:
        seen = self._trial.prediction(draft.cluster)
        behind = _behind(self._supposed)
        if seen.expected is None:
            _reply(draft, self._request, client.Tested(why=f"{seen.why}{behind}{self._first}"))
            return
        why = f"{self._trial.first_word()}{behind}{_surety(seen)}{self._first}"
        start_at, nodes = seen.expected.starts_at, seen.expected.nodes
        _reply(draft, self._request, client.Tested(start_at=start_at, nodes=nodes, why=why))


def _behind(supposed: Supposed) -> str:
    pending = supposed.forecast_input.snapshot.pending
    ids = [queued_job.job_id for queued_job in pending]
    ahead = ids.index(supposed.job.job_id) if supposed.job.job_id in ids else len(ids)
    return f"; {counted(ahead, 'jobs')} {'waits' if ahead == 1 else 'wait'} before it" if ahead else ""


def _surety(seen: Prediction) -> str:
    """The promised or P90 start in words; empty: it is no later than the estimated start."""
    if seen.expected is None or seen.p90_at is None or seen.p90_at <= seen.expected.starts_at:
        return ""
    at = f"@{{{int(seen.p90_at)}}}"
    return f"; it would start by {at} at the latest" if seen.is_promised else f"; by {at} if other jobs run late"


class _Tried(NamedTuple):
    """A request and its forecasts."""

    variant: Variant
    trial: _Trial


class _WhatIfTask:
    """Forecasts of the request itself, then of alternatives, then pessimistic ones of the alternatives to show."""

    def __init__(
        self,
        draft: TurnBuilder,
        forecasts: ForecastQueue,
        who: Caller,
        request: ClientRequest,
        queue_input: QueueInput,
        fact: event.JobSubmitted,
        asked: _Tried,
    ) -> None:
        self.request_id: RequestId | None = request.request_id
        self._forecasts = forecasts
        self._who = who
        self._request = request
        self._queue_input = queue_input
        self._fact = fact
        self._made_at = draft.now
        self._asked = self._current = asked
        self._known: dict[tuple[object, ...], ForecastStart | None] = {}
        """Estimated starts by what the request changes, see `_key`."""
        self._searches: deque[tuple[Search, Variant]] | None = None
        """Each search with its next request; None: the forecast of the original request is not done yet."""
        self._search: Search | None = None
        """The search whose request is being forecast."""
        self._key: tuple[object, ...] = _key(fact)
        self._sooner: list[_Tried] = []
        self._shown: list[_Tried] | None = None
        self._checked = 0

    def step(self, budget: int) -> bool:
        return self._current.trial.step(budget)

    def finish(self, draft: TurnBuilder) -> None:
        """Record the result of a forecast and begin the next one; answer after the last."""
        if self._shown is None:
            self._note(draft)
            following = self._next_request(draft)
        else:
            following = None
        if following is None:
            following = self._next_shown(draft)
        if following is None:
            self._answer(draft)
            return
        self._current = following
        self._forecasts.resume_with(self)

    def _note(self, draft: TurnBuilder) -> None:
        entry = self._current.trial.entry
        self._known[self._key] = entry
        if self._searches is None:
            self._searches = deque()
            is_now = entry is not None and entry.starts_at <= self._made_at
            spec = self._asked.variant.spec
            started = () if is_now else searches(draft.cluster, draft.policy, spec, self._fact, entry)
            for search in started:
                self._resume(search, None, is_first=True)
            return
        if is_sooner(entry, self._asked.trial.entry):
            self._sooner.append(self._current)
        if self._search is not None:
            self._resume(self._search, entry)

    def _resume(self, search: Search, entry: ForecastStart | None, is_first: bool = False) -> None:
        assert self._searches is not None, "a search continues before the forecast of the original request"
        try:
            variant = next(search) if is_first else search.send(entry)
        except StopIteration:
            return
        self._searches.append((search, variant))

    def _next_request(self, draft: TurnBuilder) -> _Tried | None:
        """The next request to forecast; the searches take turns."""
        while self._searches and not self._is_cut_short(draft):
            search, variant = self._searches.popleft()
            self._checked += 1
            try:
                fact = job.prepare(draft, self._who, self._request, variant.spec).fact
            except Refusal:
                self._resume(search, None)  # not for this user, or never possible here
                continue
            if (key := _key(fact)) in self._known:
                self._resume(search, self._known[key])
                continue
            self._key, self._search = key, search
            return _Tried(variant, _Trial(suppose(draft, self._queue_input, fact), has_late=False))
        return None

    def _is_cut_short(self, draft: TurnBuilder) -> bool:
        is_late = draft.now - self._made_at >= MAX_SEARCH_S
        return is_late or len(self._known) > MAX_REHEARSED or self._checked >= MAX_CHECKED

    def _next_shown(self, draft: TurnBuilder) -> _Tried | None:
        """The next alternative to show that lacks a pessimistic forecast; None: none is left, or no time."""
        if self._shown is None:
            self._shown = worth_showing(self._sooner)
        if draft.now - self._made_at >= MAX_STUDY_S:
            return None
        following = next((tried for tried in self._shown if not tried.trial.has_late), None)
        if following is not None:
            following.trial.has_late = True
        return following

    def _answer(self, draft: TurnBuilder) -> None:
        shown = sorted(self._shown or (), key=lambda tried: _entry(tried)[:2])
        lines = tuple(_line(tried.variant, tried.trial.prediction(draft.cluster)) for tried in (self._asked, *shown))
        is_cut_short = bool(self._searches)
        body = client.Alternatives(alternatives=lines, made_at=self._made_at, is_cut_short=is_cut_short)
        _reply(draft, self._request, body)


def _entry(tried: _Tried) -> ForecastStart:
    entry = tried.trial.entry
    assert entry is not None, f"{tried.variant.options} has no start"
    return entry


def worth_showing(tried: Iterable[_Tried]) -> list[_Tried]:
    """Choose the alternatives to show: the first to start and the first to end.

    A request that a larger one of its family equals is left out.
    """
    families: dict[str, list[_Tried]] = {}
    for candidate in tried:
        families.setdefault(candidate.variant.family or candidate.variant.options, []).append(candidate)
    found = [candidate for family in families.values() for candidate in _of_family(family)]
    by_start = sorted(found, key=lambda candidate: _entry(candidate)[:2])[: MAX_SHOWN - 1]
    first_end = min(found, key=lambda candidate: _entry(candidate).ends_at, default=None)
    return by_start if first_end is None or first_end in by_start else [*by_start, first_end]


def _of_family(family: list[_Tried]) -> list[_Tried]:
    """From the largest request on, those that start sooner than all larger ones; the soonest and the largest first."""
    kept: list[_Tried] = []
    for candidate in sorted(family, key=lambda candidate: (-candidate.variant.size, _entry(candidate).starts_at)):
        if not kept or _entry(candidate).starts_at < _entry(kept[-1]).starts_at:
            kept.append(candidate)
    return kept if len(kept) <= MAX_OF_FAMILY else [*kept[: MAX_OF_FAMILY - 1], kept[-1]]


def _line(variant: Variant, seen: Prediction) -> Alternative:
    if seen.expected is None:
        return Alternative(options=variant.options, what=variant.what, why=seen.why)
    return Alternative(
        options=variant.options,
        what=variant.what,
        start_at=seen.expected.starts_at,
        p90_at=seen.p90_at,
        end_at=seen.expected.ends_at,
        nodes=seen.expected.nodes,
    )


def _reply(draft: TurnBuilder, request: ClientRequest, body: client.ReplyBody) -> None:
    draft.enqueue(Reply(route=request.route, request_id=request.request_id, body=body))
