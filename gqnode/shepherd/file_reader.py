"""Reads a piece of a file as a user, in a process that is forked for one request and ends with it.

The user's permissions apply whatever a path leads to by then, and a file system that hangs blocks no other request. The
process reports its pid before it takes the user's identity, because the user could stop it: then the daemon kills it.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
from typing import TYPE_CHECKING

from gqnode.shepherd.frames import FrameReader, pack
from gqnode.shepherd.launch import take_identity
from gqnode.shepherd.launch_failure import CannotLaunch
from gqnode.shepherd.specs import Identity

if TYPE_CHECKING:
    from gqnode.shepherd.frames import Head

LONGEST_S = 30
_READ_BYTES = 64 * 1024


def run(link: socket.socket) -> None:
    """Take one request from the link, answer it, and return; the process is to end then."""
    signal.alarm(LONGEST_S)
    link.sendall(pack({"is": "here", "pid": os.getpid()}))
    request = _receive(link)
    if request is not None:
        head, data = _answer(request)
        link.sendall(pack(head, data))


def question(path: str, offset: int, max_bytes: int, identity: Identity) -> Head:
    """Return the request that `run` expects."""
    return {"path": path, "offset": offset, "max_bytes": max_bytes, "identity": identity}


def read_piece(path: str, offset: int, max_bytes: int) -> tuple[bytes, bool]:
    """Return the bytes at `offset`, and whether the file has no more at this time.

    Only regular files are opened: reading a pipe or a device could block, or take data from its reader.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return b"", True
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)  # the same file, whatever is there now
    finally:
        os.close(place)
    try:
        data = b""
        while len(data) <= max_bytes and (more := os.pread(fd, max_bytes + 1 - len(data), offset + len(data))):
            data += more
        return data[:max_bytes], len(data) <= max_bytes
    finally:
        os.close(fd)


def _receive(link: socket.socket) -> Head | None:
    reader = FrameReader()
    while data := link.recv(_READ_BYTES):
        for head, _ in reader.feed(data):
            return head
    return None


def _answer(request: Head) -> tuple[Head, bytes]:
    uid, gid, groups = request["identity"]
    try:
        take_identity(Identity(uid, gid, tuple(groups)))
        data, is_end = read_piece(request["path"], request["offset"], request["max_bytes"])
    except CannotLaunch as error:
        return {"is": "failed", "errno": error.failure.errno}, b""
    except (OSError, OverflowError, ValueError) as error:
        return {"is": "failed", "errno": getattr(error, "errno", None) or 22}, b""  # EINVAL
    return {"is": "read", "eof": is_end}, data
