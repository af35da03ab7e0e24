"""Interfaces of the stores.  Pure; implemented by `gqd.store.sqlite` (durable) and `.memory` (tests, simulator)."""

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


class RetentionCutoffs(NamedTuple):
    """Instants before which events, audit entries, past occurrences and ended jobs are deleted; None: none are.

    At most `most` of each are deleted at once.
    """

    events_before: float | None
    audit_before: float | None
    most: int = 2000
    occurrences_before: float | None = None
    jobs_before: float | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one turn of the loop, as values: the writer never sees a live object.

    `upserts` and `deletes` are by table; a delete is a primary key.
    """

    events: tuple[Event, ...]
    upserts: dict[str, tuple[Row, ...]]
    deletes: dict[str, tuple[Row, ...]] = {}
    audit: tuple[Row, ...] = ()
    """Rows to append to the audit trail."""
    forgetting: RetentionCutoffs | None = None

    def __bool__(self) -> bool:
        return bool(self.events or self.upserts or self.deletes or self.audit or self.forgetting)


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query for jobs in the database by id, above ``after``, at most ``limit``.

    A page has one more if it ends with both parts of an array's record.
    """

    filter: JobFilter
    started_before: float | None = None
    ended_after: float | None = None
    with_steps: bool = True
    after: int = 0
    limit: int = 2000


class EventQuery(NamedTuple):
    """A query of the change log; `shown_to`: the user who asks, None: one who may see all events."""

    asked: QueryEvents
    shown_to: Peer | None


class AuditPage(NamedTuple):
    """Entries of the audit trail, oldest first.  ``last``: the number of the last one, where the next page begins."""

    entries: tuple[AuditEntry, ...]
    last: int
    more: bool


class EstimateOutcome(NamedTuple):
    """The first estimate of a job, and its actual start."""

    estimate: FirstEstimate
    start_at: float

    @property
    def error_s(self) -> float:
        """Seconds by which the start was later than estimated."""
        return self.start_at - self.estimate.start_at

    @property
    def is_within(self) -> bool:
        """Whether the job started by the P90 of the estimate, to within a second."""
        p90_at = self.estimate.p90_at
        return p90_at is not None and self.start_at <= p90_at + 1.0


class StoreFailed(GqError):
    """A commit did not become durable, and no later one will: the daemon ends and starts again from the store."""


class Store(Protocol):
    def load(self) -> Cluster:
        """Load the cluster as of the last commit, with its indices.  Called once, before the first commit."""
        ...

    async def commit(self, batch: Batch) -> None:
        """Commit a batch; durable on return, in the order of the calls.  A failure is final: the daemon ends."""
        ...

    def history(self, query: HistoryQuery) -> Iterator[JobInfo]:
        """Yield committed jobs, including active ones, by job id.  May be called from another thread."""
        ...

    def has_older(self, forgetting: RetentionCutoffs) -> bool:
        """Whether there is anything to delete; the newest rows stay.  May be called from another thread."""
        ...

    def named_blobs(self, ended_after: float) -> frozenset[str]:
        """Digests named by committed jobs that did not end before `ended_after`.  May be called from another thread."""
        ...

    def past(self, job_ids: Collection[int]) -> dict[int, PastJob]:
        """The jobs among these that have ended, as committed.  May be called from another thread."""
        ...

    def audit(self, query: QueryAudit) -> AuditPage:
        """At most ``limit`` committed entries after number ``after``.  May be called from another thread."""
        ...

    def past_occurrences(self, query: ListReservations) -> list[ReservationInfo]:
        """Past committed occurrences of the first ``limit`` + 1 names.  May be called from another thread."""
        ...

    def bookings(self, query: QueryBookings) -> list[BookingUsage]:
        """The usage of each past committed occurrence that began in the period.  May be called from another thread."""
        ...

    def estimate_outcomes(self, query: QueryAccuracy) -> list[EstimateOutcome]:
        """Committed starts of jobs that had an estimate of their start.  May be called from another thread."""
        ...

    def event_lines(self, query: EventQuery) -> Events:
        """Committed events, without secrets.  May be called from another thread."""
        ...

    def notices(self, query: ListNotices, uid: int | None = None) -> Notices:
        """Committed notices, redacted; `uid`: only those of this user.  May be called from another thread."""
        ...


class BlobStore(Protocol):
    """Scripts and environments by SHA-256 (hex), in a file of mode 0600; written before the rows that name them."""

    async def put(self, blobs: dict[str, bytes]) -> None:
        """Store blobs, durable on return; storing an existing blob is cheap."""
        ...

    async def get(self, digests: tuple[str, ...]) -> dict[str, bytes]:
        """The blobs with these digests, as far as they exist."""
        ...

    def suspect(self, digests: Iterable[str]) -> None:
        """Mark blobs as apparently unused: `drop` may delete those that are not put again from now on."""
        ...

    async def drop(self, digests: Iterable[str]) -> int:
        """Delete the blobs that are still marked; returns their number.  Durable on return."""
        ...

    def after(self, digest: str, limit: int) -> tuple[str, ...]:
        """Existing digests above this one, in order.  May be called from another thread."""
        ...
