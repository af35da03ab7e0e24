"""Index of accounts, members and limits by user, account and holder.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gq.model.account import AccountInfo, Holder
from gqd.state.records import LimitKey

Index = dict[str, dict[str, None]]


@dataclass(slots=True)
class Associations:
    """The indices over `Cluster.accounts`, `Cluster.members` and `Cluster.limits`."""

    accounts_of_user: Index = field(default_factory=dict)
    users_of_account: Index = field(default_factory=dict)
    coordinated: Index = field(default_factory=dict)
    """User → accounts that the user coordinates directly, without the accounts below them."""
    limits: dict[tuple[Holder, str], dict[LimitKey, None]] = field(default_factory=dict)
    """(holder, name) → limits of the holder."""

    @classmethod
    def of(
        cls, accounts: Iterable[AccountInfo], members: Iterable[tuple[str, str]], limits: Iterable[LimitKey]
    ) -> Associations:
        """Build the index of these accounts, members (user, account) and limits."""
        index = cls()
        for account in accounts:
            index.set_account(None, account)
        for user, name in members:
            index.add_member(user, name)
        for key in limits:
            index.add_limit(key)
        return index

    def set_account(self, before: AccountInfo | None, after: AccountInfo | None) -> None:
        """Replace an account; `before` is None for a new account, `after` is None for a removed one."""
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
