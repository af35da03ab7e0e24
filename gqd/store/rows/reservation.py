"""Converts reservations and their occurrences to rows and back.  Pure.  See `gqd.store.rows.rows`.

A row stays when its object leaves the controller's memory: a reservation is marked as gone, an occurrence has its end
state.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.model.notice import shown
from gq.model.reservation import Booking, OccurrenceState, ReservationInfo
from gq.model.resource import Grant
from gqd.state.cluster import Cluster
from gqd.state.index.changes import Changes
from gqd.state.job_view import held
from gqd.state.reservation import Occurrence, Reservation, occurrence_info
from gqd.store.protocol import Row

_IS_GONE = 8
"""Index of the column in `reservation_row`."""
NEXT_RESERVATION_ID = "next_reservation_id"

_booking_of = msgspec.json.Decoder(Booking).decode
_grants_of = msgspec.json.Decoder(tuple[Grant, ...]).decode


def reservation_row(one: Reservation, is_gone: bool) -> Row:
    booking = one.booking
    return (
        one.reservation_id, one.name, one.owner, one.uid, one.created_at, booking.cron, booking.zone,
        booking.duration_s, 1 if is_gone else 0, one.next_number, one.planned_until, one.over_at,
        msgspec.json.encode(booking).decode(),
    )  # fmt: skip


def reservation_of(row: Row) -> Reservation:
    (
        reservation_id, _name, owner, uid, created_at, _cron, _zone, _duration_s, _is_gone, next_number,
        planned_until, over_at, booking,
    ) = row  # fmt: skip
    return Reservation(
        reservation_id,
        _booking_of(booking),
        owner,
        uid,
        created_at,
        next_number=next_number,
        planned_until=planned_until,
        over_at=over_at,
    )


def occurrence_row(reservation: Reservation, one: Occurrence) -> Row:
    nodes, _tasks, _cpus, gpus, _memory_mib = held(one.grants)
    return (
        reservation.reservation_id, one.number, reservation.name, reservation.owner, one.begin_at, one.end_at,
        one.state.value, one.ended_at, one.why, nodes, gpus, one.missing_gpus, one.used_at, one.empty_since,
        one.used_gpu_s, msgspec.json.encode(one.grants).decode(),
    )  # fmt: skip


def occurrence_of(row: Row) -> Occurrence:
    (
        _reservation_id, number, _reservation, _owner, begin_at, end_at, state, ended_at, why, _nodes, _gpus,
        missing_gpus, used_at, empty_since, used_gpu_s, grants,
    ) = row  # fmt: skip
    return Occurrence(
        number,
        begin_at,
        end_at,
        _grants_of(grants),
        OccurrenceState(state),
        missing_gpus=missing_gpus,
        ended_at=ended_at,
        why=why,
        used_at=used_at,
        empty_since=empty_since,
        used_gpu_s=used_gpu_s,
    )


def reservations_of(reservations: Iterable[Row], occurrences: Iterable[Row]) -> dict[str, Reservation]:
    """The reservations by name, from rows of those not gone, and of occurrences that are not past."""
    found = {row[0]: reservation_of(row) for row in reservations}
    for row in occurrences:
        found[row[0]].occurrences[row[1]] = occurrence_of(row)
    return {one.name: one for one in found.values()}


def has_changed(changes: Changes) -> bool:
    return bool(changes.reservations or changes.occurrences)


def upserts(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    there = cluster.reservations
    return {
        "reservations": tuple(
            [reservation_row(one, there.get(one.name) is not one) for one in changes.reservations.values()]
        ),
        "occurrences": tuple([occurrence_row(*one) for one in changes.occurrences.values()]),
    }


# ── as they are shown ─────────────────────────────────────────────────────────────────────────────────────────────


def info_of(reservation: Row, occurrences: Iterable[Row]) -> ReservationInfo:
    """The `ReservationInfo` of a reservation, which may be gone, with these of its occurrences."""
    known = reservation_of(reservation)
    return ReservationInfo(
        booking=msgspec.structs.replace(known.booking, notify=shown(known.booking.notify)),
        owner=known.owner,
        uid=known.uid,
        created_at=known.created_at,
        occurrences=tuple(occurrence_info(occurrence_of(row)) for row in occurrences),
        gone_at=known.over_at if reservation[_IS_GONE] else None,
    )
