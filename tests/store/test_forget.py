"""Old lines of the change log and of the audit trail go in portions; nothing else ever takes a line from the trail."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from gq.wire.client import JobFilter, ListNotices, QueryAudit
from gqd.state.events import event
from gqd.store.protocol import Batch, HistoryQuery, RetentionCutoffs, Store
from gqd.store.rows.rows import audit_row, materialise
from gqd.store.sqlite import SqliteStore
from tests.store.lives import Lives

SOURCE = Path(__file__).parents[2]

OLD = RetentionCutoffs(events_before=100.0, audit_before=100.0, most=7)


def lines(at: list[float]) -> Batch:
    audited = [event.Audited(at=one, user="ann", uid=1000, origin="here", action="Submit", object="") for one in at]
    facts = tuple(event.NodeLost(at=one, node="n1") for one in at)
    return Batch(events=facts, upserts={}, audit=tuple(map(audit_row, audited)))


def forget_all(store: Store, wanted: RetentionCutoffs = OLD) -> int:
    portions = 0
    while store.has_older(wanted):
        asyncio.run(store.commit(Batch(events=(), upserts={}, forgetting=wanted)))
        portions += 1
    return portions


def trail(store: Store) -> list[float]:
    return [entry.at for entry in store.audit(QueryAudit(limit=1000)).entries]


def test_what_is_older_goes_a_few_at_a_time_and_what_is_younger_stays(store: Store) -> None:
    asyncio.run(store.commit(lines([*map(float, range(20)), 100.0, 150.0])))

    assert forget_all(store) == 3, "of seven each"

    assert trail(store) == [100.0, 150.0]
    assert not store.has_older(OLD)


def test_the_newest_line_stays_however_old_so_that_numbers_never_start_anew(store: Store) -> None:
    asyncio.run(store.commit(lines([1.0, 2.0, 3.0])))

    forget_all(store)

    assert trail(store) == [3.0]


def test_what_is_kept_for_ever_is_kept(store: Store) -> None:
    asyncio.run(store.commit(lines([1.0, 2.0])))

    assert forget_all(store, RetentionCutoffs(events_before=None, audit_before=None)) == 0
    forget_all(store, RetentionCutoffs(events_before=100.0, audit_before=None))

    assert trail(store) == [1.0, 2.0]


def test_jobs_that_ended_long_ago_go_and_all_others_stay(store: Store, seed: int) -> None:
    lives = Lives(Random(seed))
    for _ in range(300):
        asyncio.run(store.commit(materialise(lives.cluster, lives.turn())))
    query = HistoryQuery(filter=JobFilter(), limit=10_000)
    before = {(job.job_id, job.state): job for job in store.history(query)}
    forgotten = [
        one.end_at for one in before.values() if one.job_id not in lives.cluster.jobs and one.end_at is not None
    ]
    assert forgotten, "the stories are long enough"
    bound = sorted(forgotten)[len(forgotten) // 2] + 1.0

    portions = forget_all(store, RetentionCutoffs(events_before=None, audit_before=None, jobs_before=bound, most=3))

    kept = {(job.job_id, job.state): job for job in store.history(query)}
    gone = set(before) - set(kept)
    assert gone and portions >= len({job_id for job_id, _ in gone}) // 3
    assert all(kept[one] == before[one] for one in kept)
    for one in before.values():
        is_old = one.job_id not in lives.cluster.jobs and one.end_at is not None and one.end_at < bound
        has_tasks = any(job.array_job_id == one.job_id != job.job_id for job in kept.values())
        assert ((one.job_id, one.state) in gone) == (is_old and not has_tasks), one
    assert store.load() == lives.cluster


def job_rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as other:
        [(count,)] = other.execute("SELECT count(*) FROM jobs")
    return int(count)


def test_of_a_job_that_goes_nothing_is_left(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    lives = Lives(Random(1))
    for _ in range(300):
        asyncio.run(store.commit(materialise(lives.cluster, lives.turn())))
    before = job_rows(tmp_path / "gq.db")
    forget_all(store, RetentionCutoffs(events_before=None, audit_before=None, jobs_before=4e9))
    store.close()

    with sqlite3.connect(tmp_path / "gq.db") as other:
        for table in ("steps", "allocations", "attempts"):
            rows = other.execute(f"SELECT count(*) FROM {table} WHERE job_id NOT IN (SELECT job_id FROM jobs)")
            assert rows.fetchone() == (0,), table
    other.close()
    assert job_rows(tmp_path / "gq.db") < before


def test_afterwards_the_trail_is_as_closed_as_before(tmp_path: Path) -> None:
    path = tmp_path / "gq.db"
    store = SqliteStore(str(path))
    asyncio.run(store.commit(lines([1.0, 2.0, 200.0])))
    forget_all(store)
    with sqlite3.connect(path) as other:
        assert [seq for (seq,) in other.execute("SELECT seq FROM events")] == [3], "numbers stay"
        for statement in ("DELETE FROM audit", "UPDATE audit SET user = 'eve'", "REPLACE INTO audit (seq) VALUES (3)"):
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                other.execute(statement)
    other.close()
    store.close()


ENDLESS_FORGETTING = """
import asyncio, sys
from gqd.store.protocol import Batch, RetentionCutoffs
from gqd.store.sqlite import SqliteStore
from tests.store.test_forget import lines

store = SqliteStore(sys.argv[1])
number = 0
while True:
    number += 1
    asyncio.run(store.commit(lines([float(number)])))
    wanted = RetentionCutoffs(events_before=number - 20.0, audit_before=number - 20.0, most=3)
    asyncio.run(store.commit(Batch(events=(), upserts={}, forgetting=wanted)))
    print(number, flush=True)
"""


def test_whoever_kills_it_in_the_middle_finds_the_trail_closed_and_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "gq.db")
    for wait_for in (40, 57, 83):
        process = subprocess.Popen(
            [sys.executable, "-c", ENDLESS_FORGETTING, path], cwd=SOURCE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(wait_for):
            process.stdout.readline()
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL

        with sqlite3.connect(path) as database:
            audit, events = (list(database.execute(f"SELECT seq, at FROM {one}")) for one in ("audit", "events"))
            assert audit == events, "both go together, line by line"
            assert [seq for seq, _ in audit] == list(range(audit[0][0], audit[-1][0] + 1))
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                database.execute("DELETE FROM audit")
        database.close()
        Path(path).unlink()


def test_notices_that_are_done_go_with_old_lines_and_those_that_wait_stay(store: Store) -> None:
    rows = tuple(
        (number, "ann", 1000, 7, "end", "mail", "", '{"text":""}', 1.0, 1.0, 1, "", state, ended_at, 0)
        for number, (state, ended_at) in enumerate(
            [("delivered", 5.0), ("given_up", 6.0), ("waiting", None), ("delivered", 150.0)], start=1
        )
    )
    batch = lines([1.0, 2.0, 200.0])
    asyncio.run(store.commit(Batch(events=batch.events, upserts={"notices": rows}, audit=batch.audit)))
    forget_all(store)

    assert [one.notice_id for one in store.notices(ListNotices()).notices] == [3, 4]
