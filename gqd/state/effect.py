"""What the shell must do, after the events of the same turn (and of all turns before) are on disk.  Pure."""

from __future__ import annotations

import msgspec

from gq.model.ids import RequestId
from gq.wire.client import QueryAccuracy, QueryAudit, QueryHistory, ReplyBody
from gq.wire.node import Order
from gqd.state.input import ClientRequest, Peer, Route


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client."""

    route: Route
    request_id: RequestId
    body: ReplyBody


class ReplyHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with what the store's history says; the query has been authorised."""

    route: Route
    request_id: RequestId
    query: QueryHistory
    shown_to: Peer | None = None
    """Who asks, if jobs of others are to be shown to them without what is private (`gqd.state.describe.as_seen_by`);
    None: they may see everything."""


class ReplyScript(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with a batch script from the blob store; it has been authorised."""

    route: Route
    request_id: RequestId
    digest: str


class SendOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Send an order to a node; the shell adds the blobs that it names.  Dropped if there is no link: orders repeat."""

    node: str
    order: Order


class AckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report is on disk (or was known already)."""

    route: Route
    seq: int


class SendWelcome(msgspec.Struct, frozen=True, kw_only=True):
    """The node is in; from now on orders for it go to this route."""

    route: Route
    node: str


class SendHeartbeatSeen(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    at: float


class AskWhoIsThere(msgspec.Struct, frozen=True, kw_only=True):
    route: Route


class SendJoined(msgspec.Struct, frozen=True, kw_only=True):
    """The key of this node is on disk."""

    route: Route
    node: str
    is_login: bool = False


class ReplyAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with what the store's audit trail says; the query has been authorised."""

    route: Route
    request_id: RequestId
    query: QueryAudit


class ReplyAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with how wrong the first estimates were of jobs that have started."""

    route: Route
    request_id: RequestId
    query: QueryAccuracy


class ReadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Read gq.toml again; what comes of it is a `PolicyChanged` with this request, or a refusal of it."""

    request: ClientRequest


class RemoveKeyFile(msgspec.Struct, frozen=True, kw_only=True):
    """The node is no longer part of the cluster: a key of it that was pinned by hand (``keys/nodes``) goes, too."""

    node: str


class CloseLink(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the node that it may not join, and why."""

    route: Route
    why: str
    is_removed: bool = False
    """It was a member until now, or until it was away."""


Effect = (
    Reply | ReplyHistory | ReplyScript | SendOrder | AckReport | SendWelcome | SendHeartbeatSeen | AskWhoIsThere
    | CloseLink | SendJoined | ReplyAudit | ReplyAccuracy | RemoveKeyFile | ReadConfig
)  # fmt: skip
