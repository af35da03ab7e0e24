"""Which reservations are listed when some of them are over."""

from __future__ import annotations

from typing import Any

from gq.wire import client
from tests.control.test_reservations import HOUR, booking, host_of, series, set_, tick
from tests.hosts import CoreHost


def listed(host: CoreHost, **query: Any) -> list[str]:
    answer = host.ask(client.ListReservations(**query))
    assert isinstance(answer, client.Reservations)
    return [one.booking.name for one in answer.reservations]


def test_what_is_over_is_shown_to_who_names_it_only() -> None:
    host = host_of()
    set_(host, booking())
    set_(host, booking("later", at=3 * HOUR))
    tick(host, 1000 + HOUR)
    assert "talk" in host.cluster.reservations, "it is kept for a while"
    assert listed(host) == ["later"]
    assert listed(host, names=("talk", "later")) == ["later", "talk"]


def test_a_series_of_which_nothing_is_planned_yet_is_not_over() -> None:
    host = host_of()
    set_(host, series())
    for number in list(host.cluster.reservations["nightly"].occurrences):
        host.ask(client.SkipOccurrence(name="nightly", number=number))
    assert host.cluster.reservations["nightly"].over_at is not None
    assert listed(host) == ["nightly"]
