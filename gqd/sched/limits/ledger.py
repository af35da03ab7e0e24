"""A ledger of the resources that users, accounts and QOS hold, to which a pass adds its starts and checks limits.
Pure.

The limits of a (user, account, QOS) are looked up once in a pass; a job then costs one comparison for each of these
limits. Apart from rollbacks the amounts held only grow during a pass, so a subject over a limit stays over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gq.model.account import BUDGETS, AccountInfo, Holder, LimitInfo, QosInfo
from gqd.sched.limits.access import is_listed
from gqd.sched.request import Shape, every_shape, wanted_in_all
from gqd.state.index.tally import Amounts, TallyKey, account_path, add
from gqd.state.index.usage import MILLION
from gqd.state.plan import AccessDenied, OverLimit, OverQuota
from gqd.state.policy import Partition

SECONDS_PER_HOUR = 3600
COUNTED_AS = {"running_jobs": "jobs"}
"""Limits whose name differs from the name of the amount they are compared with."""
TOLERANCE = 1e-9
"""Tolerance for GPU-hours, which are sums of floating-point numbers."""


@dataclass(slots=True, frozen=True)
class LimitView:
    """A copy of the accounts, QOS, limits and usage from which a ledger is made."""

    accounts: Mapping[str, AccountInfo] = field(default_factory=dict)
    qos: Mapping[str, QosInfo] = field(default_factory=dict)
    limits: Mapping[tuple[Holder, str], tuple[LimitInfo, ...]] = field(default_factory=dict)
    """The limits that are checked when a job starts."""
    held: Mapping[TallyKey, Mapping[str, int]] = field(default_factory=dict)
    """The amounts held, for every holder of a limit and every account with a guarantee."""
    spent: Mapping[tuple[LimitInfo, str], float] = field(default_factory=dict)
    """GPU-hours by budget and user ('': all users): those used, plus those that running jobs may still use."""
    until: Mapping[str, float] = field(default_factory=dict)
    """The instant at which the next day, week or month begins, by budget."""

    @property
    def binds(self) -> bool:
        """Whether any limit could stop a job from starting."""
        return bool(self.limits) or any(account.borrow_gpus is not None for account in self.accounts.values())

    @property
    def has_guarantees(self) -> bool:
        return any(account.guaranteed_gpus is not None for account in self.accounts.values())

    def usage_factor(self, qos: str) -> float:
        known = self.qos.get(qos)
        return 1.0 if known is None else known.usage_factor


NO_LIMITS = LimitView()


class LimitSubject(NamedTuple):
    """The user, account and QOS of a job, by which its limits are looked up."""

    user: str
    account: str
    qos: str


class LimitDemand(NamedTuple):
    amounts: Mapping[str, int]
    """The amounts requested, named as in `gqd.state.index.tally`."""
    gpu_hours: float | None
    """The most GPU-hours that the job may use, up to its time limit; None: the job has no time limit."""


class Room(NamedTuple):
    jobs: float
    gpus: float
    cpus: float
    gpu_hours: float


def hours(billing: int, time_limit_s: int | None) -> float | None:
    if time_limit_s is None:
        return None if billing else 0.0
    return billing / MILLION * time_limit_s / SECONDS_PER_HOUR


def min_amounts(shape: Shape) -> dict[str, int]:
    """The minimum amounts that a job of this shape is given."""
    if shape.roles:
        sums: Amounts = {}
        for role in every_shape(shape):
            add(sums, min_amounts(role))
        return sums | {"jobs": 1}
    gpus, cpus = wanted_in_all(shape)
    amounts = {"jobs": 1, "gpus": gpus, "cpus": cpus}
    memory_mib = (shape.mem_per_node_mib or 0) * shape.nodes_min
    memory_mib = memory_mib or (shape.mem_per_cpu_mib or 0) * cpus or (shape.mem_per_gpu_mib or 0) * gpus
    amounts["memory"] = memory_mib
    if shape.gpu_type:
        amounts[f"gpus:{shape.gpu_type}"] = gpus
    return amounts


@dataclass(slots=True)
class _Counter:
    """A limit with the amount used; a limit per user has a counter for each user."""

    limit: LimitInfo
    resource: str
    user: str
    used: float


@dataclass(slots=True)
class _Standing:
    """The GPUs held by an account that has a guarantee, or a bound on the GPUs it may borrow."""

    account: AccountInfo
    gpus: int


@dataclass(slots=True)
class _Known:
    """The counters and guarantees that apply to a user in an account with a QOS."""

    counters: list[_Counter]
    standings: list[_Standing]


@dataclass(slots=True)
class Ledger:
    view: LimitView
    _known: dict[LimitSubject, _Known] = field(default_factory=dict)
    _counters: dict[tuple[LimitInfo, str], _Counter] = field(default_factory=dict)
    _standings: dict[str, _Standing] = field(default_factory=dict)
    _undo: list[tuple[_Known, LimitDemand]] = field(default_factory=list)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────

    def exceeded_limit(self, who: LimitSubject, wanted: LimitDemand) -> OverLimit | OverQuota | None:
        """The first limit that the demand would exceed; None if it exceeds none."""
        known = self._of(who)
        for counter in known.counters:
            if _has_no_room(counter.limit, counter.used, wanted):
                return _filled_in(self._told(counter), wanted)
        for standing in known.standings:
            if _borrows_too_much(standing.account, standing.gpus, wanted):
                return _filled_in(_told_of(standing), wanted)
        return None

    def used(self, who: LimitSubject) -> tuple[OverLimit | OverQuota, ...]:
        """All limits of the subject with the amounts used, for `exceeded_limits_of`."""
        known = self._of(who)
        bounded = (standing for standing in known.standings if standing.account.borrow_gpus is not None)
        return (*map(self._told, known.counters), *map(_told_of, bounded))

    def room(self, who: LimitSubject) -> Room:
        """The most that another job of the subject may use; memory and typed GPUs are not included."""
        known = self._of(who)
        rooms = {"jobs": math.inf, "gpus": math.inf, "cpus": math.inf, "gpu_hours": math.inf}
        for counter in known.counters:
            resource = "gpu_hours" if counter.resource in BUDGETS else counter.resource
            if resource in rooms:
                rooms[resource] = min(rooms[resource], counter.limit.most - counter.used)
        for standing in known.standings:
            rooms["gpus"] = min(rooms["gpus"], _ceiling(standing.account) - standing.gpus)
        return Room(**rooms)

    def is_bounded(self, who: LimitSubject) -> bool:
        """Whether any limit or guarantee applies to the subject."""
        known = self._of(who)
        return bool(known.counters) or bool(known.standings)

    def is_guaranteed(self, who: LimitSubject, gpus: int) -> bool:
        """Whether the job's account, or a parent of it, stays within its guarantee with `gpus` GPUs more."""
        if not gpus:
            return False
        return any(
            standing.account.guaranteed_gpus is not None and standing.gpus + gpus <= standing.account.guaranteed_gpus
            for standing in self._of(who).standings
        )

    def access_refusal(self, who: LimitSubject, shape: Shape, partition: Partition) -> AccessDenied | None:
        """Why the partition or the QOS no longer admits the job; None if it does.

        Lists with groups were checked at submission: the ledger does not know users' groups and takes these lists as
        met.
        """
        qos = self.view.qos.get(who.qos)
        if partition.max_nodes is not None and shape.nodes_min > partition.max_nodes:
            most = partition.max_nodes
            return AccessDenied(
                why=f"it asks for {shape.nodes_min} nodes; partition `{partition.name}` now allows a job {most}"
            )
        if partition.qos and who.qos not in partition.qos:
            return AccessDenied(why=f"partition `{partition.name}` no longer accepts jobs of QOS `{who.qos}`")
        path: tuple[str, ...] | None = None
        for noun, listed in (("partition", partition), ("QOS", qos)):
            if listed is None or listed.groups or not (listed.users or listed.accounts):
                continue
            path = path or account_path(self.view.accounts, who.account)
            if not is_listed(listed, who.user, (), path):
                whom = f"user {who.user} in account `{who.account}`"
                return AccessDenied(why=f"{noun} `{listed.name}` is no longer for {whom}")
        return None

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, who: LimitSubject, wanted: LimitDemand) -> None:
        """Add the demand of a job that starts."""
        known = self._of(who)
        self._undo.append((known, wanted))
        _add(known, wanted, 1)

    def checkpoint(self) -> int:
        return len(self._undo)

    def rollback(self, checkpoint: int) -> None:
        while len(self._undo) > checkpoint:
            known, wanted = self._undo.pop()
            _add(known, wanted, -1)

    # ── looking up ────────────────────────────────────────────────────────────────────────────────────────────

    def _of(self, who: LimitSubject) -> _Known:
        known = self._known.get(who)
        if known is None:
            path = account_path(self.view.accounts, who.account)
            known = self._known[who] = _Known(self._counters_of(who, path), self._standings_of(path))
        return known

    def _counters_of(self, who: LimitSubject, path: tuple[str, ...]) -> list[_Counter]:
        limits = self.view.limits
        if not limits:
            return []
        holders = [(Holder.USER, who.user), *((Holder.ACCOUNT, one) for one in path), (Holder.QOS, who.qos)]
        return [self._counter(limit, who.user) for holder in holders for limit in limits.get(holder, ())]

    def _counter(self, limit: LimitInfo, user: str) -> _Counter:
        key = (limit, user if limit.per_user else "")
        counter = self._counters.get(key)
        if counter is None:
            resource = COUNTED_AS.get(limit.resource, limit.resource)
            if limit.resource in BUDGETS:
                used = self.view.spent.get(key, 0.0)
            else:
                used = self.view.held.get((limit.holder, limit.name, key[1]), {}).get(resource, 0)
            counter = self._counters[key] = _Counter(limit, resource, key[1], used)
        return counter

    def _standings_of(self, path: tuple[str, ...]) -> list[_Standing]:
        """Guarantees and borrowing bounds of an account and its parents, the account first."""
        standings = []
        for name in path:
            account = self.view.accounts.get(name)
            if account is None or (account.guaranteed_gpus is None and account.borrow_gpus is None):
                continue
            if name not in self._standings:
                held = self.view.held.get((Holder.ACCOUNT, name, ""), {}).get("gpus", 0)
                self._standings[name] = _Standing(account, held)
            standings.append(self._standings[name])
        return standings

    def _told(self, counter: _Counter) -> OverLimit:
        limit = msgspec.structs.replace(counter.limit, used=counter.used)
        return OverLimit(limit=limit, wanted=0, user=counter.user, until=self.view.until.get(limit.resource))


def exceeded_limit_of(used: Iterable[OverLimit | OverQuota], wanted: LimitDemand) -> OverLimit | OverQuota | None:
    """The first of the limits from `Ledger.used` that the demand would exceed; None if it exceeds none."""
    return next(exceeded_limits_of(used, wanted), None)


def exceeded_limits_of(used: Iterable[OverLimit | OverQuota], wanted: LimitDemand) -> Iterator[OverLimit | OverQuota]:
    return (_filled_in(one, wanted) for one in used if _is_over(one, wanted))


def _is_over(limit: OverLimit | OverQuota, wanted: LimitDemand) -> bool:
    if isinstance(limit, OverLimit):
        return _has_no_room(limit.limit, limit.limit.used or 0.0, wanted)
    gpus = wanted.amounts.get("gpus", 0)
    return gpus > 0 and limit.held_gpus + gpus > limit.guaranteed_gpus + limit.borrow_gpus


def _filled_in(limit: OverLimit | OverQuota, wanted: LimitDemand) -> OverLimit | OverQuota:
    if isinstance(limit, OverLimit):
        return msgspec.structs.replace(limit, wanted=_amount(limit.limit.resource, wanted) or 0.0)
    return msgspec.structs.replace(limit, wanted_gpus=wanted.amounts.get("gpus", 0))


def _told_of(one: _Standing) -> OverQuota:
    return OverQuota(
        account=one.account.name,
        guaranteed_gpus=one.account.guaranteed_gpus or 0,
        borrow_gpus=one.account.borrow_gpus or 0,
        held_gpus=one.gpus,
        wanted_gpus=0,
    )


def _has_no_room(limit: LimitInfo, used: float, wanted: LimitDemand) -> bool:
    amount = _amount(limit.resource, wanted)
    if amount is None:
        return used >= limit.most
    return amount > 0 and used + amount > limit.most + TOLERANCE


def _borrows_too_much(account: AccountInfo, held: int, wanted: LimitDemand) -> bool:
    gpus = wanted.amounts.get("gpus", 0)
    return gpus > 0 and held + gpus > _ceiling(account)


def _ceiling(account: AccountInfo) -> float:
    """The most GPUs that the account may hold, guaranteed and borrowed together."""
    return math.inf if account.borrow_gpus is None else (account.guaranteed_gpus or 0) + account.borrow_gpus


def _amount(resource: str, wanted: LimitDemand) -> float | None:
    """The amount demanded of a resource; None: the GPU-hours of a job without a time limit, for a budget."""
    if resource in BUDGETS:
        return wanted.gpu_hours
    return wanted.amounts.get(COUNTED_AS.get(resource, resource), 0)


def _add(known: _Known, wanted: LimitDemand, times: int) -> None:
    for counter in known.counters:
        counter.used += times * (_amount(counter.resource, wanted) or 0)
    for standing in known.standings:
        standing.gpus += times * wanted.amounts.get("gpus", 0)
