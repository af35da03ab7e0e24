"""A store in memory, for tests and the simulator, with faults on demand.

It keeps rows, not objects, so that the result of `load` has really been converted by `gqd.store.rows.rows`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator

from gq.model.job import JobInfo
from gq.model.reservation import BookingUsage, OccurrenceState, ReservationInfo
from gq.model.state import JobState
from gq.wire.client import Events, ListNotices, ListReservations, Notices, QueryAccuracy, QueryAudit, QueryBookings
from gqd.state.cluster import Cluster
from gqd.state.events.event import Event
from gqd.state.input import PastJob
from gqd.state.notice import WAITING
from gqd.state.records import Job, Step
from gqd.store.protocol import (
    AuditPage,
    Batch,
    EstimateOutcome,
    EventQuery,
    HistoryQuery,
    RetentionCutoffs,
    Row,
    StoreFailed,
)
from gqd.store.queries import audit as trail
from gqd.store.queries import bookings, stream
from gqd.store.queries.history import job_infos, matches
from gqd.store.queries.past import past_of
from gqd.store.rows.columns import GOING
from gqd.store.rows.crontab import entry_of
from gqd.store.rows.rows import (
    COLUMNS,
    KEYS,
    attempt_of,
    audit_entry_of,
    cluster_of,
    event_of,
    event_row,
    job_of,
    step_of,
)

_FREED_AT = COLUMNS["allocations"].index("freed_at")
_LEARNED_AT = COLUMNS["lengths"].index("learned_at")
_IS_GONE = COLUMNS["reservations"].index("is_gone")
_OVER_AT = COLUMNS["reservations"].index("over_at")
_ENDED_AT = COLUMNS["occurrences"].index("ended_at")
_STATE, _JOB_ENDED_AT, _ARRAY = (COLUMNS["jobs"].index(name) for name in ("state", "end_at", "array_job_id"))
_OCCURRENCE_STATE = COLUMNS["occurrences"].index("state")
_NOTICE_ENDED_AT = COLUMNS["notices"].index("ended_at")
_NOTICE_STATE = COLUMNS["notices"].index("state")
_STEP_END_AT = COLUMNS["steps"].index("end_at")


class MemoryStore:
    """A `Store` in memory.  `write` commits at once; after `hold`, commits wait for `flush` or are lost by `crash`."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[Row, Row]] = {table: {} for table in KEYS}
        self._forgotten: set[Row] = set()
        """Keys of jobs (one number) and of attempts (two numbers) that left the controller's memory."""
        self._events: list[Row] = []
        self._audit: list[Row] = []
        self._waiting: deque[tuple[Batch, asyncio.Future[None]]] = deque()
        self._is_held = False
        self._failure: StoreFailed | None = None

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self) -> Cluster:
        tables = self._tables
        return cluster_of(
            {
                "jobs": [row for key, row in tables["jobs"].items() if key not in self._forgotten],
                "attempts": [row for key, row in tables["attempts"].items() if key not in self._forgotten],
                "allocations": [row for row in tables["allocations"].values() if row[_FREED_AT] is None],
                "steps": [row for row in tables["steps"].values() if row[_STEP_END_AT] is None],
                "nodes": tables["nodes"].values(),
                "keys": tables["keys"].values(),
                **{table: tables[table].values() for table in ("accounts", "members", "qos", "limits", "budgets")},
                "lengths": sorted(tables["lengths"].values(), key=lambda row: float(row[_LEARNED_AT])),
                "notices": [row for row in tables["notices"].values() if row[_NOTICE_STATE] == WAITING],
                "told_jobs": tables["told_jobs"].values(),
                "dropped_notices": tables["dropped_notices"].values(),
                "crontabs": tables["crontabs"].values(),
                "cron_entries": [row for _, row in sorted(tables["cron_entries"].items())],
                "reservations": [row for row in tables["reservations"].values() if not row[_IS_GONE]],
                "occurrences": [
                    row for row in tables["occurrences"].values() if not OccurrenceState(row[_OCCURRENCE_STATE]).is_past
                ],
                "claims": tables["claims"].values(),
                "parked": tables["parked"].values(),
                "owed_orders": tables["owed_orders"].values(),
                "requests": tables["requests"].values(),
                "meta": tables["meta"].values(),
            }
        )

    async def commit(self, batch: Batch) -> None:
        if not self._is_held or self._failure is not None:
            self.write(batch)
            return
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, durable))
        await durable

    def history(self, query: HistoryQuery) -> Iterator[JobInfo]:
        nodes: dict[int, set[str]] = {}
        for job_id, _attempt, node in self._tables["allocations"]:
            nodes.setdefault(job_id, set()).add(node)
        jobs = [job_of(row) for _, row in sorted(self._tables["jobs"].items())]
        found = [job for job in jobs if matches(query, job, nodes.get(job.job_id, ()))]
        shown = 0
        for job in found:
            row = self._tables["attempts"].get((job.job_id, job.attempt))
            steps = self._steps_of(job) if query.with_steps else []
            for info in job_infos(query, job, None if row is None else attempt_of(row), steps):
                shown += 1
                yield info
            if shown >= query.limit:
                return

    def _steps_of(self, job: Job) -> list[Step]:
        rows = sorted(self._tables["steps"].items())
        return [step_of(row) for key, row in rows if key[:2] == (job.job_id, job.attempt)]

    def past(self, job_ids: Collection[int]) -> dict[int, PastJob]:
        rows = (self._tables["jobs"].get((job_id,)) for job_id in job_ids)
        jobs = [job_of(row) for row in rows if row is not None]
        return {job.job_id: past_of(job) for job in jobs if job.state is JobState.ENDED}

    def audit(self, query: QueryAudit) -> AuditPage:
        numbered = [(number, audit_entry_of(row)) for number, row in enumerate(self._audit, 1) if number > query.after]
        found = [(number, entry) for number, entry in numbered if trail.matches(query, entry)]
        return trail.page(found, query)

    def past_occurrences(self, query: ListReservations) -> list[ReservationInfo]:
        rows = list(self._tables["occurrences"].values())
        return bookings.past_occurrences(self._tables["reservations"].values(), rows, query)

    def bookings(self, query: QueryBookings) -> list[BookingUsage]:
        return bookings.usage_of(self._tables["occurrences"].values(), query)

    def estimate_outcomes(self, query: QueryAccuracy) -> list[EstimateOutcome]:
        until = float("inf") if query.until is None else query.until
        attempts = [attempt_of(row) for row in self._tables["attempts"].values()]
        return [
            EstimateOutcome(attempt.estimate, attempt.start_at)
            for attempt in attempts
            if attempt.estimate is not None and attempt.start_at is not None and query.since <= attempt.start_at < until
        ]

    def event_lines(self, query: EventQuery) -> Events:
        newest, jobs = len(self._events), stream.about_jobs(self._tables["jobs"].values())
        if query.asked.from_now:
            return Events(last=newest)
        numbered = enumerate(self._events, 1)
        found = [(number, row) for number, row in numbered if stream.matches_event(query, number, row, jobs)]
        return stream.events_page(found, query, newest)

    def notices(self, query: ListNotices, uid: int | None = None) -> Notices:
        rows = [row for _, row in sorted(self._tables["notices"].items())]
        return stream.notices_page([row for row in rows if stream.matches_notice(query, uid, row)], query)

    def has_older(self, forgetting: RetentionCutoffs) -> bool:
        bounds = ((self._events, forgetting.events_before), (self._audit, forgetting.audit_before))
        if self._old_jobs(forgetting.jobs_before):
            return True
        return bool(self._past_before(forgetting.occurrences_before)) or any(
            before is not None and any(line[0] < before for line in lines[:-1][: forgetting.most])
            for lines, before in bounds
        )

    def _old_jobs(self, before: float | None) -> list[int]:
        """Ids of jobs that ended before `before` and left memory; an array's record after all its tasks."""
        if before is None:
            return []
        rows = [row for key, row in self._tables["jobs"].items() if key in self._forgotten]
        old = [row for row in rows if row[_STATE] == JobState.ENDED.value and row[_JOB_ENDED_AT] < before]
        tasks = {row[_ARRAY] for row in self._tables["jobs"].values() if row[_ARRAY] not in (None, row[0])}
        return [job_id for _, job_id in sorted((row[_JOB_ENDED_AT], row[0]) for row in old if row[0] not in tasks)]

    def _past_before(self, before: float | None) -> list[Row]:
        """Keys of occurrences that ended before `before`."""
        rows = self._tables["occurrences"].items()
        ended = sorted((row[_ENDED_AT], key) for key, row in rows if row[_ENDED_AT] is not None)
        return [key for at, key in ended if before is not None and at < before]

    def named_blobs(self, ended_after: float) -> frozenset[str]:
        jobs = [(key, job_of(row)) for key, row in self._tables["jobs"].items()]
        kept = [job for key, job in jobs if key not in self._forgotten or (job.end_at or 0.0) >= ended_after]
        specs = [job.spec for job in kept]
        specs += [entry_of(row)[1].cron.spec for row in self._tables["cron_entries"].values()]
        named = [name for spec in specs for name in (spec.script_digest, spec.environment_digest)]
        return frozenset(name for name in named if name)

    # ── for tests and the simulator ───────────────────────────────────────────────────────────────────────────────

    def write(self, batch: Batch) -> None:
        """Commit without an event loop."""
        if self._failure is not None:
            raise self._failure
        for table, rows in batch.upserts.items():
            width = len(KEYS[table])
            self._tables[table].update((row[:width], row) for row in rows)
        self._delete(batch.deletes)
        self._events.extend(map(event_row, batch.events))
        self._audit.extend(batch.audit)
        if batch.forgetting is not None:
            self._forget(batch.forgetting)

    def _forget(self, wanted: RetentionCutoffs) -> None:
        for lines, before in ((self._events, wanted.events_before), (self._audit, wanted.audit_before)):
            oldest = lines[: wanted.most] if before is not None else []
            kept = [line for line in oldest if before is None or line[0] >= before or line is lines[-1]]
            lines[: len(oldest)] = kept
        self._forget_notices(wanted)
        self._forget_occurrences(wanted)
        old = frozenset(self._old_jobs(wanted.jobs_before)[: wanted.most])
        for table in ("steps", "allocations", "attempts", "jobs"):
            self._tables[table] = {key: row for key, row in self._tables[table].items() if row[0] not in old}

    def _forget_occurrences(self, wanted: RetentionCutoffs) -> None:
        """Delete old occurrences, and removed reservations without any."""
        if (before := wanted.occurrences_before) is None:
            return
        for key in self._past_before(before)[: wanted.most]:
            del self._tables["occurrences"][key]
        left = {reservation_id for reservation_id, _ in self._tables["occurrences"]}
        for key, row in list(self._tables["reservations"].items()):
            if row[_IS_GONE] and row[_OVER_AT] < before and row[0] not in left:
                del self._tables["reservations"][key]

    def _forget_notices(self, wanted: RetentionCutoffs) -> None:
        if wanted.events_before is None:
            return
        ended = [(row[_NOTICE_ENDED_AT], key) for key, row in self._tables["notices"].items()]
        old = sorted(one for one in ended if one[0] is not None and one[0] < wanted.events_before)
        for _, key in old[: wanted.most]:
            del self._tables["notices"][key]

    def _delete(self, deletes: dict[str, tuple[Row, ...]]) -> None:
        self._forgotten.update(deletes.get("jobs", ()), deletes.get("attempts", ()))
        for table in GOING:
            for name in deletes.get(table, ()):
                self._tables[table].pop(name, None)
        for (before,) in deletes.get("requests", ()):
            requests = self._tables["requests"]
            self._tables["requests"] = {key: row for key, row in requests.items() if row[1] >= before}

    def events(self) -> list[Event]:
        """The committed events, oldest first."""
        return [event_of(row) for row in self._events]

    def hold(self) -> None:
        """Simulate a slow disk: from now on commits wait for `flush`."""
        self._is_held = True

    def flush(self, count: int | None = None) -> None:
        """Make the oldest `count` waiting commits durable; None: make all durable and end `hold`."""
        self._is_held = count is not None
        for _ in range(len(self._waiting) if count is None else min(count, len(self._waiting))):
            batch, durable = self._waiting.popleft()
            self.write(batch)
            if not durable.done():
                durable.set_result(None)

    def crash(self) -> None:
        """Simulate a power cut: waiting commits are lost, unacknowledged.  The store can be loaded again."""
        while self._waiting:
            _batch, durable = self._waiting.popleft()
            durable.cancel()
        self._is_held = False
        self._failure = None

    def fail(self, why: str = "the disk is full") -> None:
        """Simulate a broken disk: waiting commits and all later ones fail."""
        self._failure = StoreFailed("commit_failed", why)
        while self._waiting:
            _batch, durable = self._waiting.popleft()
            if not durable.done():
                durable.set_exception(self._failure)
