"""The durable facts, past tense.  They are the change log; `gqd.control.apply` is the only code that acts on them.

Every event carries all that its apply function needs: `fold(apply, events)` rebuilds the cluster.  A field is only
ever added, with a default; an event is never reused for another meaning.  Pure.
"""

from __future__ import annotations

from gq.model.account import NORMAL_QOS, AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gq.model.crontab import CronEntry
from gq.model.dependency import Dependency
from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, JobId, RequestId, StepId
from gq.model.job import ExitStatus, JobSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Inventory
from gq.model.reservation import Booking, OccurrenceState
from gq.model.resource import Grant
from gq.model.state import Outcome
from gq.model.step import StepLayout
from gqd.state.after import AfterEnding, Hold
from gqd.state.ask_event import AsksAnswered as AsksAnswered
from gqd.state.ask_event import JobAsked as JobAsked
from gqd.state.elastic_event import GpusAdded as GpusAdded
from gqd.state.elastic_event import GpusGivenUp as GpusGivenUp
from gqd.state.elastic_event import NodeAdded as NodeAdded
from gqd.state.elastic_event import NodesGoing as NodesGoing
from gqd.state.elastic_event import NodesLeft as NodesLeft
from gqd.state.elastic_event import ShrinkAccepted as ShrinkAccepted
from gqd.state.elastic_event import ShrinkAgreed as ShrinkAgreed
from gqd.state.elastic_event import ShrinkDecided as ShrinkDecided
from gqd.state.event_base import EventBase
from gqd.state.owed_order import OrderConfirmed as OrderConfirmed
from gqd.state.owed_order import OrderOwed as OrderOwed
from gqd.state.parked_event import JobParked as JobParked
from gqd.state.parked_event import JobParking as JobParking
from gqd.state.parked_event import JobUnparked as JobUnparked
from gqd.state.preemption_event import JobCaughtUp as JobCaughtUp
from gqd.state.preemption_event import JobCheckpointed as JobCheckpointed
from gqd.state.preemption_event import PreemptionDecided as PreemptionDecided
from gqd.state.preemption_event import PreemptionDropped as PreemptionDropped
from gqd.state.suspension_event import JobResumed as JobResumed
from gqd.state.suspension_event import JobSuspended as JobSuspended

# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────


class JobSubmitted(EventBase, frozen=True, kw_only=True):
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


class JobHeld(EventBase, frozen=True, kw_only=True):
    job_id: JobId
    hold: Hold
    reason: str = ""
    """The pending reason after failed launches."""
    why: str = ""
    """The reason in words."""


class JobReleased(EventBase, frozen=True, kw_only=True):
    job_id: JobId


class JobUpdated(EventBase, frozen=True, kw_only=True):
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


class ArrayTaskLeft(EventBase, frozen=True, kw_only=True):
    """A task leaves the array's record and is a job of its own from now on, pending like the record.

    It is about to start, or something is to be done to it alone.
    """

    array_job_id: JobId
    task: int
    job_id: JobId


class ArrayTasksCancelled(EventBase, frozen=True, kw_only=True):
    """Tasks that wait in the record never will start (`gq.model.tasks.pack_tasks`)."""

    array_job_id: JobId
    tasks: str
    why: str = ""
    reason: str = "None"
    """`gq.model.state.Reason`; ``DeadLine``: it was too late for them."""


class ArrayThrottleSet(EventBase, frozen=True, kw_only=True):
    array_job_id: JobId
    throttle: int | None
    is_auto: bool = False
    """As many tasks as there are idle GPUs: see `JobSpec.array_auto`."""


class DependencyChanged(EventBase, frozen=True, kw_only=True):
    """What the job still waits for; None: nothing any more."""

    job_id: JobId
    left: Dependency | None = None
    never: str = ""
    """Why it can never be met."""
    ready: str = ""
    """Of an array with ``aftercorr``: tasks that may start from now on (`gq.model.tasks.pack_tasks`)."""
    is_new: bool = False
    """Its owner asks for another one: what could start by the one before cannot by this."""


class StartEstimated(EventBase, frozen=True, kw_only=True):
    """What the waiting job was told first of when it will start; once before each attempt."""

    job_id: JobId
    estimate: FirstEstimate


class JobAllocated(EventBase, frozen=True, kw_only=True):
    """An adopted plan: the attempt holds these grants; the first is the batch node's.  PENDING → STARTING"""

    attempt_id: AttemptId
    grants: tuple[Grant, ...]
    billing: int = 0
    """Millionths of a weighted GPU that are billed while it runs."""
    slot: str = ""
    """It goes ahead of its turn: see `gqd.state.plan.Protected`."""
    reservation: str = ""
    """It runs in this one …"""
    occurrence: int = 0
    """… in this occurrence of it."""
    borrows: tuple[str, ...] = ()
    """Likewise as of `gqd.state.plan.Start`."""
    priority: int = 0
    """The priority that the job had in the queue."""


class PartPrepared(EventBase, frozen=True, kw_only=True):
    attempt_id: AttemptId
    node: str
    master_port: int = 0


class PartsReleased(EventBase, frozen=True, kw_only=True):
    """GO was decided for these nodes."""

    attempt_id: AttemptId
    nodes: tuple[str, ...]
    master_port: int


class PartWentLive(EventBase, frozen=True, kw_only=True):
    """The node acknowledged GO; the batch node: the script's process is alive."""

    attempt_id: AttemptId
    node: str


class JobStarted(EventBase, frozen=True, kw_only=True):
    """STARTING → RUNNING; ``at`` is the start by the node's clock, never before the allocation."""

    attempt_id: AttemptId
    master_port: int = 0


class JobEnding(EventBase, frozen=True, kw_only=True):
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
    lost_gpu_s: float = 0.0
    """Of one that gives way: what it had done and not saved."""


class LaunchFailed(EventBase, frozen=True, kw_only=True):
    """A node refused or was silent; it is left out until ``until``.  STARTING → COMPLETING, then PENDING again."""

    attempt_id: AttemptId
    node: str
    why: str
    is_job_fault: bool
    """The back-off is then this job's alone, and counts towards holding it; else the node is left out for all."""
    until: float
    reason: str = "LaunchFailed"


class PartEmptied(EventBase, frozen=True, kw_only=True):
    """Nothing of the attempt is left on the node; what it held there is free."""

    attempt_id: AttemptId
    node: str
    usage: Usage = Usage()


class PartStranded(EventBase, frozen=True, kw_only=True):
    """The node is lost or silent: the job no longer waits for it; what it held there stays withheld."""

    attempt_id: AttemptId
    node: str


class JobRequeued(EventBase, frozen=True, kw_only=True):
    """COMPLETING → PENDING.  ``counts``: the attempt had started (a restart); else it was a failed launch."""

    job_id: JobId
    counts: bool
    hold: Hold | None = None
    why: str = ""
    """One plain sentence: what ended a started attempt."""


class JobEnded(EventBase, frozen=True, kw_only=True):
    """→ ENDED, from COMPLETING with what `JobEnding` said, or from PENDING with what is said here."""

    job_id: JobId
    outcome: Outcome
    exit: ExitStatus | None = None
    reason: str = "None"
    why: str = ""
    failure_class: str = ""


class JobsForgotten(EventBase, frozen=True, kw_only=True):
    """Left memory; the database keeps them."""

    job_ids: tuple[JobId, ...]


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


class StepStarted(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    key: bytes
    layout: StepLayout


class StepPartReceived(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    node: str


class StepPartEnded(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    node: str
    exit: ExitStatus
    outcome: Outcome
    usage: Usage = Usage()


class StepFinished(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    exit: ExitStatus
    outcome: Outcome


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


class NodeRegistered(EventBase, frozen=True, kw_only=True):
    node: str
    address: str
    inventory: Inventory
    incarnation: str
    boot_id: str
    step_endpoint: str
    step_public_key: str = ""
    ticket_key: bytes = b""


class NodeLost(EventBase, frozen=True, kw_only=True):
    """Silent for too long; gets no jobs until it registers again."""

    node: str


class NodeDrained(EventBase, frozen=True, kw_only=True):
    """Gets no new jobs.  ``gpu``: only that one GPU is withheld."""

    node: str
    reason: str
    by: str
    gpu: int | None = None


class NodeSetDown(EventBase, frozen=True, kw_only=True):
    """By an administrator: no new jobs, and what runs there is ended as on a lost node."""

    node: str
    reason: str
    by: str


class NodeResumed(EventBase, frozen=True, kw_only=True):
    node: str
    gpu: int | None = None


class NodeBackedOff(EventBase, frozen=True, kw_only=True):
    """Left out of planning until ``until``, after ``failures`` launches in a row that it failed."""

    node: str
    until: float
    failures: int


class NodeBackoffCleared(EventBase, frozen=True, kw_only=True):
    node: str


class NodeRemoved(EventBase, frozen=True, kw_only=True):
    """No longer part of the cluster; its keys are void.  What it held was given up before (`PartEmptied`).

    A key of it that was pinned by hand is void, too, until `KeyFileGone`.
    """

    node: str
    reason: str
    by: str


class KeyFileGone(EventBase, frozen=True, kw_only=True):
    """The file with the key of a removed node is deleted: one that is put there now is a new one."""

    node: str


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


class KeyAdded(EventBase, frozen=True, kw_only=True):
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


class NodeJoined(EventBase, frozen=True, kw_only=True):
    """The token is used up, and this is the node's key from now on."""

    token: str
    node: str
    public: str
    is_login: bool
    address: str


class KeyRevoked(EventBase, frozen=True, kw_only=True):
    public: str
    by: str


class KeysExpired(EventBase, frozen=True, kw_only=True):
    """Join keys whose time is over."""

    publics: tuple[str, ...]


# ── accounts ──────────────────────────────────────────────────────────────────────────────────────────────────


class AccountSet(EventBase, frozen=True, kw_only=True):
    """Added or changed; the whole of it."""

    account: AccountInfo


class AccountRemoved(EventBase, frozen=True, kw_only=True):
    name: str


class MemberSet(EventBase, frozen=True, kw_only=True):
    """Added or changed; what they used stays."""

    member: MemberInfo


class MemberRemoved(EventBase, frozen=True, kw_only=True):
    user: str
    account: str
    heir: str = ""
    """The account for which what they used goes on counting, as theirs; empty: it is forgotten."""


class QosSet(EventBase, frozen=True, kw_only=True):
    qos: QosInfo


class QosRemoved(EventBase, frozen=True, kw_only=True):
    name: str


class LimitSet(EventBase, frozen=True, kw_only=True):
    limit: LimitInfo


class LimitRemoved(EventBase, frozen=True, kw_only=True):
    holder: Holder
    name: str
    resource: str
    per_user: bool = False


class PeriodsBegan(EventBase, frozen=True, kw_only=True):
    """The day, week and month that budgets count in began at these instants."""

    day_at: float
    week_at: float
    month_at: float


class HalfLifeSet(EventBase, frozen=True, kw_only=True):
    """From now on usage decays so fast; None: it does not.  What was used until now has decayed as before."""

    half_life_s: float | None


# ── reservations ──────────────────────────────────────────────────────────────────────────────────────────────


class ReservationSet(EventBase, frozen=True, kw_only=True):
    """Made or changed; the whole of it, but for its occurrences, which stay."""

    booking: Booking
    owner: str
    uid: int
    planned_until: float | None = None
    """See `gqd.state.reservation.Reservation`."""
    first_number: int = 1
    """Of a new one: of its first occurrence."""


class ReservationRemoved(EventBase, frozen=True, kw_only=True):
    """With occurrences that are not past, which end."""

    name: str


class _Kept(EventBase, frozen=True, kw_only=True):
    """What an occurrence keeps, and when."""

    name: str
    number: int
    begin_at: float
    end_at: float
    grants: tuple[Grant, ...]
    missing_gpus: int = 0
    why: str = ""


class OccurrencePlanned(_Kept, frozen=True, kw_only=True):
    """From now on this is kept; the number is the reservation's next."""


class OccurrenceChanged(_Kept, frozen=True, kw_only=True):
    """It is kept then, and this; the whole."""


class OccurrenceBegan(EventBase, frozen=True, kw_only=True):
    """PLANNED → ACTIVE"""

    name: str
    number: int


class OccurrenceEnded(EventBase, frozen=True, kw_only=True):
    """Nothing is kept by it any more; ``state`` says why."""

    name: str
    number: int
    state: OccurrenceState
    why: str = ""


class OccurrencesPassed(EventBase, frozen=True, kw_only=True):
    """The cron line named these instants, and nothing is planned for them: up to here it has been followed."""

    name: str
    until: float


# ── notices ───────────────────────────────────────────────────────────────────────────────────────────────────


class NoticeQueued(EventBase, frozen=True, kw_only=True):
    """This is to be told to that target; see `gqd.state.notice.Notice`."""

    notice_id: int
    user: str
    uid: int
    job_id: JobId | None = None
    on: str
    kind: str
    to: str = ""
    body: str


class NoticeDropped(EventBase, frozen=True, kw_only=True):
    """Too many wait for this user already: this one will not be told."""

    user: str
    job_id: JobId | None = None
    on: str
    kind: str


class NoticeCommandQueued(EventBase, frozen=True, kw_only=True):
    """Job ``by_job`` runs the notice's command; its end decides whether the notice was delivered."""

    notice_id: int
    by_job: JobId


class NoticeDelivered(EventBase, frozen=True, kw_only=True):
    """``by_job``: the job that ran the command."""

    notice_id: int
    by_job: JobId = JobId(0)


class NoticeFailed(EventBase, frozen=True, kw_only=True):
    """It was not delivered; it is tried again at ``next_at``, or (None) given up."""

    notice_id: int
    why: str
    next_at: float | None


class JobTold(EventBase, frozen=True, kw_only=True):
    """What is told of only once: of an array as a whole, or of an attempt."""

    job_id: JobId
    on: str
    attempt: int = 0


# ── crontabs ──────────────────────────────────────────────────────────────────────────────────────────────────


class CrontabSet(EventBase, frozen=True, kw_only=True):
    """Made or changed; the whole of it.  Entries that were in the one before go on as they were."""

    user: str
    uid: int
    text: str
    entries: tuple[CronEntry, ...]


class CrontabRemoved(EventBase, frozen=True, kw_only=True):
    user: str


class CronFired(EventBase, frozen=True, kw_only=True):
    """An entry was due at ``due_at``, and became this job; None: none, and ``why``.

    All due times up to then have been seen to: ``missed`` of them before it became no job.
    """

    user: str
    number: int
    due_at: float
    job_id: JobId | None = None
    why: str = ""
    missed: int = 0
    is_known: bool = False
    """The same was said of the time before: the same job is in the way."""


class CronRunEnded(EventBase, frozen=True, kw_only=True):
    """The last job of an entry is over; ``why``: how, unless it ended well."""

    user: str
    number: int
    job_id: JobId
    state: str
    why: str = ""


# ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Audited(EventBase, frozen=True, kw_only=True):
    """A line of the audit trail (`gq.model.audit.AuditEntry`); changes nothing else."""

    user: str
    uid: int | None = None
    origin: str = ""
    action: str = ""
    object: str = ""
    outcome: str = "done"
    detail: str = ""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


class RequestAnswered(EventBase, frozen=True, kw_only=True):
    """A request that changed something got this answer (an encoded `ReplyBody`); the same id gets it again."""

    request_id: RequestId
    uid: int
    answer: bytes


class RequestsForgotten(EventBase, frozen=True, kw_only=True):
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
    | ReservationSet | ReservationRemoved | OccurrencePlanned | OccurrenceChanged | OccurrenceBegan | OccurrenceEnded
    | OccurrencesPassed
    | CrontabSet | CrontabRemoved | CronFired | CronRunEnded
    | PreemptionDecided | PreemptionDropped | JobCheckpointed | JobCaughtUp | JobSuspended | JobResumed
    | JobParking | JobParked | JobUnparked | OrderOwed | OrderConfirmed
    | JobAsked | AsksAnswered
    | GpusAdded | ShrinkDecided | ShrinkAccepted | ShrinkAgreed | GpusGivenUp | NodeAdded | NodesGoing | NodesLeft
    | NoticeQueued | NoticeDropped | NoticeCommandQueued | NoticeDelivered | NoticeFailed | JobTold
)  # fmt: skip
