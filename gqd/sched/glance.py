"""Whether a shape is worth looking at node by node: by a few numbers about all nodes at once.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gqd.sched.shape import Shape, demand_for_units
from gqd.sched.view import Overlay


class Least(NamedTuple):
    """What a job needs at the least: of each of so many nodes, and of GPUs in all."""

    nodes: int
    gpus: int
    cpus: int
    memory_mib: int
    all_gpus: int


@lru_cache(maxsize=65536)
def least_of(shape: Shape) -> Least:
    if shape.roles or (shape.unit == "gpu" and shape.ntasks is not None):
        return Least(1, 0, 0, 0, 0)
    is_on_one = shape.unit != "node" and shape.nodes_max == 1
    demand = demand_for_units(shape, shape.units if is_on_one else 1)
    all_gpus = shape.units if shape.unit == "gpu" else demand.gpus * shape.nodes_min
    return Least(shape.nodes_min, demand.gpus, demand.cpus, max(0, demand.memory_mib), all_gpus)


@dataclass(slots=True)
class Glance:
    """Of an overlay as it is now."""

    overlay: Overlay
    all_gpus: int = field(init=False)
    _nodes: list[int] = field(init=False)
    """By number of GPUs: on how many nodes at least so many are free; likewise the next two."""
    _cpus: list[int] = field(init=False)
    """The most CPUs that one of them has."""
    _memory: list[int] = field(init=False)

    def __post_init__(self) -> None:
        gpus, cpus, memory = self.overlay.gpu_counts, self.overlay.cpu_counts, self.overlay.memory
        self.all_gpus = int(gpus.sum())
        self._nodes, self._cpus, self._memory = [], [], []
        for count in range(int(gpus.max(initial=0)) + 1):
            has = gpus >= count
            self._nodes.append(int(np.count_nonzero(has)))
            self._cpus.append(int(cpus[has].max(initial=0)))
            self._memory.append(int(memory[has].max(initial=0)))

    def may_fit(self, shape: Shape) -> bool:
        """False: it does not fit anywhere."""
        least = least_of(shape)
        gpus = least.gpus
        if gpus >= len(self._nodes) or least.all_gpus > self.all_gpus or least.nodes > self._nodes[gpus]:
            return False
        return least.cpus <= self._cpus[gpus] and least.memory_mib <= self._memory[gpus]
