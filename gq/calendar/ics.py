"""Reservations as iCalendar (RFC 5545), written and read with `icalendar`, which is imported only when needed.

A series is one event with an RRULE if its cron line has an exact RRULE, with EXDATE for skipped occurrences and an
event of its own (RECURRENCE-ID) for each moved occurrence; otherwise each planned occurrence is an event.  Properties
``X-GQ-…`` hold everything else that gq needs.  UIDs are stable: a reservation that is exported again is the same event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gq.calendar.recurrence import Rule, rule_of
from gq.calendar.schedule import instants
from gq.calendar.times import zone_named
from gq.model.nodelist import compress
from gq.model.reservation import Booking, OccurrenceInfo, OccurrenceState, ReservationInfo

if TYPE_CHECKING:
    from icalendar import Component, Event

PRODUCT = "-//gq//gqresv//EN"
_YEARS_OF_ZONES = 10
_NOT_KEPT = (OccurrenceState.SKIPPED, OccurrenceState.FAILED, OccurrenceState.RELEASED, OccurrenceState.ENDED)
"""States of occurrences that are not exported, since an import before their end would reserve them again."""


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────


def write_calendar(infos: Iterable[ReservationInfo], cluster: str, now: float) -> bytes:
    """Return all reservations as one calendar."""
    from icalendar import Calendar

    calendar = Calendar()
    calendar.add("prodid", PRODUCT)
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", f"reservations of {cluster}")
    for info in infos:
        for event in _events(info, cluster, now):
            calendar.add_component(event)
    year = datetime.fromtimestamp(now, UTC).year
    calendar.add_missing_timezones(first_date=date(year - 1, 1, 1), last_date=date(year + _YEARS_OF_ZONES, 1, 1))
    for rules in calendar.walk("STANDARD") + calendar.walk("DAYLIGHT"):
        _split_rdates(rules)
    data: bytes = calendar.to_ical()
    return data


def _split_rdates(rules: Component) -> None:
    """Write each change of clocks as an RDATE of its own: some readers take only the first date of an RDATE."""
    if "RDATE" in rules:
        dates = rules.pop("RDATE").dts
        for change in dates:
            rules.add("rdate", [change.dt])


def _events(info: ReservationInfo, cluster: str, now: float) -> Iterator[Event]:
    booking = info.booking
    rule = rule_of(booking.cron, zone_named(booking.zone), now) if booking.cron else None
    if rule is not None and (series := _series(info, now)) is not None:
        yield from _recurring(info, series, rule, cluster, now)
        return
    for occurrence in info.occurrences:
        if occurrence.state not in _NOT_KEPT:
            suffix = f"-{occurrence.number}" if booking.cron else ""
            yield _event(info, occurrence, f"{booking.name}{suffix}@{cluster}.gq", now)


class Series(NamedTuple):
    """Occurrences assigned to the instants that the cron line names."""

    planned: dict[float, OccurrenceInfo]
    """Instant by the cron line → its occurrence."""
    left_out: tuple[float, ...]
    """Instants without an occurrence."""


def _series(info: ReservationInfo, now: float) -> Series | None:
    """Return the series from its first occurrence that is not past, or None without one."""
    coming = [occurrence for occurrence in info.occurrences if not occurrence.state.is_past]
    if not coming:
        return None
    zone = zone_named(info.booking.zone)
    begins = {occurrence.begin_at for occurrence in info.occurrences}
    ahead = [
        occurrence
        for occurrence in info.occurrences
        if occurrence.number >= coming[0].number or occurrence.begin_at > now
    ]
    first, last = min(occurrence.begin_at for occurrence in ahead), max(occurrence.begin_at for occurrence in ahead)
    line = list(takewhile(lambda at: at <= last, instants(info.booking.cron, zone, first - 1)))
    planned = {occurrence.begin_at: occurrence for occurrence in ahead if occurrence.begin_at in line}
    moved = [occurrence for occurrence in ahead if occurrence.begin_at not in line]
    for at, occurrence in zip((at for at in line if at not in begins), moved, strict=False):  # both in the line's order
        planned[at] = occurrence
    exported = {at: occurrence for at, occurrence in planned.items() if occurrence.state not in _NOT_KEPT}
    return Series(exported, tuple(at for at in line if at not in exported)) if exported else None


def _recurring(info: ReservationInfo, series: Series, rule: Rule, cluster: str, now: float) -> Iterator[Event]:
    booking, zone = info.booking, zone_named(info.booking.zone)
    uid = f"{booking.name}@{cluster}.gq"
    first_at = min(series.planned)
    as_planned = OccurrenceInfo(
        number=0, begin_at=first_at, end_at=first_at + booking.duration_s, grants=series.planned[first_at].grants
    )
    main = _event(info, as_planned, uid, now)
    until = {} if booking.until_at is None else {"UNTIL": [datetime.fromtimestamp(booking.until_at - 1, UTC)]}
    main.add("rrule", {**rule, **until})
    skipped = [at for at in series.left_out if at > first_at]
    if skipped:
        main.add("exdate", [datetime.fromtimestamp(at, zone) for at in skipped])
    yield main
    for at, occurrence in series.planned.items():
        if (occurrence.begin_at, occurrence.end_at) != (at, at + booking.duration_s):
            changed = _event(info, occurrence, uid, now)
            changed.add("recurrence-id", datetime.fromtimestamp(at, zone))
            yield changed


def _event(info: ReservationInfo, occurrence: OccurrenceInfo, uid: str, now: float) -> Event:
    from icalendar import Event
    from icalendar.prop import vInline

    booking, zone = info.booking, zone_named(info.booking.zone)
    asked = booking.resources
    event = Event()
    event.add("uid", uid)
    event.add("dtstamp", datetime.fromtimestamp(int(now), UTC))
    event.add("created", datetime.fromtimestamp(int(info.created_at), UTC))
    event.add("dtstart", datetime.fromtimestamp(round(occurrence.begin_at), zone))
    # In seconds, since a calendar's day may have 23 or 25 hours, and a duration does not change.
    event["DURATION"] = vInline(f"PT{round(occurrence.end_at) - round(occurrence.begin_at)}S")
    event.add("summary", f"{booking.name} ({info.owner})")
    if booking.comment:
        event.add("description", booking.comment)
    if occurrence.grants:
        event.add("location", compress(grant.node for grant in occurrence.grants))
    for name, value in _gq_properties(booking, asked.gpus, asked.gpu_type, asked.nodes_min).items():
        event.add(f"x-gq-{name}", value)
    return event


def _gq_properties(booking: Booking, gpus: int | None, kind: str | None, nodes: int | None) -> dict[str, str]:
    said = {
        "name": booking.name,
        "gpus": gpus and str(gpus),
        "gpu-type": kind,
        "nodes": nodes and str(nodes),
        "nodelist": compress(booking.resources.nodelist),
        "partition": booking.partition,
        "users": ",".join(booking.users),
        "accounts": ",".join(booking.accounts),
        "flags": ",".join([*booking.flags, *([] if booking.purge_s is None else [f"PURGE_COMP={booking.purge_s}s"])]),
        "no-show": booking.no_show_s and f"{booking.no_show_s}s",
        "exclusive": "yes" if booking.resources.is_exclusive and gpus else "",
        "exclude": compress(booking.resources.exclude),
        "constraint": booking.resources.constraint,
        "cpus-per-gpu": booking.resources.cpus_per_gpu,
        "mem-per-gpu": booking.resources.mem_per_gpu_mib,
        "min-gpu-mem": booking.resources.min_gpu_mem_mib,
    }
    return {name: str(value) for name, value in said.items() if value}


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────


class CalendarEvent(NamedTuple):
    """An event of a calendar."""

    uid: str
    title: str
    own: dict[str, str]
    """The values of its ``X-GQ-…`` properties, by the lower-case rest of their names."""
    start: datetime
    end: datetime
    comment: str
    rule: dict[str, list[object]]
    left_out: tuple[datetime, ...]
    moved: tuple[tuple[datetime, datetime, datetime], ...]
    """(original begin, begin, end) of moved occurrences."""


_Moved = tuple[datetime, datetime, datetime]


def read_calendar(data: bytes, zone: tzinfo) -> list[CalendarEvent]:
    """Return the events of a calendar in order; times without a zone are in `zone`.  ``ValueError`` with a sentence."""
    from icalendar import Calendar

    try:
        calendar = Calendar.from_ical(data)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"this is not a calendar: {error}") from error
    moved: dict[str, list[_Moved]] = {}
    events = calendar.walk("VEVENT")
    for event in events:
        if "RECURRENCE-ID" in event:
            span = _span(event, zone)
            moved.setdefault(_text(event, "UID"), []).append((_moment(event.decoded("RECURRENCE-ID"), zone), *span))
    return [_calendar_event(event, zone, moved) for event in events if "RECURRENCE-ID" not in event]


def _calendar_event(event: Component, zone: tzinfo, moved: dict[str, list[_Moved]]) -> CalendarEvent:
    start, end = _span(event, zone)
    own = {name.lower().removeprefix("x-gq-"): str(event[name]) for name in event if name.upper().startswith("X-GQ-")}
    rule = event.get("RRULE")
    if isinstance(rule, list) or "RDATE" in event:
        raise ValueError(
            f"`{_text(event, 'SUMMARY')}` has several RRULEs, or RDATEs; only a single RRULE can become a cron line"
        )
    return CalendarEvent(
        uid=_text(event, "UID"),
        title=_text(event, "SUMMARY"),
        own=own,
        start=start,
        end=end,
        comment=_text(event, "DESCRIPTION"),
        rule={} if rule is None else dict(rule),
        left_out=tuple(_left_out(event, zone)),
        moved=tuple(moved.get(_text(event, "UID"), ())),
    )


def _text(event: Component, name: str) -> str:
    return str(event.get(name, ""))


def _span(event: Component, zone: tzinfo) -> tuple[datetime, datetime]:
    title = _text(event, "SUMMARY")
    if "DTSTART" not in event:
        raise ValueError(f"`{title}` has no DTSTART")
    begins = event.decoded("DTSTART")
    start = _moment(begins, zone)
    if "DTEND" in event:
        return start, _moment(event.decoded("DTEND"), zone)
    if "DURATION" in event:
        length: timedelta = event.decoded("DURATION")
        return start, datetime.fromtimestamp(start.timestamp() + length.total_seconds(), start.tzinfo)
    if isinstance(begins, datetime):
        raise ValueError(f"`{title}` has neither DTEND nor DURATION")
    return start, start + timedelta(days=1)  # a whole day, on the wall clock


def _left_out(event: Component, zone: tzinfo) -> Iterator[datetime]:
    said = event.get("EXDATE", [])
    for dates in said if isinstance(said, list) else [said]:
        for excluded in dates.dts:
            yield _moment(excluded.dt, zone)


def _moment(value: object, zone: tzinfo) -> datetime:
    """Return the instant with a named zone; a date is its midnight."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=zone)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=zone)
    raise ValueError(f"`{value}` is not a time")
