"""Queries of events and notices: as SQL, or as a test of one row.

Secrets are never returned to any user: keys of steps and nodes, stored answers, and URLs except their host.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gq.model.notice import EventInfo, host_only
from gq.wire.client import Events, ListNotices, Notices
from gqd.store.protocol import EventQuery, Row
from gqd.store.rows.notice import notice_info_of
from gqd.store.rows.rows import COLUMNS

_SECRET = ("key", "ticket_key", "answer")
_EVENTS = f"SELECT seq, {', '.join(COLUMNS['events'])} FROM events"
_IS_TASK = "job_id IN (SELECT job_id FROM jobs WHERE array_job_id IN ({}))"
_NOTICES = f"SELECT {', '.join(COLUMNS['notices'])} FROM notices"
_STATE, _USER, _UID, _JOB_ID = (COLUMNS["notices"].index(name) for name in ("state", "user", "uid", "job_id"))
Numbered = tuple[int, Row]

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────


def select_events(connection: sqlite3.Connection, query: EventQuery) -> Events:
    """Select a page of events; the newest number is read first, where a client without matching events continues."""
    [(newest,)] = connection.execute("SELECT coalesce(max(seq), 0) FROM events")
    asked = query.asked
    if asked.from_now:
        return Events(last=newest)
    conditions, values = ["seq > ? AND seq <= ?"], [asked.after, newest]
    if asked.since is not None:
        conditions, values = [*conditions, "at >= ?"], [*values, asked.since]
    if asked.types:
        conditions, values = [*conditions, f"kind IN ({_marks(asked.types)})"], [*values, *asked.types]
    if asked.job_ids:
        marks = _marks(asked.job_ids)
        conditions.append(f"(job_id IN ({marks}) OR {_IS_TASK.format(marks)})")
        values += [*asked.job_ids, *asked.job_ids]
    if query.shown_to is not None:
        conditions.append("job_id IN (SELECT job_id FROM jobs WHERE user = ? AND uid = ?)")
        values += [query.shown_to.user, query.shown_to.uid]
    sql = f"{_EVENTS} WHERE {' AND '.join(conditions)} ORDER BY seq LIMIT ?"
    return events_page(
        [(row[0], row[1:]) for row in connection.execute(sql, (*values, asked.limit + 1))], query, newest
    )


def _marks(wanted: Sequence[object]) -> str:
    return ", ".join("?" * len(wanted))


class About(NamedTuple):
    """The properties of a job that the test of its events needs."""

    user: str
    uid: int
    array_job_id: int | None


def matches_event(query: EventQuery, number: int, row: Row, jobs: Mapping[int, About]) -> bool:
    """The same test as `select_events`."""
    at, kind, job_id, _node, _body = row
    asked, peer, job = query.asked, query.shown_to, jobs.get(job_id)
    return (
        number > asked.after
        and (asked.since is None or at >= asked.since)
        and (not asked.job_ids or job_id in asked.job_ids or (job is not None and job.array_job_id in asked.job_ids))
        and (not asked.types or kind in asked.types)
        and (peer is None or (job is not None and (job.user, job.uid) == (peer.user, peer.uid)))
    )


def events_page(found: Sequence[Numbered], query: EventQuery, newest: int) -> Events:
    """The page of the first found events, each with its number; the next page begins after the last of them."""
    shown = found[: query.asked.limit]
    more = len(found) > len(shown)
    return Events(
        events=tuple([event_info(number, row) for number, row in shown]),
        last=shown[-1][0] if more else max(newest, query.asked.after),
        more=more,
    )


def event_info(number: int, row: Row) -> EventInfo:
    at, kind, job_id, node, body = row
    return EventInfo(seq=number, at=at, type=kind, job_id=job_id, node=node or "", body=_shown(kind, body))


def _shown(kind: str, body: str) -> str:
    fields: dict[str, Any] = msgspec.json.decode(body)
    shown = {name: value for name, value in fields.items() if name not in _SECRET}
    if kind == "NoticeQueued":
        shown["to"] = host_only(shown["kind"], shown.get("to", ""))
    for said in (shown.get("spec"), shown.get("booking")):
        if isinstance(said, dict) and "notify" in said:
            targets = said["notify"]
            said["notify"] = [
                {**target, "to": host_only(target.get("kind", ""), target.get("to", ""))} for target in targets
            ]
    return msgspec.json.encode(shown).decode()


# ── notices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def select_notices(connection: sqlite3.Connection, query: ListNotices, uid: int | None) -> Notices:
    conditions: list[str] = ["notice_id > ?"]
    values: list[object] = [query.after]
    if query.user:
        conditions, values = [*conditions, "user = ?"], [*values, query.user]
    if uid is not None:
        conditions, values = [*conditions, "uid = ?"], [*values, uid]
    for column, wanted in (("job_id", query.job_ids), ("state", query.states)):
        if wanted:
            conditions, values = [*conditions, f"{column} IN ({_marks(wanted)})"], [*values, *wanted]
    sql = f"{_NOTICES} WHERE {' AND '.join(conditions)} ORDER BY notice_id LIMIT ?"
    return notices_page(connection.execute(sql, (*values, query.limit + 1)).fetchall(), query)


def matches_notice(query: ListNotices, uid: int | None, row: Row) -> bool:
    return (
        row[0] > query.after
        and query.user in ("", row[_USER])
        and uid in (None, row[_UID])
        and (not query.job_ids or row[_JOB_ID] in query.job_ids)
        and (not query.states or row[_STATE] in query.states)
    )


def notices_page(found: Sequence[Row], query: ListNotices) -> Notices:
    return Notices(notices=tuple(map(notice_info_of, found[: query.limit])), more=len(found) > query.limit)


def about_jobs(jobs: Iterable[Row]) -> dict[int, About]:
    """The properties that `matches_event` needs, by job id, from rows of jobs."""
    places = [COLUMNS["jobs"].index(name) for name in About._fields]
    return {row[0]: About(*[row[place] for place in places]) for row in jobs}
