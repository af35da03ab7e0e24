"""When the day, week and month of budgets began and when the next ones do, in the cluster's time zone.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple


class Periods(NamedTuple):
    day: float
    week: float
    """Monday."""
    month: float

    def of(self, word: str) -> float:
        return {"day": self.day, "week": self.week, "month": self.month}[word]


def periods_at(now: float, zone: tzinfo) -> Periods:
    """The instants at which those began that `now` is in."""
    midnight = _midnight(datetime.fromtimestamp(now, zone))
    monday = midnight - timedelta(days=midnight.weekday())
    return Periods(*(_midnight(one).timestamp() for one in (midnight, monday, midnight.replace(day=1))))


def next_periods_at(now: float, zone: tzinfo) -> Periods:
    """The instants at which the next ones begin."""
    midnight = _midnight(datetime.fromtimestamp(now, zone))
    day = midnight + timedelta(days=1)
    week = midnight + timedelta(days=7 - midnight.weekday())
    month = midnight.replace(day=1) + timedelta(days=31)
    return Periods(*(_midnight(one).timestamp() for one in (day, week, month.replace(day=1))))


def _midnight(day: datetime) -> datetime:
    """By the clock on the wall: days at which it is changed are shorter or longer."""
    return day.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
