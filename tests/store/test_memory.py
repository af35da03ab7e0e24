"""The faults that the memory store has to order."""

from __future__ import annotations

import asyncio

import pytest

from gqd.store.memory import MemoryStore
from gqd.store.protocol import Batch, StoreFailed


def next_job_id(number: int) -> Batch:
    return Batch(events=(), upserts={"meta": (("next_job_id", number),)})


async def waiting(store: MemoryStore, *numbers: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(store.commit(next_job_id(number))) for number in numbers]
    await asyncio.sleep(0)
    return tasks


def test_commits_wait_for_a_slow_disk_and_vanish_in_a_crash() -> None:
    async def story() -> None:
        store = MemoryStore()
        store.hold()
        first, second, third = await waiting(store, 2, 3, 4)
        store.flush(1)
        await first
        assert (second.done(), store.load().next_job_id) == (False, 2)

        store.crash()

        results = await asyncio.gather(second, third, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2
        assert store.load().next_job_id == 2
        await store.commit(next_job_id(5))
        assert store.load().next_job_id == 5

    asyncio.run(story())


def test_flushing_all_makes_the_disk_fast_again() -> None:
    async def story() -> None:
        store = MemoryStore()
        store.hold()
        tasks = await waiting(store, 2, 3)
        store.flush()
        await asyncio.gather(*tasks)
        await store.commit(next_job_id(4))
        assert store.load().next_job_id == 4

    asyncio.run(story())


def test_a_broken_disk_fails_what_waits_and_all_that_comes() -> None:
    async def story() -> None:
        store = MemoryStore()
        store.hold()
        tasks = await waiting(store, 2, 3)
        store.fail("smoke")
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(result) for result in results] == ["smoke", "smoke"]
        with pytest.raises(StoreFailed, match="smoke"):
            await store.commit(next_job_id(4))
        assert store.load().next_job_id == 1

    asyncio.run(story())
