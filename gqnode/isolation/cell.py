"""A cell: where one attempt, or one step of it, lives.  A plain value for everybody who starts processes in it."""

from __future__ import annotations

import os
from typing import NamedTuple


class Cell(NamedTuple):
    """Made by `Isolation.make`, `make_step` and `find`."""

    name: str
    """``<job>.<attempt>`` or ``<job>.<attempt>.<step>``."""
    procs_files: tuple[str, ...] = ()
    """``cgroup.procs`` files: a process joins by writing ``0`` into each before exec."""
    watch_memory_mib: int | None = None
    """The limit that no cgroup enforces, so the shepherd watches resident memory; None: nothing to watch."""


def join(cell: Cell) -> None:
    """Put the calling process into the cell; everything it starts from now on is in it.  Raises `OSError`."""
    for path in cell.procs_files:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)
