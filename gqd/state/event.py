"""The durable facts, past tense.  They are the change log; `gqd.control.apply` is the only code that acts on them.

Every event carries all that its apply function needs: `fold(apply, events)` rebuilds the cluster.  A field is only
ever added, with a default; an event is never reused for another meaning.  Pure.
"""

from __future__ import annotations

import msgspec

from gq.model.account import NORMAL_QOS, AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gq.model.dependency import Dependency
from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, JobId, RequestId, StepId
from gq.model.job import ExitStatus, JobSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Inventory
from gq.model.resource import Grant
from gq.model.state import Outcome
from gq.model.step import StepLayout
from gqd.state.after import AfterEnding, Hold


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all events: tagged with the class name.  ``at``: seconds since the epoch, the controller's clock."""

    at: float


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────


class JobSubmitted(_Event, frozen=True, kw_only=True):
    job_id: JobId
    user: str
    uid: int
    gid: int
    spec: JobSpec
    partition: str
    time_limit_s: int | None
    requeue: bool
    account: str = ""
    qos: str = NORMAL_QOS
    dependency: Dependency | None = None
    """What of the spec's is not met yet."""
    never: str = ""
    """Why it can never be met."""
    ready: str = ""
    """Of an array with ``aftercorr``: the tasks that may start at once."""
    hook: str = ""
    """What the site's submit hook did to the spec."""
    expected_s: float | None = None
    """How long it is expected to run; None: nobody knows."""


class JobHeld(_Event, frozen=True, kw_only=True):
    job_id: JobId
    hold: Hold


class JobReleased(_Event, frozen=True, kw_only=True):
    job_id: JobId


class JobUpdated(_Event, frozen=True, kw_only=True):
    """The whole of what an update may change, after it."""

    job_id: JobId
    spec: JobSpec
    partition: str
    time_limit_s: int | None
    requeue: bool
    account: str = ""
    """Empty: as before; likewise the next."""
    qos: str = ""
    expected_s: float | None = None


class ArrayTaskLeft(_Event, frozen=True, kw_only=True):
    """A task leaves the array's record and is a job of its own from now on, pending like the record.

    It is about to start, or something is to be done to it alone.
    """

    array_job_id: JobId
    task: int
    job_id: JobId


class ArrayTasksCancelled(_Event, frozen=True, kw_only=True):
    """Tasks that wait in the record never will start (`gq.model.tasks.pack_tasks`)."""

    array_job_id: JobId
    tasks: str
    why: str = ""
    reason: str = "None"
    """`gq.model.state.Reason`; ``DeadLine``: it was too late for them."""


class ArrayThrottleSet(_Event, frozen=True, kw_only=True):
    array_job_id: JobId
    throttle: int | None


class DependencyChanged(_Event, frozen=True, kw_only=True):
    """What the job still waits for; None: nothing any more."""

    job_id: JobId
    left: Dependency | None = None
    never: str = ""
    """Why it can never be met."""
    ready: str = ""
    """Of an array with ``aftercorr``: tasks that may start from now on (`gq.model.tasks.pack_tasks`)."""
    is_new: bool = False
    """Its owner asks for another one: what could start by the one before cannot by this."""


class StartEstimated(_Event, frozen=True, kw_only=True):
    """What the waiting job was told first of when it will start; once before each attempt."""

    job_id: JobId
    estimate: FirstEstimate


class JobAllocated(_Event, frozen=True, kw_only=True):
    """An adopted plan: the attempt holds these grants; the first is the batch node's.  PENDING → STARTING"""

    attempt_id: AttemptId
    grants: tuple[Grant, ...]
    billing: int = 0
    """Millionths of a weighted GPU that are billed while it runs."""
    slot: str = ""
    """It goes ahead of its turn: see `gqd.state.plan.Protected`."""


class PartPrepared(_Event, frozen=True, kw_only=True):
    attempt_id: AttemptId
    node: str
    master_port: int = 0


class PartsReleased(_Event, frozen=True, kw_only=True):
    """GO was decided for these nodes."""

    attempt_id: AttemptId
    nodes: tuple[str, ...]
    master_port: int


class PartWentLive(_Event, frozen=True, kw_only=True):
    """The node acknowledged GO; the batch node: the script's process is alive."""

    attempt_id: AttemptId
    node: str


class JobStarted(_Event, frozen=True, kw_only=True):
    """STARTING → RUNNING; ``at`` is the start by the node's clock, never before the allocation."""

    attempt_id: AttemptId
    master_port: int = 0


class JobEnding(_Event, frozen=True, kw_only=True):
    """The attempt is over or is being ended; its parts are being stopped.  STARTING, RUNNING → COMPLETING"""

    attempt_id: AttemptId
    outcome: Outcome
    then: AfterEnding
    exit: ExitStatus | None = None
    """None: an end without a code."""
    reason: str = "None"
    why: str = ""
    failure_class: str = ""
    grace_s: int = 0


class LaunchFailed(_Event, frozen=True, kw_only=True):
    """A node refused or was silent; it is left out until ``until``.  STARTING → COMPLETING, then PENDING again."""

    attempt_id: AttemptId
    node: str
    why: str
    is_job_fault: bool
    """The back-off is then this job's alone, and counts towards holding it; else the node is left out for all."""
    until: float


class PartEmptied(_Event, frozen=True, kw_only=True):
    """Nothing of the attempt is left on the node; what it held there is free."""

    attempt_id: AttemptId
    node: str
    usage: Usage = Usage()


class PartStranded(_Event, frozen=True, kw_only=True):
    """The node is lost or silent: the job no longer waits for it; what it held there stays withheld."""

    attempt_id: AttemptId
    node: str


class JobRequeued(_Event, frozen=True, kw_only=True):
    """COMPLETING → PENDING.  ``counts``: the attempt had started (a restart); else it was a failed launch."""

    job_id: JobId
    counts: bool
    hold: Hold | None = None


class JobEnded(_Event, frozen=True, kw_only=True):
    """→ ENDED, from COMPLETING with what `JobEnding` said, or from PENDING with what is said here."""

    job_id: JobId
    outcome: Outcome
    exit: ExitStatus | None = None
    reason: str = "None"
    why: str = ""
    failure_class: str = ""


class JobsForgotten(_Event, frozen=True, kw_only=True):
    """Left memory; the database keeps them."""

    job_ids: tuple[JobId, ...]


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


class StepStarted(_Event, frozen=True, kw_only=True):
    step_id: StepId
    key: bytes
    layout: StepLayout


class StepPartReceived(_Event, frozen=True, kw_only=True):
    step_id: StepId
    node: str


class StepPartEnded(_Event, frozen=True, kw_only=True):
    step_id: StepId
    node: str
    exit: ExitStatus
    outcome: Outcome
    usage: Usage = Usage()


class StepFinished(_Event, frozen=True, kw_only=True):
    step_id: StepId
    exit: ExitStatus
    outcome: Outcome


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


class NodeRegistered(_Event, frozen=True, kw_only=True):
    node: str
    address: str
    inventory: Inventory
    incarnation: str
    boot_id: str
    step_endpoint: str
    step_public_key: str = ""
    ticket_key: bytes = b""


class NodeLost(_Event, frozen=True, kw_only=True):
    """Silent for too long; gets no jobs until it registers again."""

    node: str


class NodeDrained(_Event, frozen=True, kw_only=True):
    """Gets no new jobs.  ``gpu``: only that one GPU is withheld."""

    node: str
    reason: str
    by: str
    gpu: int | None = None


class NodeSetDown(_Event, frozen=True, kw_only=True):
    """By an administrator: no new jobs, and what runs there is ended as on a lost node."""

    node: str
    reason: str
    by: str


class NodeResumed(_Event, frozen=True, kw_only=True):
    node: str
    gpu: int | None = None


class NodeBackedOff(_Event, frozen=True, kw_only=True):
    """Left out of planning until ``until``, after ``failures`` launches in a row that it failed."""

    node: str
    until: float
    failures: int


class NodeBackoffCleared(_Event, frozen=True, kw_only=True):
    node: str


class NodeRemoved(_Event, frozen=True, kw_only=True):
    """No longer part of the cluster; its keys are void.  What it held was given up before (`PartEmptied`).

    A key of it that was pinned by hand is void, too, until `KeyFileGone`.
    """

    node: str
    reason: str
    by: str


class KeyFileGone(_Event, frozen=True, kw_only=True):
    """The file with the key of a removed node is deleted: one that is put there now is a new one."""

    node: str


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


class KeyAdded(_Event, frozen=True, kw_only=True):
    """See `gq.model.key.KeyInfo`."""

    public: str
    kind: KeyKind
    name: str
    by: str
    uid: int | None = None
    gid: int | None = None
    is_login: bool = False
    expires_at: float | None = None
    note: str = ""


class NodeJoined(_Event, frozen=True, kw_only=True):
    """The token is used up, and this is the node's key from now on."""

    token: str
    node: str
    public: str
    is_login: bool
    address: str


class KeyRevoked(_Event, frozen=True, kw_only=True):
    public: str
    by: str


class KeysExpired(_Event, frozen=True, kw_only=True):
    """Join keys whose time is over."""

    publics: tuple[str, ...]


# ── accounts ──────────────────────────────────────────────────────────────────────────────────────────────────


class AccountSet(_Event, frozen=True, kw_only=True):
    """Added or changed; the whole of it."""

    account: AccountInfo


class AccountRemoved(_Event, frozen=True, kw_only=True):
    name: str


class MemberSet(_Event, frozen=True, kw_only=True):
    """Added or changed; what they used stays."""

    member: MemberInfo


class MemberRemoved(_Event, frozen=True, kw_only=True):
    user: str
    account: str
    heir: str = ""
    """The account for which what they used goes on counting, as theirs; empty: it is forgotten."""


class QosSet(_Event, frozen=True, kw_only=True):
    qos: QosInfo


class QosRemoved(_Event, frozen=True, kw_only=True):
    name: str


class LimitSet(_Event, frozen=True, kw_only=True):
    limit: LimitInfo


class LimitRemoved(_Event, frozen=True, kw_only=True):
    holder: Holder
    name: str
    resource: str
    per_user: bool = False


class PeriodsBegan(_Event, frozen=True, kw_only=True):
    """The day, week and month that budgets count in began at these instants."""

    day_at: float
    week_at: float
    month_at: float


class HalfLifeSet(_Event, frozen=True, kw_only=True):
    """From now on usage decays so fast; None: it does not.  What was used until now has decayed as before."""

    half_life_s: float | None


# ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Audited(_Event, frozen=True, kw_only=True):
    """A line of the audit trail (`gq.model.audit.AuditEntry`); changes nothing else."""

    user: str
    uid: int | None = None
    origin: str = ""
    action: str = ""
    object: str = ""
    outcome: str = "done"
    detail: str = ""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


class RequestAnswered(_Event, frozen=True, kw_only=True):
    """A request that changed something got this answer (an encoded `ReplyBody`); the same id gets it again."""

    request_id: RequestId
    uid: int
    answer: bytes


class RequestsForgotten(_Event, frozen=True, kw_only=True):
    """All that were answered before ``before``."""

    before: float


Event = (
    JobSubmitted | JobHeld | JobReleased | JobUpdated | JobAllocated | PartPrepared | PartsReleased | PartWentLive
    | JobStarted | JobEnding | LaunchFailed | PartEmptied | PartStranded | JobRequeued | JobEnded | JobsForgotten
    | StepStarted | StepPartReceived | StepPartEnded | StepFinished
    | NodeRegistered | NodeLost | NodeDrained | NodeSetDown | NodeResumed | NodeBackedOff | NodeBackoffCleared
    | RequestAnswered | RequestsForgotten
    | NodeRemoved | KeyFileGone | KeyAdded | NodeJoined | KeyRevoked | KeysExpired | Audited
    | ArrayTaskLeft | ArrayTasksCancelled | ArrayThrottleSet | DependencyChanged | StartEstimated
    | AccountSet | AccountRemoved | MemberSet | MemberRemoved | QosSet | QosRemoved | LimitSet | LimitRemoved
    | PeriodsBegan | HalfLifeSet
)  # fmt: skip
