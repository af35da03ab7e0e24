"""Commits batches to disk, and then dispatches their effects.

Owns *durable before visible*: effects leave in the order of their batches, each after its own commit and all earlier
ones.  Answers that changed nothing wait as well, because they may show state that is not on disk yet.  Several batches
may be pending at once, so that the disk and the deciding code work at the same time.
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
"""Pending batches; when there are more, the loop collects further inputs into the next one."""

Release = Callable[[tuple[Effect, ...], Mapping[str, bytes]], None]


class _PendingBatch(NamedTuple):
    commit: asyncio.Future[None] | None
    blobs: asyncio.Future[dict[str, bytes]] | None
    events: tuple[Event, ...]
    effects: tuple[Effect, ...]


class CommitQueue:
    """Calls `on_change` when the effects of a batch have left, or when a failure ends all dispatch (`failure`)."""

    def __init__(self, store: Store, blobs: BlobStore, release: Release, on_change: Callable[[], None]) -> None:
        self._store = store
        self._blobs = blobs
        self._release = release
        self._on_change = on_change
        self._batches: deque[_PendingBatch] = deque()
        self._pump: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        """The error that stopped the queue, after which the daemon must end."""

    @property
    def has_room(self) -> bool:
        return len(self._batches) < MAX_IN_FLIGHT

    def push(self, batch: Batch | None, effects: tuple[Effect, ...]) -> None:
        """Queue a batch and its effects; `batch` None: no event happened."""
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
        """Wait until all effects have left, or a commit failed."""
        if self._pump is not None:
            await self._pump

    async def _send_all(self) -> None:
        try:
            while self._batches:
                await self._send(self._batches[0])
                self._batches.popleft()
                self._on_change()
        except Exception as error:  # after any error, later effects must not leave
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
