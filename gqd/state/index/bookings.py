"""Queries about which attempts run in, or borrow from, which occurrences of reservations.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gq.model.ids import AttemptId, JobId
from gq.model.reservation import OccurrenceState
from gq.model.resource import shares
from gqd.state.cluster import Cluster
from gqd.state.records import Attempt
from gqd.state.reservation import Occurrence, OccurrenceKey, Reservation


def occurrence_of(cluster: Cluster, attempt: Attempt) -> tuple[Reservation, Occurrence] | None:
    """Return the reservation and the occurrence in which the attempt runs; None: none, or a past one."""
    key = attempt.occurrence
    reservation = None if key is None else cluster.reservations.get(key.name)
    occurrence = None if reservation is None or key is None else reservation.occurrences.get(key.number)
    return None if reservation is None or occurrence is None else (reservation, occurrence)


def lenders_of(cluster: Cluster, attempt: Attempt) -> tuple[str, ...]:
    """Return the names of the reservations from which the attempt has borrowed resources."""
    return tuple(
        reservation.name
        for reservation in (cluster.reservations.values() if attempt.borrows else ())
        if any(_lends(reservation.name, occurrence, attempt) for occurrence in reservation.occurrences.values())
    )


def borrowers_of(borrowing: Iterable[Attempt], name: str, occurrence: Occurrence) -> tuple[JobId, ...]:
    """Return the jobs that have borrowed resources of the occurrence, if it is active."""
    if occurrence.state is not OccurrenceState.ACTIVE:
        return ()
    return tuple(sorted({attempt.attempt_id.job_id for attempt in borrowing if _lends(name, occurrence, attempt)}))


def _lends(name: str, occurrence: Occurrence, attempt: Attempt) -> bool:
    """Whether the attempt was started on the reservation's resources, or now holds GPUs or CPUs that it reserves."""
    reserved = {grant.node: grant for grant in occurrence.grants}
    both = [(part.grant, reserved[node]) for node, part in attempt.parts.items() if node in reserved]
    if name in attempt.borrows:
        return bool(both)
    return occurrence.state is OccurrenceState.ACTIVE and any(shares(own, other) for own, other in both)


def attempts_inside(cluster: Cluster) -> dict[OccurrenceKey, list[AttemptId]]:
    """Attempts that still have parts, by the occurrence in which they run."""
    inside: dict[OccurrenceKey, list[AttemptId]] = {}
    for attempt in cluster.holding.values():
        if attempt.occurrence is not None and occurrence_of(cluster, attempt) is not None:
            inside.setdefault(attempt.occurrence, []).append(attempt.attempt_id)
    return inside
