"""Durations, instants and memory sizes: parsers of what users write, formats for output.  Pure.

Durations follow Slurm: ``min``, ``min:s``, ``h:m:s``, ``d-h``, ``d-h:m``, ``d-h:m:s``; also ``30s``, ``30m``, ``2h``,
``1d12h``, ``2w``, ``90 minutes``.  Instants follow Slurm and ISO 8601; `gq.calendar.times` adds instants in words.
Memory is in MiB; a bare number is MiB.  All parsers raise ``ValueError`` with a sentence that names the value and the
accepted forms.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

UNLIMITED_WORDS = frozenset({"unlimited", "infinite", "-1"})
DURATION_FORMS = "minutes, min:sec, h:m:s, d-h, d-h:m, d-h:m:s, or a number with s, m, h, d or w"
MAX_COUNT = 2**31 - 1
"""Largest count, and largest memory in MiB, that a message can carry."""
MEMORY_FORMS = "a whole number with K, M, G or T (MiB if bare)"
INSTANT_FORMS = (
    "now, now+2h, HH:MM, YYYY-MM-DD, YYYY-MM-DDTHH:MM[:SS], MM/DD[/YY][-HH:MM], today, tomorrow, yesterday, midnight,"
    " noon"
)

_UNITS = (
    (604800, "w|weeks?"),
    (86400, "d|days?"),
    (3600, "h|hrs?|hours?"),
    (60, "m|mins?|minutes?"),
    (1, "s|secs?|seconds?"),
)
_SUFFIXED = re.compile(" ?".join(rf"(?:(\d+) ?(?:{names}))?" for _, names in _UNITS))
_MEMORY = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_KIB = {"": 1024, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}
MAX_DURATION_S = 10 * 365 * 86400


def parse_duration_s(text: str) -> int | None:
    """Return the seconds of a duration, or None for ``unlimited``."""
    word = text.strip().lower()
    if word in UNLIMITED_WORDS:
        return None
    seconds = _suffixed_s(word) if word[-1:].isalpha() else _colon_s(word)
    if seconds is None:
        raise ValueError(f"`{text}` is not a duration; use {DURATION_FORMS}")
    if seconds > MAX_DURATION_S:
        raise ValueError(f"`{text}` is longer than ten years; use `unlimited` for no limit")
    return seconds


def _suffixed_s(word: str) -> int | None:
    match = _SUFFIXED.fullmatch(" ".join(word.split()))
    if match is None or not any(match.groups()):
        return None
    return sum(size_s * int(count or 0) for (size_s, _), count in zip(_UNITS, match.groups(), strict=True))


def _colon_s(word: str) -> int | None:
    days_text, dash, rest = word.partition("-")
    parts = (rest if dash else days_text).split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3 or (dash and not days_text.isdecimal()):
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return ((int(days_text) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(numbers) == 3:
        return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


def format_duration(seconds: float | None, unknown: str = "UNLIMITED") -> str:
    """Format a duration as Slurm does: ``M:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``; None is `unknown`."""
    if seconds is None:
        return unknown
    total = max(0, int(seconds))
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{secs:02}"
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def spoken_duration(seconds: float) -> str:
    """Format a duration for sentences: the two largest units, ``2 h 5 min``, ``40 s``."""
    total = max(0, round(seconds))
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    words = []
    for size, name in units:
        count, total = divmod(total, size)
        if count:
            words.append(f"{count} {name}")
    return " ".join(words[:2]) or "0 s"


def counted(count: int, things: str) -> str:
    """``1 GPU``, ``2 GPUs``, ``1 switch``."""
    plural = "es" if things.endswith("ches") else "s"
    return f"{count} {things.removesuffix(plural) if count == 1 else things}"


def parse_memory_mib(text: str) -> int:
    """Return a memory size in MiB, rounded up."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"`{text}` is not a memory size; use {MEMORY_FORMS}")
    kib = int(match[1]) * _KIB[match[2].upper()]
    mib = -(-kib // 1024)
    if mib > MAX_COUNT:
        raise ValueError(f"`{text}` is too large; the maximum is {format_memory(MAX_COUNT)}")
    return mib


def format_memory(mib: int) -> str:
    """Format ``500M``, ``16G`` or ``1.5T``: the largest unit that is exact with one decimal, else MiB."""
    for size, name in ((1024**2, "T"), (1024, "G")):
        if mib >= size and mib * 10 % size == 0:
            whole, tenth = divmod(mib * 10 // size, 10)
            return f"{whole}.{tenth}{name}" if tenth else f"{whole}{name}"
    return f"{mib}M"


def parse_seconds(text: str) -> float:
    """Parse a duration whose bare number counts seconds: ``60``, ``0.5``, ``5m``."""
    word = text.strip()
    seconds = float(word) if re.fullmatch(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}", word) else _suffixed_s(word.lower())
    if seconds is None or seconds > MAX_DURATION_S:
        raise ValueError(f"`{text}` is not a number of seconds, and not a duration such as 30s, 5m or 2h")
    return seconds


def parse_instant(text: str, now: float, zone: tzinfo | None = None, is_past: bool = False) -> float:
    """Return the seconds since the epoch of an instant in a user's notation, relative to `now`; `zone` None is local
    time.

    A clock time without a day, and a day without a year, is the next one, as in Slurm; with `is_past` the last one.
    """
    at = _instant(text, now, zone, is_past)
    if abs(at - now) > MAX_DURATION_S:
        raise ValueError(f"`{text}` is more than ten years away")
    return at


_DAY = timedelta(days=1)
_CLOCK_WORDS = {"elevenses": "11:00", "noon": "12:00", "fika": "15:00", "teatime": "16:00"}
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
_MONTH_DAY = re.compile(
    r"(?:(?P<month>\d\d)(?P<day>\d\d)(?P<year>\d\d)?"
    r"|(?P<month_>\d{1,2})(?P<mark>[/.])(?P<day_>\d{1,2})(?:(?P=mark)(?P<year_>\d\d))?)"
    r"(?:-(?P<clock>\d{1,2}:\d\d(?::\d\d)?))?"
)
"""Slurm's dates: ``MMDD[YY]``, ``MM/DD[/YY]``, ``MM.DD[.YY]``, each optionally followed by ``-HH:MM[:SS]``."""


def _instant(text: str, now: float, zone: tzinfo | None, is_past: bool) -> float:
    word = text.strip().lower()
    if word.startswith("now"):
        return _from_now(word[3:].strip(), text, now)
    moment = datetime.fromtimestamp(now, zone)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {
        "today": midnight,
        "tomorrow": midnight + _DAY,
        "yesterday": midnight - _DAY,
        "midnight": midnight if is_past else midnight + _DAY,
    }
    try:
        instant = named.get(word) or _at_clock(word, moment, is_past) or _on_day(word, moment, is_past)
        if instant is None:
            instant = datetime.fromisoformat(text.strip())
        return (instant if instant.tzinfo else instant.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):  # not a date, or a date outside of the system's calendar
        raise ValueError(f"`{text}` is not a time; use {INSTANT_FORMS}") from None


def _from_now(offset: str, text: str, now: float) -> float:
    """Parse Slurm's ``now+``, which counts bare numbers in seconds."""
    sign, count = offset[:1], offset[1:].strip()
    if not offset:
        return now
    seconds = int(count) if count.isdecimal() else _suffixed_s(count)
    if sign not in "+-" or seconds is None:
        raise ValueError(f"`{text}` is not a time; use {INSTANT_FORMS}")
    seconds = min(seconds, 2 * MAX_DURATION_S)  # a float holds no more
    return now + seconds if sign == "+" else now - seconds


def _at_clock(word: str, moment: datetime, is_past: bool) -> datetime | None:
    """Return the next or the last instant at which the clock shows ``HH:MM[:SS]``; None: `word` has another form."""
    match = _CLOCK.fullmatch(_CLOCK_WORDS.get(word, word))
    if match is None:
        return None
    instant = moment.replace(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), microsecond=0)
    if is_past:
        return instant if instant <= moment else instant - _DAY
    return instant if instant > moment else instant + _DAY


def _on_day(word: str, moment: datetime, is_past: bool) -> datetime | None:
    """Return the next or the last day of one of Slurm's dates, or that of its year; None: `word` has another form."""
    match = _MONTH_DAY.fullmatch(word)
    if match is None:
        return None
    month, day, year = (match[name] or match[f"{name}_"] for name in ("month", "day", "year"))
    hour, minute, second = (*map(int, (match["clock"] or "0").split(":")), 0, 0)[:3]
    clock = moment.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if year:
        return clock.replace(year=2000 + int(year), month=int(month), day=int(day))
    instant = clock.replace(month=int(month), day=int(day))
    if is_past:
        return instant if instant <= moment else instant.replace(year=instant.year - 1)
    return instant if instant.date() >= moment.date() else instant.replace(year=instant.year + 1)


def iso_instant(at: float | None, zone: tzinfo | None = None) -> str | None:
    """Format an instant in ISO 8601 with offset and whole seconds; None stays None."""
    if at is None:
        return None
    return datetime.fromtimestamp(int(at), zone).astimezone(zone).isoformat()


INSTANT_MARK = r"@\{(-?\d+)\}"
"""The notation for an instant in sentences of deciding code, which has no time zone."""


def render_instants(sentence: str, now: float | None = None, zone: tzinfo | None = None) -> str:
    """Return the sentence with each ``@{seconds}`` as an instant in `zone` (None: local time).

    With `now` the instant is a clock time (``14:05:10``, with the date on other days), without it ISO 8601.
    """
    if "@{" not in sentence:
        return sentence

    def render(match: re.Match[str]) -> str:
        at = float(match[1])
        return (iso_instant(at, zone) or "") if now is None else spoken_instant(at, now, zone)

    return re.sub(INSTANT_MARK, render, sentence)


def spoken_instant(at: float, now: float, zone: tzinfo | None = None) -> str:
    """Format an instant for sentences: the clock time, and the date unless it is today's."""
    moment = datetime.fromtimestamp(at, zone)
    is_today = moment.date() == datetime.fromtimestamp(now, zone).date()
    return moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")
