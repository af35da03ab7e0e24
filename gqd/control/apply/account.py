"""Apply the events of accounts, members and QOS to the cluster.  Pure (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.account import Holder, MemberInfo
from gqd.control.apply import limit
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index import job_tally
from gqd.state.index.usage import MAX_HALF_LIVES
from gqd.state.records import Member


def apply_account_set(cluster: Cluster, fact: event.AccountSet) -> None:
    account, before = fact.account, cluster.accounts.get(fact.account.name)
    cluster.accounts[account.name] = account
    cluster.changes.accounts[account.name] = None
    cluster.associations.set_account(before, account)
    if before is None or before.parent != account.parent:
        _move_counts(cluster, account.name, fact.at)


def _move_counts(cluster: Cluster, account: str, at: float) -> None:
    """Recount all tallies after an account has moved in the tree: its jobs count for other accounts now."""
    cluster.tallies.cached_keys.clear()
    if (Holder.ACCOUNT, account, "") in cluster.tallies.by_key:
        job_tally.rebuild(cluster)
        limit.reconcile_rates(cluster, at)


def apply_account_removed(cluster: Cluster, fact: event.AccountRemoved) -> None:
    cluster.associations.set_account(cluster.accounts.pop(fact.name), None)
    cluster.tallies.cached_keys.clear()
    cluster.changes.accounts[fact.name] = None


def apply_member_set(cluster: Cluster, fact: event.MemberSet) -> None:
    info = fact.member
    place = (info.user, info.account)
    if place in cluster.members:
        cluster.members[place].info = info
    else:
        member = cluster.members[place] = Member(info)
        member.usage.at = fact.at
        cluster.associations.add_member(*place)
    cluster.changes.members[place] = None


def apply_member_removed(cluster: Cluster, fact: event.MemberRemoved) -> None:
    place = (fact.user, fact.account)
    member = cluster.members.pop(place)
    cluster.associations.drop_member(*place)
    cluster.changes.members[place] = None
    if fact.heir:
        _bequeath(cluster, member, (fact.user, fact.heir), fact.at)


def _bequeath(cluster: Cluster, member: Member, place: tuple[str, str], at: float) -> None:
    """Add the usage of a removed member to the same user in another account."""
    if place not in cluster.members:
        user, account = place
        info = MemberInfo(user=user, account=account, from_group=True)
        apply_member_set(cluster, event.MemberSet(at=at, member=info))
    usage = cluster.members[place].usage
    usage.advance(max(at, usage.at), cluster.half_life_s)
    usage.value += member.usage.value_at(usage.at, cluster.half_life_s)
    cluster.changes.members[place] = None


def apply_qos_set(cluster: Cluster, fact: event.QosSet) -> None:
    cluster.qos[fact.qos.name] = fact.qos
    cluster.changes.qos[fact.qos.name] = None


def apply_qos_removed(cluster: Cluster, fact: event.QosRemoved) -> None:
    del cluster.qos[fact.name]
    cluster.changes.qos[fact.name] = None


def apply_half_life_set(cluster: Cluster, fact: event.HalfLifeSet) -> None:
    for place, member in cluster.members.items():
        member.usage.advance(max(fact.at, member.usage.at), cluster.half_life_s)
        cluster.changes.members[place] = None
    if cluster.members:
        cluster.half_lives = (*cluster.half_lives, (fact.at, cluster.half_life_s))[-MAX_HALF_LIVES:]
    cluster.half_life_s = fact.half_life_s
    cluster.changes.half_life = True
