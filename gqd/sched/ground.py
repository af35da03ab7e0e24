"""What holds of the nodes whatever runs on them: which a shape may use, which could give it something.  Pure.

Kept from pass to pass while the nodes and the policy are the same values, since a pass asks for every shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gqd.sched.blocked import why_hopeless
from gqd.sched.feasible import capacity, may_use
from gqd.sched.shape import Shape
from gqd.sched.view import NodeFacts, Overlay, PendingJob, Snapshot
from gqd.state.plan import NoNodes, Wait
from gqd.state.policy import Policy

KEPT_SHAPES = 100_000


@dataclass(slots=True, frozen=True)
class Standing:
    """Of a shape; places of nodes."""

    usable: list[int]
    capable: list[int]
    """Those of them that could give it something if they were empty."""
    available: list[int]
    """Those of these that may get jobs."""


@dataclass(slots=True)
class Ground:
    nodes: tuple[NodeFacts, ...]
    policy: Policy
    places: dict[str, int] = field(init=False)
    most_gpus: int = field(init=False)
    """Of one node."""
    _standings: dict[Shape, Standing] = field(default_factory=dict)
    _hopeless: dict[tuple[Shape, tuple[tuple[str, float], ...]], Wait | None] = field(default_factory=dict)
    _members: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {node.name: one for one, node in enumerate(self.nodes)}
        self.most_gpus = max((node.gpu_mask.bit_count() for node in self.nodes), default=0)

    def is_of(self, snapshot: Snapshot) -> bool:
        is_same = self.policy is snapshot.policy or self.policy.partitions == snapshot.policy.partitions
        return is_same and self.nodes == snapshot.nodes and len(self._standings) < KEPT_SHAPES

    def standing(self, shape: Shape) -> Standing:
        known = self._standings.get(shape)
        if known is None:
            known = self._standings[shape] = self._standing_of(shape)
        return known

    def _standing_of(self, shape: Shape) -> Standing:
        partition = self.policy.partition(shape.partition)
        if partition is None:
            return Standing([], [], [])
        empty = Overlay.empty(self.nodes)
        usable = [one for one, node in enumerate(self.nodes) if may_use(shape, node, partition)]
        capable = [one for one in usable if capacity(empty, one, shape)]
        return Standing(usable, capable, [one for one in capable if not self.nodes[one].unavailable])

    def available(self, job: PendingJob, now: float) -> list[int]:
        """Nodes that the job may get now."""
        known = self.standing(job.shape).available
        if not job.avoid:
            return known
        avoided = {name for name, until in job.avoid if until > now}
        return [one for one in known if self.nodes[one].name not in avoided]

    def hopeless(self, snapshot: Snapshot, job: PendingJob) -> Wait | None:
        """Why it could not start even if everything that is available were empty."""
        key = (job.shape, tuple(one for one in job.avoid if one[1] > snapshot.now))
        if key not in self._hopeless:
            of = self.standing(job.shape)
            available = self.available(job, snapshot.now)
            if self.policy.partition(job.shape.partition) is None:
                self._hopeless[key] = NoNodes(job.shape.partition)
            else:
                self._hopeless[key] = why_hopeless(snapshot, job, of.usable, of.capable, available)
        return self._hopeless[key]

    def is_wide(self, shape: Shape) -> bool:
        """It goes over several nodes."""
        gpus = shape.units if shape.unit == "gpu" else shape.units * shape.gpus_per_task
        return shape.nodes_min > 1 or gpus > self.most_gpus

    def members(self, partition: str) -> NDArray[np.bool_]:
        """Which nodes belong to the partition."""
        if partition not in self._members:
            known = self.policy.partition(partition)
            has = [known is not None and known.has_node(node.name) for node in self.nodes]
            self._members[partition] = np.array(has, np.bool_)
        return self._members[partition]
