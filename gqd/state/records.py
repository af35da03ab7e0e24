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
    """A node's share that an elastic attempt has left; the part stays until the node reports that it is empty."""

    grant: Grant
    ends_at: float
    """Instant by which the share is expected to be empty."""


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
    """Resize state of an elastic attempt; the attempt's grants hold what it has now, including what it is giving up.

    An attempt that is elastic in GPUs runs on one node.  An attempt that is elastic in nodes (`is_of_nodes`) gains and
    loses whole grants, never single GPUs.
    """

    least: tuple[int, ...] = ()
    """GPUs that the attempt began with, which it always keeps."""
    most: int
    """Maximum number of GPUs, or of nodes, that the job asked for."""
    agreed: int | None = None
    """The lowest number of GPUs, or nodes, in the agreements that are in force; None: there are none."""
    agreements: tuple[Agreement, ...] = ()
    """The agreements, one for each user who asked and whose job has not ended yet."""
    least_cpus: tuple[int, ...] = ()
    """CPUs that the attempt began with, which it always keeps."""
    cpus_per_gpu: int = 0
    """Number of CPUs that come and go with each GPU."""
    generation: int = 0
    """Number of the latest change; the node acts on the highest generation."""
    keeps: tuple[int, ...] | None = None
    """GPUs that remain after the shrink under way; None: no shrink is under way."""
    keeps_cpus: tuple[int, ...] | None = None
    """CPUs that remain after the shrink; None: all of them."""
    ends_at: float | None = None
    """Instant by which the shrink is carried out; earlier if the job reports that it has released the GPUs."""
    to: tuple[tuple[JobId, int], ...] = ()
    """(job, count) for each job that receives released GPUs."""
    changed_at: float | None = None
    """Instant of the last change of the attempt's resources; None: they have not changed since the start."""
    gpu_s_before: float = 0.0
    """GPU-seconds from the start until `changed_at`."""
    cpu_s_before: float = 0.0
    """CPU-seconds from the start until `changed_at`."""
    billed_s_before: float = 0.0
    """Weighted GPU-seconds from the start until `changed_at`."""
    is_of_nodes: bool = False
    joined: tuple[tuple[str, int], ...] = ()
    """(node, generation in which it joined) for each node beyond those of the start; a node may join again."""
    going: tuple[str, ...] = ()
    """Joined nodes that the attempt gives up by `ends_at`."""
    left: tuple[Left, ...] = ()
    """Shares that the attempt has given up and that their nodes have not reported empty."""

    @property
    def takes(self) -> int:
        """Number of GPUs, or of nodes, that the attempt accepts while they are idle."""
        return self.most if self.agreed is None else self.agreed

    def join_of(self, node: str) -> int:
        """Generation in which the node joined; 0: the attempt began with the node, or does not have it."""
        return dict(self.joined).get(node, 0)


@dataclass(slots=True)
class Part:
    """A node's share of an attempt, while the node still has it."""

    grant: Grant
    phase: PartPhase
    is_stranded: bool = False
    """The node is lost or silent: the job no longer waits for this part, but its resources are not granted again."""


class StepPartEnd(NamedTuple):
    """How the tasks of a step ended on one node."""

    exit: ExitStatus
    outcome: Outcome


@dataclass(slots=True)
class Step:
    """A running step of an attempt: the tasks of one `gqrun`."""

    step_id: StepId
    key: bytes
    layout: StepLayout
    start_at: float
    received: set[str] = field(default_factory=set)
    """Nodes that have received the order."""
    part_ends: dict[str, StepPartEnd] = field(default_factory=dict)
    """Node → how the step's tasks ended there."""
    end_at: float | None = None
    outcome: Outcome | None = None
    exit: ExitStatus | None = None
    usage: Usage = Usage()


@dataclass(slots=True)
class Attempt:
    """An attempt to run a job; kept in memory while it is the job's latest, or a node still has a part of it."""

    attempt_id: AttemptId
    grants: tuple[Grant, ...]
    """Grants, the batch node's first; of an elastic attempt the present ones, or the last."""
    allocated_at: float
    parts: dict[str, Part]
    """Node → part, in the order of `grants`; a part is removed when its node reports that it is empty."""
    master_port: int = 0
    start_at: float | None = None
    end_at: float | None = None
    """Instant at which the attempt ended or began to be ended."""
    outcome: Outcome | None = None
    exit: ExitStatus | None = None
    reason: str = "None"
    why: str = ""
    failure_class: str = ""
    then: AfterEnding | None = None
    """The job's fate when all parts are empty."""
    grace_s: int = 0
    usage: Usage = Usage()
    billing: int = 0
    """Billing rate from `start_at` to `end_at`, in millionths of a weighted GPU."""
    slot: str = ""
    """Slot in which the attempt was started ahead of its turn: see `gqd.state.plan.Protected`."""
    occurrence: OccurrenceKey | None = None
    """Occurrence of the reservation in which the attempt runs; None: outside reservations."""
    borrows: tuple[str, ...] = ()
    """Reservations that lend their idle resources; jobs of any reservation may preempt such an attempt."""
    priority: int = 0
    """Priority of the job in the queue at the allocation."""
    estimate: FirstEstimate | None = None
    """First estimate of the start that the job's owner was shown."""
    checkpoint_at: float | None = None
    """Instant of the last checkpoint that the processes reported."""
    preemption: PreemptionNotice | None = None
    """The preemption that the attempt was notified of; None: the attempt is not being preempted."""
    lost_gpu_s: float = 0.0
    """GPU-seconds of work lost by preemption: since the last checkpoint, or else since the start."""
    suspended_at: float | None = None
    """Instant since which the processes are suspended; None: they run."""
    suspended_s: float = 0.0
    """Total of earlier suspensions, which do not count against the time limit."""
    elastic: Elastic | None = None
    """Resize state of an elastic attempt; None: the attempt is not elastic."""
    next_step: int = 0
    steps: dict[int, Step] = field(default_factory=dict)
    """Running steps by number; ended steps are only in the database."""
    view: object = field(default=None, compare=False, repr=False)
    """Cached planner view of the attempt (`gqd.control.snapshot`); None: not made yet, or outdated."""

    @property
    def batch_node(self) -> str:
        return self.grants[0].node

    @property
    def was_let_go(self) -> bool:
        """The batch node was ordered to start the script, which may run whether or not the node has reported so."""
        batch_part = self.parts.get(self.batch_node)
        return batch_part is not None and batch_part.phase in (PartPhase.GOING, PartPhase.LIVE)

    def waits_for(self) -> list[str]:
        """Nodes whose parts must be empty before the attempt is over."""
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

    Each task is either waiting, cancelled, or a job of its own that is active, succeeded or failed.  The array's record
    stays PENDING until no task waits and all jobs of tasks have ended.
    """

    waiting: int
    throttle: int | None = None
    cancelled: int = 0
    succeeded: int = 0
    """Tasks whose own jobs have completed."""
    failed: int = 0
    """Tasks whose own jobs have ended with any other outcome."""
    jobs: dict[int, JobId] = field(default_factory=dict, compare=False)
    """Index: task → its job, while that job is in memory."""
    active: int = field(default=0, compare=False)
    """Index: number of tasks whose jobs hold resources, which the throttle bounds."""

    def __repr__(self) -> str:
        """Show the sets as ranges; Python refuses to print such large integers."""
        sets = (self.waiting, self.cancelled, self.succeeded, self.failed)
        named = zip(("waiting", "cancelled", "succeeded", "failed"), sets, strict=True)
        shown = [f"{word}={format_tasks(tasks, 8)}" for word, tasks in named if tasks]
        return f"ArrayTasks({', '.join([*shown, f'throttle={self.throttle}', f'active={self.active}'])})"


@dataclass(slots=True)
class Job:
    """A job, or an array's record, that is pending, active, or ended and still in memory."""

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
    """Instant since which the owner lets the job start (submission, begin time, release, requeue)."""
    state: JobState = JobState.PENDING
    outcome: Outcome | None = None
    hold: Hold | None = None
    attempt: int = 0
    """Number of the latest attempt; 0: the job was never allocated."""
    restart_count: int = 0
    ran_s: float = 0.0
    """Run time of earlier attempts after which the job was queued again."""
    launch_failures: int = 0
    """Consecutive launch failures that were the job's own fault."""
    avoid: dict[str, float] = field(default_factory=dict)
    """Node → instant until which the job is not placed on it."""
    start_at: float | None = None
    """Start of the latest attempt."""
    end_at: float | None = None
    exit: ExitStatus | None = None
    reason: str = "None"
    """Durable reason: why a launch failed, or how the job ended.  The planner knows why the job waits now."""
    why: str = ""
    failure_class: str = ""
    account: str = ""
    """Account; empty only in rows of versions without accounts."""
    qos: str = NORMAL_QOS
    accrue_at: float | None = None
    """Instant since which the priority grows with age: owner and dependencies let the job start.  A requeue does not
    change it; None: not yet."""
    array: ArrayTasks | None = None
    """Tasks of the array whose record this job is; None: the job is no array's record."""
    array_job_id: JobId | None = None
    """Array of the task that this job is; None: the job is no task."""
    array_task_id: int | None = None
    """Number of the task within its array."""
    dependency: Dependency | None = None
    """Terms of the dependency that are still open."""
    never: str = ""
    """Why the dependency can never be met; empty: it still can."""
    ready: int = field(default=0, repr=False)
    """Tasks that may start, of an array with ``aftercorr`` (a bit set)."""
    hook: str = ""
    """Changes that the site's submit hook made to the job."""
    expected_s: float | None = None
    """Expected run time: the time limit, else the run time of similar jobs; None: unknown.  It never ends the job."""
    estimate: FirstEstimate | None = None
    """First estimate of the next attempt's start that the owner was shown."""
    asks: tuple[Ask, ...] = ()
    """Requests that other users made of the job's owner."""
    preempted: Preempted | None = None
    """Latest preemption of the job, and the cost of all of them; None: the job was never preempted."""
    resumed: Resumed | None = None
    """Measured cost of the job's resumes."""

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.job_id, self.attempt)

    @property
    def label(self) -> str:
        """Id as users write it: ``7``, or ``7_3`` for a task."""
        return str(self.job_id) if self.array_task_id is None else f"{self.array_job_id}_{self.array_task_id}"

    @property
    def is_waiting(self) -> bool:
        """The job is in the queue: it is pending, and an array's record has waiting tasks."""
        return self.state is JobState.PENDING and (self.array is None or self.array.waiting != 0)

    @property
    def holds_resources(self) -> bool:
        """The job is active: STARTING, RUNNING or COMPLETING."""
        return self.state not in (JobState.PENDING, JobState.ENDED)

    @property
    def width(self) -> int:
        """Number of jobs that the record counts as: an array's record counts as its waiting tasks."""
        return 1 if self.array is None else self.array.waiting.bit_count()


@dataclass(slots=True)
class Node:
    """A registered node: its inventory, its state and what its parts hold."""

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
    """Index: grants of the parts on this node."""
    free_cpu_mask: int = field(default=0, compare=False)
    free_gpu_mask: int = field(default=0, compare=False)
    """GPUs held by no part; the planner's view removes drained GPUs."""
    used_memory_mib: int = field(default=0, compare=False)
    used_resources: dict[str, int] = field(default_factory=dict, compare=False)
    """Amounts of generic resources in use, by name; unused ones are absent."""
    used_licenses: dict[str, int] = field(default_factory=dict, compare=False)
    """Amounts of cluster licences in use by jobs whose first grant is here; unused ones are absent."""
    free_since: int = field(default=0, compare=False)
    """Increasing stamp of the last change of the node's free GPUs, which orders nodes; 0: no change since the
    controller's start.  Not stored."""
    view: object = field(default=None, compare=False, repr=False)
    """Cached planner view of the node, as in `Attempt.view`."""

    def recount(self) -> None:
        """Recompute the free masks and amounts in use from `held`."""
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
            for amount in amounts:
                used[amount.name] = used.get(amount.name, 0) + sign * amount.count
                if not used[amount.name]:
                    del used[amount.name]

    def _has(self, grant: Grant) -> bool:
        """Whether the node's present inventory includes the whole grant; the node may have registered with less."""
        gpus = {gpu.index for gpu in self.inventory.gpus} if grant.gpus else set()
        return max(grant.cpus, default=-1) < self.inventory.cpus and gpus.issuperset(grant.gpus)


def mask_of(ids: tuple[int, ...]) -> int:
    """Bit set of these indices."""
    mask = 0
    for index in ids:
        mask |= 1 << index
    return mask


@dataclass(slots=True)
class Nomination:
    """Resources that are earmarked for a pending job while its victims are preempted.  No other job gets free parts of
    them."""

    job_id: JobId
    grants: tuple[Grant, ...]
    victims: tuple[AttemptId, ...]
    made_at: float
    reservation: str = ""
    occurrence: int = 0


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt on one node that is suspended for a preemptor, and lends its CPUs and GPUs to that job."""

    to: JobId
    """The preemptor."""
    at: float
    """Instant of the order to suspend, which identifies this parking of the attempt."""
    lent: Grant | None = None
    """Resources lent; None: the node has not reported yet that the attempt is suspended."""
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(GPU, MiB that the attempt still occupies) for the lent GPUs."""


@dataclass(slots=True)
class Key:
    """An enrolled key; see `gq.model.key.KeyInfo`."""

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
    """Public key of the node that used this join key, which admits no other node; empty: not used."""
    note: str = ""


@dataclass(slots=True)
class Member:
    """A member of an account, and the usage of this user there."""

    info: MemberInfo
    usage: DecayedUsage = field(default_factory=DecayedUsage)


class LimitKey(NamedTuple):
    """Identifies a limit: its holder, resource, and whether it is per user."""

    holder: Holder
    name: str
    resource: str
    per_user: bool = False


def limit_key(limit: LimitInfo) -> LimitKey:
    return LimitKey(limit.holder, limit.name, limit.resource, limit.per_user)


class BudgetKey(NamedTuple):
    """Identifies a budget: a limit, and the user if the limit is per user."""

    limit: LimitKey
    user: str
    """User; empty: the budget of all users together."""


class Answer(NamedTuple):
    """The stored reply to a request that changed something."""

    at: float
    uid: int
    answer: bytes
