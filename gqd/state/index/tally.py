"""Running totals of the jobs and resources of every user, account and QOS, against which limits are checked.  Pure.

For each holder of limits, and for each user in each account and QOS, a tally counts: *submitted* resources (by the
request, from submission to end; an array's record as all its waiting tasks), the number of *pending* jobs, *held*
resources (by the grants, from allocation until the job has left the attempt), and the billing *rate* of running
attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gq.model.account import DEFAULT_ACCOUNT, ROOT, AccountInfo, Holder
from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest, as_request, min_demand

Amounts = dict[str, int]
"""Amounts by resource: ``jobs``, ``gpus``, ``cpus``, ``memory`` (MiB) and ``gpus:TYPE``; zero amounts are absent."""

TallyKey = tuple[Holder, str, str]
"""Key of a tally: the holder, its name, and of an account or a QOS the user ('': all users)."""


def add(amounts: Amounts, more: Mapping[str, int], times: int = 1) -> None:
    for name, amount in more.items():
        left = amounts.get(name, 0) + amount * times
        if left:
            amounts[name] = left
        else:
            amounts.pop(name, None)


@lru_cache(maxsize=4096)
def asked_amounts(request: ResourceRequest) -> Mapping[str, int]:
    """Minimum amounts that one job or task with this request adds up to."""
    demand = min_demand(request)
    amounts: Amounts = {"jobs": 1}
    add(amounts, {"gpus": demand.gpus, "cpus": demand.cpus, "memory": demand.memory_mib})
    for part in [as_request(role.resources) for role in request.roles] or [request]:
        if part.gpu_type:
            add(amounts, {f"gpus:{part.gpu_type}": min_demand(part).gpus})
    return amounts


def granted_amounts(grants: Iterable[Grant], types: Mapping[str, Mapping[int, str]]) -> Amounts:
    """Amounts that the grants add up to; `types`: node → GPU → type."""
    amounts: Amounts = {"jobs": 1}
    for grant in grants:
        add(amounts, {"gpus": len(grant.gpus), "cpus": len(grant.cpus), "memory": grant.memory_mib})
        of_node = types.get(grant.node, {})
        for gpu in grant.gpus:
            if gpu in of_node:
                add(amounts, {f"gpus:{of_node[gpu]}": 1})
    return amounts


@dataclass(slots=True)
class Tally:
    """Totals of one holder."""

    submitted: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    pending: int = 0
    rate: int = 0
    """Billing rate in millionths of a weighted GPU."""

    @property
    def is_empty(self) -> bool:
        return not self.submitted and not self.held and not self.pending and not self.rate


def account_path(accounts: Mapping[str, AccountInfo], name: str) -> tuple[str, ...]:
    """The account and its ancestors, the root last."""
    path = [name or DEFAULT_ACCOUNT]
    while path[-1] != ROOT:
        above = accounts.get(path[-1])
        parent = ROOT if above is None or above.parent in path else above.parent
        path.append(parent)
    return tuple(path)


def tally_keys(user: str, path: Iterable[str], qos: str) -> list[TallyKey]:
    """Keys of all tallies that count a job of this user."""
    keys: list[TallyKey] = [(Holder.USER, user, ""), (Holder.QOS, qos, ""), (Holder.QOS, qos, user)]
    for account in path:
        keys += [(Holder.ACCOUNT, account, ""), (Holder.ACCOUNT, account, user)]
    return keys


@dataclass(slots=True)
class Tallies:
    """The tallies by key; empty ones are absent."""

    by_key: dict[TallyKey, Tally] = field(default_factory=dict)
    users: dict[tuple[Holder, str], dict[str, None]] = field(default_factory=dict)
    """Account or QOS → users with jobs in it."""
    held_by: dict[JobId, Amounts] = field(default_factory=dict)
    """Job → amounts that its attempt holds, by the GPU types that the nodes had at the allocation."""
    cached_keys: dict[tuple[str, str, str], list[TallyKey]] = field(default_factory=dict)
    """(user, account, QOS) → keys of its tallies in the present tree of accounts, cached."""

    def of(self, key: TallyKey) -> Tally:
        """Return the tally, which must not be changed."""
        return self.by_key.get(key, _NOTHING)

    def wait(self, keys: Iterable[TallyKey], asked: Mapping[str, int], count: int) -> None:
        """Add `count` jobs or tasks that wait, with the amounts of one; a negative count removes them."""
        amounts = asked if count == 1 else {name: amount * count for name, amount in asked.items()}
        self.add_waiting(keys, amounts, count)

    def add_waiting(self, keys: Iterable[TallyKey], amounts: Mapping[str, int], count: int) -> None:
        """Add `count` jobs or tasks that wait, with their total `amounts`."""
        for key in keys:
            tally = self.by_key.get(key) or self._at(key)
            tally.pending += count
            if count < 0:
                add(tally.submitted, amounts)
                self._drop_if_empty(key, tally)
                continue
            submitted = tally.submitted
            for name, amount in amounts.items():  # with every submission, seven times: nothing comes to 0 here
                submitted[name] = submitted.get(name, 0) + amount

    def hold(self, keys: Iterable[TallyKey], job_id: JobId, held: Amounts) -> None:
        """Turn a waiting job into one that holds these amounts."""
        self.held_by[job_id] = held
        for key in keys:
            tally = self._at(key)
            add(tally.held, held)
            tally.pending -= 1
            self._drop_if_empty(key, tally)

    def free(self, keys: Iterable[TallyKey], job_id: JobId, asked: Mapping[str, int] | None) -> None:
        """Release the amounts that a job holds; the job waits again (`asked` None) or has ended."""
        held = self.held_by.pop(job_id)
        for key in keys:
            tally = self._at(key)
            add(tally.held, held, -1)
            if asked is None:
                tally.pending += 1
            else:
                add(tally.submitted, asked, -1)
            self._drop_if_empty(key, tally)

    def change(self, keys: Iterable[TallyKey], job_id: JobId, held: Amounts) -> None:
        """Replace the amounts that a job holds."""
        before, self.held_by[job_id] = self.held_by[job_id], held
        for key in keys:
            tally = self._at(key)
            add(tally.held, before, -1)
            add(tally.held, held)

    def bill(self, keys: Iterable[TallyKey], rate: int) -> None:
        """Add to the billing rates."""
        for key in keys:
            tally = self._at(key)
            tally.rate += rate
            self._drop_if_empty(key, tally)

    def _at(self, key: TallyKey) -> Tally:
        tally = self.by_key.get(key)
        if tally is None:
            tally = self.by_key[key] = Tally()
            if key[2]:
                self.users.setdefault(key[:2], {})[key[2]] = None
        return tally

    def _drop_if_empty(self, key: TallyKey, tally: Tally) -> None:
        if not tally.submitted and tally.is_empty:
            del self.by_key[key]
            if key[2]:
                users = self.users[key[:2]]
                del users[key[2]]
                if not users:
                    del self.users[key[:2]]


_NOTHING = Tally()
