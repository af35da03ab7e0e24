"""Turns: least attained service with one threshold, for jobs that checkpoint and wait again (``preempt = "turns"``).

Every job has a *trial* of some hours, counted over all its attempts; who has had it takes *turns* with the others that
have.  A job may have another give its turn when that has run for `LEAST_RUN` resumes since it started, and

- the other one's trial is over and its own is not; or
- both are on the same side of it, the other was submitted later and has run for a whole turn since it started.

A job over several nodes gives its turn to such jobs only.  Since who has had its trial never comes back from that, and
within each side who was submitted first never gives way to who came later, nobody takes turns with the same job within
an instant.  A stop is made when it is worth its price (rent or buy): who takes the place has waited for half of what
the resumes cost in seconds, for each of its own GPUs.

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
"""So many resumes' worth a job runs before it gives its turn: no more than a third of what it holds are resumes."""
PATIENCE = 0.5
"""So much of the price a job waits before others give their turns to it."""
OF_GANG = 2.0
"""A job over several nodes, which has to find all of them again, goes only where others would lose so much more."""
LEAST_TURN = 20.0
"""A turn is no shorter than so many resumes."""


class Taker(NamedTuple):
    """A job that waits."""

    since: float
    """Who has the earlier one goes first: its submission (see `gqd.sched.snapshot.model.PendingJob`)."""
    is_through: bool
    """Its trial is over."""
    is_gang: bool
    """It goes over several nodes."""


class Givers(NamedTuple):
    """Running jobs, a place in every column each.  Instants: from then on."""

    since: Floats
    rested_at: Floats
    """It has run for its least time."""
    turned_at: Floats
    """And for a whole turn."""
    through_at: Floats
    """Its trial is over."""
    is_gang: Booleans


class GiversNow(NamedTuple):
    """The same, as far as it is so at one instant."""

    since: Floats
    have_turned: Booleans
    """They have run for a whole turn."""
    give_trials: Booleans
    """They have had their trial, and run for their least time."""
    are_through: Booleans
    are_single: Booleans
    """They go over one node."""


def is_through(ran_s: float, rules: Scheduling) -> bool:
    """The trial is over of a job that has run so long, over all its attempts."""
    return ran_s >= rules.trial_s


def givers_of(jobs: Sequence[RunningJob], rules: Scheduling) -> Givers:
    began_at = np.array([one.began_at + one.stood_s for one in jobs], np.float64)
    resume_s = _resumes_s(jobs, rules)
    return Givers(
        since=np.array([one.since for one in jobs], np.float64),
        rested_at=began_at + LEAST_RUN * resume_s,
        turned_at=began_at + np.maximum(rules.turn_s, LEAST_TURN * resume_s),
        through_at=began_at + rules.trial_s - np.array([one.ran_s for one in jobs], np.float64),
        is_gang=np.array([len(one.grants) > 1 for one in jobs], np.bool_),
    )


def _resumes_s(jobs: Sequence[RunningJob], rules: Scheduling) -> Floats:
    """As `resume_s_of` of each."""
    usual = rules.resume_s
    return np.array([usual if one.resume_s is None else one.resume_s for one in jobs], np.float64)


def gives_turn_at(givers: Givers, to: Taker) -> Floats:
    """From when on each of them may give its turn to this one, as long as both go on as they do; infinite: never."""
    in_turn = np.where(to.since < givers.since, givers.turned_at, np.inf)
    at = np.maximum(in_turn if to.is_through else givers.rested_at, givers.through_at)
    if not to.is_through:
        at = np.minimum(at, in_turn)
    return np.where(givers.is_gang & (not to.is_gang), np.inf, at)


def givers_now(givers: Givers, now: float) -> GiversNow:
    are_through = givers.through_at <= now
    return GiversNow(
        since=givers.since,
        have_turned=givers.turned_at <= now,
        give_trials=are_through & (givers.rested_at <= now),
        are_through=are_through,
        are_single=~givers.is_gang,
    )


def give_turns_now(givers: GiversNow, to: Taker) -> Booleans:
    """Each of them may give its turn to this one: as `gives_turn_at` says."""
    may = (givers.since > to.since) & givers.have_turned
    may = may & givers.are_through if to.is_through else may | givers.give_trials
    return may if to.is_gang else may & givers.are_single


def resume_s_of(job: RunningJob, rules: Scheduling) -> float:
    """What it takes until the job is again where it was: as it says itself, else as the cluster does."""
    return rules.resume_s if job.resume_s is None else job.resume_s


def lost_s(job: RunningJob, rules: Scheduling, now: float) -> float:
    """What a stop costs it: the resume; and what it has not saved, unless it does when it is told to go."""
    unsaved_s = 0.0 if job.saves or job.saved_at is None else max(0.0, now - job.saved_at)
    return resume_s_of(job, rules) + unsaved_s


def least_lost_s(jobs: Sequence[RunningJob], rules: Scheduling, now: float) -> float:
    """The least that a stop costs one of them; nothing if there is none."""
    saved_at = np.array([now if one.saves or one.saved_at is None else one.saved_at for one in jobs], np.float64)
    lost = _resumes_s(jobs, rules) + np.maximum(0.0, now - saved_at)
    return float(lost.min()) if len(jobs) else 0.0


def latest_first(jobs: Sequence[RunningJob]) -> Integers:
    """Of each, how many were submitted later: of equal cost those go first that came last."""
    order = np.lexsort(([-one.job_id for one in jobs], [-one.since for one in jobs]))
    ranks = np.zeros(len(jobs), np.int64)
    ranks[order] = np.arange(len(jobs))
    return ranks


def worth_it_at(waits_since: float, price_gpu_s: float, gpus: int) -> float:
    """When who has waited since then may have others stopped at this price, which so many GPUs are for."""
    return waits_since + math.ceil(PATIENCE * price_gpu_s / max(1, gpus))
