"""Deletes old events, audit entries, past occurrences of reservations, and ended jobs.

Triggers make the audit trail append-only for every connection.  Only here, in the writer's thread, the trigger against
deletion is dropped, and created again in the same transaction: even after a crash the trail always has it.  The oldest
rows are deleted, a bounded number at a time, and the newest row stays, so that row numbers are never reused.
"""

from __future__ import annotations

import sqlite3

from gqd.store.migrations.schema import AUDIT_IS_NEVER_DELETED
from gqd.store.protocol import RetentionCutoffs

_DELETE_OLDEST = """
DELETE FROM {table} WHERE seq IN (
    SELECT seq FROM (SELECT seq, at FROM {table} ORDER BY seq LIMIT :most) WHERE at < :before
) AND seq < (SELECT max(seq) FROM {table})
"""
DELETE_NOTICES = """
DELETE FROM notices WHERE notice_id IN (
    SELECT notice_id FROM notices WHERE state <> 'waiting' AND ended_at < :before
    ORDER BY ended_at, notice_id LIMIT :most
)
"""
"""Notices that were delivered or given up are deleted together with the events of their time."""
_HAS_OLDER = """
SELECT EXISTS (
    SELECT 1 FROM (SELECT seq, at FROM {table} ORDER BY seq LIMIT :most)
    WHERE at < :before AND seq < (SELECT max(seq) FROM {table})
)
"""
_DELETE_PAST = """
DELETE FROM occurrences WHERE (reservation_id, number) IN (
    SELECT reservation_id, number FROM occurrences WHERE ended_at < :before ORDER BY ended_at LIMIT :most
)
"""
_DELETE_EMPTY = """
DELETE FROM reservations
WHERE is_gone = 1 AND over_at < :before
AND NOT EXISTS (SELECT 1 FROM occurrences WHERE occurrences.reservation_id = reservations.reservation_id)
"""
_OLD_JOBS = """
SELECT job_id FROM jobs
WHERE state = 'ENDED' AND end_at < :before AND is_forgotten = 1 AND NOT EXISTS (
    SELECT 1 FROM jobs AS tasks WHERE tasks.array_job_id = jobs.job_id AND tasks.job_id <> jobs.job_id
)
ORDER BY end_at, job_id LIMIT :most
"""
"""Jobs that left the controller's memory; an array's record after the last of its tasks."""
_OF_JOBS = ("steps", "allocations", "attempts", "jobs")
_HAS_PAST = "SELECT EXISTS (SELECT 1 FROM occurrences WHERE ended_at < ?)"


def forget(connection: sqlite3.Connection, wanted: RetentionCutoffs) -> None:
    """Delete old rows, in the transaction of the caller."""
    if wanted.events_before is not None:
        connection.execute(_DELETE_OLDEST.format(table="events"), _bounds(wanted, wanted.events_before))
        connection.execute(DELETE_NOTICES, _bounds(wanted, wanted.events_before))
    if wanted.audit_before is not None and _has_older(connection, "audit", wanted, wanted.audit_before):
        connection.execute("DROP TRIGGER audit_is_never_deleted")
        connection.execute(_DELETE_OLDEST.format(table="audit"), _bounds(wanted, wanted.audit_before))
        connection.execute(AUDIT_IS_NEVER_DELETED)
    if wanted.occurrences_before is not None:
        connection.execute(_DELETE_PAST, _bounds(wanted, wanted.occurrences_before))
        connection.execute(_DELETE_EMPTY, {"before": wanted.occurrences_before})
    if wanted.jobs_before is not None:
        old = connection.execute(_OLD_JOBS, _bounds(wanted, wanted.jobs_before)).fetchall()
        for table in _OF_JOBS:
            connection.executemany(f"DELETE FROM {table} WHERE job_id = ?", old)


def has_older(connection: sqlite3.Connection, wanted: RetentionCutoffs) -> bool:
    return (
        _has_older(connection, "events", wanted, wanted.events_before)
        or _has_older(connection, "audit", wanted, wanted.audit_before)
        or _has_past(connection, wanted.occurrences_before)
        or _has_old_jobs(connection, wanted.jobs_before)
    )


def _has_old_jobs(connection: sqlite3.Connection, before: float | None) -> bool:
    return before is not None and bool(connection.execute(_OLD_JOBS, {"before": before, "most": 1}).fetchall())


def _has_past(connection: sqlite3.Connection, before: float | None) -> bool:
    """Whether there are occurrences that ended before `before`; `ended_at` of others is NULL."""
    [(found,)] = [(False,)] if before is None else connection.execute(_HAS_PAST, (before,))
    return bool(found)


def _has_older(connection: sqlite3.Connection, table: str, wanted: RetentionCutoffs, before: float | None) -> bool:
    if before is None:
        return False
    [(found,)] = connection.execute(_HAS_OLDER.format(table=table), _bounds(wanted, before))
    return bool(found)


def _bounds(wanted: RetentionCutoffs, before: float) -> dict[str, float]:
    return {"most": wanted.most, "before": before}
