"""What a client asks of the controller, and what it answers.

A client (DEALER) sends one frame, a `Request`; the controller (ROUTER) answers with one frame, a `Reply` that
carries the same ``request_id``.  A client that heard nothing sends the same bytes again: a request that changes
something is done once per ``request_id`` (remembered durably), and answered alike.  Who asks is never in the
message: the door tells, from the kernel's peer credentials.  Only of a key that nobody enrolled is it said by a
message, an `Introduction`, and then MUNGE must vouch for it.
"""

from __future__ import annotations

import msgspec

from gq.model.account import PriorityInfo
from gq.model.dependency import Dependency
from gq.model.estimate import AccuracyInfo, Alternative, StartEstimate
from gq.model.ids import RequestId
from gq.model.job import JobInfo, JobSpec, Nice, Signum
from gq.model.node import ClusterInfo, NodeInfo
from gq.model.reservation import Offer
from gq.model.resource import Count, ResourceRequest
from gq.model.step import StepLayout, StepNode, StepRequest
from gq.wire.accounting import Accounts as Accounts
from gq.wire.accounting import ListAccounts as ListAccounts
from gq.wire.accounting import ListShares as ListShares
from gq.wire.accounting import RemoveAccount as RemoveAccount
from gq.wire.accounting import RemoveLimit as RemoveLimit
from gq.wire.accounting import RemoveMember as RemoveMember
from gq.wire.accounting import RemoveQos as RemoveQos
from gq.wire.accounting import SetAccount as SetAccount
from gq.wire.accounting import SetLimit as SetLimit
from gq.wire.accounting import SetMember as SetMember
from gq.wire.accounting import SetQos as SetQos
from gq.wire.accounting import Shares as Shares
from gq.wire.audit import AuditTrail as AuditTrail
from gq.wire.audit import QueryAudit as QueryAudit
from gq.wire.codec import WIRE_VERSION, Codec
from gq.wire.crontab import CronJob as CronJob
from gq.wire.crontab import Crontab as Crontab
from gq.wire.crontab import Crontabs as Crontabs
from gq.wire.crontab import GetCrontab as GetCrontab
from gq.wire.crontab import ListCrontabs as ListCrontabs
from gq.wire.crontab import RemoveCrontab as RemoveCrontab
from gq.wire.crontab import SetCrontab as SetCrontab
from gq.wire.key import AddKey as AddKey
from gq.wire.key import CreateToken as CreateToken
from gq.wire.key import Keys as Keys
from gq.wire.key import ListKeys as ListKeys
from gq.wire.key import RevokeKey as RevokeKey
from gq.wire.key import TokenCreated as TokenCreated
from gq.wire.notice import Events as Events
from gq.wire.notice import ListNotices as ListNotices
from gq.wire.notice import Notices as Notices
from gq.wire.notice import QueryEvents as QueryEvents
from gq.wire.preemption import CheckpointDone as CheckpointDone
from gq.wire.preemption import GiveUpGpus as GiveUpGpus
from gq.wire.preemption import ResumeDone as ResumeDone
from gq.wire.reservation import Bookings as Bookings
from gq.wire.reservation import DeleteReservation as DeleteReservation
from gq.wire.reservation import EditOccurrence as EditOccurrence
from gq.wire.reservation import EndReservation as EndReservation
from gq.wire.reservation import ListReservations as ListReservations
from gq.wire.reservation import QueryBookings as QueryBookings
from gq.wire.reservation import Reservations as Reservations
from gq.wire.reservation import Reserved as Reserved
from gq.wire.reservation import SetReservation as SetReservation
from gq.wire.reservation import SkipOccurrence as SkipOccurrence
from gq.wire.steering import AnswerAsks as AnswerAsks
from gq.wire.steering import AskJob as AskJob
from gq.wire.steering import Asks as Asks
from gq.wire.steering import Extended as Extended
from gq.wire.steering import ExtendJob as ExtendJob
from gq.wire.steering import ListAsks as ListAsks
from gq.wire.steering import ResumeJobs as ResumeJobs
from gq.wire.steering import SuspendJobs as SuspendJobs


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


class Submit(_Body, frozen=True, kw_only=True):
    """Queue a job.  ``script`` empty for an interactive one.  → `Submitted`"""

    spec: JobSpec
    script: bytes = b""
    environment: dict[str, str] = {}
    test_only: bool = False
    """Check and estimate, queue nothing.  → `Tested`"""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs; all that are given must hold; empty means all.  States are Slurm's long words."""

    job_ids: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    tasks: dict[int, str] = {}
    """Array id → which of its tasks (`gq.model.tasks`); the id is not in ``job_ids`` then."""


class ListJobs(_Body, frozen=True, kw_only=True):
    """Jobs that the controller has in memory (active, or ended within ``ended_job_keep``), by job id.  → `Jobs`

    Paged: ask again with ``after`` = the last id seen while ``more`` is true.  ``in_queue_order`` sorts as the
    queue stands (running first, then pending by place) and cannot be paged (``after`` must be 0).
    """

    filter: JobFilter = JobFilter()
    with_steps: bool = False
    after: int = 0
    limit: int = 2000
    in_queue_order: bool = False
    brief: bool = False
    """Only what a line of the queue shows; what takes long to work out (paths, sentences, priority) is left empty."""


class QueryHistory(_Body, frozen=True, kw_only=True):
    """Jobs from the database, active ones included, by job id.  → `Jobs` (paged likewise)"""

    filter: JobFilter = JobFilter()
    started_before: float | None = None
    ended_after: float | None = None
    with_steps: bool = True
    after: int = 0
    limit: int = 2000


class Explain(_Body, frozen=True, kw_only=True):
    """Why does this job wait (or how did it end).  → `Explanation`"""

    job_id: int
    task: int | None = None
    """Of the array ``job_id``."""


class EstimateStarts(_Body, frozen=True, kw_only=True):
    """When the waiting jobs of the filter are expected to start.  → `StartEstimates`"""

    filter: JobFilter = JobFilter()
    after: int = 0
    """Of the answer before, its last job id."""
    limit: int = 1000


class WhatIf(_Body, frozen=True, kw_only=True):
    """What could be asked for instead, and when each would start and end.  Nothing is queued.  → `Alternatives`"""

    spec: JobSpec


class QueryAccuracy(_Body, frozen=True, kw_only=True):
    """How wrong were the estimates for jobs that started since then.  → `Accuracy`"""

    since: float
    until: float | None = None


class GetScript(_Body, frozen=True, kw_only=True):
    """The batch script of a job (owner and operators).  → `Script`"""

    job_id: int
    task: int | None = None
    """Of the array ``job_id``."""


class WaitJobs(_Body, frozen=True, kw_only=True):
    """Answer when the jobs have come so far, or after ``timeout_s`` (at most 30; the client asks again).  → `Waited`

    ``until``: ``started`` (RUNNING or further) or ``ended``.
    """

    job_ids: tuple[int, ...]
    """An array's id means all of its tasks."""
    tasks: dict[int, str] = {}
    """As in `JobFilter`."""
    until: str = "ended"
    wait_any: bool = False
    timeout_s: float = 25.0


class CancelJobs(_Body, frozen=True, kw_only=True):
    """Cancel jobs, or signal them.  → `JobsDone`

    ``signum`` None cancels; else the signal goes to ``scope`` of running jobs: ``steps``, ``batch`` or ``all``.
    Ids given by number and unknown or ended are reported in ``skipped``, which is no error.
    """

    filter: JobFilter
    signum: Signum | None = None
    scope: str = "all"


class SignalStep(_Body, frozen=True, kw_only=True):
    """Signal one step; ``signum`` None ends it (TERM, then KILL).  → `Done`"""

    job_id: int
    step: int
    signum: Signum | None = None
    task: int | None = None
    """Of the array ``job_id``."""


class HoldJobs(_Body, frozen=True, kw_only=True):
    """→ `JobsDone`"""

    job_ids: tuple[int, ...]
    tasks: dict[int, str] = {}
    """As in `JobFilter`."""


class ReleaseJobs(_Body, frozen=True, kw_only=True):
    """→ `JobsDone`"""

    job_ids: tuple[int, ...]
    tasks: dict[int, str] = {}
    """As in `JobFilter`."""


class RequeueJobs(_Body, frozen=True, kw_only=True):
    """End the attempt and queue the job again, whatever its ``requeue`` says.  → `JobsDone`"""

    job_ids: tuple[int, ...]
    tasks: dict[int, str] = {}
    """As in `JobFilter`."""


class UpdateJob(_Body, frozen=True, kw_only=True):
    """Change a job; None leaves a field.  Resources, partition, begin and nice only while pending.  → `Done`

    ``time_limit_s`` 0 means unlimited; ordinary users may only lower it once the job runs.
    """

    job_id: int
    name: str | None = None
    partition: str | None = None
    time_limit_s: Count | None = None
    begin_at: float | None = None
    nice: Nice | None = None
    comment: str | None = None
    requeue: bool | None = None
    requeue_on: tuple[str, ...] | None = None
    max_requeue: Count | None = None
    resources: ResourceRequest | None = None
    """Replaces the whole request."""
    tasks: str = ""
    """Only these tasks of the array ``job_id``; what one of them changes it leaves the array's record for."""
    account: str | None = None
    qos: str | None = None
    priority: Count | None = None
    """Instead of what the factors add up to (operators)."""
    clear_priority: bool = False
    """By the factors again (operators)."""
    dependency: Dependency | None = None
    clear_dependency: bool = False
    deadline_at: float | None = None
    """0: none any more."""
    array_throttle: Count | None = None
    """Of an array; 0: none any more."""
    array_auto: bool = False
    """Instead of a number: as many tasks at once as there are idle GPUs."""
    reservation: str | None = None
    """Empty: in none any more."""


class NotifyJob(_Body, frozen=True, kw_only=True):
    """Write a line into the job's standard error.  → `Done`"""

    job_id: int
    text: str
    task: int | None = None
    """Of the array ``job_id``."""


class KeepAlive(_Body, frozen=True, kw_only=True):
    """The client that holds an interactive job is still there.  → `Done`

    Sent every 10 s; after 60 s of silence the job is cancelled.
    """

    job_id: int


class EndInteractive(_Body, frozen=True, kw_only=True):
    """The client of an interactive job is done with it, with this exit code.  → `Done`"""

    job_id: int
    exit_code: Count = 0


class CreateStep(_Body, frozen=True, kw_only=True):
    """Make a step in a running allocation.  Waits for resources that other steps hold.  → `StepCreated`

    ``wait_s``: how long the controller may hold the answer (≤ 30); then it refuses with ``step_waits`` and the
    client asks again under a new request id.
    """

    job_id: int
    step: StepRequest
    wait_s: float = 25.0


class AccessLog(_Body, frozen=True, kw_only=True):
    """Where the output of a job is and how to read it from its node.  → `LogAccess`"""

    job_id: int
    stream: str = "output"
    """``output`` or ``error``."""
    task: int | None = None
    """Of the array ``job_id``."""


class GetJobEnvironment(_Body, frozen=True, kw_only=True):
    """Everything that `gqalloc` needs to make the environment of a running interactive job.  → `JobEnvironment`"""

    job_id: int


class ListNodes(_Body, frozen=True, kw_only=True):
    """→ `Nodes`"""

    names: tuple[str, ...] = ()


class GetCluster(_Body, frozen=True, kw_only=True):
    """→ `Cluster`"""


class UpdateNodes(_Body, frozen=True, kw_only=True):
    """``action``: ``drain``, ``resume`` or ``down``; ``drain`` and ``down`` need a reason.  → `Done`

    ``gpu`` drains or resumes one GPU of (exactly one) node instead of the node.
    """

    names: tuple[str, ...]
    action: str
    reason: str = ""
    gpu: int | None = None


class Ping(_Body, frozen=True, kw_only=True):
    """→ `Done`"""


class WhoAmI(_Body, frozen=True, kw_only=True):
    """Who the controller takes the caller for.  → `Identity`"""


class RemoveNode(_Body, frozen=True, kw_only=True):
    """Take a node out for good: its key is void at once, what ran there ends as on a lost node.  → `Done`"""

    name: str
    reason: str = ""


class SubmitChain(_Body, frozen=True, kw_only=True):
    """Queue jobs of which each begins when the one before has ended well; all of them or none.  → `ChainSubmitted`

    What their own dependencies say holds besides.
    """

    stages: tuple[Submit, ...]


class ListPriorities(_Body, frozen=True, kw_only=True):
    """Pending jobs and how their priority comes about, highest first.  → `Priorities`, paged by ``skip``"""

    filter: JobFilter = JobFilter()
    skip: int = 0
    limit: int = 2000


class ReloadConfig(_Body, frozen=True, kw_only=True):
    """Read gq.toml again, as SIGHUP does.  A file that is wrong changes nothing, and is refused.  → `Done`"""


class CheckConfig(_Body, frozen=True, kw_only=True):
    """Say what would change if `text` were gq.toml; nothing changes.  A wrong text is refused.  → `Done`"""

    text: str
    path: str
    """Where it was read, for messages."""


RequestBody = (
    Submit | ListJobs | QueryHistory | Explain | GetScript | WaitJobs | CancelJobs | SignalStep | HoldJobs
    | ReleaseJobs | RequeueJobs | UpdateJob | NotifyJob | ExtendJob | SuspendJobs | ResumeJobs
    | AskJob | AnswerAsks | ListAsks | CheckpointDone | ResumeDone | KeepAlive | EndInteractive | CreateStep | AccessLog
    | GetJobEnvironment | ListNodes | GetCluster | UpdateNodes | Ping
    | WhoAmI | RemoveNode | CreateToken | AddKey | ListKeys | RevokeKey | QueryAudit
    | SubmitChain | SetAccount | RemoveAccount | SetMember | RemoveMember | SetQos | RemoveQos | SetLimit | RemoveLimit
    | ListAccounts | ListPriorities | ListShares | ReloadConfig | CheckConfig | EstimateStarts | WhatIf
    | QueryAccuracy
    | SetReservation | EditOccurrence | SkipOccurrence | EndReservation | DeleteReservation | ListReservations
    | QueryBookings | SetCrontab | GetCrontab | RemoveCrontab | ListCrontabs
    | QueryEvents | ListNotices | GiveUpGpus
)  # fmt: skip


class Introduce(_Body, frozen=True, kw_only=True):
    """Whose key this link has proved, where MUNGE says so.  → `Done`

    Not one of `RequestBody`: only the tcp door for clients takes it, and nothing behind the door ever sees it.
    """

    user: str
    """The caller's name on its own host; the credential says only the uid."""
    credential: str
    """Of MUNGE, over the words of `gq.connection.munge.payload_of`: the public key of this very link."""


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────


class Submitted(_Body, frozen=True, kw_only=True):
    """``note``: of what was asked for and could be left out, what is left out."""

    job_id: int
    note: str = ""


class Tested(_Body, frozen=True, kw_only=True):
    """The job could be queued; when and where it would start, as far as that is known."""

    start_at: float | None = None
    nodes: tuple[str, ...] = ()
    why: str = ""


class Jobs(_Body, frozen=True, kw_only=True):
    jobs: tuple[JobInfo, ...]
    more: bool = False


class HeldResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources that a running job or a reservation holds on the nodes that a waiting job may use."""

    job_id: int | None = None
    """None: a reservation keeps it, and no job uses it."""
    user: str = ""
    reservation: str = ""
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0
    ends_at: float | None = None
    """None: no time limit says when it ends."""


class Shortage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resource that a waiting job lacks; amounts of memory are in MiB."""

    resource: str
    """``GPUs``, ``CPUs``, ``memory``, ``idle nodes``, or the name of a generic resource."""
    wanted: int
    free: int
    """On the nodes that the job may use, whether or not in the right places."""
    is_fragmented: bool = False
    selection: str = ""
    """The options that leave nodes of the partition out: ``--constraint=rack=r2``."""
    nodes: int = 0
    """Nodes that are up and meet the selection; counted only where there is one, as are the next two."""
    idle_nodes: int = 0
    free_elsewhere: int = 0
    holders: tuple[HeldResource, ...] = ()


class Explanation(_Body, frozen=True, kw_only=True):
    """Why a job stands where it stands.

    ``why`` is the sentence with numbers, ``facts`` the same one fact at a time, ``hint`` one change that would help,
    ``blockers`` the ids of the jobs that hold what is missing, ``shortage`` the numbers of ``why``.
    """

    job_id: int
    state: str
    reason: str
    why: str
    hint: str = ""
    blockers: tuple[int, ...] = ()
    expected_start_at: float | None = None
    facts: tuple[str, ...] = ()
    shortage: Shortage | None = None


class StartEstimates(_Body, frozen=True, kw_only=True):
    estimates: tuple[StartEstimate, ...]
    made_at: float = 0.0
    more: bool = False


class Alternatives(_Body, frozen=True, kw_only=True):
    """The first is as it was asked."""

    alternatives: tuple[Alternative, ...]
    made_at: float = 0.0
    is_cut_short: bool = False
    """Not everything was tried: the search took too long."""


class Accuracy(_Body, frozen=True, kw_only=True):
    lines: tuple[AccuracyInfo, ...]


class Script(_Body, frozen=True, kw_only=True):
    data: bytes


class Waited(_Body, frozen=True, kw_only=True):
    """``is_done`` false: the time ran out.  ``jobs`` tells how each stands."""

    is_done: bool
    jobs: tuple[JobInfo, ...]


class JobsDone(_Body, frozen=True, kw_only=True):
    """``tasks``: those that had no id of their own, as (array id, which).

    ``refused`` holds (job id, sentence) pairs of jobs that exist but may not or cannot be changed; ``labels`` says of
    those among them that are tasks of arrays what people call them: (job id, ``7_3``).
    """

    job_ids: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    tasks: tuple[tuple[int, str], ...] = ()
    labels: tuple[tuple[int, str], ...] = ()


class Done(_Body, frozen=True, kw_only=True):
    text: str = ""


class StepCreated(_Body, frozen=True, kw_only=True):
    """``key`` opens the step doors of these nodes for this step."""

    job_id: int
    attempt: int
    step: int
    key: bytes
    layout: StepLayout
    nodes: tuple[StepNode, ...]


class LogAccess(_Body, frozen=True, kw_only=True):
    """``path`` as the node sees it; where the client cannot read it there, it connects to ``endpoint`` with ``ticket``.

    ``state`` is the job's long word at this moment; ``path`` is empty while the job waits for its first start.
    """

    job_id: int
    attempt: int
    state: str
    node: str = ""
    path: str = ""
    endpoint: str = ""
    public_key: str = ""
    ticket: bytes = b""
    exit_code: int | None = None
    signal: int | None = None
    allocated_at: float | None = None
    """When the attempt began: a file of that name that was not touched since is another's."""


class JobEnvironment(_Body, frozen=True, kw_only=True):
    job_id: int
    variables: dict[str, str]
    chdir: str
    use_interactive_step: bool = False
    """The setting of that name in the controller's gq.toml."""


class Nodes(_Body, frozen=True, kw_only=True):
    nodes: tuple[NodeInfo, ...]


class Cluster(_Body, frozen=True, kw_only=True):
    info: ClusterInfo


class Identity(_Body, frozen=True, kw_only=True):
    """``role``: ``user``, ``operator`` or ``administrator``.  ``origin`` as in `AuditEntry`."""

    user: str
    uid: int
    role: str
    origin: str
    cluster: str
    now: float
    """The controller's clock, so that skew can be seen."""
    client_endpoint: str = ""
    """Where clients outside the cluster connect (``tcp://ADDRESS:PORT``); empty: nowhere."""
    server_key: str = ""
    """The controller's public key (Z85), for them to pin."""


class ChainSubmitted(_Body, frozen=True, kw_only=True):
    """In the order of the stages.  ``note`` as in `Submitted`."""

    job_ids: tuple[int, ...]
    note: str = ""


class Priorities(_Body, frozen=True, kw_only=True):
    jobs: tuple[PriorityInfo, ...]
    weights: dict[str, float] = {}
    """Of the factors, as gq.toml says."""
    more: bool = False


class Refused(_Body, frozen=True, kw_only=True):
    """The request was understood and refused; see ``gq.errors.Refusal``."""

    code: str
    message: str
    hint: str = ""
    offers: tuple[Offer, ...] = ()
    """Of a reservation: what could be had instead."""


ReplyBody = (
    Submitted | Tested | Jobs | Explanation | Script | Waited | JobsDone | Done | StepCreated | LogAccess
    | JobEnvironment | Nodes | Cluster | Refused | Identity | TokenCreated | Keys | AuditTrail
    | ChainSubmitted | Accounts | Priorities | Shares | StartEstimates | Alternatives | Extended | Asks | Accuracy
    | Reserved | Reservations | Bookings | Crontab | Crontabs
    | Events | Notices
)  # fmt: skip


# ── envelopes ─────────────────────────────────────────────────────────────────────────────────────────────────


class Request(msgspec.Struct, frozen=True, array_like=True):
    version: int
    request_id: RequestId
    body: RequestBody


class Reply(msgspec.Struct, frozen=True, array_like=True):
    version: int
    request_id: RequestId
    body: ReplyBody


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """A `Request` whose body is an `Introduce`."""

    version: int
    request_id: RequestId
    body: Introduce


class RequestHead(msgspec.Struct, frozen=True, array_like=True):
    """Only the head of a `Request`: what can still be answered when the body is unknown (a newer client's)."""

    version: int
    request_id: RequestId


REQUEST_ID_BYTES = 16
MAX_SCRIPT_BYTES = 4 * 1024 * 1024
MAX_INTRODUCTION_BYTES = 4096
REQUESTS: Codec[Request] = Codec(Request)
INTRODUCTIONS: Codec[Introduction] = Codec(Introduction, max_bytes=MAX_INTRODUCTION_BYTES)
REQUEST_HEADS: Codec[RequestHead] = Codec(RequestHead)
REPLIES: Codec[Reply] = Codec(Reply, max_bytes=64 * 1024 * 1024)


def request(request_id: RequestId, body: RequestBody) -> bytes:
    """The bytes of a request, to be sent as they are as often as needed."""
    return REQUESTS.encode(Request(WIRE_VERSION, request_id, body))


def introduction(request_id: RequestId, body: Introduce) -> bytes:
    """Good for one try: the same credential is not taken twice."""
    return INTRODUCTIONS.encode(Introduction(WIRE_VERSION, request_id, body))


def reply(request_id: RequestId, body: ReplyBody) -> bytes:
    return REPLIES.encode(Reply(WIRE_VERSION, request_id, body))
