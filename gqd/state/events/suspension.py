"""Facts of jobs that stand still for a while: see `gqd.state.events.event`.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId
from gqd.state.events.record import EventBase


class JobSuspended(EventBase, frozen=True, kw_only=True):
    """Its nodes are to stop its processes where they are; it keeps what it holds."""

    attempt_id: AttemptId


class JobResumed(EventBase, frozen=True, kw_only=True):
    """They are to go on."""

    attempt_id: AttemptId
