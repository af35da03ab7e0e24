"""First come, first served, as a resumable pass.  Pure.

The pass walks the queue once.  A job that fits starts.  One that does not *claims* every node that it could use:
no younger job may take them, so that nobody overtakes; nodes that no blocked job can use go to whoever is next.
A job that cannot start even on its available nodes empty (they are down, drained or left out) claims nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gq.model.ids import JobId
from gqd.sched.blocked import insufficient, why_hopeless
from gqd.sched.feasible import capacity, may_use
from gqd.sched.placement import place
from gqd.sched.shape import Shape
from gqd.sched.view import Overlay, PendingJob, RunningJob, Snapshot
from gqd.state.plan import BeginsLater, Behind, Held, NoNodes, PartitionIsDown, Plan, Start, Wait
from gqd.state.policy import Partition


@dataclass(slots=True)
class _Pass:
    """One pass under way."""

    snapshot: Snapshot
    overlay: Overlay
    places: dict[str, int]
    available: int
    """Nodes that may get jobs at all."""
    stops_early: bool
    position: int = 0
    claimed: dict[int, JobId] = field(default_factory=dict)
    """Place of a node → the first job that waits for it."""
    starts: list[Start] = field(default_factory=list)
    waits: dict[JobId, Wait] = field(default_factory=dict)
    heads: dict[str, JobId] = field(default_factory=dict)
    usable: dict[Shape, tuple[list[int], list[int]]] = field(default_factory=dict)
    """By shape: nodes that it may use, and those of them that could give it something if they were empty."""
    hopeless: dict[tuple[Shape, tuple[tuple[str, float], ...]], Wait | None] = field(default_factory=dict)
    """By shape and nodes left out: why it could not start even if everything that is available were empty."""
    running: list[RunningJob] = field(default_factory=list)
    """What holds resources, with what this pass starts."""

    def is_over(self) -> bool:
        return self.position >= len(self.snapshot.pending) or (self.stops_early and self.is_all_claimed())

    def is_all_claimed(self) -> bool:
        """No younger job may start anywhere: whoever has not been looked at is behind the heads."""
        return 0 < self.available <= len(self.claimed)

    def plan(self) -> Plan:
        return Plan(
            made_at=self.snapshot.now,
            starts=tuple(self.starts),
            waits=dict(self.waits),
            heads=dict(self.heads),
            partitions={one.name: one.is_up for one in self.snapshot.policy.partitions},
        )


class Planner:
    """`begin` a pass on a snapshot, then `step` until a plan comes out."""

    def __init__(self) -> None:
        self._pass: _Pass | None = None

    @property
    def is_busy(self) -> bool:
        return self._pass is not None

    def begin(self, snapshot: Snapshot, stops_early: bool = True) -> None:
        """Forget a pass that is under way and start on this snapshot.

        A pass that stops early ends when blocked jobs have claimed every node; else it gives every job its reason.
        """
        places = {node.name: one for one, node in enumerate(snapshot.nodes)}
        available = sum(1 for node in snapshot.nodes if not node.unavailable)
        self._pass = _Pass(
            snapshot, Overlay.of(snapshot), places, available, stops_early, running=list(snapshot.running)
        )

    def step(self, budget: int) -> Plan | None:
        """Go on for `budget` jobs; the plan when the queue is through, else None.

        Deterministic: the same snapshot gives the same plan, however the budget slices it.
        """
        assert self._pass is not None, "begin first"
        under_way = self._pass
        until = min(under_way.position + budget, len(under_way.snapshot.pending))
        while under_way.position < until and not under_way.is_over():
            _consider(under_way, under_way.snapshot.pending[under_way.position])
            under_way.position += 1
        if not under_way.is_over():
            return None
        self._pass = None
        return under_way.plan()


def plan_whole(snapshot: Snapshot) -> Plan:
    """A whole pass at once, over every job: for explanations, estimates and tests."""
    planner = Planner()
    planner.begin(snapshot, stops_early=False)
    plan = planner.step(len(snapshot.pending) + 1)
    assert plan is not None
    return plan


def _consider(under_way: _Pass, job: PendingJob) -> None:
    """Start the job, or say why it waits and claim what it waits for."""
    snapshot = under_way.snapshot
    partition = snapshot.policy.partition(job.shape.partition)
    early = _waits_anyway(snapshot, job, partition)
    if early is not None or partition is None:
        under_way.waits[job.job_id] = early or NoNodes(job.shape.partition)
        return
    usable, capable = _usable(under_way, job.shape, partition)
    avoided = {name for name, until in job.avoid if until > snapshot.now}
    available = [one for one in capable if not _is_out(snapshot, one, avoided)]
    unclaimed = [one for one in available if one not in under_way.claimed]
    if len(unclaimed) >= job.shape.nodes_min and (grants := place(under_way.overlay, job.shape, unclaimed)):
        under_way.overlay.take_all(under_way.places, grants)
        under_way.starts.append(Start(job.job_id, job.attempt, grants))
        ends_at = None if job.time_limit_s is None else snapshot.now + job.time_limit_s
        under_way.running.append(RunningJob(job.job_id, job.user, grants, ends_at))
        return
    _block(under_way, job, usable, capable, available)


def _usable(under_way: _Pass, shape: Shape, partition: Partition) -> tuple[list[int], list[int]]:
    """(nodes that the shape may use, those that could give it something); the same for all jobs of a shape."""
    known = under_way.usable.get(shape)
    if known is None:
        nodes = under_way.snapshot.nodes
        empty = Overlay.empty(nodes)
        usable = [one for one, node in enumerate(nodes) if may_use(shape, node, partition)]
        known = under_way.usable[shape] = (usable, [one for one in usable if capacity(empty, one, shape)])
    return known


def _block(under_way: _Pass, job: PendingJob, usable: list[int], capable: list[int], available: list[int]) -> None:
    """The job waits: for nodes that are not available, for an older job that claimed its nodes, or for resources."""
    hopeless = _hopeless(under_way, job, usable, capable, available)
    if hopeless is not None:
        under_way.waits[job.job_id] = hopeless
        return
    under_way.heads.setdefault(job.shape.partition, job.job_id)
    ahead = next((under_way.claimed[one] for one in available if one in under_way.claimed), None)
    if ahead is not None:
        under_way.waits[job.job_id] = Behind(ahead)
    else:
        under_way.waits[job.job_id] = insufficient(
            under_way.snapshot, under_way.overlay, job, available, under_way.running
        )
    _claim(under_way, job.job_id, available)


def _hopeless(
    under_way: _Pass, job: PendingJob, usable: list[int], capable: list[int], available: list[int]
) -> Wait | None:
    key = (job.shape, job.avoid)
    if key not in under_way.hopeless:
        under_way.hopeless[key] = why_hopeless(under_way.snapshot, job, usable, capable, available)
    return under_way.hopeless[key]


def _claim(under_way: _Pass, job_id: JobId, places: list[int]) -> None:
    for one in places:
        under_way.claimed.setdefault(one, job_id)


def _waits_anyway(snapshot: Snapshot, job: PendingJob, partition: Partition | None) -> Wait | None:
    """Reasons that no resource can lift."""
    if job.is_held:
        return Held()
    if job.begin_at is not None and job.begin_at > snapshot.now:
        return BeginsLater(job.begin_at)
    if partition is None or not partition.is_up:
        return PartitionIsDown(job.shape.partition)
    return None


def _is_out(snapshot: Snapshot, one: int, avoided: set[str]) -> bool:
    node = snapshot.nodes[one]
    return bool(node.unavailable) or node.name in avoided
