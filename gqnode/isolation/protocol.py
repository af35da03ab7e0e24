"""The isolation that the node daemon uses: a cell per attempt, with limits, which can be killed as a whole."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from gq.errors import GqError
from gq.model.job import Usage
from gq.model.node import IsolationLevels
from gqnode.isolation.cell import Cell


class IsolationError(GqError):
    """The kernel refused: ``path`` is the file or directory, ``errno`` the kernel's number (0: ours)."""

    def __init__(self, message: str, path: str = "", errno: int = 0, hint: str = "") -> None:
        super().__init__("isolation_failed", message, hint)
        self.path = path
        self.errno = errno


class CellLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that one attempt may use on this node."""

    cpus: tuple[int, ...] = ()
    """The grant's CPU ids, as the node counts them."""
    memory_mib: int = 0
    """0: neither counted nor limited."""
    devices: tuple[str, ...] = ()
    """Device nodes of the granted GPUs; every other guarded one is denied."""


class Isolation(Protocol):
    @property
    def levels(self) -> IsolationLevels:
        """The level at which each function is enforced."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Why a function is not enforced better, one sentence each (for the log and `gq doctor`)."""
        ...

    def make(self, name: str, limits: CellLimits) -> Cell:
        """The cell ``<job>.<attempt>``, ready to be joined; one that stands already gets these limits.

        Raises `IsolationError`; what was made is then undone.
        """
        ...

    def make_step(self, cell: Cell, step: int) -> Cell:
        """A cell inside `cell`, under its limits, that can be killed alone."""
        ...

    def find(self, name: str) -> Cell | None:
        """The cell of that name if it stands (made by an earlier life of this daemon); None: there is none."""
        ...

    def set_limits(self, cell: Cell, limits: CellLimits) -> None:
        """Change the limits of a running cell.  Raises `IsolationError` (memory below what is in use: EBUSY)."""
        ...

    def oom_killed(self, cell: Cell) -> bool:
        """Whether the memory limit ended a process of the cell."""
        ...

    def usage(self, cell: Cell) -> Usage | None:
        """CPU time and peak memory as the cgroup counted; 0 for what none counts, None: nothing is counted."""
        ...

    def freeze(self, cell: Cell, is_frozen: bool) -> bool:
        """Everything in the cell stands still, or goes on.  False: no cgroup can, the shepherd must."""
        ...

    def is_frozen(self, cell: Cell) -> bool | None:
        """Everything in the cell stands still by now.  None: no cgroup can say."""
        ...

    def kill(self, cell: Cell) -> bool:
        """SIGKILL to everything in the cell at once.  False: no cgroup can, the shepherd must."""
        ...

    def end(self, cell: Cell) -> bool:
        """SIGKILL to whatever is in the cell, however it came in (a session of sshd's); True once nothing is."""
        ...

    def is_empty(self, cell: Cell) -> bool | None:
        """Whether no process is left; None: no cgroup can tell, ask the shepherd."""
        ...

    def remove(self, cell: Cell) -> None:
        """Remove an empty cell and its steps; nothing there is fine.  Raises `IsolationError` (EBUSY: not empty)."""
        ...

    def clear(self, keep: Collection[str], timeout_s: float = 5.0) -> tuple[str, ...]:
        """At start: kill and remove the cells whose name is not in `keep`.  The names of those cleared."""
        ...

    def close(self) -> None:
        """Remove the node's own directories if no cell is left."""
        ...
