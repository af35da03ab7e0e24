"""Stores scripts and environments by their SHA-256, in a separate file.

The queue database thus stays small and can be copied and shared: environments hold secrets.  A blob is written before
the row that names it, and never changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlite_utils import Database, Migrations

from gqd.store.migrations.schema import migrate
from gqd.store.sqlite import connect, damage_refused, open_database
from gqd.store.writer import GroupWriter

CACHE_BYTES = 8 * 1024 * 1024
KNOWN_DIGESTS = 50_000

MIGRATIONS = Migrations("gq-blobs")


@MIGRATIONS()
def first(db: Database) -> None:
    """Create the only table."""
    db.execute("CREATE TABLE blobs (digest TEXT NOT NULL PRIMARY KEY, data BLOB NOT NULL)")


class BlobCache:
    """The most recently used blobs, up to a number of bytes, and more digests that are known to be in the database."""

    def __init__(self, max_bytes: int = CACHE_BYTES, max_digests: int = KNOWN_DIGESTS) -> None:
        self._data: OrderedDict[str, bytes] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._max_digests = max_digests

    def is_known(self, digest: str) -> bool:
        return digest in self._known

    def get(self, digest: str) -> bytes | None:
        data = self._data.get(digest)
        if data is not None:
            self._data.move_to_end(digest)
        return data

    def forget(self, digest: str) -> None:
        """Remove a blob that is to be deleted from the database; a later put writes it again."""
        self._known.pop(digest, None)
        data = self._data.pop(digest, None)
        self._bytes -= len(data or b"")

    def add(self, digest: str, data: bytes) -> None:
        """Add a blob that is in the database."""
        self._known[digest] = None
        self._known.move_to_end(digest)
        if len(self._known) > self._max_digests:
            self._known.popitem(last=False)
        if digest in self._data or len(data) > self._max_bytes:
            return
        self._data[digest] = data
        self._bytes += len(data)
        while self._bytes > self._max_bytes:
            _, oldest = self._data.popitem(last=False)
            self._bytes -= len(oldest)


class _Change(NamedTuple):
    put: dict[str, bytes]
    drop: tuple[str, ...]


class SqliteBlobStore:
    """The `BlobStore` in the file at `path`, 0600.  The controller that holds the queue database is its only writer."""

    def __init__(self, path: str, cache_bytes: int = CACHE_BYTES) -> None:
        self._db = open_database(path)
        with damage_refused(path):
            self._db.execute("PRAGMA secure_delete = ON")  # deleted blobs may hold secrets
        Path(path).chmod(0o600)  # a restored copy may have another mode
        migrate(self._db, path, MIGRATIONS)
        self._path = path
        self._cache = BlobCache(cache_bytes)
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._suspects: set[str] = set()
        self._drops = 0
        self._being_put: Counter[str] = Counter()
        self._writer: GroupWriter[_Change] = GroupWriter("blobs", self._write)

    async def put(self, blobs: dict[str, bytes]) -> None:
        """Store blobs, and unmark them as unused, both at the call and again on return."""
        self._suspects.difference_update(blobs)
        self._being_put.update(blobs.keys())
        try:
            await self._put(blobs)
        finally:
            self._suspects.difference_update(blobs)
            self._being_put -= Counter(blobs.keys())

    async def _put(self, blobs: dict[str, bytes]) -> None:
        new = {digest: data for digest, data in blobs.items() if not self._cache.is_known(digest)}
        if not new:
            return
        await self._writer.put(_Change(new, ()))
        for digest, data in new.items():
            self._cache.add(digest, data)

    def suspect(self, digests: Iterable[str]) -> None:
        self._suspects = set(digests) - self._being_put.keys()

    async def drop(self, digests: Iterable[str]) -> int:
        """Delete marked blobs, from the cache at once: a later `put` comes after the deletion in the writer's queue."""
        dropped = tuple(sorted(self._suspects.intersection(digests) - self._being_put.keys()))
        self._suspects.clear()
        for digest in dropped:
            self._cache.forget(digest)
        if dropped:
            self._drops += 1
            await self._writer.put(_Change({}, dropped))
        return len(dropped)

    def after(self, digest: str, limit: int) -> tuple[str, ...]:
        with damage_refused(self._path), contextlib.closing(connect(self._path)) as connection:
            query = "SELECT digest FROM blobs WHERE digest > ? ORDER BY digest LIMIT ?"
            return tuple(name for (name,) in connection.execute(query, (digest, limit)))

    async def get(self, digests: tuple[str, ...]) -> dict[str, bytes]:
        cached = {digest: data for digest in digests if (data := self._cache.get(digest)) is not None}
        missing = [digest for digest in digests if digest not in cached]
        if not missing:
            return cached
        drops = self._drops
        found = await asyncio.to_thread(self._read, missing)
        if drops == self._drops:  # else the blob may be deleted by now, and a later put must write it
            for digest, data in found.items():
                self._cache.add(digest, data)
        return cached | found

    def close(self) -> None:
        """Write the waiting changes and close the file."""
        self._writer.close()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
        self._db.close()

    def _read(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Read blobs from the database, in a thread of the loop's pool."""
        with self._reading, damage_refused(self._path):
            if self._reader is None:
                self._reader = connect(self._path)
            rows = self._reader.execute(
                "SELECT digest, data FROM blobs WHERE digest IN (SELECT value FROM json_each(?))",
                (json.dumps(digests),),
            )
            return dict(rows.fetchall())

    def _write(self, changes: Iterable[_Change]) -> None:
        """Write changes in one transaction, in the order of the calls, in the writer's thread."""
        with self._db.conn as connection:
            for change in changes:
                connection.executemany("INSERT OR IGNORE INTO blobs (digest, data) VALUES (?, ?)", change.put.items())
                connection.executemany("DELETE FROM blobs WHERE digest = ?", [(digest,) for digest in change.drop])


class MemoryBlobStore:
    """A `BlobStore` in memory, for tests and the simulator."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._suspects: set[str] = set()

    async def put(self, blobs: dict[str, bytes]) -> None:
        self._suspects.difference_update(blobs)
        self._blobs.update(blobs)

    async def get(self, digests: tuple[str, ...]) -> dict[str, bytes]:
        return {digest: self._blobs[digest] for digest in digests if digest in self._blobs}

    def suspect(self, digests: Iterable[str]) -> None:
        self._suspects = set(digests)

    async def drop(self, digests: Iterable[str]) -> int:
        dropped = self._suspects.intersection(digests) & self._blobs.keys()
        self._suspects = set()
        for digest in dropped:
            del self._blobs[digest]
        return len(dropped)

    def after(self, digest: str, limit: int) -> tuple[str, ...]:
        return tuple(sorted(blob for blob in self._blobs if blob > digest)[:limit])
