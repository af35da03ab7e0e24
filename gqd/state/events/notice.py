"""Events of notices to users.  Pure."""

from __future__ import annotations

from gq.model.ids import JobId
from gqd.state.events.record import EventBase


class NoticeQueued(EventBase, frozen=True, kw_only=True):
    """A notice was put into the outbox; see `gqd.state.notice.Notice`."""

    notice_id: int
    user: str
    uid: int
    job_id: JobId | None = None
    on: str
    kind: str
    to: str = ""
    body: str


class NoticeDropped(EventBase, frozen=True, kw_only=True):
    """A notice was dropped, because too many notices of this user wait."""

    user: str
    job_id: JobId | None = None
    on: str
    kind: str


class NoticeCommandQueued(EventBase, frozen=True, kw_only=True):
    """Job ``by_job`` runs the notice's command; its end decides whether the notice was delivered."""

    notice_id: int
    by_job: JobId


class NoticeDelivered(EventBase, frozen=True, kw_only=True):
    """The notice was delivered; ``by_job``: the job that ran its command."""

    notice_id: int
    by_job: JobId = JobId(0)


class NoticeFailed(EventBase, frozen=True, kw_only=True):
    """A delivery failed; it is retried at ``next_at``, or (None) given up."""

    notice_id: int
    why: str
    next_at: float | None


class JobTold(EventBase, frozen=True, kw_only=True):
    """A one-time notice about an array as a whole, or about an attempt, was queued."""

    job_id: JobId
    on: str
    attempt: int = 0
