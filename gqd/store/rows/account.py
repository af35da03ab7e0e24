"""Converts accounts, their members and QOS to rows and back.  Pure.  See `gqd.store.rows.rows`."""

from __future__ import annotations

import msgspec

from gq.model.account import AccountInfo, MemberInfo, PreemptMode, QosInfo
from gqd.state.index.usage import DecayedUsage
from gqd.state.records import Member
from gqd.store.protocol import Row

_names_of = msgspec.json.Decoder(tuple[str, ...]).decode


def _json(names: tuple[str, ...]) -> str:
    return msgspec.json.encode(names).decode()


def account_row(account: AccountInfo) -> Row:
    return (
        account.name, account.parent, account.description, account.shares, account.guaranteed_gpus,
        account.borrow_gpus, account.group, _json(account.coordinators), account.default_qos,
    )  # fmt: skip


def account_of(row: Row) -> AccountInfo:
    name, parent, description, shares, guaranteed_gpus, borrow_gpus, group, coordinators, default_qos = row
    return AccountInfo(
        name=name,
        parent=parent,
        description=description,
        shares=shares,
        guaranteed_gpus=guaranteed_gpus,
        borrow_gpus=borrow_gpus,
        group=group,
        coordinators=_names_of(coordinators),
        default_qos=default_qos,
    )


def member_row(member: Member) -> Row:
    info, usage = member.info, member.usage
    return (
        info.user, info.account, info.shares, 1 if info.is_default else 0, 1 if info.from_group else 0, usage.value,
        usage.at, usage.rate,
    )  # fmt: skip


def member_of(row: Row) -> Member:
    user, account, shares, is_default, from_group, usage, usage_at, usage_rate = row
    info = MemberInfo(
        user=user, account=account, shares=shares, is_default=bool(is_default), from_group=bool(from_group)
    )
    return Member(info, DecayedUsage(usage, usage_at, usage_rate))


def qos_row(qos: QosInfo) -> Row:
    return (
        qos.name, qos.description, qos.priority, qos.usage_factor, qos.max_time_s, _json(qos.users),
        _json(qos.groups), _json(qos.accounts), _json(qos.preempts), qos.preempt_mode.value, qos.min_run_s,
        1 if qos.borrows_reserved else 0,
    )  # fmt: skip


def qos_of(row: Row) -> QosInfo:
    (
        name, description, priority, usage_factor, max_time_s, users, groups, accounts, preempts, preempt_mode,
        min_run_s, borrows_reserved,
    ) = row  # fmt: skip
    return QosInfo(
        name=name,
        description=description,
        priority=priority,
        usage_factor=usage_factor,
        max_time_s=max_time_s,
        users=_names_of(users),
        groups=_names_of(groups),
        accounts=_names_of(accounts),
        preempts=_names_of(preempts),
        preempt_mode=PreemptMode(preempt_mode),
        min_run_s=min_run_s,
        borrows_reserved=bool(borrows_reserved),
    )
