"""Crontabs: command lines that become jobs of their owner again and again.  Pure.

A *crontab* is a user's text, as crontab(5) has it; each line of it with a schedule is an *entry*, which becomes a job
each time that it is *due*.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gq.model.job import JobSpec
from gq.model.resource import Count

MAX_TEXT_BYTES = 65536
NO_TROUBLE = ""


class Overlap(StrEnum):
    """What happens when an entry is due and its last job is not over."""

    SKIP = "skip"
    ALLOW = "allow"


class Missed(StrEnum):
    """What happens to due times at which no controller was there."""

    SKIP = "skip"
    ONCE = "once"
    """One job for all of them."""


class CronEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is asked for."""

    line: Count
    """Of the text, from 1."""
    schedule: str
    """The five fields of crontab(5), see `gq.calendar.schedule`."""
    zone: str = ""
    """Name of a time zone; empty: the controller's own."""
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.SKIP
    spec: JobSpec
    """Of each job; its instants (`begin_at`, `deadline_at`) are seconds after it is due."""


class CronEntryInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as it is shown."""

    line: int
    schedule: str
    zone: str = ""
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.SKIP
    name: str = ""
    """Of its jobs."""
    command: str = ""
    next_at: tuple[float, ...] = ()
    """When it is due next."""
    next: tuple[str, ...] = ()
    """The same in its zone: ISO 8601."""
    last_due_at: float | None = None
    job_id: int | None = None
    """Of the last job that it became."""
    state: str = ""
    """How that job stands, or ended (Slurm's long word)."""
    trouble: str = NO_TROUBLE
    """Why it became no job the last time, or how its job failed; until one has ended well again."""
    trouble_at: float | None = None


class CrontabInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's crontab as it is shown."""

    user: str
    set_at: float
    text: str = ""
    """Only to those who may read it, and not in lists of several."""
    entries: tuple[CronEntryInfo, ...] = ()
