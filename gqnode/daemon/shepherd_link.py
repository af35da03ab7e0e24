"""The daemon's end of the link to one shepherd: frames over a socket, on the asyncio loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable

from gqnode.shepherd.frames import BadFrame, FrameReader, Head, pack

READ_BYTES = 64 * 1024


class ShepherdLink:
    """Calls ``on_frame`` for each frame, in order, and ``on_gone`` once at the end; never from within a call."""

    def __init__(
        self, near: socket.socket, on_frame: Callable[[Head, bytes], None], on_gone: Callable[[], None]
    ) -> None:
        near.setblocking(False)
        self._socket = near
        self._on_frame, self._on_gone = on_frame, on_gone
        self._reader = FrameReader()
        self._pending = bytearray()
        self._is_open = True
        self._has_writer = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(near.fileno(), self._read)

    def turn_to(self, on_frame: Callable[[Head, bytes], None], on_gone: Callable[[], None]) -> None:
        """Set new callbacks."""
        self._on_frame, self._on_gone = on_frame, on_gone

    def send(self, head: Head, data: bytes = b"") -> None:
        """Send a frame without waiting; unsent bytes are kept.  A broken link is reported by ``on_gone``."""
        self.send_all([(head, data)])

    def send_all(self, frames: Iterable[tuple[Head, bytes]]) -> None:
        """Send several frames together, so that the shepherd wakes once."""
        if not self._is_open:
            return
        was_waiting = bool(self._pending)
        for head, data in frames:
            self._pending += pack(head, data)
        if not was_waiting:
            self._flush()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for head, body in self._reader.feed(data):
                if self._is_open:
                    self._on_frame(head, body)
        except BadFrame:
            data = b""
        if not data and self._is_open:
            self.close()
            self._on_gone()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._pending)
        except BlockingIOError:
            sent = 0
        except OSError:  # the reader will hear the end, after what was said before it
            sent = len(self._pending)
        del self._pending[:sent]
        if self._pending:
            self._loop.add_writer(self._socket.fileno(), self._flush)
            self._has_writer = True
        elif self._has_writer:
            self._loop.remove_writer(self._socket.fileno())
            self._has_writer = False
