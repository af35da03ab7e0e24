"""Limits: set, remove, check at submit, report their use, and the view for planner and adoption.  Pure.

A limit that binds at submit counts pending jobs, too, and refuses jobs over it; one that binds at start makes them
wait.  A job that would exceed a limit even alone is refused in any case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gq.errors import Refusal
from gq.explain import limits as limit_text
from gq.model.account import AT_START_ONLY, AT_SUBMIT_ONLY, BUDGETS, LIMITED, Holder, LimitAt, LimitInfo
from gq.model.state import JobState
from gq.near_miss import nearest
from gq.wire import client
from gqd.control.accounts.association import known_account, known_qos
from gqd.control.accounts.names import refuse_bad_user, refuse_too_many
from gqd.control.explain import limits as explain_limits
from gqd.sched.limits.ledger import COUNTED_AS, TOLERANCE, LimitDemand, LimitSubject, LimitView, hours
from gqd.sched.placement.billing import TYPE_PREFIX, billing_of
from gqd.sched.request import Shape, shape_in
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.deadlines import paused_s, time_limit_of
from gqd.state.index.job_tally import tally_keys_of_job
from gqd.state.index.period import next_periods_at, periods_at
from gqd.state.index.queue import member_of
from gqd.state.index.tally import Amounts, TallyKey, account_path, add, asked_amounts, tally_keys
from gqd.state.index.usage import MILLION, Budget
from gqd.state.policy import Policy
from gqd.state.records import BudgetKey, Job, LimitKey, limit_key

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

PER_JOB = frozenset({"gpus_per_job", "nodes_per_job", "time"})
MAX_MOST = 2.0**50
HOUR_S = 3600

# ── set and remove ────────────────────────────────────────────────────────────────────────────────────────────


def decide_set_limit(draft: TurnBuilder, body: client.SetLimit) -> client.Done:
    limit = _as_kept(body.limit)
    match limit.holder:
        case Holder.ACCOUNT:
            known_account(draft.cluster, limit.name)
        case Holder.QOS:
            known_qos(draft.cluster, limit.name)
        case Holder.USER:
            refuse_bad_user("user", limit.name)
    key = limit_key(limit)
    if key not in draft.cluster.limits:
        refuse_too_many(draft)
    if draft.cluster.limits.get(key) != limit:
        roll_over_periods(draft)
        draft.emit(event.LimitSet(at=draft.now, limit=limit))
    return client.Done()


def _as_kept(limit: LimitInfo) -> LimitInfo:
    """The checked limit; limits on what may be queued at all always bind at submit."""
    resource = limit.resource
    if resource not in LIMITED and not _is_typed(resource):
        close = nearest(resource, list(LIMITED))
        listed = f"{', '.join(LIMITED)} and gpus:TYPE can be limited"
        hint = f"did you mean `{close}`? {listed}" if close else listed
        raise Refusal("unknown_resource", f"`{resource[:80]}` is not a resource that can be limited", hint)
    if not (math.isfinite(limit.most) and 0 <= limit.most <= MAX_MOST):
        raise Refusal("bad_number", f"a limit of {limit.most} is not between 0 and {MAX_MOST:.0f}")
    if resource not in BUDGETS and limit.most != int(limit.most):
        message = f"a limit of {limit.most} {limit_text.things(resource)} is not a whole number"
        raise Refusal("bad_number", message, "only GPU-hours may be fractions")
    if resource == "time" and not limit.most:
        raise Refusal(
            "bad_number", "a time limit of 0 would let nothing run", "limit gpus or jobs to 0 to let no job start"
        )
    if limit.per_user and (limit.holder is Holder.USER or resource in PER_JOB):
        what = "a user" if limit.holder is Holder.USER else f"the {LIMITED[resource]}"
        message = f"a limit of {what} already applies to each user"
        raise Refusal(
            "bad_limit", message, "leave out --per-user; it is for resources that users of an account or QOS share"
        )
    if resource in AT_START_ONLY and limit.at is not LimitAt.START:
        message = f"{LIMITED[resource]} can be limited only at the start of a job"
        raise Refusal("bad_limit", message, "limit pending_jobs to limit the queue")
    at = LimitAt.SUBMIT if resource in AT_SUBMIT_ONLY else limit.at
    return msgspec.structs.replace(limit, at=at, used=None)


def _is_typed(resource: str) -> bool:
    gpu_type = resource.removeprefix(TYPE_PREFIX)
    return gpu_type != resource and 0 < len(gpu_type) <= 64 and gpu_type.isprintable() and " " not in gpu_type


def decide_remove_limit(draft: TurnBuilder, body: client.RemoveLimit) -> client.Done:
    holders = [one for one in Holder if one == body.holder]
    key = LimitKey(holders[0], body.name, body.resource, body.per_user) if holders else None
    if key is None or key not in draft.cluster.limits:
        each = " for each user" if body.per_user else ""
        message = f"{body.holder[:20]} `{body.name[:80]}` has no limit on `{body.resource[:80]}`{each}"
        raise Refusal("unknown_limit", message, "gqctl limit show lists them")
    _remove(draft, key)
    return client.Done()


def remove_all(draft: TurnBuilder, holder: Holder, name: str) -> None:
    """Remove all limits of a holder that is removed."""
    for key in list(draft.cluster.associations.limits.get((holder, name), ())):
        _remove(draft, key)


def _remove(draft: TurnBuilder, key: LimitKey) -> None:
    draft.emit(
        event.LimitRemoved(at=draft.now, holder=key.holder, name=key.name, resource=key.resource, per_user=key.per_user)
    )


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────────────────


def roll_over_periods(draft: TurnBuilder) -> None:
    """Start the budgets of a new day, week or month, at the first input of that period."""
    volatile = draft.volatile
    if draft.now < volatile.periods_until:
        return
    began = periods_at(draft.now, draft.policy.zone)
    volatile.periods_until = next_periods_at(draft.now, draft.policy.zone).day
    budgets = draft.cluster.budgets
    if any(began.of(BUDGETS[key.limit.resource]) > budget.began_at for key, budget in budgets.items()):
        draft.emit(event.PeriodsBegan(at=draft.now, day_at=began.day, week_at=began.week, month_at=began.month))


def _gpu_hours_used(cluster: Cluster, policy: Policy, key: BudgetKey, now: float) -> float:
    budget = cluster.budgets.get(key)
    if budget is None:
        return 0.0
    return _hours_of(budget, periods_at(now, policy.zone).of(BUDGETS[key.limit.resource]), now)


def _hours_of(budget: Budget, period_at: float, now: float) -> float:
    return max(0.0, budget.used_at(now, max(budget.began_at, period_at))) / HOUR_S


# ── what is used ──────────────────────────────────────────────────────────────────────────────────────────────


def with_used(cluster: Cluster, policy: Policy, limit: LimitInfo, now: float) -> LimitInfo:
    """The limit for an answer, with its use."""
    if limit.resource in PER_JOB:
        return limit
    users = list(cluster.tallies.users.get((limit.holder, limit.name), {})) if limit.per_user else [""]
    if limit.per_user and limit.resource in BUDGETS:
        users = [budget.user for budget in cluster.budgets if budget.limit == limit_key(limit) and budget.user]
    used = max((_used(cluster, policy, limit, user, now) for user in users), default=0.0)
    return msgspec.structs.replace(limit, used=used)


def _used(cluster: Cluster, policy: Policy, limit: LimitInfo, user: str, now: float) -> float:
    """Amount used of a limit, counted where it binds; `user`: the user of a limit per user."""
    if limit.resource in BUDGETS:
        return _gpu_hours_used(cluster, policy, BudgetKey(limit_key(limit), user), now)
    tally = cluster.tallies.of((limit.holder, limit.name, user))
    if limit.resource == "pending_jobs":
        return tally.pending
    amounts = tally.submitted if limit.at is LimitAt.SUBMIT else tally.held
    return amounts.get(COUNTED_AS.get(limit.resource, limit.resource), 0)


# ── at submit ─────────────────────────────────────────────────────────────────────────────────────────────────


class Asked(NamedTuple):
    """The demand of a job that is submitted or changed."""

    who: LimitSubject
    shape: Shape
    amounts: Mapping[str, int]
    """The amounts of one job or task."""
    tasks: int
    """Count of jobs or tasks."""
    time_limit_s: int | None


def _limits_of(cluster: Cluster, user: str, path: Iterable[str], qos: str) -> Iterator[LimitInfo]:
    of_holder = cluster.associations.limits
    for holder in ((Holder.USER, user), *((Holder.ACCOUNT, one) for one in path), (Holder.QOS, qos)):
        for key in of_holder.get(holder, ()):
            yield cluster.limits[key]


def time_limit_under(cluster: Cluster, who: LimitSubject, asked_s: int | None, time_limit_s: int | None) -> int | None:
    """The job's time limit under the limits of its user, account and QOS: a requested one is refused, a default cut."""
    if not cluster.limits:
        return time_limit_s
    for limit in _limits_of(cluster, who.user, account_path(cluster.accounts, who.account), who.qos):
        if limit.resource != "time" or (time_limit_s is not None and time_limit_s <= limit.most):
            continue
        if asked_s is not None:
            raise explain_limits.alone_over(limit, math.inf if time_limit_s is None else time_limit_s)
        time_limit_s = int(limit.most)
    return time_limit_s


def refuse_changed(draft: TurnBuilder, changes: Sequence[tuple[Job, int, event.JobUpdated]]) -> None:
    """`Refusal` if a limit leaves no room for changed jobs.  `changed`: (job, count of jobs, its update)."""
    waiting = [change for change in changes if change[0].state is JobState.PENDING]
    ahead: list[Asked] = []
    for job, count, fact in waiting:
        after = Asked(
            LimitSubject(job.user, fact.account, fact.qos),
            shape_in(draft.policy, fact.spec.resources, fact.partition),
            asked_amounts(fact.spec.resources),
            count,
            fact.time_limit_s,
        )
        if after != _as_queued(draft.policy, job, count):
            refuse_over(draft, after, ahead, [(one[0], one[1]) for one in waiting])
        ahead.append(after)


def _as_queued(policy: Policy, job: Job, count: int) -> Asked:
    return Asked(
        LimitSubject(job.user, job.account, job.qos),
        shape_in(policy, job.spec.resources, job.partition),
        asked_amounts(job.spec.resources),
        count,
        job.time_limit_s,
    )


def refuse_over(
    draft: TurnBuilder, asked: Asked, ahead: Iterable[Asked] = (), before: Iterable[tuple[Job, int]] = ()
) -> None:
    """`Refusal` if a limit leaves no room for the job, or would not even if it were alone.

    `ahead`: jobs that the same request queues before it.  `before`: queued jobs that it takes the place of, and how
    many of each.
    """
    cluster, policy, who = draft.cluster, draft.policy, asked.who
    path = account_path(cluster.accounts, who.account)
    _refuse_over_ceiling(cluster, path, asked.amounts.get("gpus", 0))
    if not cluster.limits:
        return
    gpu_hours = wanted_of(draft, asked).gpu_hours
    more = _counted_ahead(cluster, ahead, before)
    for limit in _limits_of(cluster, who.user, path, who.qos):
        one = _amount_of_one(limit, asked, gpu_hours)
        if one > limit.most and limit.resource != "pending_jobs":
            raise explain_limits.alone_over(limit, one)
        if limit.at is not LimitAt.SUBMIT or limit.resource in PER_JOB:
            continue
        user = who.user if limit.per_user else ""
        used = _used(cluster, policy, limit, user, draft.now)
        used += more.get((limit.holder, limit.name, user), {}).get(_counted_as(limit.resource), 0)
        is_spent = limit.resource in BUDGETS and gpu_hours is None and used >= limit.most
        wanted = one * asked.tasks
        if (wanted and used + wanted > limit.most + TOLERANCE) or is_spent:
            raise explain_limits.no_room(limit, used, wanted, user)


def wanted_of(draft: TurnBuilder, asked: Asked) -> LimitDemand:
    """The budget amount that one job or task would be counted with at its start."""
    qos = draft.cluster.qos.get(asked.who.qos)
    billing = billing_of(draft.policy.billing, asked.amounts, 1.0 if qos is None else qos.usage_factor)
    return LimitDemand(asked.amounts, hours(billing, asked.time_limit_s))


def _refuse_over_ceiling(cluster: Cluster, path: Iterable[str], gpus: int) -> None:
    """`Refusal` for a job that asks for more GPUs than its account may ever hold (guaranteed and borrowed)."""
    for name in path:
        account = cluster.accounts.get(name)
        if (
            account is None
            or account.borrow_gpus is None
            or gpus <= (account.guaranteed_gpus or 0) + account.borrow_gpus
        ):
            continue
        raise explain_limits.over_ceiling(account, gpus)


def _counted_as(resource: str) -> str:
    return "jobs" if resource == "pending_jobs" else COUNTED_AS.get(resource, resource)


def _amount_of_one(limit: LimitInfo, asked: Asked, gpu_hours: float | None) -> float:
    match limit.resource:
        case "gpus_per_job":
            return asked.amounts.get("gpus", 0)
        case "nodes_per_job":
            return asked.shape.nodes_min
        case "time":
            return asked.time_limit_s or 0
        case resource if resource in BUDGETS:
            return gpu_hours or 0.0
        case resource:
            return asked.amounts.get(_counted_as(resource), 0)


def _counted_ahead(
    cluster: Cluster, ahead: Iterable[Asked], before: Iterable[tuple[Job, int]]
) -> dict[TallyKey, Amounts]:
    """Limit holder → amounts besides the tallies; a changed job does not count against itself."""
    more: dict[TallyKey, Amounts] = {}
    for one in ahead:
        for place in tally_keys(one.who.user, account_path(cluster.accounts, one.who.account), one.who.qos):
            add(more.setdefault(place, {}), one.amounts, one.tasks)
    for job, count in before:
        for place in tally_keys_of_job(cluster, job):
            add(more.setdefault(place, {}), asked_amounts(job.spec.resources), -count)
    return more


# ── at start ──────────────────────────────────────────────────────────────────────────────────────────────────


def view(cluster: Cluster, policy: Policy, now: float) -> LimitView:
    """The limits and their use, from which the ledger of a pass or of an adoption is made."""
    limits: dict[tuple[Holder, str], list[LimitInfo]] = {}
    for limit in cluster.limits.values():
        if limit.at is LimitAt.START:
            limits.setdefault((limit.holder, limit.name), []).append(limit)
    has_budgets = any(limit.resource in BUDGETS for of_holder in limits.values() for limit in of_holder)
    return LimitView(
        accounts=dict(cluster.accounts),
        qos=dict(cluster.qos),
        limits={holder: tuple(of_holder) for holder, of_holder in limits.items()},
        held=_held(cluster, limits),
        spent=_spent(cluster, policy, limits, now) if has_budgets else {},
        until=_until(policy, now) if has_budgets else {},
    )


def _held(cluster: Cluster, limits: dict[tuple[Holder, str], list[LimitInfo]]) -> dict[TallyKey, Amounts]:
    """Held amounts of the holders of limits and guarantees, and of each of their users for limits per user."""
    tallies = cluster.tallies
    places: list[TallyKey] = []
    for (holder, name), of_holder in limits.items():
        places.append((holder, name, ""))
        if any(one.per_user for one in of_holder):
            places += [(holder, name, user) for user in tallies.users.get((holder, name), ())]
    bounded = (
        account
        for account in cluster.accounts.values()
        if (account.guaranteed_gpus, account.borrow_gpus) != (None, None)
    )
    places += [(Holder.ACCOUNT, one.name, "") for one in bounded]
    return {place: dict(held) for place in places if (held := tallies.of(place).held)}


def _spent(
    cluster: Cluster, policy: Policy, limits: dict[tuple[Holder, str], list[LimitInfo]], now: float
) -> dict[tuple[LimitInfo, str], float]:
    """Budget use, with what running jobs may still use until their time limits or the end of the period."""
    spent: dict[tuple[LimitInfo, str], float] = {}
    began, until = periods_at(now, policy.zone), _until(policy, now)
    for key, budget in cluster.budgets.items():
        limit = cluster.limits[key.limit]
        if limit in limits.get((limit.holder, limit.name), ()) and bool(key.user) == limit.per_user:
            spent[limit, key.user] = _hours_of(budget, began.of(BUDGETS[limit.resource]), now)
    budgets = {holder: of for holder, every in limits.items() if (of := [x for x in every if x.resource in BUDGETS])}
    for job_id in cluster.tallies.held_by:
        job = cluster.jobs[job_id]
        held = cluster.attempts[job.attempt_id]
        limit_s = time_limit_of(job, held)
        if held.end_at is not None or not held.billing or limit_s is None:
            continue
        ends_at = (now if held.start_at is None else held.start_at) + limit_s + paused_s(held, now)
        for holder, name, user in tally_keys_of_job(cluster, job):
            for limit in budgets.get((holder, name), ()):
                if bool(user) == limit.per_user:
                    left_s = max(0.0, min(ends_at, until[limit.resource]) - now)
                    spent[limit, user] = spent.get((limit, user), 0.0) + held.billing / MILLION * left_s / HOUR_S
    return spent


class BudgetLeft(NamedTuple):
    """The part of a budget that is neither used nor may still be used by running jobs."""

    resource: str
    whose: str
    left_hours: float
    until: float
    """The instant at which the budget starts anew."""


def limits_of_job(cluster: Cluster, job: Job) -> Iterator[LimitInfo]:
    return _limits_of(cluster, job.user, account_path(cluster.accounts, member_of(job)[1]), job.qos)


def budgets_of_job(draft: TurnBuilder, job: Job) -> Iterator[BudgetLeft]:
    """The budgets that count a running job (of its user, account and QOS), with what is left of them."""
    own = [limit for limit in limits_of_job(draft.cluster, job) if limit.resource in BUDGETS]
    by_holder: dict[tuple[Holder, str], list[LimitInfo]] = {}
    for one in own:
        by_holder.setdefault((one.holder, one.name), []).append(one)
    spent = _spent(draft.cluster, draft.policy, by_holder, draft.now) if own else {}
    until = _until(draft.policy, draft.now) if own else {}
    for one in own:
        user = job.user if one.per_user else ""
        left = one.most - spent.get((one, user), 0.0)
        yield BudgetLeft(one.resource, limit_text.whose(one, user), left, until[one.resource])


def _until(policy: Policy, now: float) -> dict[str, float]:
    ends = next_periods_at(now, policy.zone)
    return {resource: ends.of(word) for resource, word in BUDGETS.items()}
