"""What gqd forgets in time, and what never: a script that a job has, or may be about to have."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.config.config import HistorySettings
from gq.wire.client import CancelJobs, JobFilter, QueryAudit, RequestBody
from gqd.control.controller import Controller
from gqd.shell.retention import Retention
from gqd.state.events.event import Event
from gqd.state.input import Peer, Tick
from gqd.state.policy import Policy
from gqd.store.blobs import SqliteBlobStore
from gqd.store.rows.rows import materialise
from gqd.store.sqlite import SqliteStore
from tests.builders import client_request, submit

SETTINGS = HistorySettings()
OWNER = Peer(uid=1000, gid=1000, user="ada")


class Files:
    """The two databases of a controller, and a few of its turns."""

    def __init__(self, directory: Path) -> None:
        self.store = SqliteStore(str(directory / "gq.db"))
        self.blobs = SqliteBlobStore(str(directory / "blobs.db"))
        self.core = Controller(self.store.load(), Policy(owner_uid=1000))
        self._requests = 0

    async def submit(self, digest: str, now: float) -> None:
        body = submit(script_digest=digest, environment_digest=name_of(b"env"))
        await self._ask(body, now)

    async def cancel(self, job_id: int, now: float) -> None:
        await self._ask(CancelJobs(filter=JobFilter(job_ids=(job_id,))), now)

    async def forget(self, now: float) -> None:
        """What has ended leaves the controller's memory."""
        await self.commit(self.core.handle(Tick(), now).events)
        assert not self.core.cluster.jobs

    async def _ask(self, body: RequestBody, now: float) -> None:
        self._requests += 1
        await self.commit(self.core.handle(client_request(body, self._requests, OWNER), now).events)

    async def commit(self, events: tuple[Event, ...]) -> None:
        await self.store.commit(materialise(self.core.cluster, events))

    async def put(self, *texts: bytes) -> None:
        await self.blobs.put({name_of(text): text for text in texts})

    async def kept(self, *texts: bytes) -> list[bytes]:
        found = SqliteBlobStore(self.blobs._path)
        try:
            return [text for text in texts if await found.get((name_of(text),))]
        finally:
            found.close()

    def upkeep(self, settings: HistorySettings = SETTINGS, settle_s: float = 0.0) -> Retention:
        return Retention(self.store, self.blobs, settings, settle_s)

    def close(self) -> None:
        self.store.close()
        self.blobs.close()


def name_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    found = Files(tmp_path)
    yield found
    found.close()


ENV = b"env"


def test_scripts_that_no_job_names_go_and_those_of_jobs_that_wait_or_ended_lately_stay(files: Files) -> None:
    async def story() -> None:
        await files.put(b"waits", b"orphan", b"other orphan", ENV)
        await files.submit(name_of(b"waits"), time.time())

        assert await files.upkeep().drop_scripts() == 2

        assert await files.kept(b"waits", b"orphan", b"other orphan", ENV) == [b"waits", ENV]

    asyncio.run(story())


@pytest.mark.parametrize(("days_ago", "is_kept"), [(29, True), (31, False)])
def test_a_script_goes_some_days_after_the_last_job_that_had_it(files: Files, days_ago: int, is_kept: bool) -> None:
    async def story() -> None:
        ended_at = time.time() - days_ago * 86_400
        await files.put(b"was", ENV)
        await files.submit(name_of(b"was"), ended_at - 10)
        await files.cancel(1, ended_at)

        assert await files.upkeep().drop_scripts() == 0, "it is in memory still"
        await files.forget(ended_at + 1000)
        await files.upkeep().drop_scripts()

        assert bool(await files.kept(b"was")) is is_kept
        forever = HistorySettings(keep_scripts_days=0)
        assert await files.upkeep(forever).drop_scripts() == 0

    asyncio.run(story())


def test_a_submission_on_its_way_keeps_its_script_wherever_it_meets_the_upkeep(files: Files) -> None:
    """Put and named before the first look, between both, and after: each time it is there in the end."""

    async def story() -> None:
        texts = [f"script {number}".encode() for number in range(40)]
        await files.put(*texts)  # left by submissions that never came to be
        upkeep = asyncio.create_task(files.upkeep(settle_s=0.05).drop_scripts())
        for text in texts:
            await asyncio.sleep(0.003)
            await files.put(text)
            await files.submit(name_of(text), time.time())
        await upkeep
        await files.upkeep().drop_scripts()

        assert await files.kept(*texts) == texts

    asyncio.run(story())


def test_what_is_put_while_it_is_dropped_is_written_again(files: Files) -> None:
    async def story() -> None:
        await files.put(b"again")
        files.blobs.suspect([name_of(b"again")])
        dropping = asyncio.create_task(files.blobs.drop([name_of(b"again")]))
        await asyncio.sleep(0)
        await files.put(b"again")
        assert await dropping == 1

        assert await files.kept(b"again") == [b"again"]

    asyncio.run(story())


def test_what_is_being_put_or_was_put_since_is_not_dropped(files: Files) -> None:
    async def story() -> None:
        names = [name_of(text) for text in (b"being put", b"put since")]
        await files.put(b"being put", b"put since")
        putting = asyncio.create_task(files.put(b"being put", b"new"))
        await asyncio.sleep(0)
        files.blobs.suspect(names)
        await files.put(b"put since")
        assert await files.blobs.drop(names) == 0
        await putting

    asyncio.run(story())


def test_what_was_dropped_is_not_on_the_disk_any_more(tmp_path: Path) -> None:
    files = Files(tmp_path)

    async def story() -> None:
        await files.put(b"API_TOKEN=hunter2" * 50)
        assert await files.upkeep().drop_scripts() == 1

    asyncio.run(story())
    files.close()
    assert b"hunter2" not in (tmp_path / "blobs.db").read_bytes()


def test_old_lines_of_both_logs_go_by_their_own_bounds(files: Files) -> None:
    async def story() -> None:
        now = time.time()
        await files.submit("", now - 40 * 86_400)
        await files.submit("", now - 5)
        settings = HistorySettings(keep_events_days=30, keep_audit_days=60)

        await files.upkeep(settings).forget_lines()

        [oldest] = files.store._db.conn.execute("SELECT min(at) FROM events").fetchone()
        assert oldest == now - 5
        assert len(files.store.audit(QueryAudit(limit=10)).entries) == 2

    asyncio.run(story())


def test_the_daemon_does_it_beside_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gqd.shell.retention.FIRST_AFTER_S", 0.0)
    files = Files(tmp_path)

    async def story() -> None:
        await files.put(b"orphan")
        upkeep = asyncio.create_task(files.upkeep().run())
        while await files.kept(b"orphan"):
            await asyncio.sleep(0.01)
        assert not upkeep.done(), "it goes on"
        upkeep.cancel()

    asyncio.run(asyncio.wait_for(story(), 20))
    files.close()
