"""An enforcer applies one function of isolation (CPU, memory, devices …) with one cgroup version, for `Cells`."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gqnode.isolation.device_filter import DeviceNumber
from gqnode.isolation.protocol import CellLimits
from gqnode.isolation.tree import Tree


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that are the same for all cells of a node."""

    cpu_ids: tuple[int, ...] | None = None
    """The machine's CPU behind each of the node's CPU ids; None: the node pretends to have more, or shares them."""
    guarded: dict[str, DeviceNumber] = {}
    """Device nodes that only a cell with a grant may open."""
    control: tuple[DeviceNumber, ...] = ()
    """Devices that a cell with any GPU may open, and other cells may not."""
    pids_max: int = 0
    """Most processes and threads of one cell."""

    def machine_cpus(self, limits: CellLimits) -> tuple[int, ...]:
        """The machine's CPUs of a grant."""
        ids = self.cpu_ids or ()
        return tuple(ids[cpu] for cpu in limits.cpus if cpu < len(ids))

    def denied(self, limits: CellLimits) -> tuple[DeviceNumber, ...]:
        """Two paths may lead to one device: it is allowed if either is granted."""
        granted = {self.guarded[path] for path in limits.devices if path in self.guarded}
        allowed = granted.union(self.control) if granted else granted
        return tuple(number for number in self.every_device() if number not in allowed)

    def every_device(self) -> tuple[DeviceNumber, ...]:
        """All devices that cells can be denied, each once."""
        return tuple(dict.fromkeys([*self.guarded.values(), *self.control]))


class Enforcer(Protocol):
    """Errors are `IsolationError`.  A directory is that of a cell in `tree`."""

    @property
    def tree(self) -> Tree: ...

    def wants(self, limits: CellLimits) -> bool:
        """Whether a cell with these limits must be in this tree at all."""
        ...

    def apply(self, directory: str, limits: CellLimits) -> None:
        """Set the limits, whatever they were before."""
        ...


class MemoryEnforcer(Enforcer, Protocol):
    def oom_killed(self, directory: str) -> bool: ...

    def peak_mib(self, directory: str) -> int:
        """Most memory that was ever in use, page cache included; 0 where the kernel does not say."""
        ...


class Killer(Protocol):
    """Ends everything in a cell; the cell's other functions do not matter to it."""

    @property
    def tree(self) -> Tree: ...

    def kill(self, directory: str) -> None:
        """SIGKILL to every process, also to those that are being forked.  No such directory: nothing to do."""
        ...

    def is_empty(self, directory: str) -> bool: ...

    def freeze(self, directory: str, is_frozen: bool) -> bool:
        """Every process stands still, or goes on.  False: this kernel cannot, or there is no such directory."""
        ...

    def is_frozen(self, directory: str) -> bool | None:
        """Every process does.  None: as False above."""
        ...
