"""Durations, instants and memory sizes: parse what people write, print what they expect.  Pure.

Durations follow Slurm: ``min``, ``min:s``, ``h:m:s``, ``d-h``, ``d-h:m``, ``d-h:m:s``; also ``30s``, ``30m``,
``2h``, ``1d``, ``1d12h``.  Memory is in MiB; a bare number is MiB.  All parsers raise ``ValueError`` with a
sentence that names the value and the accepted forms.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

UNLIMITED_WORDS = frozenset({"unlimited", "infinite", "-1"})
DURATION_FORMS = "minutes, min:sec, h:m:s, d-h, d-h:m, d-h:m:s, or a number with s, m, h or d"
MEMORY_FORMS = "a whole number with K, M, G or T (MiB if bare)"
_DATE_FORMS = "YYYY-MM-DD, YYYY-MM-DDTHH:MM[:SS]"
INSTANT_FORMS = f"now, now+2h, HH:MM, {_DATE_FORMS}, today, tomorrow, midnight, noon"

_SUFFIXED = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_MEMORY = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_KIB = {"": 1024, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}
MAX_DURATION_S = 10 * 365 * 86400


def parse_duration_s(text: str) -> int | None:
    """Seconds of a duration, or None for ``unlimited``."""
    word = text.strip().lower()
    if word in UNLIMITED_WORDS:
        return None
    seconds = _suffixed_s(word) if word[-1:] in "smhd" else _colon_s(word)
    if seconds is None:
        raise ValueError(f"`{text}` is not a duration; use {DURATION_FORMS}")
    if seconds > MAX_DURATION_S:
        raise ValueError(f"`{text}` is longer than ten years; use `unlimited` for no limit")
    return seconds


def _suffixed_s(word: str) -> int | None:
    match = _SUFFIXED.fullmatch(word)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


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
    """Slurm's form: ``M:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``; None is `unknown`."""
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
    """For sentences: the two largest units, ``2 h 5 min``, ``40 s``."""
    total = max(0, round(seconds))
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    words = []
    for size, name in units:
        count, total = divmod(total, size)
        if count:
            words.append(f"{count} {name}")
    return " ".join(words[:2]) or "0 s"


def parse_memory_mib(text: str) -> int:
    """MiB of a memory size, rounded up."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"`{text}` is not a memory size; use {MEMORY_FORMS}")
    kib = int(match[1]) * _KIB[match[2].upper()]
    return -(-kib // 1024)


def format_memory(mib: int) -> str:
    """``500M``, ``16G``, ``1.5T``: the largest unit that keeps one decimal exact, else MiB."""
    for size, name in ((1024**2, "T"), (1024, "G")):
        if mib >= size and mib * 10 % size == 0:
            whole, tenth = divmod(mib * 10 // size, 10)
            return f"{whole}.{tenth}{name}" if tenth else f"{whole}{name}"
    return f"{mib}M"


def parse_instant(text: str, now: float, zone: tzinfo | None = None) -> float:
    """Seconds since the epoch of a moment that a person wrote, relative to `now`; `zone` None is local time.

    A bare clock time that has passed today means tomorrow, as in Slurm.
    """
    at = _instant(text, now, zone)
    if abs(at - now) > MAX_DURATION_S:
        raise ValueError(f"`{text}` is more than ten years away")
    return at


_DAY_S = 86400


def past_instant(text: str, now: float) -> float:
    """``2h``: so long ago; or a moment, which is past."""
    if text[-1:] in "smhd":
        return now - (parse_duration_s(text) or 0)
    try:
        at = parse_instant(text, now)
    except ValueError as error:
        raise ValueError(f"`{text}` is not a time that is past; use 7d, 2h, HH:MM, {_DATE_FORMS} or today") from error
    return at - _DAY_S if now < at <= now + _DAY_S else at


def _instant(text: str, now: float, zone: tzinfo | None) -> float:
    word = text.strip().lower()
    moment = datetime.fromtimestamp(now, zone)
    if word.startswith("now"):
        offset = word[3:].strip()
        if not offset:
            return now
        if offset.startswith("+"):
            return now + min(_offset_s(offset[1:].strip(), text), 2 * MAX_DURATION_S)  # a float holds no more
        raise ValueError(f"`{text}` is not a time; use {INSTANT_FORMS}")
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"today": midnight, "tomorrow": midnight + timedelta(days=1), "midnight": midnight + timedelta(days=1)}
    if word in named:
        return named[word].timestamp()
    clock = "12:00" if word == "noon" else "16:00" if word == "teatime" else word
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            at = datetime.strptime(clock, form)
        except ValueError:
            continue
        today = midnight.replace(hour=at.hour, minute=at.minute, second=at.second)
        return (today if today > moment else today + timedelta(days=1)).timestamp()
    try:
        when = datetime.fromisoformat(text.strip())
        return (when if when.tzinfo else when.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):  # not a date, or one that the calendar of the system does not have
        raise ValueError(f"`{text}` is not a time; use {INSTANT_FORMS}") from None


_OFFSET_WORDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def _offset_s(offset: str, text: str) -> int:
    """Slurm's ``now+`` counts bare numbers in seconds and knows words: ``now+2hours``."""
    if offset.isdecimal():
        return int(offset)
    match = re.fullmatch(r"(\d+)\s*([a-z]+?)s?", offset)
    if match and match[2] in _OFFSET_WORDS:
        return int(match[1]) * _OFFSET_WORDS[match[2]]
    seconds = _suffixed_s(offset)
    if seconds is None:
        raise ValueError(f"`{text}` is not a time; use {INSTANT_FORMS}")
    return seconds


def iso_instant(at: float | None, zone: tzinfo | None = None) -> str | None:
    """ISO 8601 with offset, whole seconds; None stays None."""
    if at is None:
        return None
    return datetime.fromtimestamp(int(at), zone).astimezone(zone).isoformat()


INSTANT_MARK = r"@\{(-?\d+)\}"
"""How deciding code, which has no time zone, writes an instant into a sentence."""


def tell_instants(sentence: str, now: float | None = None, zone: tzinfo | None = None) -> str:
    """The sentence with each ``@{seconds}`` as a moment in `zone` (None: local time).

    With `now` as people say it (``14:05:10``, with the date on other days), without it in ISO 8601.
    """
    if "@{" not in sentence:
        return sentence

    def tell(match: re.Match[str]) -> str:
        at = float(match[1])
        return (iso_instant(at, zone) or "") if now is None else spoken_instant(at, now, zone)

    return re.sub(INSTANT_MARK, tell, sentence)


def spoken_instant(at: float, now: float, zone: tzinfo | None = None) -> str:
    """For sentences: the clock time, and the date unless it is today's."""
    moment = datetime.fromtimestamp(at, zone)
    is_today = moment.date() == datetime.fromtimestamp(now, zone).date()
    return moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")
