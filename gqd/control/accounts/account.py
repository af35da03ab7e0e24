"""Accounts, members and QOS: set and remove them.  Pure.

Invariants: the account tree has no cycles, nothing that a job needs is removed, and the guarantees below an account
never exceed its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gq.errors import Refusal
from gq.model.account import (
    BUILT_IN_QOS,
    DEFAULT_ACCOUNT,
    NORMAL_QOS,
    ROOT,
    AccountInfo,
    Holder,
    MemberInfo,
    PreemptMode,
    QosInfo,
    with_built_in,
)
from gq.model.state import JobState
from gq.wire import client
from gqd.control.access import Caller, Denied, Role
from gqd.control.accounts import limit
from gqd.control.accounts.association import (
    account_named,
    known_account,
    known_qos,
    qos_named,
)
from gqd.control.accounts.names import refuse_bad_name, refuse_bad_user, refuse_too_many
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.tally import account_path

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_TEXT = 200
MAX_FACTOR = 1_000_000.0
MAX_DEPTH = 32
"""Levels of the account tree, the root included."""
MAX_SECONDS = 2**31
FORGOTTEN_S = 1.0
"""Usage below this many weighted GPU-seconds counts as none."""
MEMBERS_PER_ACCOUNT = 10
"""The limit of members, as a multiple of `limits.accounts`."""


# ── accounts ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_set_account(draft: TurnBuilder, caller: Caller, body: client.SetAccount) -> client.Done:
    account, cluster = body.account, draft.cluster
    refuse_bad_name("account", account.name)
    before = cluster.accounts.get(account.name)
    _refuse_wrong_newness("account", account.name, account_named(cluster, account.name) is not None, body.is_new)
    _refuse_bad_account(cluster, account)
    if before is None:
        refuse_too_many(draft)
    if caller.role < Role.OPERATOR:
        _refuse_more_than_own(caller, cluster, before, account)
    _refuse_guarantees(cluster, account)
    if before != account:
        draft.emit(event.AccountSet(at=draft.now, account=account))
    return client.Done()


def _refuse_bad_account(cluster: Cluster, account: AccountInfo) -> None:
    name = account.name
    if name == ROOT and account.parent != ROOT:
        raise Refusal("bad_parent", f"`{ROOT}` is the top of the tree: it has no parent", "leave --parent out")
    known_account(cluster, account.parent)
    if name != ROOT and name in account_path(cluster.accounts, account.parent):
        message = f"account `{name}` cannot be below `{account.parent}`, which is `{name}` itself or below it"
        raise Refusal("cycle", message, "choose a parent that is not below it; gqctl account show prints the tree")
    _refuse_too_deep(cluster, account)
    _refuse_bad_text("description", account.description)
    if account.group:
        refuse_bad_user("group", account.group)
    for user in account.coordinators:
        refuse_bad_user("user", user)
    if account.default_qos:
        known_qos(cluster, account.default_qos)


def _refuse_too_deep(cluster: Cluster, account: AccountInfo) -> None:
    """`Refusal` if the account tree would become too deep: it is walked for every plan."""
    above, below = len(account_path(cluster.accounts, account.parent)), 1
    if account.name in cluster.accounts:
        paths = (account_path(cluster.accounts, account) for account in cluster.accounts)
        below = max(path.index(account.name) + 1 for path in paths if account.name in path)
    if account.name != ROOT and above + below > MAX_DEPTH:
        message = (
            f"account `{account.name}` would make the tree {above + below} levels deep; the maximum is {MAX_DEPTH}"
        )
        raise Refusal("too_deep", message, "choose a parent nearer to the root")


def _refuse_more_than_own(caller: Caller, cluster: Cluster, before: AccountInfo | None, account: AccountInfo) -> None:
    """`Denied` if a coordinator sets the Unix group, or guarantees GPUs that the accounts above do not have."""
    if account.group != (before.group if before is not None else ""):
        message = (
            f"the Unix group of account `{account.name}` can be set by operators only: its members may use the account"
        )
        raise Denied("not_operator", message, "add members one by one, or ask an operator")
    more = account.guaranteed_gpus or 0
    if more <= (before.guaranteed_gpus or 0 if before is not None else 0):
        return
    path = account_path(cluster.accounts, account.parent)
    own = [
        account_name for account_name in path if account_name in caller.coordinates and account_name in cluster.accounts
    ]
    if all(cluster.accounts[account_name].guaranteed_gpus is None for account_name in own):
        message = (
            f"account `{account.name}` cannot be guaranteed {more} GPUs: no account of yours above it has a guarantee"
        )
        raise Denied(
            "not_operator",
            message,
            "ask an operator to guarantee GPUs to your account, which you can divide",
        )


def _refuse_guarantees(cluster: Cluster, account: AccountInfo) -> None:
    """`Refusal` if the guarantees below an account would exceed the guarantee of the account itself."""
    accounts = {**cluster.accounts, account.name: account}
    below: dict[str, list[str]] = {}
    for child in accounts.values():
        if child.name != ROOT:
            below.setdefault(child.parent, []).append(child.name)
    for name in account_path(accounts, account.name):
        above = accounts.get(name)
        if above is None or above.guaranteed_gpus is None:
            continue
        dealt = sum(_guaranteed(accounts, below, child) for child in below.get(name, ()))
        if dealt > above.guaranteed_gpus:
            message = f"the accounts below `{name}` would be guaranteed {dealt} GPUs, and `{name}` itself is guaranteed"
            hint = f"guarantee `{name}` at least {dealt} first, or guarantee less below it"
            raise Refusal("guarantee", f"{message} {above.guaranteed_gpus}", hint)


def _guaranteed(accounts: dict[str, AccountInfo], below: dict[str, list[str]], name: str) -> int:
    """GPUs guaranteed to the account, else the sum of the guarantees below it."""
    own = accounts[name].guaranteed_gpus
    return own if own is not None else sum(_guaranteed(accounts, below, child) for child in below.get(name, ()))


def decide_remove_account(draft: TurnBuilder, body: client.RemoveAccount) -> client.Done:
    """Remove an account and its limits; its usage goes on counting for the account above it."""
    name, cluster = body.name, draft.cluster
    known_account(cluster, name)
    if name in (ROOT, DEFAULT_ACCOUNT):
        raise Refusal("always_there", f"account `{name}` is built in and cannot be removed")
    below = [account.name for account in cluster.accounts.values() if account.parent == name]
    if below:
        raise Refusal(
            "in_use", f"account `{name}` has accounts below it: {_some(below)}", "move or remove these accounts first"
        )
    if jobs := cluster.tallies.of((Holder.ACCOUNT, name, "")).submitted.get("jobs", 0):
        raise Refusal("in_use", f"account `{name}` has {_jobs(jobs)} in the queue", "wait for them, or move them first")
    users = list(cluster.associations.users_of_account.get(name, ()))
    by_hand = [user for user in users if not cluster.members[user, name].info.from_group]
    if by_hand:
        raise Refusal("in_use", f"account `{name}` has members: {_some(by_hand)}", "remove these members first")
    qos = [one.name for one in cluster.qos.values() if name in one.accounts]
    if qos:
        raise Refusal("in_use", f"QOS {_some(qos)} names account `{name}`", "change this QOS first")
    limit.remove_all(draft, Holder.ACCOUNT, name)
    for user in users:
        draft.emit(event.MemberRemoved(at=draft.now, user=user, account=name, heir=_heir(draft, user, name)))
    draft.emit(event.AccountRemoved(at=draft.now, name=name))
    return client.Done()


def _heir(draft: TurnBuilder, user: str, account: str) -> str:
    """The account that inherits the member's usage; empty: the usage is negligible, or the root is above."""
    cluster = draft.cluster
    used = cluster.members[user, account].usage.value_at(draft.now, cluster.half_life_s)
    above = cluster.accounts[account].parent
    return above if used >= FORGOTTEN_S and above != ROOT else ""


# ── members ───────────────────────────────────────────────────────────────────────────────────────────────────


def decide_set_member(draft: TurnBuilder, caller: Caller, body: client.SetMember) -> client.Done:
    cluster = draft.cluster
    info = msgspec.structs.replace(body.member, from_group=False)
    known_account(cluster, info.account)
    if info.account == ROOT:
        message = f"`{ROOT}` is the top of the tree, and has no members"
        raise Refusal("bad_account", message, f"add {info.user} to an account below it, or to `{DEFAULT_ACCOUNT}`")
    refuse_bad_user("user", info.user)
    known = cluster.members.get((info.user, info.account))
    is_there = known is not None and not (body.is_new and known.info.from_group)
    _refuse_wrong_newness("user", f"{info.user}` in account `{info.account}", is_there, body.is_new)
    if known is None and len(cluster.members) >= (most := MEMBERS_PER_ACCOUNT * draft.policy.limits.accounts):
        raise Refusal(
            "too_many_members",
            f"accounts already have {most} members in all, the maximum",
            "raise limits.accounts in gq.toml",
        )
    if info.is_default:
        _take_default(draft, caller, info)
    if known is None or known.info != info:
        draft.emit(event.MemberSet(at=draft.now, member=info))
    return client.Done()


def _take_default(draft: TurnBuilder, caller: Caller, info: MemberInfo) -> None:
    """Take the default mark from the user's other accounts: there is only one default account."""
    cluster = draft.cluster
    others = [
        account_name
        for account_name in cluster.associations.accounts_of_user.get(info.user, ())
        if account_name != info.account
    ]
    before = [account_name for account_name in others if cluster.members[info.user, account_name].info.is_default]
    foreign = [
        account_name
        for account_name in before
        if caller.role < Role.OPERATOR and account_name not in caller.coordinates
    ]
    if foreign:
        message = f"the default account of {info.user} is `{foreign[0]}`, which you do not coordinate"
        raise Denied("not_coordinator", message, "add them without --default, or ask an operator")
    for account in before:
        changed = msgspec.structs.replace(cluster.members[info.user, account].info, is_default=False)
        draft.emit(event.MemberSet(at=draft.now, member=changed))


def decide_remove_member(draft: TurnBuilder, body: client.RemoveMember) -> client.Done:
    """Remove a member.  A member with usage is kept without rights, so that leaving and rejoining resets nothing."""
    cluster, user, account = draft.cluster, body.user, body.account
    known_account(cluster, account)
    member = cluster.members.get((user, account))
    if member is None:
        raise Refusal("unknown_user", f"user `{user[:80]}` is not in account `{account}`", "gqctl user show lists them")
    if cluster.tallies.of((Holder.ACCOUNT, account, user)).submitted:
        jobs = [job for job in cluster.jobs.values() if job.user == user and job.state is not JobState.ENDED]
        ids = [str(job.job_id) for job in jobs if job.account == account]
        if ids:
            message = f"user {user} has jobs in account `{account}`: {_some(ids)}"
            raise Refusal("in_use", message, "wait for them, or cancel or move them first")
    if member.usage.value_at(draft.now, cluster.half_life_s) < FORGOTTEN_S:
        draft.emit(event.MemberRemoved(at=draft.now, user=user, account=account))
    elif member.info.from_group:
        message = f"user {user} was not added to account `{account}` by hand; the record only keeps past usage"
        raise Refusal("not_added", message, "remove a member of the account's Unix group from that group")
    else:
        info = msgspec.structs.replace(member.info, shares=1, is_default=False, from_group=True)
        draft.emit(event.MemberSet(at=draft.now, member=info))
    return client.Done()


# ── QOS ───────────────────────────────────────────────────────────────────────────────────────────────────────


def decide_set_qos(draft: TurnBuilder, body: client.SetQos) -> client.Done:
    qos, cluster = body.qos, draft.cluster
    refuse_bad_name("QOS", qos.name)
    is_there = qos.name in cluster.qos or (qos.name in BUILT_IN_QOS and (qos.name == NORMAL_QOS or not body.is_new))
    _refuse_wrong_newness("QOS", qos.name, is_there, body.is_new)
    _refuse_bad_text("description", qos.description)
    if not (math.isfinite(qos.usage_factor) and 0 <= qos.usage_factor <= MAX_FACTOR):
        message = f"the usage factor {qos.usage_factor} is not between 0 and {MAX_FACTOR:.0f}"
        raise Refusal("bad_number", message, "1 bills usage in full, 0 bills nothing, 2 bills double")
    if qos.max_time_s is not None and qos.max_time_s < 1:
        raise Refusal(
            "bad_number", f"a maximum time of {qos.max_time_s} s would let no job run", "leave it out for no maximum"
        )
    for user in qos.users:
        refuse_bad_user("user", user)
    for group in qos.groups:
        refuse_bad_user("group", group)
    for account in qos.accounts:
        known_account(cluster, account)
    _refuse_bad_preemption(cluster, qos)
    if qos.name not in cluster.qos:
        refuse_too_many(draft)
    if qos_named(cluster, qos.name) != qos:
        draft.emit(event.QosSet(at=draft.now, qos=qos))
    return client.Done()


def _refuse_bad_preemption(cluster: Cluster, qos: QosInfo) -> None:
    """`Refusal` for bad preemption settings, above all for QOS that would preempt each other in a circle."""
    if not 0 <= qos.min_run_s <= MAX_SECONDS:
        raise Refusal("bad_number", f"the minimum run time {qos.min_run_s} is not between 0 and {MAX_SECONDS}")
    if qos.borrows_reserved and qos.preempt_mode is PreemptMode.OFF:
        message = f"jobs of QOS `{qos.name}` are never preempted, so they cannot borrow reserved resources"
        raise Refusal("bad_preemption", message, "--preempt-mode=requeue, cancel or suspend, or --borrows-reserved=no")
    for name in qos.preempts:
        if name != qos.name:
            known_qos(cluster, name)
    known = with_built_in(cluster.qos) | {qos.name: qos}
    if qos.name in _preempted(known, qos.preempts):
        message = f"QOS `{qos.name}` would preempt itself through the QOS that it preempts"
        raise Refusal("bad_preemption", message, "break the circle: jobs that preempt each other make no progress")


def _preempted(known: Mapping[str, QosInfo], names: Iterable[str]) -> dict[str, None]:
    """All QOS that are preempted directly or indirectly, beginning with `names` themselves."""
    reached = dict.fromkeys(names)
    waiting = list(reached)
    while waiting:
        found = known.get(waiting.pop())
        new = [preempt for preempt in found.preempts if preempt not in reached] if found is not None else []
        reached |= dict.fromkeys(new)
        waiting += new
    return reached


def decide_remove_qos(draft: TurnBuilder, body: client.RemoveQos) -> client.Done:
    """Remove a QOS and its limits; a built-in QOS is reset to its defaults."""
    name, cluster = body.name, draft.cluster
    known_qos(cluster, name)
    if name in BUILT_IN_QOS and name not in cluster.qos:
        raise Refusal("always_there", f"QOS `{name}` is built in and cannot be removed")
    others = [one.name for one in cluster.qos.values() if name in one.preempts and name not in BUILT_IN_QOS]
    if others:
        raise Refusal("in_use", f"QOS `{name}` is preempted by {_some(others)}", "change these QOS first")
    if jobs := cluster.tallies.of((Holder.QOS, name, "")).submitted.get("jobs", 0):
        raise Refusal("in_use", f"QOS `{name}` has {_jobs(jobs)} in the queue", "wait for them, or move them first")
    accounts = [account.name for account in cluster.accounts.values() if account.default_qos == name]
    if accounts:
        raise Refusal(
            "in_use",
            f"QOS `{name}` is the default of account {_some(accounts)}",
            "give these accounts another default first",
        )
    limit.remove_all(draft, Holder.QOS, name)
    draft.emit(event.QosRemoved(at=draft.now, name=name))
    return client.Done(text=f"QOS {name} has its initial settings again" if name in BUILT_IN_QOS else "")


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────


def _refuse_bad_text(what: str, text: str) -> None:
    if len(text) > MAX_TEXT or (text and not text.isprintable()):
        raise Refusal("bad_text", f"the {what} {text[:40]!r} is not at most {MAX_TEXT} printable characters")


def _refuse_wrong_newness(noun: str, name: str, is_there: bool, is_new: bool) -> None:
    verb = noun.lower()
    if is_new and is_there:
        raise Refusal(f"known_{verb}", f"{noun} `{name}` already exists", f"gqctl {verb} set changes it")
    if not is_new and not is_there:
        raise Refusal(f"unknown_{verb}", f"{noun} `{name}` does not exist", f"gqctl {verb} add creates it")


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
