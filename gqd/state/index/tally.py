"""What every user, account and QOS has in the queue and holds: counted as it changes, since limits ask all the time.

An index of the cluster, equal to a recount (`Cluster.check`).  Pure.

Counted are, for each holder of limits and for each user of each account and QOS: what is *submitted* (by the request,
from the submission to the end; an array's record as all of its tasks that wait), how many jobs of that are *pending*,
what is *held* (by the grants, from the allocation until the job has left the attempt), and the *rate* at which it is
billed (while it runs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gq.model.account import DEFAULT_ACCOUNT, ROOT, AccountInfo, Holder
from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest, as_request, min_demand

Amounts = dict[str, int]
"""By resource: ``jobs``, ``gpus``, ``cpus``, ``memory`` (MiB), and ``gpus:TYPE``; what is 0 is not there."""

Place = tuple[Holder, str, str]
"""Whose it is: the holder, its name, and of an account or a QOS the user ('': all of them)."""


def add(amounts: Amounts, more: Mapping[str, int], times: int = 1) -> None:
    for name, amount in more.items():
        left = amounts.get(name, 0) + amount * times
        if left:
            amounts[name] = left
        else:
            amounts.pop(name, None)


@lru_cache(maxsize=4096)
def asked_amounts(request: ResourceRequest) -> Mapping[str, int]:
    """The least that one job or task of this request comes to."""
    demand = min_demand(request)
    amounts: Amounts = {"jobs": 1}
    add(amounts, {"gpus": demand.gpus, "cpus": demand.cpus, "memory": demand.memory_mib})
    for one in [as_request(role.resources) for role in request.roles] or [request]:
        if one.gpu_type:
            add(amounts, {f"gpus:{one.gpu_type}": min_demand(one).gpus})
    return amounts


def granted_amounts(grants: Iterable[Grant], types: Mapping[str, Mapping[int, str]]) -> Amounts:
    """What grants come to; `types`: by node and GPU."""
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
    submitted: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    pending: int = 0
    rate: int = 0
    """Millionths of a weighted GPU."""

    @property
    def is_empty(self) -> bool:
        return not self.submitted and not self.held and not self.pending and not self.rate


def account_path(accounts: Mapping[str, AccountInfo], name: str) -> tuple[str, ...]:
    """The account and those above it, the root last."""
    path = [name or DEFAULT_ACCOUNT]
    while path[-1] != ROOT:
        above = accounts.get(path[-1])
        parent = ROOT if above is None or above.parent in path else above.parent
        path.append(parent)
    return tuple(path)


def places_of(user: str, path: Iterable[str], qos: str) -> list[Place]:
    """All that a job of this user counts for."""
    places: list[Place] = [(Holder.USER, user, ""), (Holder.QOS, qos, ""), (Holder.QOS, qos, user)]
    for account in path:
        places += [(Holder.ACCOUNT, account, ""), (Holder.ACCOUNT, account, user)]
    return places


@dataclass(slots=True)
class Tallies:
    """By place; empty ones are not there."""

    by_place: dict[Place, Tally] = field(default_factory=dict)
    users: dict[tuple[Holder, str], dict[str, None]] = field(default_factory=dict)
    """Who has something in an account or a QOS."""
    held_by: dict[JobId, Amounts] = field(default_factory=dict)
    """What each job's attempt holds; GPU types are those that its nodes had when it was given them."""
    known_places: dict[tuple[str, str, str], list[Place]] = field(default_factory=dict)
    """By user, account and QOS, as the tree of accounts is now."""

    def of(self, place: Place) -> Tally:
        """Not to be changed."""
        return self.by_place.get(place, _NOTHING)

    def wait(self, places: Iterable[Place], asked: Mapping[str, int], count: int) -> None:
        """So many more jobs or tasks wait; a negative number: fewer."""
        amounts = asked if count == 1 else {name: amount * count for name, amount in asked.items()}
        self.add_waiting(places, amounts, count)

    def add_waiting(self, places: Iterable[Place], amounts: Mapping[str, int], count: int) -> None:
        """`amounts`: of all these together."""
        for place in places:
            tally = self.by_place.get(place) or self._at(place)
            tally.pending += count
            if count < 0:
                add(tally.submitted, amounts)
                self._settle(place, tally)
                continue
            submitted = tally.submitted
            for name, amount in amounts.items():  # with every submission, seven times: nothing comes to 0 here
                submitted[name] = submitted.get(name, 0) + amount

    def hold(self, places: Iterable[Place], job_id: JobId, held: Amounts) -> None:
        """One that waited was given this."""
        self.held_by[job_id] = held
        for place in places:
            tally = self._at(place)
            add(tally.held, held)
            tally.pending -= 1
            self._settle(place, tally)

    def free(self, places: Iterable[Place], job_id: JobId, asked: Mapping[str, int] | None) -> None:
        """It holds nothing any more, and waits again (`asked` None) or has ended."""
        held = self.held_by.pop(job_id)
        for place in places:
            tally = self._at(place)
            add(tally.held, held, -1)
            if asked is None:
                tally.pending += 1
            else:
                add(tally.submitted, asked, -1)
            self._settle(place, tally)

    def change(self, places: Iterable[Place], job_id: JobId, held: Amounts) -> None:
        """It holds this in place of what it held."""
        before, self.held_by[job_id] = self.held_by[job_id], held
        for place in places:
            tally = self._at(place)
            add(tally.held, before, -1)
            add(tally.held, held)

    def bill(self, places: Iterable[Place], rate: int) -> None:
        """So much more is billed from now on."""
        for place in places:
            tally = self._at(place)
            tally.rate += rate
            self._settle(place, tally)

    def _at(self, place: Place) -> Tally:
        tally = self.by_place.get(place)
        if tally is None:
            tally = self.by_place[place] = Tally()
            if place[2]:
                self.users.setdefault(place[:2], {})[place[2]] = None
        return tally

    def _settle(self, place: Place, tally: Tally) -> None:
        if not tally.submitted and tally.is_empty:
            del self.by_place[place]
            if place[2]:
                users = self.users[place[:2]]
                del users[place[2]]
                if not users:
                    del self.users[place[:2]]


_NOTHING = Tally()
