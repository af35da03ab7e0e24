"""Apply the events of reservations to the cluster, and starts and ends of jobs to occurrences.  Pure.

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
    for occurrence in list(reservation.occurrences.values()):
        _end(cluster, reservation, occurrence, fact.at, OccurrenceState.ENDED, "the reservation was deleted")
    _touch(cluster, reservation)


def apply_planned(cluster: Cluster, fact: event.OccurrencePlanned) -> None:
    reservation = cluster.reservations[fact.name]
    assert fact.number == reservation.next_number, f"{fact.name}: {fact.number} is not its next occurrence"
    occurrence = Occurrence(
        fact.number, fact.begin_at, fact.end_at, fact.grants, missing_gpus=fact.missing_gpus, why=fact.why
    )
    reservation.occurrences[fact.number] = occurrence
    reservation.next_number += 1
    reservation.over_at = None
    _follow(reservation, fact.begin_at)
    _touch(cluster, reservation, occurrence)


def apply_changed(cluster: Cluster, fact: event.OccurrenceChanged) -> None:
    reservation, occurrence = _known(cluster, fact.name, fact.number)
    occurrence.begin_at, occurrence.end_at, occurrence.grants = fact.begin_at, fact.end_at, fact.grants
    occurrence.missing_gpus, occurrence.why = fact.missing_gpus, fact.why
    _touch(cluster, reservation, occurrence)


def apply_began(cluster: Cluster, fact: event.OccurrenceBegan) -> None:
    reservation, occurrence = _known(cluster, fact.name, fact.number)
    occurrence.state = OccurrenceState.ACTIVE
    _touch(cluster, reservation, occurrence)


def apply_ended(cluster: Cluster, fact: event.OccurrenceEnded) -> None:
    reservation, occurrence = _known(cluster, fact.name, fact.number)
    _end(cluster, reservation, occurrence, fact.at, fact.state, fact.why)


def apply_passed(cluster: Cluster, fact: event.OccurrencesPassed) -> None:
    reservation = cluster.reservations[fact.name]
    _follow(reservation, fact.until)
    _touch(cluster, reservation)


# ── jobs in an occurrence ─────────────────────────────────────────────────────────────────────────────────────


def enter(cluster: Cluster, attempt: Attempt) -> None:
    """Enter an attempt that was allocated in an occurrence."""
    if (known := occurrence_of(cluster, attempt)) is None:
        return
    reservation, occurrence = known
    occurrence.inside[attempt.attempt_id] = None
    occurrence.empty_since = None
    _touch(cluster, reservation, occurrence)


def begin(cluster: Cluster, attempt: Attempt, at: float) -> None:
    """Mark the attempt's occurrence as used from now on: the attempt has started."""
    if (known := occurrence_of(cluster, attempt)) is None or known[1].used_at is not None:
        return
    reservation, occurrence = known
    occurrence.used_at = at
    _touch(cluster, reservation, occurrence)


def leave(cluster: Cluster, attempt: Attempt, grant: Grant, at: float) -> None:
    """Count a part that was freed; with the last part the attempt leaves its occurrence."""
    if (known := occurrence_of(cluster, attempt)) is None:
        return
    reservation, occurrence = known
    occurrence.used_gpu_s += _gpu_s(occurrence, attempt, grant, at)
    if not attempt.parts:
        occurrence.inside.pop(attempt.attempt_id, None)
        if not occurrence.inside:
            occurrence.empty_since = at
    _touch(cluster, reservation, occurrence)


def _gpu_s(occurrence: Occurrence, attempt: Attempt, grant: Grant, at: float) -> float:
    """GPU-seconds of the occurrence that the part has used."""
    return max(0.0, min(at, occurrence.end_at) - attempt.allocated_at) * len(grant.gpus)


def _known(cluster: Cluster, name: str, number: int) -> tuple[Reservation, Occurrence]:
    reservation = cluster.reservations[name]
    return reservation, reservation.occurrences[number]


def _follow(reservation: Reservation, until: float) -> None:
    """Remember the instant up to which occurrences of the cron line are planned."""
    reservation.planned_until = max(until, reservation.planned_until or until)


def _end(
    cluster: Cluster, reservation: Reservation, occurrence: Occurrence, at: float, state: OccurrenceState, why: str
) -> None:
    """End the occurrence; jobs that still run in it have used it until now."""
    for attempt_id in occurrence.inside:
        attempt = cluster.attempts[attempt_id]
        occurrence.used_gpu_s += sum(_gpu_s(occurrence, attempt, part.grant, at) for part in attempt.parts.values())
    occurrence.inside = {}
    occurrence.state, occurrence.ended_at, occurrence.why = state, at, why
    del reservation.occurrences[occurrence.number]
    if not reservation.occurrences:
        reservation.over_at = at
    _touch(cluster, reservation, occurrence)


def _touch(cluster: Cluster, reservation: Reservation, occurrence: Occurrence | None = None) -> None:
    cluster.changes.reservations[reservation.reservation_id] = reservation
    if occurrence is not None:
        cluster.changes.occurrences[reservation.reservation_id, occurrence.number] = (reservation, occurrence)
