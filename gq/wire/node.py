"""Reports of nodes to the controller and orders of the controller to nodes.

A node (DEALER) is connected to the controller's node listener (ROUTER); one frame is one message.  Both sides repeat
messages until they are acknowledged, so every order and every report is idempotent:

* **Orders** carry `(job_id, attempt)`.  The controller keeps an order until a report shows that it was received;
    a node that receives an order again reports its state again.
* **Reports** carry a sequence number of this incarnation of the node daemon; the controller acknowledges a report
    *after* it is on disk, and the node repeats unacknowledged reports.  The node's durable state is in its spool.
"""

from __future__ import annotations

import msgspec

from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus, SignalSpec, Usage
from gq.model.node import GpuReading, Inventory
from gq.model.resource import Grant
from gq.model.state import Outcome
from gq.model.step import StepLayout
from gq.wire.codec import Codec


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all messages: tagged with the class name."""


# ── orders: gqd → gqnode ──────────────────────────────────────────────────────────────────────────────────────


class GangMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of an allocation, as every other node of the allocation needs to know it."""

    node: str
    address: str
    """Host name or IP address at which the other nodes reach this node."""
    tasks: int
    cpus: int
    gpus: int
    joined: int = 0
    """Generation of the change by which the node joined the running job; 0: the job began with the node."""


class LaunchRole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A role of a het job, for the variables of every process of the job."""

    name: str
    nodes: tuple[str, ...]
    tasks: tuple[int, ...]
    """Tasks on each of the nodes; `cpus` and `gpus` have one entry per node, too."""
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    cpus_per_task: int | None = None
    """The requested value, as in the next field; None: not specified."""
    mem_per_cpu_mib: int | None = None


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a node needs to run its part of one attempt."""

    attempt_id: AttemptId
    job_name: str
    cluster: str
    user: str
    uid: int
    gid: int
    partition: str
    node_rank: int
    """Index of this node in ``members``; the batch script runs on 0."""
    members: tuple[GangMember, ...]
    grant: Grant
    is_interactive: bool = False
    """No batch script runs; the attempt lasts until it is stopped."""
    time_limit_s: int | None = None
    """Counted from the start; the node enforces it."""
    grace_s: int = 30
    signal: SignalSpec | None = None
    script_digest: str = ""
    """Digest of the script's blob, sent beside the order; empty on all nodes but the batch node."""
    environment_digest: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    chdir: str = "/"
    output_path: str = ""
    """File name pattern; the node expands what only it knows (``%N``) and opens the file as the user."""
    error_path: str = ""
    """Empty: standard error goes to the same file as the output."""
    input_path: str = ""
    open_mode: str = "truncate"
    umask: int = 0o022
    submit_dir: str = "/"
    submit_host: str = ""
    restart_count: int = 0
    ntasks: int | None = None
    """The requested value, as in the next fields, on which Slurm's variables depend; None: not specified."""
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    gpus: int | None = None
    account: str = ""
    qos: str = ""
    array_job_id: int | None = None
    """Set for a task of an array, as are the next fields."""
    array_task_id: int | None = None
    array_task_min: int = 0
    array_task_max: int = 0
    array_task_step: int = 1
    array_task_count: int = 0
    roles: tuple[LaunchRole, ...] = ()
    """The roles of a het job, in their order."""
    reservation: str = ""
    """The reservation that the attempt runs in."""
    parameters: tuple[tuple[str, str], ...] = ()
    """For a task of a sweep: names of variables and their values."""
    most_gpus: int | None = None
    """Maximum number of GPUs of an elastic job; its GPUs may change while it runs."""
    most_nodes: int | None = None
    """Maximum number of nodes of an elastic job; its nodes may change while it runs."""
    join: int = 0
    """Not 0: the node joins a running attempt, and this is the generation of the join.  Orders and reports with a lower
    generation concern an earlier membership."""
    ntasks_per_gpu: int | None = None
    """The requested value."""


class Prepare(_Message, frozen=True, kw_only=True):
    """Create the cell and hold everything ready for the start.

    → `PrepareReceived` within 2 s, then `Prepared` or `PrepareRefused`
    """

    launch: Launch


class Go(_Message, frozen=True, kw_only=True):
    """All nodes are ready: start.  → `GoReceived` (batch node: then `Started`)"""

    attempt_id: AttemptId
    master_port: int
    """Port that the batch node leased when it prepared."""
    join: int = 0
    """Generation as in `Launch`."""


class Stop(_Message, frozen=True, kw_only=True):
    """End the attempt on this node: signal, grace, KILL, until the cell is empty; undo a preparation.  → `CellEmptied`

    A node that does not know the attempt answers `CellEmptied` at once.
    """

    attempt_id: AttemptId
    outcome: Outcome
    grace_s: int = 30
    """0: KILL at once."""
    text: str = ""
    """For the job's standard error: ``CANCELLED AT {time}`` becomes ``*** JOB 7 ON n1 CANCELLED AT 2026-… ***``."""
    join: int = 0
    """Highest generation (`Launch.join`) of the node's membership that the order ends."""


class SignalAttempt(_Message, frozen=True, kw_only=True):
    """Send a signal to ``scope``: ``steps``, ``batch`` (the script's process only) or ``all``.  → `OrderConfirmed`, if
    ``order_id`` is set.

    With ``told_at`` the signal is the notice of a preemption: the controller repeats it when the node says hello, and
    the node carries it out once for each ``told_at``.  ``text`` is then a line for the job's standard error, as in
    `Stop`, with ``{time}`` for ``ends_at``.
    """

    attempt_id: AttemptId
    signum: int
    scope: str = "all"
    told_at: float | None = None
    ends_at: float | None = None
    text: str = ""
    order_id: bytes = b""
    """Carried out once for each id; empty: neither repeated nor confirmed.  `Notify` and `StopStep` have it, too."""


class SetTimeLimit(_Message, frozen=True, kw_only=True):
    """Replace the attempt's time limit, counted from its start; None: unlimited.  → `TimeLimitSet`

    The node ignores the order for an attempt that it does not have (yet) or is ending.
    """

    attempt_id: AttemptId
    time_limit_s: int | None = None


class SetSuspended(_Message, frozen=True, kw_only=True):
    """Stop all processes of the attempt, or let them continue.  → `SuspendedSet`

    Suspended time does not count against the time limit.  The node ignores the order for an attempt that does not run
    on it.  With ``parked_at`` the attempt lends its GPUs: the node answers once all processes are stopped, with the
    same ``parked_at`` and the GPU memory in use.  Sent only to nodes whose inventory has ``can_suspend``.
    """

    attempt_id: AttemptId
    is_suspended: bool
    parked_at: float | None = None


class ResizeAttempt(_Message, frozen=True, kw_only=True):
    """Change the attempt's GPUs on this node to ``gpus``; of them the attempt keeps ``keeps`` and releases the rest by
    ``ends_at``.

    → `AttemptResized` at once, and again when the rest is released.  The job may use the rest until ``ends_at``: it is
    notified, and at that instant the node ends the processes that still use it, and no others.  The highest
    ``generation`` wins; with equal ones, the earlier ``ends_at``.  Sent only to nodes whose inventory has
    ``can_resize``; the node ignores it for an attempt that it does not have (yet) or is ending.
    """

    attempt_id: AttemptId
    generation: int
    gpus: tuple[int, ...]
    keeps: tuple[int, ...]
    ends_at: float | None = None
    cpus: tuple[int, ...] | None = None
    """The attempt's CPUs on this node, if they change with its GPUs …"""
    keeps_cpus: tuple[int, ...] | None = None
    """… and the CPUs that it keeps when the GPUs are released."""
    members: tuple[GangMember, ...] = ()
    """The attempt's live nodes, if they change; empty: they do not …"""
    leaving: tuple[str, ...] = ()
    """… and the nodes among them that leave by ``ends_at``, when the controller stops them."""


class Notify(_Message, frozen=True, kw_only=True):
    """Append a line to the job's standard error.  → `OrderConfirmed`, if ``order_id`` is set."""

    attempt_id: AttemptId
    text: str
    order_id: bytes = b""


class LaunchStep(_Message, frozen=True, kw_only=True):
    """Expect a `gqrun` with this key; run the tasks that it brings.  → `StepReceived`, at the end `StepEnded`

    If no client attaches within 30 s the node reports `StepEnded` with ``was_attached`` false.
    """

    step_id: StepId
    key: bytes
    layout: StepLayout


class StopStep(_Message, frozen=True, kw_only=True):
    """Signal the step's tasks; ``signum`` None ends the step (TERM, grace, KILL) and is repeated until `StepEnded`."""

    step_id: StepId
    signum: int | None = None
    grace_s: int = 30
    order_id: bytes = b""


Order = (
    Prepare | Go | Stop | SignalAttempt | SetTimeLimit | SetSuspended | ResizeAttempt | Notify | LaunchStep | StopStep
)

OneOffOrder = SignalAttempt | Notify | StopStep
"""Orders that follow from a user's request alone, not from the controller's intended state of an attempt."""


# ── reports: gqnode → gqd ─────────────────────────────────────────────────────────────────────────────────────


class PrepareReceived(_Message, frozen=True, kw_only=True):
    """The order `Prepare` is in the spool."""

    attempt_id: AttemptId


class Prepared(_Message, frozen=True, kw_only=True):
    """The cell is ready.  The batch node sets ``master_port``."""

    attempt_id: AttemptId
    master_port: int = 0


class PrepareRefused(_Message, frozen=True, kw_only=True):
    """The preparation failed and is undone.  ``is_job_fault``: the job is the cause, not the node."""

    attempt_id: AttemptId
    why: str
    is_job_fault: bool = False


class GoReceived(_Message, frozen=True, kw_only=True):
    attempt_id: AttemptId


class Started(_Message, frozen=True, kw_only=True):
    """The batch script's process (interactive: the allocation) is alive since ``at`` by the node's clock."""

    attempt_id: AttemptId
    at: float
    master_port: int = 0


WORKDIR = "workdir"


class AttemptEnded(_Message, frozen=True, kw_only=True):
    """The batch script ended (or the node ended the attempt: time limit, memory).

    ``outcome`` is what the node knows: COMPLETED, FAILED, TIMEOUT, OUT_OF_MEMORY, CANCELLED, NODE_FAIL (the process is
    gone and its exit status unknown: a reboot), BOOT_FAIL (the start failed, see ``why``). ``cell_emptied``: no process
    is left on this node (saves a `CellEmptied`). ``launch_failure``: with BOOT_FAIL, the cause if nothing of the job
    ran and it may run on another node: ``workdir`` (its working directory cannot be entered).
    """

    attempt_id: AttemptId
    outcome: Outcome
    exit: ExitStatus
    usage: Usage = Usage()
    started_at: float | None = None
    ended_at: float
    why: str = ""
    cell_emptied: bool = False
    launch_failure: str = ""


class CellEmptied(_Message, frozen=True, kw_only=True):
    """No process of the attempt is left on this node; its GPUs and CPUs are free."""

    attempt_id: AttemptId
    usage: Usage = Usage()
    join: int = 0
    """Generation as in `Launch`: a membership with a higher one is not affected."""


class TimeLimitSet(_Message, frozen=True, kw_only=True):
    """The limit that this node enforces now."""

    attempt_id: AttemptId
    time_limit_s: int | None = None


class SuspendedSet(_Message, frozen=True, kw_only=True):
    """The attempt is suspended on this node, or runs again."""

    attempt_id: AttemptId
    is_suspended: bool
    parked_at: float | None = None
    """``parked_at`` of the order that this report answers."""
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(GPU, MiB in use); a GPU that the node cannot read is left out."""


class AttemptResized(_Message, frozen=True, kw_only=True):
    """The GPUs that the attempt can use on this node now, and the newest generation that the node knows."""

    attempt_id: AttemptId
    generation: int
    gpus: tuple[int, ...]


class StepReceived(_Message, frozen=True, kw_only=True):
    step_id: StepId


class StepEnded(_Message, frozen=True, kw_only=True):
    """This node's part of a step ended; ``exit`` is the worst exit status of its tasks."""

    step_id: StepId
    exit: ExitStatus = ExitStatus()
    outcome: Outcome = Outcome.COMPLETED
    usage: Usage = Usage()
    was_attached: bool = True
    ended_at: float | None = None
    """Seconds since the epoch by the node's clock; None: the node runs a gqnode from before this field."""


class OrderConfirmed(_Message, frozen=True, kw_only=True):
    """A `OneOffOrder` with this id has been carried out, or its attempt or step is not on this node."""

    attempt_id: AttemptId
    order_id: bytes


ReportBody = (
    PrepareReceived | Prepared | PrepareRefused | GoReceived | Started | AttemptEnded | CellEmptied | TimeLimitSet
    | SuspendedSet | AttemptResized | StepReceived | StepEnded | OrderConfirmed
)  # fmt: skip


# ── node → controller ─────────────────────────────────────────────────────────────────────────────────────────


class AttemptStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that has a cell or an unacknowledged report on the node."""

    attempt_id: AttemptId
    phase: str
    """``preparing``, ``prepared``, ``running``, ``stopping`` or ``ended`` (its report is not acknowledged yet)."""
    time_limit_s: int | None = None
    """The limit that the node enforces; the controller sends its own again if it differs."""
    is_suspended: bool = False
    """The node's state; the controller sends its own again if it differs."""
    generation: int = 0
    """Generation of the newest `ResizeAttempt` that the node knows."""


class Hello(_Message, frozen=True, kw_only=True):
    """First message on a link, and again whenever the controller sends `WhoIsThere`."""

    node: str
    version: int
    incarnation: str
    """Random, new at each start of the node daemon."""
    boot_id: str
    """The kernel's boot id; a new one means that no process survived."""
    address: str
    inventory: Inventory
    step_endpoint: str
    step_public_key: str = ""
    ticket_key: bytes = b""
    """Secret of this incarnation with which the controller signs log tickets (see ``gq.wire.step``)."""
    attempts: tuple[AttemptStatus, ...] = ()
    last_seq: int = 0
    """Number of the newest report of this incarnation; the controller ignores a delayed, older hello."""
    is_relay: bool = False
    """The node runs no jobs; it relays the clients of its host."""


class Heartbeat(_Message, frozen=True, kw_only=True):
    """Sign of life, sent every ``heartbeat_s``.  → `HeartbeatSeen` (or `WhoIsThere`)"""

    node: str
    incarnation: str
    at: float
    """The node's clock, with which the controller can detect skew."""
    load: float = 0.0
    memory_available_mib: int = 0
    gpus: tuple[GpuReading, ...] = ()


class Report(_Message, frozen=True, kw_only=True):
    node: str
    incarnation: str
    seq: int
    body: ReportBody


class Relay(_Message, frozen=True, kw_only=True):
    """A client request from this node's host, with the caller's credentials from the kernel."""

    node: str
    incarnation: str
    relay_id: int
    uid: int
    gid: int
    user: str
    payload: bytes


class Join(_Message, frozen=True, kw_only=True):
    """Over a link opened with a join key: add ``node`` to the cluster with this public key.  → `Joined`, `Unwelcome`

    The same key gets the same answer again, since the first answer may have been lost.
    """

    node: str
    public_key: str
    """Z85; the public half of the pair that the node just made."""
    version: int


NodeMessage = Hello | Heartbeat | Report | Relay | Join


# ── controller → node ─────────────────────────────────────────────────────────────────────────────────────────


class Welcome(_Message, frozen=True, kw_only=True):
    """The node is a member; the controller counts its reports from here."""

    cluster: str
    version: int
    heartbeat_s: float
    owner_uid: int
    """The uid of the private cluster's owner; besides root's, only this user's requests may be relayed."""
    is_shared: bool = False
    """The cluster serves all users: a relay passes on everybody's requests, and jobs run as their submitter."""


class WhoIsThere(_Message, frozen=True, kw_only=True):
    """The link is unknown (the controller or the link restarted): send `Hello` again."""


class Unwelcome(_Message, frozen=True, kw_only=True):
    """The node may not join, for the reason ``why``; the daemon ends."""

    why: str
    is_removed: bool = False
    """The node is no longer a member: the controller has given its jobs up, so the daemon ends them first."""


class HeartbeatSeen(_Message, frozen=True, kw_only=True):
    at: float


class Ack(_Message, frozen=True, kw_only=True):
    """The reports with these numbers are on disk."""

    seqs: tuple[int, ...]


class Orders(_Message, frozen=True, kw_only=True):
    """Orders in sequence, with the scripts and environments (by digest) that they refer to."""

    orders: tuple[Order, ...]
    blobs: dict[str, bytes] = {}


class RelayReply(_Message, frozen=True, kw_only=True):
    relay_id: int
    payload: bytes


class Joined(_Message, frozen=True, kw_only=True):
    """The key is enrolled; the node writes its settings and sends `Hello` with the key."""

    cluster: str
    node: str
    is_login: bool = False


ControllerMessage = Welcome | WhoIsThere | Unwelcome | HeartbeatSeen | Ack | Orders | RelayReply | Joined

MAX_NODE_MESSAGE_BYTES = 64 * 1024 * 1024
NODE_MESSAGES: Codec[NodeMessage] = Codec(NodeMessage, max_bytes=MAX_NODE_MESSAGE_BYTES)
CONTROLLER_MESSAGES: Codec[ControllerMessage] = Codec(ControllerMessage, max_bytes=MAX_NODE_MESSAGE_BYTES)
