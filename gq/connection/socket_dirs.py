"""Removes the socket directories that removed clusters of this user left behind.

A directory is in use if a process listens at one of its sockets or holds one of its locks, or the daemon of a node that
it names is alive.  A directory that changed lately is kept: its daemons may be about to start.
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from gq.host.files import lock_holder

LEFT_ALONE_S = 86_400.0
_MAX_DIRECTORIES = 1000
"""Maximum number of directories inspected in one go."""


def remove_left_over(own: Path) -> int:
    """Remove unused directories beside `own`, the directory of a running cluster, and return their number.  A directory
    with a file of another kind is kept."""
    removed = 0
    with contextlib.suppress(OSError):
        for directory in sorted(own.parent.iterdir())[:_MAX_DIRECTORIES]:
            removed += directory != own and _is_left_over(directory) and _remove(directory)
    return removed


def _is_left_over(directory: Path) -> bool:
    try:
        if directory.is_symlink() or not directory.is_dir():
            return False
        is_old = time.time() - directory.stat().st_mtime > LEFT_ALONE_S
        return is_old and not any(map(_is_in_use, directory.iterdir()))
    except OSError:  # removed meanwhile, or not readable
        return False


def _is_in_use(path: Path) -> bool:
    if path.name.startswith("member-"):
        pid = path.read_text().strip()
        return pid.isdecimal() and Path("/proc", pid).exists()
    if path.suffix == ".lock":
        return lock_holder(str(path)) is not None
    return path.suffix != ".sock" or _is_listened_to(path)


def _is_listened_to(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # its queue is full, for example
            return True
    return True


def _remove(directory: Path) -> bool:
    try:
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
    except OSError:
        return False
    return True
