"""Time slicing in a pass: which jobs may be preempted by which, when, and at what price.  Pure.

A pass asks for every job without room about every running job, so the answers are computed as columns, once (see
`gqd.sched.preemption.timeslice`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from math import inf

import numpy as np

from gq.model.account import PreemptMode, QosInfo
from gq.model.ids import JobId
from gqd.sched.cycle.state import PassState
from gqd.sched.preemption.reclaim import gpus_of
from gqd.sched.preemption.timeslice import (
    OF_GANG,
    Contender,
    Holders,
    HoldersNow,
    has_used_first_quantum,
    holders_now,
    holders_of,
    latest_first,
    least_lost_s,
    lost_s,
    pays_off_at,
    sliceable_at,
    sliceable_now,
)
from gqd.sched.preemption.victims import Cost
from gqd.sched.request import RESTRICTIONS, knows, wanted_in_all
from gqd.sched.snapshot.model import PendingJob, RunningJob, Snapshot
from gqd.state.index.queue import Floats

_KNOWN = RESTRICTIONS | {"is_dense", "roles"}


def that_give_turns(jobs: Iterable[RunningJob], known: Mapping[str, QosInfo]) -> list[RunningJob]:
    """The jobs that time slicing may preempt at some time: those that requeue; time slicing never ends a job for
    good."""
    names = {name for name, one in known.items() if one.preempt_mode is PreemptMode.REQUEUE}
    return [one for one in jobs if one.comes_back and one.qos in names]


class TimesliceVictims:
    def __init__(self, snapshot: Snapshot, there: Iterable[RunningJob]) -> None:
        """`there`: the jobs that may be preempted now."""
        self._now = snapshot.now
        self._rules = snapshot.policy.scheduling
        self._known = snapshot.qos
        self._jobs = that_give_turns((one for one in snapshot.running if one.preemptor is None), snapshot.qos)
        self._ids = [job.job_id for job in self._jobs]
        ids = {one.job_id for one in there}
        self._is_there = np.array([id_ in ids for id_ in self._ids], np.bool_)
        self._waiting: dict[tuple[bool, bool], float] = {}
        """The earliest submission of jobs without victims, by (has used its first quantum, runs on several nodes)."""

    @cached_property
    def _givers(self) -> Holders:
        return holders_of(self._jobs, self._rules)

    @cached_property
    def _now_told(self) -> HoldersNow:
        return holders_now(self._givers, self._now)

    @cached_property
    def _there(self) -> list[RunningJob]:
        return [self._jobs[one] for one in self._is_there.nonzero()[0].tolist()]

    @cached_property
    def _ranks(self) -> dict[JobId, int]:
        ids = (one.job_id for one in self._there)
        return dict(zip(ids, latest_first(self._there).tolist(), strict=True))

    @cached_property
    def _least_lost_s(self) -> float:
        return least_lost_s(self._there, self._rules, self._now)

    def givers_to(self, taker: Contender) -> list[JobId]:
        """The jobs that this one may preempt now."""
        if not self._jobs:
            return []
        may = sliceable_now(self._now_told, taker) & self._is_there
        return [self._ids[one] for one in may.nonzero()[0].tolist()]

    def note_waiting(self, job: PendingJob, is_gang: bool) -> None:
        key = (has_used_first_quantum(job.ran_s, self._rules), is_gang)
        self._waiting[key] = min(job.since, self._waiting.get(key, inf))

    def changes_at(self, but: Collection[JobId], started: Iterable[RunningJob]) -> float:
        """When the next job becomes preemptible for one of the jobs without victims; `but`: jobs being preempted
        already."""
        if not self._waiting:
            return inf
        stays = np.array([id_ not in but for id_ in self._ids], np.bool_)
        others = holders_of(that_give_turns(started, self._known), self._rules)
        at = inf
        for key, since in self._waiting.items():
            taker = Contender(since, *key)
            at = min(at, self._next(sliceable_at(self._givers, taker)[stays]))
            at = min(at, self._next(sliceable_at(others, taker)))
        return at

    def _next(self, at: Floats) -> float:
        return float(at[at > self._now].min(initial=inf))

    def cost_of(self, job: RunningJob) -> Cost:
        """The cost of preempting the job, by which victims are chosen."""
        weight = OF_GANG if len(job.grants) > 1 else 1.0
        return Cost(weight * self._loss(job), float(self._ranks.get(job.job_id, 0)), 1)

    def price_of(self, jobs: Iterable[RunningJob]) -> float:
        """GPU-seconds that are lost if these jobs are stopped."""
        return sum(map(self._loss, jobs))

    def _loss(self, job: RunningJob) -> float:
        return max(1, gpus_of(job)) * lost_s(job, self._rules, self._now)

    def pays_off_at(self, job: PendingJob, price_gpu_s: float) -> float:
        """When the job may preempt at this price."""
        return pays_off_at(job.waits_since, price_gpu_s, wanted_in_all(job.shape)[0])

    def least_price(self, state: PassState, job: PendingJob) -> float:
        """A lower bound in GPU-seconds on the price of any sufficient set of victims."""
        if not knows(_KNOWN, job.shape):
            return 0.0
        wanted = wanted_in_all(job.shape)[0]
        places = state.eligibility.available(job, state.snapshot.now)
        free = state.backfill.now.gpu_counts[places]
        is_on_one = job.shape.nodes_max == 1 or (job.shape.is_dense and wanted <= state.eligibility.most_gpus)
        there = int(free.max(initial=0) if is_on_one else free.sum())
        return max(1, wanted - there) * self._least_lost_s
