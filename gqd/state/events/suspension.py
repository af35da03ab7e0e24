"""Events of suspended attempts.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId
from gqd.state.events.record import EventBase


class JobSuspended(EventBase, frozen=True, kw_only=True):
    """The attempt's nodes are ordered to suspend its processes; it keeps its resources."""

    attempt_id: AttemptId


class JobResumed(EventBase, frozen=True, kw_only=True):
    """The attempt's nodes are ordered to resume its processes."""

    attempt_id: AttemptId
