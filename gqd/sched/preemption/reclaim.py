"""What accounts have borrowed beyond their guarantees, and may be taken back for an owner who comes.  Pure.

As soon as any account has a guarantee, a job has borrowed its GPUs if its account, or the nearest above it that has a
guarantee, holds more than that; and if there is none.  No more is taken back of an account than it is over, so that
nobody falls below a guarantee, and nothing is taken back by an account of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gq.model.account import Holder
from gqd.sched.limits.ledger import LimitView
from gqd.sched.snapshot.model import RunningJob
from gqd.state.index.tally import account_path


@dataclass(slots=True)
class Borrowed:
    limits: LimitView
    gives_back: Mapping[str, int] = field(default_factory=dict)
    """By account that has borrowed: who gives back first."""
    left: dict[str, int] = field(init=False)
    """By account with a guarantee: so many GPUs it holds beyond it, that are not taken back yet."""

    def __post_init__(self) -> None:
        limits = self.limits
        self.left = {
            one.name: limits.held.get((Holder.ACCOUNT, one.name, ""), {}).get("gpus", 0) - one.guaranteed_gpus
            for one in limits.accounts.values()
            if one.guaranteed_gpus is not None
        }

    def owns(self, account: str) -> bool:
        """It, or one above it, is guaranteed something."""
        return any(name in self.left for name in self._path(account))

    def funds(self, job: RunningJob, owner: str) -> tuple[str, ...] | None:
        """The accounts that would hold less if the owner had its GPUs; None: they are not borrowed, or the owner's."""
        if not self.left or not gpus_of(job):
            return None
        path, own = self._path(job.account), self._path(owner)
        guarantor = next((name for name in path if name in self.left), None)
        if guarantor is not None and self.left[guarantor] <= 0:
            return None
        if guarantor is not None and guarantor in own:
            return None
        funds = tuple(name for name in path if name in self.left and name not in own)
        return funds if all(self.left[name] >= gpus_of(job) for name in funds) else None

    def rank(self, job: RunningJob) -> int:
        """The lower gives back first."""
        last = len(self.gives_back) + 1
        return next((self.gives_back[name] for name in self._path(job.account) if name in self.gives_back), last)

    def take(self, jobs: Iterable[RunningJob], owner: str) -> bool:
        """All of these are taken back; False: some of them may not be, and none is."""
        left = dict(self.left)
        for job in jobs:
            funds = self.funds(job, owner)
            if funds is None:
                return False
            for name in funds:
                left[name] -= gpus_of(job)
        if any(left[name] < min(0, before) for name, before in self.left.items()):
            return False
        self.left = left
        return True

    def _path(self, account: str) -> tuple[str, ...]:
        return account_path(self.limits.accounts, account)


def gpus_of(job: RunningJob) -> int:
    return sum(len(one.gpus) for one in job.grants)
