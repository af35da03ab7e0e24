"""What can happen to the controller.  Made by the shell, which reads clocks and random sources; pure."""

from __future__ import annotations

from datetime import tzinfo

import msgspec

from gq.model.ids import RequestId
from gq.wire.client import RequestBody
from gq.wire.node import Heartbeat, Hello, Join, ReportBody
from gqd.state.policy import Partition, Policy

Route = tuple[str, bytes]
"""Where an answer goes: name of the door, and what that door needs to find the peer.  Opaque here."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, as the door established it."""

    uid: int
    gid: int
    user: str
    via_node: str = ""
    """The node whose daemon relays and vouches; empty on the controller's own host."""
    groups: tuple[str, ...] = ()
    """Names of the groups that the user is in on the controller's host."""
    key: str = ""
    """The enrolled key (Z85) that the caller proved; empty where the kernel or a node says who it is."""
    by_munge: bool = False
    """MUNGE says who it is, on the host at `address`."""
    address: str = ""
    """Of the host that the key came from."""


class NamedUser(msgspec.Struct, frozen=True, kw_only=True):
    """An account of the controller's host that a request names; looked up by the door, since nothing pure can."""

    user: str
    uid: int
    gid: int
    groups: tuple[str, ...] = ()


class PastJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has ended, from the database: what a dependency on it needs to know.  Of an array: of all tasks."""

    is_success: bool
    started: bool
    start_at: float | None = None
    succeeded_tasks: str = ""
    """Of an array (`gq.model.tasks.pack_tasks`)."""
    ended_tasks: str = ""


class CronDue(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a crontab is due, and what makes its job has been looked up; see `gqd.control.crontab`."""

    user: str
    number: int
    set_at: float
    """Of the crontab: if it is another one by now, nothing is due."""
    due_at: float
    earlier: int = 0
    """Due times before this one that became no job."""
    why_not: str = ""
    """Its owner is not there any more."""


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded request.  Scripts and environments are in the blob store already; the body names their digests."""

    peer: Peer
    route: Route
    request_id: RequestId
    body: RequestBody
    entropy: bytes = b""
    """32 fresh random bytes, for keys that a decision needs."""
    named_user: NamedUser | None = None
    """The account of ``AddKey.user`` or ``SetCrontab.user``; None: it names nobody, or there is no such account."""
    zones: dict[str, tzinfo] = {}
    """Time zones that the body names, by name; those that this host does not know are left out."""
    past: dict[int, PastJob] = {}
    """Jobs that the request's dependencies name and that are over, from the database; those in memory go before."""
    hook: str = ""
    """What the site's submit hook did to the specs of the body."""
    hooks: tuple[str, ...] = ()
    """Of a chain: to that of each stage."""
    hook_refusal: str = ""
    """The hook refuses the job, and says this."""
    hook_hint: str = ""
    strangers: tuple[str, ...] = ()
    """Users whom the body names and the controller's host does not know."""
    cron: CronDue | None = None
    """Nobody has sent this `Submit`: an entry of a crontab is due, and nobody waits for an answer."""
    expected_s: float | None = None
    """How long the job will run: the simulator's to say; None: as jobs like it did."""

    def hook_of(self, stage: int) -> str:
        return self.hooks[stage] if self.hooks else self.hook


class NodeHello(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    hello: Hello
    key: str = ""
    """The enrolled key (Z85) that the link proved; empty over ipc, and for a key that is pinned by a file."""


class NodeHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    heartbeat: Heartbeat


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report whose sender the door has established."""

    route: Route
    node: str
    incarnation: str
    seq: int
    body: ReportBody


class NodeJoin(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody with a join key wants to be a node."""

    route: Route
    token: str
    """Public half of the join key (Z85), proven in the handshake."""
    address: str
    join: Join


class DoorIncident(msgspec.Struct, frozen=True, kw_only=True):
    """A door turned somebody away; told at most once per address and minute.  Goes into the audit trail."""

    action: str
    """``HandshakeRefused``, ``NoHandshake``, ``TooManyLinks``, ``TooMuchAtOnce``, ``RevokedKey``, ``TokenMisused``,
    ``Impostor``, ``Malformed``, ``WrongVersion``; of a caller the refusal in one word: ``NotServed``, ``UnknownUser``,
    ``IdentityMismatch``, ``Munge…``."""
    origin: str
    detail: str = ""
    user: str = ""
    uid: int | None = None


class KeyFileDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """`RemoveKeyFile` is done, for good: there was none, or the file is off the disk."""

    node: str


class TimeLeapt(msgspec.Struct, frozen=True, kw_only=True):
    """The clock leapt forward: the machine slept, or was set right.  In these seconds nobody could say a word."""

    by_s: float


class PolicyChanged(msgspec.Struct, frozen=True, kw_only=True):
    """gq.toml was read again, and is valid."""

    policy: Policy
    request: ClientRequest | None = None
    """The `ReloadConfig` that asked for it; None: SIGHUP did."""
    text: str = ""
    """What is in force now, and what waits for a restart."""


class ConfigRefused(msgspec.Struct, frozen=True, kw_only=True):
    """gq.toml was to be read again, and is wrong: nothing has changed."""

    code: str
    message: str
    hint: str = ""
    request: ClientRequest | None = None
    """As in `PolicyChanged`."""


class ConfigChecked(msgspec.Struct, frozen=True, kw_only=True):
    """A text that may become gq.toml is valid; nothing has changed."""

    request: ClientRequest
    text: str
    """A sentence for each setting that would change."""
    partitions: tuple[Partition, ...] = ()
    """As they would be."""


class NoticeReported(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a `SendNotice`."""

    notice_id: int
    why: str = ""
    """Why it was not delivered; empty: it was."""
    is_final: bool = False
    """Another try would end alike."""


class NoticeCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A `SendNotice` whose target is a command of its owner, who is this, as a job of theirs."""

    notice_id: int
    peer: Peer
    script_digest: str
    """In the blob store."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time passed.  At least every ``tick_s``."""


Input = (
    ClientRequest | NodeHello | NodeHeartbeat | NodeReport | NodeJoin | DoorIncident | KeyFileDeleted | TimeLeapt
    | PolicyChanged | ConfigRefused | ConfigChecked | NoticeReported | NoticeCommand
    | Tick
)  # fmt: skip
