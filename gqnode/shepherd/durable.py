"""Writes files and lines that exist whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress


def replace_file(path: str, content: bytes, is_durable: bool) -> None:
    """Write a file beside the target and rename it; with ``is_durable`` the file also survives a loss of power.

    Raises `OSError` if it fails (a full disk); then `path` is unchanged.
    """
    directory, name = os.path.split(path)
    beside = os.path.join(directory, f".{name}.tmp")
    try:
        _write(beside, content, is_durable)
        os.rename(beside, path)
    except OSError:
        _remove(beside)
        raise
    if is_durable:
        sync_directory(directory or ".")


def overwrite_file(path: str, content: bytes) -> None:
    """Overwrite a file in place, for a file that nobody reads before another file refers to it."""
    _write(path, content, is_durable=False)


def append_line(path: str, line: bytes, is_durable: bool) -> int:
    """Append a line to a file, which is created if it does not exist; return the file's new size.

    Raises `OSError` if it fails (a full disk); then the file is unchanged.  A crash during the write leaves a partial
    line, which the reader must skip; the next line starts on its own.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        try:
            write_all(fd, b"\n" + line if size else line)
        except OSError:
            with suppress(OSError):  # the first error is the one that tells
                os.ftruncate(fd, size)
            raise
        if is_durable:
            os.fdatasync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path: str, content: bytes, is_durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(fd, content)
        if is_durable:
            os.fdatasync(fd)
    finally:
        os.close(fd)


def read_small(path: str) -> bytes:
    """Read at most 4096 bytes, which is enough for files of the kernel, without the cost of a file object."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes) -> None:
    """Write all bytes to a file; a disk that becomes full raises `OSError`."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
