"""What a plan is made from: an immutable snapshot of the cluster, and an overlay to try things on.  Pure.

A snapshot holds nodes as parallel tuples (one place per node), so that a pass touches numbers, not objects.
An `Overlay` changes copies of the free resources and can be rolled back to any checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gq.model.account import NORMAL_QOS
from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.limit import NO_LIMITS, Asker, LimitView
from gqd.sched.shape import Shape
from gqd.state.cluster import mask_of
from gqd.state.plan import Protected
from gqd.state.policy import Policy


@dataclass(slots=True, frozen=True)
class NodeFacts:
    """A node as the planner needs it."""

    name: str
    cpus: int
    memory_mib: int
    gpu_types: tuple[tuple[str, int], ...]
    """(type, mask of the GPUs of that type), drained GPUs left out."""
    drained: tuple[tuple[str, int], ...] = ()
    """Likewise, the drained ones."""
    unavailable: str = ""
    """Why it gets no jobs now (``down``, ``drained: …``, ``backed off``); empty: it may."""
    backoff_until: float = 0.0
    gpu_mask: int = field(init=False)
    """All of `gpu_types`; every placement asks for it."""

    def __post_init__(self) -> None:
        mask = 0
        for _, one in self.gpu_types:
            mask |= one
        object.__setattr__(self, "gpu_mask", mask)

    def whole(self) -> NodeFacts:
        """The node as it will be when nothing of it is drained any more."""
        masks = dict(self.gpu_types)
        for gpu_type, mask in self.drained:
            masks[gpu_type] = masks.get(gpu_type, 0) | mask
        return replace(self, gpu_types=tuple(masks.items()), drained=())

    def type_mask(self, gpu_type: str | None) -> int:
        """GPUs of a type; None: of any."""
        if gpu_type is None:
            return self.gpu_mask
        return next((mask for name, mask in self.gpu_types if name == gpu_type), 0)


@dataclass(slots=True, frozen=True)
class PendingJob:
    job_id: JobId
    attempt: int
    """Of the latest attempt: an adopted plan must still find it so."""
    user: str
    shape: Shape
    time_limit_s: int | None
    is_held: bool
    begin_at: float | None
    avoid: tuple[tuple[str, float], ...] = ()
    """Nodes that this job leaves out, until when."""
    account: str = ""
    qos: str = NORMAL_QOS
    groups: tuple[str, ...] = ()
    priority: int = 0
    tasks: int = field(default=0, repr=False)
    """Of an array's record: the tasks that may start (a bit set); the job stands for all of them."""
    array_job_id: JobId | None = None
    """Of a record its own id; of a task that has left it, the array's."""
    expected_s: float | None = None
    """How long it is expected to run; None: nobody knows."""
    since: float = 0.0
    """Since when it could have started as far as its owner and its dependencies go."""


@dataclass(slots=True, frozen=True)
class RunningJob:
    """What holds resources; `ends_at` None: it has no time limit."""

    job_id: JobId
    user: str
    grants: tuple[Grant, ...]
    ends_at: float | None
    is_stranded: bool = False
    """Its node is lost or silent: nobody knows when this is free again."""
    began_at: float = 0.0
    """When it was started, or allocated as long as it has not."""
    expected_s: float | None = None
    """How long it was expected to run in all; None: nobody knows."""
    slot: str = ""
    """Of its start: see `gqd.state.plan.Start`."""
    cells: tuple[tuple[str, int, int], ...] = field(init=False, compare=False, repr=False)
    """(node, mask of CPUs, mask of GPUs) of each grant; every plan asks for it."""

    def __post_init__(self) -> None:
        cells = tuple((one.node, mask_of(one.cpus), mask_of(one.gpus)) for one in self.grants)
        object.__setattr__(self, "cells", cells)


@dataclass(slots=True, frozen=True)
class PendingColumns:
    """What a pass asks of all jobs at once, by place in `Snapshot.pending`."""

    job_id: NDArray[np.int64]
    shape: NDArray[np.int64]
    """Codes: equal numbers mean equal shapes, and only equal ones do."""
    expected_s: NDArray[np.float64]
    """Infinite: nobody knows."""
    time_limit_s: NDArray[np.float64]
    """Infinite: it has none."""
    since: NDArray[np.float64]
    band: NDArray[np.int64]
    """Slots take the oldest of the lowest number: what an administrator said of it, and whether its user had more than
    is due."""


@dataclass(slots=True, frozen=True)
class Snapshot:
    now: float
    policy: Policy
    nodes: tuple[NodeFacts, ...]
    free_cpus: tuple[int, ...]
    """Masks, by place of the node."""
    free_gpus: tuple[int, ...]
    free_memory_mib: tuple[int, ...]
    pending: Sequence[PendingJob]
    """As the queue stands; no more than the policy's planning depth."""
    running: Sequence[RunningJob]
    array_room: dict[JobId, int] = field(default_factory=dict)
    """By array with a throttle: how many more of its tasks may start."""
    array_throttle: dict[JobId, int] = field(default_factory=dict)
    """Likewise: how many there may be at once."""
    limits: LimitView = NO_LIMITS
    kept_back: tuple[Asker, ...] = ()
    """Of these there are jobs that limits keep back, and that are not in `pending`."""
    columns: PendingColumns | None = None
    """Of `pending`; None: the planner makes them."""
    protected: tuple[Protected, ...] = ()
    """Of the plan before: who has a protected start is not pushed back by who gets one later."""
    resumes_at: JobId | None = None
    """The first job that the plan before did not reach, where it was cut short."""

    def place_of(self, name: str) -> int | None:
        return next((place for place, node in enumerate(self.nodes) if node.name == name), None)


@dataclass(slots=True)
class Overlay:
    """Free resources to try things on: checkpoint, take and give back, then roll back or leave it so."""

    nodes: tuple[NodeFacts, ...]
    free_cpus: list[int]
    free_gpus: list[int]
    free_memory_mib: list[int]
    _undo: list[tuple[int, int, int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Overlay:
        """As things stand."""
        return cls(snapshot.nodes, list(snapshot.free_cpus), list(snapshot.free_gpus), list(snapshot.free_memory_mib))

    @classmethod
    def empty(cls, nodes: tuple[NodeFacts, ...]) -> Overlay:
        """As if nothing ran."""
        return cls(
            nodes,
            [(1 << node.cpus) - 1 for node in nodes],
            [node.gpu_mask for node in nodes],
            [node.memory_mib for node in nodes],
        )

    def checkpoint(self) -> int:
        return len(self._undo)

    def rollback(self, checkpoint: int) -> None:
        while len(self._undo) > checkpoint:
            place, cpus, gpus, memory_mib = self._undo.pop()
            self.free_cpus[place], self.free_gpus[place], self.free_memory_mib[place] = cpus, gpus, memory_mib

    def take(self, place: int, grant: Grant) -> None:
        self._remember(place)
        self.free_cpus[place] &= ~mask_of(grant.cpus)
        self.free_gpus[place] &= ~mask_of(grant.gpus)
        self.free_memory_mib[place] -= grant.memory_mib

    def give_back(self, place: int, grant: Grant) -> None:
        """Drained GPUs do not come back."""
        self._remember(place)
        node = self.nodes[place]
        self.free_cpus[place] |= mask_of(grant.cpus) & ((1 << node.cpus) - 1)
        self.free_gpus[place] |= mask_of(grant.gpus) & node.gpu_mask
        self.free_memory_mib[place] += grant.memory_mib

    def take_all(self, places: dict[str, int], grants: Iterable[Grant]) -> None:
        for grant in grants:
            self.take(places[grant.node], grant)

    def is_idle(self, place: int) -> bool:
        """Nobody holds anything here."""
        node = self.nodes[place]
        all_free = self.free_cpus[place] == (1 << node.cpus) - 1 and self.free_gpus[place] == node.gpu_mask
        return all_free and self.free_memory_mib[place] == node.memory_mib

    def _remember(self, place: int) -> None:
        self._undo.append((place, self.free_cpus[place], self.free_gpus[place], self.free_memory_mib[place]))
