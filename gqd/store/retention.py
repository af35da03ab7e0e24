"""What the database may forget: lines of the change log and of the audit trail, past occurrences of reservations, and
jobs that have ended, if they are older than a bound.

The audit trail is only added to, and triggers see to it, for every connection.  Only here, in the writer's thread, is
the one against deleting taken away, and put back in the same transaction: whatever crashes, nobody ever meets a trail
without it.  The oldest lines go, a bounded number at a time, and the newest line of all stays, so that the numbers of
lines never start anew.
"""

from __future__ import annotations

import sqlite3

from gqd.store.migrations.schema import AUDIT_IS_NEVER_DELETED
from gqd.store.protocol import Forgetting

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
"""Those that were delivered or given up go with the lines that told of them."""
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
"""Those that the controller has no more in memory; of an array its tasks first, and its record after the last."""
_OF_JOBS = ("steps", "allocations", "attempts", "jobs")
_HAS_PAST = "SELECT EXISTS (SELECT 1 FROM occurrences WHERE ended_at < ?)"


def forget(connection: sqlite3.Connection, wanted: Forgetting) -> None:
    """In the transaction of the caller."""
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


def has_older(connection: sqlite3.Connection, wanted: Forgetting) -> bool:
    return (
        _has_older(connection, "events", wanted, wanted.events_before)
        or _has_older(connection, "audit", wanted, wanted.audit_before)
        or _has_past(connection, wanted.occurrences_before)
        or _has_old_jobs(connection, wanted.jobs_before)
    )


def _has_old_jobs(connection: sqlite3.Connection, before: float | None) -> bool:
    return before is not None and bool(connection.execute(_OLD_JOBS, {"before": before, "most": 1}).fetchall())


def _has_past(connection: sqlite3.Connection, before: float | None) -> bool:
    """Of what is not past `ended_at` is empty."""
    [(found,)] = [(False,)] if before is None else connection.execute(_HAS_PAST, (before,))
    return bool(found)


def _has_older(connection: sqlite3.Connection, table: str, wanted: Forgetting, before: float | None) -> bool:
    if before is None:
        return False
    [(found,)] = connection.execute(_HAS_OLDER.format(table=table), _bounds(wanted, before))
    return bool(found)


def _bounds(wanted: Forgetting, before: float) -> dict[str, float]:
    return {"most": wanted.most, "before": before}
