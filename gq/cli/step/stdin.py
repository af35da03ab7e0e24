"""Standard input for the tasks of a step: read as fast as the slowest node takes it, and sent to each node once.

Owns the bytes that some node has not taken yet, so that a node daemon that restarts gets them again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gq.cli.step.step_links import StepLink
from gq.cli.step.terminal import is_foreground
from gq.wire.step import STDIN_WINDOW_BYTES

_CHUNK = 32 * 1024


class StdinFeed:
    """From `fd` (None: there is no input) to `doors`."""

    def __init__(self, fd: int | None, links: Sequence[StepLink]) -> None:
        self.fd = fd
        self._links = tuple(links)
        self._kept = bytearray()
        self._kept_from = 0
        """Offset of the first byte that is kept."""
        self._is_eof = fd is None
        self._eof_sent: set[str] = set()

    @property
    def wants_more(self) -> bool:
        """Whether reading on is of use, and the window has room."""
        return not self._is_eof and len(self._kept) < STDIN_WINDOW_BYTES and bool(self._readers()) and self._may_read()

    def _may_read(self) -> bool:
        assert self.fd is not None
        return is_foreground(self.fd)

    def _readers(self) -> list[StepLink]:
        return [link for link in self._links if not link.is_over]

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
        takers = self._readers()
        for link in takers:
            if link.is_attached:
                self._send(link)
            else:
                self._eof_sent.discard(link.name)
        low = min((link.stdin_taken for link in takers), default=self._end)
        if low > self._kept_from:
            del self._kept[: low - self._kept_from]
            self._kept_from = low

    @property
    def _end(self) -> int:
        return self._kept_from + len(self._kept)

    def _send(self, link: StepLink) -> None:
        while link.stdin_sent < self._end:
            at = link.stdin_sent - self._kept_from
            link.send_stdin(link.stdin_sent, bytes(self._kept[at : at + _CHUNK]), eof=False)
        if self._is_eof and link.name not in self._eof_sent:
            self._eof_sent.add(link.name)
            link.send_stdin(self._end, b"", eof=True)
