"""Queries of the database, in a thread of their own, so that a long query delays nothing else.

Owns the bound on waiting queries.  The deciding code has authorised each query, which is made only after the commit of
everything that was decided before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from gq.errors import GqError
from gq.wire.client import Accuracy, AuditTrail, Bookings, Jobs, QueryAudit, QueryHistory, Refused, ReplyBody
from gqd.shell.log import LOG
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
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._running: set[asyncio.Task[None]] = set()

    def ask(self, effect: Question) -> None:
        if len(self._running) >= MAX_WAITING:
            self._reply(effect, _busy())
            return
        task = asyncio.get_running_loop().create_task(self._run(effect))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def close(self) -> None:
        """Drop the waiting queries: clients repeat them."""
        for task in self._running:
            task.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _run(self, effect: Question) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._reply(effect, await loop.run_in_executor(self._pool, self._read, effect))
        except Exception as error:  # reading history must not end the daemon that writes it
            LOG.error("history cannot be read: %s", error, exc_info=not isinstance(error, GqError))
            self._reply(effect, Refused(code="history_failed", message=f"the history cannot be read: {error}"))

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
