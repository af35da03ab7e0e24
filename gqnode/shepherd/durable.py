"""Files that are there whole or not at all, and lines that are.  Slim."""

from __future__ import annotations

import os
from contextlib import suppress


def replace_file(path: str, content: bytes, is_durable: bool) -> None:
    """Write beside and rename, which a crash of any process survives; ``is_durable`` also against loss of power.

    `OSError` if it cannot be (a full disk): then `path` is as it was.
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
    """In place: for what nobody reads before something else says that it is there."""
    _write(path, content, is_durable=False)


def append_line(path: str, line: bytes, is_durable: bool) -> int:
    """Add a line to a file, which is made if it is not there; the file's size then.

    `OSError` if it cannot be (a full disk): then the file is as it was.  A crash in the middle leaves a part of a line,
    which is for the reader to know; the next line begins anew.
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
    """Make durable which names are in it."""
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
    """At most a page, as the kernel's files are; without a file object, which costs more than the reading."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes) -> None:
    """To a file; a disk that fills up half-way is an `OSError`, not a short count."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
