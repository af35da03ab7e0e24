"""Answers to requests: send them, remember them for repeated requests, record them in the audit trail.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gq.errors import Refusal
from gq.wire import client
from gqd.control import audit
from gqd.state.effect import Reply
from gqd.state.events import event
from gqd.state.input import ClientRequest

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def send(draft: TurnBuilder, request: ClientRequest, answer: client.ReplyBody) -> None:
    draft.enqueue(Reply(route=request.route, request_id=request.request_id, body=answer))


def remember(draft: TurnBuilder, request: ClientRequest, answer: client.ReplyBody) -> None:
    """Remember the answer to a change by its request id: a repeated request gets the same answer."""
    draft.emit(
        event.RequestAnswered(
            at=draft.now,
            request_id=request.request_id,
            uid=request.peer.uid,
            answer=msgspec.msgpack.encode(answer),
        )
    )
    record(draft, request, answer)


def record(draft: TurnBuilder, request: ClientRequest, answer: client.ReplyBody) -> None:
    """Record the request and its outcome in the audit trail."""
    peer, body = request.peer, request.body
    if not draft.denied or not isinstance(answer, client.JobsDone) or answer.job_ids or answer.tasks:
        draft.emit(audit.request_event(draft.now, peer, draft.cluster, body, answer, request.hook))
    for code, job_ids in draft.denied.items():
        draft.emit(audit.denied_event(draft.now, peer, draft.cluster, body, code, job_ids))


def refused(refusal: Refusal) -> client.Refused:
    return client.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint, offers=refusal.offers)
