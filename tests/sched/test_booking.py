"""Looking for what could be had instead: soon enough, however much is kept."""

from __future__ import annotations

from typing import Any

import pytest

from gqd.sched.reservation.booking import MAX_LOOKED_AT, AvailabilityProfile
from tests.control.test_reservations import HOUR, booking, host_of, refuse, series, set_

NIGHTS = 60
DAY = 24 * HOUR
FEW = 30
"""Looks for all but the earliest instant."""


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much is kept at each look at what is free."""
    looks: list[int] = []
    left = AvailabilityProfile.left

    def counted(book: AvailabilityProfile, *words: Any) -> Any:
        looks.append(len(book.kept))
        return left(book, *words)

    monkeypatch.setattr(AvailabilityProfile, "left", counted)
    return looks


def test_of_many_lengths_the_longest_that_can_be_had_is_found_in_a_few_looks(looked: list[int]) -> None:
    host = host_of(1)
    for hour in range(2, 10):
        set_(host, series(f"s{hour}", gpus=4, cron=f"0 {hour} * * *", length_s=600, zone="UTC"))
    looked.clear()

    answer = refuse(host, booking("long", gpus=4, at=0, length_s=NIGHTS * DAY))

    [shorter] = [one for one in answer.offers if one.begin_at == 0 and one.gpus == 4]
    assert shorter.duration_s == 2 * HOUR
    assert len(looked) <= max(looked) + FEW  # each end is an instant at which it may be had


def test_where_very_much_is_kept_fewer_instants_are_looked_at(looked: list[int]) -> None:
    host = host_of(1)
    host.is_checked = False
    for minute in range(8):
        set_(host, series(f"s{minute}", gpus=4, cron=f"{minute} */6 * * *", length_s=30, zone="UTC"))
    kept = sum(len(one.occurrences) for one in host.cluster.reservations.values())
    looked.clear()

    refuse(host, booking("long", gpus=4, at=0, length_s=NIGHTS * DAY))

    assert kept > 400
    assert sum(looked) <= MAX_LOOKED_AT + FEW * kept
