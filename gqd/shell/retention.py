"""What gqd forgets in time: old lines of the change log and of the audit trail, past reservations, jobs that ended long
ago, and scripts that no job needs any more.

Owns when.  It works beside the loop, in small portions: reads in a thread, writes behind what the loop writes.

A script or an environment is dropped only if no kept job names it, seen twice with a while between, and if nobody has
put it meanwhile (`BlobStore.suspect`).  A submission puts first and names at once after, so whoever put before the
first look is named by the second.
"""

from __future__ import annotations

import asyncio
import contextlib

from gq.config.config import HistorySettings
from gq.errors import GqError
from gq.host.clock import Clock
from gqd.shell.log import LOG
from gqd.store.protocol import Batch, BlobStore, Forgetting, Store, StoreFailed

FIRST_AFTER_S = 60.0
EVERY_S = 3600.0
SETTLE_S = 60.0
"""Between the two looks: no submission is on its way for so long."""
PAGE = 5000
_DAY_S = 86_400.0


class Retention:
    def __init__(self, store: Store, blobs: BlobStore, settings: HistorySettings, settle_s: float = SETTLE_S) -> None:
        self._store = store
        self._blobs = blobs
        self._settings = settings
        self._settle_s = settle_s
        self._clock = Clock()
        """Of its own: the loop's tells the loop of leaps."""

    async def run(self) -> None:
        """For ever.  A store that has failed ends the loop, which says so."""
        await asyncio.sleep(FIRST_AFTER_S)
        while True:
            with contextlib.suppress(StoreFailed):
                await self._try()
            await asyncio.sleep(EVERY_S)

    async def _try(self) -> None:
        try:
            await self.forget_lines()
            await self.drop_scripts()
        except StoreFailed:
            raise
        except Exception as error:
            message = "old lines and scripts could not be removed; it is tried again: %s"
            LOG.error(message, error, exc_info=not isinstance(error, GqError))

    async def forget_lines(self) -> None:
        """In batches of their own, each a small transaction."""
        wanted = Forgetting(
            events_before=self._before(self._settings.keep_events_days),
            audit_before=self._before(self._settings.keep_audit_days),
            occurrences_before=self._before(self._settings.keep_reservations_days),
            jobs_before=self._before(self._settings.keep_jobs_days),
        )
        while await asyncio.to_thread(self._store.has_older, wanted):
            await self._store.commit(Batch(events=(), upserts={}, forgetting=wanted))

    async def drop_scripts(self) -> int:
        """How many."""
        before = self._before(self._settings.keep_scripts_days)
        if before is None:
            return 0
        dropped, last = 0, ""
        while page := await asyncio.to_thread(self._blobs.after, last, PAGE):
            last = page[-1]
            dropped += await self._drop_of(page, before)
        if dropped:
            LOG.info("%d scripts and environments of jobs that ended long ago are dropped", dropped)
        return dropped

    async def _drop_of(self, page: tuple[str, ...], before: float) -> int:
        unnamed = set(page) - await asyncio.to_thread(self._store.named_blobs, before)
        if not unnamed:
            return 0
        self._blobs.suspect(unnamed)
        await asyncio.sleep(self._settle_s)
        await self._store.commit(Batch(events=(), upserts={}))  # behind whatever was on its way at the first look
        return await self._blobs.drop(unnamed - await asyncio.to_thread(self._store.named_blobs, before))

    def _before(self, days: int) -> float | None:
        return self._clock.now() - days * _DAY_S if days else None
