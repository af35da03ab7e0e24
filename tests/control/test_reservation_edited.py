"""A single reservation that was moved or made longer stays so when something else of it is changed."""

from __future__ import annotations

import msgspec
import pytest

from gq.wire import client
from tests.control.test_reservations import HOUR, booking, host_of, only, refuse, set_, tick
from tests.hosts import CoreHost


def moved(**fields: float) -> CoreHost:
    """From 1000 on for an hour, and then edited."""
    host = host_of(2)
    set_(host, booking())
    host.ask(client.EditOccurrence(name="talk", number=1, **fields))  # type: ignore[arg-type]
    return host


def update(host: CoreHost, **fields: object) -> tuple[float, float]:
    known = host.cluster.reservations["talk"].booking
    set_(host, msgspec.structs.replace(known, **fields), replace=True, must_exist=True)
    return only(host).begin_at, only(host).end_at


@pytest.mark.parametrize("now", [0, 2000, 6000])
def test_what_was_moved_stays_where_it_is(now: float) -> None:
    host = moved(begin_at=30_000.0)
    tick(host, now)

    assert update(host, comment="for us") == (30_000, 30_000 + HOUR)
    assert update(host, duration_s=2 * HOUR) == (30_000, 30_000 + 2 * HOUR)
    assert update(host, begin_at=40_000.0) == (40_000, 40_000 + 2 * HOUR)


def test_what_was_renewed_stays_as_long_also_after_its_first_end() -> None:
    host = moved(duration_s=9 * HOUR)
    tick(host, 1000 + 3 * HOUR)

    assert update(host, comment="for us") == (1000, 1000 + 9 * HOUR)
    assert update(host, duration_s=5 * HOUR) == (1000, 1000 + 5 * HOUR)


def test_it_is_not_made_shorter_than_it_has_lasted() -> None:
    host = moved(duration_s=9 * HOUR)
    tick(host, 1000 + 3 * HOUR)

    assert refuse(host, booking(length_s=2 * HOUR), replace=True, must_exist=True).code == "past_start"
