"""Work on attempts, in order for each and at the same time for different ones.

Calls that block (the spool's disk, the kernel's cgroups) are made in threads, so that the loop never waits and
heartbeats go on.  A lane is one attempt's queue; it exists while there is work in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from gq.model.ids import AttemptId
from gqnode.daemon.threads import Threads

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None] | None]
"""Done on the loop at once, or to be awaited.  What it raises ends the daemon."""
P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class AttemptQueues:
    """`on_failure` is called with what a piece of work raised: the daemon must not go on with a turn half done."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._queues: dict[AttemptId, deque[Work]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._threads = Threads(THREADS, "gqnode")

    def put(self, attempt_id: AttemptId, work: Work) -> None:
        """Do it after everything that was put before for this attempt; now, if there is nothing."""
        queue = self._queues.get(attempt_id)
        if queue is not None:
            queue.append(work)
            return
        self._queues[attempt_id] = queue = deque([work])
        self._drain(attempt_id, queue)

    def _drain(self, attempt_id: AttemptId, queue: deque[Work]) -> None:
        """Go on until there is nothing left, or something to wait for."""
        try:
            while queue:
                waiting = queue.popleft()()
                if waiting is not None:
                    self._wait(attempt_id, queue, waiting)
                    return
            del self._queues[attempt_id]
        except Exception as error:
            self._on_failure(error)

    def _wait(self, attempt_id: AttemptId, queue: deque[Work], waiting: Awaitable[None]) -> None:
        async def finish() -> None:
            try:
                await waiting
            except Exception as error:
                self._on_failure(error)
            else:
                self._drain(attempt_id, queue)

        task = asyncio.get_running_loop().create_task(finish())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def in_thread(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Make a call that blocks."""
        return self._threads.run(partial(call, *arguments, **named))

    async def close(self, timeout_s: float) -> None:
        """Let what is being done come to its end; what waits behind it is left to the next life of the daemon."""
        for queue in self._queues.values():
            queue.clear()
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
        self._threads.close()
