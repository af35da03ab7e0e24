"""A store that forgets when the process ends, for tests and the simulator, with faults to order.

It keeps rows, not objects, so that what `load` returns has really been through `gqd.store.rows`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator

from gq.model.job import JobInfo
from gq.model.state import JobState
from gq.wire.client import QueryAccuracy, QueryAudit
from gqd.state.cluster import Cluster, Job, Step
from gqd.state.event import Event
from gqd.state.input import PastJob
from gqd.store import trail
from gqd.store.history import job_infos, matches
from gqd.store.past import past_of
from gqd.store.protocol import AuditPage, Batch, Forgetting, HistoryQuery, Row, StoreFailed, Told
from gqd.store.rows import COLUMNS, KEYS, attempt_of, audit_entry_of, cluster_of, event_of, event_row, job_of, step_of

_FREED_AT = COLUMNS["allocations"].index("freed_at")
_LEARNED_AT = COLUMNS["lengths"].index("learned_at")
_STEP_END_AT = COLUMNS["steps"].index("end_at")


class MemoryStore:
    """A `Store`.  `write` commits at once; after `hold`, commits wait for `flush` or vanish with `crash`."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[Row, Row]] = {table: {} for table in KEYS}
        self._forgotten: set[Row] = set()
        """Keys of jobs (one number) and of attempts (two)."""
        self._events: list[Row] = []
        self._audit: list[Row] = []
        self._waiting: deque[tuple[Batch, asyncio.Future[None]]] = deque()
        self._is_held = False
        self._failure: StoreFailed | None = None

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────────────────

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
            for one in job_infos(query, job, None if row is None else attempt_of(row), steps):
                shown += 1
                yield one
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

    def told(self, query: QueryAccuracy) -> list[Told]:
        until = float("inf") if query.until is None else query.until
        attempts = [attempt_of(row) for row in self._tables["attempts"].values()]
        return [
            Told(one.estimate, one.start_at)
            for one in attempts
            if one.estimate is not None and one.start_at is not None and query.since <= one.start_at < until
        ]

    def has_older(self, forgetting: Forgetting) -> bool:
        bounds = ((self._events, forgetting.events_before), (self._audit, forgetting.audit_before))
        return any(
            before is not None and any(line[0] < before for line in lines[:-1][: forgetting.most])
            for lines, before in bounds
        )

    def named_blobs(self, ended_after: float) -> frozenset[str]:
        jobs = [(key, job_of(row)) for key, row in self._tables["jobs"].items()]
        kept = [job for key, job in jobs if key not in self._forgotten or (job.end_at or 0.0) >= ended_after]
        named = [name for job in kept for name in (job.spec.script_digest, job.spec.environment_digest)]
        return frozenset(name for name in named if name)

    # ── for tests and the simulator ───────────────────────────────────────────────────────────────────────────

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

    def _forget(self, wanted: Forgetting) -> None:
        for lines, before in ((self._events, wanted.events_before), (self._audit, wanted.audit_before)):
            oldest = lines[: wanted.most] if before is not None else []
            kept = [line for line in oldest if before is None or line[0] >= before or line is lines[-1]]
            lines[: len(oldest)] = kept

    def _delete(self, deletes: dict[str, tuple[Row, ...]]) -> None:
        self._forgotten.update(deletes.get("jobs", ()), deletes.get("attempts", ()))
        for table in ("nodes", "keys", "accounts", "members", "qos", "limits", "budgets", "lengths"):
            for name in deletes.get(table, ()):
                self._tables[table].pop(name, None)
        for (before,) in deletes.get("requests", ()):
            requests = self._tables["requests"]
            self._tables["requests"] = {key: row for key, row in requests.items() if row[1] >= before}

    def events(self) -> list[Event]:
        """The change log, oldest first."""
        return [event_of(row) for row in self._events]

    def hold(self) -> None:
        """From now on the disk is slow: commits wait for `flush`."""
        self._is_held = True

    def flush(self, count: int | None = None) -> None:
        """Make the oldest `count` waiting commits durable; None: all, and the disk is fast again."""
        self._is_held = count is not None
        for _ in range(len(self._waiting) if count is None else min(count, len(self._waiting))):
            batch, durable = self._waiting.popleft()
            self.write(batch)
            if not durable.done():
                durable.set_result(None)

    def crash(self) -> None:
        """The machine stops: what waits is lost, unacknowledged.  The store can be loaded again."""
        while self._waiting:
            _batch, durable = self._waiting.popleft()
            durable.cancel()
        self._is_held = False
        self._failure = None

    def fail(self, why: str = "the disk is full") -> None:
        """The disk breaks: what waits, and every commit from now on, fails."""
        self._failure = StoreFailed("commit_failed", why)
        while self._waiting:
            _batch, durable = self._waiting.popleft()
            if not durable.done():
                durable.set_exception(self._failure)
