"""The durable store: one SQLite file, one writer thread, group commit.

WAL with ``synchronous=FULL``: a commit that returned survives a crash of the process, of the kernel and a power cut.
Only the writer thread writes, after `load`; queries read over a connection of their own, from any thread, and see only
whole commits.  A lock on ``<path>.lock`` keeps a second controller out for as long as this process lives.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
from sqlite_utils import Database

from gq.errors import GqError
from gq.host.files import hold_lock
from gq.model.job import JobInfo
from gq.model.reservation import BookingUsage, ReservationInfo
from gq.wire.client import Events, ListNotices, ListReservations, Notices, QueryAccuracy, QueryAudit, QueryBookings
from gqd.state.cluster import Cluster
from gqd.state.input import PastJob
from gqd.store.migrations.schema import bad_database, migrate
from gqd.store.protocol import AuditPage, Batch, EstimateOutcome, EventQuery, HistoryQuery, RetentionCutoffs, Row
from gqd.store.queries import audit as trail
from gqd.store.queries import bookings, history, stream
from gqd.store.queries.accuracy import select_estimate_outcomes
from gqd.store.queries.past import select_past
from gqd.store.retention import forget, has_older
from gqd.store.rows.columns import GOING
from gqd.store.rows.rows import COLUMNS, KEYS, cluster_of, event_row
from gqd.store.writer import GroupWriter

PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "journal_size_limit = 67108864")
BUSY_S = 10.0
"""How long another writer, such as an administrator with `sqlite-utils`, may block the controller."""

_LOADED = {
    "jobs": "WHERE is_forgotten = 0 ORDER BY job_id",
    "attempts": "WHERE is_forgotten = 0 ORDER BY rowid",
    "allocations": "WHERE freed_at IS NULL ORDER BY rowid",
    "steps": "WHERE end_at IS NULL ORDER BY job_id, attempt, step",
    "nodes": "ORDER BY rowid",
    "keys": "ORDER BY rowid",
    "accounts": "ORDER BY rowid",
    "members": "ORDER BY rowid",
    "qos": "ORDER BY rowid",
    "limits": "ORDER BY rowid",
    "budgets": "ORDER BY rowid",
    "crontabs": "ORDER BY rowid",
    "cron_entries": "ORDER BY user, number",
    "lengths": "ORDER BY learned_at, rowid",
    "notices": "WHERE state = 'waiting' ORDER BY notice_id",
    "told_jobs": "ORDER BY job_id",
    "dropped_notices": "ORDER BY rowid",
    "reservations": "WHERE is_gone = 0 ORDER BY reservation_id",
    "occurrences": "WHERE state IN ('PLANNED', 'ACTIVE') ORDER BY reservation_id, number",
    "claims": "ORDER BY rowid",
    "parked": "ORDER BY rowid",
    "owed_orders": "ORDER BY rowid",
    "requests": "ORDER BY rowid",
    "meta": "ORDER BY rowid",
}
"""The rows that `cluster_of` needs.  An upsert keeps the rowid, so rowids give the order of first insertion."""


def upsert(table: str) -> str:
    """SQL that inserts a row in the order of `COLUMNS`, or updates the row of the same key."""
    columns, keys = COLUMNS[table], KEYS[table]
    changed = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in keys)
    return f"{_insert(table)} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changed}"


def _insert(table: str) -> str:
    columns = COLUMNS[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


_NAMED_BLOBS = """
WITH kept AS (
    SELECT spec FROM jobs WHERE is_forgotten = 0
    UNION ALL SELECT spec FROM jobs WHERE state = 'ENDED' AND end_at >= ?
    UNION ALL SELECT spec FROM cron_entries
)
SELECT json_extract(spec, '$.script_digest') AS digest FROM kept WHERE digest <> ''
UNION SELECT json_extract(spec, '$.environment_digest') AS digest FROM kept WHERE digest <> ''
"""
_INSERT_EVENT = _insert("events")
_INSERT_AUDIT = _insert("audit")
_UPSERTS = {table: upsert(table) for table in KEYS}
_DELETES = {
    "jobs": "UPDATE jobs SET is_forgotten = 1 WHERE job_id = ?",
    "attempts": "UPDATE attempts SET is_forgotten = 1 WHERE job_id = ? AND attempt = ?",
    **{
        table: f"DELETE FROM {table} WHERE {' AND '.join(f'{column} = ?' for column in KEYS[table])}" for table in GOING
    },
    "requests": "DELETE FROM requests WHERE at < ?",
}


class SqliteStore:
    """The `Store` in the file at `path`, which is created with mode 0600 if missing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock_fd = lock_database(path)
        try:
            self._db = open_database(path)
            migrate(self._db, path)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._writer: GroupWriter[Batch] = GroupWriter("store", self._write)

    def load(self) -> Cluster:
        with damage_refused(self._path):
            return cluster_of({table: self._rows(table, where) for table, where in _LOADED.items()})

    def _rows(self, table: str, where: str) -> Iterator[Row]:
        return self._db.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table} {where}")

    async def commit(self, batch: Batch) -> None:
        await self._writer.put(batch)

    def history(self, query: HistoryQuery) -> Iterator[JobInfo]:
        with self._connection_to_read() as connection:
            jobs = history.select_jobs(connection, query)
        return iter(jobs)

    def past(self, job_ids: Collection[int]) -> dict[int, PastJob]:
        with self._connection_to_read() as connection:
            return select_past(connection, job_ids)

    def audit(self, query: QueryAudit) -> AuditPage:
        with self._connection_to_read() as connection:
            return trail.select_entries(connection, query)

    def past_occurrences(self, query: ListReservations) -> list[ReservationInfo]:
        with self._connection_to_read() as connection:
            return bookings.select_past_occurrences(connection, query)

    def bookings(self, query: QueryBookings) -> list[BookingUsage]:
        with self._connection_to_read() as connection:
            return bookings.select_bookings(connection, query)

    def estimate_outcomes(self, query: QueryAccuracy) -> list[EstimateOutcome]:
        with self._connection_to_read() as connection:
            return select_estimate_outcomes(connection, query)

    def event_lines(self, query: EventQuery) -> Events:
        with self._connection_to_read() as connection:
            return stream.select_events(connection, query)

    def notices(self, query: ListNotices, uid: int | None = None) -> Notices:
        with self._connection_to_read() as connection:
            return stream.select_notices(connection, query, uid)

    def has_older(self, forgetting: RetentionCutoffs) -> bool:
        with self._connection_to_read() as connection:
            return has_older(connection, forgetting)

    def named_blobs(self, ended_after: float) -> frozenset[str]:
        """Read over a separate connection, since it may take long and must not block other queries."""
        with damage_refused(self._path), contextlib.closing(connect(self._path)) as connection:
            return frozenset(name for (name,) in connection.execute(_NAMED_BLOBS, (ended_after,)))

    @contextlib.contextmanager
    def _connection_to_read(self) -> Iterator[sqlite3.Connection]:
        """The connection for queries, for one thread at a time; `GqError` if the file is damaged."""
        with self._reading, damage_refused(self._path):
            if self._reader is None:
                self._reader = connect(self._path)
                self._reader.execute("PRAGMA query_only = 1")
            yield self._reader

    def close(self) -> None:
        """Write the waiting batches, close the file, and release the lock."""
        self._writer.close()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
        self._db.close()
        os.close(self._lock_fd)

    def _write(self, batches: Sequence[Batch]) -> None:
        """Write batches in one transaction, in the writer's thread."""
        connection = self._db.conn
        connection.execute("BEGIN IMMEDIATE")
        try:
            for batch in batches:
                _write_batch(connection, batch)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # the first error is the one to report
                connection.execute("ROLLBACK")
            raise


def _write_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    for table, rows in batch.upserts.items():
        connection.executemany(_UPSERTS[table], rows)
    for table, rows in batch.deletes.items():
        connection.executemany(_DELETES[table], rows)
    connection.executemany(_INSERT_EVENT, map(event_row, batch.events))
    connection.executemany(_INSERT_AUDIT, batch.audit)
    if batch.forgetting is not None:
        forget(connection, batch.forgetting)


def open_database(path: str) -> Database:
    """A writing connection to the file at `path`, which is created with mode 0600 if missing."""
    try:
        _make_private(path)
        connection = connect(path)
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except OSError as error:
        raise GqError("bad_database", f"{path} cannot be used as the database: {error}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite may quote what it cannot read
        raise bad_database(path, error) from error
    return Database(connection, execute_plugins=False)


@contextlib.contextmanager
def damage_refused(path: str) -> Iterator[None]:
    """Raise the errors of reading a damaged file as `GqError`.

    SQLite detects damaged pages; a damaged value makes the decoding of a row fail, with any exception.
    """
    try:
        yield
    except GqError:
        raise
    except sqlite3.Error as error:
        raise bad_database(path, error) from error
    except Exception as error:
        what = str(error) if isinstance(error, msgspec.MsgspecError) else f"{type(error).__name__}: {error}"
        raise GqError(
            "unreadable_row",
            f"{path} holds a row that this version of gq cannot read: {what}",
            "start the version that wrote it, or restore a backup",
        ) from error


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, check_same_thread=False, timeout=BUSY_S)


def _make_private(path: str) -> None:
    """Create the file with mode 0600, which SQLite also gives its WAL and index files, and sync its directory."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    directory = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def lock_database(path: str) -> int:
    """Lock the database; returns the descriptor that holds the lock.  `GqError` if another process has it."""
    lock_path = f"{path}.lock"
    try:
        return hold_lock(lock_path, lambda pid: in_use(path, pid))
    except OSError as error:
        raise GqError("bad_database", f"{lock_path} cannot be opened: {error.strerror}") from error


def in_use(path: str, pid: str) -> GqError:
    return GqError(
        "database_in_use",
        f"{path} is in use by another controller (process {pid})",
        "stop that controller first, or give this one its own directory",
    )
