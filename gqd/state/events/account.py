"""Events of accounts, members, QOS, limits and their periods.  Pure."""

from __future__ import annotations

from gq.model.account import AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gqd.state.events.record import EventBase


class AccountSet(EventBase, frozen=True, kw_only=True):
    """An account was added or changed; the event holds the whole account."""

    account: AccountInfo


class AccountRemoved(EventBase, frozen=True, kw_only=True):
    name: str


class MemberSet(EventBase, frozen=True, kw_only=True):
    """A member was added or changed; the member's usage stays."""

    member: MemberInfo


class MemberRemoved(EventBase, frozen=True, kw_only=True):
    user: str
    account: str
    heir: str = ""
    """Account to which the member's usage is transferred; empty: the usage is forgotten."""


class QosSet(EventBase, frozen=True, kw_only=True):
    qos: QosInfo


class QosRemoved(EventBase, frozen=True, kw_only=True):
    name: str


class LimitSet(EventBase, frozen=True, kw_only=True):
    limit: LimitInfo


class LimitRemoved(EventBase, frozen=True, kw_only=True):
    holder: Holder
    name: str
    resource: str
    per_user: bool = False


class PeriodsBegan(EventBase, frozen=True, kw_only=True):
    """New periods of budgets began at these instants."""

    day_at: float
    week_at: float
    month_at: float


class HalfLifeSet(EventBase, frozen=True, kw_only=True):
    """Usage decays with this half-life from now on (None: it does not decay); earlier usage has decayed as before."""

    half_life_s: float | None
