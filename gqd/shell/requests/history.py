"""Queries of the database, in a thread of their own, so that a long query delays nothing else.

Owns the bound on waiting queries.  The deciding code has authorised each query, which is made only after the commit of
everything that was decided before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from gq.wire.client import Accuracy, AuditTrail, Bookings, Jobs, QueryAudit, QueryHistory, Refused, ReplyBody
from gqd.shell.requests.blocking_worker import BlockingWorker
from gqd.state.effect import (
    Reply,
    ReplyAccuracy,
    ReplyAudit,
    ReplyBookings,
    ReplyHistory,
    ReplyNotices,
    ReplyReservations,
)
from gqd.state.input import Peer
from gqd.state.job_view import visible_to
from gqd.store.protocol import HistoryQuery, Store
from gqd.store.queries import bookings
from gqd.store.queries.accuracy import lines_of

Question = ReplyHistory | ReplyAudit | ReplyAccuracy | ReplyNotices | ReplyReservations | ReplyBookings

MAX_WAITING = 256


class HistoryQueries:
    """Runs queries of the database.  `answer` sends a reply, on the loop.

    `page` is the maximum number of jobs or lines in one answer; it may be changed.
    """

    def __init__(self, store: Store, page: int, answer: Callable[[Reply], None]) -> None:
        self._store = store
        self._answer = answer
        self.page = page
        self._worker = BlockingWorker("history")
        self.close = self._worker.close

    def ask(self, effect: Question) -> None:
        reply = partial(self._reply, effect)
        if len(self._worker.waiting) >= MAX_WAITING:
            reply(_busy())
            return
        self._worker.start(partial(self._worker.call, self._read, effect), reply)

    def _read(self, effect: Question) -> ReplyBody:
        if isinstance(effect, ReplyAudit):
            return self._read_trail(effect.query)
        if isinstance(effect, ReplyNotices):
            found = self._store.notices(effect.query, None if effect.shown_to is None else effect.shown_to.uid)
            return msgspec.structs.replace(found, dropped=effect.dropped)
        if isinstance(effect, ReplyAccuracy):
            return Accuracy(lines=lines_of(self._store.estimate_outcomes(effect.query)))
        if isinstance(effect, ReplyReservations):
            past = self._store.past_occurrences(effect.query)
            return bookings.with_past(effect.current, past, effect.query.limit)
        if isinstance(effect, ReplyBookings):
            past_usage = self._store.bookings(effect.query)
            return Bookings(usage=bookings.by_user([*past_usage, *effect.under_way]))
        return self._read_jobs(effect.query, effect.shown_to)

    def _read_trail(self, asked: QueryAudit) -> AuditTrail:
        query = msgspec.structs.replace(asked, limit=min(max(asked.limit, 1), self.page))
        found = self._store.audit(query)
        return AuditTrail(entries=found.entries, last=found.last, more=found.more)

    def _read_jobs(self, asked: QueryHistory, shown_to: Peer | None) -> Jobs:
        """Read a page of jobs; one more job than the page is read to know whether there are more."""
        limit = min(max(asked.limit, 1), self.page)
        query = HistoryQuery(
            filter=asked.filter,
            started_before=asked.started_before,
            ended_after=asked.ended_after,
            with_steps=asked.with_steps,
            after=asked.after,
            limit=limit + 1,
        )
        jobs = tuple([visible_to(shown_to, one) for one in self._store.history(query)])
        if len(jobs) > limit and jobs[limit - 1].job_id == jobs[limit].job_id:
            limit += 1  # two parts of an array's record; the next page begins after it
        return Jobs(jobs=jobs[:limit], more=len(jobs) > limit)

    def _reply(self, effect: Question, body: ReplyBody) -> None:
        self._answer(Reply(route=effect.route, request_id=effect.request_id, body=body))


def _busy() -> Refused:
    return Refused(
        code="busy", message=f"{MAX_WAITING} history queries are waiting already", hint="try again in a moment"
    )
