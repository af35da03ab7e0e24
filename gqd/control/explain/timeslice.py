"""Explanations of pending jobs under time-slicing: the first quantum, and the next job to give its slice.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite

import numpy as np

from gq.model.explanation import NextTurn, TrialOver
from gqd.control.explain.explanation import Explanation
from gqd.sched.preemption.timeslice import Contender, has_used_first_quantum, holders_of, sliceable_at
from gqd.sched.preemption.timeslice_victims import that_give_turns
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.snapshot.model import PendingJob, RunningJob, Snapshot
from gqd.state import plan as planned
from gqd.state.records import Job


def add_time_slice(taken: Snapshot, plan: planned.Plan, job: Job, explanation: Explanation) -> Explanation:
    """Add to the explanation of a waiting job whether its first quantum is over and which holder yields to it next."""
    if taken.policy.scheduling.preempt != "turns" or taken.columns is None:
        return explanation
    queue_indices = np.flatnonzero(taken.columns.job_id == job.job_id)
    ahead = int(queue_indices[0]) if len(queue_indices) else 0
    trial_s = taken.policy.scheduling.trial_s
    if job.ran_s >= trial_s:
        explanation = explanation.plus(TrialOver(trial_s=trial_s, jobs_ahead=ahead))
    wait = plan.waits.get(job.job_id)
    if not len(queue_indices) or not isinstance(wait, planned.Insufficient):
        return explanation
    return explanation.plus(_next(taken, taken.pending[ahead], {holder.job_id for holder in wait.holders}))


def _next(taken: Snapshot, job: PendingJob, holder_ids: Collection[int]) -> NextTurn:
    """Which of the holders may give its slice to the job first, or why none does."""
    rules = taken.policy.scheduling
    holders = (held for held in taken.running if held.job_id in holder_ids and held.preemptor is None)
    jobs = that_give_turns(holders, taken.qos)
    is_gang = EligibilityCache(taken.nodes, taken.policy).kind_of(job.shape).is_wide
    at = sliceable_at(holders_of(jobs, rules), Contender(job.since, has_used_first_quantum(job.ran_s, rules), is_gang))
    some_now = bool((at <= taken.now).any())
    at = np.where(at > taken.now, at, np.inf)
    if not len(at) or not isfinite(at.min()):
        return NextTurn(some_now=some_now, why_none="" if some_now else _why_none(jobs, is_gang))
    return NextTurn(job_id=jobs[int(at.argmin())].job_id, at=float(at.min()), some_now=some_now)


def _why_none(jobs: Sequence[RunningJob], is_gang: bool) -> str:
    """Why none of the holders gives its slice to the job, now or later; see `NextTurn.why_none`."""
    if not jobs:
        return "would_not_wait"
    if not is_gang and all(len(job.grants) > 1 for job in jobs):
        return "several_nodes"
    return "came_before"
