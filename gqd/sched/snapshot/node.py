"""The facts about a node that do not depend on the jobs that run there.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gqd.sched.snapshot.gpu_links import GpuTopology


@dataclass(slots=True, frozen=True)
class NodeFacts:
    """The facts about a node that do not depend on the jobs that run there."""

    name: str
    cpus: int
    memory_mib: int
    gpu_types: tuple[tuple[str, int], ...]
    """(type, mask of the GPUs of that type), without drained GPUs."""
    drained: tuple[tuple[str, int], ...] = ()
    """(type, mask of the drained GPUs of that type)."""
    unavailable: str = ""
    """Why the node gets no jobs now (``down``, ``drained: …``, ``backed off``); empty: jobs may start there."""
    backoff_until: float = 0.0
    """When the back-off after failed launches ends."""
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(MiB, mask of the GPUs with that much memory)."""
    topology: GpuTopology | None = None
    cpu_numa: tuple[tuple[int, int], ...] = ()
    """(NUMA node, mask of its CPUs); empty: unknown."""
    features: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    resources: tuple[tuple[str, int], ...] = ()
    """Generic resources: (name, total count)."""
    data: frozenset[str] = frozenset()
    kept_cpus: int | None = None
    """Mask of the CPUs, where this is only the part of a node that a reservation holds; None: all CPUs of the node."""
    is_part: bool = False
    """This is only a part of a node, so no job can have the node exclusively."""
    can_join: bool = False
    """The node can join a running elastic job."""
    gpu_mask: int = field(init=False)
    """Mask of all GPUs in `gpu_types`; computed once, since every placement reads it."""
    cpu_mask: int = field(init=False)

    def __post_init__(self) -> None:
        mask = 0
        for _, gpus in self.gpu_types:
            mask |= gpus
        object.__setattr__(self, "gpu_mask", mask)
        object.__setattr__(self, "cpu_mask", (1 << self.cpus) - 1 if self.kept_cpus is None else self.kept_cpus)

    def whole(self) -> NodeFacts:
        """Return the node as it would be without drained GPUs."""
        masks = dict(self.gpu_types)
        for gpu_type, mask in self.drained:
            masks[gpu_type] = masks.get(gpu_type, 0) | mask
        return replace(self, gpu_types=tuple(masks.items()), drained=())

    def type_mask(self, gpu_type: str | None) -> int:
        """Return the mask of the GPUs of a type; None: of any type."""
        if gpu_type is None:
            return self.gpu_mask
        return next((mask for name, mask in self.gpu_types if name == gpu_type), 0)

    def fitting_mask(self, gpu_type: str | None, min_mib: int = 0) -> int:
        """Return the mask of the GPUs of a type with at least `min_mib` of memory."""
        mask = self.type_mask(gpu_type)
        return mask & union(gpus for mib, gpus in self.gpu_memory if mib >= min_mib) if min_mib else mask


def union(masks: Iterable[int]) -> int:
    whole = 0
    for mask in masks:
        whole |= mask
    return whole
