"""Answers to queries about reservations.  Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from gq.model import notice
from gq.model.reservation import Booking, BookingUsage, OccurrenceState, ReservationInfo
from gq.model.resource import gpus_in
from gq.wire import client
from gqd.control.reservation import occurrence
from gqd.state.effect import ReplyBookings, ReplyReservations
from gqd.state.index.bookings import borrowers_of
from gqd.state.records import Attempt
from gqd.state.reservation import Occurrence, Reservation, occurrence_info

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder
    from gqd.state.input import ClientRequest


def of(reservation: Reservation) -> ReservationInfo:
    there = sorted(reservation.occurrences.values(), key=lambda each: (each.begin_at, each.number))
    return ReservationInfo(
        booking=shown(reservation.booking),
        owner=reservation.owner,
        uid=reservation.uid,
        created_at=reservation.created_at,
        occurrences=tuple(occurrence_info(each) for each in there),
    )


def _with_lent(reservation: Reservation, borrowing: list[Attempt]) -> ReservationInfo:
    info = of(reservation)
    lent = {each.number: borrowers_of(borrowing, reservation.name, each) for each in reservation.occurrences.values()}
    told = (msgspec.structs.replace(each, lent_to=lent.get(each.number, ())) for each in info.occurrences)
    return msgspec.structs.replace(info, occurrences=tuple(told)) if any(lent.values()) else info


def shown(booking: Booking) -> Booking:
    """The booking with its notification targets redacted, as every user may see it."""
    return msgspec.structs.replace(booking, notify=notice.shown(booking.notify)) if booking.notify else booking


def list_reservations(
    draft: TurnBuilder, request: ClientRequest, body: client.ListReservations, limit: int
) -> client.Reservations | None:
    """List a page of reservations by name; None: past ones are wanted too, and the database answers."""
    there = draft.cluster.reservations
    names = sorted(name for name in there if name > body.after and _is_wanted(draft, there[name], body))
    borrowing = [one for one in draft.cluster.holding.values() if one.borrows]
    shown = tuple(_with_lent(there[name], borrowing) for name in names[: limit + 1])
    if body.since is None:
        return client.Reservations(reservations=shown[:limit], more=len(shown) > limit)
    query = msgspec.structs.replace(body, limit=limit)
    draft.enqueue(ReplyReservations(route=request.route, request_id=request.request_id, query=query, current=shown))
    return None


def _is_wanted(draft: TurnBuilder, reservation: Reservation, body: client.ListReservations) -> bool:
    """Whether to list it: a reservation that is over only by name, or if past ones are wanted."""
    if body.names:
        return reservation.name in body.names
    return body.since is not None or not occurrence.is_over(draft, reservation)


def query_bookings(draft: TurnBuilder, request: ClientRequest, body: client.QueryBookings) -> None:
    """Ask the database for usage by user; the active occurrences are added from memory."""
    until = math.inf if body.until is None else body.until
    under_way = tuple(
        _usage_of(draft, reservation, one)
        for reservation in draft.cluster.reservations.values()
        for one in reservation.occurrences.values()
        if one.state is OccurrenceState.ACTIVE and body.since <= one.begin_at < until
    )
    draft.enqueue(ReplyBookings(route=request.route, request_id=request.request_id, query=body, under_way=under_way))


def _usage_of(draft: TurnBuilder, reservation: Reservation, one: Occurrence) -> BookingUsage:
    used_gpu_s = one.used_gpu_s
    for attempt_id in one.inside:
        attempt = draft.cluster.attempts[attempt_id]
        gpus = gpus_in(part.grant for part in attempt.parts.values())
        used_gpu_s += max(0.0, draft.now - attempt.allocated_at) * gpus
    booked_gpu_s = max(0.0, draft.now - one.begin_at) * gpus_in(one.grants)
    return BookingUsage(user=reservation.owner, occurrences=1, booked_gpu_s=booked_gpu_s, used_gpu_s=used_gpu_s)
