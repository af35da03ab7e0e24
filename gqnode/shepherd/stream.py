"""Buffers bytes between a task and a client, numbered by offset; knows no sockets.

An `OutputStream` keeps what the client has not acknowledged, and reads no further than `OUTPUT_WINDOW_BYTES` ahead of
it: a task whose output nobody reads blocks in ``write``, as with a pipe.  An `InputFeed` is one standard input for all
tasks of a step: each task reads at its own speed, and bytes are dropped when the slowest task has them.
"""

from __future__ import annotations

import errno
import os

OUTPUT_WINDOW_BYTES = 256 * 1024  # as in gq.wire.step, which is not slim; a test compares them
INPUT_WINDOW_BYTES = 256 * 1024
END_OF_FILE_KEY = b"\x04"
"""Byte that ends the input of a terminal (Ctrl-D)."""
_CHUNK_BYTES = 64 * 1024


class OutputStream:
    """An output stream of a task."""

    def __init__(self, name: str, fd: int | None) -> None:
        self.name = name
        self.fd = fd
        """Descriptor to read from; None at the end of the stream."""
        self._kept = bytearray()
        self._acknowledged = 0
        self._sent = 0
        self._is_eof_sent = False
        self._is_discarding = False

    @property
    def wants_data(self) -> bool:
        return self.fd is not None and (self._is_discarding or len(self._kept) < OUTPUT_WINDOW_BYTES)

    @property
    def is_told(self) -> bool:
        """Whether all data and the end of file have been sent."""
        return self.fd is None and (self._is_discarding or self._is_eof_sent)

    @property
    def is_fetched(self) -> bool:
        """Whether the client has acknowledged all data."""
        return self.is_told and not self._kept

    def read(self) -> bool:
        """Read the available data; False if there was none.  At the end of file `fd` becomes None: close it."""
        assert self.fd is not None
        room = _CHUNK_BYTES if self._is_discarding else min(_CHUNK_BYTES, OUTPUT_WINDOW_BYTES - len(self._kept))
        try:
            data = os.read(self.fd, room)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:  # how a terminal says that nobody has it open
                raise
            data = b""
        if not data:
            self.fd = None
        elif self._is_discarding:
            self._acknowledged += len(data)
        else:
            self._kept += data
        return bool(data)

    def next_chunk(self) -> tuple[int, bytes, bool] | None:
        """Return (offset, data, end of file) to send next and count it as sent; None if nothing is new."""
        start = self._sent - self._acknowledged
        data = bytes(self._kept[start : start + _CHUNK_BYTES])
        is_eof = self.fd is None and start + len(data) == len(self._kept)
        if self._is_discarding or (not data and (not is_eof or self._is_eof_sent)):
            return None
        offset = self._sent
        self._sent += len(data)
        self._is_eof_sent = is_eof
        return offset, data, is_eof

    def acknowledge(self, offset: int) -> None:
        """Drop the data before `offset`, which the client has."""
        count = min(max(offset - self._acknowledged, 0), len(self._kept))
        del self._kept[:count]
        self._acknowledged += count
        self._sent = max(self._sent, self._acknowledged)

    def rewind(self) -> None:
        """Send all unacknowledged data again."""
        self._sent = self._acknowledged
        self._is_eof_sent = False

    def discard(self) -> None:
        """Throw away all present and future data, since no client will fetch it."""
        self._is_discarding = True
        self._acknowledged += len(self._kept)
        self._sent = self._acknowledged
        self._kept.clear()


class InputFeed:
    """The standard input of a step, shared by its tasks."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._taken = 0
        self._is_ended = False
        self._positions: dict[int, int] = {}

    @property
    def taken(self) -> int:
        """Offset before which all readers have taken the input."""
        return self._taken

    def add_reader(self, fd: int) -> None:
        self._positions[fd] = self._taken

    def remove_reader(self, fd: int) -> None:
        """Remove a reader that has ended, so that it no longer holds up the others."""
        if self._positions.pop(fd, None) is not None:
            self._trim()

    def add(self, offset: int, data: bytes, is_end: bool) -> None:
        """Add input; bytes seen before, bytes after a gap and bytes beyond the window are skipped."""
        end = self._taken + len(self._kept)
        fresh = data[end - offset :] if offset <= end else b""
        room = INPUT_WINDOW_BYTES - len(self._kept)
        self._kept += fresh[:room]
        if is_end and offset + len(data) == self._taken + len(self._kept):
            self._is_ended = True
        self._trim()

    def wants_to_write(self, fd: int) -> bool:
        return fd in self._positions and (self._positions[fd] < self._taken + len(self._kept) or self._is_ended)

    def write_to(self, fd: int, is_terminal: bool) -> bool:
        """Write to this reader; True once it has taken the last byte or reads no more."""
        start = self._positions[fd] - self._taken
        chunk = bytes(self._kept[start : start + _CHUNK_BYTES])
        try:
            self._positions[fd] += os.write(fd, chunk) if chunk else 0
            if self._positions[fd] == self._taken + len(self._kept) and self._is_ended:
                if is_terminal:
                    os.write(fd, END_OF_FILE_KEY)
                return True
        except BlockingIOError:
            return False
        except OSError:  # EPIPE, EIO: it reads no more
            return True
        self._trim()
        return False

    def _trim(self) -> None:
        slowest = min(self._positions.values(), default=self._taken + len(self._kept))
        del self._kept[: slowest - self._taken]
        self._taken = slowest
