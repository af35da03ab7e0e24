"""Users who are kept from a socket of this host for a while, by the kernel: an access list of the socket's file.

Root cannot be kept out, and a daemon does not keep out its own user.  Where the file system has no access lists, the
links of the user end and may be made again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from gq.connection.memory_guard import OF_USER, Timer, hang_up, links

KEPT_OUT_S = 60.0
_ACL = "system.posix_acl_access"
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
"""What it is about, rights, and the number of a user."""
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF


class UserBlock:
    """`path` of the socket; empty: there is none, and nobody is kept out."""

    def __init__(self, path: str, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._path = path
        self._call_later = call_later
        self._kept_out: set[int] = set()

    def keep_out(self, uid: int) -> None:
        """From now on; the links that the user has end."""
        if not self._path or uid in (0, os.geteuid()):
            return
        if uid not in self._kept_out:
            self._kept_out.add(uid)
            self._call_later(KEPT_OUT_S, lambda: self._let_in(uid))
            self._tell_kernel()
        for link in links({self._path}):
            if link.peer == f"{OF_USER}{uid}":
                hang_up(link.descriptor, link.peer)

    def _let_in(self, uid: int) -> None:
        self._kept_out.discard(uid)
        self._tell_kernel()

    def _tell_kernel(self) -> None:
        with contextlib.suppress(OSError):  # the socket is closed by now, or there are no such lists
            mode = stat.S_IMODE(Path(self._path).stat().st_mode)
            os.setxattr(self._path, _ACL, access_list(mode, self._kept_out))


def access_list(mode: int, kept_out: set[int]) -> bytes:
    """As the kernel takes it (acl(5)), for a file whose rights are `mode` for all others."""
    owner, group, others = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    entries = [(_OWNER, owner, _NOBODY), *((_USER, 0, uid) for uid in sorted(kept_out)), (_GROUP, group, _NOBODY)]
    if kept_out:
        entries.append((_MASK, group, _NOBODY))
    return _VERSION + b"".join(_ENTRY.pack(*one) for one in [*entries, (_OTHERS, others, _NOBODY)])
