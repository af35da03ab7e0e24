"""Requests about reservations, and their answers; part of `gq.wire.client`."""

from __future__ import annotations

import msgspec

from gq.model.reservation import Booking, BookingUsage, ReservationInfo
from gq.model.resource import Count


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class SetReservation(_Body, frozen=True, kw_only=True):
    """Create or change a reservation; unspecified values take their defaults.  → `Reserved`

    A conflict is a `Refused` with `offers`.
    """

    booking: Booking
    replace: bool = False
    """A reservation of that name may exist: it keeps resources that still fit; an equal request changes nothing."""
    must_exist: bool = False
    """Refuse the request if no reservation of that name exists."""
    test_only: bool = False
    """Report the resources that the reservation would get, or the conflict, and change nothing."""
    skip_conflicts: bool = False
    """Leave out occurrences for which no resources are available, unless that is every occurrence."""


class EditOccurrence(_Body, frozen=True, kw_only=True):
    """Move one occurrence, or change its duration.  → `Reserved`"""

    name: str
    number: Count
    begin_at: float | None = None
    duration_s: Count | None = None


class SkipOccurrence(_Body, frozen=True, kw_only=True):
    """Skip an occurrence that has not begun.  → `Reserved`"""

    name: str
    number: Count | None = None
    """None: the next occurrence."""


class EndReservation(_Body, frozen=True, kw_only=True):
    """End the active occurrence; jobs that run in it continue outside of it.  → `Reserved`"""

    name: str


class DeleteReservation(_Body, frozen=True, kw_only=True):
    """Delete a reservation; its running jobs continue outside of it, its pending jobs stay queued.  → `Done`"""

    name: str


class ListReservations(_Body, frozen=True, kw_only=True):
    """List reservations by name.  → `Reservations`"""

    names: tuple[str, ...] = ()
    """Empty: all reservations that are not over."""
    since: float | None = None
    """Include reservations that are over and past occurrences, if they ended after this instant."""
    after: str = ""
    """Last name of the previous answer."""
    limit: int = 500


class QueryBookings(_Body, frozen=True, kw_only=True):
    """Query the reserved and the used GPU time of each user.  → `Bookings`"""

    since: float
    until: float | None = None


class Reserved(_Body, frozen=True, kw_only=True):
    """The reservation after the request.  ``is_changed`` false: the request changed nothing."""

    reservation: ReservationInfo
    is_changed: bool = True
    skipped_at: tuple[float, ...] = ()
    """Begins of the occurrences that `skip_conflicts` left out."""
    notes: tuple[str, ...] = ()
    """Jobs that the reservation keeps pending, and changes that would let them start before it."""


class Reservations(_Body, frozen=True, kw_only=True):
    reservations: tuple[ReservationInfo, ...]
    more: bool = False


class Bookings(_Body, frozen=True, kw_only=True):
    usage: tuple[BookingUsage, ...]
