"""Scripts and environments by their SHA-256, in a file of their own.

They are apart from the queue database so that it stays small and can be copied and shared: environments hold secrets.
A blob is written before the row that names it, and never changes.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlite_utils import Database, Migrations

from gqd.store.schema import migrate
from gqd.store.sqlite import connect, open_database
from gqd.store.writer import GroupWriter

CACHE_BYTES = 8 * 1024 * 1024
KNOWN_DIGESTS = 50_000

MIGRATIONS = Migrations("gq-blobs")


@MIGRATIONS()
def first(db: Database) -> None:
    """One table."""
    db.execute("CREATE TABLE blobs (digest TEXT NOT NULL PRIMARY KEY, data BLOB NOT NULL)")


class BlobCache:
    """The blobs used last, up to a number of bytes; and, of more, only that they are in the database."""

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

    def add(self, digest: str, data: bytes) -> None:
        """The blob is in the database."""
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


class SqliteBlobStore:
    """The `BlobStore` in the file at `path`, 0600.  The controller that holds the queue database is its only writer."""

    def __init__(self, path: str, cache_bytes: int = CACHE_BYTES) -> None:
        self._db = open_database(path)
        Path(path).chmod(0o600)  # whatever a restored copy had
        migrate(self._db, path, MIGRATIONS)
        self._path = path
        self._cache = BlobCache(cache_bytes)
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._writer: GroupWriter[dict[str, bytes]] = GroupWriter("blobs", self._write)

    async def put(self, blobs: dict[str, bytes]) -> None:
        new = {digest: data for digest, data in blobs.items() if not self._cache.is_known(digest)}
        if not new:
            return
        await self._writer.put(new)
        for digest, data in new.items():
            self._cache.add(digest, data)

    async def get(self, digests: tuple[str, ...]) -> dict[str, bytes]:
        cached = {digest: data for digest in digests if (data := self._cache.get(digest)) is not None}
        missing = [digest for digest in digests if digest not in cached]
        if not missing:
            return cached
        found = await asyncio.to_thread(self._read, missing)
        for digest, data in found.items():
            self._cache.add(digest, data)
        return cached | found

    def close(self) -> None:
        """Write what is waiting and close the file."""
        self._writer.close()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
        self._db.close()

    def _read(self, digests: Sequence[str]) -> dict[str, bytes]:
        """In a thread of the loop's pool."""
        with self._reading:
            if self._reader is None:
                self._reader = connect(self._path)
            rows = self._reader.execute(
                "SELECT digest, data FROM blobs WHERE digest IN (SELECT value FROM json_each(?))",
                (json.dumps(digests),),
            )
            return dict(rows.fetchall())

    def _write(self, groups: Iterable[dict[str, bytes]]) -> None:
        """In the writer's thread: one transaction."""
        rows = [row for blobs in groups for row in blobs.items()]
        with self._db.conn as connection:
            connection.executemany("INSERT OR IGNORE INTO blobs (digest, data) VALUES (?, ?)", rows)


class MemoryBlobStore:
    """A `BlobStore` that forgets when the process ends, for tests and the simulator."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    async def put(self, blobs: dict[str, bytes]) -> None:
        self._blobs.update(blobs)

    async def get(self, digests: tuple[str, ...]) -> dict[str, bytes]:
        return {digest: self._blobs[digest] for digest in digests if digest in self._blobs}
