"""What a job that is not queued would get: ``gqsub --test-only``, and what could be asked for instead.  Pure.

The job is put into the queue that is rehearsed, at the place that it would have, and the queue is rehearsed until it
starts; nothing of the cluster changes.  Alternatives are checked like submissions by this user, so that only what they
may ask for is offered, and only what starts sooner is shown.

A study is bounded: `MAX_REHEARSED` requests and `MAX_CHECKED` checks, and none begins after `MAX_SEARCH_S`.  Like every
study it goes on in slices between which requests are handled and jobs are started.
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
from gq.wire import client
from gqd.control import job, snapshot
from gqd.control.access import Caller
from gqd.control.apply.job import job_of
from gqd.control.explain import explain, limits
from gqd.control.forecast.alternatives import Search, Variant, is_sooner, searches
from gqd.control.forecast.estimate import Desk, Setting, band, deadlines_of, gate_of, promises_of, setting_of, too_late
from gqd.sched.forecast import DeferredJob, Forecast, ForecastInput, ForecastStart
from gqd.sched.limits.ledger import NO_LIMITS
from gqd.sched.priority.factors import rank
from gqd.sched.priority.order import order_of
from gqd.sched.reasons.unschedulable import counted
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
"""After so long nothing more is rehearsed: alternatives are shown without a P90."""
MAX_SHOWN = 10
MAX_OF_FAMILY = 3
"""Alternatives of one family (numbers of GPUs, time limits …) that are shown."""


class Supposed(NamedTuple):
    """A job as if it had been queued."""

    job: Job
    scene: ForecastInput


class Prediction(NamedTuple):
    expected: ForecastStart | None
    p90_at: float | None
    is_promised: bool
    why: str
    """Where there is no start."""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_test(draft: TurnBuilder, desk: Desk, who: Caller, request: ClientRequest, body: client.Submit) -> None:
    """When and where it would start.  → `Tested`, now or later; `Refusal` if it could not be queued"""
    setting = setting_of(draft.cluster, draft.policy, draft.volatile, draft.now)
    supposed = suppose(draft, setting, job.prepare(draft, who, request, body.spec).fact)
    desk.add(draft, _TestStudy(request, supposed, first_of(body.spec)))


def decide_what_if(draft: TurnBuilder, desk: Desk, who: Caller, request: ClientRequest, body: client.WhatIf) -> None:
    """→ `Alternatives`, now or later; `Refusal` if not even what was asked could be queued"""
    setting = setting_of(draft.cluster, draft.policy, draft.volatile, draft.now)
    asked = job.prepare(draft, who, request, body.spec).fact
    first = first_of(body.spec)
    what = f"as asked; all times are those of {first}" if first else "as asked"
    trial = _Trial(suppose(draft, setting, asked))
    desk.add(
        draft, _WhatIfStudy(draft, desk, who, request, setting, asked, _Tried(Variant("", what, body.spec), trial))
    )


def first_of(spec: JobSpec) -> str:
    """Of an array: what is rehearsed of it; '': it is none."""
    count = parse_tasks(spec.array).bit_count() if spec.array else 1
    return "" if count == 1 else f"the first of its {count} tasks"


def _key(fact: event.JobSubmitted) -> tuple[object, ...]:
    return fact.spec.resources, fact.partition, fact.qos, fact.time_limit_s, fact.spec.reservation


# ── a job that is not there ───────────────────────────────────────────────────────────────────────────────────


def suppose(draft: TurnBuilder, setting: Setting, fact: event.JobSubmitted) -> Supposed:
    """The scene with this job in its place."""
    cluster, policy = draft.cluster, draft.policy
    supposed = _job_of(fact)
    scene = setting.scene
    if fact.spec.is_held or fact.never:
        return Supposed(supposed, scene)
    alone = _alone(cluster, supposed)
    ahead = _ahead_of(alone, policy, setting, supposed, draft.now)
    scene = replace(
        scene,
        bands={**scene.bands, supposed.job_id: _band_of(alone, policy, draft.now)},
        deadlines={**scene.deadlines, **deadlines_of([supposed])},
    )
    pending = snapshot.pending_job(supposed, policy)
    if supposed.dependency is not None or (fact.spec.begin_at or 0.0) > draft.now:
        gate = gate_of(cluster, policy, supposed, ahead, draft.now)
        return Supposed(supposed, scene if gate is None else replace(scene, gates=(*scene.gates, gate)))
    view = scene.snapshot
    queue = (*view.pending[:ahead], pending, *view.pending[ahead:])
    gates = tuple(_moved(gate, ahead) for gate in scene.gates)
    return Supposed(supposed, replace(scene, snapshot=replace(view, pending=queue, columns=None), gates=gates))


def _moved(gate: DeferredJob, ahead: int) -> DeferredJob:
    return replace(gate, ahead=gate.ahead + 1) if gate.ahead > ahead else gate


def _job_of(fact: event.JobSubmitted) -> Job:
    """Of an array one task; it ages at once."""
    supposed = job_of(msgspec.structs.replace(fact, spec=msgspec.structs.replace(fact.spec, array="")))
    supposed.accrue_at = supposed.eligible_at
    return supposed


def _ahead_of(alone: Cluster, policy: Policy, setting: Setting, supposed: Job, now: float) -> int:
    """How many of those that are rehearsed stand before it."""
    pending = setting.scene.snapshot.pending
    order = policy.scheduling.order
    if order == "arrival" or not pending:
        return len(pending)
    if order == "shortest":
        own = _length(supposed.expected_s)
        return bisect_right([_length(one.expected_s) for one in pending], own)
    return bisect_right(setting.behind, -priority_of(alone, policy, now))


def _length(expected_s: float | None) -> float:
    return float("inf") if expected_s is None else expected_s


def priority_of(alone: Cluster, policy: Policy, now: float) -> int:
    """The priority that the only job in this queue would have."""
    return int(rank(alone, policy, now).priority[0])


def _band_of(alone: Cluster, policy: Policy, now: float) -> int:
    band = order_of(alone, policy, now, NO_LIMITS).band
    return int(band[0]) if len(band) else 0


def _alone(cluster: Cluster, supposed: Job) -> Cluster:
    """The same cluster, but that only this job waits there."""
    alone = copy(cluster)
    alone.queue = PendingQueue.of([supposed])
    return alone


# ── studies ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Trial:
    """Rehearsals until one job starts: as expected, then, where `has_late`, late."""

    def __init__(self, supposed: Supposed, has_late: bool = True) -> None:
        self._supposed = supposed
        self.has_late = has_late
        self._expected: Forecast | None = None
        self._late: Forecast | None = None

    def step(self, budget: int) -> bool:
        wanted = (self._supposed.job.job_id,)
        if self._expected is None:
            self._expected = Forecast(self._supposed.scene, wanted)
        if not self._expected.is_over:
            return self._expected.step(budget) and not self.has_late
        if self.entry is None or not self.has_late:
            return True
        if self._late is None:
            self._late = Forecast(self._supposed.scene, wanted, is_pessimistic=True)
        return self._late.step(budget)

    @property
    def entry(self) -> ForecastStart | None:
        """When the job is expected to start, and to end."""
        return None if self._expected is None else self._expected.starts.get(self._supposed.job.job_id)

    def first_word(self) -> str:
        """What is to be said first of a job that will start."""
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
        return "when it would start is too far ahead to be known"
    if supposed.dependency is not None:
        return f"it would wait for {format_dependency(supposed.dependency)}"
    return f"it would wait: {explain.never_because(cluster, supposed, plan)}"


class _TestStudy:
    def __init__(self, request: ClientRequest, supposed: Supposed, first: str) -> None:
        self.request_id: RequestId | None = request.request_id
        self._request = request
        self._supposed = supposed
        self._first = f"; this is of {first}" if first else ""
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
    pending = supposed.scene.snapshot.pending
    ids = [one.job_id for one in pending]
    ahead = ids.index(supposed.job.job_id) if supposed.job.job_id in ids else len(ids)
    return f"; {counted(ahead, 'jobs')} {'waits' if ahead == 1 else 'wait'} before it" if ahead else ""


def _surety(seen: Prediction) -> str:
    """How sure that start is, where it is not now."""
    if seen.expected is None or seen.p90_at is None or seen.p90_at <= seen.expected.starts_at:
        return ""
    at = f"@{{{int(seen.p90_at)}}}"
    return f"; it would start by {at} at the latest" if seen.is_promised else f"; by {at} if others run late"


class _Tried(NamedTuple):
    """A request, and what was rehearsed of it."""

    variant: Variant
    trial: _Trial


class _WhatIfStudy:
    """The request as asked, then one search step after the other, then late rehearsals of what is to be shown."""

    def __init__(
        self,
        draft: TurnBuilder,
        desk: Desk,
        who: Caller,
        request: ClientRequest,
        setting: Setting,
        fact: event.JobSubmitted,
        asked: _Tried,
    ) -> None:
        self.request_id: RequestId | None = request.request_id
        self._desk = desk
        self._who = who
        self._request = request
        self._setting = setting
        self._fact = fact
        self._made_at = draft.now
        self._asked = self._current = asked
        self._known: dict[tuple[object, ...], ForecastStart | None] = {}
        """Results of rehearsals by what the request changes."""
        self._searches: deque[tuple[Search, Variant]] | None = None
        """Each with its next request; None: the request as asked has not been rehearsed yet."""
        self._search: Search | None = None
        """The search whose request is being rehearsed."""
        self._key: tuple[object, ...] = _key(fact)
        self._sooner: list[_Tried] = []
        self._shown: list[_Tried] | None = None
        self._checked = 0

    def step(self, budget: int) -> bool:
        return self._current.trial.step(budget)

    def finish(self, draft: TurnBuilder) -> None:
        """A rehearsal is over: note what it said, and go on with the next one."""
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
        self._desk.go_on(self)

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
        assert self._searches is not None, "a search goes on before the request as asked has been rehearsed"
        try:
            variant = next(search) if is_first else search.send(entry)
        except StopIteration:
            return
        self._searches.append((search, variant))

    def _next_request(self, draft: TurnBuilder) -> _Tried | None:
        """The next request that is to be rehearsed; the searches take turns."""
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
            return _Tried(variant, _Trial(suppose(draft, self._setting, fact), has_late=False))
        return None

    def _is_cut_short(self, draft: TurnBuilder) -> bool:
        is_late = draft.now - self._made_at >= MAX_SEARCH_S
        return is_late or len(self._known) > MAX_REHEARSED or self._checked >= MAX_CHECKED

    def _next_shown(self, draft: TurnBuilder) -> _Tried | None:
        """Rehearse an alternative that is to be shown once more, as if other jobs ran late, while there is time."""
        if self._shown is None:
            self._shown = worth_showing(self._sooner)
        if draft.now - self._made_at >= MAX_STUDY_S:
            return None
        following = next((one for one in self._shown if not one.trial.has_late), None)
        if following is not None:
            following.trial.has_late = True
        return following

    def _answer(self, draft: TurnBuilder) -> None:
        shown = sorted(self._shown or (), key=lambda one: _entry(one)[:2])
        lines = tuple(_line(one.variant, one.trial.prediction(draft.cluster)) for one in (self._asked, *shown))
        is_cut_short = bool(self._searches)
        body = client.Alternatives(alternatives=lines, made_at=self._made_at, is_cut_short=is_cut_short)
        _reply(draft, self._request, body)


def _entry(tried: _Tried) -> ForecastStart:
    entry = tried.trial.entry
    assert entry is not None, f"{tried.variant.options} starts at no time"
    return entry


def worth_showing(tried: Iterable[_Tried]) -> list[_Tried]:
    """Choose the alternatives to show: the first to start and the first to end.

    A request that a larger one of its family equals is left out.
    """
    families: dict[str, list[_Tried]] = {}
    for one in tried:
        families.setdefault(one.variant.family or one.variant.options, []).append(one)
    found = [one for family in families.values() for one in _of_family(family)]
    by_start = sorted(found, key=lambda one: _entry(one)[:2])[: MAX_SHOWN - 1]
    first_end = min(found, key=lambda one: _entry(one).ends_at, default=None)
    return by_start if first_end is None or first_end in by_start else [*by_start, first_end]


def _of_family(family: list[_Tried]) -> list[_Tried]:
    """From the largest request on, those that start sooner than all larger ones; the soonest and the largest first."""
    kept: list[_Tried] = []
    for one in sorted(family, key=lambda one: (-one.variant.size, _entry(one).starts_at)):
        if not kept or _entry(one).starts_at < _entry(kept[-1]).starts_at:
            kept.append(one)
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
