"""Requests about reservations: create, change, move, skip, end, delete.  Pure.

Each ``decide_*`` returns the body of the reply, or raises `Refusal` and changes nothing; resources that are not
available raise `Conflict`, with offers of what is.  `gqd.control.reservation.occurrence` begins and ends occurrences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gq.calendar.schedule import instants
from gq.errors import Refusal
from gq.model.reservation import Booking, OccurrenceInfo, OccurrenceState, Offer, ReservationInfo
from gq.model.resource import Grant, ResourceRequest, gpus_in
from gq.near_miss import nearest
from gq.units import counted, spoken_duration
from gq.wire import client
from gqd.control.access import Caller, Denied, Role
from gqd.control.reservation import info, occurrence, rules, waits
from gqd.control.reservation.availability import (
    Availability,
    availability_of,
    ignores_jobs,
    partition_of,
    shared_request,
)
from gqd.sched.placement.placement import place
from gqd.sched.request import Shape, shape_in
from gqd.sched.reservation.booking import Span, gpus_asked, most_of, rest_of
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.tally import account_path
from gqd.state.records import Job
from gqd.state.reservation import Occurrence, Reservation

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder
    from gqd.state.input import ClientRequest

LEAST_OFFER_S = 600
"""Minimum duration of an offer."""
OFFERS_AHEAD_S = 366 * 86400
MAX_BLAMED = 3


class Conflict(Refusal):
    """The resources are not available; `offers` lists what is."""

    def __init__(self, message: str, hint: str, offers: tuple[Offer, ...]) -> None:
        super().__init__("conflict", message, hint)
        self.offers = offers


class PlannedOccurrence(NamedTuple):
    """An occurrence as the request would make it."""

    number: int | None
    """Number of the existing occurrence; None: a new one."""
    span: Span
    grants: tuple[Grant, ...]
    missing_gpus: int = 0
    why: str = ""
    is_skipped: bool = False
    """The occurrence is left out, since its resources are not available."""


# ── make and change ───────────────────────────────────────────────────────────────────────────────────────────────


def decide_set(draft: TurnBuilder, who: Caller, request: ClientRequest, body: client.SetReservation) -> client.Reserved:
    """Create a reservation, or change the one of that name; the same request again changes nothing."""
    known = _known_for(draft, who, body)
    rules.refuse_unless_users_may(draft, who)
    booking = rules.checked(draft, who, request, body.booking, known)
    if known is not None and _says_the_same(draft, known, booking):
        return client.Reserved(reservation=info.of(known), is_changed=False)
    zone = rules.zone_of(draft, request, booking.zone)
    if booking.cron:
        rules.refuse_bad_series(booking, zone, draft.now)
    else:
        booking = msgspec.structs.replace(booking, begin_at=rules.begin_of(draft, booking, known))
        _refuse_to_skip(body)
    if known is None:
        rules.refuse_new(draft, who)
    laid = _plan_occurrences(draft, who, booking, known, body.skip_conflicts)
    skipped_at = tuple([one.span.begin_at for one in laid if one.is_skipped])
    spans = [(one.span, one.grants) for one in laid]
    rules.refuse_over_quota(draft, who, known, spans, bool(booking.cron))
    if body.test_only:
        return client.Reserved(reservation=_as_if(draft, who, known, booking, laid), skipped_at=skipped_at)
    _commit_occurrences(draft, who, known, booking, laid)
    now_there = draft.cluster.reservations[booking.name]
    occurrence.reconcile_reservation(draft, now_there)
    notes = waits.notes_on(draft, now_there)
    return client.Reserved(reservation=info.of(now_there), skipped_at=skipped_at, notes=notes)


def _refuse_to_skip(body: client.SetReservation) -> None:
    if body.skip_conflicts:
        message = "the reservation takes place once: it has no other occurrence to keep"
        raise Refusal("contradiction", message, "--skip-conflicts is for a series; leave it out")


def _known_for(draft: TurnBuilder, who: Caller, body: client.SetReservation) -> Reservation | None:
    """The reservation to change; None: there is none.  `Refusal` if the request is to create one that exists."""
    name = body.booking.name
    known = draft.cluster.reservations.get(name)
    if known is None:
        if body.must_exist:
            raise unknown(draft.cluster, name)
        return None
    if not (body.replace or body.must_exist or occurrence.is_over(draft, known)):
        hint = "gqresv update changes it; --replace creates or overwrites it"
        raise Refusal("known_reservation", f"reservation `{name}` already exists", hint)
    refuse_unless_owner(who, known)
    return known


def _says_the_same(draft: TurnBuilder, known: Reservation, booking: Booking) -> bool:
    """Whether the booking equals the present one; begin "now" matches an occurrence that is active."""
    if occurrence.is_over(draft, known):
        return False
    if booking == known.booking:
        return True
    is_now = booking.begin_at is not None and abs(booking.begin_at - draft.now) <= rules.PAST_S
    if not is_now or known.active() is None:
        return False
    return msgspec.structs.replace(booking, begin_at=known.booking.begin_at) == known.booking


def _plan_occurrences(
    draft: TurnBuilder, who: Caller, booking: Booking, known: Reservation | None, skips_conflicts: bool
) -> list[PlannedOccurrence]:
    """The occurrences to reserve, up to the planning horizon; `Conflict` if one of them is not available.

    With `skips_conflicts`, `Conflict` only if none is available, or the active occurrence cannot continue.
    """
    ground = availability_of(draft, booking, known)
    laid: list[PlannedOccurrence] = []
    for one, span in _wanted(draft, booking, known):
        if one is not None and known is not None and _is_as_before(known, booking, one, span):
            ground.book.keep(span, one.grants)
            laid.append(PlannedOccurrence(one.number, span, one.grants, one.missing_gpus, one.why))
            continue
        grants = _grants(draft, ground, booking, known, one, span)
        if grants is None and (not skips_conflicts or (one is not None and one.state is OccurrenceState.ACTIVE)):
            raise _conflict(draft, who, ground, booking, span)
        if grants is None:
            number = None if one is None else one.number
            laid.append(
                PlannedOccurrence(
                    number, span, (), why="left out: its resources are not free at that time", is_skipped=True
                )
            )
            continue
        ground.book.keep(span, grants)
        laid.append(PlannedOccurrence(None if one is None else one.number, span, grants))
    if laid and all(one.is_skipped for one in laid):
        raise _conflict(draft, who, ground, booking, laid[0].span)
    return laid


def _wanted(
    draft: TurnBuilder, booking: Booking, known: Reservation | None
) -> Iterator[tuple[Occurrence | None, Span]]:
    """(existing occurrence to change or None, time span) of each wanted occurrence."""
    there = [] if known is None else sorted(known.occurrences.values(), key=lambda one: one.begin_at)
    if not booking.cron:
        assert booking.begin_at is not None
        span = Span(booking.begin_at, booking.begin_at + booking.duration_s)
        one = there[0] if there and known is not None and not known.booking.cron else None
        if one is not None and known is not None:
            span = _as_edited(span, one, known.booking, booking)
        if one is not None and one.state is OccurrenceState.ACTIVE:
            is_going_on = span.begin_at <= draft.now
            one, span = (one, span._replace(begin_at=one.begin_at)) if is_going_on else (None, span)
        yield one, span
        return
    has_same_line = known is not None and _line(known.booking) == _line(booking)
    has_same_length = known is not None and known.booking.duration_s == booking.duration_s
    after, kept = draft.now, 0
    if has_same_line and known is not None:
        for one in (each for each in there if _comes(booking, each)):
            end_at = one.end_at if has_same_length else one.begin_at + booking.duration_s
            yield one, Span(one.begin_at, max(end_at, draft.now + 1))
        after, kept = max(draft.now, known.planned_until or 0.0), len(there)
        there = []
    elif known is not None and (active := known.active()) is not None:
        end_at = active.end_at if has_same_length else active.begin_at + booking.duration_s
        span = Span(active.begin_at, max(end_at, draft.now + 1))
        _refuse_to_meet(draft, booking, active, span)
        yield active, span
        kept = 1
    by_begin = {one.begin_at: one for one in there}
    for begin_at in _begins(draft, booking, after, max(0, occurrence.MAX_AHEAD - kept)):
        yield by_begin.get(begin_at), Span(begin_at, begin_at + booking.duration_s)


def _refuse_to_meet(draft: TurnBuilder, booking: Booking, active: Occurrence, span: Span) -> None:
    """`Refusal` if the new cron line fires before the end of the active occurrence, which continues."""
    first_at = next(iter(_begins(draft, booking, draft.now, 1)), math.inf)
    if first_at < span.end_at:
        under_way = f"occurrence {active.number} of `{booking.name}` is active until @{{{int(span.end_at)}}}"
        message = f"{under_way}, and by `{booking.cron}` the next begins before, at @{{{int(first_at)}}}"
        raise Refusal("overlap", message, f"change it after that, or run gqresv end {booking.name} first")


def _as_edited(span: Span, one: Occurrence, before: Booking, booking: Booking) -> Span:
    """The span of an occurrence that may have been moved or lengthened: what this request does not change stays."""
    begin_at = one.begin_at if before.begin_at == booking.begin_at else span.begin_at
    is_as_long = before.duration_s == booking.duration_s
    return Span(begin_at, begin_at + (one.end_at - one.begin_at if is_as_long else booking.duration_s))


def _line(booking: Booking) -> tuple[str, str]:
    return booking.cron, booking.zone


def _comes(booking: Booking, one: Occurrence) -> bool:
    """Whether the occurrence has begun or begins before the end of the series."""
    has_begun = one.state is OccurrenceState.ACTIVE
    return has_begun or booking.until_at is None or one.begin_at < booking.until_at


def _begins(draft: TurnBuilder, booking: Booking, after: float, most: int) -> list[float]:
    """The first `most` begins of the cron line after `after`, up to the planning horizon and the end of the series."""
    until = draft.now + draft.policy.booking.horizon_s
    until = until if booking.until_at is None else min(until, math.nextafter(booking.until_at, 0.0))
    coming = instants(booking.cron, draft.volatile.zones[booking.zone], after)
    return list(islice(takewhile(lambda at: at <= until, coming), most))


def _grants(
    draft: TurnBuilder,
    ground: Availability,
    booking: Booking,
    known: Reservation | None,
    one: Occurrence | None,
    span: Span,
) -> tuple[Grant, ...] | None:
    """Grants for an occurrence: its present ones if they suffice, else some of them, else any; None: not available."""
    if one is not None and known is not None:
        asks_for_same = _asked(known.booking) == _asked(booking)
        if asks_for_same and rest_of(ground.request, one.grants) is None and _has(ground, one.grants, span):
            return one.grants
        if not asks_for_same and (own := _among(draft, ground, one.grants, span)) is not None:
            return own
    return ground.book.fit(ground.shape, ground.candidates, span)


def _is_as_before(known: Reservation, booking: Booking, one: Occurrence, span: Span) -> bool:
    """Whether the request leaves this occurrence unchanged; then it keeps its grants, even if some are missing."""
    return _asked(known.booking) == _asked(booking) and span == Span(one.begin_at, one.end_at)


def _asked(booking: Booking) -> tuple[ResourceRequest, str, bool]:
    return booking.resources, booking.partition, ignores_jobs(booking)


def _has(ground: Availability, grants: Sequence[Grant], span: Span) -> bool:
    nodes = {ground.book.nodes[candidate].name for candidate in ground.candidates}
    return all(grant.node in nodes for grant in grants) and ground.book.has(tuple(grants), span)


def _among(draft: TurnBuilder, ground: Availability, grants: Sequence[Grant], span: Span) -> tuple[Grant, ...] | None:
    """Grants that fit within the present `grants` during `span`; None: the request does not fit there."""
    left = ground.book.left(span)
    for name, where in ground.book.places.items():
        own = next((grant for grant in grants if grant.node == name), None)
        if own is None:
            left.take_masks(where, -1, -1, 0)
        else:
            cpus, gpus = (sum(1 << number for number in ids) for ids in (own.cpus, own.gpus))
            left.take_masks(where, ~cpus, ~gpus, 0)
    return place(left, ground.shape, ground.candidates)


def _commit_occurrences(
    draft: TurnBuilder, who: Caller, known: Reservation | None, booking: Booking, laid: Sequence[PlannedOccurrence]
) -> None:
    now, name = draft.now, booking.name
    kept = {one.number for one in laid}
    if known is not None and occurrence.is_over(draft, known):
        draft.emit(event.ReservationRemoved(at=now, name=name))
        known = None
    followed = [now] if booking.cron else []
    if known is not None and _line(known.booking) != _line(booking):
        followed += [one.begin_at for one in known.occurrences.values() if one.number in kept and booking.cron]
    elif known is not None and known.planned_until is not None:
        last_at = math.inf if booking.until_at is None else math.ceil(booking.until_at) - 1
        followed.append(min(known.planned_until, last_at))
    draft.emit(
        event.ReservationSet(
            at=now,
            booking=booking,
            owner=who.peer.user if known is None else known.owner,
            uid=who.peer.uid if known is None else known.uid,
            planned_until=max(followed, default=None),
            first_number=_first_number(draft, name),
        )
    )
    for one in [] if known is None else list(known.occurrences.values()):
        if one.number not in kept:
            occurrence.end(draft, name, one, OccurrenceState.ENDED, "the reservation was changed")
    for each in laid:
        _commit_occurrence(draft, name, each)


def _commit_occurrence(draft: TurnBuilder, name: str, laid: PlannedOccurrence) -> None:
    """Record one planned occurrence; no event if nothing differs."""
    reservation = draft.cluster.reservations[name]
    number = reservation.next_number if laid.number is None else laid.number
    planned = event.OccurrencePlanned(
        at=draft.now,
        name=name,
        number=number,
        begin_at=laid.span.begin_at,
        end_at=laid.span.end_at,
        grants=laid.grants,
        missing_gpus=laid.missing_gpus,
        why=laid.why,
    )
    one = reservation.occurrences.get(number)
    if one is None:
        draft.emit(planned)
        one = reservation.occurrences[number]
    if laid.is_skipped:
        occurrence.end(draft, name, one, OccurrenceState.SKIPPED, laid.why)
    elif (one.begin_at, one.end_at, one.grants, one.missing_gpus) != (*laid.span, laid.grants, laid.missing_gpus):
        draft.emit(event.OccurrenceChanged(**msgspec.structs.asdict(planned)))


def _first_number(draft: TurnBuilder, name: str) -> int:
    """The first occurrence's number: above those in which jobs of an earlier reservation of this name still run."""
    keys = (attempt.occurrence for attempt in draft.cluster.attempts.values())
    return 1 + max((key.number for key in keys if key is not None and key.name == name), default=0)


def _as_if(
    draft: TurnBuilder, who: Caller, known: Reservation | None, booking: Booking, laid: Sequence[PlannedOccurrence]
) -> ReservationInfo:
    """The reservation as the request would make it, for ``--test``."""
    first = 1 if known is None else known.next_number
    laid = [one for one in laid if not one.is_skipped]
    fresh = iter(range(first, first + len(laid)))
    return ReservationInfo(
        booking=info.shown(booking),
        owner=who.peer.user if known is None else known.owner,
        uid=who.peer.uid if known is None else known.uid,
        created_at=draft.now if known is None else known.created_at,
        occurrences=tuple(
            OccurrenceInfo(
                number=next(fresh) if one.number is None else one.number,
                begin_at=one.span.begin_at,
                end_at=one.span.end_at,
                grants=one.grants,
            )
            for one in laid
        ),
    )


# ── one occurrence ────────────────────────────────────────────────────────────────────────────────────────────────


def decide_edit(draft: TurnBuilder, who: Caller, body: client.EditOccurrence) -> client.Reserved:
    """Move one occurrence, or change its duration."""
    reservation = owned(draft, who, body.name)
    rules.refuse_unless_users_may(draft, who)
    one = _numbered(reservation, body.number)
    begin_at = one.begin_at if body.begin_at is None else body.begin_at
    if begin_at != one.begin_at:
        if one.state is OccurrenceState.ACTIVE:
            message = f"occurrence {one.number} of `{body.name}` has begun, and can no longer be moved"
            raise Refusal("has_begun", message, "--duration changes its length")
        moved = msgspec.structs.replace(reservation.booking, begin_at=begin_at)
        begin_at = rules.begin_of(draft, moved, None)
    length_s = one.end_at - one.begin_at if body.duration_s is None else float(body.duration_s)
    span = Span(begin_at, begin_at + length_s)
    if length_s <= 0 or span.end_at <= draft.now:
        message = f"it would be over at @{{{int(span.end_at)}}}, and it is @{{{int(draft.now)}}} now"
        raise Refusal(
            "bad_duration", message, "gqresv end ends it; gqresv skip cancels an occurrence that has not begun"
        )
    if span == Span(one.begin_at, one.end_at):
        return client.Reserved(reservation=info.of(reservation), is_changed=False)
    laid = _moved(draft, who, reservation, one, span)
    _commit_occurrence(draft, body.name, laid)
    occurrence.reconcile_reservation(draft, reservation)
    return client.Reserved(reservation=info.of(reservation))


def _moved(draft: TurnBuilder, who: Caller, reservation: Reservation, one: Occurrence, span: Span) -> PlannedOccurrence:
    """The occurrence at its new span; `Conflict` if not available, `Refusal` if it overlaps its own reservation."""
    others = [each for each in reservation.occurrences.values() if each is not one]
    for other in others:
        if other.begin_at < span.end_at and span.begin_at < other.end_at:
            message = f"it would overlap occurrence {other.number}, from @{{{int(other.begin_at)}}}"
            raise Refusal("overlap", f"{message} to @{{{int(other.end_at)}}}", "move or skip that occurrence first")
    _refuse_reaching_next(draft, reservation, span)
    ground = availability_of(draft, reservation.booking, reservation)
    for other in others:
        ground.book.keep(Span(other.begin_at, other.end_at), other.grants)
    grants = _grants(draft, ground, reservation.booking, reservation, one, span)
    if grants is None:
        raise _in_conflict(draft, ground, reservation.booking, one, span)
    laid = PlannedOccurrence(one.number, span, grants)
    spans = [(span, grants), *((Span(each.begin_at, each.end_at), each.grants) for each in others)]
    rules.refuse_over_quota(draft, who, reservation, spans, is_series=bool(reservation.booking.cron))
    return laid


def _refuse_reaching_next(draft: TurnBuilder, reservation: Reservation, span: Span) -> None:
    """`Refusal` if the span overlaps an occurrence of the cron line that is not planned yet."""
    booking = reservation.booking
    zone = draft.volatile.zones.get(booking.zone)
    if not booking.cron or zone is None:
        return
    after = max(reservation.planned_until or draft.now, span.begin_at - booking.duration_s)
    next_at = next(instants(booking.cron, zone, after), math.inf)
    if next_at < min(span.end_at, math.inf if booking.until_at is None else booking.until_at):
        message = f"it would last until @{{{int(span.end_at)}}}, and `{booking.cron}` repeats at @{{{int(next_at)}}}"
        raise Refusal("overlap", message, "end it before then, or end the series before then: gqresv update --until")


def decide_skip(draft: TurnBuilder, who: Caller, body: client.SkipOccurrence) -> client.Reserved:
    reservation = owned(draft, who, body.name)
    coming = [one for one in reservation.occurrences.values() if one.state is OccurrenceState.PLANNED]
    if body.number is not None:
        one = _numbered(reservation, body.number)
        if one.state is not OccurrenceState.PLANNED:
            message = f"occurrence {one.number} of `{body.name}` has begun, and can no longer be skipped"
            raise Refusal("has_begun", message, f"gqresv end {body.name} ends it")
    elif not coming:
        raise Refusal("nothing_planned", f"no occurrence of `{body.name}` is planned", "gqresv show lists them")
    else:
        one = min(coming, key=lambda each: each.begin_at)
    occurrence.end(draft, body.name, one, OccurrenceState.SKIPPED, f"skipped by {who.peer.user}")
    return client.Reserved(reservation=info.of(reservation))


def decide_end(draft: TurnBuilder, who: Caller, body: client.EndReservation) -> client.Reserved:
    reservation = owned(draft, who, body.name)
    one = reservation.active()
    if one is None:
        message = f"reservation `{body.name}` is not active"
        raise Refusal(
            "not_active", message, "gqresv skip cancels the next occurrence; gqresv delete deletes the reservation"
        )
    occurrence.end(draft, body.name, one, OccurrenceState.ENDED, f"ended by {who.peer.user}")
    return client.Reserved(reservation=info.of(reservation))


def decide_delete(draft: TurnBuilder, who: Caller, body: client.DeleteReservation) -> client.Done:
    owned(draft, who, body.name)
    draft.emit(event.ReservationRemoved(at=draft.now, name=body.name))
    waiting = sum(job.is_waiting and job.spec.reservation == body.name for job in draft.cluster.jobs.values())
    on = (
        f"; {counted(waiting, 'jobs')} in the queue name it: gqctl update JOB --reservation=none releases a job from it"
    )
    left = on if waiting else ""
    return client.Done(text=f"reservation {body.name} is deleted{left}")


def _numbered(reservation: Reservation, number: int) -> Occurrence:
    one = reservation.occurrences.get(number)
    if one is None:
        there = ", ".join(map(str, reservation.occurrences)) or "none"
        message = f"reservation `{reservation.name}` has no planned or active occurrence {number}"
        raise Refusal("unknown_occurrence", message, f"its occurrences are {there}")
    return one


# ── permissions ───────────────────────────────────────────────────────────────────────────────────────────────────


def owned(draft: TurnBuilder, who: Caller, name: str) -> Reservation:
    """The reservation, if the caller may change it."""
    reservation = draft.cluster.reservations.get(name)
    if reservation is None:
        raise unknown(draft.cluster, name)
    refuse_unless_owner(who, reservation)
    return reservation


def refuse_unless_owner(who: Caller, reservation: Reservation) -> None:
    if who.role < Role.OPERATOR and not (who.peer.user == reservation.owner and who.peer.uid == reservation.uid):
        message = f"reservation `{reservation.name}` belongs to {reservation.owner}"
        raise Denied("not_owner", message, "only its owner and operators may change it")


def refuse_unusable(draft: TurnBuilder, name: str, user: str, account: str) -> None:
    """`Refusal` unless a job of this user and account may run in the reservation."""
    cluster = draft.cluster
    reservation = cluster.reservations.get(name)
    if reservation is None:
        raise unknown(cluster, name)
    if occurrence.is_over(draft, reservation):
        message = f"reservation `{name}` ended at @{{{int(reservation.over_at or 0)}}}"
        raise Refusal("reservation_over", message, "gqresv list shows the reservations")
    if not reservation.may_be_used_by(user, account_path(cluster.accounts, account)):
        message = f"reservation `{name}` is not for user {user} in account {account}"
        hint = f"its owner, {reservation.owner}, can add you: gqresv update {name} --users=…"
        raise Denied("not_in_reservation", message, hint)


def unknown(cluster: Cluster, name: str) -> Refusal:
    close = nearest(name, list(cluster.reservations))
    hint = f"did you mean `{close}`?" if close else "gqresv list shows the reservations"
    return Refusal("unknown_reservation", f"reservation `{name[:80]}` does not exist", hint)


# ── conflicts and offers ──────────────────────────────────────────────────────────────────────────────────────────


def _conflict(draft: TurnBuilder, who: Caller, ground: Availability, booking: Booking, span: Span) -> Conflict:
    offers = [*_offers(draft, who, ground, booking, span)]
    words = [_words(draft, booking, span, offer) for offer in offers]
    hint = "; ".join(words) or "no such resources are free within a year: give another partition, or fewer GPUs"
    if booking.cron and not offers:
        hint = "every occurrence of a series must be free: give another schedule, an earlier --until, or fewer GPUs"
    if booking.cron:
        hint = f"{hint}; --skip-conflicts leaves out occurrences with a conflict"
    if limits := waits.limits_hint(draft, _holders(draft, ground, span)):
        hint = f"{hint}\n{limits}"
    return Conflict(_cannot_have(draft, ground, booking, span), hint, tuple(offers))


def _cannot_have(draft: TurnBuilder, ground: Availability, booking: Booking, span: Span) -> str:
    message = f"`{booking.name}` cannot have {what_of(booking.resources)} from @{{{int(span.begin_at)}}} to"
    return f"{message} @{{{int(span.end_at)}}}: {_in_the_way(draft, ground, booking.name, span)}"


def _holders(draft: TurnBuilder, ground: Availability, span: Span) -> list[Job]:
    """Running jobs that may still hold resources of the candidate nodes when these must be empty."""
    nodes = {ground.book.nodes[index].name for index in ground.candidates}
    clear_at = max(draft.now, span.begin_at - ground.book.clear_s)
    return waits.holders(draft, ground.book.held, nodes, clear_at)


def _in_conflict(draft: TurnBuilder, ground: Availability, booking: Booking, one: Occurrence, span: Span) -> Conflict:
    """The conflict of one occurrence; the only offer is a shorter duration."""
    shorter = ground.book.longest(ground.shape, ground.candidates, span, LEAST_OFFER_S)
    hint = "gqresv cal shows what is free"
    if shorter is not None:
        hint = f"it is available until @{{{int(shorter.end_at)}}}: gqresv edit {booking.name} {one.number} --duration="
        hint = f"{hint}{int(shorter.end_at - shorter.begin_at) // 60}"
    return Conflict(_cannot_have(draft, ground, booking, span), hint, ())


def _offers(draft: TurnBuilder, who: Caller, ground: Availability, booking: Booking, span: Span) -> Iterator[Offer]:
    """Yield what the caller may reserve instead: the same later, fewer GPUs or nodes, or the same for a shorter time.

    An offer for a series changes each occurrence alike, and is made only where all occurrences are available so.
    """
    shape, candidates = ground.shape, ground.candidates

    def accepted(changed: Booking) -> Offer | None:
        offer = _if_accepted(draft, changed, span)
        return offer if offer is not None and _may_have(draft, who, ground, booking, offer) else None

    def with_resources(request: ResourceRequest) -> Booking:
        return msgspec.structs.replace(booking, resources=request)

    if not booking.cron:
        until = draft.now + (draft.policy.booking.max_ahead_s or OFFERS_AHEAD_S)
        later = ground.book.earliest(shape, candidates, span, until)
        offer = None if later is None else _offer(ground, booking, later, booking.resources, shape)
        if offer is not None and _may_have(draft, who, ground, booking, offer):
            yield offer
    most = most_of(booking.resources, lambda request: accepted(with_resources(request)) is not None)
    if most is not None and (offer := accepted(with_resources(most))) is not None:
        yield offer
    shorter = ground.book.longest(shape, candidates, span, LEAST_OFFER_S)
    if shorter is not None:
        length_s = int(shorter.end_at - shorter.begin_at)
        if (offer := accepted(msgspec.structs.replace(booking, duration_s=length_s))) is not None:
            yield offer


def _may_have(draft: TurnBuilder, who: Caller, ground: Availability, booking: Booking, offer: Offer) -> bool:
    """Whether the offer is within the user's quota."""
    known = draft.cluster.reservations.get(booking.name)
    wanted = msgspec.structs.replace(booking, duration_s=offer.duration_s, resources=offer.resources)
    if not booking.cron:
        wanted = msgspec.structs.replace(wanted, begin_at=offer.begin_at)
    partition = partition_of(draft.policy, booking)
    request = shared_request(offer.resources, partition, list(ground.book.nodes))
    shape = shape_in(draft.policy, request, ground.shape.partition)
    span = Span(offer.begin_at, offer.begin_at + offer.duration_s)
    grants = ground.book.fit(shape, ground.candidates, span) or ()
    spans = [(span, grants) for _, span in _wanted(draft, wanted, known)]
    try:
        rules.refuse_over_quota(draft, who, known, spans, bool(booking.cron))
    except Refusal:
        return False
    return True


def _if_accepted(draft: TurnBuilder, booking: Booking, span: Span) -> Offer | None:
    """The booking as an offer if all its occurrences are available; None: some are not."""
    known = draft.cluster.reservations.get(booking.name)
    ground = availability_of(draft, booking, known)
    for _, each in _wanted(draft, booking, known):
        if ground.book.fit(ground.shape, ground.candidates, each) is None:
            return None
    wanted = Span(span.begin_at, span.begin_at + booking.duration_s)
    return _offer(ground, booking, wanted, booking.resources, ground.shape)


def _offer(ground: Availability, booking: Booking, span: Span, request: ResourceRequest, shape: Shape) -> Offer:
    grants = ground.book.fit(shape, ground.candidates, span) or ()
    return Offer(
        begin_at=span.begin_at,
        duration_s=int(span.end_at - span.begin_at),
        resources=request,
        gpus=gpus_in(grants),
        nodes=tuple(grant.node for grant in grants),
    )


def _words(draft: TurnBuilder, booking: Booking, span: Span, offer: Offer) -> str:
    """``4 GPUs for 12 h: earliest Sat 02:00``"""
    what = what_of(offer.resources)
    if offer.begin_at != span.begin_at:
        return f"{what} for {spoken_duration(offer.duration_s)}: earliest @{{{int(offer.begin_at)}}}"
    when = "at once" if span.begin_at <= draft.now else "then" if not booking.cron else "each time"
    length = f" for {spoken_duration(offer.duration_s)}" if offer.duration_s != booking.duration_s else ""
    return f"{what}{length}: {when}"


def what_of(request: ResourceRequest) -> str:
    if request.is_exclusive:
        return ", ".join(request.nodelist) or counted(request.nodes_min or 1, "whole nodes")
    kind = f"{request.gpu_type} " if request.gpu_type else ""
    gpus = gpus_asked(request)
    return counted(gpus, f"{kind}GPUs") if gpus else "the requested resources"


def _in_the_way(draft: TurnBuilder, ground: Availability, own: str, span: Span) -> str:
    """The reservations and jobs that hold the candidate nodes during `span`, in words."""
    nodes = {ground.book.nodes[candidate].name for candidate in ground.candidates}
    named = [
        f"reservation {reservation.name} holds some of them until @{{{int(one.end_at)}}}"
        for reservation in draft.cluster.reservations.values()
        for one in reservation.occurrences.values()
        if one.begin_at < span.end_at
        and one.end_at > span.begin_at
        and any(grant.node in nodes for grant in one.grants)
        and reservation.name != own
    ]
    if jobs := _holders(draft, ground, span):
        named.append(waits.named_holders(jobs))
    return "; ".join(named[:MAX_BLAMED]) or "too many of these resources are down or promised to pending jobs"
