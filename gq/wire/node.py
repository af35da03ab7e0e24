"""What a node tells the controller and what the controller orders.

A node (DEALER) speaks to the controller's node door (ROUTER); one frame is one message.  Both directions repeat
themselves until acknowledged, so every order and every report is idempotent:

* **Orders** carry `(job_id, attempt)`.  The controller keeps an order until a report shows that it was received;
  a node that gets one again reports its state again.
* **Reports** carry a sequence number of this incarnation of the node daemon; the controller acknowledges a report
  *after* it is on disk, and the node repeats what was not acknowledged.  What a node must not forget is in its spool.
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
    """One node of an allocation, as every other node of it needs to know it."""

    node: str
    address: str
    """Host name or IP address that the other nodes reach it by."""
    tasks: int
    cpus: int
    gpus: int
    joined: int = 0
    """Generation of the change by which the node joined the running job; 0: the job began with the node."""


class LaunchRole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One role of a gang: what every process of the job is told of it."""

    name: str
    nodes: tuple[str, ...]
    tasks: tuple[int, ...]
    """On each of them; likewise the next two."""
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    cpus_per_task: int | None = None
    """As asked; None where it was not said.  Likewise the next one."""
    mem_per_cpu_mib: int | None = None


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a node needs to run its share of one attempt."""

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
    """No batch script runs; the attempt lives until it is stopped."""
    time_limit_s: int | None = None
    """From the start; the node enforces it."""
    grace_s: int = 30
    signal: SignalSpec | None = None
    script_digest: str = ""
    """Of the blob beside the order; empty on all but the batch node."""
    environment_digest: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    chdir: str = "/"
    output_path: str = ""
    """Pattern; the node expands what only it knows (``%N``) and opens it as the user."""
    error_path: str = ""
    """Empty: with the output."""
    input_path: str = ""
    open_mode: str = "truncate"
    umask: int = 0o022
    submit_dir: str = "/"
    submit_host: str = ""
    restart_count: int = 0
    ntasks: int | None = None
    """As asked; None where it was not said.  Likewise the next ones: Slurm's variables depend on it."""
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    gpus: int | None = None
    account: str = ""
    qos: str = ""
    array_job_id: int | None = None
    """Of a task of an array; then also the next ones."""
    array_task_id: int | None = None
    array_task_min: int = 0
    array_task_max: int = 0
    array_task_step: int = 1
    array_task_count: int = 0
    roles: tuple[LaunchRole, ...] = ()
    """Of a gang of roles, in their order."""
    reservation: str = ""
    """That it runs in."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Of a task of a sweep: names of variables and their values."""
    most_gpus: int | None = None
    """Its GPUs may become more, up to so many, and fewer."""
    most_nodes: int | None = None
    """Likewise its nodes."""
    join: int = 0
    """Not 0: this node comes to a running attempt, and by this number it is known which time that is.  Orders and
    reports with a lower one are of an earlier time."""


class Prepare(_Message, frozen=True, kw_only=True):
    """Make the cell, run what comes before, hold everything ready.

    → `PrepareReceived` within 2 s, then `Prepared` or `PrepareRefused`
    """

    launch: Launch


class Go(_Message, frozen=True, kw_only=True):
    """All nodes are ready: start.  → `GoReceived` (batch node: then `Started`)"""

    attempt_id: AttemptId
    master_port: int
    """Leased by the batch node when it prepared."""
    join: int = 0
    """As of `Launch`."""


class Stop(_Message, frozen=True, kw_only=True):
    """End the attempt on this node: signal, grace, KILL, until the cell is empty; undo a preparation.  → `CellEmptied`

    For an attempt that the node does not know, `CellEmptied` at once.
    """

    attempt_id: AttemptId
    outcome: Outcome
    grace_s: int = 30
    """0: KILL at once."""
    text: str = ""
    """For the job's standard error: ``CANCELLED AT {time}`` becomes ``*** JOB 7 ON n1 CANCELLED AT 2026-… ***``."""
    join: int = 0
    """Whatever came to the node with this number (`Launch.join`), or a lower one."""


class SignalAttempt(_Message, frozen=True, kw_only=True):
    """Send a signal to ``scope``: ``steps``, ``batch`` (the script's process only) or ``all``.
    → `OrderConfirmed`, where it has an ``order_id``.

    With ``told_at`` the attempt is told to give way to another job: that is repeated when the node says hello, and done
    once for each ``told_at``.  ``text`` is then for the job's standard error, as that of `Stop`, with ``{time}`` for
    ``ends_at``.
    """

    attempt_id: AttemptId
    signum: int
    scope: str = "all"
    told_at: float | None = None
    ends_at: float | None = None
    text: str = ""
    order_id: bytes = b""
    """Carried out once for each id; empty: neither repeated nor confirmed.  Likewise in `Notify` and `StopStep`."""


class SetTimeLimit(_Message, frozen=True, kw_only=True):
    """The attempt's limit is now this, counted from its start; None: unlimited.  → `TimeLimitSet`

    An attempt that is not here (yet), or is being ended, is passed over in silence.
    """

    attempt_id: AttemptId
    time_limit_s: int | None = None


class SetSuspended(_Message, frozen=True, kw_only=True):
    """Stop all processes of the attempt where they are, or let them go on.  → `SuspendedSet`

    The time limit stands still meanwhile.  An attempt that does not run here (yet, or any more) is passed over in
    silence.  With ``parked_at`` it is to lend its GPUs: the answer comes when it does stand still, with the same
    ``parked_at``, and says what is in use of their memory.  Sent to nodes whose inventory says that they know it.
    """

    attempt_id: AttemptId
    is_suspended: bool
    parked_at: float | None = None


class ResizeAttempt(_Message, frozen=True, kw_only=True):
    """The attempt's GPUs here are now these; of them it keeps ``keeps``, and has given up the rest by ``ends_at``.

    → `AttemptResized` at once, and again when the rest is gone.  What is to go is the job's until then: it is told, and
    at that instant the processes that still use it are ended, and no others.  The highest ``generation`` counts; with
    the same one only an earlier ``ends_at`` does.  Sent to nodes whose inventory says that they know it; an attempt
    that is not here (yet), or is being ended, is passed over in silence.
    """

    attempt_id: AttemptId
    generation: int
    gpus: tuple[int, ...]
    keeps: tuple[int, ...]
    ends_at: float | None = None
    cpus: tuple[int, ...] | None = None
    """Its CPUs here, where they come and go with its GPUs …"""
    keeps_cpus: tuple[int, ...] | None = None
    """… and those that it keeps when the GPUs have gone."""
    members: tuple[GangMember, ...] = ()
    """The nodes that live, where these come and go; empty: they stay …"""
    leaving: tuple[str, ...] = ()
    """… and those of them that go by ``ends_at``: the controller stops them then."""


class Notify(_Message, frozen=True, kw_only=True):
    """Append a line to the job's standard error.  → `OrderConfirmed`, where it has an ``order_id``."""

    attempt_id: AttemptId
    text: str
    order_id: bytes = b""


class LaunchStep(_Message, frozen=True, kw_only=True):
    """Expect a `gqrun` with this key; run the tasks it brings.  → `StepReceived`, at the end `StepEnded`

    If no client attaches within 30 s the node reports `StepEnded` with ``was_attached`` false.
    """

    step_id: StepId
    key: bytes
    layout: StepLayout


class StopStep(_Message, frozen=True, kw_only=True):
    """Signal the step's tasks; ``signum`` None ends it (TERM, grace, KILL) and is repeated until `StepEnded`."""

    step_id: StepId
    signum: int | None = None
    grace_s: int = 30
    order_id: bytes = b""


Order = (
    Prepare | Go | Stop | SignalAttempt | SetTimeLimit | SetSuspended | ResizeAttempt | Notify | LaunchStep | StopStep
)

OneOffOrder = SignalAttempt | Notify | StopStep
"""Orders that follow from a user's request alone, and not from what the controller wants of an attempt."""


# ── reports: gqnode → gqd ─────────────────────────────────────────────────────────────────────────────────────


class PrepareReceived(_Message, frozen=True, kw_only=True):
    """The order is in the spool."""

    attempt_id: AttemptId


class Prepared(_Message, frozen=True, kw_only=True):
    """The cell stands.  ``master_port`` is set by the batch node."""

    attempt_id: AttemptId
    master_port: int = 0


class PrepareRefused(_Message, frozen=True, kw_only=True):
    """Nothing of the attempt is left here.  ``is_job_fault``: another job would have been prepared."""

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
    """The batch script is over (or the node ended the attempt: time limit, memory).

    ``outcome`` is what the node knows: COMPLETED, FAILED, TIMEOUT, OUT_OF_MEMORY, CANCELLED, NODE_FAIL (the process
    is gone and nobody saw how: a reboot), BOOT_FAIL (could not be started: ``why`` says it).
    ``cell_emptied``: nothing is left of it here (saves a `CellEmptied`).
    ``launch_failure``: with BOOT_FAIL, why nothing of the job ran where it may run on another node: ``workdir`` (its
    working directory cannot be entered).
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
    """No process of the attempt is left on this node, its GPUs and CPUs are free."""

    attempt_id: AttemptId
    usage: Usage = Usage()
    join: int = 0
    """As of `Launch`: what came with a higher number is not meant."""


class TimeLimitSet(_Message, frozen=True, kw_only=True):
    """The limit that this node enforces now."""

    attempt_id: AttemptId
    time_limit_s: int | None = None


class SuspendedSet(_Message, frozen=True, kw_only=True):
    """The attempt stands still on this node, or goes on."""

    attempt_id: AttemptId
    is_suspended: bool
    parked_at: float | None = None
    """Of the order that this answers."""
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(GPU, MiB in use); one that is not here cannot tell."""


class AttemptResized(_Message, frozen=True, kw_only=True):
    """The GPUs that the attempt can use here now, and the newest change that is known."""

    attempt_id: AttemptId
    generation: int
    gpus: tuple[int, ...]


class StepReceived(_Message, frozen=True, kw_only=True):
    step_id: StepId


class StepEnded(_Message, frozen=True, kw_only=True):
    """This node's part of a step is over; ``exit`` is the worst of its tasks."""

    step_id: StepId
    exit: ExitStatus = ExitStatus()
    outcome: Outcome = Outcome.COMPLETED
    usage: Usage = Usage()
    was_attached: bool = True
    ended_at: float | None = None
    """Seconds since the epoch by the node's clock; None: the node runs a gqnode from before this field."""


class OrderConfirmed(_Message, frozen=True, kw_only=True):
    """A `OneOffOrder` with this id has been carried out, or there is nothing here to carry it out on."""

    attempt_id: AttemptId
    order_id: bytes


ReportBody = (
    PrepareReceived | Prepared | PrepareRefused | GoReceived | Started | AttemptEnded | CellEmptied | TimeLimitSet
    | SuspendedSet | AttemptResized | StepReceived | StepEnded | OrderConfirmed
)  # fmt: skip


# ── node → controller ─────────────────────────────────────────────────────────────────────────────────────────


class AttemptStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that a node still has something of."""

    attempt_id: AttemptId
    phase: str
    """``preparing``, ``prepared``, ``running`` (or let go), ``stopping`` or ``ended`` (and its report is not
    acknowledged yet)."""
    time_limit_s: int | None = None
    """As this node enforces it; the controller sends it anew where it should be another."""
    is_suspended: bool = False
    """Likewise."""
    generation: int = 0
    """Of the newest `ResizeAttempt` that it knows."""


class Hello(_Message, frozen=True, kw_only=True):
    """First message on a link, and again whenever the controller asks who is there."""

    node: str
    version: int
    incarnation: str
    """Random, new at each start of the node daemon."""
    boot_id: str
    """The kernel's; a new one means that no process survived."""
    address: str
    inventory: Inventory
    step_endpoint: str
    step_public_key: str = ""
    ticket_key: bytes = b""
    """Secret of this incarnation; the controller signs log tickets with it (see ``gq.wire.step``)."""
    attempts: tuple[AttemptStatus, ...] = ()
    last_seq: int = 0
    """Number of the newest report of this incarnation: an older hello, late on its way, says nothing new."""
    is_relay: bool = False
    """Runs no jobs; relays the clients of its host."""


class Heartbeat(_Message, frozen=True, kw_only=True):
    """Every ``heartbeat_s``; → `HeartbeatSeen` (or `WhoIsThere`)."""

    node: str
    incarnation: str
    at: float
    """The node's clock, so that skew can be seen."""
    load: float = 0.0
    memory_available_mib: int = 0
    gpus: tuple[GpuReading, ...] = ()


class Report(_Message, frozen=True, kw_only=True):
    node: str
    incarnation: str
    seq: int
    body: ReportBody


class Relay(_Message, frozen=True, kw_only=True):
    """A client request of this node's host, with who asks by the kernel's word."""

    node: str
    incarnation: str
    relay_id: int
    uid: int
    gid: int
    user: str
    payload: bytes


class Join(_Message, frozen=True, kw_only=True):
    """Over a link that a join key opened: let me in as ``node``, with this key from now on.  → `Joined`, `Unwelcome`

    Said again with the same key it gets the same answer, since the first may have been lost.
    """

    node: str
    public_key: str
    """Z85, of the pair that the node just made."""
    version: int


NodeMessage = Hello | Heartbeat | Report | Relay | Join


# ── controller → node ─────────────────────────────────────────────────────────────────────────────────────────


class Welcome(_Message, frozen=True, kw_only=True):
    """The node is known; what it reports counts from here."""

    cluster: str
    version: int
    heartbeat_s: float
    owner_uid: int
    """Whose requests a relay may pass on, besides root's."""
    is_shared: bool = False
    """Everybody is served: a relay passes on the requests of all users of its host, and jobs run as their submitter."""


class WhoIsThere(_Message, frozen=True, kw_only=True):
    """This link is not known (the controller or the link restarted): say `Hello` again."""


class Unwelcome(_Message, frozen=True, kw_only=True):
    """This node may not join, and why; the daemon ends."""

    why: str
    is_removed: bool = False
    """It was a member and is none any more: nobody counts on its jobs, so it ends them before itself."""


class HeartbeatSeen(_Message, frozen=True, kw_only=True):
    at: float


class Ack(_Message, frozen=True, kw_only=True):
    """The reports with these numbers are on disk."""

    seqs: tuple[int, ...]


class Orders(_Message, frozen=True, kw_only=True):
    """Orders in sequence, with the scripts and environments (by digest) that they name."""

    orders: tuple[Order, ...]
    blobs: dict[str, bytes] = {}


class RelayReply(_Message, frozen=True, kw_only=True):
    relay_id: int
    payload: bytes


class Joined(_Message, frozen=True, kw_only=True):
    """The key is known from now on; the node writes its settings and says `Hello` with it."""

    cluster: str
    node: str
    is_login: bool = False


ControllerMessage = Welcome | WhoIsThere | Unwelcome | HeartbeatSeen | Ack | Orders | RelayReply | Joined

MAX_NODE_MESSAGE_BYTES = 64 * 1024 * 1024
NODE_MESSAGES: Codec[NodeMessage] = Codec(NodeMessage, max_bytes=MAX_NODE_MESSAGE_BYTES)
CONTROLLER_MESSAGES: Codec[ControllerMessage] = Codec(ControllerMessage, max_bytes=MAX_NODE_MESSAGE_BYTES)
