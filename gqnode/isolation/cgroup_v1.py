"""The functions of isolation as cgroup v1's controllers do them.  See the kernel's Documentation/admin-guide/cgroup-v1.

Each controller has a tree of its own (some are mounted together), and is usable when that tree could be opened.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gqnode.isolation.enforcer import Enforcer, NodeFacts
from gqnode.isolation.protocol import CellLimits, IsolationError
from gqnode.isolation.tree import Tree, exists, read, read_keyed, write

CFS_PERIOD_US = 100_000
SHARES_PER_CPU = 128
"""Small enough to tell a cell of 2048 CPUs from a larger one: the kernel's range is 2 … 262144."""
MAX_SHARES = 262_144
USUAL_SHARES = 1024
_UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class CpuWeight1:
    tree: Tree

    def wants(self, limits: CellLimits) -> bool:
        return bool(limits.cpus)

    def apply(self, directory: str, limits: CellLimits) -> None:
        shares = min(MAX_SHARES, SHARES_PER_CPU * max(1, len(limits.cpus)))
        write(f"{directory}/cpu.shares", str(shares))


@dataclass(frozen=True, slots=True)
class CpuQuota1:
    tree: Tree

    def wants(self, limits: CellLimits) -> bool:
        return bool(limits.cpus)

    def apply(self, directory: str, limits: CellLimits) -> None:
        write(f"{directory}/cpu.cfs_period_us", str(CFS_PERIOD_US))
        write(f"{directory}/cpu.cfs_quota_us", str(len(limits.cpus) * CFS_PERIOD_US if limits.cpus else _UNLIMITED))


@dataclass(frozen=True, slots=True)
class Cpuset1:
    tree: Tree
    facts: NodeFacts

    def wants(self, limits: CellLimits) -> bool:
        return bool(self.facts.machine_cpus(limits))

    def apply(self, directory: str, limits: CellLimits) -> None:
        cpus = self.facts.machine_cpus(limits)
        # No task can join a cpuset without memory nodes.
        write(f"{directory}/cpuset.mems", read(f"{self.tree.directory}/cpuset.mems").strip())
        write(
            f"{directory}/cpuset.cpus", ",".join(map(str, cpus)) or read(f"{self.tree.directory}/cpuset.cpus").strip()
        )


@dataclass(frozen=True, slots=True)
class Memory1:
    """The limit counts swap too where the kernel can: a job does not get more memory by making the machine slow."""

    tree: Tree

    def wants(self, limits: CellLimits) -> bool:
        return limits.memory_mib > 0

    def apply(self, directory: str, limits: CellLimits) -> None:
        wanted = limits.memory_mib * 1024**2 or _UNLIMITED
        files = [f"{directory}/memory.limit_in_bytes"]
        if exists(with_swap := f"{directory}/memory.memsw.limit_in_bytes"):
            files.append(with_swap)
        # The kernel keeps memory ≤ memory + swap at every moment: lower the one first, raise the other first.
        if wanted == _UNLIMITED or wanted > int(read(files[0])):
            files.reverse()
        for path in files:
            write(path, str(wanted))

    def oom_killed(self, directory: str) -> bool:
        return read_keyed(f"{directory}/memory.oom_control").get("oom_kill", 0) > 0  # counted since Linux 4.13

    def peak_mib(self, directory: str) -> int:
        peak = f"{directory}/memory.max_usage_in_bytes"
        return int(read(peak)) // 1024**2 if exists(peak) else 0


@dataclass(frozen=True, slots=True)
class Devices1:
    tree: Tree
    facts: NodeFacts

    def wants(self, limits: CellLimits) -> bool:
        return bool(self.facts.every_device())

    def apply(self, directory: str, limits: CellLimits) -> None:
        denied = self.facts.denied(limits)
        for number in self.facts.every_device():
            verb = "deny" if number in denied else "allow"
            write(f"{directory}/devices.{verb}", f"{number.kind} {number.major}:{number.minor} rwm")


@dataclass(frozen=True, slots=True)
class Pids:
    """The same file in both versions."""

    tree: Tree
    facts: NodeFacts

    def wants(self, limits: CellLimits) -> bool:
        return True

    def apply(self, directory: str, limits: CellLimits) -> None:
        write(f"{directory}/pids.max", str(self.facts.pids_max))


def open_tree(tree: Tree) -> None:
    """Make the node's directory in one v1 hierarchy, fit to hold cells."""
    tree.open(_prepare)


def _prepare(directory: str) -> None:
    parent = os.path.dirname(directory)  # noqa: PTH120
    for name in ("cpuset.cpus", "cpuset.mems"):  # a new cpuset is empty, and nothing can be inside an empty one
        path = f"{directory}/{name}"
        if exists(path) and not read(path).strip():
            write(path, read(f"{parent}/{name}").strip())
    if exists(shares := f"{directory}/cpu.shares") and int(read(shares)) == USUAL_SHARES:
        # Tasks of the root group compete one by one with a whole group: let it weigh as much as the machine.
        write(shares, str(min(MAX_SHARES, USUAL_SHARES * (os.cpu_count() or 1))))


def enforcer(function: str, trees: dict[str, Tree], facts: NodeFacts, is_weight: bool = False) -> Enforcer:
    """The enforcer of a function; `trees` by controller.  Raises `IsolationError` where it cannot be had."""
    tree = trees.get(function)
    if tree is None:
        raise IsolationError(f"no v1 controller `{function}` is mounted where this daemon may use it")
    open_tree(tree)
    match function:
        case "cpu":
            return CpuWeight1(tree) if is_weight else CpuQuota1(tree)
        case "cpuset":
            return Cpuset1(tree, facts)
        case "memory":
            return Memory1(tree)
        case "devices":
            return Devices1(tree, facts)
        case "pids":
            return Pids(tree, facts)
        case _:
            raise AssertionError(function)
