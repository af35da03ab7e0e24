"""What remembering means to the rest of gqd.  Pure; made real by `sqlite` (durable) and `memory` (tests, simulator)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from gq.errors import GqError
from gq.model.audit import AuditEntry
from gq.model.job import JobInfo
from gq.wire.client import JobFilter, QueryAudit
from gqd.state.cluster import Cluster
from gqd.state.event import Event

Row = tuple[Any, ...]
"""Values in the order of `gqd.store.rows.COLUMNS[table]`."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn of the loop changed, as values: the writer never sees a live object.

    `upserts` and `deletes` are by table; a delete is the primary key.
    """

    events: tuple[Event, ...]
    upserts: dict[str, tuple[Row, ...]]
    deletes: dict[str, tuple[Row, ...]] = {}
    audit: tuple[Row, ...] = ()
    """Lines that are added to the audit trail."""

    def __bool__(self) -> bool:
        return bool(self.events or self.upserts or self.deletes or self.audit)


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the database by id, ``after`` < id, at most ``limit``."""

    filter: JobFilter
    started_before: float | None = None
    ended_after: float | None = None
    with_steps: bool = True
    after: int = 0
    limit: int = 2000


class AuditPage(NamedTuple):
    """Lines of the audit trail, oldest first.  ``last``: the number of the last one, to ask on after."""

    entries: tuple[AuditEntry, ...]
    last: int
    more: bool


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

    def audit(self, query: QueryAudit) -> AuditPage:
        """At most ``limit`` committed lines after number ``after``.  May be called from another thread."""
        ...


class BlobStore(Protocol):
    """Scripts and environments by SHA-256 (hex).  In a file of its own, 0600; written before the rows that name it."""

    async def put(self, blobs: dict[str, bytes]) -> None:
        """Durable when it returns; putting what is there is cheap."""
        ...

    async def get(self, digests: tuple[str, ...]) -> dict[str, bytes]:
        """Those that are there."""
        ...
