"""A series whose last day is changed goes on as it was until then."""

from __future__ import annotations

from gq.wire import client
from tests.builders import submit
from tests.control.test_reservations import HOUR, host_of, refuse, series, set_, tick
from tests.hosts import CoreHost

DAY = 24 * HOUR


def nights(host: CoreHost) -> list[float]:
    return sorted(one.begin_at for one in host.cluster.reservations["nightly"].occurrences.values())


def test_another_last_day_leaves_what_is_under_way_and_what_was_skipped_and_moved() -> None:
    host = host_of(2)
    set_(host, series())
    before = nights(host)
    tick(host, before[0] + 100)
    host.ask(client.SkipOccurrence(name="nightly", number=2))
    host.ask(client.EditOccurrence(name="nightly", number=3, begin_at=before[2] + HOUR))

    set_(host, series(until_at=before[5]), replace=True)

    assert nights(host) == [before[0], before[2] + HOUR, before[3], before[4]]
    assert host.cluster.reservations["nightly"].active() is not None
    set_(host, series(), replace=True)
    assert nights(host)[2:5] == before[3:6]


def test_one_that_was_moved_beyond_the_others_leaves_no_night_out() -> None:
    host = host_of(2)
    set_(host, series())
    before = nights(host)
    host.ask(client.EditOccurrence(name="nightly", number=len(before), begin_at=before[-1] + 2.5 * DAY))
    set_(host, series(comment="for us"), replace=True)

    for _ in range(4):
        tick(host, host.now + DAY)

    coming = nights(host)
    assert {before[-1] + DAY, before[-1] + 2 * DAY, before[-1] + 3 * DAY} <= set(coming)


def test_another_line_or_zone_leaves_what_is_under_way_until_its_end() -> None:
    host = host_of(2)
    set_(host, series())
    first = nights(host)[0]
    tick(host, first + 100)
    job = host.start(submit(gpus=4, time_limit_s=600, reservation="nightly"))

    set_(host, series(cron="0 19 * * *"), replace=True)
    set_(host, series(cron="0 19 * * *", zone="Europe/Athens"), replace=True)

    active = host.cluster.reservations["nightly"].active()
    assert active is not None
    assert (active.number, active.begin_at, active.end_at) == (1, first, first + 10 * HOUR)
    assert list(active.inside) == [host.attempt(job).attempt_id]
    assert nights(host)[:3] == [first, first + DAY - 2 * HOUR, first + 2 * DAY - 2 * HOUR]


def test_another_line_of_which_one_would_begin_before_what_is_under_way_ends_is_refused() -> None:
    host = host_of(2)
    set_(host, series())
    first = nights(host)[0]
    tick(host, first + 100)

    answer = refuse(host, series(cron="0 2 * * *"), replace=True)

    assert answer.code == "overlap"
    assert f"until @{{{int(first) + 10 * HOUR}}}" in answer.message
    assert f"at @{{{int(first) + 6 * HOUR}}}" in answer.message
    host.ask(client.EndReservation(name="nightly"))
    set_(host, series(cron="0 2 * * *"), replace=True)
    assert nights(host)[0] == first + 6 * HOUR


def test_another_line_with_another_length_gives_what_is_under_way_that_length() -> None:
    host = host_of(2)
    set_(host, series())
    first = nights(host)[0]
    tick(host, first + 100)

    set_(host, series(cron="0 2 * * *", length_s=6 * HOUR), replace=True)

    assert nights(host)[:2] == [first, first + 6 * HOUR]
    active = host.cluster.reservations["nightly"].active()
    assert active is not None
    assert active.end_at == first + 6 * HOUR
