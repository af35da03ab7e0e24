"""Requests that name jobs of long ago: looked up beside the loop, so many at once, and none is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

from gq.model.dependency import parse_dependency
from gq.wire import client
from gqd.shell.requests.dependency_lookup import MAX_WAITING, DependencyLookup, named_jobs
from gqd.state.effect import Reply
from gqd.state.input import ClientRequest, PastJob
from gqd.store.memory import MemoryStore
from tests.builders import client_request, submit

ENDED = PastJob(is_success=True, started=True)


class SlowStore(MemoryStore):
    """Knows every job, and answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.is_broken = False
        self.asked: list[list[int]] = []

    def past(self, job_ids: Collection[int]) -> dict[int, PastJob]:
        self.asked.append(sorted(job_ids))
        assert self.may_answer.wait(30)
        if self.is_broken:
            raise OSError("the disk is gone")
        return dict.fromkeys(job_ids, ENDED)


class Desk:
    """A desk, and what came of it; job 1 is in memory."""

    def __init__(self) -> None:
        self.store = SlowStore()
        self.entered: list[ClientRequest] = []
        self.answers: list[Reply] = []
        self.desk = DependencyLookup(
            self.store, lambda one: one == 1, lambda request, blobs: self.entered.append(request), self.answers.append
        )

    def take(self, text: str, number: int = 1) -> None:
        self.desk.take(client_request(submit(dependency=parse_dependency(text)), number), {})

    async def settle(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.entered) + len(self.answers) < count:
                await asyncio.sleep(0.001)
        self.desk.close()


def test_what_is_in_memory_is_not_looked_up_and_passes_what_is() -> None:
    async def work() -> Desk:
        desk = Desk()
        desk.take("afterok:1:7,after:8+5", number=1)
        desk.take("afterok:1", number=2)
        assert [request.request_id[-1] for request in desk.entered] == [2]
        desk.store.may_answer.set()
        await desk.settle(2)
        return desk

    desk = asyncio.run(work())
    assert desk.store.asked == [[7, 8]]
    assert desk.entered[-1].past == {7: ENDED, 8: ENDED}


def test_so_many_wait_and_the_next_is_told_to_try_again() -> None:
    async def work() -> Desk:
        desk = Desk()
        for number in range(MAX_WAITING + 1):
            desk.take("afterok:7", number)
        assert [answer.body.code for answer in desk.answers if isinstance(answer.body, client.Refused)] == ["busy"]
        desk.store.may_answer.set()
        await desk.settle(MAX_WAITING + 1)
        return desk

    assert len(asyncio.run(work()).entered) == MAX_WAITING


def test_a_database_that_cannot_be_read_refuses_the_request_and_ends_nothing() -> None:
    async def work() -> Desk:
        desk = Desk()
        desk.store.is_broken = True
        desk.store.may_answer.set()
        desk.take("afterok:7")
        await desk.settle(1)
        return desk

    [answer] = asyncio.run(work()).answers
    assert isinstance(answer.body, client.Refused)
    assert (answer.body.code, "the disk is gone" in answer.body.message) == ("history_failed", True)


def test_every_request_that_can_name_jobs_is_looked_at() -> None:
    one = submit(dependency=parse_dependency("afterok:7,singleton"))
    update = client.UpdateJob(job_id=3, dependency=parse_dependency("afterany:9_2"))
    assert [named_jobs(body) for body in (one, client.SubmitChain(stages=(one, submit())), update, client.Ping())] == [
        {7}, {7}, {9}, set(),
    ]  # fmt: skip
