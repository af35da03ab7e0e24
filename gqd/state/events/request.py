"""Events of requests that were answered.  Pure."""

from __future__ import annotations

from gq.model.ids import RequestId
from gqd.state.events.record import EventBase


class RequestAnswered(EventBase, frozen=True, kw_only=True):
    """A request that changed something got this answer (an encoded `ReplyBody`); the same id gets it again."""

    request_id: RequestId
    uid: int
    answer: bytes


class RequestsForgotten(EventBase, frozen=True, kw_only=True):
    """All that were answered before ``before``."""

    before: float
