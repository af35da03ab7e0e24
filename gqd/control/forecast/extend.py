"""``gqctl extend``: more time for a running job, granted if no pending job starts later because of it.  Pure.

The planner itself decides.  First the queue is forecast as if the job ended at its limit, and again as if it ended
later (`DelayTask`): the first `MAX_COUNTED` pending jobs without a promised start must not start later.  Then the
planner makes a plan of the current state, and one as if the job ended later (`PromiseTask`): every promised start of
the first plan must be as early in the second.  The job must not reach into a reservation.  If the extension is refused,
the longest one that would be granted is searched: a start conflicts only with ends after it, so the longest extension
ends at one of the starts, or at another limit.

The forecasts are estimates, and are made once.  The check of promised starts is valid only if nothing has changed since
it began and no pass that assumes the old end is running: a grant waits for the end of a pass, and after a change the
check is repeated.  If changes come all the time, the promised starts of the last plan decide: an extension is too long
if it ends after a promised start on nodes that the job holds.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from dataclasses import replace
from itertools import islice
from math import floor, inf
from typing import TYPE_CHECKING, NamedTuple

from gq.errors import Refusal
from gq.explain import limits
from gq.model.ids import JobId, RequestId
from gq.model.resource import Grant
from gq.units import format_duration, spoken_duration
from gq.wire import client
from gqd.control import job, orders, replies, snapshot
from gqd.control.accounts import association, limit
from gqd.control.forecast.estimate import ForecastQueue, promises_of, queue_input_of
from gqd.control.reservation import overlap
from gqd.sched.forecast import EXACT_PASSES, Forecast
from gqd.sched.planner import Planner
from gqd.sched.snapshot.model import RunningJob, Snapshot
from gqd.state.events import event
from gqd.state.index.deadlines import time_limit_of
from gqd.state.index.usage import MILLION
from gqd.state.input import ClientRequest
from gqd.state.plan import Plan
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_SECONDS = 2**31
MAX_COUNTED = 32
"""Number of pending jobs without a promised start, from the head of the queue, that an extension must not delay."""
MAX_PASSES = 64
"""Passes of the forecast that estimates when these jobs start; a job that it does not reach does not count."""
MOST_TRIES = 4
"""How often the check of promised starts is made before the last plan decides."""
TOLERANCE_S = 1e-6


class Extension(NamedTuple):
    """A requested extension, and the job's limit and end at that time."""

    job_id: JobId
    label: str
    by_s: int
    limit_s: int
    ends_at: float
    """The end at the current time limit."""


class Bound(NamedTuple):
    """A limit: the job may get at most `by_s` seconds more."""

    by_s: int
    why: str


class Promise(NamedTuple):
    """A start that the extension must not delay."""

    at: float
    job_id: JobId
    is_expected: bool = False
    """The start is an estimate for a pending job without a promised start."""


def decide_extend(draft: TurnBuilder, forecasts: ForecastQueue, request: ClientRequest, body: client.ExtendJob) -> None:
    """Queue the check of an extension; the reply, `Extended` or `Refused`, may come later."""
    extension = _checked_extension(draft, job.running(draft, body.job_id, body.task), body.by_s)
    forecasts.add(draft, ExtendTask(forecasts, request, extension))


def _checked_extension(draft: TurnBuilder, target: Job, by_s: int) -> Extension:
    if not 0 < by_s <= MAX_SECONDS:
        raise Refusal("bad_number", f"{by_s} s is not an extension", "for example `gqctl extend 12 +2h`")
    attempt = draft.cluster.attempts[target.attempt_id]
    limit_s = time_limit_of(target, attempt)
    if limit_s is None or target.time_limit_s is None:
        raise Refusal("no_time_limit", f"job {target.label} has no time limit to extend")
    if attempt.suspended_at is not None:
        raise Refusal("suspended", f"job {target.label} is suspended, and so is its time limit")
    if attempt.preemption is not None:
        message = f"job {target.label} is being preempted: a longer time limit would not keep it running"
        raise Refusal("gives_way", message, "gqwhy names the preemptor")
    assert attempt.start_at is not None, f"job {target.label} runs and has not started"
    return Extension(target.job_id, target.label, by_s, limit_s, attempt.start_at + limit_s + attempt.suspended_s)


# ── limits other than pending jobs ────────────────────────────────────────────────────────────────────────────────


def extension_limits(draft: TurnBuilder, target: Job, extension: Extension) -> Iterator[Bound]:
    """The limits of an extension: maximum run times, the deadline, reservations, GPU-hour budgets."""
    attempt = draft.cluster.attempts[target.attempt_id]
    for max_s, why in _max_run_times(draft, target):
        yield Bound(max_s - (target.time_limit_s or 0), why)
    if target.spec.deadline_at is not None:
        yield Bound(floor(target.spec.deadline_at - extension.ends_at), "its deadline is then")
    reached = overlap.first_bound(draft, attempt)
    if reached is not None:
        yield Bound(floor(reached.at - extension.ends_at), reached.why)
    yield from _budget_limits(draft, target, attempt, extension)


def _max_run_times(draft: TurnBuilder, target: Job) -> Iterator[tuple[int, str]]:
    partition = draft.policy.partition(target.partition)
    if partition is not None and partition.max_time_s is not None:
        yield partition.max_time_s, f"jobs of partition `{partition.name}` {_may_run(partition.max_time_s)}"
    qos = association.qos_named(draft.cluster, target.qos)
    if qos is not None and qos.max_time_s is not None:
        yield qos.max_time_s, f"jobs of QOS `{qos.name}` {_may_run(qos.max_time_s)}"
    for time_limit in limit.limits_of_job(draft.cluster, target):
        if time_limit.resource == "time":
            yield int(time_limit.most), f"jobs of {limits.whose(time_limit)} {_may_run(time_limit.most)}"


def _may_run(most_s: float) -> str:
    return f"may run {spoken_duration(most_s)} at most"


def _budget_limits(draft: TurnBuilder, target: Job, attempt: Attempt, extension: Extension) -> Iterator[Bound]:
    """The limits by GPU-hours; what is left of a budget counts until its period ends."""
    if not attempt.billing:
        return
    for budget in limit.budgets_of_job(draft, target):
        left_s = floor(max(0.0, budget.left_hours) * limit.HOUR_S * MILLION / attempt.billing)
        if extension.ends_at + left_s < budget.until:
            why = f"{budget.whose} has {limits.amount(budget.resource, max(0.0, budget.left_hours))} left"
            yield Bound(left_s, why)


# ── which start it would delay ────────────────────────────────────────────────────────────────────────────────────


def promises(plan: Plan, view: Snapshot) -> dict[JobId, float]:
    """The latest starts that the plan guarantees, by job; a job that starts in this plan counts as of `view.now`."""
    starts = {start.job_id: start.starts_at for start in plan.protected if start.is_promise}
    before = {start.job_id for start in view.protected if start.is_promise}
    starts.update((job_id, view.now) for job_id in before & plan.starting)
    return starts


def first_delayed(before: dict[JobId, float], plan: Plan, made_at: float) -> Promise | None:
    """The earliest of the promised starts `before` that `plan` does not keep; None: it keeps all of them."""
    after = {one.job_id: one.starts_at for one in plan.protected if one.is_promise}
    after.update((job_id, made_at) for job_id in plan.starting)
    late = [Promise(at, job_id) for job_id, at in before.items() if after.get(job_id, inf) > at + TOLERANCE_S]
    return min(late, default=None)


class ExtendTask:
    """A request that waits for its turn; only then is the input of the forecast made from the cluster."""

    def __init__(self, forecasts: ForecastQueue, request: ClientRequest, extension: Extension) -> None:
        self.request_id: RequestId | None = request.request_id
        self._forecasts = forecasts
        self._request = request
        self._extension = extension

    def step(self, budget: int) -> bool:
        """Nothing to do: `finish` begins the forecasts."""
        return True

    def finish(self, draft: TurnBuilder) -> None:
        try:
            extension = _checked_extension(draft, job.running(draft, self._extension.job_id), self._extension.by_s)
        except Refusal as refusal:
            _refuse(draft, self._request, refusal)
        else:
            self._forecasts.resume_with(DelayTask(draft, self._forecasts, self._request, extension))


class DelayTask:
    """Forecasts of the queue: whether the extension delays a pending job without a promised start.

    At most 1 + log2(`MAX_COUNTED`) extensions are tried, the longest first.
    """

    def __init__(
        self, draft: TurnBuilder, forecasts: ForecastQueue, request: ClientRequest, extension: Extension
    ) -> None:
        self.request_id: RequestId | None = request.request_id
        self._forecasts = forecasts
        self._request = request
        self._extension = extension
        self._most_s = min(extension.by_s, bound_of(draft, extension).by_s)
        self._forecast_input = queue_input_of(draft.cluster, draft.policy, draft.volatile, draft.now).forecast_input
        pending = [job.job_id for job in islice(self._forecast_input.snapshot.pending, MAX_COUNTED)]
        self._before: dict[JobId, float] = {}
        """Estimated starts if the job ends at its limit."""
        self._starts: set[float] = set()
        """Estimated starts of all jobs: between two of them nothing changes."""
        self._search = self._lengths()
        self._rehearsal = self._rehearsed(0, pending, MAX_PASSES)
        self._is_baseline = True
        self._found_s = self._most_s
        self._obstacle: Promise | None = None

    def step(self, budget: int) -> bool:
        if self._most_s <= 0:
            return True
        if not self._rehearsal.step(budget):
            return False
        try:
            if self._is_baseline:
                self._see_baseline()
                by_s = next(self._search)
            else:
                by_s = self._search.send(self._first_delayed())
        except StopIteration as end:
            self._found_s = end.value
            return True
        self._rehearsal = self._rehearsed(by_s, self._before, EXACT_PASSES)
        return False

    def finish(self, draft: TurnBuilder) -> None:
        why = "" if self._obstacle is None else _delay_reason(draft, self._obstacle)
        known = Bound(self._extension.by_s if self._obstacle is None else self._found_s, why)
        try:
            extension = _checked_extension(draft, job.running(draft, self._extension.job_id), self._extension.by_s)
        except Refusal as refusal:
            _refuse(draft, self._request, refusal)
        else:
            self._forecasts.resume_with(PromiseTask(draft, self._forecasts, self._request, extension, known))

    def _rehearsed(self, by_s: int, wanted: Collection[JobId], max_passes: int) -> Forecast:
        view = _as_if_limited(self._forecast_input.snapshot, self._extension, self._extension.limit_s + by_s)
        return Forecast(replace(self._forecast_input, snapshot=view), wanted, max_passes=max_passes)

    def _see_baseline(self) -> None:
        self._is_baseline = False
        promised = promises_of(self._rehearsal.first_plan)
        counted = [job.job_id for job in islice(self._forecast_input.snapshot.pending, MAX_COUNTED)]
        starts = self._rehearsal.starts
        self._starts = {entry.starts_at for entry in starts.values()}
        self._before = {
            job_id: starts[job_id].starts_at for job_id in counted if job_id in starts and job_id not in promised
        }

    def _first_delayed(self) -> Promise | None:
        after = self._rehearsal.starts
        late = [
            Promise(at, job_id, is_expected=True)
            for job_id, at in self._before.items()
            if job_id not in after or after[job_id].starts_at > at + TOLERANCE_S
        ]
        return min(late, default=None)

    def _lengths(self) -> Generator[int, Promise | None, int]:
        """Yield extensions (s) to try, and be sent the start that each delays.  Return the longest without delay."""
        if not self._before:
            return self._most_s
        shorter = {floor(at - self._extension.ends_at) for at in self._starts}
        lengths = sorted(by_s for by_s in shorter if 0 < by_s < self._most_s)
        self._obstacle = yield self._most_s
        if self._obstacle is None:
            return self._most_s
        low, high = 0, len(lengths)
        while low < high:
            middle = (low + high) // 2
            if (yield lengths[middle]) is None:
                low = middle + 1
            else:
                high = middle
        return lengths[low - 1] if low else 0


class PromiseTask:
    """A plan of the current state, then one for each extension that is tried: the requested one, then shorter ones."""

    def __init__(
        self,
        draft: TurnBuilder,
        forecasts: ForecastQueue,
        request: ClientRequest,
        extension: Extension,
        known: Bound,
        tries: int = 1,
    ) -> None:
        self.request_id: RequestId | None = request.request_id
        self._forecasts = forecasts
        self._request = request
        self._extension = extension
        self._tries = tries
        self._volatile = draft.volatile
        self._changes = draft.volatile.changes
        self._known = known
        """The longest extension that delays no job without a promised start."""
        self._bound = min(known, bound_of(draft, extension))
        self._view = snapshot.take(draft.cluster, draft.policy, draft.volatile, draft.now)
        self._planner = Planner()
        self._planner.begin(self._view)
        self._promises: dict[JobId, float] | None = None
        self._trials: list[int] = []
        """Extensions still to try, the longest last."""
        self._obstacle: Promise | None = None
        self._granted_s = 0
        """The longest extension found that delays no job."""

    def step(self, budget: int) -> bool:
        if self._planner.is_busy:
            if (plan := self._planner.step(budget)) is not None:
                self._see(plan)
            return False
        return not self._volatile.is_planning

    def _see(self, plan: Plan) -> None:
        if self._promises is None:
            self._promises = promises(plan, self._view)
            self._trials = [by_s] if (by_s := min(self._extension.by_s, self._bound.by_s)) > 0 else []
        else:
            self._see_trial(self._promises, self._trials.pop(), plan)
        if self._trials:
            limit_s = self._extension.limit_s + self._trials[-1]
            self._planner.begin(_as_if_limited(self._view, self._extension, limit_s))

    def _see_trial(self, before: dict[JobId, float], by_s: int, plan: Plan) -> None:
        delayed = first_delayed(before, plan, self._view.now)
        if delayed is None:
            self._granted_s, self._trials = by_s, []
        elif self._obstacle is None:
            self._obstacle = delayed
            shorter = {floor(at - self._extension.ends_at) for at in before.values()}
            self._trials = sorted(length_s for length_s in shorter if 0 < length_s < by_s)

    def finish(self, draft: TurnBuilder) -> None:
        try:
            answer = self._answer(draft)
        except Refusal as refusal:
            _refuse(draft, self._request, refusal)
            return
        if answer is not None:
            replies.remember(draft, self._request, answer)
            replies.send(draft, self._request, answer)

    def _answer(self, draft: TurnBuilder) -> client.Extended | None:
        """The answer; None: the check is repeated, since something has changed.  `Refusal` if it is not granted."""
        target = job.running(draft, self._extension.job_id)
        if draft.volatile.changes == self._changes:
            return _granted(draft, target, self._extension, self._granted_s, self._why_not(draft))
        extension = _checked_extension(draft, target, self._extension.by_s)
        if self._tries < MOST_TRIES:
            self._forecasts.resume_with(
                PromiseTask(draft, self._forecasts, self._request, extension, self._known, self._tries + 1)
            )
            return None
        return _check_last_plan(draft, target, extension, self._known)

    def _why_not(self, draft: TurnBuilder) -> str:
        return self._bound.why if self._obstacle is None else _delay_reason(draft, self._obstacle)


def _refuse(draft: TurnBuilder, request: ClientRequest, refusal: Refusal) -> None:
    refused = replies.refused(refusal)
    replies.record(draft, request, refused)
    replies.send(draft, request, refused)


def bound_of(draft: TurnBuilder, extension: Extension) -> Bound:
    """The lowest of the limits."""
    return min(
        extension_limits(draft, draft.cluster.jobs[extension.job_id], extension), default=Bound(extension.by_s, "")
    )


def _as_if_limited(view: Snapshot, extension: Extension, limit_s: int) -> Snapshot:
    ends_at = extension.ends_at + limit_s - extension.limit_s
    is_exact = view.policy.scheduling.expect == "exact"
    return replace(
        view, running=tuple(_as_if(running, extension.job_id, ends_at, limit_s, is_exact) for running in view.running)
    )


def _as_if(running: RunningJob, job_id: JobId, ends_at: float, limit_s: int, is_exact: bool) -> RunningJob:
    if (
        running.job_id != job_id or running.is_part or running.ends_at is None
    ):  # no end: a part of an earlier attempt on a lost node
        return running
    return replace(running, ends_at=ends_at, expected_s=running.expected_s if is_exact else float(limit_s))


def _delay_reason(draft: TurnBuilder, promise: Promise) -> str:
    delayed_job = draft.cluster.jobs.get(promise.job_id)
    if delayed_job is None:
        return f"job {promise.job_id} would start later"
    clause = "is expected to start at" if promise.is_expected else "was promised a start by"
    return f"job {delayed_job.label} of {delayed_job.user}, which {clause} @{{{int(promise.at)}}}, would start later"


# ── when the state changes all the time ───────────────────────────────────────────────────────────────────────────


def _check_last_plan(draft: TurnBuilder, target: Job, extension: Extension, known: Bound) -> client.Extended:
    """Decide by the last plan: what it keeps for promised starts must be free again at those starts."""
    bound = min(known, bound_of(draft, extension))
    plan = draft.volatile.plan
    grants = tuple(part.grant for part in draft.cluster.attempts[target.attempt_id].parts.values())
    promised = () if plan is None else (start for start in plan.protected if start.is_promise)
    near = (Promise(start.starts_at, start.job_id) for start in promised if _may_meet(start.grants, grants))
    first = min((start for start in near if start.job_id in draft.cluster.jobs), default=None)
    if first is not None:
        bound = min(bound, Bound(max(0, floor(first.at - extension.ends_at)), _delay_reason(draft, first)))
    return _granted(draft, target, extension, max(0, min(extension.by_s, bound.by_s)), bound.why)


def _may_meet(kept: tuple[Grant, ...], held: tuple[Grant, ...]) -> bool:
    """Whether both sets of grants use the same node or the same licence."""
    nodes = {grant.node for grant in held}
    licenses = {license.name for grant in held for license in grant.licenses}
    return any(grant.node in nodes or any(license.name in licenses for license in grant.licenses) for grant in kept)


# ── the answer ────────────────────────────────────────────────────────────────────────────────────────────────────


def _granted(draft: TurnBuilder, target: Job, extension: Extension, max_s: int, why_not: str) -> client.Extended:
    if max_s < extension.by_s:
        word = spoken_duration(extension.by_s)
        hint = (
            f"at most +{format_duration(max_s)} would be granted now"
            if max_s > 0
            else "no extension would be granted now"
        )
        raise Refusal("not_extended", f"job {extension.label} cannot be extended by {word}: {why_not}", hint)
    fact = _updated(draft, target, extension.by_s)
    draft.emit(fact)
    for node in draft.cluster.attempts[target.attempt_id].parts:
        orders.send_time_limit(draft, target, node)
    return client.Extended(
        job_id=target.job_id,
        time_limit_s=extension.limit_s + extension.by_s,
        end_at=extension.ends_at + extension.by_s,
    )


def _updated(draft: TurnBuilder, target: Job, by_s: int) -> event.JobUpdated:
    """The event that extends the time limit; the new limit is also the expected run time."""
    limit_s = (target.time_limit_s or 0) + by_s
    return event.JobUpdated(
        at=draft.now,
        job_id=target.job_id,
        spec=target.spec,
        partition=target.partition,
        time_limit_s=limit_s,
        requeue=target.requeue,
        account=target.account,
        qos=target.qos,
        expected_s=target.expected_s if draft.policy.scheduling.expect == "exact" else float(limit_s),
    )
