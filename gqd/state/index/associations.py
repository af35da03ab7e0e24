"""Accounts, members and limits by whom they are looked up for: indices of the cluster.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gq.model.account import BUDGETS, AccountInfo, Holder

if TYPE_CHECKING:
    from gqd.state.cluster import Cluster
    from gqd.state.records import LimitKey

Index = dict[str, dict[str, None]]


@dataclass(slots=True)
class Associations:
    accounts_of_user: Index = field(default_factory=dict)
    users_of_account: Index = field(default_factory=dict)
    coordinated: Index = field(default_factory=dict)
    """By user: accounts that they coordinate themselves, without those below."""
    limits: dict[tuple[Holder, str], dict[LimitKey, None]] = field(default_factory=dict)
    """By whose they are."""

    def set_account(self, before: AccountInfo | None, after: AccountInfo | None) -> None:
        """None: it was not there; it is there no more."""
        if before is not None:
            for user in before.coordinators:
                _drop(self.coordinated, user, before.name)
        if after is not None:
            for user in after.coordinators:
                self.coordinated.setdefault(user, {})[after.name] = None

    def add_member(self, user: str, account: str) -> None:
        self.accounts_of_user.setdefault(user, {})[account] = None
        self.users_of_account.setdefault(account, {})[user] = None

    def drop_member(self, user: str, account: str) -> None:
        _drop(self.accounts_of_user, user, account)
        _drop(self.users_of_account, account, user)

    def add_limit(self, key: LimitKey) -> None:
        self.limits.setdefault((key.holder, key.name), {})[key] = None

    def drop_limit(self, key: LimitKey) -> None:
        of_holder = self.limits[key.holder, key.name]
        del of_holder[key]
        if not of_holder:
            del self.limits[key.holder, key.name]


def _drop(index: Index, key: str, value: str) -> None:
    del index[key][value]
    if not index[key]:
        del index[key]


def recount(cluster: Cluster) -> Associations:
    index = Associations()
    for account in cluster.accounts.values():
        index.set_account(None, account)
    for user, name in cluster.members:
        index.add_member(user, name)
    for key in cluster.limits:
        index.add_limit(key)
    return index


def check(cluster: Cluster) -> None:
    """The index equals one made anew; the tree of accounts is one; whoever submits is a member."""
    assert cluster.associations == recount(cluster), "9: the indices of accounts, members and limits differ from them"
    for job in cluster.jobs.values():
        if job.account and job.end_at is None:
            assert (job.user, job.account) in cluster.members, f"9: {job.user} is not in account {job.account}"
    _check_budgets(cluster)


def _check_budgets(cluster: Cluster) -> None:
    """Each budget is one of a limit that is there, and grows as fast as those run whom it counts."""
    for key in cluster.limits:
        assert key.resource not in BUDGETS or (key, "") in cluster.budgets, f"10: {key} has no budget"
    for place, budget in cluster.budgets.items():
        assert place.limit in cluster.limits, f"10: {place} is the budget of no limit"
        rate = cluster.tallies.of((place.limit.holder, place.limit.name, place.user)).rate
        assert budget.rate == rate, f"10: {place} grows by {budget.rate}, what runs by {rate}"
