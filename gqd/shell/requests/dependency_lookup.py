"""Looks up jobs in the database that the dependencies of a request name and that are no longer in memory.

Owns the look-up, in a thread of its own so that it delays nothing else; other requests pass at once.  The number of
waiting requests is bounded, and so are the jobs of each (`gq.model.dependency.MAX_TERMS`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from gq.errors import GqError
from gq.model.dependency import MAX_TERMS, Dependency
from gq.wire import client as wire
from gqd.shell.log import LOG
from gqd.state.effect import Reply
from gqd.state.input import ClientRequest
from gqd.store.protocol import Store

MAX_WAITING = 256
MAX_IDS = 10 * MAX_TERMS
"""Jobs looked up for one request; a chain has many stages."""

Enter = Callable[[ClientRequest, dict[str, bytes]], None]


class DependencyLookup:
    """Adds past jobs to requests.  `enter` accepts the requests, `answer` sends a refusal.

    `is_known` tells whether a job is in memory.
    """

    def __init__(
        self, store: Store, is_known: Callable[[int], bool], enter: Enter, answer: Callable[[Reply], None]
    ) -> None:
        self._store = store
        self._is_known = is_known
        self._enter = enter
        self._answer = answer
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="past")
        self._running: set[asyncio.Task[None]] = set()

    def take(self, request: ClientRequest, blobs: dict[str, bytes]) -> None:
        """Pass the request on, at once if all jobs that it names are in memory."""
        job_ids = sorted(job_id for job_id in named_jobs(request.body) if not self._is_known(job_id))[:MAX_IDS]
        if not job_ids:
            self._enter(request, blobs)
            return
        if len(self._running) >= MAX_WAITING:
            message = f"{MAX_WAITING} requests about jobs of long ago are waiting already"
            self._refuse(request, wire.Refused(code="busy", message=message, hint="try again in a moment"))
            return
        task = asyncio.get_running_loop().create_task(self._look_up(request, blobs, job_ids))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def close(self) -> None:
        """Drop the waiting requests, which were not acknowledged."""
        for task in self._running:
            task.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _look_up(self, request: ClientRequest, blobs: dict[str, bytes], job_ids: Collection[int]) -> None:
        loop = asyncio.get_running_loop()
        try:
            past = await loop.run_in_executor(self._pool, self._store.past, job_ids)
        except Exception as error:  # reading history must not end the daemon that writes it
            LOG.error("history cannot be read: %s", error, exc_info=not isinstance(error, GqError))
            message = f"the history cannot be read: {error}"
            self._refuse(request, wire.Refused(code="history_failed", message=message))
        else:
            self._enter(msgspec.structs.replace(request, past=past), blobs)

    def _refuse(self, request: ClientRequest, refusal: wire.Refused) -> None:
        self._answer(Reply(route=request.route, request_id=request.request_id, body=refusal))


def named_jobs(body: wire.RequestBody) -> set[int]:
    """Ids of the jobs that the dependencies of a request name."""
    return {term.job_id for dependency in _dependencies(body) for term in dependency.terms if term.job_id}


def _dependencies(body: wire.RequestBody) -> Iterable[Dependency]:
    match body:
        case wire.Submit():
            found = [body.spec.dependency]
        case wire.SubmitChain():
            found = [stage.spec.dependency for stage in body.stages]
        case wire.UpdateJob():
            found = [body.dependency]
        case _:
            found = []
    return [one for one in found if one is not None]
