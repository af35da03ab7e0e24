"""Reclaiming GPUs that accounts hold over their quota, for the accounts that are guaranteed them.  Pure.

As soon as any account has a guarantee, a job's GPUs are borrowed if the nearest account with a guarantee (its own or a
parent) holds more than the guarantee, or if no such account exists.  No more is reclaimed from an account than its
excess, so that no account falls below its guarantee, and no account reclaims from itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gq.model.account import Holder
from gqd.sched.limits.ledger import LimitView
from gqd.sched.snapshot.model import RunningJob
from gqd.state.index.tally import account_path


@dataclass(slots=True)
class OverQuota:
    limits: LimitView
    gives_back: Mapping[str, int] = field(default_factory=dict)
    """The order in which borrowing accounts give GPUs back."""
    left: dict[str, int] = field(init=False)
    """GPUs held beyond the guarantee and not reclaimed yet, by account with a guarantee."""

    def __post_init__(self) -> None:
        limits = self.limits
        self.left = {
            account.name: limits.held.get((Holder.ACCOUNT, account.name, ""), {}).get("gpus", 0)
            - account.guaranteed_gpus
            for account in limits.accounts.values()
            if account.guaranteed_gpus is not None
        }

    def owns(self, account: str) -> bool:
        """Whether the account or a parent of it has a guarantee."""
        return any(name in self.left for name in self._path(account))

    def reclaimable_from(self, job: RunningJob, owner: str) -> tuple[str, ...] | None:
        """The accounts that would hold less if the job were reclaimed for `owner`; None: it cannot be reclaimed for
        `owner`."""
        if not self.left or not gpus_of(job):
            return None
        path, own = self._path(job.account), self._path(owner)
        guarantor = next((name for name in path if name in self.left), None)
        if guarantor is not None and self.left[guarantor] <= 0:
            return None
        if guarantor is not None and guarantor in own:
            return None
        reclaimable_from = tuple(name for name in path if name in self.left and name not in own)
        return reclaimable_from if all(self.left[name] >= gpus_of(job) for name in reclaimable_from) else None

    def rank(self, job: RunningJob) -> int:
        """The rank of the job's account; jobs of a lower rank are reclaimed first."""
        last = len(self.gives_back) + 1
        return next((self.gives_back[name] for name in self._path(job.account) if name in self.gives_back), last)

    def take(self, jobs: Iterable[RunningJob], owner: str) -> bool:
        """Reclaim all of these jobs for `owner`; False: some may not be reclaimed, and none is."""
        left = dict(self.left)
        for job in jobs:
            reclaimable_from = self.reclaimable_from(job, owner)
            if reclaimable_from is None:
                return False
            for name in reclaimable_from:
                left[name] -= gpus_of(job)
        if any(left[name] < min(0, before) for name, before in self.left.items()):
            return False
        self.left = left
        return True

    def _path(self, account: str) -> tuple[str, ...]:
        return account_path(self.limits.accounts, account)


def gpus_of(job: RunningJob) -> int:
    return sum(len(grant.gpus) for grant in job.grants)
