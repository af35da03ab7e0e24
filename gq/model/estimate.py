"""When waiting jobs start as far as can be known, what could be asked for instead, and how wrong estimates were."""

from __future__ import annotations

import msgspec


class FirstEstimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a waiting job was told first."""

    made_at: float
    start_at: float
    p90_at: float | None = None
    is_promised: bool = False


class StartEstimate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a waiting job starts, as far as can be known now; `never`: it cannot, and why."""

    job_id: int
    position: int
    """Among those that wait in its partition, from 1."""
    start_at: float | None = None
    """As jobs are expected to run; None: not known."""
    p90_at: float | None = None
    """If jobs before it run late; nine of ten such jobs have started by then.  None: not known."""
    end_at: float | None = None
    is_promised: bool = False
    """Protected, and everything in its way has a time limit: not later than `p90_at`."""
    nodes: tuple[str, ...] = ()
    why: str = ""
    """Why there is no better answer, or what it is based on."""
    never: str = ""


class Alternative(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`options`: what to add to the command line, or to change in it; empty: as it was asked."""

    options: str
    what: str
    """The same in words: ``4 GPUs instead of 8``."""
    start_at: float | None = None
    p90_at: float | None = None
    end_at: float | None = None
    nodes: tuple[str, ...] = ()
    why: str = ""
    """Where there is no start: why."""


class AccuracyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of estimates: seconds that jobs started later (negative: earlier) than was said first."""

    kind: str
    """``promised``, ``estimated`` or ``all``"""
    jobs: int
    median_error_s: float
    """Of the absolute error; likewise the next."""
    p90_error_s: float
    median_bias_s: float
    """With its sign: how much later than said."""
    within_band: float
    """Part of them that had started by their p90."""
