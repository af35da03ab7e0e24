"""Estimates of the start of pending jobs, cheaper alternatives to a request, and the accuracy of past estimates."""

from __future__ import annotations

import msgspec


class FirstEstimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first estimate that a pending job got."""

    made_at: float
    start_at: float
    p90_at: float | None = None
    is_promised: bool = False


class StartEstimate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a pending job is expected to start; `never` is why the job can never start."""

    job_id: int
    position: int
    """Position among the pending jobs of the partition, from 1."""
    start_at: float | None = None
    """Expected start if running jobs take their predicted time; None: unknown."""
    p90_at: float | None = None
    """Instant by which nine of ten such jobs have started; None: unknown."""
    end_at: float | None = None
    is_promised: bool = False
    """Whether the job has a planned start and every job in its way a time limit, so that it starts by `p90_at`."""
    nodes: tuple[str, ...] = ()
    why: str = ""
    """The basis of the estimate, or why there is none."""
    never: str = ""


class Alternative(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the request.  `options`: the options to add or change; empty: the request as it is."""

    options: str
    what: str
    """The options in words: ``4 GPUs instead of 8``."""
    start_at: float | None = None
    p90_at: float | None = None
    end_at: float | None = None
    nodes: tuple[str, ...] = ()
    why: str = ""
    """Why there is no start."""


class AccuracyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of first estimates: seconds that jobs started later (negative: earlier) than estimated."""

    kind: str
    """``promised``, ``estimated`` or ``all``."""
    jobs: int
    median_error_s: float
    """Median of the absolute error."""
    p90_error_s: float
    median_bias_s: float
    """Median of the signed error: how much later than estimated jobs started."""
    within_band: float
    """Fraction of the jobs that had started by their p90."""
