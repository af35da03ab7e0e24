"""`gqresv ics`: reservations into a calendar file, and events of one into reservations."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gq.calendar.schedule import instants
from gq.calendar.times import spoken_moment, zone_named
from gq.cli.framework.command import report, warn
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import operands, refuse_operands
from gq.cli.framework.output import write_sentence
from gq.cli.resv.edit import a_name, is_quiet
from gq.cli.resv.listing import all_reservations, known
from gq.cli.resv.options import BOOKING_OPTIONS, MAX_NAME_LENGTH, SHARED_OPTIONS, WHAT_OPTIONS, booking_of, zone_of
from gq.cli.resv.render import ask_in, echo
from gq.connection.client import Client
from gq.errors import GqError, Refusal, UsageError
from gq.model.reservation import Booking, OccurrenceInfo, ReservationInfo
from gq.request.getopt import Arguments
from gq.request.option import ParsedOption
from gq.wire.client import Cluster, EditOccurrence, GetCluster, RequestBody, SetReservation, SkipOccurrence

if TYPE_CHECKING:
    from gq.calendar.ics import CalendarEvent

MAX_FILE_BYTES = 4 * 1024 * 1024
PAST_S = 60 * 86400
"""How far back skipped or moved occurrences are looked for; no site plans further ahead."""
MAX_COUNT = 10_000
_ONLY_IMPORT = frozenset(option.name for option in BOOKING_OPTIONS) | {"name", "replace", "test-only", "quiet"}


def exchange(arguments: Arguments) -> int:
    if arguments.has("import"):
        return _take(arguments)
    for given in arguments:
        if given.name in _ONLY_IMPORT:
            raise UsageError(
                "contradiction", f"{given.place} works only with `--import`", "to export, give NAMEs and -o FILE"
            )
    return _export(arguments)


# ── export ────────────────────────────────────────────────────────────────────────────────────────────────────


def _export(arguments: Arguments) -> int:
    from gq.calendar.ics import write_calendar  # icalendar takes longer to load than a command

    names = operands(arguments, a_name, "NAME") if arguments.operands else ()
    now = time.time()
    with controller() as client:
        cluster = ask(client, GetCluster(), Cluster).info.cluster
        there = {_identity(one) for one in known(client, all_reservations(client, names), names)}
        found = [
            reservation
            for reservation in all_reservations(client, names, since=now - PAST_S)
            if _identity(reservation) in there
        ]
    data = write_calendar(found, cluster, now)
    path = arguments.text("output")
    if path in ("", "-"):
        sys.stdout.write(data.decode())
        return 0
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise Refusal("cannot_write", f"cannot write `{path}`: {error.strerror}") from error
    return 0


def _identity(info: ReservationInfo) -> tuple[str, float]:
    """Return name and time of creation, since a deleted and a present reservation may share a name."""
    return info.booking.name, info.created_at


# ── import ────────────────────────────────────────────────────────────────────────────────────────────────────


def _take(arguments: Arguments) -> int:
    """Each event for itself: what is refused of one stops no other."""
    from gq.calendar.ics import read_calendar

    refuse_operands(arguments, "give the file as --import=FILE")
    zone, now = zone_of(arguments), time.time()
    try:
        events = read_calendar(_file(arguments.text("import")), zone)
    except ValueError as error:
        raise Refusal("bad_calendar", f"`{arguments.text('import')}`: {error}") from error
    if len(events) > 1 and arguments.has("name"):
        raise UsageError(
            "contradiction", f"`--name` names one event, but the file has {len(events)} events", "remove it"
        )
    has_failed = False
    with controller() as client:
        for event in events:
            try:
                _reserve(client, arguments, event, now)
            except (ValueError, Refusal) as error:
                has_failed = True
                _complain(event, error)
    return 1 if has_failed else 0


def _file(path: str) -> bytes:
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Refusal("cannot_read", f"cannot read `{path}`: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise Refusal("too_large", f"`{path}` is larger than {MAX_FILE_BYTES // 1024**2} MiB", "export fewer events")
    return data


def _complain(event: CalendarEvent, error: ValueError | Refusal) -> None:
    if isinstance(error, GqError):
        report(Refusal(error.code, f"`{event.title}`: {error.message}", error.hint))
    else:
        rule, _, way_out = str(error).partition("; ")
        report(Refusal("bad_event", f"`{event.title}`: {rule}", way_out))


def _reserve(client: Client, arguments: Arguments, event: CalendarEvent, now: float) -> None:
    booking = _booking(arguments, event, now)
    if _is_past(booking, now):
        warn(f"`{event.title}` is in the past and was skipped")
        return
    replace, is_test = arguments.has("replace"), arguments.has("test-only")
    request = SetReservation(booking=booking, replace=replace, test_only=True)
    zone = zone_named(booking.zone)
    changes = _changes(event, ask_in(client, request, zone).reservation, now)
    info = ask_in(client, msgspec.structs.replace(request, test_only=is_test), zone).reservation
    for change in () if is_test else changes:
        info = ask_in(client, change, zone).reservation
    if not is_quiet(arguments):
        for line in echo(info, "is available" if is_test else "imported", zone):
            write_sentence(line)


def _is_past(booking: Booking, now: float) -> bool:
    if booking.begin_at is not None:
        return booking.begin_at + booking.duration_s <= now
    return booking.until_at is not None and booking.until_at <= now


def _booking(arguments: Arguments, event: CalendarEvent, now: float) -> Booking:
    """Return the event's booking; options of the command line override it."""
    duration_s = round(event.end.timestamp() - event.start.timestamp())
    if duration_s <= 0:
        raise ValueError("it ends before it begins")
    own = _own_options(arguments, event.own)
    zone = event.start.tzinfo or UTC
    booking = booking_of(Arguments([*own, *arguments]), _name(arguments, event), zone, now)
    fields: dict[str, object] = {
        "duration_s": duration_s,
        "comment": booking.comment or " ".join(event.comment.split()),
    }
    if not event.rule:
        begin_at = event.start.timestamp()
        if begin_at < now < begin_at + duration_s:  # under way: what is left of it
            begin_at, fields["duration_s"] = now, round(event.end.timestamp() - now)
        return msgspec.structs.replace(booking, begin_at=begin_at, zone=_key(zone) or "UTC", **fields)
    key = _key(zone)
    if not key:
        raise ValueError("its time zone is unknown on this host; give the event another zone")
    return msgspec.structs.replace(booking, zone=key, **fields, **_recurrence(event, zone_named(key), now))


def _key(zone: tzinfo) -> str:
    return "UTC" if zone is UTC else str(getattr(zone, "key", ""))


def _own_options(arguments: Arguments, own: Mapping[str, str]) -> list[ParsedOption]:
    """``X-GQ-…`` as options, but for those that the command line says otherwise."""
    says_what = any(arguments.has(option.name) for option in WHAT_OPTIONS if option.name != "partition")
    names = {name: name for name in ("partition", "users", "accounts", "flags", "no-show")}
    if not says_what:
        names |= {name: name for name in SHARED_OPTIONS} | {"gpu-type": "type"}
    return [
        ParsedOption(option, "" if option == "exclusive" else own[name], f"X-GQ-{name.upper()}")
        for name, option in names.items()
        if own.get(name) and not arguments.has(option)
    ]


def _name(arguments: Arguments, event: CalendarEvent) -> str:
    """Return the reservation's name: given, or written by gq, or derived from the title."""
    made = re.sub(r"[^A-Za-z0-9._-]+", "-", event.title).strip("-._")[:MAX_NAME_LENGTH]
    return a_name(arguments.text("name") or event.own.get("name") or made or event.uid)


def _recurrence(event: CalendarEvent, zone: tzinfo, now: float) -> dict[str, object]:
    from gq.calendar.recurrence import cron_of

    cron = cron_of(event.rule, event.start.astimezone(zone), now)
    start_at = event.start.timestamp()
    until_at = _until(event, cron, zone)
    line = instants(cron, zone, start_at - 1)
    if next(line) != start_at:
        raise ValueError("its begin does not match its RRULE")
    return {"cron": cron, "until_at": until_at, "begin_at": None}


def _until(event: CalendarEvent, cron: str, zone: tzinfo) -> float | None:
    """Just after the last one."""
    if said := event.rule.get("UNTIL"):
        last = said[0]
        if isinstance(last, datetime):
            return (last if last.tzinfo else last.replace(tzinfo=zone)).timestamp() + 1
        raise ValueError("UNTIL in its RRULE is a date; give the time of the last occurrence")
    if said := event.rule.get("COUNT"):
        count = int(str(said[0]))
        if not 0 < count <= MAX_COUNT:
            raise ValueError(f"COUNT={count} in its RRULE is out of range")
        return next(islice(instants(cron, zone, event.start.timestamp() - 1), count - 1, None)) + 1
    return None


# ── single occurrences of a series ────────────────────────────────────────────────────────────────────────────


def _changes(event: CalendarEvent, info: ReservationInfo, now: float) -> list[RequestBody]:
    """Return the changes that make the occurrences match the event, without changes that are made already."""
    changes: list[RequestBody] = []
    if event.rule and _planned(info, event.start.timestamp(), now) is not None:  # a series of gq begins at once
        early = [occurrence for occurrence in info.occurrences if now < occurrence.begin_at < event.start.timestamp()]
        changes += [SkipOccurrence(name=info.booking.name, number=one.number) for one in early]
    for one in event.left_out:
        if (found := _planned(info, one.timestamp(), now)) is not None:
            changes.append(SkipOccurrence(name=info.booking.name, number=found.number))
    for one, begin, end in event.moved:
        found = _planned(info, one.timestamp(), now)
        begin_at, length_s = begin.timestamp(), round(end.timestamp() - begin.timestamp())
        if found is not None and (found.begin_at, round(found.end_at - found.begin_at)) != (begin_at, length_s):
            name, number = info.booking.name, found.number
            changes.append(EditOccurrence(name=name, number=number, begin_at=begin_at, duration_s=length_s))
    return changes


def _planned(info: ReservationInfo, at: float, now: float) -> OccurrenceInfo | None:
    """The occurrence that begins then; None: it is past, skipped or moved already."""
    if at <= now:
        return None
    last_at = max((occurrence.begin_at for occurrence in info.occurrences), default=now)
    if at > last_at:
        zone = zone_named(info.booking.zone)
        message = f"the moved occurrence at {spoken_moment(at, zone)} is not planned yet"
        raise Refusal("too_far_ahead", message, f"import it with --replace after {spoken_moment(last_at, zone)}")
    return next((occurrence for occurrence in info.occurrences if occurrence.begin_at == at), None)
