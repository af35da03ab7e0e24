"""Queries of past occurrences of reservations, and of the GPU time that users reserved and used."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from gq.model.reservation import BookingUsage, OccurrenceState, ReservationInfo
from gq.model.resource import gpus_in
from gq.wire.client import ListReservations, QueryBookings, Reservations
from gqd.state.reservation import Occurrence
from gqd.store.protocol import Row
from gqd.store.rows.columns import COLUMNS
from gqd.store.rows.reservation import info_of, occurrence_of

OWNER = COLUMNS["occurrences"].index("owner")
_NEVER_KEPT = (OccurrenceState.SKIPPED, OccurrenceState.FAILED)
_OPEN = "state NOT IN ('PLANNED', 'ACTIVE')"
_NAMES = """
SELECT DISTINCT reservation FROM occurrences
WHERE ended_at >= ? AND reservation > ? AND {open} {named} ORDER BY reservation LIMIT ?
"""


# ── past occurrences ──────────────────────────────────────────────────────────────────────────────────────────────


def select_past_occurrences(connection: sqlite3.Connection, query: ListReservations) -> list[ReservationInfo]:
    """Past occurrences of the first names that match, one name more than the limit."""
    named = f"AND reservation IN ({', '.join('?' * len(query.names))})" if query.names else ""
    sql = _NAMES.format(open=_OPEN, named=named)
    values = (query.since or 0.0, query.after, *query.names, query.limit + 1)
    names = [name for (name,) in connection.execute(sql, values)]
    found: list[ReservationInfo] = []
    for name in names:
        found.extend(_past_of(connection, name, query.since or 0.0))
    return found


def _past_of(connection: sqlite3.Connection, name: str, since: float) -> Iterable[ReservationInfo]:
    columns = ", ".join(COLUMNS["occurrences"])
    sql = f"SELECT {columns} FROM occurrences WHERE reservation = ? AND ended_at >= ? AND {_OPEN} ORDER BY begin_at"
    by_id: dict[int, list[Row]] = {}
    for row in connection.execute(sql, (name, since)):
        by_id.setdefault(row[0], []).append(row)
    for reservation_id, rows in by_id.items():
        columns = ", ".join(COLUMNS["reservations"])
        known = connection.execute(f"SELECT {columns} FROM reservations WHERE reservation_id = ?", (reservation_id,))
        yield info_of(known.fetchone(), rows)


def past_occurrences(
    reservations: Iterable[Row], occurrences: Sequence[Row], query: ListReservations
) -> list[ReservationInfo]:
    """The same as `select_past_occurrences`, from rows in memory."""
    found = []
    for row in sorted(reservations, key=lambda one: (one[1], one[0])):
        own = [one for one in occurrences if one[0] == row[0] and _is_past(occurrence_of(one), query.since or 0.0)]
        if own and row[1] > query.after and (not query.names or row[1] in query.names):
            found.append(info_of(row, sorted(own, key=lambda one: (one[4], one[1]))))
    return found


def _is_past(occurrence: Occurrence, since: float) -> bool:
    return occurrence.ended_at is not None and occurrence.ended_at >= since


def with_past(current: Sequence[ReservationInfo], past: Sequence[ReservationInfo], limit: int) -> Reservations:
    """Merge past and current reservations into a page by name; removed reservations have past occurrences only."""
    by_life: dict[tuple[str, float], ReservationInfo] = {(one.booking.name, one.created_at): one for one in past}
    for one in current:
        before = by_life.get((one.booking.name, one.created_at))
        occurrences = (*(() if before is None else before.occurrences), *one.occurrences)
        by_life[one.booking.name, one.created_at] = msgspec.structs.replace(one, occurrences=occurrences)
    names = sorted({name for name, _ in by_life})
    shown = set(names[:limit])
    lives = [by_life[life] for life in sorted(by_life) if life[0] in shown]
    return Reservations(reservations=tuple(lives), more=len(names) > limit)


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def select_bookings(connection: sqlite3.Connection, query: QueryBookings) -> list[BookingUsage]:
    columns = ", ".join(COLUMNS["occurrences"])
    sql = f"SELECT {columns} FROM occurrences WHERE begin_at >= ? AND begin_at < ? AND {_OPEN}"
    until = math.inf if query.until is None else query.until
    return usage_of(connection.execute(sql, (query.since, until)), query)


def usage_of(occurrences: Iterable[Row], query: QueryBookings) -> list[BookingUsage]:
    """The usage of each past occurrence that began in the period."""
    until = math.inf if query.until is None else query.until
    found = []
    for row in occurrences:
        one = occurrence_of(row)
        if one.ended_at is None or one.state in _NEVER_KEPT or one.ended_at <= one.begin_at:
            continue
        if query.since <= one.begin_at < until:
            found.append(_usage(row[OWNER], one))
    return found


def _usage(owner: str, occurrence: Occurrence) -> BookingUsage:
    kept_s = min(occurrence.ended_at or occurrence.end_at, occurrence.end_at) - occurrence.begin_at
    return BookingUsage(
        user=owner,
        occurrences=1,
        no_shows=1 if occurrence.state is OccurrenceState.RELEASED else 0,
        booked_gpu_s=kept_s * gpus_in(occurrence.grants),
        used_gpu_s=occurrence.used_gpu_s,
    )


def by_user(usage: Iterable[BookingUsage]) -> tuple[BookingUsage, ...]:
    """The usage summed by user, in descending order of reserved GPU time."""
    sums: dict[str, BookingUsage] = {}
    for one in usage:
        known = sums.get(one.user)
        sums[one.user] = one if known is None else _sum(known, one)
    return tuple(sorted(sums.values(), key=lambda one: (-one.booked_gpu_s, one.user)))


def _sum(usage: BookingUsage, other: BookingUsage) -> BookingUsage:
    return BookingUsage(
        user=usage.user,
        occurrences=usage.occurrences + other.occurrences,
        no_shows=usage.no_shows + other.no_shows,
        booked_gpu_s=usage.booked_gpu_s + other.booked_gpu_s,
        used_gpu_s=usage.used_gpu_s + other.used_gpu_s,
    )
