"""The functions of isolation as cgroup v2 does them.  See the kernel's Documentation/admin-guide/cgroup-v2.rst.

All functions share one tree.  A controller is usable when it is available at the base and could be passed down to the
node's directory; device filters need no controller, and neither does killing.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from gqnode.isolation.cgroup_v1 import CFS_PERIOD_US, Pids
from gqnode.isolation.device_filter import attach_filter
from gqnode.isolation.enforcer import Enforcer, NodeFacts
from gqnode.isolation.protocol import CellLimits, IsolationError
from gqnode.isolation.tree import Tree, exists, make_directory, read, read_keyed, remove_directories, write

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
WEIGHT_PER_CPU = 10
MAX_WEIGHT = 10_000
DAEMON_GROUP = "gq-daemon"
_PROBE = "probe"


@dataclass(frozen=True, slots=True)
class CpuWeight2:
    tree: Tree

    def wants(self, limits: CellLimits) -> bool:
        return bool(limits.cpus)

    def apply(self, directory: str, limits: CellLimits) -> None:
        write(f"{directory}/cpu.weight", str(min(MAX_WEIGHT, WEIGHT_PER_CPU * max(1, len(limits.cpus)))))


@dataclass(frozen=True, slots=True)
class CpuQuota2:
    tree: Tree

    def wants(self, limits: CellLimits) -> bool:
        return bool(limits.cpus)

    def apply(self, directory: str, limits: CellLimits) -> None:
        quota = str(len(limits.cpus) * CFS_PERIOD_US) if limits.cpus else "max"
        write(f"{directory}/cpu.max", f"{quota} {CFS_PERIOD_US}")


@dataclass(frozen=True, slots=True)
class Cpuset2:
    tree: Tree
    facts: NodeFacts

    def wants(self, limits: CellLimits) -> bool:
        return bool(self.facts.machine_cpus(limits))

    def apply(self, directory: str, limits: CellLimits) -> None:
        # An empty line means "as the parent", and write(2) of nothing would not be a write.
        write(f"{directory}/cpuset.cpus", ",".join(map(str, self.facts.machine_cpus(limits))) + "\n")


@dataclass(frozen=True, slots=True)
class Memory2:
    """No swap, and when the limit is hit the whole cell ends: a job that lost one process is not left half dead."""

    tree: Tree

    def wants(self, limits: CellLimits) -> bool:
        return limits.memory_mib > 0

    def apply(self, directory: str, limits: CellLimits) -> None:
        wanted = limits.memory_mib * 1024**2
        self._refuse_below_use(directory, wanted)
        if exists(swap := f"{directory}/memory.swap.max"):
            write(swap, "0" if wanted else "max")
        write(f"{directory}/memory.oom.group", "1" if wanted else "0")
        write(f"{directory}/memory.max", str(wanted) if wanted else "max")

    def _refuse_below_use(self, directory: str, wanted: int) -> None:
        """v1 refuses such a limit; v2 would kill the job for a figure that somebody typed."""
        in_use = read_keyed(f"{directory}/memory.stat").get("anon", 0)
        if wanted and in_use > wanted:
            message = f"{in_use // 1024**2} MiB are in use, more than the new limit of {wanted // 1024**2} MiB"
            raise IsolationError(message, f"{directory}/memory.max", errno.EBUSY)

    def oom_killed(self, directory: str) -> bool:
        return read_keyed(f"{directory}/memory.events").get("oom_kill", 0) > 0

    def peak_mib(self, directory: str) -> int:
        peak = f"{directory}/memory.peak"  # since Linux 5.19
        return int(read(peak)) // 1024**2 if exists(peak) else 0


@dataclass(frozen=True, slots=True)
class Devices2:
    tree: Tree
    facts: NodeFacts

    def wants(self, limits: CellLimits) -> bool:
        return bool(self.facts.every_device())

    def apply(self, directory: str, limits: CellLimits) -> None:
        attach_filter(directory, self.facts.denied(limits))


def open_tree(tree: Tree) -> None:
    """Make the node's directory and pass it what controllers can be had.  Raises `IsolationError` if there is none."""
    tree.open(lambda directory: None)
    if Path(tree.base, "cgroup.type").exists():  # only the root of all groups has none, and it may hold processes
        _leave(tree.base)
    below = Path(tree.directory).relative_to(tree.base).parts
    for depth in range(len(below) + 1):
        _enable("/".join((tree.base, *below[:depth])))


def _leave(base: str) -> None:
    """A group that passes controllers down may hold no process itself: move ours, if it holds no others."""
    ours = process_ids_here(base)
    if not ours or any(pid != os.getpid() and _parent_of(pid) != os.getpid() for pid in ours):
        return
    try:
        make_directory(f"{base}/{DAEMON_GROUP}")
        for pid in ours:
            write(f"{base}/{DAEMON_GROUP}/cgroup.procs", str(pid))
    except IsolationError:  # then controllers cannot be enabled, and `enforcer` says so
        return


def _enable(directory: str) -> None:
    """Enable controllers separately, so that an unavailable controller does not prevent the others."""
    offered = set(read(f"{directory}/cgroup.controllers").split())
    for controller in CONTROLLERS:
        if controller not in offered:
            continue
        try:
            write(f"{directory}/cgroup.subtree_control", f"+{controller}")
        except IsolationError:  # the level below then lacks it, which is where `enforcer` looks
            continue


def enforcer(function: str, tree: Tree, facts: NodeFacts, is_weight: bool = False) -> Enforcer:
    """The enforcer of a function in an opened tree.  Raises `IsolationError` where it cannot be had."""
    if function == "devices":
        _probe_filter(tree)
        return Devices2(tree, facts)
    if function not in read(f"{tree.directory}/cgroup.subtree_control").split():
        offered = function in read(f"{tree.base}/cgroup.controllers").split()
        why = "could not be enabled below" if offered else "is not offered by"
        raise IsolationError(f"the v2 controller `{function}` {why} {tree.base}", tree.base)
    match function:
        case "cpu":
            return CpuWeight2(tree) if is_weight else CpuQuota2(tree)
        case "cpuset":
            return Cpuset2(tree, facts)
        case "memory":
            return Memory2(tree)
        case "pids":
            return Pids(tree, facts)
        case _:
            raise AssertionError(function)


def _probe_filter(tree: Tree) -> None:
    """bpf(2) may be forbidden, to users and in containers: only trying tells."""
    directory = f"{tree.directory}/{_PROBE}"
    make_directory(directory)
    try:
        attach_filter(directory, ())
    finally:
        remove_directories(directory)


def process_ids_here(directory: str) -> tuple[int, ...]:
    return tuple(int(line) for line in read(f"{directory}/cgroup.procs").split())


def _parent_of(pid: int) -> int:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2]
    except OSError:
        return 0
    return int(after_name.split()[1])
