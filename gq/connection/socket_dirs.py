"""Directories of sockets that clusters of this user have left: of one that is gone for good nobody else clears them.

Owns the question whether a directory is still in use: somebody listens at one of its sockets, holds one of its locks,
or a node's daemon that is named there lives.  One that changed lately is left alone: its daemons may be about to start.
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from gq.host.files import lock_holder

LEFT_ALONE_S = 86_400.0
_MOST = 1000
"""Looked at in one go."""


def remove_left_over(own: Path) -> int:
    """Those beside `own`, which a cluster that runs has; how many.  A file of another kind keeps its directory."""
    removed = 0
    with contextlib.suppress(OSError):
        for directory in sorted(own.parent.iterdir())[:_MOST]:
            removed += directory != own and _is_left_over(directory) and _remove(directory)
    return removed


def _is_left_over(directory: Path) -> bool:
    try:
        if directory.is_symlink() or not directory.is_dir():
            return False
        is_old = time.time() - directory.stat().st_mtime > LEFT_ALONE_S
        return is_old and not any(map(_is_in_use, directory.iterdir()))
    except OSError:  # removed meanwhile, or not ours to look at
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
