"""Runs the work of each attempt in order, and the work of different attempts at the same time.

Calls that block (the spool's disk, the kernel's cgroups) are made in threads, so that the loop never waits and
heartbeats go on.  An attempt's queue exists while it holds work.
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
"""A piece of work: either done on the loop at once or awaitable.  An exception from it ends the daemon."""
P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class AttemptQueues:
    """Work queues by attempt; `on_failure` gets an exception of the work, after which the daemon must end."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._queues: dict[AttemptId, deque[Work]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._threads = Threads(THREADS, "gqnode")

    def put(self, attempt_id: AttemptId, work: Work) -> None:
        """Run `work` after all earlier work of this attempt; at once if there is none."""
        queue = self._queues.get(attempt_id)
        if queue is not None:
            queue.append(work)
            return
        self._queues[attempt_id] = queue = deque([work])
        self._drain(attempt_id, queue)

    def _drain(self, attempt_id: AttemptId, queue: deque[Work]) -> None:
        """Run the queued work until the queue is empty or a piece has to be awaited."""
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
        """Make a blocking call in a thread."""
        return self._threads.run(partial(call, *arguments, **named))

    async def close(self, timeout_s: float) -> None:
        """Let running work finish; queued work is left to the next start of the daemon."""
        for queue in self._queues.values():
            queue.clear()
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
        self._threads.close()
