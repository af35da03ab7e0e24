"""Requests of clients to the controller, and the answers.

A client (DEALER) sends one frame, a `Request`; the controller (ROUTER) answers with one frame, a `Reply` that carries
the same ``request_id``.  A client that gets no answer sends the same bytes again: a request that changes something is
carried out once per ``request_id`` (remembered durably), and gets the same answer.  No message names its caller: the
listener takes the caller from the kernel's peer credentials, or from the key of the link.  Only for a key that is not
enrolled does a message name the caller, an `Introduction`, which needs a credential of MUNGE.
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
from gq.wire.explanation import Explanation as Explanation
from gq.wire.explanation import HeldResource as HeldResource
from gq.wire.explanation import Shortage as Shortage
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
    """Queue a job.  ``script`` is empty for an interactive job.  → `Submitted`"""

    spec: JobSpec
    script: bytes = b""
    environment: dict[str, str] = {}
    test_only: bool = False
    """Check and estimate the job without queuing it.  → `Tested`"""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A selection of jobs: all fields that are not empty must match.  States are Slurm's long words."""

    job_ids: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    tasks: dict[int, str] = {}
    """Array id → the selected tasks (`gq.model.tasks`); such an id is not in ``job_ids``."""


class ListJobs(_Body, frozen=True, kw_only=True):
    """List jobs that the controller has in memory (active, or ended within ``ended_job_keep``), by job id.  → `Jobs`

    Paged: ask again with ``after`` = the last id seen while ``more`` is true.  ``in_queue_order`` sorts in the queue's
    order (running jobs first, then pending jobs by position) and cannot be paged (``after`` must be 0).
    """

    filter: JobFilter = JobFilter()
    with_steps: bool = False
    after: int = 0
    limit: int = 2000
    in_queue_order: bool = False
    brief: bool = False
    """Fill only the fields in a line of `gqstat`; paths, sentences and priority, which cost most, are left empty."""


class QueryHistory(_Body, frozen=True, kw_only=True):
    """Query jobs from the database, active jobs included, by job id.  → `Jobs`, paged as in `ListJobs`"""

    filter: JobFilter = JobFilter()
    started_before: float | None = None
    ended_after: float | None = None
    with_steps: bool = True
    after: int = 0
    limit: int = 2000


class Explain(_Body, frozen=True, kw_only=True):
    """Explain why a job is pending, or how it ended.  → `Explanation`"""

    job_id: int
    task: int | None = None
    """The task of the array ``job_id``."""


class EstimateStarts(_Body, frozen=True, kw_only=True):
    """Estimate the starts of the selected pending jobs.  → `StartEstimates`"""

    filter: JobFilter = JobFilter()
    after: int = 0
    """Last job id of the previous answer."""
    limit: int = 1000


class WhatIf(_Body, frozen=True, kw_only=True):
    """Estimate the start and end of alternatives to a request, without queuing it.  → `Alternatives`"""

    spec: JobSpec


class QueryAccuracy(_Body, frozen=True, kw_only=True):
    """Query the errors of estimates for jobs that started since ``since``.  → `Accuracy`"""

    since: float
    until: float | None = None


class GetScript(_Body, frozen=True, kw_only=True):
    """Get the batch script of a job (owner and operators).  → `Script`"""

    job_id: int
    task: int | None = None
    """The task of the array ``job_id``."""


class WaitJobs(_Body, frozen=True, kw_only=True):
    """Wait until the jobs have reached a state, or ``timeout_s`` has passed (at most 30; the client asks again).  →
    `Waited`

    ``until``: ``started`` (RUNNING or later) or ``ended``.
    """

    job_ids: tuple[int, ...]
    """Job ids; an array's id stands for all of its tasks."""
    tasks: dict[int, str] = {}
    """Tasks of arrays as in `JobFilter`."""
    until: str = "ended"
    wait_any: bool = False
    timeout_s: float = 25.0


class CancelJobs(_Body, frozen=True, kw_only=True):
    """Cancel jobs, or signal them.  → `JobsDone`

    ``signum`` None cancels; else the signal goes to ``scope`` of running jobs: ``steps``, ``batch`` or ``all``.  Ids of
    unknown or ended jobs in the filter are reported in ``skipped``, which is no error.
    """

    filter: JobFilter
    signum: Signum | None = None
    scope: str = "all"


class SignalStep(_Body, frozen=True, kw_only=True):
    """Signal one step; ``signum`` None ends the step (TERM, then KILL).  → `Done`"""

    job_id: int
    step: int
    signum: Signum | None = None
    task: int | None = None
    """The task of the array ``job_id``."""


class HoldJobs(_Body, frozen=True, kw_only=True):
    """Hold pending jobs.  → `JobsDone`"""

    job_ids: tuple[int, ...]
    tasks: dict[int, str] = {}
    """Tasks of arrays as in `JobFilter`."""


class ReleaseJobs(_Body, frozen=True, kw_only=True):
    """Release held jobs.  → `JobsDone`"""

    job_ids: tuple[int, ...]
    tasks: dict[int, str] = {}
    """Tasks of arrays as in `JobFilter`."""


class RequeueJobs(_Body, frozen=True, kw_only=True):
    """End the attempt and queue the job again, whatever the job's ``requeue``.  → `JobsDone`"""

    job_ids: tuple[int, ...]
    tasks: dict[int, str] = {}
    """Tasks of arrays as in `JobFilter`."""


class UpdateJob(_Body, frozen=True, kw_only=True):
    """Change a job; None leaves a field.  Resources, partition, begin and nice can change only while pending.  → `Done`

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
    """Tasks of the array ``job_id``; a changed task that differs from the others leaves the array's record."""
    account: str | None = None
    qos: str | None = None
    priority: Count | None = None
    """A priority that replaces the sum of the factors (operators)."""
    clear_priority: bool = False
    """Compute the priority from the factors again (operators)."""
    dependency: Dependency | None = None
    clear_dependency: bool = False
    deadline_at: float | None = None
    """0 removes the deadline."""
    array_throttle: Count | None = None
    """Maximum number of the array's tasks that run at once; 0 removes the maximum."""
    array_auto: bool = False
    """Replace the throttle by an automatic one, which follows the idle GPUs."""
    reservation: str | None = None
    """Empty: remove the reservation."""


class NotifyJob(_Body, frozen=True, kw_only=True):
    """Write a line to the job's standard error.  → `Done`"""

    job_id: int
    text: str
    task: int | None = None
    """The task of the array ``job_id``."""


class KeepAlive(_Body, frozen=True, kw_only=True):
    """Report that the client of an interactive job is alive.  → `Done`

    The client sends it every 10 s; after 60 s without it the job is cancelled.
    """

    job_id: int


class EndInteractive(_Body, frozen=True, kw_only=True):
    """End an interactive job with the exit code of its client.  → `Done`"""

    job_id: int
    exit_code: Count = 0


class CreateStep(_Body, frozen=True, kw_only=True):
    """Create a step in a running allocation, which may wait for resources of other steps.  → `StepCreated`

    ``wait_s``: how long the controller may hold the answer (≤ 30); then it refuses with ``step_waits`` and the client
    asks again under a new request id.
    """

    job_id: int
    step: StepRequest
    wait_s: float = 25.0


class AccessLog(_Body, frozen=True, kw_only=True):
    """Get the location of a job's output and the means to read it from its node.  → `LogAccess`"""

    job_id: int
    stream: str = "output"
    """``output`` or ``error``."""
    task: int | None = None
    """The task of the array ``job_id``."""


class GetJobEnvironment(_Body, frozen=True, kw_only=True):
    """Get everything that `gqalloc` needs for the environment of a running interactive job.  → `JobEnvironment`"""

    job_id: int


class ListNodes(_Body, frozen=True, kw_only=True):
    """List nodes by name; no names: all nodes.  → `Nodes`"""

    names: tuple[str, ...] = ()


class GetCluster(_Body, frozen=True, kw_only=True):
    """Get the summary of the cluster.  → `Cluster`"""


class UpdateNodes(_Body, frozen=True, kw_only=True):
    """Drain, resume or set down nodes; the actions ``drain`` and ``down`` need a reason.  → `Done`

    ``gpu`` drains or resumes one GPU of (exactly one) node instead of the node.
    """

    names: tuple[str, ...]
    action: str
    reason: str = ""
    gpu: int | None = None


class Ping(_Body, frozen=True, kw_only=True):
    """Check that the controller answers.  → `Done`"""


class WhoAmI(_Body, frozen=True, kw_only=True):
    """Get the caller's identity as the controller sees it.  → `Identity`"""


class RemoveNode(_Body, frozen=True, kw_only=True):
    """Remove a node for good: its key is revoked at once, and its attempts end as on a lost node.  → `Done`"""

    name: str
    reason: str = ""


class SubmitChain(_Body, frozen=True, kw_only=True):
    """Queue jobs each of which starts after the previous job succeeded; all are queued or none.  → `ChainSubmitted`

    A stage's own dependencies apply in addition.
    """

    stages: tuple[Submit, ...]


class ListPriorities(_Body, frozen=True, kw_only=True):
    """List pending jobs and the points of their priority, highest first.  → `Priorities`, paged by ``skip``"""

    filter: JobFilter = JobFilter()
    skip: int = 0
    limit: int = 2000


class ReloadConfig(_Body, frozen=True, kw_only=True):
    """Read gq.toml again, as SIGHUP does; a file with an error is refused and changes nothing.  → `Done`"""


class CheckConfig(_Body, frozen=True, kw_only=True):
    """Report what would change if `text` were gq.toml, and change nothing; refuse an error.  → `Done`"""

    text: str
    path: str
    """Path of the file that the client read, for messages."""


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
    """Name the user whose key this link has proved, with a MUNGE credential.  → `Done`

    Not one of `RequestBody`: only the tcp listener for clients accepts it, and never passes it on.
    """

    user: str
    """The caller's name on its own host; the credential has only the uid."""
    credential: str
    """MUNGE credential over `gq.connection.munge.payload_of`: the public key of this very link."""


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────


class Submitted(_Body, frozen=True, kw_only=True):
    """A queued job; ``note`` names the requested features that were left out because the job can run without them."""

    job_id: int
    note: str = ""


class Tested(_Body, frozen=True, kw_only=True):
    """The job could be queued; with the estimated start and nodes, as far as known."""

    start_at: float | None = None
    nodes: tuple[str, ...] = ()
    why: str = ""


class Jobs(_Body, frozen=True, kw_only=True):
    jobs: tuple[JobInfo, ...]
    more: bool = False


class StartEstimates(_Body, frozen=True, kw_only=True):
    estimates: tuple[StartEstimate, ...]
    made_at: float = 0.0
    more: bool = False


class Alternatives(_Body, frozen=True, kw_only=True):
    """Alternatives to a request, the first of which is the unchanged request."""

    alternatives: tuple[Alternative, ...]
    made_at: float = 0.0
    is_cut_short: bool = False
    """The search took too long, so that some alternatives are missing."""


class Accuracy(_Body, frozen=True, kw_only=True):
    lines: tuple[AccuracyInfo, ...]


class Script(_Body, frozen=True, kw_only=True):
    data: bytes


class Waited(_Body, frozen=True, kw_only=True):
    """The end of a wait with the state of each job; ``is_done`` false: the timeout passed first."""

    is_done: bool
    jobs: tuple[JobInfo, ...]


class JobsDone(_Body, frozen=True, kw_only=True):
    """The result of a request about several jobs; ``tasks`` has the affected tasks without ids of their own, as (array
    id, tasks).

    ``refused`` has (job id, sentence) for jobs that exist but may not or cannot be changed; ``labels`` has the users'
    name of array tasks among the refused jobs: (job id, ``7_3``).
    """

    job_ids: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    tasks: tuple[tuple[int, str], ...] = ()
    labels: tuple[tuple[int, str], ...] = ()


class Done(_Body, frozen=True, kw_only=True):
    text: str = ""


class StepCreated(_Body, frozen=True, kw_only=True):
    """A new step; ``key`` authenticates the client to the step listeners of these nodes for this step."""

    job_id: int
    attempt: int
    step: int
    key: bytes
    layout: StepLayout
    nodes: tuple[StepNode, ...]


class LogAccess(_Body, frozen=True, kw_only=True):
    """Access to a job's output: ``path`` as on the node; a client that cannot read it there uses ``endpoint`` and
    ``ticket``.

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
    """When the attempt began: a file at ``path`` that was not modified since is not the attempt's."""


class JobEnvironment(_Body, frozen=True, kw_only=True):
    job_id: int
    variables: dict[str, str]
    chdir: str
    use_interactive_step: bool = False
    """The setting of this name in the controller's gq.toml."""


class Nodes(_Body, frozen=True, kw_only=True):
    nodes: tuple[NodeInfo, ...]


class Cluster(_Body, frozen=True, kw_only=True):
    info: ClusterInfo


class Identity(_Body, frozen=True, kw_only=True):
    """The caller; ``role``: ``user``, ``operator`` or ``administrator``; ``origin`` as in `AuditEntry`."""

    user: str
    uid: int
    role: str
    origin: str
    cluster: str
    now: float
    """The controller's clock, with which clients can detect skew."""
    client_endpoint: str = ""
    """Endpoint for clients outside the cluster (``tcp://ADDRESS:PORT``); empty: the controller has none."""
    server_key: str = ""
    """The controller's public key (Z85), which clients pin."""


class ChainSubmitted(_Body, frozen=True, kw_only=True):
    """Ids of the queued jobs in the order of the stages; ``note`` as in `Submitted`."""

    job_ids: tuple[int, ...]
    note: str = ""


class Priorities(_Body, frozen=True, kw_only=True):
    jobs: tuple[PriorityInfo, ...]
    weights: dict[str, float] = {}
    """Weights of the factors in gq.toml."""
    more: bool = False


class Refused(_Body, frozen=True, kw_only=True):
    """The request was understood and refused; see ``gq.errors.Refusal``."""

    code: str
    message: str
    hint: str = ""
    offers: tuple[Offer, ...] = ()
    """For a reservation request: reservations that are possible instead."""


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
    """The head of a `Request`, which the controller can answer even if a newer client's body is unknown."""

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
    """Encode a request; the client sends the same bytes again until it gets an answer."""
    return REQUESTS.encode(Request(WIRE_VERSION, request_id, body))


def introduction(request_id: RequestId, body: Introduce) -> bytes:
    """Encode an introduction for one try, since MUNGE accepts a credential only once."""
    return INTRODUCTIONS.encode(Introduction(WIRE_VERSION, request_id, body))


def reply(request_id: RequestId, body: ReplyBody) -> bytes:
    return REPLIES.encode(Reply(WIRE_VERSION, request_id, body))
