"""Scripts and environments: what was put is there, also tomorrow, and only for the owner."""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gqd.store.blobs import BlobCache, MemoryBlobStore, SqliteBlobStore
from gqd.store.protocol import BlobStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    if request.param == "memory":
        yield MemoryBlobStore()
    else:
        durable = SqliteBlobStore(str(tmp_path / "blobs.db"))
        yield durable
        durable.close()


def blobs_of(*texts: bytes) -> dict[str, bytes]:
    return {hashlib.sha256(text).hexdigest(): text for text in texts}


def test_what_was_put_is_found_and_the_rest_is_left_out(store: BlobStore) -> None:
    async def story() -> None:
        blobs = blobs_of(b"#!/bin/sh\n", b"", bytes(range(256)))
        await store.put(blobs)
        await store.put(blobs)
        assert await store.get((*blobs, "absent")) == blobs
        assert await store.get(()) == {}

    asyncio.run(story())


def test_many_puts_at_once_all_arrive(store: BlobStore) -> None:
    async def story() -> None:
        texts = [str(number % 150).encode() for number in range(600)]
        await asyncio.gather(*(store.put(blobs_of(text)) for text in texts))
        wanted = blobs_of(*texts)
        assert await store.get(tuple(wanted)) == wanted

    asyncio.run(story())


def test_blobs_are_there_after_a_restart_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    path = tmp_path / "blobs.db"
    blobs = blobs_of(b"SECRET=1", b"x" * 3_000_000)

    first = SqliteBlobStore(str(path))
    asyncio.run(first.put(blobs))
    modes = [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()]
    first.close()
    path.chmod(0o644)  # as a careless restore leaves it
    second = SqliteBlobStore(str(path), cache_bytes=1000)

    assert modes == [0o600] * 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert asyncio.run(second.get(tuple(blobs))) == blobs
    second.close()


def test_a_known_blob_is_not_written_again(tmp_path: Path) -> None:
    store = SqliteBlobStore(str(tmp_path / "blobs.db"))
    asyncio.run(store.put(blobs_of(b"one")))
    written: list[Any] = []
    write = store._write
    store._writer._write = lambda groups: (written.extend(groups), write(groups))[1]

    asyncio.run(store.put(blobs_of(b"one")))
    asyncio.run(store.put(blobs_of(b"one", b"two")))

    assert [change.put for change in written] == [blobs_of(b"two")]
    store.close()


def test_the_cache_keeps_what_was_used_last_within_its_size() -> None:
    cache = BlobCache(max_bytes=10, max_digests=3)
    cache.add("a", b"1234")
    cache.add("b", b"1234")
    assert cache.get("a") == b"1234"

    cache.add("c", b"1234")
    cache.add("large", b"12345678901")

    assert (cache.get("a"), cache.get("b"), cache.get("c"), cache.get("large")) == (b"1234", None, b"1234", None)
    assert [cache.is_known(digest) for digest in ("a", "b", "c", "large")] == [False, True, True, True]
