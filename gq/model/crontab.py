"""Crontabs: command lines that become jobs of their owner on a schedule.  Pure.

A *crontab* is a user's text in the format of crontab(5); each line of it with a schedule is an *entry*, which becomes a
job each time that it is *due*.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gq.model.job import JobSpec
from gq.model.resource import Count

MAX_TEXT_BYTES = 65536
NO_TROUBLE = ""


class Overlap(StrEnum):
    """The rule for an entry that is due while its previous job has not ended."""

    SKIP = "skip"
    ALLOW = "allow"


class Missed(StrEnum):
    """The rule for due times that passed while the controller was down."""

    SKIP = "skip"
    ONCE = "once"
    """A single job is created for all missed due times."""


class CronEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An entry as its owner requests it."""

    line: Count
    """Line number in the crontab, from 1."""
    schedule: str
    """The five fields of crontab(5); see `gq.calendar.schedule`."""
    zone: str = ""
    """Name of a time zone; empty: the controller's own."""
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.SKIP
    spec: JobSpec
    """The request for each job; `begin_at` and `deadline_at` in it are seconds after the due time."""


class CronEntryInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as commands show it."""

    line: int
    schedule: str
    zone: str = ""
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.SKIP
    name: str = ""
    """Name of the entry's jobs."""
    command: str = ""
    next_at: tuple[float, ...] = ()
    """The next due times."""
    next: tuple[str, ...] = ()
    """The next due times in the entry's zone: ISO 8601."""
    last_due_at: float | None = None
    job_id: int | None = None
    """Id of the entry's last job."""
    state: str = ""
    """State or outcome of the last job (Slurm's long word)."""
    trouble: str = NO_TROUBLE
    """Why the last due time created no job, or how the last job failed; cleared when a job of the entry succeeds."""
    trouble_at: float | None = None


class CrontabInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's crontab as commands show it."""

    user: str
    set_at: float
    text: str = ""
    """The crontab's text; left out in lists, and for users who may not read it."""
    entries: tuple[CronEntryInfo, ...] = ()
