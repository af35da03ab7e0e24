"""What the events of reservations do to the cluster, and what starts and ends of jobs do to occurrences.  Pure.

Decides nothing (see `gqd.control.apply.table`).
"""

from __future__ import annotations

from gq.model.reservation import OccurrenceState
from gq.model.resource import Grant
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.bookings import occurrence_of
from gqd.state.records import Attempt
from gqd.state.reservation import Occurrence, Reservation


def apply_set(cluster: Cluster, fact: event.ReservationSet) -> None:
    name = fact.booking.name
    known = cluster.reservations.get(name)
    if known is None:
        known = cluster.reservations[name] = Reservation(
            cluster.next_reservation_id, fact.booking, fact.owner, fact.uid, fact.at, over_at=fact.at
        )
        known.next_number = fact.first_number
        cluster.next_reservation_id += 1
        cluster.changes.next_reservation_id = True
    known.booking, known.owner, known.uid = fact.booking, fact.owner, fact.uid
    known.planned_until = fact.planned_until
    _touch(cluster, known)


def apply_removed(cluster: Cluster, fact: event.ReservationRemoved) -> None:
    reservation = cluster.reservations.pop(fact.name)
    for one in list(reservation.occurrences.values()):
        _end(cluster, reservation, one, fact.at, OccurrenceState.ENDED, "the reservation was deleted")
    _touch(cluster, reservation)


def apply_planned(cluster: Cluster, fact: event.OccurrencePlanned) -> None:
    reservation = cluster.reservations[fact.name]
    assert fact.number == reservation.next_number, f"{fact.name}: {fact.number} is not its next occurrence"
    one = Occurrence(fact.number, fact.begin_at, fact.end_at, fact.grants, missing_gpus=fact.missing_gpus, why=fact.why)
    reservation.occurrences[fact.number] = one
    reservation.next_number += 1
    reservation.over_at = None
    _follow(reservation, fact.begin_at)
    _touch(cluster, reservation, one)


def apply_changed(cluster: Cluster, fact: event.OccurrenceChanged) -> None:
    reservation, one = _known(cluster, fact.name, fact.number)
    one.begin_at, one.end_at, one.grants = fact.begin_at, fact.end_at, fact.grants
    one.missing_gpus, one.why = fact.missing_gpus, fact.why
    _touch(cluster, reservation, one)


def apply_began(cluster: Cluster, fact: event.OccurrenceBegan) -> None:
    reservation, one = _known(cluster, fact.name, fact.number)
    one.state = OccurrenceState.ACTIVE
    _touch(cluster, reservation, one)


def apply_ended(cluster: Cluster, fact: event.OccurrenceEnded) -> None:
    reservation, one = _known(cluster, fact.name, fact.number)
    _end(cluster, reservation, one, fact.at, fact.state, fact.why)


def apply_passed(cluster: Cluster, fact: event.OccurrencesPassed) -> None:
    reservation = cluster.reservations[fact.name]
    _follow(reservation, fact.until)
    _touch(cluster, reservation)


# ── jobs in an occurrence ─────────────────────────────────────────────────────────────────────────────────────


def enter(cluster: Cluster, attempt: Attempt) -> None:
    """The attempt was allocated in its occurrence."""
    if (known := occurrence_of(cluster, attempt)) is None:
        return
    reservation, one = known
    one.inside[attempt.attempt_id] = None
    one.empty_since = None
    _touch(cluster, reservation, one)


def begin(cluster: Cluster, attempt: Attempt, at: float) -> None:
    """The attempt has started in its occurrence: from now on that was used."""
    if (known := occurrence_of(cluster, attempt)) is None or known[1].used_at is not None:
        return
    reservation, one = known
    one.used_at = at
    _touch(cluster, reservation, one)


def leave(cluster: Cluster, attempt: Attempt, grant: Grant, at: float) -> None:
    """A part of the attempt is gone; the last of them leaves the occurrence."""
    if (known := occurrence_of(cluster, attempt)) is None:
        return
    reservation, one = known
    one.used_gpu_s += _gpu_s(one, attempt, grant, at)
    if not attempt.parts:
        one.inside.pop(attempt.attempt_id, None)
        if not one.inside:
            one.empty_since = at
    _touch(cluster, reservation, one)


def _gpu_s(one: Occurrence, attempt: Attempt, grant: Grant, at: float) -> float:
    """What the part has used of the occurrence."""
    return max(0.0, min(at, one.end_at) - attempt.allocated_at) * len(grant.gpus)


def _known(cluster: Cluster, name: str, number: int) -> tuple[Reservation, Occurrence]:
    reservation = cluster.reservations[name]
    return reservation, reservation.occurrences[number]


def _follow(reservation: Reservation, until: float) -> None:
    """The cron line has been followed up to here."""
    reservation.planned_until = max(until, reservation.planned_until or until)


def _end(
    cluster: Cluster, reservation: Reservation, one: Occurrence, at: float, state: OccurrenceState, why: str
) -> None:
    """Jobs that still run in it have used it until now."""
    for attempt_id in one.inside:
        attempt = cluster.attempts[attempt_id]
        one.used_gpu_s += sum(_gpu_s(one, attempt, part.grant, at) for part in attempt.parts.values())
    one.inside = {}
    one.state, one.ended_at, one.why = state, at, why
    del reservation.occurrences[one.number]
    if not reservation.occurrences:
        reservation.over_at = at
    _touch(cluster, reservation, one)


def _touch(cluster: Cluster, reservation: Reservation, one: Occurrence | None = None) -> None:
    cluster.changes.reservations[reservation.reservation_id] = reservation
    if one is not None:
        cluster.changes.occurrences[reservation.reservation_id, one.number] = (reservation, one)
