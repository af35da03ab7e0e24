"""Requests about reservations, and what answers them; part of `gq.wire.client`."""

from __future__ import annotations

import msgspec

from gq.model.reservation import Booking, BookingUsage, ReservationInfo
from gq.model.resource import Count


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class SetReservation(_Body, frozen=True, kw_only=True):
    """Make a reservation, or change one: everything that is not said is at its default.  → `Reserved`

    A conflict is a `Refused` with `offers`.
    """

    booking: Booking
    replace: bool = False
    """There may be one of that name: it keeps what it has where that will do; the same again changes nothing."""
    must_exist: bool = False
    """There must be one of that name."""
    test_only: bool = False
    """Only say what it would keep, or why not."""
    skip_conflicts: bool = False
    """Of a series: times that cannot be had are left out, unless all of them are."""


class EditOccurrence(_Body, frozen=True, kw_only=True):
    """Move one occurrence, or make it longer or shorter.  → `Reserved`"""

    name: str
    number: Count
    begin_at: float | None = None
    duration_s: Count | None = None


class SkipOccurrence(_Body, frozen=True, kw_only=True):
    """One that has not begun does not take place.  → `Reserved`"""

    name: str
    number: Count | None = None
    """None: the next."""


class EndReservation(_Body, frozen=True, kw_only=True):
    """End the occurrence that is under way; jobs in it go on as others do.  → `Reserved`"""

    name: str


class DeleteReservation(_Body, frozen=True, kw_only=True):
    """Nothing of it is kept any more; jobs in it go on as others do, those that wait for it are told.  → `Done`"""

    name: str


class ListReservations(_Body, frozen=True, kw_only=True):
    """→ `Reservations`"""

    names: tuple[str, ...] = ()
    """Empty: all that are not over."""
    since: float | None = None
    """Also past occurrences, those that ended after this, and reservations that are over."""
    after: str = ""
    """Of the answer before, its last name."""
    limit: int = 500


class QueryBookings(_Body, frozen=True, kw_only=True):
    """Who booked how much, and used how much of it.  → `Bookings`"""

    since: float
    until: float | None = None


class Reserved(_Body, frozen=True, kw_only=True):
    """As it is now.  ``is_changed`` false: it was so already."""

    reservation: ReservationInfo
    is_changed: bool = True
    skipped_at: tuple[float, ...] = ()
    """Begins of what `skip_conflicts` left out."""
    notes: tuple[str, ...] = ()
    """Which jobs the reservation keeps waiting, and what would let them start before."""


class Reservations(_Body, frozen=True, kw_only=True):
    reservations: tuple[ReservationInfo, ...]
    more: bool = False


class Bookings(_Body, frozen=True, kw_only=True):
    usage: tuple[BookingUsage, ...]
