"""The process that forks shepherds.  Every fork copies what it has loaded, so it imports little.

It runs in an interpreter without ``site`` (see `spawn`), which is half as large.  Each request is one packet: the
attempt's directory (or `READ`, for a piece of a file), and with it the child's end of a link to the daemon.  It keeps
no state, answers only when it cannot fork, and ends when the daemon does; shepherds stay.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket

from gqnode.shepherd import file_reader, shepherd
from gqnode.shepherd.frames import pack

MAX_REQUEST_BYTES = 16 * 1024
READ = b"\0read"
"""Request for a file reader; no path begins with a null byte."""


def serve(door_fd: int) -> None:
    """Fork a child for each request until the daemon closes its end."""
    door = socket.socket(fileno=door_fd)
    _be_quiet()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries shepherds
    gc.collect()
    gc.freeze()  # what is there is never collected, so that forks keep sharing its pages
    while True:
        request, fds, _, _ = socket.recv_fds(door, MAX_REQUEST_BYTES, 1)
        if not request:
            return
        _fork_child(door, request, fds[0])


def _fork_child(door: socket.socket, request: bytes, link_fd: int) -> None:
    link = socket.socket(fileno=link_fd)
    link.set_inheritable(False)  # as everything that Python opens, but not what it receives
    try:
        pid = os.fork()
    except OSError as error:
        with contextlib.suppress(OSError):  # nobody may wait for it any more
            link.send(pack({"is": "unable", "why": f"cannot fork a process: {error.strerror}"}))
        link.close()
        return
    if pid == 0:
        try:
            door.close()
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if request == READ:
                file_reader.run(link)
            else:
                shepherd.run(os.fsdecode(request), link)
        finally:
            os._exit(0)
    link.close()


def _be_quiet() -> None:
    """Close standard input, output and error, so that no reader waits for their end."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    os.chdir("/")
