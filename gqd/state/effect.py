"""What the shell must do, after the events of the same turn (and of all turns before) are on disk.  Pure."""

from __future__ import annotations

import msgspec

from gq.model.ids import RequestId
from gq.model.job import JobSpec
from gq.model.reservation import BookingUsage, ReservationInfo
from gq.wire.client import (
    ListNotices,
    ListReservations,
    QueryAccuracy,
    QueryAudit,
    QueryBookings,
    QueryEvents,
    QueryHistory,
    ReplyBody,
)
from gq.wire.node import Order
from gqd.state.input import ClientRequest, CronDue, Peer, Route


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
    """Who asks, if jobs of others are to be shown to them without what is private (`gqd.state.job_view.visible_to`);
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


class ReplyReservations(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with reservations and what of them is past, which the store has."""

    route: Route
    request_id: RequestId
    query: ListReservations
    current: tuple[ReservationInfo, ...]
    """The first of those that are there, one more than wanted where there is one; what is past goes with them."""


class ReplyBookings(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with who booked how much."""

    route: Route
    request_id: RequestId
    query: QueryBookings
    under_way: tuple[BookingUsage, ...]
    """Of what has begun and is not over, until now."""


class ReadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Read gq.toml again; what comes of it is a `PolicyChanged` with this request, or a refusal of it.

    Of a `CheckConfig` the text is read instead, and what comes of it is a `ConfigChecked`.
    """

    request: ClientRequest


class FireCron(msgspec.Struct, frozen=True, kw_only=True):
    """Look up who the owner is now, ask the submit hook, and come back with a `ClientRequest` for this job."""

    uid: int
    cron: CronDue
    spec: JobSpec


class RemoveKeyFile(msgspec.Struct, frozen=True, kw_only=True):
    """The node is no longer part of the cluster: a key of it that was pinned by hand (``keys/nodes``) goes, too."""

    node: str


class SendNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Tell somebody; what comes of it is a `NoticeReported`, or of a command a `NoticeCommand`."""

    notice_id: int
    user: str
    uid: int
    kind: str
    to: str
    body: str
    attempt: int = 1


class ReplyNotices(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with what the store knows of notices; the query has been authorised."""

    route: Route
    request_id: RequestId
    query: ListNotices
    shown_to: Peer | None
    """Only this one's; None: all."""
    dropped: dict[str, int]


class ReplyEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with the change log, now or when there is something new in it."""

    route: Route
    request_id: RequestId
    query: QueryEvents
    user: str
    """Who asks: of each so many may wait."""
    shown_to: Peer | None = None
    """Only events of this one's jobs; None: all."""


class CloseLink(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the node that it may not join, and why."""

    route: Route
    why: str
    is_removed: bool = False
    """It was a member until now, or until it was away."""


Effect = (
    Reply | ReplyHistory | ReplyScript | SendOrder | AckReport | SendWelcome | SendHeartbeatSeen | AskWhoIsThere
    | SendNotice | ReplyNotices | ReplyEvents
    | CloseLink | SendJoined | ReplyAudit | ReplyAccuracy | ReplyReservations | ReplyBookings | RemoveKeyFile
    | ReadConfig | FireCron
)  # fmt: skip
