"""Converts between cron lines and iCalendar's RRULE, if both mean exactly the same.

A cron line that names both days of the month and days of the week means either, which no RRULE can express; and when
clocks change, cron moves a skipped time, while RRULE leaves that to its reader.  An inexact conversion returns None, or
raises ``ValueError`` with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

DAYS = ("SU", "MO", "TU", "WE", "TH", "FR", "SA")
"""Days of the week in cron's numbering."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_WORDS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SPANS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
LOOK_AHEAD_DAYS = 5 * 366
"""Number of days ahead in which changes of clocks are looked for."""
Rule = dict[str, list[str] | list[int]]
"""Part of an RRULE → its values."""


class Fields(NamedTuple):
    """The values that a cron line names; None: any."""

    minutes: tuple[int, ...] | None
    hours: tuple[int, ...] | None
    days: tuple[int, ...] | None
    months: tuple[int, ...] | None
    weekdays: tuple[int, ...] | None


def rule_of(cron: str, zone: tzinfo, now: float) -> Rule | None:
    """Return the equivalent RRULE, or None if there is none."""
    try:
        fields = Fields(*map(_values, cron.split(), _SPANS))
    except ValueError:
        return None
    if (fields.days and fields.weekdays) or not is_steady(fields, zone, now):
        return None
    rule: Rule = {"FREQ": ["MONTHLY" if fields.days else "WEEKLY" if fields.weekdays else "DAILY"]}
    if fields.months:
        rule["BYMONTH"] = list(fields.months)
    if fields.days:
        rule["BYMONTHDAY"] = list(fields.days)
    if fields.weekdays:
        rule["BYDAY"] = [DAYS[day] for day in sorted({day % 7 for day in fields.weekdays})]
    rule["BYHOUR"] = list(fields.hours or range(24))
    rule["BYMINUTE"] = list(fields.minutes or range(60))
    return rule


def _values(text: str, span: tuple[int, int]) -> tuple[int, ...] | None:
    """Parse ``1-5``, ``*/15`` or ``mon,wed``; ``ValueError`` for forms that only cronsim reads (``L``, ``5#2``)."""
    if text == "*":
        return None
    found: set[int] = set()
    for part in text.lower().split(","):
        base, slash, step = part.partition("/")
        low, dash, high = ("", "", "") if base == "*" else base.partition("-")
        first = span[0] if base == "*" else _number(low, span)
        last = _number(high, span) if dash else min(span[1], 6 if span == _SPANS[4] else span[1])
        if not (dash or slash or base == "*"):
            last = first
        if last < first or (slash and not dash and base != "*"):
            raise ValueError(f"`{part}` is ambiguous")
        found.update(range(first, last + 1, int(step or 1)))
    return tuple(sorted(found))


def _number(word: str, span: tuple[int, int]) -> int:
    words = {12: _MONTHS, 7: _DAY_WORDS}.get(span[1], ())
    if word in words:
        return words.index(word) + span[0]
    number = int(word)
    if not span[0] <= number <= span[1]:
        raise ValueError(f"`{word}` is not between {span[0]} and {span[1]}")
    return number


def is_steady(fields: Fields, zone: tzinfo, now: float) -> bool:
    """Whether none of the times is skipped, or occurs twice, when the zone's clocks change in the next years."""
    times = [(hour, minute) for hour in fields.hours or range(24) for minute in fields.minutes or range(60)]
    first = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for count in range(LOOK_AHEAD_DAYS):
        day = first + timedelta(days=count)
        offsets = [(day + timedelta(days=more)).replace(tzinfo=zone).utcoffset() for more in (0, 1)]
        if offsets[0] != offsets[1] and any(_is_odd(day.replace(hour=h, minute=m), zone) for h, m in times):
            return False
    return True


def _is_odd(wall: datetime, zone: tzinfo) -> bool:
    """Whether the zone skips this time, or has it twice."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return first != second


# ── from a calendar ───────────────────────────────────────────────────────────────────────────────────────────

_KNOWN_PARTS = frozenset({
    "FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYMONTHDAY", "BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND", "WKST",
})  # fmt: skip
_FREQUENCIES = ("HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")


def cron_of(rule: Mapping[str, Sequence[object]], start: datetime, now: float) -> str:
    """Return the cron line with the same times as the RRULE from its first on; ``ValueError`` with the reason."""
    parts = {name.upper(): [str(value).upper() for value in values] for name, values in rule.items()}
    _refuse_inexact(parts, start)
    frequency = parts["FREQ"][0]
    fields = _fields(parts, frequency, start)
    if start.tzinfo is not None and not is_steady(fields, start.tzinfo, now):
        raise ValueError("its time of day does not exist or occurs twice when clocks change; choose another hour")
    return " ".join("*" if field is None else ",".join(map(str, field)) for field in fields)


def _refuse_inexact(parts: Mapping[str, Sequence[str]], start: datetime) -> None:
    odd = sorted(parts.keys() - _KNOWN_PARTS)
    if odd:
        raise ValueError(f"{odd[0]} in its RRULE cannot be written as a cron line")
    if parts.get("FREQ", [""])[0] not in _FREQUENCIES:
        raise ValueError(f"FREQ={parts.get('FREQ', ['?'])[0]} in its RRULE cannot be written as a cron line")
    if parts.get("INTERVAL", ["1"]) != ["1"]:
        raise ValueError(f"INTERVAL={parts['INTERVAL'][0]} in its RRULE cannot be written as a cron line")
    if start.second or parts.get("BYSECOND", ["0"]) != ["0"]:
        raise ValueError("it does not begin at a full minute, and a cron line has no seconds")
    if any(day not in DAYS for day in parts.get("BYDAY", ())):
        raise ValueError(f"BYDAY={','.join(parts['BYDAY'])} counts weekdays of a month, which a cron line cannot")
    if any(int(day) < 1 for day in parts.get("BYMONTHDAY", ())):
        raise ValueError(
            f"BYMONTHDAY={','.join(parts['BYMONTHDAY'])} counts from the end of a month, which a cron line cannot"
        )


def _fields(parts: Mapping[str, Sequence[str]], frequency: str, start: datetime) -> Fields:
    """Return the cron fields of a rule; parts that it lacks come from its start."""
    has_day = "BYDAY" in parts or "BYMONTHDAY" in parts
    if "BYDAY" in parts and "BYMONTHDAY" in parts:
        raise ValueError("BYDAY and BYMONTHDAY must both match, but in a cron line either matches")
    days = _numbers(parts, "BYMONTHDAY")
    if not has_day and frequency in ("MONTHLY", "YEARLY"):
        days = (start.day,)
    weekdays = tuple(sorted(DAYS.index(day) for day in parts["BYDAY"])) if "BYDAY" in parts else None
    if not has_day and frequency == "WEEKLY":
        weekdays = (start.isoweekday() % 7,)
    months = _numbers(parts, "BYMONTH") or ((start.month,) if frequency == "YEARLY" and not has_day else None)
    hours = _numbers(parts, "BYHOUR") or (None if frequency == "HOURLY" else (start.hour,))
    minutes = _numbers(parts, "BYMINUTE") or (start.minute,)
    return Fields(minutes, hours, days, months, weekdays)


def _numbers(parts: Mapping[str, Iterable[str]], name: str) -> tuple[int, ...] | None:
    return tuple(sorted(int(value) for value in parts[name])) if name in parts else None
