"""Events of reservations and their occurrences.  Pure."""

from __future__ import annotations

from gq.model.reservation import Booking, OccurrenceState
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class ReservationSet(EventBase, frozen=True, kw_only=True):
    """A reservation was made or changed; its occurrences are unchanged."""

    booking: Booking
    owner: str
    uid: int
    planned_until: float | None = None
    """See `gqd.state.reservation.Reservation`."""
    first_number: int = 1
    """Number of the first occurrence of a new reservation."""


class ReservationRemoved(EventBase, frozen=True, kw_only=True):
    """A reservation was deleted, and its occurrences that are not past ended."""

    name: str


class _Kept(EventBase, frozen=True, kw_only=True):
    """Period and resources of an occurrence."""

    name: str
    number: int
    begin_at: float
    end_at: float
    grants: tuple[Grant, ...]
    missing_gpus: int = 0
    why: str = ""


class OccurrencePlanned(_Kept, frozen=True, kw_only=True):
    """An occurrence was planned, with the reservation's next number."""


class OccurrenceChanged(_Kept, frozen=True, kw_only=True):
    """The period or the resources of an occurrence changed; the event holds all values."""


class OccurrenceBegan(EventBase, frozen=True, kw_only=True):
    """An occurrence began.  PLANNED → ACTIVE."""

    name: str
    number: int


class OccurrenceEnded(EventBase, frozen=True, kw_only=True):
    """An occurrence ended and reserves nothing any more; ``state`` says why."""

    name: str
    number: int
    state: OccurrenceState
    why: str = ""


class OccurrencesPassed(EventBase, frozen=True, kw_only=True):
    """The instants of the cron line up to ``until`` have been handled, without an occurrence for the last of them."""

    name: str
    until: float
