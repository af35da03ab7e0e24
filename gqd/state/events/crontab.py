"""Events of crontabs and their runs.  Pure."""

from __future__ import annotations

from gq.model.crontab import CronEntry
from gq.model.ids import JobId
from gqd.state.events.record import EventBase


class CrontabSet(EventBase, frozen=True, kw_only=True):
    """Made or changed; the whole of it.  Entries that were in the one before go on as they were."""

    user: str
    uid: int
    text: str
    entries: tuple[CronEntry, ...]


class CrontabRemoved(EventBase, frozen=True, kw_only=True):
    user: str


class CronFired(EventBase, frozen=True, kw_only=True):
    """An entry was due at ``due_at``, and became this job; None: none, and ``why``.

    All due times up to then have been seen to: ``missed`` of them before it became no job.
    """

    user: str
    number: int
    due_at: float
    job_id: JobId | None = None
    why: str = ""
    missed: int = 0
    is_known: bool = False
    """The same was said of the time before: the same job is in the way."""


class CronRunEnded(EventBase, frozen=True, kw_only=True):
    """The last job of an entry is over; ``why``: how, unless it ended well."""

    user: str
    number: int
    job_id: JobId
    state: str
    why: str = ""
