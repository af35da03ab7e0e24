"""Events of crontabs and their runs.  Pure."""

from __future__ import annotations

from gq.model.crontab import CronEntry
from gq.model.ids import JobId
from gqd.state.events.record import EventBase


class CrontabSet(EventBase, frozen=True, kw_only=True):
    """A crontab was added or replaced; entries that the former crontab had keep their state."""

    user: str
    uid: int
    text: str
    entries: tuple[CronEntry, ...]


class CrontabRemoved(EventBase, frozen=True, kw_only=True):
    user: str


class CronFired(EventBase, frozen=True, kw_only=True):
    """A crontab entry was due at ``due_at`` and became this job, or for the reason ``why`` no job (None).

    All due times until then are handled: ``missed`` earlier ones became no job.
    """

    user: str
    number: int
    due_at: float
    job_id: JobId | None = None
    why: str = ""
    missed: int = 0
    is_known: bool = False
    """The same reason held at the due time before: the same job is still running."""


class CronRunEnded(EventBase, frozen=True, kw_only=True):
    """The last job of an entry ended; ``why``: how, unless the job succeeded."""

    user: str
    number: int
    job_id: JobId
    state: str
    why: str = ""
