"""Instants as users write them: ``fri 18:00``, ``tomorrow 9am``, ``24 dec 9:00``; and their format for users.

`gq.units` parses the forms that it knows; dateparser parses the rest, only if the text can be understood in one way,
since dateparser accepts nearly everything.  dateparser is imported only then (that takes longer than a whole command).
A wall-clock time that a zone skips is refused; of a time that occurs twice the first is taken, with a note.  Time zones
are read from the system's files here, for commands only.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from gq.units import INSTANT_MARK, MAX_DURATION_S, parse_duration_s, parse_instant

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

EXAMPLES = "'fri 18:00', 'tomorrow 9am', '24 dec 9:00', 2026-12-24T18:00, 18:00, now+2h"
_WEEK = timedelta(days=7)
_LOCALTIME = "/etc/localtime"
_ZONE_FILES = "/zoneinfo/"

_DAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?"
_DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DATE = rf"\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?: \d{{4}})?|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?"
_CLOCK = r"\d{1,2}(?::\d{2}){1,2}(?: ?[ap]m)?|\d{1,2} ?[ap]m|noon"
_DAYS = (
    rf"today|tomorrow|yesterday|(?:(?:next|this|on) )?{_DAY}|(?:on )?(?:{_DATE})|(?:{_DAY},? )(?:{_DATE})"
    r"|\d{4}-\d\d-\d\d"
)
_SPOKEN = rf"(?:{_DAYS}),?(?: (?:at )?(?:{_CLOCK}))?|(?:at )?(?:{_CLOCK})(?: (?:{_DAYS}))?"
"""Pattern of the texts given to dateparser: a day, a clock time, or both."""
_AGO = r"(\d.*?[a-z])(?: ago)?"
_LATER = r"in (\d+|an?) (minutes?|hours?|days?|weeks?)"
PAST_EXAMPLES = "7d, 2h, yesterday, 'fri 18:00', HH:MM, YYYY-MM-DD, YYYY-MM-DDTHH:MM[:SS]"


class Moment(NamedTuple):
    """A parsed instant."""

    at: float
    note: str = ""
    """A note for the user: the zone has this wall-clock time twice."""
    is_spoken: bool = False
    """Whether the text was in words, so that the command should show the instant that it understood."""


def moment(text: str, now: float, zone: tzinfo | None = None, is_past: bool = False) -> Moment:
    """Parse `text` in the zone (None: the local zone); ``ValueError`` with a sentence if it is not unambiguous.

    A clock time, a day of the week and a day without a year are the next one; with `is_past` the last one.
    """
    zone = zone or local_zone()
    if later := re.fullmatch(_LATER, " ".join(text.lower().split())):
        count = later[1] if later[1].isdecimal() else "1"
        return Moment(parse_instant(f"now+{count}{later[2]}", now), is_spoken=True)
    if is_exact(text):
        return Moment(parse_instant(text, now, zone))
    words, zone = _own_zone(text, zone)
    wall_now = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
    try:
        # As if the zone's wall clock were UTC's, which has every time once.
        at = parse_instant(words, wall_now.replace(tzinfo=UTC).timestamp(), UTC, is_past)
    except ValueError:
        wall, is_spoken = _spoken(words, text, wall_now, is_past), True
    else:
        wall, is_spoken = datetime.fromtimestamp(at, UTC).replace(tzinfo=None), False
    found = _on_the_clock(wall, text, zone)
    if abs(found.at - now) > MAX_DURATION_S:
        raise ValueError(f"`{text}` is more than ten years away")
    return found._replace(is_spoken=is_spoken)


def past_instant(text: str, now: float) -> float:
    """Parse ``7d``: that long ago; ``yesterday``, ``fri 18:00``, ``09:30`` or a date: the last one before `now`."""
    if ago := re.fullmatch(_AGO, " ".join(text.lower().split())):
        try:
            return now - (parse_duration_s(ago[1]) or 0)
        except ValueError:  # it may be a day, such as `24 dec`
            pass
    try:
        return moment(text, now, is_past=True).at
    except ValueError as error:
        raise ValueError(f"{str(error).partition('; ')[0]}; use {PAST_EXAMPLES}") from error


def is_exact(text: str) -> bool:
    """Whether the text is ``now+2h``, or ISO 8601 with an offset: the same in every zone."""
    if text.strip().lower().startswith("now"):
        return True
    try:
        return datetime.fromisoformat(text.strip()).tzinfo is not None
    except ValueError:
        return False


def _own_zone(text: str, zone: tzinfo) -> tuple[str, tzinfo]:
    """Split off a zone after the time, which overrides the default: ``fri 18:00 Europe/Berlin``."""
    words, _, last = text.strip().rpartition(" ")
    return (words, zone_named(last)) if words and ("/" in last or last == "UTC") else (text, zone)


def _spoken(words: str, text: str, wall_now: datetime, is_past: bool) -> datetime:
    spoken = " ".join(words.lower().split())
    if not re.fullmatch(_SPOKEN, spoken):
        raise ValueError(f"`{text}` is not a time, or it is ambiguous; for example {EXAMPLES}")
    day, has_clock = re.search(rf"\b{_DAY}\b", spoken), re.search(rf"\b(?:{_CLOCK})\b", spoken) is not None
    for odd, plain in ((rf"\b{_DAY}\b", day[0][:3] if day else ""), (r"\bnoon\b", "12:00"), (r"^at ", "")):
        spoken = re.sub(odd, plain, spoken)
    wall = _by_dateparser(spoken, wall_now, is_past)
    if wall is None:
        raise ValueError(f"`{text}` is not a valid date or time of day; for example {EXAMPLES}")
    if day and _DAY_NAMES[wall.weekday()] != day[0][:3]:
        raise ValueError(f"`{text}`: {wall:%d %B %Y} is a {wall:%A}; for example {EXAMPLES}")
    wall = wall.replace(microsecond=0) if has_clock else wall.replace(hour=0, minute=0, second=0, microsecond=0)
    is_by_weekday = day and not re.search(rf"\b(?:next|{_MONTH})\b|\d-", spoken)
    if not is_by_weekday:
        return wall
    if is_past:
        return wall + _WEEK if wall + _WEEK <= wall_now else wall
    return wall - _WEEK if wall - _WEEK > wall_now else wall  # on a Sunday, `sun 18:00` is today


def _by_dateparser(words: str, wall_now: datetime, is_past: bool) -> datetime | None:
    from dateparser import parse

    prefer = "past" if is_past else "future"
    settings = {"PREFER_DATES_FROM": prefer, "RELATIVE_BASE": wall_now, "RETURN_AS_TIMEZONE_AWARE": False}
    found: datetime | None = parse(words, languages=["en"], settings=settings)
    return found


# ── wall clocks and zones ─────────────────────────────────────────────────────────────────────────────────────


def _on_the_clock(wall: datetime, text: str, zone: tzinfo) -> Moment:
    first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    at = first.timestamp()
    if first.utcoffset() == second.utcoffset():
        return Moment(at)
    shifted = datetime.fromtimestamp(at, zone)
    if shifted.replace(tzinfo=None) != wall:
        raise ValueError(
            f"`{text}` is {wall:%a %Y-%m-%d %H:%M}, when the clocks of {zone_name(zone)} go forward, so this time "
            f"does not exist; use {shifted:%Y-%m-%dT%H:%M}"
        )
    return Moment(
        at,
        f"{wall:%H:%M} occurs twice that day; the first is used, {first.tzname()}; the second is"
        f" {second.isoformat(timespec='minutes')}",
    )


def zone_named(name: str) -> ZoneInfo:
    """Return the zone of this name; ``ValueError`` with a sentence if it does not exist."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"`{name[:60]}` is not a time zone; for example Europe/Berlin or UTC") from None


def local_zone() -> tzinfo:
    """Return the local zone, from $TZ or the machine; a zone without a name is its current offset."""
    name = local_zone_name()
    if name:
        try:
            return zone_named(name)
        except ValueError:
            pass
    return datetime.now().astimezone().tzinfo or UTC


def local_zone_name() -> str:
    """Return ``Europe/Berlin``; empty if the zone has no name: $TZ holds rules, or /etc/localtime is no link."""
    setting = os.environ.get("TZ", "").removeprefix(":")
    path = setting if setting.startswith("/") else "" if setting else os.path.realpath(_LOCALTIME)
    return path.partition(_ZONE_FILES)[2].removeprefix("posix/") if path else setting


def zone_name(zone: tzinfo) -> str:
    return str(getattr(zone, "key", "") or zone)


def spoken_moment(at: float, zone: tzinfo) -> str:
    """Format ``Fri 2026-11-27 18:00 CET``, with seconds only if they are not 0."""
    when = datetime.fromtimestamp(at, zone)
    return when.strftime("%a %Y-%m-%d %H:%M:%S %Z" if when.second else "%a %Y-%m-%d %H:%M %Z")


def render_moments(sentence: str, zone: tzinfo) -> str:
    """Return the sentence with each instant of deciding code (``@{seconds}``) formatted by `spoken_moment`."""
    return re.sub(INSTANT_MARK, lambda match: spoken_moment(float(match[1]), zone), sentence)


def spoken_span(begin_at: float, end_at: float, zone: tzinfo) -> str:
    """Format ``from Fri 2026-11-27 18:00 CET to Sat 2026-11-28 06:00 CET (Europe/Berlin)``."""
    return f"from {spoken_moment(begin_at, zone)} to {spoken_moment(end_at, zone)} ({zone_name(zone)})"
