"""Durable before visible: nothing is acknowledged that a crash could take back, and everything leaves in order."""

from __future__ import annotations

import asyncio

import pytest

from gq.wire import client as wire
from gq.wire import node as node_wire
from gqd.store.memory import MemoryStore
from gqd.store.protocol import StoreFailed
from tests.shell.rig import Rig, hello, job, running, until


async def commits_waiting(rig: Rig, count: int) -> None:
    await until(lambda: len(rig.store._waiting) >= count)


def test_a_submit_is_answered_only_when_its_commit_has_returned() -> None:
    async def scenario() -> None:
        async with running() as rig:
            rig.store.hold()
            client = rig.client_wire()
            await client.request(job())
            await commits_waiting(rig, 1)
            assert await client.is_silent()
            rig.store.flush()
            assert (await client.reply()).body == wire.Submitted(job_id=1)

    asyncio.run(scenario())


def test_no_node_hears_of_a_job_before_it_is_on_disk() -> None:
    async def scenario() -> None:
        async with running() as rig:
            node = rig.node_wire()
            await node.say(hello())
            assert isinstance(await node.hear(), node_wire.Welcome)
            rig.store.hold()
            client = rig.client_wire()
            await client.request(job())
            await commits_waiting(rig, 1)
            assert await node.is_silent()
            rig.store.flush()
            assert isinstance(await node.hear(), node_wire.Orders)

    asyncio.run(scenario())


def test_answers_leave_in_the_order_of_their_batches_and_reads_do_not_overtake() -> None:
    async def scenario() -> None:
        async with running() as rig:
            rig.store.hold()
            client = rig.client_wire()
            sent = []
            for body in (job(), job(), wire.ListJobs()):
                sent.append(await client.request(body))
                await commits_waiting(rig, min(len(sent), 2))
            assert await client.is_silent(), "the read would show what is not on disk"
            rig.store.flush(1)
            assert (await client.reply()).request_id == sent[0]
            assert await client.is_silent()
            rig.store.flush()
            assert [(await client.reply()).request_id for _ in range(2)] == sent[1:]

    asyncio.run(scenario())


def test_a_crowd_waits_for_the_disk_in_few_batches() -> None:
    async def scenario() -> None:
        async with running() as rig:
            rig.store.hold()
            client = rig.client_wire()
            for _ in range(50):
                await client.request(job())
                await commits_waiting(rig, 1)
            assert await client.is_silent()
            assert len(rig.store._waiting) <= 4
            rig.store.flush()
            assert len({(await client.reply()).request_id for _ in range(50)}) == 50

    asyncio.run(scenario())


def test_a_failed_commit_ends_the_daemon_and_acknowledges_nothing() -> None:
    async def scenario() -> None:
        async with running() as rig:
            rig.store.hold()
            client = rig.client_wire()
            for body in (job(), wire.ListJobs(), job()):
                await client.request(body)
            await commits_waiting(rig, 1)
            rig.store.fail()
            assert rig.serving is not None
            with pytest.raises(StoreFailed):
                await asyncio.wait_for(rig.serving, 10)
            assert await client.is_silent()
            assert not rig.store.load().jobs

    asyncio.run(scenario())


def test_a_client_that_lost_the_answer_asks_again_and_gets_the_same_job() -> None:
    async def scenario() -> None:
        async with running() as rig:
            first, second = rig.client_wire(), rig.client_wire()
            request_id = await first.request(job())
            assert (await first.reply()).body == wire.Submitted(job_id=1)
            await second.request(job(), request_id)
            assert (await second.reply()).body == wire.Submitted(job_id=1)
            assert list(rig.store.load().jobs) == [1]

    asyncio.run(scenario())


def test_the_same_request_twice_in_one_turn_is_one_job() -> None:
    async def scenario() -> None:
        async with running() as rig:
            client = rig.client_wire()
            request_id = await client.request(job())
            await client.request(job(), request_id)
            replies = [await client.reply(), await client.reply()]
            assert {reply.body for reply in replies} == {wire.Submitted(job_id=1)}
            assert list(rig.store.load().jobs) == [1]

    asyncio.run(scenario())


def test_an_answer_survives_a_crash_of_the_controller() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running(store=store) as rig:
            client = rig.client_wire()
            request_id = await client.request(job())
            assert (await client.reply()).body == wire.Submitted(job_id=1)
        async with running(store=store) as rig:
            again = rig.client_wire()
            await again.request(job(), request_id)
            assert (await again.reply()).body == wire.Submitted(job_id=1)

    asyncio.run(scenario())


def test_scripts_are_stored_before_the_rows_that_name_them_and_not_for_a_test() -> None:
    async def scenario() -> None:
        async with running() as rig:
            stored: list[bool] = []
            write = rig.store.write

            def spy(batch: object) -> None:
                stored.append(bool(rig.blobs._blobs))
                write(batch)  # type: ignore[arg-type]

            rig.store.write = spy  # type: ignore[method-assign]
            await rig.ask(wire.Submit(spec=job().spec, script=b"#!/bin/sh\n# a test\n", test_only=True))
            assert not rig.blobs._blobs
            await rig.ask(job())
            assert stored[-1]
            [queued] = rig.store.load().jobs.values()
            assert await rig.blobs.get((queued.spec.script_digest,)) == {queued.spec.script_digest: job().script}

    asyncio.run(scenario())


def test_history_pages_tell_whether_there_is_more() -> None:
    async def scenario() -> None:
        async with running() as rig:
            for _ in range(3):
                await rig.ask(job())
            page = await rig.ask(wire.QueryHistory(limit=2))
            assert isinstance(page, wire.Jobs)
            assert ([one.job_id for one in page.jobs], page.more) == ([1, 2], True)
            rest = await rig.ask(wire.QueryHistory(limit=2, after=2))
            assert isinstance(rest, wire.Jobs)
            assert ([one.job_id for one in rest.jobs], rest.more) == ([3], False)

    asyncio.run(scenario())
