"""The life of occurrences: begin, end, no-show, purge, planning of the next ones, failed nodes.  Pure.

`tick` drives everything here; it does nothing before `Volatile.bookings_due_at`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gq.calendar.schedule import instants
from gq.errors import Refusal
from gq.model.ids import AttemptId
from gq.model.reservation import Booking, Flag, OccurrenceState
from gq.model.resource import Grant, ResourceRequest, gpus_in
from gq.model.state import JobState
from gq.units import counted, spoken_duration
from gqd.control.reservation.availability import Availability, availability_of, is_up, known_partition
from gqd.sched.request import shape_in
from gqd.sched.reservation.booking import Span, joined, most_of, rest_of
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Node
from gqd.state.reservation import Occurrence, OccurrenceKey, Reservation

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_PLACED = 5
"""Occurrences that one tick plans or relocates; the next tick continues."""
MAX_AHEAD = 100
"""Planned occurrences of one reservation."""
RETRY_S = 60.0
"""Interval between searches for missing resources, besides those after the events in `GIVES_ROOM`."""
NEWS = (
    event.ReservationSet, event.ReservationRemoved, event.OccurrencePlanned, event.OccurrenceChanged,
    event.OccurrenceBegan, event.OccurrenceEnded, event.OccurrencesPassed, event.NodeRegistered, event.NodeLost,
    event.NodeDrained, event.NodeSetDown, event.NodeResumed, event.NodeRemoved,
)  # fmt: skip
"""Events after which `tick` and the planner may have something to do."""
GIVES_ROOM = (
    event.ReservationRemoved, event.OccurrenceEnded, event.NodeRegistered, event.NodeResumed, event.NodeDrained,
    event.NodeLost, event.NodeSetDown, event.NodeRemoved,
)  # fmt: skip
"""Events after which missing resources may be found, or others may be missing."""


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """React to an event that may concern reservations: make `tick` due."""
    volatile = draft.volatile
    if isinstance(fact, NEWS):
        volatile.bookings_due_at = draft.now
        if isinstance(fact, GIVES_ROOM):
            volatile.bookings_tried.clear()
    elif isinstance(fact, event.PartEmptied):
        attempt = draft.cluster.attempts.get(fact.attempt_id)
        if attempt is None or attempt.occurrence is not None:  # the attempt is gone where its job is pending again
            volatile.bookings_due_at = draft.now  # PURGE_COMP counts from now on, or no job has used it after all


def tick(draft: TurnBuilder) -> None:
    """Do what is due, and set `bookings_due_at` to the next instant at which something will be."""
    if draft.now < draft.volatile.bookings_due_at:
        return
    cluster, left = draft.cluster, MAX_PLACED
    for reservation in list(cluster.reservations.values()):
        reconcile_reservation(draft, reservation)
    for reservation in list(cluster.reservations.values()):
        left -= _mend(draft, reservation, left)
        left -= _plan_ahead(draft, reservation, left)
        _retire(draft, reservation)
    due = [at for reservation in cluster.reservations.values() for at in _due(draft, reservation)]
    draft.volatile.bookings_due_at = draft.now if left <= 0 else min(due, default=math.inf)


# ── begin and end ─────────────────────────────────────────────────────────────────────────────────────────────────


def reconcile_reservation(draft: TurnBuilder, reservation: Reservation) -> None:
    """Begin and end the occurrences of a reservation that are due."""
    for occurrence in list(reservation.occurrences.values()):
        if occurrence.state is OccurrenceState.PLANNED and occurrence.begin_at <= draft.now:
            draft.emit(event.OccurrenceBegan(at=draft.now, name=reservation.name, number=occurrence.number))
        if occurrence.state is not OccurrenceState.ACTIVE:
            continue
        if occurrence.end_at <= draft.now:
            end(draft, reservation.name, occurrence, OccurrenceState.OVER, "")
        elif (at := _no_show_at(draft, reservation, occurrence)) is not None and at <= draft.now:
            waited = spoken_duration(reservation.booking.no_show_s or 0)
            end(draft, reservation.name, occurrence, OccurrenceState.RELEASED, f"no job started in it within {waited}")
        elif (at := _purge_at(reservation, occurrence)) is not None and at <= draft.now:
            empty = spoken_duration(reservation.booking.purge_s or 0)
            end(draft, reservation.name, occurrence, OccurrenceState.ENDED, f"no job ran in it for {empty}")


def end(draft: TurnBuilder, name: str, occurrence: Occurrence, state: OccurrenceState, why: str) -> None:
    draft.emit(event.OccurrenceEnded(at=draft.now, name=name, number=occurrence.number, state=state, why=why))


def _no_show_at(draft: TurnBuilder, reservation: Reservation, occurrence: Occurrence) -> float | None:
    """When it is released if no job uses it, not counting time before the controller's start; None: never."""
    no_show_s = reservation.booking.no_show_s
    if not no_show_s or occurrence.used_at is not None or Flag.MAINT in reservation.booking.flags:
        return None
    if any(_is_starting(draft.cluster, attempt_id) for attempt_id in occurrence.inside):
        return None  # a job uses it; if the launch fails, this is due again when its part is empty
    return max(occurrence.begin_at, draft.volatile.there_since) + no_show_s


def _is_starting(cluster: Cluster, attempt_id: AttemptId) -> bool:
    job = cluster.jobs.get(attempt_id.job_id)
    return job is not None and job.attempt_id == attempt_id and job.state is JobState.STARTING


def _purge_at(reservation: Reservation, occurrence: Occurrence) -> float | None:
    purge_s = reservation.booking.purge_s
    if purge_s is None or occurrence.used_at is None or occurrence.empty_since is None:
        return None
    return max(occurrence.begin_at, occurrence.empty_since) + purge_s


def _due(draft: TurnBuilder, reservation: Reservation) -> Iterator[float]:
    """Instants at which `tick` has something to do for the reservation."""
    for occurrence in reservation.occurrences.values():
        yield occurrence.begin_at if occurrence.state is OccurrenceState.PLANNED else occurrence.end_at
        if occurrence.state is OccurrenceState.ACTIVE:
            yield from (
                at for at in (_no_show_at(draft, reservation, occurrence), _purge_at(reservation, occurrence)) if at
            )
        if occurrence.missing_gpus or _lost(draft, reservation, occurrence):
            yield draft.now + RETRY_S
    next_at = _next_begin(draft, reservation)
    if next_at is not None:
        room_at = next_at - draft.policy.booking.horizon_s
        yield max(room_at, draft.now + RETRY_S) if len(reservation.occurrences) >= MAX_AHEAD else room_at
    if reservation.over_at is not None and is_over(draft, reservation):
        yield reservation.over_at + _shown_s(draft)


def _retire(draft: TurnBuilder, reservation: Reservation) -> None:
    """Remove a reservation that is over, some time after its end."""
    if is_over(draft, reservation) and draft.now >= (reservation.over_at or 0.0) + _shown_s(draft):
        draft.emit(event.ReservationRemoved(at=draft.now, name=reservation.name))


def is_over(draft: TurnBuilder, reservation: Reservation) -> bool:
    """Whether all occurrences are past and none comes; False if this host no longer knows the series' time zone."""
    is_known = not reservation.booking.cron or reservation.booking.zone in draft.volatile.zones
    return reservation.over_at is not None and is_known and _next_begin(draft, reservation) is None


def _shown_s(draft: TurnBuilder) -> float:
    return draft.policy.limits.ended_job_keep_s


# ── planning the next occurrences ─────────────────────────────────────────────────────────────────────────────────


def _next_begin(draft: TurnBuilder, reservation: Reservation) -> float | None:
    """Begin of the first occurrence not planned yet; None: none comes, or this host does not know the time zone."""
    booking = reservation.booking
    zone = draft.volatile.zones.get(booking.zone)
    if not booking.cron or zone is None:
        return None
    at = _first_after(booking.cron, zone, reservation.planned_until or reservation.created_at)
    return None if at is None or (booking.until_at is not None and at >= booking.until_at) else at


@lru_cache(maxsize=4096)
def _first_after(cron: str, zone: tzinfo, after: float) -> float | None:
    return next(instants(cron, zone, after), None)


def _plan_ahead(draft: TurnBuilder, reservation: Reservation, most: int) -> int:
    """Plan up to `most` occurrences that are within the horizon; returns their number."""
    booking, count = reservation.booking, 0
    if not booking.cron:
        return 0
    _pass_by(draft, reservation)
    while count < most and len(reservation.occurrences) < MAX_AHEAD:
        begin_at = _next_begin(draft, reservation)
        if begin_at is None or begin_at > draft.now + draft.policy.booking.horizon_s:
            break
        _plan(draft, reservation, Span(begin_at, begin_at + booking.duration_s))
        count += 1
    return count


def _pass_by(draft: TurnBuilder, reservation: Reservation) -> None:
    """Skip occurrences that would have ended while the controller was down."""
    last_over = draft.now - reservation.booking.duration_s
    until = reservation.planned_until or reservation.created_at
    if until >= last_over:
        return
    first = _next_begin(draft, reservation)
    if first is not None and first <= last_over:
        draft.emit(event.OccurrencesPassed(at=draft.now, name=reservation.name, until=last_over))


def _plan(draft: TurnBuilder, reservation: Reservation, span: Span) -> None:
    """Plan an occurrence with the resources that are available; without any it fails."""
    found = _placed(draft, reservation, None, (), span)
    number = reservation.next_number
    draft.emit(
        event.OccurrencePlanned(
            at=draft.now,
            name=reservation.name,
            number=number,
            begin_at=span.begin_at,
            end_at=span.end_at,
            grants=found.grants,
            missing_gpus=found.missing_gpus,
            why=found.why,
        )
    )
    if not found.grants:
        why = found.why or "none of its resources is free at that time"
        end(draft, reservation.name, reservation.occurrences[number], OccurrenceState.FAILED, why)


# ── nodes that fail ───────────────────────────────────────────────────────────────────────────────────────────────


def _mend(draft: TurnBuilder, reservation: Reservation, most: int) -> int:
    """Relocate resources of occurrences from failed nodes; returns the number of occurrences examined."""
    if Flag.MAINT in reservation.booking.flags:
        return 0
    count, tried = 0, draft.volatile.bookings_tried
    for occurrence in list(reservation.occurrences.values()):
        lost = _lost(draft, reservation, occurrence)
        key = OccurrenceKey(reservation.name, occurrence.number)
        if count < most and (lost or occurrence.missing_gpus) and draft.now >= tried.get(key, -math.inf) + RETRY_S:
            count += 1
            tried[key] = draft.now
            _place_anew(draft, reservation, occurrence, lost)
    return count


def _lost(draft: TurnBuilder, reservation: Reservation, occurrence: Occurrence) -> list[str]:
    """Names of nodes that no longer provide what the occurrence reserves there."""
    if Flag.MAINT in reservation.booking.flags:
        return []
    is_there = _there(draft, reservation.booking)
    return [grant.node for grant in occurrence.grants if not is_there(grant)]


def _there(draft: TurnBuilder, booking: Booking) -> Callable[[Grant], bool]:
    """A test of a grant: whether its node still provides it to this booking."""
    nodes, partition = draft.cluster.nodes, known_partition(draft.policy, booking)
    return lambda grant: (
        partition is not None and partition.has_node(grant.node) and _is_there(nodes.get(grant.node), grant)
    )


def _is_there(node: Node | None, grant: Grant) -> bool:
    if node is None or not is_up(node):
        return False
    there = {gpu.index for gpu in node.inventory.gpus} - node.drained_gpus.keys()
    return there.issuperset(grant.gpus) and max(grant.cpus, default=-1) < node.inventory.cpus


def _place_anew(draft: TurnBuilder, reservation: Reservation, occurrence: Occurrence, lost: Iterable[str]) -> None:
    gone = dict.fromkeys(lost)
    kept = tuple(grant for grant in occurrence.grants if grant.node not in gone)
    found = _placed(draft, reservation, occurrence, kept, Span(max(occurrence.begin_at, draft.now), occurrence.end_at))
    if (found.grants, found.missing_gpus) == (occurrence.grants, occurrence.missing_gpus):
        return
    trouble = ", ".join(_trouble(draft, reservation.booking, name) for name in gone)
    has = ", ".join(grant.node for grant in found.grants)
    if found.missing_gpus:
        start = f"{trouble}, and" if trouble else "currently"
        why = f"{start} no replacement is free for {counted(found.missing_gpus, 'GPUs')}"
    elif trouble:
        why = f"{trouble}: it has moved to {has}"
    else:
        why = f"it is complete again: it has {has}"
    draft.emit(
        event.OccurrenceChanged(
            at=draft.now,
            name=reservation.name,
            number=occurrence.number,
            begin_at=occurrence.begin_at,
            end_at=occurrence.end_at,
            grants=found.grants,
            missing_gpus=found.missing_gpus,
            why=why,
        )
    )


def _trouble(draft: TurnBuilder, booking: Booking, name: str) -> str:
    """Why a node no longer provides what was reserved on it, in words."""
    node, partition = draft.cluster.nodes.get(name), known_partition(draft.policy, booking)
    if node is None:
        return f"{name} was removed"
    if node.is_down or node.is_lost:
        return f"{name} failed"
    if node.is_drained:
        return f"{name} is drained"
    if partition is None or not partition.has_node(name):
        where = booking.partition if partition is None else partition.name
        return f"{name} is no longer in partition {where}"
    return f"{name} no longer has all reserved resources"


class _Found(NamedTuple):
    grants: tuple[Grant, ...]
    missing_gpus: int
    why: str = ""
    """Why nothing is available at all."""


def _placed(
    draft: TurnBuilder, reservation: Reservation, own: Occurrence | None, kept: tuple[Grant, ...], span: Span
) -> _Found:
    """The grants `kept`, and as much of the rest of the request as is available during `span`."""
    before = 0 if own is None else own.missing_gpus + gpus_in(own.grants)
    try:
        ground = availability_of(draft, reservation.booking, reservation)
    except Refusal as refusal:
        return _Found(kept, max(0, before - gpus_in(kept)), refusal.message)
    for occurrence in reservation.occurrences.values():
        if occurrence is not own:
            ground.book.keep(Span(occurrence.begin_at, occurrence.end_at), occurrence.grants)
    ground.book.keep(span, kept)

    def fit(request: ResourceRequest) -> tuple[Grant, ...] | None:
        shape = shape_in(draft.policy, request, ground.shape.partition)
        return ground.book.fit(shape, ground.candidates, span)

    rest = rest_of(ground.request, kept)
    if rest is not None and fit(rest) is None:
        rest = most_of(rest, lambda request: fit(request) is not None)
    more = None if rest is None else fit(rest)
    if more is not None:
        kept = joined(kept, more)
    return _Found(kept, _lacking(ground, kept, before))


def _lacking(ground: Availability, grants: tuple[Grant, ...], before: int) -> int:
    """Number of missing GPUs; a request for whole nodes is compared with the GPUs that it had `before`."""
    rest = rest_of(ground.request, grants)
    if rest is None:
        return 0
    return max(0, before - gpus_in(grants)) if rest.is_exclusive else rest.gpus or 0
