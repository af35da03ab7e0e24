"""Caches recently received scripts and environments, so that a start need not read them back from the spool."""

from __future__ import annotations

from collections.abc import Mapping

MAX_BYTES = 4 * 1024 * 1024


class BlobCache:
    """Blobs by digest, the newest up to `max_bytes` in total."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blobs: dict[str, bytes] = {}

    def put(self, blobs: Mapping[str, bytes]) -> None:
        for digest, data in blobs.items():
            self._bytes -= len(self._blobs.pop(digest, b""))
            self._bytes += len(data)
            self._blobs[digest] = data
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._blobs.pop(next(iter(self._blobs))))

    def get(self, digest: str) -> bytes | None:
        return self._blobs.get(digest)
