"""Instants of cron lines at the end of the calendar."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gq.calendar.schedule import instants

CHRISTMAS_OF_9999 = datetime(9999, 12, 24, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("schedule", ["0 0 29 2 */7", "0 0 * * *", "0 0 1 1 *"])
def test_a_line_ends_with_the_calendar(schedule: str) -> None:
    coming = list(instants(schedule, UTC, CHRISTMAS_OF_9999))
    assert coming == [CHRISTMAS_OF_9999 + day * 86400 for day in range(1, 8)][: 7 if schedule == "0 0 * * *" else 0]
