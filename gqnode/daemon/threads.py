"""A few threads for calls that block, at the least cost: a job of a second or less makes seven such calls.

Owns the threads and the way back to the loop.  `concurrent.futures` makes two futures, a condition and a wake-up of
the loop for each call, which was a third of what gqnode did; here it is one future, and one wake-up for all calls that
ended meanwhile.  The threads never keep the process from ending: a disk that hangs must not, and what is cut off is
what a crash cuts off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Call(NamedTuple):
    make: Callable[[], Any]
    future: asyncio.Future[Any]


class _Ended(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


class Threads:
    """A small pool of threads; created and used on the loop."""

    def __init__(self, count: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._ended: deque[_Ended] = deque()
        self._is_waking = False
        self._count = count
        for number in range(count):
            Thread(target=self._serve, name=f"{name}-{number}", daemon=True).start()

    def run(self, make: Callable[[], T]) -> asyncio.Future[T]:
        """Return a future with the result or the exception of the call, which a thread makes."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(_Call(make, future))
        return future

    def close(self) -> None:
        """Begin no call that waits; threads end with the call that they are in."""
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call.future.cancel()
        for _ in range(self._count):
            self._calls.put(None)

    # ── in a thread ───────────────────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            self._ended.append(_make(call))
            del call  # what it holds must not live on while this thread waits
            self._wake()

    def _wake(self) -> None:
        """Twice does no harm; never too late: the loop takes the flag down before it looks."""
        if self._is_waking:
            return
        self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    # ── on the loop ───────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self) -> None:
        self._is_waking = False
        while self._ended:
            future, result, error = self._ended.popleft()
            if future.done():  # who waited was cancelled
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)


def _make(call: _Call) -> _Ended:
    try:
        return _Ended(call.future, call.make(), None)
    except BaseException as error:
        return _Ended(call.future, None, error)
