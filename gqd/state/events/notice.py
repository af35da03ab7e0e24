"""Events of notices to users.  Pure."""

from __future__ import annotations

from gq.model.ids import JobId
from gqd.state.events.record import EventBase


class NoticeQueued(EventBase, frozen=True, kw_only=True):
    """This is to be told to that target; see `gqd.state.notice.Notice`."""

    notice_id: int
    user: str
    uid: int
    job_id: JobId | None = None
    on: str
    kind: str
    to: str = ""
    body: str


class NoticeDropped(EventBase, frozen=True, kw_only=True):
    """Too many wait for this user already: this one will not be told."""

    user: str
    job_id: JobId | None = None
    on: str
    kind: str


class NoticeCommandQueued(EventBase, frozen=True, kw_only=True):
    """Job ``by_job`` runs the notice's command; its end decides whether the notice was delivered."""

    notice_id: int
    by_job: JobId


class NoticeDelivered(EventBase, frozen=True, kw_only=True):
    """``by_job``: the job that ran the command."""

    notice_id: int
    by_job: JobId = JobId(0)


class NoticeFailed(EventBase, frozen=True, kw_only=True):
    """It was not delivered; it is tried again at ``next_at``, or (None) given up."""

    notice_id: int
    why: str
    next_at: float | None


class JobTold(EventBase, frozen=True, kw_only=True):
    """What is told of only once: of an array as a whole, or of an attempt."""

    job_id: JobId
    on: str
    attempt: int = 0
