"""Inputs of the controller, made by the shell, which reads clocks and random sources.  Pure."""

from __future__ import annotations

from datetime import tzinfo

import msgspec

from gq.model.ids import RequestId
from gq.wire.client import RequestBody
from gq.wire.node import Heartbeat, Hello, Join, ReportBody
from gqd.state.policy import Partition, Policy

Route = tuple[str, bytes]
"""Where a reply goes: the name of the listener, and what the listener needs to find the peer.  Opaque to decisions."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request, as the listener has authenticated it."""

    uid: int
    gid: int
    user: str
    via_node: str = ""
    """Node whose daemon relays the request and vouches for the caller; empty: the controller's own host."""
    groups: tuple[str, ...] = ()
    """Names of the caller's groups on the controller's host."""
    key: str = ""
    """Enrolled key (Z85) that the caller proved; empty: the kernel or a node authenticated the caller."""
    by_munge: bool = False
    """MUNGE authenticated the caller, on the host at `address`."""
    address: str = ""
    """Address of the host that a key or MUNGE credential came from."""


class NamedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user account of the controller's host that a request names, looked up by the listener."""

    user: str
    uid: int
    gid: int
    groups: tuple[str, ...] = ()


class PastJob(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an ended job that dependencies need, from the database; of an array: over all its tasks."""

    is_success: bool
    started: bool
    start_at: float | None = None
    succeeded_tasks: str = ""
    """Tasks of an array that succeeded (`gq.model.tasks.pack_tasks`)."""
    ended_tasks: str = ""


class CronDue(msgspec.Struct, frozen=True, kw_only=True):
    """A crontab entry that is due, with what the shell looked up for its job; see `gqd.control.crontab`."""

    user: str
    number: int
    set_at: float
    """Instant at which the crontab was set; if the crontab has been replaced since, nothing is due."""
    due_at: float
    earlier: int = 0
    """Number of earlier due times that became no job."""
    why_not: str = ""
    """Why no job can be submitted: the owner no longer exists.  Empty: a job can."""


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded request; scripts and environments are in the blob store, and the body names their digests."""

    peer: Peer
    route: Route
    request_id: RequestId
    body: RequestBody
    entropy: bytes = b""
    """32 fresh random bytes, for keys that a decision generates."""
    named_user: NamedUser | None = None
    """User account of ``AddKey.user`` or ``SetCrontab.user``; None: none is named, or it does not exist."""
    zones: dict[str, tzinfo] = {}
    """Time zones that the body names, by name, except those unknown on this host."""
    past: dict[int, PastJob] = {}
    """Ended jobs that the request's dependencies name, from the database; jobs in memory take precedence."""
    hook: str = ""
    """Changes that the site's submit hook made to the specs of the body."""
    hooks: tuple[str, ...] = ()
    """Changes that the hook made to each stage of a chain."""
    hook_refusal: str = ""
    """The hook's message, if the hook refuses the job."""
    hook_hint: str = ""
    strangers: tuple[str, ...] = ()
    """Users that the body names and that the controller's host does not know."""
    cron: CronDue | None = None
    """Crontab entry for which the shell made this `Submit`, which gets no reply; None: a client sent the request."""
    expected_s: float | None = None
    """Run time of the job, which only the simulator knows; None: predicted from similar jobs."""

    def hook_of(self, stage: int) -> str:
        """Changes that the hook made to this stage of a chain, or to the only spec."""
        return self.hooks[stage] if self.hooks else self.hook


class NodeHello(msgspec.Struct, frozen=True, kw_only=True):
    """A node daemon registers."""

    route: Route
    hello: Hello
    key: str = ""
    """Enrolled key (Z85) that the link proved; empty over ipc, and for a key pinned by a file."""


class NodeHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A node's heartbeat."""

    route: Route
    heartbeat: Heartbeat


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report from an authenticated node."""

    route: Route
    node: str
    incarnation: str
    seq: int
    body: ReportBody


class NodeJoin(msgspec.Struct, frozen=True, kw_only=True):
    """A host with a join key asks to become a node."""

    route: Route
    token: str
    """Public half of the join key (Z85), proven in the handshake."""
    address: str
    join: Join


class DoorIncident(msgspec.Struct, frozen=True, kw_only=True):
    """A listener refused a peer; recorded in the audit trail at most once per address and minute."""

    action: str
    """``HandshakeRefused``, ``NoHandshake``, ``TooManyLinks``, ``TooMuchAtOnce``, ``RevokedKey``, ``TokenMisused``,
    ``Impostor``, ``Malformed``, ``WrongVersion``; for a caller the refusal in one word: ``NotServed``, ``UnknownUser``,
    ``IdentityMismatch``, ``Munge…``."""
    origin: str
    detail: str = ""
    user: str = ""
    uid: int | None = None


class KeyFileDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A `RemoveKeyFile` is done for good: the file is off the disk, or did not exist."""

    node: str


class TimeLeapt(msgspec.Struct, frozen=True, kw_only=True):
    """The clock leapt forward, because the machine slept or was set; no message could arrive in these seconds."""

    by_s: float


class PolicyChanged(msgspec.Struct, frozen=True, kw_only=True):
    """gq.toml was read again and is valid."""

    policy: Policy
    request: ClientRequest | None = None
    """The `ReloadConfig` request; None: a SIGHUP."""
    text: str = ""
    """Settings that are in force now, and settings that need a restart."""


class ConfigRefused(msgspec.Struct, frozen=True, kw_only=True):
    """gq.toml was read again and is invalid; nothing has changed."""

    code: str
    message: str
    hint: str = ""
    request: ClientRequest | None = None
    """The `ReloadConfig` request; None: a SIGHUP."""


class ConfigChecked(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a `CheckConfig` is a valid gq.toml; nothing has changed."""

    request: ClientRequest
    text: str
    """A sentence for each setting that would change."""
    partitions: tuple[Partition, ...] = ()
    """Partitions as they would be."""


class NoticeReported(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a `SendNotice`."""

    notice_id: int
    why: str = ""
    """Why the notice was not delivered; empty: it was delivered."""
    is_final: bool = False
    """Another attempt would fail, too."""


class NoticeCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a `SendNotice` is a command, which runs as a job of its owner."""

    notice_id: int
    peer: Peer
    script_digest: str
    """Digest of the script in the blob store."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed; comes at least every ``tick_s``."""


Input = (
    ClientRequest | NodeHello | NodeHeartbeat | NodeReport | NodeJoin | DoorIncident | KeyFileDeleted | TimeLeapt
    | PolicyChanged | ConfigRefused | ConfigChecked | NoticeReported | NoticeCommand
    | Tick
)  # fmt: skip
