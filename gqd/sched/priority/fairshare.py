"""Who has had less than is due: the fair-share tree and its ranking.  Pure.

The algorithm is Slurm's Fair Tree (https://slurm.schedmd.com/fair_tree.html).  Every account and every user in it has
a *level fair-share* among its siblings: its part of their shares, divided by its part of what they used.  The tree is
walked from the root, the sibling with the highest level fair-share first and all that is below it before the next, so
that everybody in an account that had less than is due comes before everybody in one that had more.  Users get ranks in
the order in which they are met; the fair-share factor is the rank from the end, divided by the number of users.

Ties, as there: users with the same level fair-share get the same rank; accounts with the same are walked as one, their
children as siblings; a user who ties with an account comes with the first of its users.
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
    """An account, or a user in one."""

    account: str
    user: str = ""
    """Empty: the account itself."""
    shares: int = 1
    usage: float = 0.0
    """Decayed, in weighted GPU-seconds, with everything below."""
    norm_shares: float = 1.0
    """Of the whole cluster; among siblings it is `level_shares`."""
    norm_usage: float = 1.0
    """Likewise, of everything that was used."""
    level_shares: float = 1.0
    level_usage: float = 1.0
    level_fs: float = 1.0
    fair_share: float = 0.0
    """Of users."""
    depth: int = 0
    children: list[Branch] = field(default_factory=list)

    @property
    def sort_key(self) -> tuple[float, bool, str, str]:
        """Highest level fair-share first; of equal ones users before accounts."""
        return -self.level_fs, not self.user, self.account, self.user


@dataclass(slots=True)
class Tree:
    root: Branch
    accounts: dict[str, Branch]
    users: dict[tuple[str, str], Branch]
    """By (user, account)."""

    def walk(self) -> Iterator[Branch]:
        """Parents first, in the order of the ranking."""
        waiting = [self.root]
        while waiting:
            branch = waiting.pop()
            yield branch
            waiting.extend(sorted(branch.children, key=lambda one: one.sort_key, reverse=True))


def known_accounts(cluster: Cluster) -> dict[str, AccountInfo]:
    """All accounts but the root, with those that are there without being added."""
    implied = {account for _, account in cluster.members} | {DEFAULT_ACCOUNT}
    there = cluster.accounts
    known = {name: there.get(name) or AccountInfo(name=name) for name in sorted(implied)} | there
    known.pop(ROOT, None)
    return known


def fair_tree(cluster: Cluster, now: float) -> Tree:
    """The tree as it stands now."""
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
    """Usage from the leaves up."""
    for child in branch.children:
        _sum_up(child)
    if not branch.user:
        branch.usage = math.fsum(child.usage for child in branch.children)


def _compare(branch: Branch) -> None:
    """Siblings with each other, from the root down."""
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
    """Give the users below these their factors; `left` of all `users` have none yet, the last got `rank`."""
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
