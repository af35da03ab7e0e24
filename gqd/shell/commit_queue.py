"""What has been decided and is on its way out: first to disk, then to the world.

Owns *durable before visible*: effects leave strictly in the order of their batches, each after its own commit and
all earlier ones; answers that changed nothing too, because they may show what is not on disk yet.  Several batches
may be on their way at once, so that the disk and the deciding code work at the same time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gqd.shell.dispatch import wanted_blobs
from gqd.shell.log import LOG, log_facts
from gqd.state.effect import Effect
from gqd.state.events.event import Event
from gqd.store.protocol import Batch, BlobStore, Store

MAX_IN_FLIGHT = 4
"""Batches; beyond, the loop collects more inputs into the next one."""

Release = Callable[[tuple[Effect, ...], Mapping[str, bytes]], None]


class _PendingBatch(NamedTuple):
    commit: asyncio.Future[None] | None
    blobs: asyncio.Future[dict[str, bytes]] | None
    events: tuple[Event, ...]
    effects: tuple[Effect, ...]


class CommitQueue:
    """`on_change` is called when a parcel has left, or none ever will (`failure`)."""

    def __init__(self, store: Store, blobs: BlobStore, release: Release, on_change: Callable[[], None]) -> None:
        self._store = store
        self._blobs = blobs
        self._release = release
        self._on_change = on_change
        self._batches: deque[_PendingBatch] = deque()
        self._pump: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        """Why nothing leaves any more; the daemon must end."""

    @property
    def has_room(self) -> bool:
        return len(self._batches) < MAX_IN_FLIGHT

    def push(self, batch: Batch | None, effects: tuple[Effect, ...]) -> None:
        """Send this on its way; `batch` None: nothing became a fact."""
        names = wanted_blobs(effects)
        if batch is None and not names and not self._batches and self.failure is None:
            self._release(effects, {})
            return
        commit = asyncio.ensure_future(self._store.commit(batch)) if batch is not None else None
        blobs = asyncio.ensure_future(self._blobs.get(names)) if names else None
        events = batch.events if batch is not None else ()
        self._batches.append(_PendingBatch(commit, blobs, events, effects))
        if self._pump is None:
            self._pump = asyncio.ensure_future(self._send_all())

    async def drain(self) -> None:
        """Until everything has left, or failed."""
        if self._pump is not None:
            await self._pump

    async def _send_all(self) -> None:
        try:
            while self._batches:
                await self._send(self._batches[0])
                self._batches.popleft()
                self._on_change()
        except Exception as error:  # whatever it was: what comes after it must not leave
            self.failure = error
            self._on_change()
        finally:
            self._pump = None

    async def _send(self, batch: _PendingBatch) -> None:
        if batch.commit is not None:
            await batch.commit
        blobs = await batch.blobs if batch.blobs is not None else {}
        if len(blobs) < len(wanted_blobs(batch.effects)):
            LOG.error("the blob store lacks scripts or environments that jobs need")
        log_facts(batch.events)
        self._release(batch.effects, blobs)
