"""Priorities, the fair-share tree and borrowed GPUs, for `gqprio` and `gqshare`.  Pure.

An account with a guarantee has borrowed what it holds beyond it.  An account within the guarantee of an account above
has borrowed nothing of its own.  As soon as any account has a guarantee, everything that is held outside guarantees is
borrowed: by the highest account without guarantees below it, or, for members of an account that has guaranteed
accounts beside them, by that account.

If an account reclaims its guaranteed GPUs, borrowers give back in this order: first the borrower that exceeds its due
by the most GPUs.  Its due is its guarantee or, if that is more, its part of the shares of all GPUs of the cluster.
Among equals the lower level fair-share comes first (it has used more than its due for longer), then the name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from gq.errors import Refusal
from gq.model.account import ROOT, AccountInfo, Holder, PriorityInfo, ShareInfo
from gq.model.ids import JobId
from gq.model.tasks import format_tasks
from gq.near_miss import suggestion
from gq.units import format_duration
from gq.wire import client
from gqd.control.job_filter import select_jobs
from gqd.sched.priority.factors import OVERRIDE, Ranking, guarantor_of, rank, weighted_factors
from gqd.sched.priority.fairshare import Branch, Tree, fair_tree, known_accounts
from gqd.sched.priority.share_debt import BANDS, bands
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.queue import member_of
from gqd.state.index.tally import account_path
from gqd.state.policy import Policy
from gqd.state.records import Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

HOUR = 3600.0
MAX_RUNS = 20
"""Ranges of task numbers that one line lists at most."""


def reconcile_half_life(draft: TurnBuilder) -> None:
    """Bring the half-life of usage in line with gq.toml, from now on."""
    wanted = draft.policy.weights.half_life_s
    if wanted != draft.cluster.half_life_s:
        draft.emit(event.HalfLifeSet(at=draft.now, half_life_s=wanted))


# ── priorities ────────────────────────────────────────────────────────────────────────────────────────────────


def list_priorities(
    cluster: Cluster, policy: Policy, body: client.ListPriorities, limit: int, now: float
) -> client.Priorities:
    """A page of the pending jobs in the order in which the planner considers them."""
    ranking = rank(cluster, policy, now)
    chosen = _chosen(cluster, ranking, body)
    page = chosen[max(body.skip, 0) : max(body.skip, 0) + limit + 1]
    return client.Priorities(
        jobs=tuple([_priority_info(cluster.jobs[job_id], ranking, place) for job_id, place in page[:limit]]),
        weights={name: weight for name, _, weight in weighted_factors(policy)},
        more=len(page) > limit,
    )


def _chosen(cluster: Cluster, ranking: Ranking, body: client.ListPriorities) -> list[tuple[JobId, int]]:
    """(job id, queue index) of the jobs that the filter matches, in queue order."""
    ids = zip(ranking.ordered_ids(), ranking.order.tolist(), strict=True)
    if body.filter == type(body.filter)():
        return list(ids)
    jobs = select_jobs(cluster, body.filter)
    meant = {job.job.job_id for job in jobs}
    return [(job_id, place) for job_id, place in ids if job_id in meant]


def _priority_info(job: Job, ranking: Ranking, place: int) -> PriorityInfo:
    user, account = member_of(job)
    points = {name: int(column[place]) for name, column in ranking.points.items()}
    if job.spec.priority is None:
        del points[OVERRIDE]
    return PriorityInfo(
        job_id=job.job_id,
        user=user,
        account=account,
        partition=job.partition,
        qos=job.qos,
        priority=int(ranking.priority[place]),
        points=points,
        factors={name: float(column[place]) for name, column in ranking.factors.items()},
        array_tasks="" if job.array is None else format_tasks(job.array.waiting, MAX_RUNS),
        array_job_id=job.job_id if job.array is not None else job.array_job_id,
        array_task_id=job.array_task_id,
    )


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────


def list_shares(cluster: Cluster, policy: Policy, body: client.ListShares, now: float) -> client.Shares:
    tree = fair_tree(cluster, now)
    _refuse_unknown(tree, body)
    books = _Books(cluster, tree)
    lines = [_line(books, branch) for branch in tree.walk() if _is_shown(cluster, branch, body, tree)]
    why = "\n".join(explain_user(cluster, policy, tree, body.explain, now)) if body.explain else ""
    return client.Shares(lines=tuple(lines), half_life_s=cluster.half_life_s, why=why)


def _refuse_unknown(tree: Tree, body: client.ListShares) -> None:
    users = sorted({user for user, _ in tree.users})
    for user in (*body.users, *filter(None, [body.explain])):
        if user not in users:
            hint = suggestion(user, users, "a user's first job adds the user to an account; gqshare lists the users")
            raise Refusal("unknown_user", f"user `{user}` is in no account", hint)
    for account in body.accounts:
        if account not in tree.accounts:
            hint = suggestion(account, tree.accounts, "gqshare lists the accounts")
            raise Refusal("unknown_account", f"account `{account}` does not exist", hint)


def _is_shown(cluster: Cluster, branch: Branch, body: client.ListShares, tree: Tree) -> bool:
    """The lines of the named users, and of the accounts above them."""
    if body.accounts and not set(body.accounts) & set(account_path(cluster.accounts, branch.account)):
        return False
    users = {*body.users, *filter(None, [body.explain])}
    if not users or branch.user:
        return not users or branch.user in users
    return any(
        branch.account in account_path(cluster.accounts, account) for user, account in tree.users if user in users
    )


def gives_back(cluster: Cluster, now: float) -> dict[str, int]:
    """Account that has borrowed → its rank in giving back, from 1."""
    return _Books(cluster, fair_tree(cluster, now)).gives_back


class _Books:
    """GPUs held by each account, and how many of them are borrowed."""

    def __init__(self, cluster: Cluster, tree: Tree) -> None:
        self.cluster = cluster
        self.known = {ROOT: AccountInfo(name=ROOT)} | cluster.accounts | known_accounts(cluster)
        guaranteed = [account.name for account in cluster.accounts.values() if account.guaranteed_gpus is not None]
        self._above_guarantees = {above for name in guaranteed for above in account_path(cluster.accounts, name)[1:]}
        all_gpus = sum(len(node.inventory.gpus) for node in cluster.nodes.values())
        over = {name: self._over(branch, all_gpus) for name, branch in tree.accounts.items() if self.borrowed(name)}
        first = sorted(over, key=lambda name: (-over[name], tree.accounts[name].level_fs, name))
        self.gives_back = {name: place for place, name in enumerate(first, 1)}

    def held(self, account: str, user: str = "") -> int:
        return self.cluster.tallies.of((Holder.ACCOUNT, account, user)).held.get("gpus", 0)

    def borrowed(self, account: str) -> int:
        guaranteed = self.known[account].guaranteed_gpus
        if guaranteed is not None:
            return max(0, self.held(account) - guaranteed)
        if guarantor_of(self.cluster, account) is not None or not self._above_guarantees:
            return 0
        if account in self._above_guarantees:
            below = (one.name for one in self.known.values() if one.parent == account and one.name != account)
            return self.held(account) - sum(self.held(name) for name in below)
        return self.held(account) if self.known[account].parent in self._above_guarantees else 0

    def may_borrow(self, account: str) -> int | None:
        most = self.known[account].borrow_gpus
        return None if most is None else max(0, most - self.borrowed(account))

    def _over(self, branch: Branch, all_gpus: int) -> float:
        """GPUs held beyond the account's due."""
        guaranteed = self.known[branch.account].guaranteed_gpus or 0
        return self.borrowed(branch.account) - max(0.0, branch.norm_shares * all_gpus - guaranteed)


def _line(books: _Books, branch: Branch) -> ShareInfo:
    line = ShareInfo(
        account=branch.account,
        user=branch.user,
        depth=branch.depth,
        shares=branch.shares,
        norm_shares=branch.norm_shares,
        usage=branch.usage,
        norm_usage=branch.norm_usage,
        level_fs=branch.level_fs if math.isfinite(branch.level_fs) and branch.depth else None,
        gpus=books.held(branch.account, branch.user),
    )
    if branch.user:
        return msgspec.structs.replace(line, fair_share=branch.fair_share)
    return msgspec.structs.replace(
        line,
        guaranteed_gpus=books.known[branch.account].guaranteed_gpus,
        borrowed_gpus=books.borrowed(branch.account),
        may_borrow_gpus=books.may_borrow(branch.account),
        gives_back=books.gives_back.get(branch.account),
    )


# ── in words ──────────────────────────────────────────────────────────────────────────────────────────────────


def explain_user(cluster: Cluster, policy: Policy, tree: Tree, user: str, now: float) -> Iterator[str]:
    """The explanation of the user's fair-share in each of the user's accounts."""
    for (name, account), branch in tree.users.items():
        if name == user:
            yield " ".join(_explain_member(cluster, policy, tree, branch, account, now))


def _explain_member(
    cluster: Cluster, policy: Policy, tree: Tree, branch: Branch, account: str, now: float
) -> Iterator[str]:
    ranked = list(tree.users.values())
    before = sum(1 for one in ranked if one.fair_share > branch.fair_share)
    equal = sum(1 for one in ranked if one.fair_share == branch.fair_share) - 1
    as_well = f", {equal} rank equal" if equal else ""
    yield (
        f"In account {account}, {branch.user} has a fair-share of {branch.fair_share:.3f}: "
        f"{before} of {len(ranked) - 1} other users rank higher{as_well}."
    )
    yield _points_of(cluster, policy, branch, now)
    path = account_path(cluster.accounts, account)
    for place, name in enumerate(path[:-1]):
        yield _standing(tree.accounts[name], tree.accounts[path[place + 1]])
    yield _standing(branch, tree.accounts[account])
    yield "Users of an account that is under its share rank above all users of an account that is over its share."
    yield _forgetting(cluster.half_life_s)


_OVER_SHARE = (
    "neither the job's user nor its account is over the share due",
    "the job's user is over the share due, its account is not",
    "the job's account is over the share due, its user is not",
    "the job's account and its user are both over the share due",
)
"""Texts indexed by band (`gqd.sched.priority.share_debt`)."""


def _points_of(cluster: Cluster, policy: Policy, branch: Branch, now: float) -> str:
    member, weights = (branch.user, branch.account), policy.weights
    band = bands(cluster, now, member)[member]
    whole = weights.due + weights.fair_share
    points = round(weights.due * (1.0 - band / (BANDS - 1))) + round(weights.fair_share * branch.fair_share)
    why = f"among users with jobs now, {_OVER_SHARE[band]}"
    return f"Each job gets {points} of {whole:g} points: {why}."


def _forgetting(half_life_s: float | None) -> str:
    if half_life_s is None:
        return "Past usage never decays."
    days, rest_s = divmod(half_life_s, 86400.0)
    span = format_duration(half_life_s) if rest_s else "day" if days == 1 else f"{days:.0f} days"
    return f"Past usage decays by half every {span}."


def _standing(branch: Branch, above: Branch) -> str:
    who = branch.user or f"account {branch.account}"
    where = "the cluster" if above.account == ROOT else f"account {above.account}"
    due = f"The share of {who} is {branch.level_shares:.1%} of {where} ({branch.shares} of its shares)"
    if not branch.usage:
        return f"{due}; its usage is 0."
    used = f"{branch.usage / HOUR:.2f} of {above.usage / HOUR:.2f} weighted GPU-hours ({branch.level_usage:.1%})"
    word = "as much as" if branch.level_fs == 1.0 else "less than" if branch.level_fs > 1.0 else "more than"
    return f"{due}; its usage is {used}, {word} the share (level fair-share {branch.level_fs:.3f})."
