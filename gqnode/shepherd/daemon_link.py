"""The shepherd's link to the node daemon: frames over a non-blocking socket, one link at a time.

A daemon that was restarted finds the shepherd by its control socket.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from gqnode.shepherd.frames import BadFrame, FrameReader, Head, pack
from gqnode.shepherd.reactor import READ, WRITE, Reactor

CONTROL_SOCKET = "ctl"
CONTROL_PREFIX = ".ctl-"
"""Names of control sockets in the directory above the attempts' begin with it."""
FULL_BYTES = 256 * 1024
"""Above this size bulk data waits; control frames are still buffered."""
_READ_BYTES = 64 * 1024
_CREDENTIALS = struct.Struct("3i")


class DaemonLink:
    """Calls ``on_frame`` for each frame, ``on_drained`` when there is room again, ``on_gone`` once at the end."""

    def __init__(
        self,
        reactor: Reactor,
        link: socket.socket,
        on_frame: Callable[[Head, bytes], None],
        on_drained: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        link.setblocking(False)
        self._reactor = reactor
        self._link = link
        self._reader = FrameReader()
        self._pending = bytearray()
        self._on_frame, self._on_drained, self._on_gone = on_frame, on_drained, on_gone
        self.is_open = True
        reactor.watch(link.fileno(), READ, self._on_event)

    @property
    def is_ready(self) -> bool:
        """Whether there is room for bulk data."""
        return self.is_open and len(self._pending) < FULL_BYTES

    @property
    def is_flushed(self) -> bool:
        """Whether the kernel has taken all data."""
        return not self._pending

    def send(self, head: Head, data: bytes = b"") -> None:
        """Send a frame; a frame without data waits for `flush`, so that the daemon wakes once per turn."""
        if self.is_open:
            self._pending += pack(head, data)
            if data:
                self.flush()

    def close(self) -> None:
        """Close the link without calling ``on_gone``."""
        if self.is_open:
            self.is_open = False
            self._pending.clear()
            self._reactor.forget(self._link.fileno())
            self._link.close()

    def _lose(self) -> None:
        if self.is_open:
            self.close()
            self._on_gone()

    def _on_event(self) -> None:
        had_pending = bool(self._pending)
        self.flush()
        self._read()
        if had_pending and self.is_ready:
            self._on_drained()

    def _read(self) -> None:
        if not self.is_open:
            return
        try:
            data = self._link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        try:
            for head, body in self._reader.feed(data):
                self._on_frame(head, body)
        except BadFrame:
            self._lose()

    def flush(self) -> None:
        if self.is_open and self._pending:
            try:
                sent = self._link.send(self._pending)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._lose()
                return
            del self._pending[:sent]
        if self.is_open:
            self._reactor.watch(self._link.fileno(), READ | WRITE if self._pending else READ, self._on_event)


def is_trusted(link: socket.socket) -> bool:
    """Whether the process at the other end runs as this user or root, as the kernel reports it."""
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return uid in (0, os.geteuid())


class ControlSocket:
    """The socket that a restarted daemon connects to; calls ``on_link`` with each link of a trusted process.

    `CONTROL_SOCKET` in the working directory is a hard link to it.  It is bound to a relative path, since the path of a
    socket is limited to 107 bytes.
    """

    def __init__(self, reactor: Reactor, on_link: Callable[[socket.socket], None]) -> None:
        self._reactor = reactor
        self._on_link = on_link
        self._above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = f"{CONTROL_PREFIX}{os.getpid()}"
        with suppress(FileNotFoundError):  # of a shepherd that was killed and had this process id
            os.unlink(self._name, dir_fd=self._above)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"../{self._name}")
        self._socket.listen(4)
        self._socket.setblocking(False)

    def open(self) -> None:
        """Make the link in the working directory.  Raises `FileExistsError` if an attempt was started there before."""
        os.link(self._name, CONTROL_SOCKET, src_dir_fd=self._above)
        self._reactor.watch(self._socket.fileno(), READ, self._accept)

    def remove(self) -> None:
        """Remove the link before the daemon learns that the attempt is over and may reuse the directory."""
        self._reactor.forget(self._socket.fileno())
        with suppress(FileNotFoundError):  # a job of the same user can have removed it
            os.unlink(CONTROL_SOCKET)

    def close(self) -> None:
        self._socket.close()
        with suppress(FileNotFoundError):  # a new daemon has removed it
            os.unlink(self._name, dir_fd=self._above)

    def _accept(self) -> None:
        try:
            link, _ = self._socket.accept()
        except OSError:
            return
        if is_trusted(link):
            self._on_link(link)
        else:
            link.close()
