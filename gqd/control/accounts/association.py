"""Associations: the account and QOS of a job, and whether its owner may use them and the partition.  Pure; no changes.

Access lists are checked when a job is submitted or moved, since only then the groups of the user are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gq.errors import Refusal
from gq.model.account import (
    BUILT_IN_QOS,
    DEFAULT_ACCOUNT,
    NORMAL_QOS,
    ROOT,
    AccountInfo,
    MemberInfo,
    QosInfo,
    with_built_in,
)
from gq.model.nodelist import compress
from gq.model.resource import ResourceRequest, Role, as_request, as_role, min_demand
from gq.near_miss import nearest
from gq.units import format_duration, spoken_duration
from gq.wire import client
from gqd.sched.limits.access import is_listed
from gqd.sched.request import Shape
from gqd.state.cluster import Cluster
from gqd.state.index.tally import account_path
from gqd.state.policy import Partition, Policy
from gqd.state.records import Job

MAX_LISTED = 8


class User(NamedTuple):
    """The owner of a job, with the Unix groups as far as they are known."""

    name: str
    groups: tuple[str, ...] = ()


class Association(NamedTuple):
    """The account and QOS that a job runs under."""

    account: str
    qos: QosInfo
    member: MemberInfo | None
    """The member to add before the job: the user is in the account (by group) but not in its list yet; else None."""


def account_named(cluster: Cluster, name: str) -> AccountInfo | None:
    """The account of that name, or None; the root and the default account always exist."""
    known = cluster.accounts.get(name)
    return AccountInfo(name=name) if known is None and name in (ROOT, DEFAULT_ACCOUNT) else known


def qos_named(cluster: Cluster, name: str) -> QosInfo | None:
    return cluster.qos.get(name) or BUILT_IN_QOS.get(name)


def known_account(cluster: Cluster, name: str) -> AccountInfo:
    """The account of that name, or a `Refusal` with the nearest name."""
    account = account_named(cluster, name)
    if account is None:
        raise _unknown("account", name, [ROOT, DEFAULT_ACCOUNT, *cluster.accounts], "gqctl account show lists them")
    return account


def known_qos(cluster: Cluster, name: str) -> QosInfo:
    qos = qos_named(cluster, name)
    if qos is None:
        raise _unknown("QOS", name, list(with_built_in(cluster.qos)), "gqctl qos show lists them")
    return qos


def unknown_of_partitions(cluster: Cluster, partitions: Iterable[Partition]) -> list[str]:
    """Sentences about nodes, accounts and QOS that gq.toml names in partitions and that the cluster does not know."""
    is_new = not cluster.nodes  # the nodes of a new cluster have still to register
    found = []
    for partition in partitions:
        nodes = () if is_new else partition.missing_nodes(cluster.nodes)
        accounts = [name for name in partition.accounts if account_named(cluster, name) is None]
        qos = [name for name in partition.qos if qos_named(cluster, name) is None]
        if nodes:
            found.append(f"partition `{partition.name}` names nodes that have never registered: {compress(nodes)}")
        if accounts:
            found.append(f"partition `{partition.name}` names accounts that do not exist: {', '.join(accounts)}")
        if qos:
            found.append(f"partition `{partition.name}` names QOS that do not exist: {', '.join(qos)}")
    return found


def _unknown(noun: str, name: str, names: list[str], hint: str) -> Refusal:
    close = nearest(name, list(dict.fromkeys(names)))
    return Refusal(f"unknown_{noun.lower()}", f"{noun} `{name[:80]}` does not exist", _or(close, hint))


def _or(close: str, hint: str) -> str:
    return f"did you mean `{close}`? {hint}" if close else hint


# ── choice ────────────────────────────────────────────────────────────────────────────────────────────────────


def associate(
    cluster: Cluster, policy: Policy, user: User, partition: Partition, account: str | None, qos: str | None
) -> Association:
    """The account and QOS of a job of this user, as asked or by default; `Refusal` if the user may not use them."""
    chosen = _default_account(cluster, policy, user) if account is None else _asked_account(cluster, user, account)
    is_member = (user.name, chosen) in cluster.members
    member = None if is_member else MemberInfo(user=user.name, account=chosen, from_group=True)
    known = known_qos(cluster, qos or _default_qos(cluster, chosen))
    refuse_qos(cluster, user, chosen, known)
    refuse_partition(cluster, user, chosen, known.name, partition)
    return Association(chosen, known, member)


def moved(
    cluster: Cluster,
    policy: Policy,
    job: Job,
    body: client.UpdateJob,
    partition: Partition,
    groups: tuple[str, ...] | None,
) -> tuple[str, QosInfo]:
    """(account, QOS) of a job after an update; `Refusal` if its owner may not use them.

    `groups`: the owner's groups, as far as they are known; None: an operator asks, who may ignore access lists.
    """
    account = job.account or DEFAULT_ACCOUNT
    user = User(job.user, groups or ())
    if body.account is not None:
        if groups is None and account_named(cluster, body.account) is not None and body.account != ROOT:
            account = body.account
        else:
            account = _asked_account(cluster, user, body.account)
    qos = known_qos(cluster, body.qos or job.qos)
    if groups is not None and (body.qos is not None or body.account is not None):
        refuse_qos(cluster, user, account, qos)
    if {body.partition, body.qos, body.account} != {None}:
        refuse_partition(cluster, user, account, qos.name, partition if groups is not None else unlisted(partition))
    return account, qos


def unlisted(partition: Partition) -> Partition:
    """The partition without its access lists, except for its list of QOS."""
    return msgspec.structs.replace(partition, users=(), groups=(), accounts=())


def accounts_of(cluster: Cluster, user: User) -> list[str]:
    """The accounts that the user may use: by list, then by Unix group; the default account if there is no other."""
    listed = sorted(name for name in _listed(cluster, user) if name != DEFAULT_ACCOUNT)
    grouped = sorted(
        account.name for account in cluster.accounts.values() if account.group and account.group in user.groups
    )
    return _or_default(cluster, user.name, list(dict.fromkeys([*listed, *grouped])))


def accounts_as_last_seen(cluster: Cluster, user: str) -> list[str]:
    """The accounts of a user whose groups are unknown: those of the last jobs are assumed."""
    members = [cluster.members[user, name].info for name in cluster.associations.accounts_of_user.get(user, ())]
    known = [cluster.accounts.get(member.account) for member in members if member.from_group]
    groups = tuple(account.group for account in known if account is not None and account.group)
    return _or_default(
        cluster, user, sorted(one for one in _listed(cluster, User(user, groups)) if one != DEFAULT_ACCOUNT)
    )


def _or_default(cluster: Cluster, user: str, names: list[str]) -> list[str]:
    by_hand = cluster.members.get((user, DEFAULT_ACCOUNT))
    if not names or (by_hand is not None and not by_hand.info.from_group):
        names.append(DEFAULT_ACCOUNT)
    return names


def _listed(cluster: Cluster, user: User) -> Iterable[str]:
    for name in cluster.associations.accounts_of_user.get(user.name, ()):
        member, account = cluster.members[user.name, name], cluster.accounts.get(name)
        if not member.info.from_group or (account is not None and account.group in user.groups):
            yield name


def _default_account(cluster: Cluster, policy: Policy, user: User) -> str:
    names = accounts_of(cluster, user)
    is_nowhere = names == [DEFAULT_ACCOUNT] and _is_in_by_default(cluster, user)
    if policy.accounting.require and is_nowhere:
        message = f"user {user.name} is in no account, and this cluster accepts jobs only from members of an account"
        raise Refusal("no_account", message, f"ask for `gqctl user add {user.name} --account=NAME`")
    return default_among(cluster, user.name, names)


def default_among(cluster: Cluster, user: str, names: list[str]) -> str:
    """The user's marked default account among `names`, else the first of them."""
    members = (cluster.members.get((user, name)) for name in names)
    named = (member.info.account for member in members if member is not None and member.info.is_default)
    return next(named, names[0])


def _is_in_by_default(cluster: Cluster, user: User) -> bool:
    member = cluster.members.get((user.name, DEFAULT_ACCOUNT))
    return member is None or member.info.from_group


def _asked_account(cluster: Cluster, user: User, name: str) -> str:
    known_account(cluster, name)
    names = accounts_of(cluster, user)
    if name not in names:
        listed = ", ".join(f"`{name}`" for name in names[:MAX_LISTED])
        raise Refusal("not_member", f"user {user.name} is not in account `{name}`", f"you may use {listed}")
    return name


def _default_qos(cluster: Cluster, account: str) -> str:
    """The default QOS of the account, else that of the nearest account above it."""
    for name in account_path(cluster.accounts, account) if cluster.accounts else ():
        known = cluster.accounts.get(name)
        if known is not None and known.default_qos:
            return known.default_qos
    return NORMAL_QOS


# ── access ──────────────────────────────────────────────────────────────────────────────────────────────


def _may_use(what: Partition | QosInfo, cluster: Cluster, user: User, account: str) -> bool:
    if not (what.users or what.groups or what.accounts):
        return True  # the usual case
    return is_listed(what, user.name, user.groups, account_path(cluster.accounts, account))


def refuse_qos(cluster: Cluster, user: User, account: str, qos: QosInfo) -> None:
    if not _may_use(qos, cluster, user, account):
        message = f"QOS `{qos.name}` is not for user {user.name} in account `{account}`: it is for {_whom(qos)}"
        raise Refusal("qos_access", message, "choose another with --qos; gqctl qos show lists them")


def refuse_partition(cluster: Cluster, user: User, account: str, qos: str, partition: Partition) -> None:
    if not _may_use(partition, cluster, user, account):
        message = f"partition `{partition.name}` is not for user {user.name} in account `{account}`"
        message = f"{message}: it is for {_whom(partition)}"
        raise Refusal("partition_access", message, "choose another with --partition; gqinfo lists them")
    if partition.qos and qos not in partition.qos:
        listed = ", ".join(f"`{one}`" for one in partition.qos[:MAX_LISTED])
        message = f"partition `{partition.name}` does not accept jobs of QOS `{qos}`"
        raise Refusal("partition_qos", message, f"ask for one of {listed} with --qos, or another partition")


def _whom(listed: QosInfo | Partition) -> str:
    """``users ada, bob; group ml; accounts nlp``"""
    parts = []
    for noun, names in (("user", listed.users), ("group", listed.groups), ("account", listed.accounts)):
        if names:
            more = ", …" if len(names) > MAX_LISTED else ""
            parts.append(f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names[:MAX_LISTED])}{more}")
    return "; ".join(parts)


def refuse_nodes(partition: Partition, shape: Shape) -> None:
    most = partition.max_nodes
    if most is not None and shape.nodes_min > most:
        message = f"the job asks for {shape.nodes_min} nodes; partition `{partition.name}` allows at most {most} a job"
        raise Refusal("max_nodes", message, f"ask for at most --nodes={most}, or another partition")


# ── what is filled in ─────────────────────────────────────────────────────────────────────────────────────────


def with_defaults(request: ResourceRequest, partition: Partition) -> ResourceRequest:
    """The request with the partition's CPUs and memory per GPU, where it has GPUs and says nothing of these."""
    cpus, memory_mib = partition.default_cpus_per_gpu, partition.default_mem_per_gpu_mib
    if (cpus is None and memory_mib is None) or not min_demand(request).gpus:
        return request
    if request.roles:
        roles = tuple(_role_with_defaults(role, partition) for role in request.roles)
        return msgspec.structs.replace(request, roles=roles)
    says_memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib) != (None, None, None)
    if cpus is not None and request.cpus_per_task is None and request.cpus_per_gpu is None:
        request = msgspec.structs.replace(request, cpus_per_gpu=cpus)
    if memory_mib is not None and not says_memory:
        request = _with_memory(request, memory_mib)
    return request


def _with_memory(request: ResourceRequest, per_gpu_mib: int) -> ResourceRequest:
    """An elastic job has that of its least, since it keeps its memory while its GPUs change."""
    if request.most_gpus is not None:
        return msgspec.structs.replace(request, mem_per_node_mib=per_gpu_mib * (request.gpus or 1))
    return msgspec.structs.replace(request, mem_per_gpu_mib=per_gpu_mib)


def _role_with_defaults(role: Role, partition: Partition) -> Role:
    return as_role(role.name, with_defaults(as_request(role.resources), partition))


def time_limit_under(qos: QosInfo, asked_s: int | None, time_limit_s: int | None) -> int | None:
    """The job's time limit under that of its QOS: what was asked for is refused, what was filled in is cut."""
    most = qos.max_time_s
    if most is None or (time_limit_s is not None and time_limit_s <= most):
        return time_limit_s
    if asked_s is None:
        return most
    raise too_long(asked_s, f"QOS `{qos.name}`", most, ", or another QOS")


def too_long(asked_s: int, whose: str, most: int, otherwise: str = "") -> Refusal:
    """A time limit that was asked for is over the maximum; 0 asks for none."""
    asked = spoken_duration(asked_s) if asked_s else "unlimited"
    message = f"the time limit ({asked}) exceeds the maximum of {whose}, {spoken_duration(most)}"
    return Refusal("time_limit", message, f"ask for at most --time={format_duration(most)}{otherwise}")
