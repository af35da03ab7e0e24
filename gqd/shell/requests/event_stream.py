"""Queries for events: answers are held back until there are events, or the time is over.

Owns the waiting queries, and reads the database in a thread of its own.  Secrets (keys of steps and nodes, stored
answers) are never shown, and targets of notices only by their host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from gq.wire.client import Events, Refused, ReplyBody
from gqd.shell.commit_queue import Release
from gqd.shell.requests.blocking_worker import BlockingWorker
from gqd.state.effect import Effect, Reply, ReplyEvents
from gqd.store.protocol import EventQuery, Store

MAX_WAITING = 512
MAX_WAITING_PER_USER = 64
SETTLE_S = 0.2
"""Time between two reads for the same query: events come in bursts."""


class EventQueries:
    """Runs queries for events.  `answer` sends a reply, on the loop; `telling` wraps the release of effects."""

    def __init__(self, store: Store, answer: Callable[[Reply], None]) -> None:
        self._store = store
        self._answer = answer
        self._worker = BlockingWorker("events", "the change log")
        self.close = self._worker.close
        self._news = asyncio.Event()

    def ask(self, effect: ReplyEvents) -> None:
        reply = partial(self._reply, effect)
        if (message := self._too_many(effect.user)) is not None:
            reply(Refused(code="busy", message=message, hint="try again in a moment"))
            return
        self._worker.start(partial(self._found, effect), reply, effect.user)

    def _too_many(self, user: str) -> str | None:
        """Why a further query of the user is refused; None: it is not."""
        if sum(one == user for one in self._worker.waiting.values()) >= MAX_WAITING_PER_USER:
            return f"{MAX_WAITING_PER_USER} clients of {user} are already waiting for events"
        if len(self._worker.waiting) >= MAX_WAITING:
            return f"{MAX_WAITING} clients are already waiting for events"
        return None

    def telling(self, release: Release) -> Release:
        """The release function, extended to wake the waiting queries."""

        def release_and_tell(effects: tuple[Effect, ...], blobs: Mapping[str, bytes]) -> None:
            release(effects, blobs)
            if self._worker.waiting:
                self._news.set()
                self._news = asyncio.Event()

        return release_and_tell

    async def _found(self, effect: ReplyEvents) -> Events:
        """The page of events: at once if there are any, else when there are or the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + effect.query.wait_s
        asked = effect.query
        while True:
            news, query = self._news, EventQuery(asked=asked, shown_to=effect.shown_to)
            page = await self._worker.call(self._store.event_lines, query)
            left_s = until - loop.time()
            if page.events or effect.query.from_now or left_s <= 0:
                return page
            try:
                await asyncio.wait_for(news.wait(), left_s)
            except TimeoutError:
                return page
            asked = msgspec.structs.replace(asked, after=page.last)  # do not read the same events again
            await asyncio.sleep(min(SETTLE_S, left_s))

    def _reply(self, effect: ReplyEvents, body: ReplyBody) -> None:
        self._answer(Reply(route=effect.route, request_id=effect.request_id, body=body))
