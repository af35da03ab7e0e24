"""Lists of accounts, members, QOS and limits, a page at a time.  Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gq.model.account import DEFAULT_ACCOUNT, ROOT, AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo, with_built_in
from gq.wire import client
from gqd.control.accounts import limit
from gqd.control.accounts.association import account_named, accounts_as_last_seen, default_among
from gqd.state.cluster import Cluster
from gqd.state.index.tally import account_path

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

Key = tuple[str, ...]
"""Sort key of a line among the lines of its kind; with the kind it is where the next page continues."""
_Line = AccountInfo | MemberInfo | QosInfo | LimitInfo
_Lines = Mapping[Key, _Line]


def list_accounts(draft: TurnBuilder, body: client.ListAccounts, most: int | None) -> client.Accounts:
    """A page of at most `most` records after ``after``: all, or those of the named accounts, users or QOS."""
    cluster = draft.cluster
    found = _found(cluster, body, None if most is None else most + 1)
    page = found[:most]
    shown = [line for _, line in page]
    members = tuple([one for one in shown if isinstance(one, MemberInfo)])
    usable = {user: accounts_as_last_seen(cluster, user) for user in dict.fromkeys(member.user for member in members)}
    limits = [one for one in shown if isinstance(one, LimitInfo)]
    return client.Accounts(
        defaults={user: default_among(cluster, user, names) for user, names in usable.items()},
        past=tuple([(member.user, member.account) for member in members if member.account not in usable[member.user]]),
        accounts=tuple([one for one in shown if isinstance(one, AccountInfo)]),
        members=members,
        qos=tuple([one for one in shown if isinstance(one, QosInfo)]),
        limits=tuple([limit.with_used(cluster, draft.policy, one, draft.now) for one in limits]),
        more=len(found) > len(page),
        last=page[-1][0] if page else (),
    )


def _found(cluster: Cluster, body: client.ListAccounts, most: int | None) -> list[tuple[Key, _Line]]:
    """The first lines of the page; kinds that the page does not reach are not computed."""
    found: list[tuple[Key, _Line]] = []
    kind_before = body.after[0] if body.after else ""
    for kind, lines_of in _KINDS.items():
        if kind < kind_before:
            continue
        left = None if most is None else most - len(found)
        if left == 0:
            break
        lines = lines_of(cluster, body)
        behind = (key for key in lines if (kind, *key) > body.after)
        keys = sorted(behind) if left is None else heapq.nsmallest(left, behind)
        found += [((kind, *key), lines[key]) for key in keys]
    return found


# ── each kind ─────────────────────────────────────────────────────────────────────────────────────────────────


def _is_all(body: client.ListAccounts) -> bool:
    return not (body.accounts or body.users or body.qos)


def _accounts(cluster: Cluster, body: client.ListAccounts) -> _Lines:
    """Sort key of an account: its path from the root, with the default account before its siblings."""
    names = {ROOT: None, DEFAULT_ACCOUNT: None, **cluster.accounts}
    if not _is_all(body):
        of_users = {account for user, account in cluster.members if user in body.users}
        names = {name: None for name in names if name in body.accounts or name in of_users}
    lines: dict[Key, _Line] = {}
    for name in names:
        account = account_named(cluster, name)
        depth = len(account_path(cluster.accounts, name))
        if account is not None:
            lines[f"{depth:03}", "" if name == DEFAULT_ACCOUNT else name] = account
    return lines


def _members(cluster: Cluster, body: client.ListAccounts) -> _Lines:
    members = cluster.members
    if _is_all(body):
        return {key: one.info for key, one in members.items()}
    return {
        (user, account): one.info
        for (user, account), one in members.items()
        if account in body.accounts or user in body.users
    }


def _qos(cluster: Cluster, body: client.ListAccounts) -> _Lines:
    known = with_built_in(cluster.qos)
    return {(name,): one for name, one in known.items() if _is_all(body) or name in body.qos}


def _limits(cluster: Cluster, body: client.ListAccounts) -> _Lines:
    wanted = {Holder.ACCOUNT: body.accounts, Holder.USER: body.users, Holder.QOS: body.qos}
    return {
        (key.holder.value, key.name, key.resource, "per user" if key.per_user else ""): one
        for key, one in cluster.limits.items()
        if _is_all(body) or key.name in wanted[key.holder]
    }


_KINDS: dict[str, Callable[[Cluster, client.ListAccounts], _Lines]] = {
    "1 account": _accounts,
    "2 member": _members,
    "3 qos": _qos,
    "4 limit": _limits,
}
"""The kinds of records, in the order of the list."""
