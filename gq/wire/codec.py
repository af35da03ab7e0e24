"""The codec: MessagePack by msgspec, bytes ↔ typed messages, with a version and a size limit.

Every message is one frame that holds ``[version, body]`` (or a `Struct` with its own header, see `client`).
Undecodable bytes raise a `ProtocolError`, and no other error, however hostile.

Compatibility: version N reads N−1.  Fields are only ever added, with defaults; a message or field is never reused for
another meaning; `tests/wire/golden` keeps the bytes of every message of every version.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from gq.errors import ProtocolError

WIRE_VERSION = 1
OLDEST_WIRE_VERSION = 1
MAX_MESSAGE_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes and decodes one type of message."""

    def __init__(self, kind: Any, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._max_bytes = max_bytes

    def encode(self, message: T) -> bytes:
        return self._encoder.encode(message)

    def decode(self, data: bytes | memoryview) -> T:
        """Return the message, or raise `ProtocolError` with code ``too_large`` or ``malformed``."""
        if len(data) > self._max_bytes:
            raise ProtocolError("too_large", f"a message of {len(data)} bytes is over the limit of {self._max_bytes}")
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ProtocolError("malformed", f"not a message of this protocol: {error}") from error
