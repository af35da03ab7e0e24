"""Crontabs as the controller has them.  Mutable facts; only apply functions change them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gq.model.crontab import CronEntry
from gq.model.ids import JobId


class EntryKey(NamedTuple):
    """Which entry of whose crontab."""

    user: str
    number: int


@dataclass(slots=True)
class Entry:
    cron: CronEntry
    followed_until: float
    """What was due until then has been seen to."""
    last_due_at: float | None = None
    last_job_id: JobId | None = None
    last_state: str = ""
    """How that job ended; empty: it has not, or there was none."""
    trouble: str = ""
    """See `gq.model.crontab.CronEntryInfo`."""
    trouble_at: float | None = None

    def runs_like(self, other: CronEntry) -> bool:
        """It is the same command."""
        return self.cron.spec.command == other.spec.command

    def is_like(self, other: CronEntry) -> bool:
        """At the same times, too."""
        return self.runs_like(other) and (self.cron.schedule, self.cron.zone) == (other.schedule, other.zone)


@dataclass(slots=True)
class Crontab:
    user: str
    uid: int
    text: str
    set_at: float
    entries: dict[int, Entry] = field(default_factory=dict)
    """By number: from 1, in the order of their lines."""
