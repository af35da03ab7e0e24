"""Requests about accounts, QOS, limits and shares, and what is answered to them; part of `gq.wire.client`."""

from __future__ import annotations

import msgspec

from gq.model.account import AccountInfo, LimitInfo, MemberInfo, QosInfo, ShareInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of these bodies: tagged with the class name."""


class SetAccount(_Body, frozen=True, kw_only=True):
    """Add an account, or give one that is there these values (all of them).  → `Done`"""

    account: AccountInfo
    is_new: bool = False
    """Refused if it is there; else refused if it is not."""


class RemoveAccount(_Body, frozen=True, kw_only=True):
    """Refused while it has members, accounts below it or jobs.  → `Done`"""

    name: str


class SetMember(_Body, frozen=True, kw_only=True):
    """Add a user to an account, or change what they are in it.  → `Done`"""

    member: MemberInfo
    is_new: bool = False


class RemoveMember(_Body, frozen=True, kw_only=True):
    """Refused while they have jobs there.  → `Done`"""

    user: str
    account: str


class SetQos(_Body, frozen=True, kw_only=True):
    """As `SetAccount`.  → `Done`"""

    qos: QosInfo
    is_new: bool = False


class RemoveQos(_Body, frozen=True, kw_only=True):
    """Refused while jobs have it.  → `Done`"""

    name: str


class SetLimit(_Body, frozen=True, kw_only=True):
    """Set or change a limit.  What is queued or runs already is not touched.  → `Done`"""

    limit: LimitInfo


class RemoveLimit(_Body, frozen=True, kw_only=True):
    """→ `Done`"""

    holder: str
    name: str
    resource: str
    per_user: bool = False


class ListAccounts(_Body, frozen=True, kw_only=True):
    """Accounts, members, QOS and limits; all of them, or those that name one of these.  → `Accounts`"""

    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Of the answer before, its ``last``."""
    limit: int | None = None
    """Lines of all kinds in one answer; None, as the version before asks: all of them."""


class ListShares(_Body, frozen=True, kw_only=True):
    """The fair-share tree as it stands.  → `Shares`"""

    accounts: tuple[str, ...] = ()
    """Only these and what is below them."""
    users: tuple[str, ...] = ()
    explain: str = ""
    """A user: ``why`` says in words why they stand where they stand."""


class Accounts(_Body, frozen=True, kw_only=True):
    accounts: tuple[AccountInfo, ...]
    members: tuple[MemberInfo, ...] = ()
    qos: tuple[QosInfo, ...] = ()
    limits: tuple[LimitInfo, ...] = ()
    defaults: dict[str, str] = {}
    """By user of the members: the account that jobs go to which name none."""
    past: tuple[tuple[str, str], ...] = ()
    """(user, account) of members who may not use it any more: they are there for what was used in it."""
    more: bool = False
    last: tuple[str, ...] = ()
    """``last``: ask on with ``after`` = this, while ``more`` is true."""


class Shares(_Body, frozen=True, kw_only=True):
    lines: tuple[ShareInfo, ...]
    half_life_s: float | None = None
    """None: nothing decays."""
    why: str = ""
