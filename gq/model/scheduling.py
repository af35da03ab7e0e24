"""Scheduling policy (``[scheduler]`` in gq.toml): the order of jobs, and which jobs may overtake others.

The file and the planner use the same values; `PRESETS` are the named policies.
"""

from __future__ import annotations

from typing import Any

import msgspec

ORDERS = ("priority", "shortest", "arrival", "attained")
BACKFILLS = ("none", "skip", "protect")
PREEMPTS = ("qos", "turns")
EXPECTATIONS = ("predicted", "limit", "exact")
MAX_HISTORY_JOBS = 32
"""Run times stored for each signature (`gqd.state.runtime_history`)."""


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[scheduler]``.  A key that the file does not set has the named policy's value."""

    policy: str = "default"
    """A name of `PRESETS`."""
    order: str = "priority"
    """``priority``, ``shortest`` (expected run time, then id), ``arrival`` (id) or ``attained`` (jobs that have not
    used their trial, then the time since they are pending, requeues left out, then id)."""
    backfill: str = "protect"
    """The rule for jobs behind a blocked job: ``none``: nothing, ``skip``: start on any free resources, ``protect``:
    start if no planned start is delayed."""
    protected_jobs: int = 0
    """For ``protect``: number of blocked jobs per partition, first in order, that get a planned start (EASY: 1)."""
    protect_wide_after_s: float | None = 600.0
    """Pending time after which the oldest job over several nodes gets a planned start, too; None: never."""
    protect_any_after_s: float | None = 7200.0
    """Pending time after which two jobs of any size get a planned start, too: the oldest, and the oldest of the users
    furthest below their fair share (`gqd.sched.backfill.starvation`)."""
    protect_fair_share: float = 0.2
    """Maximum fraction of the GPUs held by jobs that the fair-share slot started; a single job may exceed it."""
    protect_oldest_share: float = 0.3
    """Maximum fraction of the GPUs held by jobs that the oldest-job slot started; a single job may exceed it."""
    preempt: str = "qos"
    """Which jobs may be preempted: ``qos``: as QOS and guarantees permit; ``turns``: also jobs that have used their
    trial or turn (`gqd.sched.preemption.timeslice`)."""
    trial_s: float = 10_800.0
    """Seconds that each job runs, over all its attempts, before it takes turns with others."""
    turn_s: float = 7200.0
    """Seconds that a job runs in its turn before a job submitted earlier may preempt it."""
    resume_s: float = 60.0
    """Seconds from a job's restart to the point where it was preempted, unless the job specifies them."""
    expect: str = "predicted"
    """The expected run time of a job: ``predicted`` (its limit, else a prediction from similar jobs), ``limit`` (a job
    without a limit runs for ever), or ``exact`` (gqsim only: the true run time)."""
    history_jobs: int = 10
    """A prediction is the mean over this number of jobs that ended last, of the same account and size."""
    expected_without_history_s: float = 3600.0
    locality_wait_s: float = 600.0
    """Default number of seconds that ``--switches`` and ``--prefer`` wait for matching nodes."""
    cores_kept_per_gpu: int = 0
    """CPUs that jobs without GPUs leave free for each idle GPU of a node."""
    low_tier_qos: tuple[str, ...] = ("scavenger",)
    """QOS whose jobs get the oldest GPUs that fit (see ``gpu_tiers``)."""
    high_tier_qos: tuple[str, ...] = ("high",)
    """QOS whose jobs get the newest GPUs that fit; jobs of other QOS get the best fit."""
    gpu_tiers: tuple[str, ...] = ()
    """GPU types, the oldest first."""
    plan_steps: int = 200_000
    """Units of work after which a scheduling pass ends with the decisions made so far."""
    estimate_jobs: int = 1000
    """Number of pending jobs, first in order, whose start is estimated in the background."""


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "fifo": {"order": "arrival", "backfill": "none"},
    "fifo-skip": {"order": "arrival", "backfill": "skip"},
    "sjf": {"order": "shortest", "backfill": "none", "expect": "exact"},
    "easy": {
        "order": "arrival", "protected_jobs": 1, "protect_wide_after_s": None, "protect_any_after_s": None,
        "expect": "exact",
    },
    "easy-user": {
        "order": "arrival", "protected_jobs": 1, "protect_wide_after_s": None, "protect_any_after_s": None,
        "expect": "limit",
    },
    "conservative": {
        "order": "priority", "protected_jobs": 1_000_000, "protect_wide_after_s": None, "protect_any_after_s": None,
    },
    "las": {"order": "attained", "backfill": "skip", "preempt": "turns"},
}  # fmt: skip


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A ``[[topology]]`` table: a switch that connects nodes, or other switches."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
