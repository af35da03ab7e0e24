"""The node's cells: the functions that were chosen, combined.  The one implementation of `Isolation`.

Without any cgroup a cell is only its name, and the shepherd does what can be done.  Holds no state of its own: what
stands is what the cgroup trees show, so a restarted daemon sees the same cells.  Safe to call from several threads.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from gq.model.job import Usage
from gq.model.node import IsolationLevels
from gqnode.isolation.cell import Cell
from gqnode.isolation.enforcer import Enforcer, Killer, MemoryEnforcer
from gqnode.isolation.killer import kill_listed
from gqnode.isolation.protocol import CellLimits, IsolationError
from gqnode.isolation.tree import Tree, exists, make_directory, process_ids, read, read_keyed


@dataclass(frozen=True, slots=True)
class Cells:
    levels: IsolationLevels
    notes: tuple[str, ...] = ()
    enforcers: tuple[Enforcer, ...] = ()
    memory: MemoryEnforcer | None = None
    """Also among `enforcers`."""
    killer: Killer | None = None

    # ── making ────────────────────────────────────────────────────────────────────────────────────────────────

    def make(self, name: str, limits: CellLimits) -> Cell:
        stood = self.find(name) is not None
        wanted = [enforcer for enforcer in self.enforcers if enforcer.wants(limits)]
        trees = _unique([*([self.killer.tree] if self.killer else []), *(enforcer.tree for enforcer in wanted)])
        try:
            for tree in trees:
                make_directory(tree.path(name))
            for enforcer in wanted:
                enforcer.apply(enforcer.tree.path(name), limits)
        except IsolationError:
            if not stood:
                self._remove_quietly(name)
            raise
        is_watched = self.levels.memory == "watched" and limits.memory_mib > 0
        return Cell(name, self._procs_files(name), limits.memory_mib if is_watched else None)

    def make_step(self, cell: Cell, step: int) -> Cell:
        name = f"{cell.name}.{step}"
        if self.killer is None:
            return Cell(name, cell.procs_files)
        make_directory(self.killer.tree.path(name))
        own = f"{self.killer.tree.path(cell.name)}/cgroup.procs"
        nested = f"{self.killer.tree.path(name)}/cgroup.procs"
        return Cell(name, tuple(nested if path == own else path for path in cell.procs_files))

    def find(self, name: str) -> Cell | None:
        return Cell(name, files) if (files := self._procs_files(name)) else None

    def set_limits(self, cell: Cell, limits: CellLimits) -> None:
        for enforcer in self.enforcers:
            directory = enforcer.tree.path(cell.name)
            if exists(directory):
                enforcer.apply(directory, limits)
            elif enforcer.wants(limits):
                # Its processes are outside, and what they hold already would not be counted.
                raise IsolationError(f"the cell {cell.name} was made without this limit", directory)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────

    def oom_killed(self, cell: Cell) -> bool:
        return self.memory is not None and self.memory.oom_killed(self.memory.tree.path(_attempt_of(cell.name)))

    def usage(self, cell: Cell) -> Usage | None:
        directories = [tree.path(cell.name) for tree in self.trees() if tree.has(cell.name)]
        if not directories:
            return None
        user_s, system_s = next(filter(None, map(_cpu_s, directories)), (0.0, 0.0))
        peak = self.memory.peak_mib(self.memory.tree.path(cell.name)) if self.memory else 0
        return Usage(user_cpu_s=user_s, system_cpu_s=system_s, max_rss_mib=peak)

    def is_empty(self, cell: Cell) -> bool | None:
        if self.killer is not None:
            return self.killer.is_empty(self.killer.tree.path(cell.name))
        directories = [tree.path(cell.name) for tree in self.trees() if tree.has(cell.name)]
        return all(not process_ids(directory) for directory in directories) if directories else None

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────────────

    def freeze(self, cell: Cell, is_frozen: bool) -> bool:
        return self.killer is not None and self.killer.freeze(self.killer.tree.path(cell.name), is_frozen)

    def is_frozen(self, cell: Cell) -> bool | None:
        return None if self.killer is None else self.killer.is_frozen(self.killer.tree.path(cell.name))

    def kill(self, cell: Cell) -> bool:
        if self.killer is None:
            return False
        self.killer.kill(self.killer.tree.path(cell.name))
        return True

    def end(self, cell: Cell) -> bool:
        if self.is_empty(cell) in (True, None):
            return True
        if not self.kill(cell):
            for tree in self.trees():
                kill_listed(tree.path(cell.name))
        return False

    def remove(self, cell: Cell) -> None:
        # The killer's last: as long as anything of the cell stands, it can be found and killed.
        for tree in reversed(self.trees()):
            tree.remove(cell.name)

    def clear(self, keep: Collection[str], timeout_s: float = 5.0) -> tuple[str, ...]:
        names = {name for tree in self.trees() for name in tree.names()}
        stale = tuple(sorted(names.difference(keep)))
        deadline = time.monotonic() + timeout_s
        for name in stale:
            while not self.end(Cell(name)):
                if time.monotonic() > deadline:
                    raise IsolationError(f"processes of the ended attempt {name} cannot be killed")
                time.sleep(0.005)
            self.remove(Cell(name))
        return stale

    def close(self) -> None:
        for tree in self.trees():
            tree.close()

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────

    def trees(self) -> list[Tree]:
        """All in which a cell may have a directory, the killer's first."""
        return _unique([*([self.killer.tree] if self.killer else []), *(enforcer.tree for enforcer in self.enforcers)])

    def _procs_files(self, name: str) -> tuple[str, ...]:
        """The killer's tree first: a process that fails to join the others can still be killed with the cell."""
        return tuple(f"{tree.path(name)}/cgroup.procs" for tree in self.trees() if tree.has(name))

    def _remove_quietly(self, name: str) -> None:
        try:
            self.remove(Cell(name))
        except IsolationError:  # the error that led here says more; `clear` removes the rest at the next start
            return


def _unique(trees: list[Tree]) -> list[Tree]:
    """In order, one for each directory: controllers that are mounted together share it."""
    return list({tree.directory: tree for tree in trees}.values())


def _attempt_of(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _cpu_s(directory: str) -> tuple[float, float] | None:
    """(user, system) CPU seconds of a group and all groups in it; None: not counted here."""
    times = read_keyed(f"{directory}/cpu.stat")  # every v2 group has it, with or without the controller
    if "user_usec" in times:
        return times["user_usec"] / 1e6, times["system_usec"] / 1e6
    if exists(f"{directory}/cpuacct.usage_user"):
        user_ns, system_ns = (int(read(f"{directory}/cpuacct.usage_{mode}")) for mode in ("user", "sys"))
        return user_ns / 1e9, system_ns / 1e9
    return None
