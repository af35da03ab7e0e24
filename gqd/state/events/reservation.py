"""Events of reservations and their occurrences.  Pure."""

from __future__ import annotations

from gq.model.reservation import Booking, OccurrenceState
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class ReservationSet(EventBase, frozen=True, kw_only=True):
    """Made or changed; the whole of it, but for its occurrences, which stay."""

    booking: Booking
    owner: str
    uid: int
    planned_until: float | None = None
    """See `gqd.state.reservation.Reservation`."""
    first_number: int = 1
    """Of a new one: of its first occurrence."""


class ReservationRemoved(EventBase, frozen=True, kw_only=True):
    """With occurrences that are not past, which end."""

    name: str


class _Kept(EventBase, frozen=True, kw_only=True):
    """What an occurrence keeps, and when."""

    name: str
    number: int
    begin_at: float
    end_at: float
    grants: tuple[Grant, ...]
    missing_gpus: int = 0
    why: str = ""


class OccurrencePlanned(_Kept, frozen=True, kw_only=True):
    """From now on this is kept; the number is the reservation's next."""


class OccurrenceChanged(_Kept, frozen=True, kw_only=True):
    """It is kept then, and this; the whole."""


class OccurrenceBegan(EventBase, frozen=True, kw_only=True):
    """PLANNED → ACTIVE"""

    name: str
    number: int


class OccurrenceEnded(EventBase, frozen=True, kw_only=True):
    """Nothing is kept by it any more; ``state`` says why."""

    name: str
    number: int
    state: OccurrenceState
    why: str = ""


class OccurrencesPassed(EventBase, frozen=True, kw_only=True):
    """The cron line named these instants, and nothing is planned for them: up to here it has been followed."""

    name: str
    until: float
