"""Events of accounts, members, QOS, limits and their periods.  Pure."""

from __future__ import annotations

from gq.model.account import AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gqd.state.events.record import EventBase


class AccountSet(EventBase, frozen=True, kw_only=True):
    """Added or changed; the whole of it."""

    account: AccountInfo


class AccountRemoved(EventBase, frozen=True, kw_only=True):
    name: str


class MemberSet(EventBase, frozen=True, kw_only=True):
    """Added or changed; what they used stays."""

    member: MemberInfo


class MemberRemoved(EventBase, frozen=True, kw_only=True):
    user: str
    account: str
    heir: str = ""
    """The account for which what they used goes on counting, as theirs; empty: it is forgotten."""


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
    """The day, week and month that budgets count in began at these instants."""

    day_at: float
    week_at: float
    month_at: float


class HalfLifeSet(EventBase, frozen=True, kw_only=True):
    """From now on usage decays so fast; None: it does not.  What was used until now has decayed as before."""

    half_life_s: float | None
