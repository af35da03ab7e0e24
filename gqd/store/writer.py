"""Group commit: one thread writes the items of many callers, in the order of their calls.

A caller waits until its own item is durable.  Items that arrive while the disk is busy form the next group, so that
many callers share one transaction.  The first failure is final: unacknowledged items never become durable, and no later
item is written after a lost one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from gq.errors import GqError
from gqd.store.protocol import StoreFailed

T = TypeVar("T")

MAX_WAITING = 256
MAX_GROUP = 64


class _Entry(NamedTuple, Generic[T]):
    item: T
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class GroupWriter(Generic[T]):
    """Calls `write` in its own thread with the items of a group; `write` makes all of them durable or raises.

    At most `max_waiting` items wait; further callers wait for room, in order.
    """

    def __init__(self, name: str, write: Callable[[list[T]], None], max_waiting: int = MAX_WAITING) -> None:
        self._write = write
        self._waiting: deque[_Entry[T]] = deque()
        self._changed = threading.Condition()
        self._places = asyncio.Semaphore(max_waiting)
        self._failure: StoreFailed | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def put(self, item: T) -> None:
        """Write `item`, and return when it is durable; `StoreFailed` if it, or an earlier one, could not be written."""
        try:
            await self._places.acquire()
        except asyncio.CancelledError:
            self._fail(StoreFailed("commit_withdrawn", "a commit was cancelled before it was written"))
            raise
        try:
            await self._enqueue(item)
        finally:
            self._places.release()

    def _enqueue(self, item: T) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise StoreFailed("store_closed", "the store is closed")
            self._waiting.append(_Entry(item, loop, done))
            self._changed.notify()
        return done

    def close(self) -> None:
        """Write the waiting items, then end the thread.  Later calls of `put` fail."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    # ── in the writer's thread ────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while group := self._next_group():
            self._tell(group, self._write_group(group))

    def _write_group(self, group: list[_Entry[T]]) -> StoreFailed | None:
        """Write a group; returns the failure, None: it is durable."""
        if self._failure is None:
            try:
                self._write([entry.item for entry in group])
            except Exception as error:  # after any error the group is not on disk
                self._fail(_as_failure(error))
            else:
                return None
        return self._failure

    def _next_group(self) -> list[_Entry[T]]:
        """Wait for the next group; empty: the writer is closed and nothing is left to write."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            return [self._waiting.popleft() for _ in range(min(MAX_GROUP, len(self._waiting)))]

    def _fail(self, failure: StoreFailed) -> None:
        with self._changed:
            self._failure = self._failure or failure

    def _tell(self, group: list[_Entry[T]], failure: StoreFailed | None) -> None:
        """Wake the callers of a group, with one wake-up of each event loop (there is one, except in tests)."""
        for loop in dict.fromkeys(entry.loop for entry in group):
            mine = [entry.done for entry in group if entry.loop is loop]
            try:
                loop.call_soon_threadsafe(_resolve, mine, failure)
            except RuntimeError:  # the loop is closed, so no caller waits
                continue


def _resolve(waiting: list[asyncio.Future[None]], failure: StoreFailed | None) -> None:
    for done in waiting:
        if done.done():  # its caller was cancelled
            continue
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)


def _as_failure(error: Exception) -> StoreFailed:
    if isinstance(error, StoreFailed):
        return error
    message = error.message if isinstance(error, GqError) else f"{type(error).__name__}: {error}"
    return StoreFailed(
        "commit_failed", f"could not write to the database: {message}", "free disk space, check the disk"
    )
