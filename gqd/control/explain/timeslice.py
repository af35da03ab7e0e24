"""Explanations of pending jobs under time-slicing: the first quantum, and the next job to give its slice.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite

import numpy as np

from gq.units import spoken_duration
from gqd.control.explain.explanation import Explanation
from gqd.sched.preemption.timeslice import Contender, has_used_first_quantum, holders_of, sliceable_at
from gqd.sched.preemption.timeslice_victims import that_give_turns
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.reasons.unschedulable import counted
from gqd.sched.snapshot.model import PendingJob, RunningJob, Snapshot
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.records import Job


def add_time_slice(
    cluster: Cluster, taken: Snapshot, plan: planned.Plan, job: Job, explanation: Explanation
) -> Explanation:
    """Add to the explanation of a waiting job whether its first quantum is over and which holder yields to it next."""
    if taken.policy.scheduling.preempt != "turns" or taken.columns is None:
        return explanation
    places = np.flatnonzero(taken.columns.job_id == job.job_id)
    ahead = int(places[0]) if len(places) else 0
    why = explanation.why + _of_trial(taken, job, ahead)
    wait = plan.waits.get(job.job_id)
    if not len(places) or not isinstance(wait, planned.Insufficient):
        return explanation._replace(why=why)
    holders = {one.job_id for one in wait.holders}
    return explanation._replace(
        why=f"{why}; {_next(cluster, taken, taken.pending[ahead], holders)}",
        hint="it starts when enough of what holds it ends, or gives its turn to it",
    )


def _of_trial(taken: Snapshot, job: Job, ahead: int) -> str:
    """The facts about a job that has used its first quantum, and the number of jobs before it; empty: it has not."""
    trial_s = taken.policy.scheduling.trial_s
    if job.ran_s < trial_s:
        return ""
    rivals = f"; {counted(ahead, 'waiting jobs')} go{'es' if ahead == 1 else ''} before it" if ahead else ""
    return f"; its trial of {spoken_duration(trial_s)} is over, and it takes turns{rivals}"


def _next(cluster: Cluster, taken: Snapshot, job: PendingJob, holders: Collection[int]) -> str:
    """A fact: which of the holders may give its slice to the job first, or why none does."""
    rules = taken.policy.scheduling
    there = (one for one in taken.running if one.job_id in holders and one.preemptor is None)
    jobs = that_give_turns(there, taken.qos)
    is_gang = EligibilityCache(taken.nodes, taken.policy).kind_of(job.shape).is_wide
    at = sliceable_at(holders_of(jobs, rules), Contender(job.since, has_used_first_quantum(job.ran_s, rules), is_gang))
    some = "not enough of these give their turns to it now" if (at <= taken.now).any() else ""
    at = np.where(at > taken.now, at, np.inf)
    if not len(at) or not isfinite(at.min()):
        return some or f"none of these gives its turn to it: {_why_none(jobs, is_gang)}"
    first = cluster.jobs.get(jobs[int(at.argmin())].job_id)
    whose = "one of them" if first is None else f"job {first.label}"
    told = f"{whose} may give its turn to it from @{{{int(at.min())}}} on"
    return f"{some}; {told}" if some else told


def _why_none(jobs: Sequence[RunningJob], is_gang: bool) -> str:
    """Why none of the holders gives its slice to the job, now or later."""
    if not jobs:
        return "they would not wait again"
    if not is_gang and all(len(one.grants) > 1 for one in jobs):
        return "they are over several nodes"
    return "they came before it"
