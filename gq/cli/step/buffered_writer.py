"""A file descriptor that takes output, written only as fast as its reader takes it.

Owns what was not taken yet, so that a slow reader of one stream never stops the loop that also forwards signals
and keeps links alive.  Whoever feeds it stops when `backlog` grows.
"""

from __future__ import annotations

import os
import select
import stat

from gq.errors import Refusal

_FILE_CHUNK = 1 << 20


class BufferedWriter:
    """Writes to `fd`; `name` is for messages."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name
        self.is_gone = False
        """The reader went away; what comes is dropped."""
        self._pending = bytearray()
        self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)

    @property
    def backlog(self) -> int:
        """Bytes that wait for the reader."""
        return len(self._pending)

    def put(self, data: bytes) -> None:
        """Take `data`, and write what goes without waiting."""
        if self.is_gone:
            return
        self._pending += data
        self.push()

    def push(self) -> None:
        """Write what goes without waiting; `Refusal` where writing fails (a full disk)."""
        done = 0
        # A pipe that polls as writable takes PIPE_BUF bytes without blocking, and no more for certain.
        chunk = _FILE_CHUNK if self._is_file else select.PIPE_BUF
        while done < len(self._pending) and self._takes_now():
            try:
                done += os.write(self.fd, self._pending[done : done + chunk])
            except BlockingIOError:
                break
            except BrokenPipeError:
                self.is_gone = True
                self._pending.clear()
                return
            except OSError as error:
                self.is_gone = True
                self._pending.clear()
                raise Refusal("output_failed", f"cannot write {self.name}: {error.strerror}") from error
        del self._pending[:done]

    def _takes_now(self) -> bool:
        if self._is_file:
            return True
        poller = select.poll()
        poller.register(self.fd, select.POLLOUT)
        return bool(poller.poll(0))
