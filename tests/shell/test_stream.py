"""The change log as clients see it: from any point on, held back until there is more, and without what opens doors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gq.model.ids import RequestId
from gq.model.notice import Target
from gq.model.step import StepRequest
from gq.wire import client
from gqd.control.apply.table import apply
from gqd.shell.requests.event_stream import MAX_WAITING, MAX_WAITING_PER_USER, EventQueries
from gqd.state.cluster import Cluster
from gqd.state.effect import Reply, ReplyEvents
from gqd.state.input import Peer
from gqd.store.memory import MemoryStore
from gqd.store.protocol import Batch, EventQuery, Store
from gqd.store.rows.rows import materialise
from gqd.store.sqlite import SqliteStore
from tests.builders import ALICE, BOB, SHARED, inventory, submit
from tests.hosts import CoreHost

ROUTE, ASKED = ("clients", b"c"), RequestId(b"r" * 16)
HOOK = "https://hooks.example.org/secret-path"
NOTIFY = (Target(kind="webhook", to=HOOK, on=("begin",)),)


def lived() -> CoreHost:
    """Alice's job 1, Bob's array 2 with tasks 3 and 4, and a step with a key."""
    settings = msgspec.structs.replace(SHARED.notify, webhook_hosts=("hooks.example.org",))
    host = CoreHost(msgspec.structs.replace(SHARED, notify=settings), {"n1": inventory()})
    job_id = host.start(submit(ntasks=1, notify=NOTIFY), peer=ALICE)
    host.ask(client.CreateStep(job_id=job_id, step=StepRequest(name="s")), peer=ALICE)
    host.start(submit(ntasks=1, array="0-2", array_throttle=2), peer=BOB)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(2,))), peer=BOB)
    return host


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    host = lived()
    if request.param == "memory":
        yield host.store
        return
    sqlite = SqliteStore(str(tmp_path / "gq.db"))
    cluster = Cluster()
    for fact in host.log:
        apply(cluster, fact)
    asyncio.run(sqlite.commit(materialise(cluster, host.log)))
    yield sqlite
    sqlite.close()


def read(store: Store, shown_to: Peer | None = None, **asked: Any) -> client.Events:
    return store.event_lines(EventQuery(client.QueryEvents(**asked), shown_to))


def test_pages_join_without_a_gap_and_end_behind_the_newest(store: Store) -> None:
    whole = read(store)
    seen, after, more = [], 0, True
    while more:
        page = read(store, after=after, limit=3)
        seen += page.events
        after, more = page.last, page.more

    assert tuple(seen) == whole.events
    assert [one.seq for one in seen] == sorted({one.seq for one in seen})
    assert after == whole.last == seen[-1].seq
    assert read(store, after=after).events == ()
    assert read(store, from_now=True) == client.Events(last=after)


def test_a_user_sees_the_events_of_own_jobs_only_and_does_not_stay_behind(store: Store) -> None:
    alices, bobs = read(store, ALICE), read(store, BOB)

    assert {one.job_id for one in alices.events} == {1}
    assert {one.job_id for one in bobs.events} == {2, 3, 4}
    assert "ArrayTasksCancelled" in {one.type for one in bobs.events}
    assert alices.last == bobs.last == read(store).last


def test_events_are_chosen_by_job_with_its_tasks_and_by_type(store: Store) -> None:
    assert {one.job_id for one in read(store, job_ids=(2,)).events} == {2, 3, 4}
    assert {one.job_id for one in read(store, job_ids=(1, 3)).events} == {1, 3}
    assert {one.type for one in read(store, types=("JobStarted", "JobEnding")).events} == {"JobStarted", "JobEnding"}
    assert read(store, since=1e9).events == ()


def test_nobody_is_shown_what_opens_doors_nor_the_path_of_a_webhook(store: Store) -> None:
    events = read(store).events
    bodies = {one.type: msgspec.json.decode(one.body) for one in events}

    assert {"StepStarted", "NodeRegistered", "RequestAnswered", "NoticeQueued", "JobSubmitted"} <= bodies.keys()
    assert not {"key", "ticket_key", "answer"} & {name for body in bodies.values() for name in body}
    assert "secret-path" not in "".join(one.body for one in events)
    assert bodies["NoticeQueued"]["to"] == "https://hooks.example.org/…"


def asked(**query: Any) -> ReplyEvents:
    return ReplyEvents(route=ROUTE, request_id=ASKED, query=client.QueryEvents(**query), user="alice")


def test_an_answer_is_held_back_until_something_became_a_fact() -> None:
    facts = tuple(lived().log)

    async def scene() -> client.ReplyBody:
        store = MemoryStore()
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        desk = EventQueries(store, answered.set_result)
        release = desk.telling(lambda effects, blobs: None)
        desk.ask(asked(wait_s=20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answered), 0.1)
        release((), {})  # nothing new for it
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answered), 0.4)
        await store.commit(Batch(events=facts, upserts={}))
        release((), {})
        reply = await asyncio.wait_for(answered, 10)
        desk.close()
        return reply.body

    answer = asyncio.run(scene())
    assert isinstance(answer, client.Events)
    assert "NodeRegistered" in {one.type for one in answer.events}


def test_who_waits_looks_only_at_what_came_since() -> None:
    """Of a long log with nothing for them, each time that something happens."""
    facts = tuple(lived().log)
    looked_from: list[int] = []

    class Watched(MemoryStore):
        def event_lines(self, query: EventQuery) -> client.Events:
            looked_from.append(query.asked.after)
            return super().event_lines(query)

    async def scene() -> client.ReplyBody:
        store = Watched()
        await store.commit(Batch(events=facts, upserts={}))
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        desk = EventQueries(store, answered.set_result)
        release = desk.telling(lambda effects, blobs: None)
        desk.ask(asked(wait_s=1, job_ids=(99,)))
        await asyncio.sleep(0.2)
        release((), {})
        reply = await asyncio.wait_for(answered, 10)
        desk.close()
        return reply.body

    assert asyncio.run(scene()) == client.Events(last=len(facts))
    assert looked_from == [0, len(facts)]


def test_an_answer_with_nothing_in_it_comes_when_the_time_is_over() -> None:
    async def scene() -> client.ReplyBody:
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        desk = EventQueries(MemoryStore(), answered.set_result)
        desk.ask(asked(wait_s=0.2, after=7))
        reply = await asyncio.wait_for(answered, 10)
        desk.close()
        return reply.body

    assert asyncio.run(scene()) == client.Events(last=7)


def test_one_user_does_not_take_the_room_of_all() -> None:
    async def scene() -> list[client.ReplyBody]:
        answers: list[client.ReplyBody] = []
        desk = EventQueries(MemoryStore(), lambda reply: answers.append(reply.body))
        mine = asked(wait_s=20)
        others = [msgspec.structs.replace(mine, user=f"user{number}") for number in range(MAX_WAITING)]
        for one in [mine] * (MAX_WAITING_PER_USER + 1) + others:
            desk.ask(one)
        await asyncio.sleep(0)
        desk.close()
        return answers

    first, *rest = asyncio.run(scene())
    assert isinstance(first, client.Refused)
    assert (first.code, first.message) == (
        "busy",
        f"{MAX_WAITING_PER_USER} clients of alice are already waiting for events",
    )
    assert {one.message for one in rest if isinstance(one, client.Refused)} == {
        f"{MAX_WAITING} clients are already waiting for events"
    }
    assert len(rest) == MAX_WAITING_PER_USER


def test_who_was_answered_makes_room_for_his_own() -> None:
    async def scene() -> list[client.ReplyBody]:
        answers: list[client.ReplyBody] = []
        desk = EventQueries(MemoryStore(), lambda reply: answers.append(reply.body))
        some = MAX_WAITING_PER_USER // 2 + 1
        for times in (1, 2):
            for _ in range(some):
                desk.ask(asked(from_now=True))
            async with asyncio.timeout(20):
                while len(answers) < times * some:
                    await asyncio.sleep(0.01)
        desk.close()
        return answers

    assert {type(one) for one in asyncio.run(scene())} == {client.Events}


def test_notices_are_of_a_name_and_a_number(store: Store) -> None:
    def of(user: str, uid: int | None) -> list[int]:
        return [one.notice_id for one in store.notices(client.ListNotices(user=user), uid).notices]

    assert (of("", None), of("alice", ALICE.uid), of("alice", 2999), of("bob", BOB.uid)) == ([1], [1], [], [])
