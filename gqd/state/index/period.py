"""Begins of the day, week and month of budgets, in the cluster's time zone.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple


class Periods(NamedTuple):
    """Begins of a day, a week and a month."""

    day: float
    week: float
    """Begin of Monday."""
    month: float

    def of(self, word: str) -> float:
        return {"day": self.day, "week": self.week, "month": self.month}[word]


def periods_at(now: float, zone: tzinfo) -> Periods:
    """Begins of the day, week and month that contain `now`."""
    midnight = _midnight(datetime.fromtimestamp(now, zone))
    monday = midnight - timedelta(days=midnight.weekday())
    return Periods(*(_midnight(day).timestamp() for day in (midnight, monday, midnight.replace(day=1))))


def next_periods_at(now: float, zone: tzinfo) -> Periods:
    """Begins of the next day, week and month after `now`."""
    midnight = _midnight(datetime.fromtimestamp(now, zone))
    day = midnight + timedelta(days=1)
    week = midnight + timedelta(days=7 - midnight.weekday())
    month = midnight.replace(day=1) + timedelta(days=31)
    return Periods(*(_midnight(day).timestamp() for day in (day, week, month.replace(day=1))))


def _midnight(day: datetime) -> datetime:
    """Midnight by the wall clock; days on which the clock is changed are shorter or longer."""
    return day.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
