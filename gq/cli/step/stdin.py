"""Standard input for the tasks of a step: read as fast as the slowest node takes it, and sent to each node once.

Owns the bytes that some node has not taken yet, so that a node daemon that restarts gets them again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gq.cli.step.step_links import Door
from gq.cli.step.terminal import is_foreground
from gq.wire.step import STDIN_WINDOW_BYTES

_CHUNK = 32 * 1024


class StdinFeed:
    """From `fd` (None: there is no input) to `doors`."""

    def __init__(self, fd: int | None, doors: Sequence[Door]) -> None:
        self.fd = fd
        self._doors = tuple(doors)
        self._kept = bytearray()
        self._kept_from = 0
        """Offset of the first byte that is kept."""
        self._is_eof = fd is None
        self._eof_sent: set[str] = set()

    @property
    def wants_more(self) -> bool:
        """Whether reading on is of use, and the window has room."""
        return not self._is_eof and len(self._kept) < STDIN_WINDOW_BYTES and bool(self._takers()) and self._may_read()

    def _may_read(self) -> bool:
        assert self.fd is not None
        return is_foreground(self.fd)

    def _takers(self) -> list[Door]:
        return [door for door in self._doors if not door.is_over]

    def read(self) -> None:
        """Take what is there; the caller knows that it does not block."""
        assert self.fd is not None
        try:
            data = os.read(self.fd, min(_CHUNK, STDIN_WINDOW_BYTES - len(self._kept)))
        except BlockingIOError:
            return
        except OSError:  # a terminal that hung up
            data = b""
        self._kept += data
        self._is_eof = not data

    def pump(self) -> None:
        """Send every node what it lacks, and forget what all have."""
        if self.fd is None:
            return
        takers = self._takers()
        for door in takers:
            if door.is_attached:
                self._send(door)
            else:
                self._eof_sent.discard(door.name)
        low = min((door.stdin_taken for door in takers), default=self._end)
        if low > self._kept_from:
            del self._kept[: low - self._kept_from]
            self._kept_from = low

    @property
    def _end(self) -> int:
        return self._kept_from + len(self._kept)

    def _send(self, door: Door) -> None:
        while door.stdin_sent < self._end:
            at = door.stdin_sent - self._kept_from
            door.send_stdin(door.stdin_sent, bytes(self._kept[at : at + _CHUNK]), eof=False)
        if self._is_eof and door.name not in self._eof_sent:
            self._eof_sent.add(door.name)
            door.send_stdin(self._end, b"", eof=True)
