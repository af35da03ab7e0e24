"""Files that are there whole or not at all.  Slim."""

from __future__ import annotations

import os


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
