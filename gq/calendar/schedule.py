"""Schedules of crontab(5): parsing the five fields, and the instants that they name in a time zone.  Pure.

The instants are those of Debian's cron, including changes to and from daylight saving: a time in the skipped hour is
due when the clocks have gone forward, and a time in the repeated hour is due once, unless the line is for every hour or
for steps of minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

from cronsim import CronSim, CronSimError

from gq.near_miss import suggestion

FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EXAMPLES = ("0 to 59", "0 to 23", "1 to 31", "1 to 12 or jan to dec", "0 to 7 or sun to sat (0 and 7 are Sunday)")
_ANY_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def read_schedule(text: str) -> str:
    """Return the five fields, separated by one blank; ``ValueError`` with a sentence."""
    fields = WORDS.get(text.strip().lower(), text).split()
    if len(fields) == 1 and fields[0].startswith("@"):
        way_out = suggestion(fields[0], WORDS, f"use one of {', '.join(WORDS)}, or five fields")
        raise ValueError(f"`{fields[0][:40]}` is not a schedule; {way_out}")
    if len(fields) != len(FIELDS):
        raise ValueError(
            f"`{' '.join(fields)[:80]}` has {len(fields)} fields; a schedule has five: {', '.join(FIELDS)}"
        )
    for index, field in enumerate(fields):
        _check_field(index, field)
    schedule = " ".join(fields)
    try:
        next(CronSim(schedule, _ANY_DAY))
    except (CronSimError, StopIteration):
        raise ValueError(f"`{schedule}` never occurs: there is no such day") from None
    return schedule


def _check_field(index: int, field: str) -> None:
    alone = ["*"] * len(FIELDS)
    alone[index] = field
    try:
        CronSim(" ".join(alone), _ANY_DAY)
    except (CronSimError, ValueError, AssertionError):
        forms = f"{_EXAMPLES[index]}, ranges 1-5, lists 1,3 and steps */2"
        raise ValueError(f"`{field[:40]}` is not {_article(FIELDS[index])}; use {forms}") from None


def _article(field: str) -> str:
    return f"an {field}" if field == "hour" else f"a {field}"


def instants(schedule: str, zone: tzinfo, after: float) -> Iterator[float]:
    """Yield the due times in the zone after the instant `after`, in strictly increasing order."""
    last = after
    moments = CronSim(schedule, datetime.fromtimestamp(after, zone))
    while (moment := _next(moments)) is not None:
        at = moment.timestamp()
        if at > last:  # in a repeated hour, cronsim may begin with instants of the first
            last = at
            yield at


def _next(moments: CronSim) -> datetime | None:
    """Return the next due time; None: none is before the year 10000, where the calendar ends."""
    try:
        return next(moments, None)
    except (OverflowError, ValueError):
        return None
