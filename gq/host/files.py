"""Files and directories that have their modes from the first moment, and are either whole or missing."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

from gq.errors import GqError, Refusal


def write_file(path: Path, text: str, mode: int) -> None:
    """Write `path` in one step, durably; an existing file is replaced.  It never has more permissions than `mode`."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)  # whatever the umask left of it
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise Refusal("cannot_write", f"{path} cannot be written: {error.strerror}") from error


def create_file(path: Path, text: str, mode: int) -> None:
    """Write a new file, not through a link; `Refusal` if the file exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise Refusal("file_exists", f"{path} already exists", "remove it, or choose another file with --out") from None
    except OSError as error:
        raise Refusal("cannot_write", f"{path} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable across a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, mode: int, is_ours: bool = True) -> None:
    """Make a directory of this user with exactly this mode.

    `is_ours`: an existing directory gets the mode, too; False: it keeps its own.
    """
    is_new = not path.exists()
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise Refusal("no_directory", f"{path} cannot be created: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise Refusal("unsafe_directory", f"{path} is not a directory that you own", "move it away and try again")
    if (is_new or is_ours) and stat.S_IMODE(found.st_mode) != mode:
        path.chmod(mode)


def hold_lock(path: str, refusal: Callable[[str], GqError]) -> int:
    """Lock this file and return the descriptor that holds the lock until it is closed; the file names this process.

    If another process holds the lock, raises `refusal` of the holder's process id.
    """
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise refusal(holder) from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def lock_holder(path: str) -> int | None:
    """Return the process that holds the lock of this file; None: no process holds it, or the file is unreadable."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        text = os.read(lock, 32).strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(lock)
