"""What only the durable store does: files, locks, schemas, group commit."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from sqlite_utils import Database, Migrations

from gq.errors import GqError
from gq.wire.client import JobFilter, QueryAudit
from gqd.state.cluster import Cluster
from gqd.state.events.event import Audited
from gqd.store.migrations.schema import MIGRATIONS, migrate
from gqd.store.protocol import Batch, HistoryQuery, StoreFailed
from gqd.store.retention import DELETE_NOTICES
from gqd.store.rows.rows import COLUMNS, materialise
from gqd.store.sqlite import SqliteStore
from tests.store.lives import Lives


def next_job_id(number: int) -> Batch:
    return Batch(events=(), upserts={"meta": (("next_job_id", number),)})


def commit(store: SqliteStore, batch: Batch) -> None:
    asyncio.run(store.commit(batch))


def every_migration() -> list[str]:
    return [one.name for one in MIGRATIONS.pending(Database(memory=True))]


def lived(path: Path, seed: int) -> Cluster:
    """A database with some life in it, closed."""
    store = SqliteStore(str(path))
    lives = Lives(Random(seed))
    for _ in range(200):
        commit(store, materialise(lives.cluster, lives.turn()))
    store.close()
    return lives.cluster


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_committed_is_there_after_closing_and_opening(tmp_path: Path, seed: int) -> None:
    cluster = lived(tmp_path / "gq.db", seed)

    store = SqliteStore(str(tmp_path / "gq.db"))

    assert store.load() == cluster
    store.close()


def test_no_file_of_the_database_can_be_read_by_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(str(tmp_path / "gq.db"))
        commit(store, next_job_id(2))
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("gq.db", "gq.db-wal", "gq.db-shm", "gq.db.lock"), 0o600)
    store.close()


def test_a_commit_is_synced_to_the_disk_and_readers_do_not_block_it(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    reader = sqlite3.connect(tmp_path / "gq.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM jobs").fetchall()
    commit(store, next_job_id(2))

    pragma = {name: store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")}
    assert pragma == {"synchronous": 2, "journal_mode": "wal"}
    reader.close()
    store.close()


def test_a_second_controller_is_kept_out_until_the_first_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "gq.db")
    first = SqliteStore(path)
    script = "import sys; from gqd.store.sqlite import SqliteStore; SqliteStore(sys.argv[1])"

    with pytest.raises(GqError, match=f"in use by another controller .process {os.getpid()}.") as refused:
        SqliteStore(path)
    other = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)

    assert refused.value.code == "database_in_use"
    assert other.returncode == 1
    assert f"process {os.getpid()}" in other.stderr
    first.close()
    SqliteStore(path).close()


def test_a_store_that_could_not_be_opened_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "gq.db"
    path.write_bytes(b"This is no database, but long enough to look like one." * 100)
    with pytest.raises(GqError, match="file is not a database"):
        SqliteStore(str(path))

    path.unlink()
    SqliteStore(str(path)).close()


@pytest.mark.parametrize("size", [1, 4, 64, 1024])
def test_damage_anywhere_in_the_file_is_refused_as_such_or_does_no_harm(tmp_path: Path, seed: int, size: int) -> None:
    """Never another exception than `GqError`: gqd ends with one line."""
    lived(tmp_path / "whole.db", seed)
    whole = (tmp_path / "whole.db").read_bytes()
    chance = Random(seed)
    refused = 0
    for _ in range(30):
        data = bytearray(whole)
        at = chance.randrange(len(data) - size)
        data[at : at + size] = chance.randbytes(size)
        refused += is_refused(tmp_path / "gq.db", data)

    assert size < 1024 or refused, "damage of this size is found"


@pytest.mark.parametrize("name", [b"is_drained", b"CREATE TABLE jobs"])
def test_damage_to_the_schema_is_refused(tmp_path: Path, seed: int, name: bytes) -> None:
    lived(tmp_path / "whole.db", seed)
    data = bytearray((tmp_path / "whole.db").read_bytes())
    at = data.index(name)
    data[at] = 0xA3

    assert is_refused(tmp_path / "gq.db", data)


def is_refused(path: Path, data: bytearray) -> bool:
    """Whether a database with this content is refused, when it is opened, loaded or asked for history."""
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    path.write_bytes(data)
    try:
        with closing(SqliteStore(str(path))) as store:
            store.load()
            store.audit(QueryAudit())
            list(store.history(HistoryQuery(filter=JobFilter(), limit=1000)))
    except GqError:
        return True
    return False


def test_a_directory_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GqError, match="No such file or directory"):
        SqliteStore(str(tmp_path / "absent" / "gq.db"))


# ── schema ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_database_of_a_newer_schema_is_refused_and_left_alone(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "gq.db"
    lived(path, seed)
    newer = Migrations("gq")
    newer(name="first")(lambda db: None)
    newer(name="keys_and_audit")(lambda db: None)
    newer(name="colours")(lambda db: db["jobs"].add_column("colour", str))
    newer.apply(Database(str(path)))

    with pytest.raises(GqError, match=r"newer version of gq .*`colours`") as refused:
        SqliteStore(str(path))

    assert refused.value.code == "newer_database"
    assert "colour" in Database(str(path))["jobs"].columns_dict


def test_an_existing_database_is_brought_to_the_newest_schema_with_its_rows(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "gq.db"
    cluster = lived(path, seed)
    newer = Migrations("gq")
    for name in every_migration():
        newer(name=name)(lambda db: pytest.fail("was applied already"))
    newer(name="colours")(lambda db: db["jobs"].add_column("colour", str, not_null_default="red"))
    database = Database(str(path))

    migrate(database, str(path), newer)

    assert {row["colour"] for row in database["jobs"].rows} == {"red"}
    assert database["jobs"].count == cluster.next_job_id - 1


def test_a_database_from_before_there_were_keys_gets_their_tables_and_keeps_its_rows(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "gq.db"
    cluster = lived(path, seed)
    old = Database(str(path))
    old.execute("DROP TABLE keys")
    old.execute("DROP TABLE audit")
    with old.conn:
        old.execute("DELETE FROM _sqlite_migrations WHERE name = 'keys_and_audit'")
    old.close()

    store = SqliteStore(str(path))
    cluster.keys = {}
    assert store.load() == cluster
    assert store.audit(QueryAudit()) == ((), 0, False)
    store.close()


@pytest.mark.parametrize(
    "sql", ["UPDATE audit SET user = 'nobody'", "DELETE FROM audit", "REPLACE INTO audit SELECT * FROM audit"]
)
def test_no_line_of_the_audit_trail_is_ever_changed_or_deleted(tmp_path: Path, sql: str) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    noted = Audited(at=1.0, user="ann", uid=1000, action="CancelJobs", object="job 1")
    asyncio.run(store.commit(materialise(Cluster(), (noted,))))
    before = store.audit(QueryAudit())
    person = sqlite3.connect(tmp_path / "gq.db")

    with pytest.raises(sqlite3.IntegrityError, match="only added to"):
        person.execute(sql)
    person.close()

    assert store.audit(QueryAudit()) == before
    assert [entry.user for entry in before.entries] == ["ann"]
    store.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "gq.db"
    cluster = lived(path, seed)

    def half_done(db: Database) -> None:
        db.execute("DELETE FROM jobs")
        db.execute("DELETE FROM no_such_table")

    broken = Migrations("gq")
    for name in every_migration():
        broken(name=name)(lambda db: None)
    broken(name="half_done")(half_done)
    database = Database(str(path))
    with pytest.raises(GqError, match="no such table"):
        migrate(database, str(path), broken)
    database.close()

    store = SqliteStore(str(path))
    assert store.load() == cluster
    store.close()


def test_opening_twice_applies_each_migration_once(tmp_path: Path) -> None:
    for _ in range(2):
        store = SqliteStore(str(tmp_path / "gq.db"))
        applied = [migration.name for migration in MIGRATIONS.applied(store._db)]
        store.close()

    assert applied == every_migration()


def test_a_row_that_cannot_be_read_is_a_clear_error(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "gq.db"
    lived(path, seed)
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE jobs SET spec = '{"name": "x", "from_the_future": 1}', is_forgotten = 0""")
    connection.close()

    store = SqliteStore(str(path))
    with pytest.raises(GqError, match="from_the_future"):
        store.load()
    store.close()


# ── for people ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_views_answer_what_a_person_would_ask(tmp_path: Path, seed: int) -> None:
    cluster = lived(tmp_path / "gq.db", seed)
    database = Database(str(tmp_path / "gq.db"))

    queue = [row["job_id"] for row in database["queue"].rows if row["state"] == "PENDING"]
    assert set(queue) == set(cluster.queue)
    users = {row["user"]: row for row in database["usage_by_user"].rows}
    assert set(users) == {row["user"] for row in database.query("SELECT user FROM jobs WHERE attempt > 0")}
    assert all(row["cpu_hours_held"] > 0 for row in users.values())
    gpus = {(row["node"], row["gpu"]): row["drained_because"] for row in database["gpus"].rows}
    assert gpus == {
        (node.name, gpu.index): node.drained_gpus.get(gpu.index)
        for node in cluster.nodes.values()
        for gpu in node.inventory.gpus
    }


def test_jobs_that_left_memory_stay_in_the_database_with_all_they_held(tmp_path: Path, seed: int) -> None:
    cluster = lived(tmp_path / "gq.db", seed)
    database = Database(str(tmp_path / "gq.db"))

    forgotten = {row["job_id"] for row in database.query("SELECT job_id FROM jobs WHERE is_forgotten")}
    assert forgotten == set(range(1, cluster.next_job_id)) - set(cluster.jobs)
    assert forgotten
    held = "SELECT count(*) AS n FROM allocations JOIN jobs USING (job_id) WHERE is_forgotten AND freed_at IS NULL"
    assert next(database.query(held))["n"] == 0
    attempts = "SELECT count(*) AS n FROM attempts WHERE node_count <> (SELECT count(*) FROM allocations AS a"
    attempts += " WHERE a.job_id = attempts.job_id AND a.attempt = attempts.attempt)"
    attempts += " AND (elastic IS NULL OR elastic NOT LIKE '%is_of_nodes%')"  # these have left some
    assert next(database.query(attempts))["n"] == 0


def test_the_change_log_is_in_the_order_of_the_turns_and_names_its_jobs(tmp_path: Path, seed: int) -> None:
    cluster = lived(tmp_path / "gq.db", seed)
    database = Database(str(tmp_path / "gq.db"))

    events = list(database["events"].rows)

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    submitted = [event["job_id"] for event in events if event["kind"] in ("JobSubmitted", "ArrayTaskLeft")]
    assert submitted == list(range(1, cluster.next_job_id))


@pytest.mark.parametrize(
    ("filter_sql", "index"),
    [
        ("user = 'ann' AND job_id > 5 ORDER BY job_id LIMIT 10", "jobs_by_user"),
        ("state = 'ENDED' AND end_at >= 5", "jobs_by_state"),
        ("is_forgotten = 0 ORDER BY job_id", "jobs_in_memory"),
    ],
)
def test_questions_about_many_jobs_use_an_index(tmp_path: Path, filter_sql: str, index: str) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    columns = ", ".join(COLUMNS["jobs"])

    plan = store._db.execute(f"EXPLAIN QUERY PLAN SELECT {columns} FROM jobs WHERE {filter_sql}").fetchall()

    assert any(index in row[-1] for row in plan), plan
    store.close()


def test_old_notices_are_found_by_an_index(tmp_path: Path) -> None:
    """Each portion that is forgotten, beside all that still wait or are young."""
    store = SqliteStore(str(tmp_path / "gq.db"))

    plan = store._db.execute(f"EXPLAIN QUERY PLAN {DELETE_NOTICES}", {"before": 5.0, "most": 7}).fetchall()

    steps = [row[-1] for row in plan]
    assert any("notices_by_end (ended_at<?)" in step for step in steps), steps
    assert not any(step.startswith("SCAN") or "TEMP B-TREE" in step for step in steps), steps
    store.close()


# ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_history_reads_whole_commits_from_another_thread_while_the_store_writes(tmp_path: Path, seed: int) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    lives = Lives(Random(seed))
    counts: list[int] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            shown = store.history(HistoryQuery(filter=JobFilter(), limit=10_000))
            counts.append(sum(not job.array_tasks for job in shown))

    reader = threading.Thread(target=read)
    reader.start()
    totals = {0}
    for _ in range(150):
        events = lives.turn()
        commit(store, materialise(lives.cluster, events))
        totals.add(lives.own_jobs)
    is_over.set()
    reader.join()

    assert counts == sorted(counts)
    assert set(counts) <= totals
    store.close()


def test_batches_that_wait_share_a_transaction(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    groups: list[int] = []
    write = store._write
    store._writer._write = lambda batches: (groups.append(len(batches)), write(batches))[1]

    async def commit_all() -> None:
        await asyncio.gather(*(store.commit(next_job_id(number)) for number in range(2, 502)))

    asyncio.run(commit_all())

    assert sum(groups) == 500
    assert len(groups) < 100, f"{len(groups)} transactions for 500 batches"
    assert store.load().next_job_id == 501
    store.close()


def test_a_failed_commit_writes_nothing_and_is_final(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    commit(store, next_job_id(2))
    bad = Batch(events=(), upserts={"meta": (("next_job_id", 3),), "jobs": ((1, "too short"),)})

    with pytest.raises(StoreFailed, match="could not write to the database") as failed:
        commit(store, bad)
    with pytest.raises(StoreFailed) as later:
        commit(store, next_job_id(4))

    assert later.value.code == failed.value.code == "commit_failed"
    store.close()
    store = SqliteStore(str(tmp_path / "gq.db"))
    assert store.load().next_job_id == 2
    store.close()


def test_nothing_is_written_on_top_of_a_hole(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    bad = Batch(events=(), upserts={"jobs": ((1, "too short"),)})

    async def crowd() -> list[BaseException | None]:
        batches = [next_job_id(2), bad, *(next_job_id(number) for number in range(3, 203))]
        return await asyncio.gather(*map(store.commit, batches), return_exceptions=True)

    results = asyncio.run(crowd())

    assert all(isinstance(result, StoreFailed) for result in results[1:])
    assert store.load().next_job_id == (2 if results[0] is None else 1)
    store.close()


def test_a_commit_given_up_while_it_waits_for_a_place_stops_all_later_ones(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    may_write = threading.Event()
    write = store._write
    store._writer._write = lambda batches: (may_write.wait(10), write(batches))[1]

    async def crowd() -> list[BaseException | None]:
        tasks = [asyncio.create_task(store.commit(next_job_id(number))) for number in range(2, 402)]
        await asyncio.sleep(0)
        tasks[350].cancel()
        await asyncio.sleep(0)
        may_write.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(crowd())

    done = [number for number, result in enumerate(results, 2) if result is None]
    assert done == list(range(2, 2 + len(done))), "what was acknowledged has no hole"
    assert isinstance(results[350], asyncio.CancelledError)
    assert all(isinstance(result, StoreFailed) for result in results[351:])
    assert store.load().next_job_id == max(done, default=1)
    store.close()


def test_closing_writes_what_waits_and_then_refuses(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))

    async def commit_and_close() -> list[None]:
        waiting = [asyncio.create_task(store.commit(next_job_id(number))) for number in range(2, 100)]
        await asyncio.sleep(0)
        store.close()
        return await asyncio.gather(*waiting)

    asyncio.run(commit_and_close())

    with pytest.raises(StoreFailed, match="closed"):
        commit(store, next_job_id(200))
    store = SqliteStore(str(tmp_path / "gq.db"))
    assert store.load().next_job_id == 99
    store.close()
