"""What remembering means to the rest of gqd.  Pure; made real by `sqlite` (durable) and `memory` (tests, simulator)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from gq.errors import GqError
from gq.model.audit import AuditEntry
from gq.model.estimate import FirstEstimate
from gq.model.job import JobInfo
from gq.model.reservation import BookingUsage, ReservationInfo
from gq.wire.client import (
    Events,
    JobFilter,
    ListNotices,
    ListReservations,
    Notices,
    QueryAccuracy,
    QueryAudit,
    QueryBookings,
    QueryEvents,
)
from gqd.state.cluster import Cluster
from gqd.state.events.event import Event
from gqd.state.input import PastJob, Peer

Row = tuple[Any, ...]
"""Values in the order of `gqd.store.rows.rows.COLUMNS[table]`."""


class Forgetting(NamedTuple):
    """Bounds: lines of the change log and of the audit trail, past occurrences of reservations, and jobs that ended go
    if they are older; None: none goes.  At most `most` of each at once."""

    events_before: float | None
    audit_before: float | None
    most: int = 2000
    occurrences_before: float | None = None
    jobs_before: float | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn of the loop changed, as values: the writer never sees a live object.

    `upserts` and `deletes` are by table; a delete is the primary key.
    """

    events: tuple[Event, ...]
    upserts: dict[str, tuple[Row, ...]]
    deletes: dict[str, tuple[Row, ...]] = {}
    audit: tuple[Row, ...] = ()
    """Lines that are added to the audit trail."""
    forgetting: Forgetting | None = None

    def __bool__(self) -> bool:
        return bool(self.events or self.upserts or self.deletes or self.audit or self.forgetting)


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the database by id, ``after`` < id, at most ``limit``; one more where it ends with both parts of an
    array's record."""

    filter: JobFilter
    started_before: float | None = None
    ended_after: float | None = None
    with_steps: bool = True
    after: int = 0
    limit: int = 2000


class EventQuery(NamedTuple):
    """What is asked of the change log, and for whom (None: for one who may see all)."""

    asked: QueryEvents
    shown_to: Peer | None


class AuditPage(NamedTuple):
    """Lines of the audit trail, oldest first.  ``last``: the number of the last one, to ask on after."""

    entries: tuple[AuditEntry, ...]
    last: int
    more: bool


class Told(NamedTuple):
    """A job that started, and what it was told first."""

    estimate: FirstEstimate
    start_at: float

    @property
    def error_s(self) -> float:
        """So much later it started than was said."""
        return self.start_at - self.estimate.start_at

    @property
    def is_within(self) -> bool:
        """It had started by the end of the band (a second is nothing)."""
        p90_at = self.estimate.p90_at
        return p90_at is not None and self.start_at <= p90_at + 1.0


class StoreFailed(GqError):
    """A commit did not become durable, and no later one will: the daemon ends and starts again from the store."""


class Store(Protocol):
    def load(self) -> Cluster:
        """The cluster as of the last commit, indices built.  Called once, before the first commit."""
        ...

    async def commit(self, batch: Batch) -> None:
        """Durable when it returns, in the order of the calls.  A failure is final: the daemon ends."""
        ...

    def history(self, query: HistoryQuery) -> Iterator[JobInfo]:
        """Committed jobs, active ones included, by job id.  May be called from another thread."""
        ...

    def has_older(self, forgetting: Forgetting) -> bool:
        """Whether there is anything to forget.  The newest line of each stays.  May be called from another thread."""
        ...

    def named_blobs(self, ended_after: float) -> frozenset[str]:
        """Digests of committed jobs that have not ended, or not before.  May be called from another thread."""
        ...

    def past(self, job_ids: Collection[int]) -> dict[int, PastJob]:
        """Those of these jobs that have ended, as committed.  May be called from another thread."""
        ...

    def audit(self, query: QueryAudit) -> AuditPage:
        """At most ``limit`` committed lines after number ``after``.  May be called from another thread."""
        ...

    def past_occurrences(self, query: ListReservations) -> list[ReservationInfo]:
        """Of the first ``limit`` + 1 names, committed occurrences that are past.  May be called from another thread."""
        ...

    def bookings(self, query: QueryBookings) -> list[BookingUsage]:
        """Of each committed occurrence that is past and began then.  May be called from another thread."""
        ...

    def told(self, query: QueryAccuracy) -> list[Told]:
        """Committed starts of jobs that had been told when they would start.  May be called from another thread."""
        ...

    def event_lines(self, query: EventQuery) -> Events:
        """Committed lines of the change log, as they are shown.  May be called from another thread."""
        ...

    def notices(self, query: ListNotices, uid: int | None = None) -> Notices:
        """Committed notices, as they are shown; `uid`: only of this user.  May be called from another thread."""
        ...


class BlobStore(Protocol):
    """Scripts and environments by SHA-256 (hex).  In a file of its own, 0600; written before the rows that name it."""

    async def put(self, blobs: dict[str, bytes]) -> None:
        """Durable when it returns; putting what is there is cheap."""
        ...

    async def get(self, digests: tuple[str, ...]) -> dict[str, bytes]:
        """Those that are there."""
        ...

    def suspect(self, digests: Iterable[str]) -> None:
        """These seem to be named by nobody: `drop` may drop those that nobody puts from now on."""
        ...

    async def drop(self, digests: Iterable[str]) -> int:
        """Drop those of them that are under suspicion still; how many.  Durable when it returns."""
        ...

    def after(self, digest: str, limit: int) -> tuple[str, ...]:
        """Digests that are there, in order, beyond this one.  May be called from another thread."""
        ...
