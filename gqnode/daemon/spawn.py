"""The daemon's end of the forkserver: starts it, asks it for shepherds, starts another when it died."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

READ = b"\0read"
"""Equal to `forkserver.READ`, which the daemon does not load; a test compares them."""
REQUEST_TIMEOUT_S = 10.0
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from gqnode.shepherd.forkserver import serve; serve(int(sys.argv[2]))"
)
_SOURCE_ROOT = str(Path(__file__).resolve().parents[2])


class Spawner:
    """Starts and restarts the forkserver, executed as a fresh interpreter so that it stays small."""

    def __init__(self) -> None:
        self._door: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the forkserver (a fresh interpreter: some 30 ms of CPU), so that the first job need not wait for it."""
        if self._door is not None:
            return
        door, far_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far_door:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _SOURCE_ROOT, str(far_door.fileno())],
                pass_fds=(far_door.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        door.settimeout(REQUEST_TIMEOUT_S)
        self._door = door

    @property
    def pid(self) -> int | None:
        """Process id of the forkserver, while it runs."""
        return self._process.pid if self._process else None

    def spawn(self, directory: str, link: socket.socket) -> None:
        """Have a shepherd forked that works in `directory` and speaks over `link`; `OSError` if it cannot be asked.

        If no shepherd comes of it, `link` ends.  The caller closes its own copy of `link`.
        """
        self._ask_twice(os.fsencode(directory), link)

    def spawn_reader(self, link: socket.socket) -> None:
        """Have a process forked that answers one `reader.question` over `link`; otherwise as `spawn`."""
        self._ask_twice(READ, link)

    def _ask_twice(self, request: bytes, link: socket.socket) -> None:
        try:
            self._ask(request, link)
        except OSError:
            self.close()
            self._ask(request, link)

    def _ask(self, request: bytes, link: socket.socket) -> None:
        self.start()
        assert self._door is not None
        socket.send_fds(self._door, [request], [link.fileno()])

    def close(self) -> None:
        """End the forkserver; its shepherds go on."""
        if self._door is not None:
            self._door.close()
            self._door = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
