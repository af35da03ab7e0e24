"""Fair-share debt: which users and accounts with jobs are over their fair share, relative to each other.  Pure.

Accounts with the same parent divide their usage by their shares, and so do the users of an account; only accounts and
users that have jobs count.  An account or a user is over its share if its fraction of the usage exceeds its fraction of
the shares.  This gives four *bands*, in order: users under their share in accounts under theirs; users over their share
in accounts under theirs; then the same two for accounts that are over their share, or below an account that is. Two
bits say less than a full ranking on purpose: within a band short jobs go first, whichever user submitted them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TypeAlias

from gq.model.account import ROOT, Holder
from gqd.state.cluster import Cluster
from gqd.state.index.queue import Member
from gqd.state.index.tally import account_path

BANDS = 4
TOLERANCE = 1e-6
"""Relative tolerance, since sums of usage are not exact."""

_Due: TypeAlias = tuple[float, int]
"""(usage, shares)."""
_PathOf: TypeAlias = Callable[[str], tuple[str, ...]]
"""Returns an account followed by its parents."""


def bands(cluster: Cluster, now: float, also: Member | None = None) -> dict[Member, int]:
    """The band (0 to 3, 0 first) of every (user, account) that has jobs.

    `also`: a member to count as if it had a job, too.
    """
    accounts, users = _who_counts(cluster)
    if also is not None:
        path = account_path(cluster.accounts, also[1])
        accounts = list(dict.fromkeys([*accounts, *(one for one in path if one != ROOT)]))
        users = list(dict.fromkeys([*users, also]))
    known = cluster.accounts
    path_of = cache(partial(account_path, known))
    usage, user_usage = _usages(cluster, now, path_of)
    by_parent: dict[str, dict[str, _Due]] = {}
    for name in accounts:
        shares = known[name].shares if name in known else 1
        by_parent.setdefault(path_of(name)[1], {})[name] = (usage.get(name, 0.0), shares)
    over = {name for siblings in by_parent.values() for name in _over(siblings)}
    by_account: dict[str, dict[str, _Due]] = {}
    for user, account in users:
        shares = cluster.members[user, account].info.shares
        by_account.setdefault(account, {})[user] = (user_usage[user, account], shares)
    found = {}
    for account, siblings in by_account.items():
        above = 2 * any(one in over for one in path_of(account))
        more = _over(siblings)
        found.update({(user, account): above + (user in more) for user in siblings})
    return found


def _who_counts(cluster: Cluster) -> tuple[list[str], list[Member]]:
    """(accounts that have jobs themselves or below them, users that have jobs in an account)."""
    places = [(name, user) for holder, name, user in cluster.tallies.by_key if holder is Holder.ACCOUNT]
    accounts = [name for name, user in places if not user and name != ROOT]
    return accounts, [(user, name) for name, user in places if user and (user, name) in cluster.members]


def _usages(cluster: Cluster, now: float, path_of: _PathOf) -> tuple[dict[str, float], dict[Member, float]]:
    """(usage by account including everything below it, usage by member)."""
    users = {}
    own: dict[str, float] = {}
    for place, member in cluster.members.items():
        used = max(0.0, member.usage.value_at(now, cluster.half_life_s))
        users[place] = used
        own[place[1]] = own.get(place[1], 0.0) + used
    whole: dict[str, float] = {}
    for account, used in own.items():
        for above in path_of(account):
            whole[above] = whole.get(above, 0.0) + used
    return whole, users


def _over(siblings: Mapping[str, _Due]) -> set[str]:
    """The names among `siblings` that are over their share."""
    used, shares = _sums(siblings.values())
    if not used:
        return set()
    return {name for name, (own, part) in siblings.items() if own * shares > used * part * (1.0 + TOLERANCE)}


def _sums(dues: Iterable[_Due]) -> _Due:
    used, shares = 0.0, 0
    for own, part in dues:
        used, shares = used + own, shares + part
    return used, shares
