"""Events of requests to owners of jobs (``gqctl ask``).  Pure."""

from __future__ import annotations

from gq.model.ask import AskAnswer
from gq.model.ids import JobId
from gqd.state.events.record import EventBase


class JobAsked(EventBase, frozen=True, kw_only=True):
    """A user asked the job's owner a favour."""

    job_id: JobId
    by: str
    uid: int
    text: str


class AsksAnswered(EventBase, frozen=True, kw_only=True):
    """All open requests about this job were answered."""

    job_id: JobId
    answer: AskAnswer
    text: str = ""
    by: str = ""
