"""Crontabs and the state of their entries.  Only apply functions change them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gq.model.crontab import CronEntry
from gq.model.ids import JobId


class EntryKey(NamedTuple):
    """Identifies an entry: the user of the crontab and the entry's number."""

    user: str
    number: int


@dataclass(slots=True)
class Entry:
    """An entry of a crontab, and what became of its last due time."""

    cron: CronEntry
    followed_until: float
    """Instant up to which all due times have been handled."""
    last_due_at: float | None = None
    last_job_id: JobId | None = None
    last_state: str = ""
    """How the last job ended; empty: it has not ended, or there was none."""
    trouble: str = ""
    """See `gq.model.crontab.CronEntryInfo`."""
    trouble_at: float | None = None

    def runs_like(self, other: CronEntry) -> bool:
        """Whether the other entry runs the same command."""
        return self.cron.spec.command == other.spec.command

    def is_like(self, other: CronEntry) -> bool:
        """Whether the other entry runs the same command at the same times."""
        return self.runs_like(other) and (self.cron.schedule, self.cron.zone) == (other.schedule, other.zone)


@dataclass(slots=True)
class Crontab:
    """A user's crontab."""

    user: str
    uid: int
    text: str
    set_at: float
    entries: dict[int, Entry] = field(default_factory=dict)
    """Entries by number, from 1, in the order of their lines."""
