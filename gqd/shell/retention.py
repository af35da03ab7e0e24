"""Deletion of old data: events, audit entries, past reservations, jobs that ended long ago, and unused scripts.

Owns the schedule.  It runs beside the loop in small portions: reads in a thread, writes behind those of the loop.

A script or an environment is deleted only if no kept job names it in two checks `SETTLE_S` apart, and if no submission
put it in between (`BlobStore.suspect`).  A submission puts its blobs first and names them at once after, so a blob that
was put before the first check is named by the second.
"""

from __future__ import annotations

import asyncio
import contextlib

from gq.config.config import HistorySettings
from gq.errors import GqError
from gq.host.clock import Clock
from gqd.shell.log import LOG
from gqd.store.protocol import Batch, BlobStore, RetentionCutoffs, Store, StoreFailed

FIRST_AFTER_S = 60.0
EVERY_S = 3600.0
SETTLE_S = 60.0
"""Time between the two checks: no submission takes so long."""
PAGE = 5000
_DAY_S = 86_400.0


class Retention:
    def __init__(self, store: Store, blobs: BlobStore, settings: HistorySettings, settle_s: float = SETTLE_S) -> None:
        self._store = store
        self._blobs = blobs
        self._settings = settings
        self._settle_s = settle_s
        self._clock = Clock()
        """A clock of its own, since reading the loop's clock would take leaps away from the loop."""

    async def run(self) -> None:
        """Run for ever.  If the store has failed, the loop ends and reports it."""
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
            message = "old rows and scripts could not be removed; gqd will retry: %s"
            LOG.error(message, error, exc_info=not isinstance(error, GqError))

    async def forget_lines(self) -> None:
        """Delete old rows in separate batches, each a small transaction."""
        wanted = RetentionCutoffs(
            events_before=self._before(self._settings.keep_events_days),
            audit_before=self._before(self._settings.keep_audit_days),
            occurrences_before=self._before(self._settings.keep_reservations_days),
            jobs_before=self._before(self._settings.keep_jobs_days),
        )
        while await asyncio.to_thread(self._store.has_older, wanted):
            await self._store.commit(Batch(events=(), upserts={}, forgetting=wanted))

    async def drop_scripts(self) -> int:
        """Delete unused scripts and environments; returns their number."""
        before = self._before(self._settings.keep_scripts_days)
        if before is None:
            return 0
        dropped, last = 0, ""
        while page := await asyncio.to_thread(self._blobs.after, last, PAGE):
            last = page[-1]
            dropped += await self._drop_of(page, before)
        if dropped:
            LOG.info("deleted %d scripts and environments of old jobs", dropped)
        return dropped

    async def _drop_of(self, page: tuple[str, ...], before: float) -> int:
        unnamed = set(page) - await asyncio.to_thread(self._store.named_blobs, before)
        if not unnamed:
            return 0
        self._blobs.suspect(unnamed)
        await asyncio.sleep(self._settle_s)
        await self._store.commit(Batch(events=(), upserts={}))  # after all writes that were pending at the first check
        return await self._blobs.drop(unnamed - await asyncio.to_thread(self._store.named_blobs, before))

    def _before(self, days: int) -> float | None:
        return self._clock.now() - days * _DAY_S if days else None
