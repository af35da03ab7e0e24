"""Who is inside which occurrence, and what must always hold of reservations.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING

from gq.model.ids import AttemptId, JobId
from gq.model.reservation import OccurrenceState
from gq.model.resource import shares
from gqd.state.reservation import Occurrence, Reservation

if TYPE_CHECKING:
    from gqd.state.cluster import Cluster
    from gqd.state.records import Attempt


def occurrence_of(cluster: Cluster, attempt: Attempt) -> tuple[Reservation, Occurrence] | None:
    """In which the attempt is; None: in none, or that is past."""
    key = attempt.occurrence
    reservation = None if key is None else cluster.reservations.get(key.name)
    one = None if reservation is None or key is None else reservation.occurrences.get(key.number)
    return None if reservation is None or one is None else (reservation, one)


def lenders_of(cluster: Cluster, attempt: Attempt) -> tuple[str, ...]:
    """The reservations that keep what the attempt has borrowed, each once."""
    return tuple(
        reservation.name
        for reservation in (cluster.reservations.values() if attempt.borrows else ())
        if any(_lends(reservation.name, one, attempt) for one in reservation.occurrences.values())
    )


def borrowers_of(borrowing: Iterable[Attempt], name: str, one: Occurrence) -> tuple[JobId, ...]:
    """The jobs that have borrowed of what the occurrence, which is under way, keeps."""
    if one.state is not OccurrenceState.ACTIVE:
        return ()
    return tuple(sorted({attempt.attempt_id.job_id for attempt in borrowing if _lends(name, one, attempt)}))


def _lends(name: str, one: Occurrence, attempt: Attempt) -> bool:
    """It started on that, if on its memory alone; or has come to be on its GPUs or CPUs."""
    kept = {grant.node: grant for grant in one.grants}
    both = [(part.grant, kept[node]) for node, part in attempt.parts.items() if node in kept]
    if name in attempt.borrows:
        return bool(both)
    return one.state is OccurrenceState.ACTIVE and any(shares(own, other) for own, other in both)


def rebuild(cluster: Cluster) -> None:
    """The index, after loading."""
    inside = _inside(cluster)
    for reservation in cluster.reservations.values():
        for one in reservation.occurrences.values():
            one.inside = dict.fromkeys(inside.get(id(one), ()))


def _inside(cluster: Cluster) -> dict[int, list[AttemptId]]:
    found: dict[int, list[AttemptId]] = {}
    for attempt in cluster.holding.values():
        if (known := occurrence_of(cluster, attempt)) is not None:
            found.setdefault(id(known[1]), []).append(attempt.attempt_id)
    return found


def check(cluster: Cluster) -> None:
    """Invariant 13; see `gqd.state.cluster`."""
    inside = _inside(cluster)
    open_ones = [(one, each) for one in cluster.reservations.values() for each in one.occurrences.values()]
    for reservation, one in open_ones:
        name = f"13: occurrence {one.number} of reservation {reservation.name}"
        assert not one.state.is_past, f"{name} is {one.state}, and still there"
        assert one.number < reservation.next_number, f"{name} is beyond the next, {reservation.next_number}"
        assert one.begin_at < one.end_at, f"{name} has no length"
        assert set(one.inside) == set(inside.get(id(one), ())), f"{name} miscounts who is inside"
    for name, reservation in cluster.reservations.items():
        assert name == reservation.name, f"13: reservation {name} is called {reservation.name}"
        assert reservation.reservation_id < cluster.next_reservation_id, f"13: the number of {name} is not given yet"
        assert bool(reservation.occurrences) == (reservation.over_at is None), f"13: {name} is over, or is not"
    for (first, one), (second, other) in combinations(open_ones, 2):
        if one.begin_at < other.end_at and other.begin_at < one.end_at:
            both = _things(one) & _things(other)
            assert not both, f"13: {first.name} {one.number} and {second.name} {other.number} both keep {sorted(both)}"


def _things(one: Occurrence) -> set[tuple[str, str, int]]:
    cpus = {(grant.node, "CPU", cpu) for grant in one.grants for cpu in grant.cpus}
    return cpus | {(grant.node, "GPU", gpu) for grant in one.grants for gpu in grant.gpus}
