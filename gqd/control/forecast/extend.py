"""``gqctl extend``: more time for a running job, where no waiting job starts later for it.  Pure.

The planner itself decides.  First the queue is rehearsed as if the job ended at its limit, and again as if it ended
later (`QueueStudy`): the first `MAX_COUNTED` waiting jobs without a promised start must not start later.  Then the
planner plans as things stand, and once more as if the job ended later (`ExtendStudy`): every promised start of the
first plan must be as early in the second.  Nothing that is reserved may be reached.  Otherwise the longest extension
that would be granted is looked for: a start only stands in the way of ends that are after it, so that extension ends
with one of the starts, or with what else bounds it.

The rehearsals are estimates, and are made once.  The study of promises is only worth something if nothing has happened
since it began and no plan is being made of ends as they were: a grant waits for the end of a pass, and after a change
the promises are studied anew.  Where changes come all the time, the promises as the last plan has them decide in the
end: an end is too late if it is after one whose nodes the job holds.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from dataclasses import replace
from itertools import islice
from math import floor, inf
from typing import TYPE_CHECKING, NamedTuple

from gq.errors import Refusal
from gq.model.ids import JobId, RequestId
from gq.model.resource import Grant
from gq.units import format_duration, spoken_duration
from gq.wire import client
from gqd.control import job, orders, replies, snapshot
from gqd.control.accounts import association, limit
from gqd.control.explain import limits
from gqd.control.forecast.estimate import Desk, promises_of, setting_of
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
"""Waiting jobs without a promise, the first in the queue, that an extension must not put off."""
MAX_PASSES = 64
"""Passes of the rehearsal that says when these jobs start; a job that it does not reach does not count."""
MOST_TRIES = 4
"""So often a study is begun anew since something has happened meanwhile."""
TOLERANCE_S = 1e-6


class Asked(NamedTuple):
    """An extension that is asked for, and what things were then."""

    job_id: JobId
    label: str
    by_s: int
    limit_s: int
    ends_at: float
    """As things are."""


class Bound(NamedTuple):
    """The job may have so many seconds more at most."""

    by_s: int
    why: str


class Promise(NamedTuple):
    """A start that may not be put off."""

    at: float
    job_id: JobId
    is_expected: bool = False
    """The job waits without a promise: this is when it is expected to start."""


def decide_extend(draft: TurnBuilder, desk: Desk, request: ClientRequest, body: client.ExtendJob) -> None:
    """→ `Extended`, now or later"""
    asked = _asked(draft, job.running(draft, body.job_id, body.task), body.by_s)
    desk.add(draft, ExtendRequest(desk, request, asked))


def _asked(draft: TurnBuilder, one: Job, by_s: int) -> Asked:
    if not 0 < by_s <= MAX_SECONDS:
        raise Refusal("bad_number", f"{by_s} s is no extension", "for example `gqctl extend 12 +2h`")
    current = draft.cluster.attempts[one.attempt_id]
    limit_s = time_limit_of(one, current)
    if limit_s is None or one.time_limit_s is None:
        raise Refusal("no_time_limit", f"job {one.label} has no time limit that could be extended")
    if current.suspended_at is not None:
        raise Refusal("suspended", f"job {one.label} is suspended, and its time limit stands still with it")
    if current.preemption is not None:
        message = f"job {one.label} gives way to another job: no time limit keeps it"
        raise Refusal("gives_way", message, "gqwhy says to whom")
    assert current.start_at is not None, f"job {one.label} runs and has not started"
    return Asked(one.job_id, one.label, by_s, limit_s, current.start_at + limit_s + current.suspended_s)


# ── what bounds it besides other jobs ─────────────────────────────────────────────────────────────────────────


def bounds(draft: TurnBuilder, one: Job, asked: Asked) -> Iterator[Bound]:
    """What says how long a job may run at all, and what is reserved."""
    current = draft.cluster.attempts[one.attempt_id]
    for most_s, why in _longest(draft, one):
        yield Bound(most_s - (one.time_limit_s or 0), why)
    if one.spec.deadline_at is not None:
        yield Bound(floor(one.spec.deadline_at - asked.ends_at), "its deadline is then")
    reached = overlap.first_bound(draft, current)
    if reached is not None:
        yield Bound(floor(reached.at - asked.ends_at), reached.why)
    yield from _of_budgets(draft, one, current, asked)


def _longest(draft: TurnBuilder, one: Job) -> Iterator[tuple[int, str]]:
    partition = draft.policy.partition(one.partition)
    if partition is not None and partition.max_time_s is not None:
        yield partition.max_time_s, f"jobs of partition `{partition.name}` {_may_run(partition.max_time_s)}"
    qos = association.qos_named(draft.cluster, one.qos)
    if qos is not None and qos.max_time_s is not None:
        yield qos.max_time_s, f"jobs of QOS `{qos.name}` {_may_run(qos.max_time_s)}"
    for each in limit.limits_of_job(draft.cluster, one):
        if each.resource == "time":
            yield int(each.most), f"jobs of {limits.whose(each)} {_may_run(each.most)}"


def _may_run(most_s: float) -> str:
    return f"may run {spoken_duration(most_s)} at most"


def _of_budgets(draft: TurnBuilder, one: Job, current: Attempt, asked: Asked) -> Iterator[Bound]:
    """What is left of them counts until they are new."""
    if not current.billing:
        return
    for budget in limit.budgets_of_job(draft, one):
        left_s = floor(max(0.0, budget.left_hours) * limit.HOUR_S * MILLION / current.billing)
        if asked.ends_at + left_s < budget.until:
            why = f"{budget.whose} has {limits.amount(budget.resource, max(0.0, budget.left_hours))} left"
            yield Bound(left_s, why)


# ── whose start it would put off ──────────────────────────────────────────────────────────────────────────────


def promises(plan: Plan, view: Snapshot) -> dict[JobId, float]:
    """When those start at the latest to whom it is promised; those start now who were promised a start before."""
    starts = {one.job_id: one.starts_at for one in plan.protected if one.is_promise}
    before = {one.job_id for one in view.protected if one.is_promise}
    starts.update((job_id, view.now) for job_id in before & plan.starting)
    return starts


def first_put_off(before: dict[JobId, float], plan: Plan, made_at: float) -> Promise | None:
    """The first of these promises that this plan does not keep."""
    after = {one.job_id: one.starts_at for one in plan.protected if one.is_promise}
    after.update((job_id, made_at) for job_id in plan.starting)
    late = [Promise(at, job_id) for job_id, at in before.items() if after.get(job_id, inf) > at + TOLERANCE_S]
    return min(late, default=None)


class ExtendRequest:
    """Until its turn comes: only then is the whole cluster looked at for it, as it is then."""

    def __init__(self, desk: Desk, request: ClientRequest, asked: Asked) -> None:
        self.request_id: RequestId | None = request.request_id
        self._desk = desk
        self._request = request
        self._asked = asked

    def step(self, budget: int) -> bool:
        """There is nothing to do yet."""
        return True

    def finish(self, draft: TurnBuilder) -> None:
        try:
            asked = _asked(draft, job.running(draft, self._asked.job_id), self._asked.by_s)
        except Refusal as refusal:
            _refuse(draft, self._request, refusal)
        else:
            self._desk.go_on(QueueStudy(draft, self._desk, self._request, asked))


class QueueStudy:
    """Rehearsals of the queue: whether the extension moves the expected start of a job that waits without a promise.

    At most 1 + log2(`MAX_COUNTED`) extensions are tried, the longest first.
    """

    def __init__(self, draft: TurnBuilder, desk: Desk, request: ClientRequest, asked: Asked) -> None:
        self.request_id: RequestId | None = request.request_id
        self._desk = desk
        self._request = request
        self._asked = asked
        self._most_s = min(asked.by_s, bound_of(draft, asked).by_s)
        self._scene = setting_of(draft.cluster, draft.policy, draft.volatile, draft.now).scene
        pending = [job.job_id for job in islice(self._scene.snapshot.pending, MAX_COUNTED)]
        self._before: dict[JobId, float] = {}
        """Expected starts if the job ends at its limit."""
        self._starts: set[float] = set()
        """Expected starts of all jobs: between two of them nothing else changes."""
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
                by_s = self._search.send(self._first_put_off())
        except StopIteration as end:
            self._found_s = end.value
            return True
        self._rehearsal = self._rehearsed(by_s, self._before, EXACT_PASSES)
        return False

    def finish(self, draft: TurnBuilder) -> None:
        why = "" if self._obstacle is None else _put_off(draft, self._obstacle)
        known = Bound(self._asked.by_s if self._obstacle is None else self._found_s, why)
        try:
            asked = _asked(draft, job.running(draft, self._asked.job_id), self._asked.by_s)
        except Refusal as refusal:
            _refuse(draft, self._request, refusal)
        else:
            self._desk.go_on(ExtendStudy(draft, self._desk, self._request, asked, known))

    def _rehearsed(self, by_s: int, wanted: Collection[JobId], max_passes: int) -> Forecast:
        view = _as_if_limited(self._scene.snapshot, self._asked, self._asked.limit_s + by_s)
        return Forecast(replace(self._scene, snapshot=view), wanted, max_passes=max_passes)

    def _see_baseline(self) -> None:
        self._is_baseline = False
        promised = promises_of(self._rehearsal.first_plan)
        counted = [job.job_id for job in islice(self._scene.snapshot.pending, MAX_COUNTED)]
        starts = self._rehearsal.starts
        self._starts = {entry.starts_at for entry in starts.values()}
        self._before = {one: starts[one].starts_at for one in counted if one in starts and one not in promised}

    def _first_put_off(self) -> Promise | None:
        after = self._rehearsal.starts
        late = [
            Promise(at, job_id, is_expected=True)
            for job_id, at in self._before.items()
            if job_id not in after or after[job_id].starts_at > at + TOLERANCE_S
        ]
        return min(late, default=None)

    def _lengths(self) -> Generator[int, Promise | None, int]:
        """Extensions to try; what is sent back is the start that each puts off.  Returns the longest without any."""
        if not self._before:
            return self._most_s
        shorter = {floor(at - self._asked.ends_at) for at in self._starts}
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


class ExtendStudy:
    """A plan as things stand, then one for each extension that is tried: as asked, then ever shorter ones."""

    def __init__(
        self, draft: TurnBuilder, desk: Desk, request: ClientRequest, asked: Asked, known: Bound, tries: int = 1
    ) -> None:
        self.request_id: RequestId | None = request.request_id
        self._desk = desk
        self._request = request
        self._asked = asked
        self._tries = tries
        self._volatile = draft.volatile
        self._changes = draft.volatile.changes
        self._known = known
        """The latest end that delays no job without a promise."""
        self._bound = min(known, bound_of(draft, asked))
        self._view = snapshot.take(draft.cluster, draft.policy, draft.volatile, draft.now)
        self._planner = Planner()
        self._planner.begin(self._view)
        self._promises: dict[JobId, float] | None = None
        self._trials: list[int] = []
        """Extensions that are still to be tried, the longest last."""
        self._obstacle: Promise | None = None
        self._granted_s = 0
        """The longest that was found to put off nobody."""

    def step(self, budget: int) -> bool:
        if self._planner.is_busy:
            if (plan := self._planner.step(budget)) is not None:
                self._see(plan)
            return False
        return not self._volatile.is_planning

    def _see(self, plan: Plan) -> None:
        if self._promises is None:
            self._promises = promises(plan, self._view)
            self._trials = [by_s] if (by_s := min(self._asked.by_s, self._bound.by_s)) > 0 else []
        else:
            self._see_trial(self._promises, self._trials.pop(), plan)
        if self._trials:
            limit_s = self._asked.limit_s + self._trials[-1]
            self._planner.begin(_as_if_limited(self._view, self._asked, limit_s))

    def _see_trial(self, before: dict[JobId, float], by_s: int, plan: Plan) -> None:
        put_off = first_put_off(before, plan, self._view.now)
        if put_off is None:
            self._granted_s, self._trials = by_s, []
        elif self._obstacle is None:
            self._obstacle = put_off
            shorter = {floor(at - self._asked.ends_at) for at in before.values()}
            self._trials = sorted(one for one in shorter if 0 < one < by_s)

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
        """None: it is studied anew."""
        one = job.running(draft, self._asked.job_id)
        if draft.volatile.changes == self._changes:
            return _granted(draft, one, self._asked, self._granted_s, self._why_not(draft))
        asked = _asked(draft, one, self._asked.by_s)
        if self._tries < MOST_TRIES:
            self._desk.go_on(ExtendStudy(draft, self._desk, self._request, asked, self._known, self._tries + 1))
            return None
        return _by_last_plan(draft, one, asked, self._known)

    def _why_not(self, draft: TurnBuilder) -> str:
        return self._bound.why if self._obstacle is None else _put_off(draft, self._obstacle)


def _refuse(draft: TurnBuilder, request: ClientRequest, refusal: Refusal) -> None:
    refused = replies.refused(refusal)
    replies.record(draft, request, refused)
    replies.send(draft, request, refused)


def bound_of(draft: TurnBuilder, asked: Asked) -> Bound:
    """The tightest."""
    return min(bounds(draft, draft.cluster.jobs[asked.job_id], asked), default=Bound(asked.by_s, ""))


def _as_if_limited(view: Snapshot, asked: Asked, limit_s: int) -> Snapshot:
    ends_at = asked.ends_at + limit_s - asked.limit_s
    is_exact = view.policy.scheduling.expect == "exact"
    return replace(view, running=tuple(_as_if(one, asked.job_id, ends_at, limit_s, is_exact) for one in view.running))


def _as_if(one: RunningJob, job_id: JobId, ends_at: float, limit_s: int, is_exact: bool) -> RunningJob:
    if (
        one.job_id != job_id or one.is_part or one.ends_at is None
    ):  # the latter is what a lost node has of an earlier attempt
        return one
    return replace(one, ends_at=ends_at, expected_s=one.expected_s if is_exact else float(limit_s))


def _put_off(draft: TurnBuilder, promise: Promise) -> str:
    one = draft.cluster.jobs.get(promise.job_id)
    if one is None:
        return f"job {promise.job_id} would start later"
    told = "is expected to start at" if promise.is_expected else "was promised a start by"
    return f"job {one.label} of {one.user}, which {told} @{{{int(promise.at)}}}, would start later"


# ── while things change all the time ──────────────────────────────────────────────────────────────────────────


def _by_last_plan(draft: TurnBuilder, one: Job, asked: Asked, known: Bound) -> client.Extended:
    """What the last plan keeps for those who were promised a start is still free for them when they start."""
    bound = min(known, bound_of(draft, asked))
    plan = draft.volatile.plan
    grants = tuple(part.grant for part in draft.cluster.attempts[one.attempt_id].parts.values())
    kept = () if plan is None else (each for each in plan.protected if each.is_promise)
    near = (Promise(each.starts_at, each.job_id) for each in kept if _may_meet(each.grants, grants))
    first = min((each for each in near if each.job_id in draft.cluster.jobs), default=None)
    if first is not None:
        bound = min(bound, Bound(max(0, floor(first.at - asked.ends_at)), _put_off(draft, first)))
    return _granted(draft, one, asked, max(0, min(asked.by_s, bound.by_s)), bound.why)


def _may_meet(kept: tuple[Grant, ...], held: tuple[Grant, ...]) -> bool:
    """On a node, or in the use of a licence."""
    nodes = {one.node for one in held}
    licenses = {each.name for one in held for each in one.licenses}
    return any(one.node in nodes or any(each.name in licenses for each in one.licenses) for one in kept)


# ── the answer ────────────────────────────────────────────────────────────────────────────────────────────────


def _granted(draft: TurnBuilder, one: Job, asked: Asked, most_s: int, why_not: str) -> client.Extended:
    if most_s < asked.by_s:
        word = spoken_duration(asked.by_s)
        hint = f"at most +{format_duration(most_s)} would be granted now" if most_s > 0 else "nothing would be now"
        raise Refusal("not_extended", f"job {asked.label} cannot have {word} more: {why_not}", hint)
    fact = _updated(draft, one, asked.by_s)
    draft.emit(fact)
    draft.volatile.wants_plan = True
    for node in draft.cluster.attempts[one.attempt_id].parts:
        orders.send_time_limit(draft, one, node)
    return client.Extended(
        job_id=one.job_id, time_limit_s=asked.limit_s + asked.by_s, end_at=asked.ends_at + asked.by_s
    )


def _updated(draft: TurnBuilder, one: Job, by_s: int) -> event.JobUpdated:
    """Whoever extends it says how long it will take."""
    limit_s = (one.time_limit_s or 0) + by_s
    return event.JobUpdated(
        at=draft.now,
        job_id=one.job_id,
        spec=one.spec,
        partition=one.partition,
        time_limit_s=limit_s,
        requeue=one.requeue,
        account=one.account,
        qos=one.qos,
        expected_s=one.expected_s if draft.policy.scheduling.expect == "exact" else float(limit_s),
    )
