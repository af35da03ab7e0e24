"""The durable facts in memory: jobs, attempts and their parts, steps, nodes, answered requests, and their indices.

Only ``gqd.control.apply`` changes a `Cluster`; everything else reads.  Each change also notes the row that it
touches (`Changes`), so that the shell can write exactly those.  `check` walks every invariant.  Pure.

Invariants (numbered as `check` names them):

1. a GPU or CPU of a node is in at most one part that is there (stranded parts included);
2. a job that is PENDING or ENDED has no part of its current attempt that is not stranded;
3. a job that is STARTING, RUNNING or COMPLETING has a current attempt;
4. the queue index holds exactly the jobs that wait, as they are, and the other indices of jobs agree with it;
5. free masks equal a recount from the parts;
6. memory in use on a node equals the sum of its parts and is within what it has, unless the node shrank;
7. a node has one key at most, a user's key has a uid, and the indices of keys agree with them;
8. who waits for others is pending, these others are there and not over, and the index of dependants agrees with both;
9. the indices of accounts, members and limits agree with them, and every active job is of a member;
10. each task of an array is in exactly one place, and what its record says of it is what its job says;
11. the rate at which each member's usage grows is what its running attempts are billed;
12. the index of deadlines holds the jobs that wait and have one;
13. no two occurrences of reservations that are not past keep the same GPU or CPU of a node at the same time;
14. the outbox holds notices that wait, and counts them by user;
15. what is kept for a job while others give way is of one that waits; each of them gives way to one, and knows it;
16. an elastic attempt holds the GPUs that it began with, at most as many as it may, and what is to go is a part of it;
17. who is parked stands still on one node, and what it lends is had by nobody but the job that it is parked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gq.model.account import NORMAL_QOS, AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gq.model.dependency import Dependency
from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus, JobSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Inventory
from gq.model.resource import Grant
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout
from gq.model.tasks import format_tasks
from gqd.state import arrays, association, bookings, deadlines, dependants, elastic, parked, preemption, tally, usage
from gqd.state.after import AfterEnding, Hold, PartPhase
from gqd.state.ask import Ask
from gqd.state.changes import Changes as Changes
from gqd.state.crontab import Crontab
from gqd.state.elastic import Elastic
from gqd.state.lengths import Lengths
from gqd.state.notice import Outbox
from gqd.state.owed_order import OwedOrders, check_owed_orders
from gqd.state.preemption import Claim as Claim
from gqd.state.preemption import GivingWay as GivingWay
from gqd.state.preemption import Preempted as Preempted
from gqd.state.preemption import Resumed as Resumed
from gqd.state.queue import PendingQueue
from gqd.state.reservation import OccurrenceKey, Reservation
from gqd.state.usage import Budget, DecayedUsage, HalfLives


@dataclass(slots=True)
class Part:
    """One node's share of an attempt, while the node still has it."""

    grant: Grant
    phase: PartPhase
    is_stranded: bool = False
    """The node is lost or silent: nobody waits for this part, but what it holds is not given away."""


class StepPartEnd(NamedTuple):
    """How the tasks of a step ended on one node."""

    exit: ExitStatus
    outcome: Outcome


@dataclass(slots=True)
class Step:
    step_id: StepId
    key: bytes
    layout: StepLayout
    start_at: float
    received: set[str] = field(default_factory=set)
    """Nodes that have the order."""
    part_ends: dict[str, StepPartEnd] = field(default_factory=dict)
    end_at: float | None = None
    outcome: Outcome | None = None
    exit: ExitStatus | None = None
    usage: Usage = Usage()


@dataclass(slots=True)
class Attempt:
    """One try at running a job.  In memory while it is its job's latest, or a node still has a part of it."""

    attempt_id: AttemptId
    grants: tuple[Grant, ...]
    """As allocated, batch node first; of an elastic one what it holds now, or held last."""
    allocated_at: float
    parts: dict[str, Part]
    """By node, in the order of `grants`; a part leaves when its node says that it is empty."""
    master_port: int = 0
    start_at: float | None = None
    end_at: float | None = None
    """When it was over or began to be ended."""
    outcome: Outcome | None = None
    exit: ExitStatus | None = None
    reason: str = "None"
    why: str = ""
    failure_class: str = ""
    then: AfterEnding | None = None
    grace_s: int = 0
    usage: Usage = Usage()
    billing: int = 0
    """Millionths of a weighted GPU, from `start_at` to `end_at`."""
    slot: str = ""
    """It went ahead of its turn: see `gqd.state.plan.Protected`."""
    occurrence: OccurrenceKey | None = None
    """It runs in this one of a reservation."""
    borrows: tuple[str, ...] = ()
    """It runs in none, and started on what these reservations keep: it gives way to jobs of any reservation."""
    priority: int = 0  # of the job in the queue when it was given its grants
    estimate: FirstEstimate | None = None
    """What the job was told first of when it would start."""
    checkpoint_at: float | None = None
    """When it last said that what it has done is saved."""
    giving_way: GivingWay | None = None
    lost_gpu_s: float = 0.0
    """Of one that was preempted: what it had done since its last checkpoint, or its start."""
    suspended_at: float | None = None
    """Its processes stand still since then."""
    suspended_s: float = 0.0
    """So long they did before that: does not count against the time limit."""
    elastic: Elastic | None = None
    """Its GPUs may become more and fewer."""
    next_step: int = 0
    steps: dict[int, Step] = field(default_factory=dict)
    """Running ones only; ended steps are in the database."""
    view: object = field(default=None, compare=False, repr=False)
    """What the planner was told of it (`gqd.control.snapshot`); None: not yet, or that has changed."""

    @property
    def batch_node(self) -> str:
        return self.grants[0].node

    @property
    def was_let_go(self) -> bool:
        """The node with the script was: it may run, whether that is known or not."""
        batch_part = self.parts.get(self.batch_node)
        return batch_part is not None and batch_part.phase in (PartPhase.GOING, PartPhase.LIVE)

    def waits_for(self) -> list[str]:
        """Nodes whose parts must be gone before the attempt is over."""
        return [node for node, part in self.parts.items() if not part.is_stranded]


@dataclass(slots=True)
class ArrayTasks:
    """The tasks of an array; the sets are bit sets (`gq.model.tasks`).

    Each task is in exactly one place: waiting here, cancelled here, or a job of its own, which has ended well, badly
    or not yet.  The record stays PENDING until none waits and all that left have ended.
    """

    waiting: int
    throttle: int | None = None
    cancelled: int = 0
    succeeded: int = 0
    """Of those that left and have ended."""
    failed: int = 0
    jobs: dict[int, JobId] = field(default_factory=dict, compare=False)
    """Index: tasks that left, as long as their jobs are in memory."""
    active: int = field(default=0, compare=False)
    """Index: how many of them hold resources, which is what the throttle counts."""

    def __repr__(self) -> str:
        """Python refuses to write so large numbers."""
        sets = (self.waiting, self.cancelled, self.succeeded, self.failed)
        words = zip(("waiting", "cancelled", "succeeded", "failed"), sets, strict=True)
        told = [f"{word}={format_tasks(tasks, 8)}" for word, tasks in words if tasks]
        return f"ArrayTasks({', '.join([*told, f'throttle={self.throttle}', f'active={self.active}'])})"


@dataclass(slots=True)
class Job:
    job_id: JobId
    spec: JobSpec
    user: str
    uid: int
    gid: int
    partition: str
    time_limit_s: int | None
    requeue: bool
    submit_at: float
    eligible_at: float
    """Since when it could have started as far as its owner's wishes go (submit, begin, release, requeue)."""
    state: JobState = JobState.PENDING
    outcome: Outcome | None = None
    hold: Hold | None = None
    attempt: int = 0
    """Number of the latest attempt; 0: never allocated."""
    restart_count: int = 0
    ran_s: float = 0.0
    """So long it has run, in attempts that are over and after which it waited again."""
    launch_failures: int = 0
    """In a row, by the job's own fault."""
    avoid: dict[str, float] = field(default_factory=dict)
    """Nodes that this job leaves out, until when."""
    start_at: float | None = None
    """Of the latest attempt."""
    end_at: float | None = None
    exit: ExitStatus | None = None
    reason: str = "None"
    """Of a durable kind: why a launch failed, how it ended.  Why it waits now is the planner's to say."""
    why: str = ""
    failure_class: str = ""
    account: str = ""
    """Empty only in rows from before there were accounts."""
    qos: str = NORMAL_QOS
    accrue_at: float | None = None
    """Since when its priority grows with age: it could start as far as its owner and its dependencies go.  A requeue
    does not change it; None: not yet."""
    array: ArrayTasks | None = None
    """Of an array's record."""
    array_job_id: JobId | None = None
    """Of a task that left it; likewise the next."""
    array_task_id: int | None = None
    dependency: Dependency | None = None
    """What is not met yet."""
    never: str = ""
    """Why that can never be."""
    ready: int = field(default=0, repr=False)
    """Of an array with ``aftercorr``: the tasks that may start."""
    hook: str = ""
    """What the site's submit hook did to it."""
    expected_s: float | None = None
    """How long it is expected to run: its time limit, else as jobs like it did; None: unknown.  Never ends it."""
    estimate: FirstEstimate | None = None
    """What it was told first of when its next attempt starts."""
    asks: tuple[Ask, ...] = ()
    """What others have asked of its owner."""
    preempted: Preempted | None = None
    """That it has given way to others."""
    resumed: Resumed | None = None
    """What it has measured of its resumes."""

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.job_id, self.attempt)

    @property
    def label(self) -> str:
        """Its id as people write it: ``7``, of a task ``7_3``."""
        return str(self.job_id) if self.array_task_id is None else f"{self.array_job_id}_{self.array_task_id}"

    @property
    def is_waiting(self) -> bool:
        """It is in the queue: pending, and of an array's record something waits in it."""
        return self.state is JobState.PENDING and (self.array is None or self.array.waiting != 0)

    @property
    def holds_resources(self) -> bool:
        return self.state not in (JobState.PENDING, JobState.ENDED)

    @property
    def width(self) -> int:
        """How many jobs it counts as: an array's record as the tasks that wait in it."""
        return 1 if self.array is None else self.array.waiting.bit_count()


@dataclass(slots=True)
class Node:
    name: str
    address: str
    inventory: Inventory
    incarnation: str
    boot_id: str
    step_endpoint: str
    step_public_key: str
    ticket_key: bytes
    registered_at: float
    is_lost: bool = False
    is_down: bool = False
    is_drained: bool = False
    reason: str = ""
    reason_by: str = ""
    reason_at: float | None = None
    drained_gpus: dict[int, str] = field(default_factory=dict)
    """GPU index → reason."""
    backoff_until: float = 0.0
    backoff_failures: int = 0
    held: dict[AttemptId, Grant] = field(default_factory=dict, compare=False)
    """Index: the parts that are here."""
    free_cpu_mask: int = field(default=0, compare=False)
    free_gpu_mask: int = field(default=0, compare=False)
    """Not held by a part; drained GPUs are taken off by the view."""
    used_memory_mib: int = field(default=0, compare=False)
    used_resources: dict[str, int] = field(default_factory=dict, compare=False)
    """Generic ones, by name; what is not here is not in use.  Likewise the next."""
    used_licenses: dict[str, int] = field(default_factory=dict, compare=False)
    """Of the cluster, by jobs whose first grant is here."""
    free_since: int = field(default=0, compare=False)
    """Grows in the order in which nodes came to have as many free GPUs as they have; 0: nothing was held since the
    start.  Derived: not kept over a restart."""
    view: object = field(default=None, compare=False, repr=False)
    """As of `Attempt`."""

    def recount(self) -> None:
        """Make the free masks anew from `held`."""
        self.free_cpu_mask = (1 << self.inventory.cpus) - 1
        self.free_gpu_mask = sum(1 << gpu.index for gpu in self.inventory.gpus)
        self.used_memory_mib, self.used_resources, self.used_licenses = 0, {}, {}
        for grant in self.held.values():
            self.free_cpu_mask &= ~mask_of(grant.cpus)
            self.free_gpu_mask &= ~mask_of(grant.gpus)
            self._count(grant, 1)

    def hold(self, attempt_id: AttemptId, grant: Grant) -> None:
        self.held[attempt_id] = grant
        self.free_cpu_mask &= ~mask_of(grant.cpus)
        self.free_gpu_mask &= ~mask_of(grant.gpus)
        self._count(grant, 1)

    def release(self, attempt_id: AttemptId) -> None:
        grant = self.held.pop(attempt_id)
        if self._has(grant):
            self.free_cpu_mask |= mask_of(grant.cpus)
            self.free_gpu_mask |= mask_of(grant.gpus)
            self._count(grant, -1)
        else:
            self.recount()

    def _count(self, grant: Grant, sign: int) -> None:
        self.used_memory_mib += sign * grant.memory_mib
        for used, amounts in ((self.used_resources, grant.resources), (self.used_licenses, grant.licenses)):
            for one in amounts:
                used[one.name] = used.get(one.name, 0) + sign * one.count
                if not used[one.name]:
                    del used[one.name]

    def _has(self, grant: Grant) -> bool:
        """All of it is still there: the node has not registered with less since."""
        gpus = {gpu.index for gpu in self.inventory.gpus} if grant.gpus else set()
        return max(grant.cpus, default=-1) < self.inventory.cpus and gpus.issuperset(grant.gpus)


def mask_of(ids: tuple[int, ...]) -> int:
    """Bit set of ids."""
    mask = 0
    for one in ids:
        mask |= 1 << one
    return mask


@dataclass(slots=True)
class Key:
    """See `gq.model.key.KeyInfo`."""

    public: str
    kind: KeyKind
    name: str
    added_at: float
    added_by: str
    uid: int | None = None
    gid: int | None = None
    is_login: bool = False
    expires_at: float | None = None
    joined: str = ""
    """Of a join key that was used: the public key of the node that it let in; it opens nothing else any more."""
    note: str = ""


@dataclass(slots=True)
class Member:
    """A user in an account, and what was used there."""

    info: MemberInfo
    usage: DecayedUsage = field(default_factory=DecayedUsage)


class LimitKey(NamedTuple):
    holder: Holder
    name: str
    resource: str
    per_user: bool = False


def limit_key(limit: LimitInfo) -> LimitKey:
    return LimitKey(limit.holder, limit.name, limit.resource, limit.per_user)


class BudgetKey(NamedTuple):
    limit: LimitKey
    user: str
    """Empty: of all users together."""


class Answer(NamedTuple):
    """What a request that changed something was answered."""

    at: float
    uid: int
    answer: bytes


@dataclass(slots=True)
class Cluster:
    jobs: dict[JobId, Job] = field(default_factory=dict)
    attempts: dict[AttemptId, Attempt] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    """By public half (Z85)."""
    void_key_files: dict[str, None] = field(default_factory=dict)
    """Nodes that were removed, and whose file in ``keys/nodes`` is not known to be deleted yet."""
    answers: dict[bytes, Answer] = field(default_factory=dict)
    """By request id."""
    accounts: dict[str, AccountInfo] = field(default_factory=dict)
    """Those that were added; the root and the default account are there without."""
    members: dict[tuple[str, str], Member] = field(default_factory=dict)
    """By (user, account).  Whoever has submitted a job is in the account that it went to."""
    qos: dict[str, QosInfo] = field(default_factory=dict)
    """Those that were added or changed."""
    limits: dict[LimitKey, LimitInfo] = field(default_factory=dict)
    budgets: dict[BudgetKey, Budget] = field(default_factory=dict)
    """Of the limits that are budgets, from when they were set."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """By name."""
    next_reservation_id: int = 1
    claims: dict[JobId, Claim] = field(default_factory=dict)
    """By the job that others give way to."""
    parked: dict[AttemptId, parked.Parked] = field(default_factory=dict)
    """Attempts that stand still for others, and lend what they hold."""
    owed_orders: OwedOrders = field(default_factory=dict)
    crontabs: dict[str, Crontab] = field(default_factory=dict)
    """By user."""
    outbox: Outbox = field(default_factory=Outbox)
    """What owners are to be told."""
    lengths: Lengths = field(default_factory=dict)
    """How long jobs ran."""
    half_life_s: float | None = None
    """Of `Member.usage`; None: nothing decays."""
    half_lives: HalfLives = ()
    """Those before it: what is reported late began to decay as they say."""
    next_job_id: int = 1
    """Never goes back, whatever is forgotten."""
    queue: PendingQueue = field(default_factory=PendingQueue, compare=False)
    """Index: pending jobs of which something waits."""
    ordered_nodes: tuple[Node, ...] | None = field(default=None, compare=False, repr=False)
    """Index: in natural order, as it was last put; None: some have come or gone since."""
    holding: dict[AttemptId, Attempt] = field(default_factory=dict, compare=False, repr=False)
    """Index: attempts that still have parts."""
    elastic: dict[AttemptId, Attempt] = field(default_factory=dict, compare=False, repr=False)
    """Index: those of them whose GPUs may become more and fewer."""
    stamp: int = field(default=0, compare=False)
    """The last of `Node.free_since`."""
    timed: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: pending jobs that time alone may let start (they begin later, or leave nodes out for a while)."""
    ended: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: jobs that have ended, about in the order in which they did."""
    arrays: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: records of arrays that have not ended."""
    active_by_user: dict[str, int] = field(default_factory=dict, compare=False)
    """Index: jobs that have not ended."""
    login_nodes: dict[str, str] = field(default_factory=dict, compare=False)
    """Index: nodes that joined as login nodes, and their keys."""
    join_keys: dict[str, None] = field(default_factory=dict, compare=False)
    """Index: keys that expire."""
    associations: association.Associations = field(default_factory=association.Associations, compare=False)
    """Index: accounts, members and limits by whom they are looked up for."""
    tallies: tally.Tallies = field(default_factory=tally.Tallies, compare=False)
    """Index: what users, accounts and QOS have in the queue and hold."""
    deadlines: dict[JobId, float] = field(default_factory=dict, compare=False)
    """Index: jobs that wait and have a deadline: the last moment at which they may start."""
    dependants: dependants.Dependants = field(default_factory=dependants.Dependants, compare=False)
    """Index: jobs that wait for others."""
    changes: Changes = field(default_factory=Changes, compare=False)

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────

    def attempt_of(self, job: Job) -> Attempt | None:
        """The job's latest attempt, if it is still known."""
        return self.attempts.get(job.attempt_id) if job.attempt else None

    # ── indices, kept by apply ────────────────────────────────────────────────────────────────────────────────

    def hold(self, attempt: Attempt, grant: Grant) -> None:
        """Of a new attempt: the node has this part of it from now on."""
        node = self.nodes[grant.node]
        node.hold(attempt.attempt_id, grant)
        self.holding[attempt.attempt_id] = attempt
        if attempt.elastic is not None:
            self.elastic[attempt.attempt_id] = attempt
        self._stamp(node, grant)

    def change_grant(self, attempt: Attempt, grant: Grant) -> None:
        """It holds this in place of what it held on its one node."""
        node = self.nodes[grant.node]
        node.release(attempt.attempt_id)
        attempt.grants = (grant,)
        attempt.parts[grant.node].grant = grant
        node.hold(attempt.attempt_id, grant)
        attempt.view = None
        self._stamp(node, grant)

    def release(self, attempt: Attempt, name: str) -> None:
        """The part is gone."""
        node = self.nodes[name]
        self._stamp(node, node.held[attempt.attempt_id])
        node.release(attempt.attempt_id)
        attempt.view = None
        if not attempt.parts:
            del self.holding[attempt.attempt_id]
            self.elastic.pop(attempt.attempt_id, None)

    def _stamp(self, node: Node, grant: Grant) -> None:
        if grant.gpus:
            self.stamp += 1
            node.free_since = self.stamp

    def outdate(self, job: Job) -> None:
        """What the planner was told of its attempt is not so any more."""
        attempt = self.attempts.get(job.attempt_id)
        if attempt is not None:
            attempt.view = None

    def enqueue(self, job: Job) -> None:
        """An array's record of which nothing waits stays out."""
        if job.is_waiting:
            self.queue.add(job)
            self._index_timed(job)

    def _index_timed(self, job: Job) -> None:
        if job.spec.begin_at is not None or job.avoid:
            self.timed[job.job_id] = None
        deadlines.index(self, job)

    def dequeue(self, job: Job) -> None:
        """An array's record may be out of it already."""
        if job.array is None or job.job_id in self.queue:
            self.queue.remove(job.job_id)
        self.timed.pop(job.job_id, None)
        self.deadlines.pop(job.job_id, None)

    def refresh(self, job: Job) -> None:
        """Something changed on which the job's place in the queue may depend; a no-op for one that is not in it."""
        if job.job_id in self.queue:
            self.queue.refresh(job)
            self._index_timed(job)

    def record_of(self, job: Job) -> tuple[Job, ArrayTasks] | None:
        """Of a task that left its array's record: that record, if it is still known."""
        record = None if job.array_job_id is None else self.jobs.get(job.array_job_id)
        return None if record is None or record.array is None else (record, record.array)

    def count_active(self, user: str, by: int) -> None:
        self.active_by_user[user] = self.active_by_user.get(user, 0) + by
        if not self.active_by_user[user]:
            del self.active_by_user[user]

    def forget_attempt(self, attempt: Attempt) -> None:
        """Out of memory: nobody will ask for it, and no node has a part of it."""
        assert not attempt.parts, f"{attempt.attempt_id} still has parts"
        del self.attempts[attempt.attempt_id]
        self.changes.departed_attempts[attempt.attempt_id] = attempt

    def add_key(self, key: Key) -> None:
        self.keys[key.public] = key
        if key.kind is KeyKind.JOIN:
            self.join_keys[key.public] = None
        if key.kind is KeyKind.NODE and key.is_login:
            self.login_nodes[key.name] = key.public

    def drop_key(self, public: str) -> None:
        key = self.keys.pop(public)
        self.join_keys.pop(public, None)
        if self.login_nodes.get(key.name) == public:
            del self.login_nodes[key.name]

    def rebuild_indices(self) -> None:
        """After loading: every index from the facts."""
        waiting = [job for job in self.jobs.values() if job.is_waiting]
        self.queue, self.timed, self.deadlines = PendingQueue.of(waiting), {}, {}
        for job in waiting:
            self._index_timed(job)
        ended = [job for job in self.jobs.values() if job.state is JobState.ENDED]
        self.ended = {job.job_id: None for job in sorted(ended, key=lambda job: job.end_at or 0.0)}
        self.active_by_user = {}
        for job in self.jobs.values():
            if job.state is not JobState.ENDED and job.width:
                self.active_by_user[job.user] = self.active_by_user.get(job.user, 0) + job.width
        self._rebuild_arrays()
        self.login_nodes, self.join_keys = {}, {}
        for key in self.keys.values():
            self.add_key(key)
        for node in self.nodes.values():
            node.held = {}
        self.holding = {attempt_id: one for attempt_id, one in self.attempts.items() if one.parts}
        self.elastic = {attempt_id: one for attempt_id, one in self.holding.items() if one.elastic is not None}
        for attempt in self.attempts.values():
            for name, part in attempt.parts.items():
                self.nodes[name].held[attempt.attempt_id] = part.grant
        for node in self.nodes.values():
            node.recount()
        self.associations = association.recount(self)
        tally.rebuild(self)
        dependants.rebuild(self)
        bookings.rebuild(self)

    def _rebuild_arrays(self) -> None:
        records = [job for job in self.jobs.values() if job.array is not None]
        self.arrays = {job.job_id: None for job in records if job.state is not JobState.ENDED}
        for record in records:
            assert record.array is not None
            record.array.jobs, record.array.active = {}, 0
        for job in self.jobs.values():
            known = self.record_of(job)
            if known is not None and job.array_task_id is not None:
                record, array = known
                array.jobs[job.array_task_id] = job.job_id
                array.active += job.holds_resources
                if job.spec == record.spec:
                    job.spec = record.spec  # thousands of tasks have one

    # ── invariants ────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """AssertionError with the number of the invariant that is broken."""
        self._check_jobs()
        arrays.check(self)
        for node in self.nodes.values():
            self._check_node(node)
        self._check_keys()
        tally.check(self)
        dependants.check(self)
        deadlines.check(self)
        association.check(self)
        usage.check(self)
        self.outbox.check()
        bookings.check(self)
        preemption.check(self)
        elastic.check(self)
        parked.check(self)
        check_owed_orders(self)
        for attempt in self.attempts.values():
            assert bool(attempt.parts) == (attempt.attempt_id in self.holding), f"5: the index misplaces {attempt}"
            gone = attempt.parts.keys() - self.nodes.keys()
            assert not gone, f"5: {attempt.attempt_id} has parts on nodes that are no longer there: {gone}"

    def _check_keys(self) -> None:
        of_nodes = [key.name for key in self.keys.values() if key.kind is KeyKind.NODE]
        assert len(of_nodes) == len(set(of_nodes)), f"7: a node has two keys: {of_nodes}"
        login = {k.name: k.public for k in self.keys.values() if k.kind is KeyKind.NODE and k.is_login}
        assert login == self.login_nodes, f"7: login nodes are {login}, the index says {self.login_nodes}"
        joins = {key.public for key in self.keys.values() if key.kind is KeyKind.JOIN}
        assert joins == self.join_keys.keys(), "7: the index of join keys differs from them"
        for key in self.keys.values():
            assert key.kind is not KeyKind.USER or key.uid is not None, f"7: the key of user {key.name} has no uid"

    def _check_jobs(self) -> None:
        for job in self.jobs.values():
            attempt = self.attempt_of(job)
            if job.state in (JobState.PENDING, JobState.ENDED):
                assert attempt is None or not attempt.waits_for(), f"2: job {job.job_id} is {job.state} with live parts"
            else:
                assert attempt is not None, f"3: job {job.job_id} is {job.state} without an attempt"
        waiting = [job for job in self.jobs.values() if job.is_waiting]
        for job in waiting:
            self.queue.check(job)
        assert len(self.queue) == len(waiting), "4: the queue has jobs that do not wait"
        timed = {j.job_id for j in self.jobs.values() if j.is_waiting and (j.spec.begin_at or j.avoid)}
        assert timed <= self.timed.keys(), "4: a job that waits for its time is not in the index"
        ended = {j.job_id for j in self.jobs.values() if j.state is JobState.ENDED}
        assert ended == self.ended.keys(), "4: the index of ended jobs differs from them"
        active: dict[str, int] = {}
        for job in self.jobs.values():
            if job.state is not JobState.ENDED and job.width:
                active[job.user] = active.get(job.user, 0) + job.width
        assert active == self.active_by_user, f"4: active jobs are {active}, the index says {self.active_by_user}"
        arrays = {j.job_id for j in self.jobs.values() if j.array is not None and j.state is not JobState.ENDED}
        assert arrays == self.arrays.keys(), "4: the index of arrays differs from them"

    def _check_node(self, node: Node) -> None:
        here = {
            attempt_id: attempt.parts[node.name].grant
            for attempt_id, attempt in self.attempts.items()
            if node.name in attempt.parts
        }
        assert here == node.held, f"5: what {node.name} holds differs from the parts"
        for kind in ("cpus", "gpus"):
            taken = [one for grant in here.values() for one in getattr(grant, kind)]
            assert len(taken) == len(set(taken)), f"1: {kind} of {node.name} are given twice: {here}"
        masks = (node.free_cpu_mask, node.free_gpu_mask, node.used_memory_mib)
        counted = (node.used_resources, node.used_licenses)
        node.recount()
        recounted = (node.free_cpu_mask, node.free_gpu_mask, node.used_memory_mib)
        counts = (node.used_resources, node.used_licenses)
        assert counted == counts, f"6: what is used of {node.name} was {counted}, a recount says {counts}"
        assert masks == recounted, f"5: free masks of {node.name} were {masks}, a recount says {recounted}"
        assert node.used_memory_mib == sum(grant.memory_mib for grant in here.values()), f"6: memory of {node.name}"
