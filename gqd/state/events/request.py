"""Events of requests that were answered.  Pure."""

from __future__ import annotations

from gq.model.ids import RequestId
from gqd.state.events.record import EventBase


class RequestAnswered(EventBase, frozen=True, kw_only=True):
    """A request that changed something got this reply (an encoded `ReplyBody`), which a repeated request gets again."""

    request_id: RequestId
    uid: int
    answer: bytes


class RequestsForgotten(EventBase, frozen=True, kw_only=True):
    """The replies to all requests answered before ``before`` were forgotten."""

    before: float
