"""A cell as the processes around it need to know it: plain paths, and what can be done with nothing but them.

Imported by the slim process that forks: only `os`, `errno`, `time` and `typing` may be imported here.
A cell is a value (strings, numbers and tuples), so that it can be passed to the shepherd as JSON.
"""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """Where one attempt (or one step of it) lives."""

    name: str
    """``<job>.<attempt>`` or ``<job>.<attempt>.<step>``."""
    procs_files: tuple[str, ...] = ()
    """A process joins by writing ``0`` into each, in this order, before exec (`join`)."""
    kill_file: str = ""
    """``cgroup.kill`` of the cell where v2 is mounted."""
    freezer_file: str = ""
    """``freezer.state`` of the cell where only v1 can stop a tree at once."""
    populated_file: str = ""
    """What tells whether a process is left: ``cgroup.events`` (v2) or ``cgroup.procs`` (v1); empty: nothing does."""
    oom_files: tuple[str, ...] = ()
    """``memory.events`` (v2) or ``memory.oom_control`` (v1); empty: the shepherd watches."""
    watch_memory_mib: int = 0
    """The limit that no cgroup enforces: the shepherd watches resident memory; 0: nothing to watch."""


def join(cell: Cell) -> None:
    """Put the calling process into the cell; everything it starts is then in it.  Raises `OSError`."""
    raise NotImplementedError


def kill(cell: Cell) -> bool:
    """SIGKILL to everything in the cell, also to what forks meanwhile.  False: no cgroup can, kill the tree yourself."""
    raise NotImplementedError


def is_empty(cell: Cell) -> bool | None:
    """Whether no process is left (zombies do not count); None: no cgroup can tell."""
    raise NotImplementedError


def oom_killed(cell: Cell) -> bool:
    """Whether the memory limit ended a process of the cell."""
    raise NotImplementedError
