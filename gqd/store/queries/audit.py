"""Queries of the audit trail: a `QueryAudit` as SQL, or as a test of one entry."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gq.model.audit import AuditEntry
from gq.wire.client import QueryAudit
from gqd.store.protocol import AuditPage
from gqd.store.rows.rows import COLUMNS, audit_entry_of

DONE = "done"
REFUSED = "refused"
"""An outcome in a query that matches every outcome except done."""

_SELECTED = f"SELECT seq, {', '.join(COLUMNS['audit'])} FROM audit"


def select_entries(connection: sqlite3.Connection, query: QueryAudit) -> AuditPage:
    """Select a page of entries; one more than the page is read to know whether there are more."""
    conditions: list[tuple[str, str | float]] = [("seq > ?", query.after)]
    if query.user:
        conditions.append(("user = ?", query.user))
    if query.action:
        conditions.append(("action = ?", query.action))
    if query.outcome:
        conditions.append(("outcome <> ?", DONE) if query.outcome == REFUSED else ("outcome = ?", query.outcome))
    if query.since is not None:
        conditions.append(("at >= ?", query.since))
    if query.until is not None:
        conditions.append(("at < ?", query.until))
    where = " AND ".join(text for text, _ in conditions)
    values = [value for _, value in conditions]
    rows = connection.execute(f"{_SELECTED} WHERE {where} ORDER BY seq LIMIT ?", (*values, query.limit + 1))
    return page([(row[0], audit_entry_of(row[1:])) for row in rows], query)


def matches(query: QueryAudit, entry: AuditEntry) -> bool:
    """The same test as `select_entries`, without the entry's number."""
    is_outcome = entry.outcome != DONE if query.outcome == REFUSED else entry.outcome == query.outcome
    return (
        (not query.user or entry.user == query.user)
        and (not query.action or entry.action == query.action)
        and (not query.outcome or is_outcome)
        and (query.since is None or entry.at >= query.since)
        and (query.until is None or entry.at < query.until)
    )


def page(found: Sequence[tuple[int, AuditEntry]], query: QueryAudit) -> AuditPage:
    """The page of the first found entries, each with its number."""
    shown = found[: query.limit]
    last = shown[-1][0] if shown else query.after
    return AuditPage(tuple(entry for _, entry in shown), last, len(found) > query.limit)
