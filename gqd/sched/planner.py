"""Who starts now, in the order of the queue, as a resumable pass.  Pure.

The pass walks the queue once.  A job that fits starts.  One that does not *claims* every node that it could use:
no job behind it may take them, so that nobody overtakes; nodes that no blocked job can use go to whoever is next.
A job that cannot start even on its available nodes empty (they are down, drained or left out) claims nothing, nor does
one that a limit of its user, account or QOS keeps back: others go on.

Where accounts are guaranteed GPUs, the queue is walked twice: first those jobs that stay within a guarantee, then all
others, which borrow what is left.  The record of an array stands for all of its tasks: each start is one of them, the
lowest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gq.model.ids import JobId
from gq.model.resource import Grant
from gq.model.tasks import first_task, task_bit
from gqd.sched.billing import billing_of
from gqd.sched.blocked import insufficient, why_hopeless
from gqd.sched.feasible import capacity, may_use
from gqd.sched.limit import Asker, Ledger, Wanted, hours, least_wanted
from gqd.sched.placement import place
from gqd.sched.shape import Shape, wanted_in_all
from gqd.sched.view import Overlay, PendingJob, RunningJob, Snapshot
from gqd.state.cluster import mask_of
from gqd.state.plan import BeginsLater, Behind, Held, NoNodes, OverLimit, PartitionIsDown, Plan, Start, Throttled, Wait
from gqd.state.policy import Partition

_NOTHING = Wanted({}, 0.0)


@dataclass(slots=True)
class _Pass:
    """One pass under way."""

    snapshot: Snapshot
    overlay: Overlay
    places: dict[str, int]
    available: int
    """Nodes that may get jobs at all."""
    stops_early: bool
    queue: Sequence[PendingJob]
    """What is walked in this round."""
    is_guaranteed_round: bool
    ledger: Ledger
    position: int = 0
    later: list[PendingJob] = field(default_factory=list)
    """What is walked in the next round."""
    tasks: dict[JobId, int] = field(default_factory=dict)
    """By array record: what this pass has not started of it."""
    array_room: dict[JobId, int] = field(default_factory=dict)
    over: dict[tuple[Asker, Shape, int | None], Wait | None] = field(default_factory=dict)
    """Those alike of whom one is over a limit: all are, since in a pass what is held only grows."""
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
        is_through = self.position >= len(self.queue) and not self.is_guaranteed_round
        return is_through or (self.stops_early and self.is_all_claimed())

    def is_all_claimed(self) -> bool:
        """No younger job may start anywhere: whoever has not been looked at is behind the heads."""
        return 0 < self.available <= len(self.claimed)

    def wanted(self, job: PendingJob, amounts: Mapping[str, int]) -> Wanted:
        return Wanted(amounts, hours(self.billing(amounts, job.qos), job.time_limit_s))

    def billing(self, amounts: Mapping[str, int], qos: str) -> int:
        return billing_of(self.snapshot.policy.billing, amounts, self.snapshot.limits.usage_factor(qos))

    def plan(self) -> Plan:
        return Plan(
            made_at=self.snapshot.now,
            starts=tuple(self.starts),
            waits=dict(self.waits),
            heads=dict(self.heads),
            partitions={one.name: one.is_up for one in self.snapshot.policy.partitions},
            billing=self.snapshot.policy.billing,
            starting=frozenset(start.job_id for start in self.starts),
            kept_back={(one.user, one.account, one.qos): self.ledger.used(one) for one in self.snapshot.kept_back},
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
            snapshot,
            Overlay.of(snapshot),
            places,
            available,
            stops_early,
            snapshot.pending,
            snapshot.limits.has_guarantees,
            Ledger(snapshot.limits),
            tasks={job.job_id: job.tasks for job in snapshot.pending if job.tasks},
            array_room=dict(snapshot.array_room),
            running=list(snapshot.running),
        )

    def step(self, budget: int) -> Plan | None:
        """Go on for `budget` jobs or tasks; the plan when the queue is through, else None.

        Deterministic: the same snapshot gives the same plan, however the budget slices it.
        """
        assert self._pass is not None, "begin first"
        under_way = self._pass
        for _ in range(budget):
            if under_way.is_over():
                break
            _advance(under_way)
        if not under_way.is_over():
            return None
        self._pass = None
        return under_way.plan()


def plan_whole(snapshot: Snapshot) -> Plan:
    """A whole pass at once, over every job: for explanations, estimates and tests."""
    planner = Planner()
    planner.begin(snapshot, stops_early=False)
    while (plan := planner.step(1 + len(snapshot.pending))) is None:
        pass
    return plan


def _advance(under_way: _Pass) -> None:
    """Look at the next job or task of the round; at its end begin the next round."""
    if under_way.position >= len(under_way.queue):
        under_way.queue, under_way.position, under_way.is_guaranteed_round = under_way.later, 0, False
        return
    job = under_way.queue[under_way.position]
    if under_way.is_guaranteed_round and not under_way.ledger.is_guaranteed(_asker(job), wanted_in_all(job.shape)[0]):
        under_way.later.append(job)
        under_way.position += 1
    elif not (_consider(under_way, job) and under_way.tasks.get(job.job_id)):
        under_way.position += 1


def _asker(job: PendingJob) -> Asker:
    return Asker(job.user, job.account, job.qos)


def _consider(under_way: _Pass, job: PendingJob) -> bool:
    """Start the job, or a task of it; False: it waits, said is why, and claimed what it waits for."""
    snapshot = under_way.snapshot
    partition = snapshot.policy.partition(job.shape.partition)
    early = _waits_anyway(under_way, job, partition)
    if early is not None or partition is None:
        under_way.waits[job.job_id] = early or NoNodes(job.shape.partition)
        return False
    usable, capable = _usable(under_way, job.shape, partition)
    avoided = {name for name, until in job.avoid if until > snapshot.now}
    available = [one for one in capable if not _is_out(snapshot, one, avoided)]
    unclaimed = [one for one in available if one not in under_way.claimed]
    if len(unclaimed) >= job.shape.nodes_min:
        grants, wanted, over = _place(under_way, job, unclaimed)
        if over is not None:
            under_way.waits[job.job_id] = over
            return False
        if grants:
            _start(under_way, job, grants, wanted)
            return True
    _block(under_way, job, usable, capable, available)
    return False


def _place(
    under_way: _Pass, job: PendingJob, places: list[int]
) -> tuple[tuple[Grant, ...] | None, Wanted, Wait | None]:
    """(grants, what they come to, the limit that they would be over).

    What is given may be more than the least that was asked for: whole nodes, or GPUs of a type that is limited; then
    nodes that have other types are tried.
    """
    nodes = under_way.snapshot.nodes
    first_over: Wait | None = None
    while (grants := place(under_way.overlay, job.shape, places)) is not None:
        wanted = under_way.wanted(job, _amounts(under_way, grants))
        over = under_way.ledger.over(_asker(job), wanted)
        if over is None:
            return grants, wanted, None
        first_over = first_over or over
        gpu_type = over.limit.resource.partition(":")[2] if isinstance(over, OverLimit) else ""
        if not gpu_type or job.shape.gpu_type is not None:
            break
        places = [one for one in places if not nodes[one].type_mask(gpu_type)]
    return None, _NOTHING, first_over


def _amounts(under_way: _Pass, grants: tuple[Grant, ...]) -> dict[str, int]:
    """What grants come to, as limits and billing count it."""
    amounts = {"jobs": 1, "gpus": 0, "cpus": 0, "memory": 0}
    for grant in grants:
        amounts["gpus"] += len(grant.gpus)
        amounts["cpus"] += len(grant.cpus)
        amounts["memory"] += grant.memory_mib
        mask = mask_of(grant.gpus)
        for gpu_type, of_type in under_way.snapshot.nodes[under_way.places[grant.node]].gpu_types if mask else ():
            if count := (mask & of_type).bit_count():
                amounts[f"gpus:{gpu_type}"] = amounts.get(f"gpus:{gpu_type}", 0) + count
    return amounts


def _start(under_way: _Pass, job: PendingJob, grants: tuple[Grant, ...], wanted: Wanted) -> None:
    under_way.overlay.take_all(under_way.places, grants)
    under_way.ledger.take(_asker(job), wanted)
    task = None
    if tasks := under_way.tasks.get(job.job_id):
        task = first_task(tasks)
        under_way.tasks[job.job_id] = tasks & ~task_bit(task)
    if job.array_job_id in under_way.array_room:
        under_way.array_room[job.array_job_id] -= 1
    billing = under_way.billing(wanted.amounts, job.qos)
    under_way.starts.append(Start(job.job_id, job.attempt, grants, task, billing))
    ends_at = None if job.time_limit_s is None else under_way.snapshot.now + job.time_limit_s
    under_way.running.append(RunningJob(job.job_id, job.user, grants, ends_at))


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


def _waits_anyway(under_way: _Pass, job: PendingJob, partition: Partition | None) -> Wait | None:
    """Reasons that no resource can lift."""
    if job.is_held:
        return Held()
    if job.begin_at is not None and job.begin_at > under_way.snapshot.now:
        return BeginsLater(job.begin_at)
    if partition is None or not partition.is_up:
        return PartitionIsDown(job.shape.partition)
    if job.array_job_id is not None and under_way.array_room.get(job.array_job_id, 1) <= 0:
        return Throttled(most=under_way.snapshot.array_throttle.get(job.array_job_id, 0))
    return under_way.ledger.barred(_asker(job), job.shape, partition) or _over_limit(under_way, job)


def _over_limit(under_way: _Pass, job: PendingJob) -> Wait | None:
    """The limit that it would be over with the least that it asks for."""
    key = (_asker(job), job.shape, job.time_limit_s)
    if under_way.over.get(key) is None:
        under_way.over[key] = under_way.ledger.over(key[0], under_way.wanted(job, least_wanted(job.shape)))
    return under_way.over[key]


def _is_out(snapshot: Snapshot, one: int, avoided: set[str]) -> bool:
    node = snapshot.nodes[one]
    return bool(node.unavailable) or node.name in avoided
