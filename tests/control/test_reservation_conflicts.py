"""What is said of a reservation that cannot be had: who is in its way, and what would do."""

from __future__ import annotations

from gq.model.reservation import OccurrenceState
from gq.wire import client
from gqd.state.events import event
from gqd.state.reservation import Occurrence
from tests.control.test_reservations import HOUR, booking, host_of, refuse, refused, series, set_
from tests.hosts import CoreHost


def one_of(host: CoreHost, name: str) -> Occurrence:
    return next(iter(host.cluster.reservations[name].occurrences.values()))


def test_a_single_occurrence_is_told_how_long_it_can_be_and_of_no_fewer_gpus() -> None:
    host = host_of(1)
    set_(host, booking("talk", at=HOUR))
    set_(host, booking("next", at=4 * HOUR))

    answer = refused(host, client.EditOccurrence(name="talk", number=1, duration_s=6 * HOUR))

    assert (answer.code, answer.offers) == ("conflict", ())
    assert answer.hint == f"it is available until @{{{4 * HOUR}}}: gqresv edit talk 1 --duration=180"
    host.ask(client.EditOccurrence(name="talk", number=1, duration_s=180 * 60))
    assert one_of(host, "talk").end_at == 4 * HOUR


def test_what_a_reservation_has_itself_is_not_in_its_way() -> None:
    host = host_of(1)
    set_(host, booking("talk", at=HOUR))
    set_(host, booking("next", at=4 * HOUR))

    answer = refuse(host, booking("talk", at=HOUR, length_s=6 * HOUR), replace=True)

    assert answer.message.endswith(f": reservation next holds some of them until @{{{5 * HOUR}}}")


def test_a_series_that_one_time_stands_in_the_way_of_is_told_that_each_must_be_free() -> None:
    host = host_of(1)
    set_(host, series("night"))
    second = host.cluster.reservations["night"].occurrences[2].begin_at
    host.ask(client.DeleteReservation(name="night"))
    set_(host, booking("talk", at=second))

    answer = refuse(host, series("night"))

    assert answer.offers == ()
    assert answer.hint.startswith("every occurrence of a series must be free")


def night_with_a_talk_in_its_second() -> tuple[CoreHost, float]:
    host = host_of(1)
    set_(host, series("night"))
    second = host.cluster.reservations["night"].occurrences[2].begin_at
    host.ask(client.DeleteReservation(name="night"))
    set_(host, booking("talk", at=second))
    return host, second


def test_a_series_may_leave_out_what_cannot_be_had_and_says_so() -> None:
    host, second = night_with_a_talk_in_its_second()
    assert "--skip-conflicts" in refuse(host, series("night")).hint

    tested = set_(host, series("night"), skip_conflicts=True, test_only=True)
    made = set_(host, series("night"), skip_conflicts=True)

    begins = [one.begin_at for one in made.reservation.occurrences]
    assert (tested.skipped_at, made.skipped_at) == ((second,), (second,))
    assert [one.begin_at for one in tested.reservation.occurrences] == begins
    assert second not in begins and len(begins) > 5
    ended = [one for one in host.log if isinstance(one, event.OccurrenceEnded) and one.name == "night"]
    assert [(one.number, one.state) for one in ended] == [(2, OccurrenceState.SKIPPED)]
    assert not set_(host, series("night"), skip_conflicts=True, replace=True).is_changed


def test_a_series_of_which_nothing_can_be_had_is_refused_also_then() -> None:
    host = host_of(1)
    set_(host, series("other"))

    assert refuse(host, series("night"), skip_conflicts=True).code == "conflict"
    assert refuse(host, booking("talk", at=HOUR), skip_conflicts=True).code == "contradiction"


def test_an_update_may_leave_out_what_cannot_be_had_longer() -> None:
    host = host_of(1)
    set_(host, series("night"))
    second = host.cluster.reservations["night"].occurrences[2]
    set_(host, booking("talk", at=second.end_at))

    changed = set_(host, series("night", length_s=11 * HOUR), skip_conflicts=True, replace=True)

    assert changed.skipped_at == (second.begin_at,)
    assert 2 not in host.cluster.reservations["night"].occurrences
