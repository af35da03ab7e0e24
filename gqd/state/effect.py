"""Effects: what the shell must do once the events of the turn, and of all earlier turns, are on disk.  Pure."""

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
    """Send a reply to a client."""

    route: Route
    request_id: RequestId
    body: ReplyBody


class ReplyHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an authorised history query from the store."""

    route: Route
    request_id: RequestId
    query: QueryHistory
    shown_to: Peer | None = None
    """User who asks, if the private fields of other users' jobs must be blanked (`gqd.state.job_view.visible_to`);
    None: the user may see everything."""


class ReplyScript(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an authorised request with a batch script from the blob store."""

    route: Route
    request_id: RequestId
    digest: str


class SendOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Send an order to a node, with the blobs that it names; dropped without a link, since orders are repeated."""

    node: str
    order: Order


class AckReport(msgspec.Struct, frozen=True, kw_only=True):
    """Acknowledge a node's report, which is on disk or was known before."""

    route: Route
    seq: int


class SendWelcome(msgspec.Struct, frozen=True, kw_only=True):
    """Welcome a node that has registered; from now on its orders go to this route."""

    route: Route
    node: str


class SendHeartbeatSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Acknowledge a node's heartbeat."""

    route: Route
    at: float


class AskWhoIsThere(msgspec.Struct, frozen=True, kw_only=True):
    """Ask an unknown peer of a node link to register."""

    route: Route


class SendJoined(msgspec.Struct, frozen=True, kw_only=True):
    """Confirm to a joining node that its key is on disk."""

    route: Route
    node: str
    is_login: bool = False


class ReplyAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an authorised query of the audit trail."""

    route: Route
    request_id: RequestId
    query: QueryAudit


class ReplyAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Reply with how far the first estimates of started jobs were off."""

    route: Route
    request_id: RequestId
    query: QueryAccuracy


class ReplyReservations(msgspec.Struct, frozen=True, kw_only=True):
    """Reply with current reservations and, from the store, past occurrences."""

    route: Route
    request_id: RequestId
    query: ListReservations
    current: tuple[ReservationInfo, ...]
    """First current reservations, one more than the page if there are more; past occurrences are added."""


class ReplyBookings(msgspec.Struct, frozen=True, kw_only=True):
    """Reply with the reserved GPU-hours by user."""

    route: Route
    request_id: RequestId
    query: QueryBookings
    under_way: tuple[BookingUsage, ...]
    """Usage of active occurrences until now."""


class ReadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Read gq.toml again; the result is a `PolicyChanged` or a `ConfigRefused` with this request.

    For a `CheckConfig` the request's text is read instead, and the result is a `ConfigChecked`.
    """

    request: ClientRequest


class FireCron(msgspec.Struct, frozen=True, kw_only=True):
    """Look up the entry's owner and run the submit hook; the result is a `ClientRequest` for this job."""

    uid: int
    cron: CronDue
    spec: JobSpec


class RemoveKeyFile(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the pinned key file (``keys/nodes``) of a node that was removed from the cluster."""

    node: str


class SendNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver a notice; the result is a `NoticeReported`, or for a command target a `NoticeCommand`."""

    notice_id: int
    user: str
    uid: int
    kind: str
    to: str
    body: str
    attempt: int = 1


class ReplyNotices(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an authorised query of notices from the store."""

    route: Route
    request_id: RequestId
    query: ListNotices
    shown_to: Peer | None
    """User whose notices are shown; None: all users."""
    dropped: dict[str, int]


class ReplyEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Reply with the change log, at once or when it has new entries."""

    route: Route
    request_id: RequestId
    query: QueryEvents
    user: str
    """User who asks; the number of waiting queries per user is bounded."""
    shown_to: Peer | None = None
    """User whose jobs' events are shown; None: all events."""


class CloseLink(msgspec.Struct, frozen=True, kw_only=True):
    """Refuse a node, with the reason."""

    route: Route
    why: str
    is_removed: bool = False
    """The node was a member of the cluster and has been removed."""


Effect = (
    Reply | ReplyHistory | ReplyScript | SendOrder | AckReport | SendWelcome | SendHeartbeatSeen | AskWhoIsThere
    | SendNotice | ReplyNotices | ReplyEvents
    | CloseLink | SendJoined | ReplyAudit | ReplyAccuracy | ReplyReservations | ReplyBookings | RemoveKeyFile
    | ReadConfig | FireCron
)  # fmt: skip
