"""A necessary condition for a shape to fit, checked with a few numbers about all nodes.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from gqd.sched.request import RESTRICTIONS, Shape, demand_for_units, knows
from gqd.sched.snapshot.model import Overlay

_KNOWN = RESTRICTIONS | {"is_dense"}


class MinimumDemand(NamedTuple):
    """The minimum demand of a job: on each of `nodes` nodes, and of GPUs in all."""

    nodes: int
    gpus: int
    cpus: int
    memory_mib: int
    all_gpus: int


@lru_cache(maxsize=65536)
def minimum_demand(shape: Shape) -> MinimumDemand:
    if not knows(_KNOWN, shape) or (shape.unit == "gpu" and shape.ntasks is not None):
        return MinimumDemand(1, 0, 0, 0, 0)
    is_on_one = shape.unit != "node" and shape.nodes_max == 1
    demand = demand_for_units(shape, shape.units if is_on_one else 1)
    all_gpus = shape.units if shape.unit == "gpu" else demand.gpus * shape.nodes_min
    return MinimumDemand(shape.nodes_min, demand.gpus, demand.cpus, max(0, demand.memory_mib), all_gpus)


class _NodeMaxima(NamedTuple):
    """Among nodes with at least a given number of free GPUs: how many there are, and the most CPUs and memory free
    on one."""

    nodes: int
    cpus: int
    memory_mib: int


@dataclass(slots=True)
class Prefilter:
    """The prefilter of an overlay, valid until the overlay changes."""

    overlay: Overlay
    all_gpus: int = field(init=False)
    _of: dict[int, _NodeMaxima] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.all_gpus = int(self.overlay.gpu_counts.sum())

    def may_fit(self, shape: Shape) -> bool:
        """Whether the shape may fit; False is certain."""
        least = minimum_demand(shape)
        if least.all_gpus > self.all_gpus:
            return False
        having = self._of.get(least.gpus)
        if having is None:
            having = self._of[least.gpus] = self._node_maxima(least.gpus)
        return least.nodes <= having.nodes and least.cpus <= having.cpus and least.memory_mib <= having.memory_mib

    def _node_maxima(self, gpus: int) -> _NodeMaxima:
        has = self.overlay.gpu_counts >= gpus
        cpus, memory = self.overlay.cpu_counts[has], self.overlay.memory[has]
        return _NodeMaxima(len(cpus), int(cpus.max(initial=0)), int(memory.max(initial=0)))
