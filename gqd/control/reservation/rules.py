"""Validation of bookings, and users' quotas of reservations.  Pure; changes nothing.  Every check raises `Refusal`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import tzinfo
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING

import msgspec

from gq.calendar.schedule import instants, read_schedule
from gq.errors import Refusal
from gq.model.notice import COMMAND, Target, shown
from gq.model.reservation import Booking, Flag
from gq.model.resource import Grant
from gq.near_miss import nearest
from gq.units import spoken_duration
from gqd.control.access import Caller, Denied, Role
from gqd.control.accounts import association
from gqd.control.accounts.names import refuse_bad_name, refuse_bad_user
from gqd.control.notices import spec
from gqd.control.reservation import occurrence
from gqd.control.reservation.availability import partition_of
from gqd.sched.reservation.booking import Span
from gqd.state.cluster import Cluster
from gqd.state.records import Node
from gqd.state.reservation import Reservation

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder
    from gqd.state.input import ClientRequest

MAX_RESERVATIONS = 2000
"""Reservations of all users that are not over."""
MAX_COMMENT = 1024
MAX_NAMED = 1000
"""Users of one booking, and accounts of one booking."""
MAX_SECONDS = 2**40
MAX_INSTANT = 200_000_000_000.0
"""In the year 8307: calendars end with the year 9999."""
NONE = "none"
"""``--reservation=none``: the job is in no reservation."""
PAST_S = 60.0
"""A begin at most this long ago counts as now, since a request takes time."""
MOST_LOOKED_AT = 2500
"""Instants of a cron line that are checked for overlap: a year of a line that fires every four hours, with both
changes to and from daylight saving time."""
LOOKED_AHEAD_S = 10 * 366 * 86400
"""Instants later than this after the first are not checked: some lines fire once in a generation."""
HOUR_S = 3600.0


# ── the booking ───────────────────────────────────────────────────────────────────────────────────────────────────


def checked(
    draft: TurnBuilder, who: Caller, request: ClientRequest, booking: Booking, known: Reservation | None = None
) -> Booking:
    """The booking as it is stored: flags and names once each, the cron line normalised.  `Refusal` if invalid."""
    refuse_bad_name("reservation", booking.name)
    if booking.name.lower() == NONE:
        raise Refusal(
            "bad_name",
            f"a reservation cannot be named `{booking.name}`",
            "choose another name; jobs use this word for no reservation",
        )
    if len(booking.comment) > MAX_COMMENT or not booking.comment.isprintable():
        raise Refusal("bad_comment", f"the comment is not at most {MAX_COMMENT} printable characters")
    _refuse_bad_flags(who, booking)
    _refuse_unknown_people(draft, request, booking)
    partition = partition_of(draft.policy, booking)
    if who.role < Role.OPERATOR:
        association.associate(draft.cluster, draft.policy, who.user, partition, None, None)
    _refuse_bad_numbers(booking)
    zone_of(draft, request, booking.zone)
    if (booking.begin_at is None) == (not booking.cron):
        message = "a reservation has either a begin or a cron line"
        raise Refusal("contradiction", message, "give one of --start and --cron")
    return msgspec.structs.replace(
        booking,
        cron=_schedule(booking.cron),
        users=tuple(sorted(set(booking.users))),
        accounts=tuple(sorted(set(booking.accounts))),
        flags=tuple(one for one in Flag if one in booking.flags),
        no_show_s=draft.policy.booking.no_show_s if booking.no_show_s is None else booking.no_show_s,
        notify=_targets(draft, who, booking, known),
    )


def _targets(draft: TurnBuilder, who: Caller, booking: Booking, known: Reservation | None) -> tuple[Target, ...]:
    """The notification targets, checked as a job's; only the owner may set a command, which runs as the owner."""
    before = () if known is None else known.booking.notify
    wanted = spec.settled_targets(draft.policy, _whole(booking.notify, before))
    has_new_command = any(one.kind == COMMAND and one not in before for one in wanted)
    if has_new_command and known is not None and who.peer.user != known.owner:
        message = f"a command would run as {known.owner}, and {who.peer.user} is another user"
        raise Denied("not_owner", message, "use a mail or webhook target")
    return wanted


def _whole(targets: tuple[Target, ...], before: tuple[Target, ...]) -> tuple[Target, ...]:
    """The targets, with a target that equals the redacted form of an earlier one replaced by that earlier one."""
    found, left = [], list(zip(shown(before), before, strict=True))
    for target in targets:
        same = next((pair for pair in left if pair[0] == target), None)
        if same is not None:
            left.remove(same)
        found.append(target if same is None else same[1])
    return tuple(found)


def _schedule(cron: str) -> str:
    try:
        return read_schedule(cron) if cron else ""
    except ValueError as error:
        raise Refusal("bad_cron", str(error), "for example '0 20 * * 1-5': at 20:00 from Monday to Friday") from None


def _refuse_bad_flags(who: Caller, booking: Booking) -> None:
    for flag in (Flag.MAINT, Flag.IGNORE_JOBS):
        if flag in booking.flags and who.role < Role.ADMINISTRATOR:
            message = f"the flag {flag} is for administrators, and {who.peer.user} is not an administrator"
            raise Denied("not_administrator", message, "ask an administrator, or leave out the flag")


def _refuse_unknown_people(draft: TurnBuilder, request: ClientRequest, booking: Booking) -> None:
    if max(len(booking.users), len(booking.accounts)) > MAX_NAMED:
        raise Refusal("too_many_names", f"a reservation names {MAX_NAMED} users and accounts at most")
    members = {user for user, _ in draft.cluster.members}
    for user in booking.users:
        refuse_bad_user("user", user)
        if user in request.strangers and user not in members:
            close = nearest(user, sorted(members))
            hint = f"did you mean `{close}`?" if close else "the controller's host has no account of that name"
            raise Refusal("unknown_user", f"user `{user}` is not known to the controller", hint)
    for account in booking.accounts:
        association.known_account(draft.cluster, account)


def _refuse_bad_numbers(booking: Booking) -> None:
    if booking.duration_s <= 0:
        raise Refusal("bad_duration", "a reservation needs a duration above 0", "give --duration, for example 12h")
    if booking.duration_s > MAX_SECONDS:
        raise Refusal("bad_duration", f"a duration of {booking.duration_s} s is too long", "give a shorter duration")
    for what, at in (("begin", booking.begin_at), ("end of the series", booking.until_at)):
        if at is not None and not (math.isfinite(at) and 0 <= at <= MAX_INSTANT):
            raise Refusal("bad_time", f"the {what} is {at}, which is not a calendar time", "give a time in the future")


def zone_of(draft: TurnBuilder, request: ClientRequest, name: str) -> tzinfo:
    """The time zone of this name, which `Volatile.zones` keeps from now on; `Refusal` if this host lacks it."""
    zone = request.zones.get(name) or draft.volatile.zones.get(name)
    if zone is None:
        message = f"there is no time zone `{name[:80]}` on the controller's host"
        raise Refusal("unknown_zone", message, "for example Europe/Berlin or UTC; /usr/share/zoneinfo lists the zones")
    draft.volatile.zones[name] = zone
    return zone


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def begin_of(draft: TurnBuilder, booking: Booking, known: Reservation | None) -> float:
    """The begin of a single reservation; one up to `PAST_S` ago becomes now.  `Refusal` if it is past."""
    begin_at, now = booking.begin_at, draft.now
    assert begin_at is not None
    if known is not None and known.booking.begin_at == begin_at and _still_begins(known, begin_at, booking, now):
        return begin_at
    if begin_at < now - PAST_S:
        message = f"the begin, @{{{int(begin_at)}}}, is in the past: it is @{{{int(now)}}} now"
        raise Refusal("past_start", message, "`--start now` begins at once")
    return max(begin_at, now)


def _still_begins(known: Reservation, begin_at: float, booking: Booking, now: float) -> bool:
    """Whether its occurrence, which may have been moved or lengthened, has not ended yet."""
    one = next(iter(known.occurrences.values()), None)
    if one is None:
        return begin_at + booking.duration_s > now
    length_s = one.end_at - one.begin_at if known.booking.duration_s == booking.duration_s else booking.duration_s
    return one.begin_at + length_s > now


def refuse_bad_series(booking: Booking, zone: tzinfo, now: float) -> None:
    """`Refusal` if the series has no further occurrence, or if one begins before the previous one ends."""
    coming = instants(booking.cron, zone, now)
    until_at = math.inf if booking.until_at is None else booking.until_at
    first = next(coming, None)
    if first is None or first >= until_at:
        told = "" if first is None else f": the first would be at @{{{int(first)}}}"
        message = f"`{booking.cron}` never occurs before the end of the series{told}"
        raise Refusal("never", message, "give a later --until, or another schedule")
    last_at = min(until_at, first + LOOKED_AHEAD_S)
    near = takewhile(lambda at: at < last_at, coming)
    for before, after in pairwise([first, *islice(near, MOST_LOOKED_AT)]):
        if after - before < booking.duration_s:
            length, gap = spoken_duration(booking.duration_s), spoken_duration(after - before)
            message = f"`{booking.cron}` repeats after {gap} (at @{{{int(after)}}}), and each occurrence lasts {length}"
            raise Refusal("too_often", message, f"give a --duration of at most {gap}, or another schedule")


# ── how much ──────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse_new(draft: TurnBuilder, who: Caller) -> None:
    """`Refusal` if this user may not create another reservation."""
    rules, cluster = draft.policy.booking, draft.cluster
    if len(cluster.reservations) >= MAX_RESERVATIONS:
        raise Refusal("too_many_reservations", f"the cluster already has {MAX_RESERVATIONS} reservations, the maximum")
    if who.role >= Role.OPERATOR:
        return
    there = (reservation for reservation in cluster.reservations.values() if not occurrence.is_over(draft, reservation))
    own = [one.name for one in there if one.owner == who.peer.user]
    if len(own) >= rules.max_per_user:
        most = f"the maximum per user is {rules.max_per_user}"
        message = f"you have {len(own)} reservations ({', '.join(own[:5])}), and {most}"
        raise Denied(
            "too_many_reservations", message, "delete one; `[reservations] max_per_user` in gq.toml sets the maximum"
        )


def refuse_unless_users_may(draft: TurnBuilder, who: Caller) -> None:
    if who.role < Role.OPERATOR and not draft.policy.booking.users:
        message = f"only operators and administrators may reserve, and {who.peer.user} is neither"
        raise Denied(
            "not_operator", message, "ask an operator; `[reservations] users = true` in gq.toml allows all users"
        )


def refuse_over_quota(
    draft: TurnBuilder,
    who: Caller,
    known: Reservation | None,
    spans: Iterable[tuple[Span, Sequence[Grant]]],
    is_series: bool,
) -> None:
    """`Refusal` if duration, lead time or GPU-hours exceed what users may reserve; `spans` are to be reserved."""
    if who.role >= Role.OPERATOR:
        return
    rules, now = draft.policy.booking, draft.now
    gpu_s = 0.0
    for span, grants in spans:
        gpu_s += ahead_s(span, now) * gpus_worth(draft.cluster, grants)
        length_s = span.end_at - span.begin_at
        if rules.max_duration_s is not None and length_s > rules.max_duration_s:
            most = spoken_duration(rules.max_duration_s)
            message = f"{spoken_duration(length_s)} exceed the maximum for users, {most}"
            raise Denied("too_long", message, f"give a --duration of at most {most}, or ask an operator")
        if rules.max_ahead_s is not None and not is_series and span.begin_at > now + rules.max_ahead_s:
            most = spoken_duration(rules.max_ahead_s)
            message = f"@{{{int(span.begin_at)}}} is beyond the maximum lead time for users, {most}"
            last = f"@{{{int(now + rules.max_ahead_s)}}}"
            raise Denied("too_far_ahead", message, f"begin by {last}, or ask an operator")
    if rules.max_gpu_hours is None:
        return
    others = (
        reservation
        for reservation in draft.cluster.reservations.values()
        if reservation.owner == who.peer.user and reservation is not known
    )
    booked = sum(booked_ahead_s(draft.cluster, one, now) for one in others) / HOUR_S
    if booked + gpu_s / HOUR_S > rules.max_gpu_hours:
        left = max(0.0, rules.max_gpu_hours - booked)
        message = f"this is {gpu_s / HOUR_S:.6g} GPU-hours, and {left:.6g} of {rules.max_gpu_hours:.6g} are left"
        raise Denied("too_many_gpu_hours", message, "ask for less, delete another reservation, or ask an operator")


def ahead_s(span: Span, now: float) -> float:
    return max(0.0, span.end_at - max(span.begin_at, now))


def booked_ahead_s(cluster: Cluster, reservation: Reservation, now: float) -> float:
    """GPU-seconds of a reservation from `now` on."""
    return sum(
        ahead_s(Span(one.begin_at, one.end_at), now) * gpus_worth(cluster, one.grants)
        for one in reservation.occurrences.values()
    )


def gpus_worth(cluster: Cluster, grants: Iterable[Grant]) -> float:
    """GPUs that the grants are charged as: of each node its GPUs, or its share of CPUs in GPUs if that is more.

    Reserving all CPUs of a node keeps its GPUs from others as well.
    """
    return sum(_worth(cluster.nodes.get(grant.node), grant) for grant in grants)


def _worth(node: Node | None, grant: Grant) -> float:
    """The charge of one grant in GPUs; a whole node without GPUs counts as one GPU."""
    if node is None or not node.inventory.cpus:
        return len(grant.gpus)
    share = len(grant.cpus) / node.inventory.cpus
    return max(len(grant.gpus), share * (len(node.inventory.gpus) or 1))
