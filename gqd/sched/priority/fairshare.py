"""Fair share: the tree of accounts and users, and its ranking.  Pure.

The algorithm is Slurm's Fair Tree (https://slurm.schedmd.com/fair_tree.html).  Every account and every user in it has a
*level fair-share* among its siblings: its fraction of their shares divided by its fraction of their usage.  The tree is
walked from the root, the sibling with the highest level fair-share first with everything below it, so that every user
in an account under its share comes before every user in an account over it.  Users are ranked in the order of that
walk; the fair-share factor is the rank counted from the end, divided by the number of users.

Ties are resolved as in Slurm: users with the same level fair-share get the same rank; accounts with the same level
fair-share are walked as one, their children as siblings; a user that ties with an account ranks with the first of that
account's users.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gq.model.account import DEFAULT_ACCOUNT, ROOT, AccountInfo
from gqd.state.cluster import Cluster

NOTHING_USED = math.inf


@dataclass(slots=True)
class Branch:
    """A node of the tree: an account, or a user in an account."""

    account: str
    user: str = ""
    """The user's name; empty for an account."""
    shares: int = 1
    usage: float = 0.0
    """Decayed usage in weighted GPU-seconds, including everything below this branch."""
    norm_shares: float = 1.0
    """The branch's fraction of the shares of the whole cluster; `level_shares` is its fraction among its siblings."""
    norm_usage: float = 1.0
    """The branch's fraction of all usage; `level_usage` is its fraction among its siblings."""
    level_shares: float = 1.0
    level_usage: float = 1.0
    level_fs: float = 1.0
    fair_share: float = 0.0
    """The fair-share factor, for users only."""
    depth: int = 0
    children: list[Branch] = field(default_factory=list)

    @property
    def sort_key(self) -> tuple[float, bool, str, str]:
        """Sort key: highest level fair-share first; users before accounts of the same level fair-share."""
        return -self.level_fs, not self.user, self.account, self.user


@dataclass(slots=True)
class Tree:
    root: Branch
    accounts: dict[str, Branch]
    users: dict[tuple[str, str], Branch]
    """The branches of users, by (user, account)."""

    def walk(self) -> Iterator[Branch]:
        """All branches in the order of the ranking, parents before their children."""
        waiting = [self.root]
        while waiting:
            branch = waiting.pop()
            yield branch
            waiting.extend(sorted(branch.children, key=lambda one: one.sort_key, reverse=True))


def known_accounts(cluster: Cluster) -> dict[str, AccountInfo]:
    """All accounts except the root, including those that exist without having been added."""
    implied = {account for _, account in cluster.members} | {DEFAULT_ACCOUNT}
    there = cluster.accounts
    known = {name: there.get(name) or AccountInfo(name=name) for name in sorted(implied)} | there
    known.pop(ROOT, None)
    return known


def fair_tree(cluster: Cluster, now: float) -> Tree:
    """Compute the fair-share tree at `now`."""
    tree = _plant(cluster, now)
    _sum_up(tree.root)
    _compare(tree.root)
    if tree.users:
        _rank(tree.root.children, len(tree.users), len(tree.users), 0, False)
    return tree


def _plant(cluster: Cluster, now: float) -> Tree:
    root = Branch(ROOT)
    known = known_accounts(cluster)
    accounts = {name: Branch(name, shares=info.shares) for name, info in known.items()}
    for name, info in known.items():
        accounts.get(info.parent, root).children.append(accounts[name])
    users = {}
    for (user, account), member in cluster.members.items():
        usage = max(0.0, member.usage.value_at(now, cluster.half_life_s))
        branch = users[user, account] = Branch(account, user, member.info.shares, usage)
        accounts.get(account, root).children.append(branch)
    accounts[ROOT] = root
    return Tree(root, accounts, users)


def _sum_up(branch: Branch) -> None:
    """Sum the usage from the leaves to the root."""
    for child in branch.children:
        _sum_up(child)
    if not branch.user:
        branch.usage = math.fsum(child.usage for child in branch.children)


def _compare(branch: Branch) -> None:
    """Compute shares, usage and level fair-share of siblings, from the root down."""
    shares = sum(child.shares for child in branch.children)
    for child in branch.children:
        child.depth = branch.depth + 1
        child.level_shares = child.shares / shares if shares else 0.0
        child.level_usage = child.usage / branch.usage if branch.usage else 0.0
        child.norm_shares = branch.norm_shares * child.level_shares
        child.norm_usage = branch.norm_usage * child.level_usage
        child.level_fs = _level_fs(child)
        _compare(child)


def _level_fs(branch: Branch) -> float:
    if not branch.level_shares:
        return 0.0
    return branch.level_shares / branch.level_usage if branch.level_usage else NOTHING_USED


def _rank(siblings: Iterable[Branch], users: int, left: int, rank: int, is_tied: bool) -> tuple[int, int]:
    """Set the fair-share factor of the users below `siblings` and return the new (left, rank).

    `left` of all `users` have no factor yet; the user before got `rank`.
    """
    ordered = sorted(siblings, key=lambda one: one.sort_key)
    place = 0
    before = math.nan
    while place < len(ordered):
        branch = ordered[place]
        tied = is_tied if place == 0 else branch.level_fs == before
        before = branch.level_fs
        if branch.user:
            rank = rank if tied else left
            branch.fair_share = rank / users
            left -= 1
            place += 1
            continue
        children: list[Branch] = []
        while place < len(ordered) and ordered[place].level_fs == before:
            children += ordered[place].children
            place += 1
        left, rank = _rank(children, users, left, rank, tied)
    return left, rank
