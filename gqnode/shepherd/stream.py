"""Bytes on their way between a task and a client, numbered by offset.  Slim; knows no sockets.

An `OutputStream` keeps what the client has not acknowledged, and reads no further than `OUTPUT_WINDOW_BYTES` ahead of
it: a task whose output nobody takes waits in ``write``, as in a pipe.  An `InputFeed` is one standard input for all
tasks of a step: each task takes it at its own speed, and bytes are dropped when the slowest has them.
"""

from __future__ import annotations

import errno
import os

OUTPUT_WINDOW_BYTES = 256 * 1024  # as in gq.wire.step, which is not slim; a test compares them
INPUT_WINDOW_BYTES = 256 * 1024
END_OF_FILE_KEY = b"\x04"
"""What ends the input of a terminal (Ctrl-D)."""
_CHUNK_BYTES = 64 * 1024


class OutputStream:
    """One of a task's output streams."""

    def __init__(self, name: str, fd: int | None) -> None:
        self.name = name
        self.fd = fd
        """None once there is nothing more to read."""
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
        """Everything, its end included, has been sent."""
        return self.fd is None and (self._is_discarding or self._is_eof_sent)

    @property
    def is_fetched(self) -> bool:
        """The client has everything."""
        return self.is_told and not self._kept

    def read(self) -> bool:
        """Take what is there; False: nothing was.  At the end of the file `fd` becomes None, and is to be closed."""
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
        """(offset, data, end of file) to be sent now, which then counts as sent; None: nothing new."""
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
        """The client has all before `offset`."""
        count = min(max(offset - self._acknowledged, 0), len(self._kept))
        del self._kept[:count]
        self._acknowledged += count
        self._sent = max(self._sent, self._acknowledged)

    def rewind(self) -> None:
        """Send again what was not acknowledged."""
        self._sent = self._acknowledged
        self._is_eof_sent = False

    def discard(self) -> None:
        """Nobody will ask: throw away what is kept and what comes."""
        self._is_discarding = True
        self._acknowledged += len(self._kept)
        self._sent = self._acknowledged
        self._kept.clear()


class InputFeed:
    """The standard input of a step."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._taken = 0
        self._is_ended = False
        self._positions: dict[int, int] = {}

    @property
    def taken(self) -> int:
        """All readers have everything before this offset."""
        return self._taken

    def add_reader(self, fd: int) -> None:
        self._positions[fd] = self._taken

    def remove_reader(self, fd: int) -> None:
        """It is gone; what it has not taken no longer holds up the others."""
        if self._positions.pop(fd, None) is not None:
            self._trim()

    def add(self, offset: int, data: bytes, is_end: bool) -> None:
        """More input.  What was had already is skipped, as is what does not follow, or is beyond the window."""
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
        """Give this reader what it takes; True once it has had the last byte, or will take no more."""
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
