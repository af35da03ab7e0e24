"""Reads the database for clients in a thread, so that a long read delays nothing else.  A failed read is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gq.errors import GqError
from gq.wire.client import Refused
from gqd.shell.log import LOG

T = TypeVar("T")


class BlockingWorker:
    """Runs reads of `subject` (as in "the history"); `waiting` holds the user of each."""

    def __init__(self, name: str, subject: str = "the history") -> None:
        self.waiting: dict[asyncio.Task[None], str] = {}
        self._subject = subject
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Call the function in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def start(self, read: Callable[[], Awaitable[T]], done: Callable[[T | Refused], None], user: str = "") -> None:
        """Start a read, which may `call`; `done` gets its result, or the refusal if it failed."""
        task = asyncio.get_running_loop().create_task(self._run(read, done))
        self.waiting[task] = user
        task.add_done_callback(self._forget)

    def close(self) -> None:
        """Drop the waiting reads: clients repeat their requests, which were not acknowledged."""
        for task in self.waiting:
            task.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _run(self, read: Callable[[], Awaitable[T]], done: Callable[[T | Refused], None]) -> None:
        result: T | Refused
        try:
            result = await read()
        except Exception as error:  # reading must not end the daemon that writes
            message = f"{self._subject} cannot be read: {error}"
            LOG.error("%s", message, exc_info=not isinstance(error, GqError))
            result = Refused(code="history_failed", message=message)
        self._forget(asyncio.current_task())  # a client that has its answer may ask again
        done(result)

    def _forget(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self.waiting.pop(task, None)
