"""What the events of accounts, members, QOS and limits do to the cluster.  Pure (see `gqd.control.apply`)."""

from __future__ import annotations

from gqd.state import event
from gqd.state.cluster import Cluster, LimitKey, Member, limit_key


def apply_account_set(cluster: Cluster, fact: event.AccountSet) -> None:
    cluster.accounts[fact.account.name] = fact.account
    cluster.changes.accounts[fact.account.name] = None


def apply_account_removed(cluster: Cluster, fact: event.AccountRemoved) -> None:
    del cluster.accounts[fact.name]
    cluster.changes.accounts[fact.name] = None


def apply_member_set(cluster: Cluster, fact: event.MemberSet) -> None:
    info = fact.member
    place = (info.user, info.account)
    if place in cluster.members:
        cluster.members[place].info = info
    else:
        member = cluster.members[place] = Member(info)
        member.usage.at = fact.at
    cluster.changes.members[place] = None


def apply_member_removed(cluster: Cluster, fact: event.MemberRemoved) -> None:
    place = (fact.user, fact.account)
    del cluster.members[place]
    cluster.changes.members[place] = None


def apply_qos_set(cluster: Cluster, fact: event.QosSet) -> None:
    cluster.qos[fact.qos.name] = fact.qos
    cluster.changes.qos[fact.qos.name] = None


def apply_qos_removed(cluster: Cluster, fact: event.QosRemoved) -> None:
    del cluster.qos[fact.name]
    cluster.changes.qos[fact.name] = None


def apply_limit_set(cluster: Cluster, fact: event.LimitSet) -> None:
    key = limit_key(fact.limit)
    cluster.limits[key] = fact.limit
    cluster.changes.limits[key] = None


def apply_limit_removed(cluster: Cluster, fact: event.LimitRemoved) -> None:
    key = LimitKey(fact.holder, fact.name, fact.resource, fact.per_user)
    del cluster.limits[key]
    cluster.changes.limits[key] = None
    for budget in [one for one in cluster.budgets if one.limit == key]:
        del cluster.budgets[budget]
        cluster.changes.budgets[budget] = None


def apply_half_life_set(cluster: Cluster, fact: event.HalfLifeSet) -> None:
    for place, member in cluster.members.items():
        member.usage.advance(max(fact.at, member.usage.at), cluster.half_life_s)
        cluster.changes.members[place] = None
    cluster.half_life_s = fact.half_life_s
    cluster.changes.half_life = True
