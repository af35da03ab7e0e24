"""Requests about accounts, QOS, limits and shares, and their answers; part of `gq.wire.client`."""

from __future__ import annotations

import msgspec

from gq.model.account import AccountInfo, LimitInfo, MemberInfo, QosInfo, ShareInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of the bodies in this module: tagged with the class name."""


class SetAccount(_Body, frozen=True, kw_only=True):
    """Add an account, or replace all values of an existing account.  → `Done`"""

    account: AccountInfo
    is_new: bool = False
    """True: refused if the account exists; False: refused if it does not."""


class RemoveAccount(_Body, frozen=True, kw_only=True):
    """Remove an account; refused while it has members, accounts below it or jobs.  → `Done`"""

    name: str


class SetMember(_Body, frozen=True, kw_only=True):
    """Add a user to an account, or change the membership.  → `Done`"""

    member: MemberInfo
    is_new: bool = False


class RemoveMember(_Body, frozen=True, kw_only=True):
    """Remove a user from an account; refused while the user has jobs in it.  → `Done`"""

    user: str
    account: str


class SetQos(_Body, frozen=True, kw_only=True):
    """Add a QOS, or replace all values of an existing QOS, as `SetAccount`.  → `Done`"""

    qos: QosInfo
    is_new: bool = False


class RemoveQos(_Body, frozen=True, kw_only=True):
    """Remove a QOS; refused while jobs have it.  → `Done`"""

    name: str


class SetLimit(_Body, frozen=True, kw_only=True):
    """Set or change a limit; jobs that are queued or running are not affected.  → `Done`"""

    limit: LimitInfo


class RemoveLimit(_Body, frozen=True, kw_only=True):
    """Remove a limit.  → `Done`"""

    holder: str
    name: str
    resource: str
    per_user: bool = False


class ListAccounts(_Body, frozen=True, kw_only=True):
    """List accounts, members, QOS and limits: all, or the entries that name one of these.  → `Accounts`"""

    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """``last`` of the previous answer."""
    limit: int | None = None
    """Maximum number of lines of all kinds in one answer; None, from clients of the previous version: all lines."""


class ListShares(_Body, frozen=True, kw_only=True):
    """Query the current fair-share tree.  → `Shares`"""

    accounts: tuple[str, ...] = ()
    """Only these accounts and everything below them."""
    users: tuple[str, ...] = ()
    explain: str = ""
    """A user; the answer's ``why`` explains the user's fair share in sentences."""


class Accounts(_Body, frozen=True, kw_only=True):
    accounts: tuple[AccountInfo, ...]
    members: tuple[MemberInfo, ...] = ()
    qos: tuple[QosInfo, ...] = ()
    limits: tuple[LimitInfo, ...] = ()
    defaults: dict[str, str] = {}
    """User among the members → default account."""
    past: tuple[tuple[str, str], ...] = ()
    """(user, account) of members who may not use the account any more and are listed only for their past usage."""
    more: bool = False
    last: tuple[str, ...] = ()
    """Value of ``after`` in the next request, while ``more`` is true."""


class Shares(_Body, frozen=True, kw_only=True):
    lines: tuple[ShareInfo, ...]
    half_life_s: float | None = None
    """None: usage does not decay."""
    why: str = ""
