"""Looks up jobs in the database that the dependencies of a request name and that are no longer in memory.

Owns the look-up, in a thread of its own so that it delays nothing else; other requests pass at once.  The number of
waiting requests is bounded, and so are the jobs of each (`gq.model.dependency.MAX_TERMS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from gq.model.dependency import MAX_TERMS, Dependency
from gq.wire import client as wire
from gqd.shell.requests.blocking_worker import BlockingWorker
from gqd.state.effect import Reply
from gqd.state.input import ClientRequest, PastJob
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
        self._worker = BlockingWorker("past")
        self.close = self._worker.close

    def take(self, request: ClientRequest, blobs: dict[str, bytes]) -> None:
        """Pass the request on, at once if all jobs that it names are in memory."""
        job_ids = sorted(job_id for job_id in named_jobs(request.body) if not self._is_known(job_id))[:MAX_IDS]
        if not job_ids:
            self._enter(request, blobs)
            return
        if len(self._worker.waiting) >= MAX_WAITING:
            message = f"{MAX_WAITING} requests about jobs of long ago are waiting already"
            self._pass_on(request, blobs, wire.Refused(code="busy", message=message, hint="try again in a moment"))
            return
        look_up = partial(self._worker.call, self._store.past, job_ids)
        self._worker.start(look_up, partial(self._pass_on, request, blobs))

    def _pass_on(
        self, request: ClientRequest, blobs: dict[str, bytes], past: dict[int, PastJob] | wire.Refused
    ) -> None:
        if isinstance(past, wire.Refused):
            self._answer(Reply(route=request.route, request_id=request.request_id, body=past))
        else:
            self._enter(msgspec.structs.replace(request, past=past), blobs)


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
