"""Blocks users from a socket of this host for a while, with an access list that the kernel enforces on the socket's
file.

Root cannot be blocked, and a daemon does not block its own user.  On a file system without access lists, the user's
links are closed and may be made again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from gq.connection.memory_guard import OF_USER, Timer, hang_up, links

BLOCK_S = 60.0
_ACL = "system.posix_acl_access"
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
"""Tag, permissions, and the number of a user."""
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF


class UserBlock:
    """The block list of the socket at `path`; empty: no such socket, and no user is blocked."""

    def __init__(self, path: str, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._path = path
        self._call_later = call_later
        self._blocked: set[int] = set()

    def block(self, uid: int) -> None:
        """Block a user from now on, and close the user's links."""
        if not self._path or uid in (0, os.geteuid()):
            return
        if uid not in self._blocked:
            self._blocked.add(uid)
            self._call_later(BLOCK_S, lambda: self._unblock(uid))
            self._write_access_list()
        for link in links({self._path}):
            if link.peer == f"{OF_USER}{uid}":
                hang_up(link.descriptor, link.peer)

    def _unblock(self, uid: int) -> None:
        self._blocked.discard(uid)
        self._write_access_list()

    def _write_access_list(self) -> None:
        with contextlib.suppress(OSError):  # the socket is closed, or no access lists are supported
            mode = stat.S_IMODE(Path(self._path).stat().st_mode)
            os.setxattr(self._path, _ACL, access_list(mode, self._blocked))


def access_list(mode: int, blocked: set[int]) -> bytes:
    """Return the list in the kernel's format (acl(5)), for a file with the permissions `mode` for all others."""
    owner, group, others = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    entries = [(_OWNER, owner, _NOBODY), *((_USER, 0, uid) for uid in sorted(blocked)), (_GROUP, group, _NOBODY)]
    if blocked:
        entries.append((_MASK, group, _NOBODY))
    return _VERSION + b"".join(_ENTRY.pack(*entry) for entry in [*entries, (_OTHERS, others, _NOBODY)])
