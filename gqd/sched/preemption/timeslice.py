"""Time slicing by least attained service with one threshold, for jobs that checkpoint and requeue (``preempt =
"turns"``).

Every job has a first quantum (*trial*) of some hours, counted over all its attempts; jobs that have used it share the
GPUs in time slices (*turns*).  A job may preempt another that has run for `LEAST_RUN` resumes since it started, and

* the other job has used its first quantum and the preemptor has not; or
* both are in the same class, the other was submitted later and has run for a whole slice since it started.

A job over several nodes is preempted by such jobs only.  Two jobs cannot preempt each other back and forth at one
instant: using up the first quantum is irreversible, and within each class an earlier submission is never preempted by a
later one.  A preemption is made when it pays off (rent or buy): the preemptor has waited, for each of its GPUs, half of
the GPU-seconds that the resumes cost.

Source: Gu et al., Tiresias, NSDI 2019 (discretised least attained service); Karlin et al. 1988 (rent or buy).  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gq.model.scheduling import Scheduling
from gqd.sched.snapshot.model import RunningJob
from gqd.state.index.queue import Booleans, Floats, Integers

LEAST_RUN = 3.0
"""Multiples of its resume time that a job runs before it may be preempted: at most a third of its time is resumes."""
PATIENCE = 0.5
"""Fraction of the price that a job waits before it may preempt others."""
OF_GANG = 2.0
"""Cost factor of victims over several nodes, which need all of their nodes at once to resume."""
LEAST_TURN = 20.0
"""Minimum length of a time slice in resume times."""


class Contender(NamedTuple):
    """A pending job that could preempt others."""

    since: float
    """The submission time; the earlier job goes first (see `gqd.sched.snapshot.model.PendingJob`)."""
    has_used_first_quantum: bool
    """Whether the job has used its first quantum."""
    is_gang: bool
    """Whether the job runs on several nodes."""


class Holders(NamedTuple):
    """Running jobs as columns; each `…_at` column holds the instant from which the condition is true."""

    since: Floats
    rested_at: Floats
    """The job has run for its minimum time."""
    turned_at: Floats
    """The job has also run for a whole time slice."""
    through_at: Floats
    """The job has used its first quantum."""
    is_gang: Booleans


class HoldersNow(NamedTuple):
    """The conditions of `Holders` at one instant."""

    since: Floats
    have_turned: Booleans
    """The jobs have run for a whole time slice."""
    give_trials: Booleans
    """The jobs have used their first quantum and run for their minimum time."""
    are_through: Booleans
    are_single: Booleans
    """The jobs run on one node."""


def has_used_first_quantum(ran_s: float, rules: Scheduling) -> bool:
    """Whether a job that has run `ran_s` seconds over all its attempts has used its first quantum."""
    return ran_s >= rules.trial_s


def holders_of(jobs: Sequence[RunningJob], rules: Scheduling) -> Holders:
    began_at = np.array([job.began_at + job.stood_s for job in jobs], np.float64)
    resume_s = _resumes_s(jobs, rules)
    return Holders(
        since=np.array([job.since for job in jobs], np.float64),
        rested_at=began_at + LEAST_RUN * resume_s,
        turned_at=began_at + np.maximum(rules.turn_s, LEAST_TURN * resume_s),
        through_at=began_at + rules.trial_s - np.array([job.ran_s for job in jobs], np.float64),
        is_gang=np.array([len(job.grants) > 1 for job in jobs], np.bool_),
    )


def _resumes_s(jobs: Sequence[RunningJob], rules: Scheduling) -> Floats:
    """The values of `resume_s_of` as a column."""
    usual = rules.resume_s
    return np.array([usual if job.resume_s is None else job.resume_s for job in jobs], np.float64)


def sliceable_at(givers: Holders, to: Contender) -> Floats:
    """The instant from which each job may be preempted by this one if both continue; infinite: never."""
    in_turn = np.where(to.since < givers.since, givers.turned_at, np.inf)
    at = np.maximum(in_turn if to.has_used_first_quantum else givers.rested_at, givers.through_at)
    if not to.has_used_first_quantum:
        at = np.minimum(at, in_turn)
    return np.where(givers.is_gang & (not to.is_gang), np.inf, at)


def holders_now(givers: Holders, now: float) -> HoldersNow:
    are_through = givers.through_at <= now
    return HoldersNow(
        since=givers.since,
        have_turned=givers.turned_at <= now,
        give_trials=are_through & (givers.rested_at <= now),
        are_through=are_through,
        are_single=~givers.is_gang,
    )


def sliceable_now(givers: HoldersNow, to: Contender) -> Booleans:
    """Mask of the jobs that this one may preempt now, by the rule of `sliceable_at`."""
    may = (givers.since > to.since) & givers.have_turned
    may = may & givers.are_through if to.has_used_first_quantum else may | givers.give_trials
    return may if to.is_gang else may & givers.are_single


def resume_s_of(job: RunningJob, rules: Scheduling) -> float:
    """Seconds until the job is where it was before a stop: its own figure, else the cluster's."""
    return rules.resume_s if job.resume_s is None else job.resume_s


def lost_s(job: RunningJob, rules: Scheduling, now: float) -> float:
    """Seconds of work that a stop costs the job: the resume, and unsaved work unless the job saves when notified."""
    unsaved_s = 0.0 if job.saves or job.saved_at is None else max(0.0, now - job.saved_at)
    return resume_s_of(job, rules) + unsaved_s


def least_lost_s(jobs: Sequence[RunningJob], rules: Scheduling, now: float) -> float:
    """The minimum of `lost_s` over the jobs; 0 if there are none."""
    saved_at = np.array([now if job.saves or job.saved_at is None else job.saved_at for job in jobs], np.float64)
    lost = _resumes_s(jobs, rules) + np.maximum(0.0, now - saved_at)
    return float(lost.min()) if len(jobs) else 0.0


def latest_first(jobs: Sequence[RunningJob]) -> Integers:
    """The number of jobs submitted later than each; of equal cost the latest are preempted first."""
    order = np.lexsort(([-job.job_id for job in jobs], [-job.since for job in jobs]))
    ranks = np.zeros(len(jobs), np.int64)
    ranks[order] = np.arange(len(jobs))
    return ranks


def pays_off_at(waits_since: float, price_gpu_s: float, gpus: int) -> float:
    """The instant from which a job waiting since `waits_since` may preempt at this price for its `gpus` GPUs."""
    return waits_since + math.ceil(PATIENCE * price_gpu_s / max(1, gpus))
