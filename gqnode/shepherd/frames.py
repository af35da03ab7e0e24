"""Frames between the node daemon and a shepherd: a JSON head and raw bytes, each with its length in front.

Both ends are of one trust (same uid), but not always of one version: a shepherd outlives an upgrade of the daemon.
So heads are JSON, unknown words are ignored, and fields are only ever added.

Daemon → shepherd, by ``do``: ``begin`` (once for each attempt; data: the script) · ``hold`` (another attempt, by one
that is free) · ``signal`` · ``signal_step`` · ``check`` · ``empty`` · ``line`` · ``tasks`` · ``stdin`` (data)
· ``resize`` · ``received`` · ``replay`` · ``detach``.

Shepherd → daemon, by ``is``: ``here`` (first on each link, and of each attempt) · ``unable`` (the forkserver's word: no
shepherd) · ``started`` · ``ended`` · ``quiet`` · ``emptied`` · ``free`` (it holds no attempt any more and takes one)
· ``task_started`` · ``output`` (data) · ``stdin_taken`` · ``task_exited`` · ``task_failed`` · ``step_ended``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

Head = dict[str, Any]

MAX_PART_BYTES = 64 * 1024 * 1024
_LENGTHS = struct.Struct("!II")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class BadFrame(Exception):
    """The bytes received are not a frame; the link is useless from then on."""


def pack(head: Head, data: bytes = b"") -> bytes:
    """Return one encoded frame."""
    text = _ENCODER.encode(head).encode()
    return _LENGTHS.pack(len(text), len(data)) + text + data


class FrameReader:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Head, bytes]]:
        """Yield the frames that these bytes complete; raise `BadFrame` if they cannot be frames."""
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            head_bytes, data_bytes = _LENGTHS.unpack_from(self._buffer)
            if head_bytes > MAX_PART_BYTES or data_bytes > MAX_PART_BYTES:
                raise BadFrame(f"a frame of {head_bytes} + {data_bytes} bytes")
            middle = _LENGTHS.size + head_bytes
            end = middle + data_bytes
            if len(self._buffer) < end:
                return
            head = _parse(bytes(self._buffer[_LENGTHS.size : middle]))
            body = bytes(self._buffer[middle:end])
            del self._buffer[:end]
            yield head, body


def _parse(text: bytes) -> Head:
    try:
        head = json.loads(text)
    except ValueError as error:
        raise BadFrame(f"a head that is not JSON: {error}") from error
    if not isinstance(head, dict):
        raise BadFrame("a head that is not an object")
    return head
