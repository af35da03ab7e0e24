"""The records of the cluster: a job, its attempts and their parts, steps, nodes, keys, members, limits.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gq.model.account import NORMAL_QOS, Holder, LimitInfo, MemberInfo
from gq.model.dependency import Dependency
from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus, JobSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Inventory
from gq.model.resource import Grant, gpus_in
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout
from gq.model.tasks import format_tasks
from gqd.state.ask import Ask
from gqd.state.index.usage import DecayedUsage
from gqd.state.phases import AfterEnding, Hold, PartPhase
from gqd.state.preemption import Preempted, PreemptionNotice, Resumed
from gqd.state.reservation import OccurrenceKey


class Left(msgspec.Struct, frozen=True, array_like=True):
    """A share of a node that the attempt has left; its part stays until the node says that nothing is there."""

    grant: Grant
    ends_at: float
    """By then it is empty."""


class Agreement(msgspec.Struct, frozen=True, array_like=True):
    """A job's owner has agreed to keep at most `keeps` GPUs or nodes, because a user asked for the others.

    The agreement ends with the asker's job: the first job of that user that starts after the answer.
    """

    keeps: int
    user: str
    """The user who asked."""
    uid: int
    job_id: JobId | None = None
    """The asker's job (of an array the array's record); None: no job of the asker has started since the answer."""


class Elastic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of an attempt.  What it holds is in its grants; what is to go is held until its node says so.

    Of GPUs it is on one node.  Of nodes (`is_of_nodes`) whole grants come and go, and no GPU of one does.
    """

    least: tuple[int, ...] = ()
    """The GPUs that it began with: these stay its own."""
    most: int
    """So many GPUs, or nodes, it asked for."""
    agreed: int | None = None
    """The lowest number of GPUs, or nodes, in the agreements that are in force; None: there are none."""
    agreements: tuple[Agreement, ...] = ()
    """The agreements, one for each user who asked and whose job has not ended yet."""
    least_cpus: tuple[int, ...] = ()
    """The CPUs that it began with; likewise."""
    cpus_per_gpu: int = 0
    """So many come and go with each GPU."""
    generation: int = 0
    """Grows with each change; the node acts on the newest."""
    keeps: tuple[int, ...] | None = None
    """What it is to have when the others are gone; None: nothing is to go."""
    keeps_cpus: tuple[int, ...] | None = None
    """Of its CPUs; None: all of them."""
    ends_at: float | None = None
    """By then they are gone; earlier, if the job says that it has given them up."""
    to: tuple[tuple[JobId, int], ...] = ()
    """For whom they are given up, and how many for each."""
    changed_at: float | None = None
    """When it came to hold what it holds; None: it began with it."""
    gpu_s_before: float = 0.0
    """GPU-seconds from its start until then."""
    cpu_s_before: float = 0.0
    """Likewise CPU-seconds."""
    billed_s_before: float = 0.0
    """Weighted ones."""
    is_of_nodes: bool = False
    joined: tuple[tuple[str, int], ...] = ()
    """The nodes beyond those that it began with, and the generation in which each came: a node may come again."""
    going: tuple[str, ...] = ()
    """Those of them that it is to give up by `ends_at`."""
    left: tuple[Left, ...] = ()
    """What it does not have any more, and its node has not said to be empty."""

    @property
    def takes(self) -> int:
        """So many GPUs, or nodes, it takes, if they are idle."""
        return self.most if self.agreed is None else self.agreed

    def join_of(self, node: str) -> int:
        """When that came to it; 0: it began with it, or does not have it."""
        return dict(self.joined).get(node, 0)


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
    preemption: PreemptionNotice | None = None
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

    def unsaved_gpu_s(self, at: float) -> float:
        """GPU-seconds of work since the last checkpoint (else since the start), without suspended time, by `at`."""
        if self.start_at is None:
            return 0.0
        suspended_s = self.suspended_s + (0.0 if self.suspended_at is None else at - self.suspended_at)
        since_s = at - max(self.start_at, self.checkpoint_at or 0.0)
        return max(0.0, min(since_s, at - self.start_at - suspended_s)) * gpus_in(self.grants)


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
class Claim:
    """What a waiting job is to have when others have given way.  Nobody else gets what is free of it."""

    job_id: JobId
    grants: tuple[Grant, ...]
    victims: tuple[AttemptId, ...]
    made_at: float
    reservation: str = ""
    occurrence: int = 0


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of an attempt on one node."""

    to: JobId
    at: float
    """When its node was told; no other parking of it has the same."""
    lent: Grant | None = None
    """None: its node has not said yet that it stands still."""
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(GPU, MiB that it holds) of those that it lends."""


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
