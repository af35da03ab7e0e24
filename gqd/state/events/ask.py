"""Facts of favours that are asked: see `gqd.state.events.event`.  Pure."""

from __future__ import annotations

from gq.model.ask import AskAnswer
from gq.model.ids import JobId
from gqd.state.events.record import EventBase


class JobAsked(EventBase, frozen=True, kw_only=True):
    """Somebody asks its holder a favour."""

    job_id: JobId
    by: str
    uid: int
    text: str


class AsksAnswered(EventBase, frozen=True, kw_only=True):
    """All that was asked of this job, and was open."""

    job_id: JobId
    answer: AskAnswer
    text: str = ""
    by: str = ""
