"""Past reservations in every store: shown, counted by user, and forgotten in time."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gq.model.reservation import Booking, BookingUsage, OccurrenceState
from gq.model.resource import Grant, ResourceRequest
from gq.wire.client import ListReservations, QueryBookings
from gqd.control.apply.table import apply
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.store.protocol import Batch, RetentionCutoffs, Store
from gqd.store.queries.bookings import by_user
from gqd.store.rows.rows import materialise
from gqd.store.sqlite import SqliteStore

HOUR = 3600.0
TWO_GPUS = (Grant(node="n1", cpus=(0, 1), gpus=(0, 1), memory_mib=64),)


class History:
    """What happened, committed fact by fact."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cluster = Cluster()

    def note(self, *facts: event.Event) -> None:
        for fact in facts:
            apply(self.cluster, fact)
            asyncio.run(self.store.commit(materialise(self.cluster, (fact,))))
            assert self.store.load() == self.cluster

    def made(self, name: str, owner: str, begins: tuple[float, ...], at: float = 0.0) -> None:
        booking = Booking(name=name, resources=ResourceRequest(gpus=2), begin_at=begins[0], duration_s=3600)
        self.note(event.ReservationSet(at=at, booking=booking, owner=owner, uid=7))
        for number, begin_at in enumerate(begins, 1):
            self.note(
                event.OccurrencePlanned(
                    at=at, name=name, number=number, begin_at=begin_at, end_at=begin_at + HOUR, grants=TWO_GPUS
                )
            )

    def ended(self, name: str, number: int, at: float, state: OccurrenceState) -> None:
        if state in (OccurrenceState.OVER, OccurrenceState.RELEASED):
            self.note(event.OccurrenceBegan(at=at, name=name, number=number))
        self.note(event.OccurrenceEnded(at=at, name=name, number=number, state=state))


@pytest.fixture
def history(store: Store) -> History:
    return lived(store)


def lived(store: Store) -> History:
    """``a`` of ann took place, was skipped, and is to come; ``b`` of bob was released and is gone, twice."""
    history = History(store)
    history.made("a", "ann", (0.0, 2 * HOUR, 9 * HOUR))
    history.ended("a", 1, HOUR, OccurrenceState.OVER)
    history.ended("a", 2, HOUR, OccurrenceState.SKIPPED)
    history.made("b", "bob", (2 * HOUR,))
    history.ended("b", 1, 2.5 * HOUR, OccurrenceState.RELEASED)
    history.note(event.ReservationRemoved(at=3 * HOUR, name="b"))
    history.made("b", "bob", (4 * HOUR,), at=3 * HOUR)
    history.note(event.ReservationRemoved(at=4 * HOUR, name="b"))
    return history


def past(store: Store, **query: object) -> list[tuple[str, list[str]]]:
    found = store.past_occurrences(ListReservations(**({"since": 0.0} | query)))  # type: ignore[arg-type]
    return [(one.booking.name, [each.state.value for each in one.occurrences]) for one in found]


def test_past_occurrences_are_found_by_name_and_time(store: Store, history: History) -> None:
    assert past(store) == [("a", ["OVER", "SKIPPED"]), ("b", ["RELEASED"]), ("b", ["ENDED"])]
    assert past(store, since=2 * HOUR) == [("b", ["RELEASED"]), ("b", ["ENDED"])]
    assert past(store, names=("a",)) == [("a", ["OVER", "SKIPPED"])]
    assert past(store, after="a") == [("b", ["RELEASED"]), ("b", ["ENDED"])]
    assert past(store, since=5 * HOUR) == []


def test_what_was_booked_is_counted_until_it_was_over(store: Store, history: History) -> None:
    usage = by_user(store.bookings(QueryBookings(since=0.0)))

    assert usage == (
        BookingUsage(user="ann", occurrences=1, booked_gpu_s=2 * HOUR),
        BookingUsage(user="bob", occurrences=1, no_shows=1, booked_gpu_s=HOUR),
    )
    assert by_user(store.bookings(QueryBookings(since=0.0, until=HOUR)))[1:] == ()
    assert store.bookings(QueryBookings(since=5 * HOUR)) == []


def test_the_view_for_people_says_the_same(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "gq.db"))
    lived(store)
    store.close()

    with closing(sqlite3.connect(tmp_path / "gq.db")) as db:
        rows = db.execute("SELECT * FROM reservation_usage").fetchall()

    assert rows == [("ann", 1, 0, 2.0, 0.0), ("bob", 1, 1, 1.0, 0.0)]


def test_what_is_past_for_long_is_forgotten_with_the_reservations_that_had_nothing_else(
    store: Store, history: History
) -> None:
    wanted = RetentionCutoffs(events_before=None, audit_before=None, most=1, occurrences_before=3 * HOUR)

    portions = 0
    while store.has_older(wanted):
        asyncio.run(store.commit(Batch(events=(), upserts={}, forgetting=wanted)))
        portions += 1

    assert portions == 3
    assert past(store) == [("b", ["ENDED"])]
    assert store.load() == history.cluster
