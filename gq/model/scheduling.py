"""How the queue is planned (``[scheduler]`` in gq.toml): in which order jobs are considered, what they may overtake.

The same values are the file's and the planner's; `PRESETS` are the policies that have a name.
"""

from __future__ import annotations

from typing import Any

import msgspec

ORDERS = ("priority", "shortest", "arrival", "attained")
BACKFILLS = ("none", "skip", "protect")
PREEMPTS = ("qos", "turns")
EXPECTATIONS = ("predicted", "limit", "exact")
MAX_HISTORY_JOBS = 32
"""Lengths that are kept of each signature (`gqd.state.runtime_history`)."""


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """``[scheduler]``.  What is not set in the file is as the named policy has it."""

    policy: str = "default"
    """A name of `PRESETS`."""
    order: str = "priority"
    """``priority``, ``shortest`` (expected length, then id), ``arrival`` (id) or ``attained`` (who has not
    had its trial, then since when it waits, a requeue left out, then id)."""
    backfill: str = "protect"
    """What jobs behind a blocked one may do: ``none`` nothing, ``skip`` start wherever they fit, ``protect`` start
    where they do not delay a protected one."""
    protected_jobs: int = 0
    """With ``protect``: so many blocked jobs of each partition, the first in order, get a protected start (EASY: 1)."""
    protect_wide_after_s: float | None = 600.0
    """The oldest job over several nodes that has waited so long gets one, too; None: none does."""
    protect_any_after_s: float | None = 7200.0
    """And so do two of any size that have waited so long: the oldest, and the oldest of those whose users had least of
    what is due to them (`gqd.sched.backfill.starvation`)."""
    protect_fair_share: float = 0.2
    """What the second of them starts holds no more than this part of the GPUs, or is one job."""
    protect_oldest_share: float = 0.3
    """The oldest likewise."""
    preempt: str = "qos"
    """Who gives way: ``qos`` (as QOS and guarantees say), or ``turns`` (also who has had its trial or its turn, see
    `gqd.sched.preemption.timeslice`)."""
    trial_s: float = 10_800.0
    """So long each job runs, over all its attempts, before it takes turns."""
    turn_s: float = 7200.0
    """So long one that takes turns runs before who was submitted earlier has its place back."""
    resume_s: float = 60.0
    """What a job that was stopped needs until it is again where it was, if it does not say so itself."""
    expect: str = "predicted"
    """How long a job is expected to run: ``predicted`` (its limit, else as jobs like it did), ``limit`` (what has none
    is expected to run for ever), or ``exact`` (gqsim only: as long as it will)."""
    history_jobs: int = 10
    """A prediction is the mean of so many of the jobs that ended last of the same account and size."""
    expected_without_history_s: float = 3600.0
    locality_wait_s: float = 600.0
    """How long ``--switches`` and ``--prefer`` hold out where the job does not say."""
    cores_kept_per_gpu: int = 0
    """CPUs that jobs without GPUs leave free for each idle GPU of a node."""
    low_tier_qos: tuple[str, ...] = ("scavenger",)
    """Their jobs get the oldest GPUs that fit (see ``gpu_tiers``) …"""
    high_tier_qos: tuple[str, ...] = ("high",)
    """… and theirs the newest; others go by best fit alone."""
    gpu_tiers: tuple[str, ...] = ()
    """GPU types, the oldest first."""
    plan_steps: int = 200_000
    """Units of work after which a pass ends with what it has."""
    estimate_jobs: int = 1000
    """Waiting jobs, the first in order, whose start is estimated in the background."""


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
    """One ``[[topology]]``: nodes, or other switches, that hang together."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
