"""Reservations in the core: what is kept, for whom, when; what is refused; what time and nodes do to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.policy_tables import Booking as Rules
from gq.model.policy_tables import Timers
from gq.model.reservation import Booking, BookingUsage, Flag, OccurrenceState, Offer, ReservationInfo
from gq.model.resource import Grant, ResourceRequest
from gq.wire import client
from gqd.control.turn import Turn
from gqd.state.effect import ReplyBookings, ReplyReservations
from gqd.state.events import event
from gqd.state.input import Peer, Tick, TimeLeapt
from gqd.state.policy import Partition, Policy
from gqd.state.reservation import Occurrence
from gqd.store.queries import bookings
from tests.builders import ADAM, ALICE, BOB, OLGA, PROMPT, SHARED, client_request, hello, inventory, submit
from tests.hosts import POLICY, CoreHost

MAIN = Partition(name="main", is_default=True, max_time_s=86400)
BOOKABLE = msgspec.structs.replace(POLICY, partitions=(MAIN,), timers=PROMPT)
OPEN = msgspec.structs.replace(SHARED, partitions=(MAIN,), booking=Rules(users=True), timers=PROMPT)
"""Everybody may reserve."""
HOUR = 3600


def host_of(nodes: int = 2, policy: Policy = BOOKABLE) -> CoreHost:
    """Nodes with 8 CPUs, 4 GPUs and 64 GiB."""
    return CoreHost(policy, {f"n{number}": inventory() for number in range(1, nodes + 1)})


def booking(name: str = "talk", gpus: int = 4, at: float | None = 1000, length_s: int = HOUR, **fields: Any) -> Booking:
    """What is not a field of it is one of its resources."""
    own = {key: fields.pop(key) for key in list(fields) if key in Booking.__struct_fields__}
    resources = fields | ({"gpus": gpus} if gpus else {})
    return Booking(name=name, resources=ResourceRequest(**resources), begin_at=at, duration_s=length_s, **own)


def series(name: str = "nightly", gpus: int = 4, cron: str = "0 20 * * *", **fields: Any) -> Booking:
    return booking(name, gpus, at=None, cron=cron, **{"zone": "Europe/Berlin", "length_s": 10 * HOUR} | fields)


def set_(host: CoreHost, wanted: Booking, peer: Peer | None = None, **fields: bool) -> client.Reserved:
    who = {} if peer is None else {"peer": peer}
    answer = host.ask(client.SetReservation(booking=wanted, **fields), **who)
    assert isinstance(answer, client.Reserved)
    return answer


def refused(host: CoreHost, body: client.RequestBody, peer: Peer | None = None) -> client.Refused:
    """Nothing but the audit trail has changed."""
    before = len(host.log)
    with pytest.raises(Refusal):
        host.ask(body, **({} if peer is None else {"peer": peer}))
    assert host.log[before:] == []
    answer = host.replies[-1].body
    assert isinstance(answer, client.Refused)
    return answer


def refuse(host: CoreHost, wanted: Booking, peer: Peer | None = None, **fields: bool) -> client.Refused:
    return refused(host, client.SetReservation(booking=wanted, **fields), peer)


def tick(host: CoreHost, now: float) -> Turn:
    """Every node is heard of until then."""
    host.beat(now)
    return host.handle(Tick(), now)


def only(host: CoreHost, name: str = "talk") -> Occurrence:
    [one] = host.cluster.reservations[name].occurrences.values()
    return one


def gpus_of(grants: tuple[Grant, ...]) -> dict[str, int]:
    return {one.node: len(one.gpus) for one in grants}


def kinds(turn: Turn) -> list[str]:
    beside_the_point = event.Audited | event.RequestsForgotten
    return [type(one).__name__ for one in turn.events if not isinstance(one, beside_the_point)]


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────


def test_gpus_are_kept_with_their_share_of_cpus_and_memory() -> None:
    host = host_of(1)

    answer = set_(host, booking(gpus=1))

    [one] = answer.reservation.occurrences
    assert one.grants == (Grant(node="n1", cpus=(0,), gpus=(0,), memory_mib=12288),)
    assert (one.number, one.begin_at, one.end_at, one.state) == (1, 1000, 4600, OccurrenceState.PLANNED)
    assert answer.is_changed


def test_whole_nodes_are_kept_with_all_that_they_have() -> None:
    host = host_of(3)

    [one] = set_(host, booking(gpus=0, nodes_min=2, is_exclusive=True)).reservation.occurrences

    assert [(g.node, len(g.cpus), len(g.gpus), g.memory_mib) for g in one.grants] == [
        ("n1", 8, 4, 65536),
        ("n2", 8, 4, 65536),
    ]


def test_a_list_of_nodes_is_kept() -> None:
    host = host_of(3)

    [one] = set_(host, booking(gpus=0, nodelist=("n1", "n3"), is_exclusive=True)).reservation.occurrences

    assert gpus_of(one.grants) == {"n1": 4, "n3": 4}


def test_gpus_over_a_number_of_nodes_are_kept_evenly() -> None:
    [one] = set_(host_of(3), booking(gpus=4, nodes_min=2, nodes_max=2)).reservation.occurrences

    assert gpus_of(one.grants) == {"n1": 2, "n2": 2}


def test_two_at_the_same_time_keep_different_gpus() -> None:
    host = host_of(1)
    set_(host, booking("a", 2))
    set_(host, booking("b", 2))

    assert only(host, "a").grants[0].gpus == (0, 1)
    assert only(host, "b").grants[0].gpus == (2, 3)
    assert refuse(host, booking("c", 1)).code == "conflict"


def test_one_begins_when_the_other_ends() -> None:
    host = host_of(1)
    set_(host, booking("a"))

    set_(host, booking("b", at=1000 + HOUR))

    assert only(host, "b").grants == only(host, "a").grants


def test_what_some_have_one_after_the_other_does_not_add_up() -> None:
    host = host_of(1)
    set_(host, booking("a", 1, at=1000))
    set_(host, booking("b", 1, at=1000 + HOUR))

    set_(host, booking("c", 3, at=1000, length_s=2 * HOUR))

    assert only(host, "c").grants[0].memory_mib == 3 * 12288


def test_a_running_job_has_its_gpus_until_its_limit_and_a_while_to_clear_them() -> None:
    host = host_of(1)
    host.start(submit(gpus=4, time_limit_s=2000))

    early = refuse(host, booking(at=2059))
    assert "1 job (1 with 33 min 20 s) may run until then" in early.message
    assert early.offers[0].begin_at == 2100  # the next full minute
    set_(host, booking(at=2060))


def test_jobs_that_run_there_are_overlooked_by_administrators_who_say_so() -> None:
    host = host_of(1)
    host.start(submit(gpus=4, time_limit_s=20000))

    set_(host, booking("a", flags=(Flag.IGNORE_JOBS,)))
    set_(host, booking("b", at=5000, gpus=0, nodelist=("n1",), is_exclusive=True, flags=(Flag.MAINT,)))

    assert refuse(host, booking("c", flags=(Flag.IGNORE_JOBS,))).code == "conflict"  # other reservations are not


def test_maintenance_is_planned_also_for_nodes_that_are_down() -> None:
    host = host_of(1)
    host.ask(client.UpdateNodes(names=("n1",), action="down", reason="a fan"))
    assert refuse(host, booking()).code == "conflict"

    set_(host, booking(gpus=0, nodelist=("n1",), is_exclusive=True, flags=(Flag.MAINT,)))

    assert gpus_of(only(host).grants) == {"n1": 4}
    assert kinds(tick(host, 30)) == []


def test_a_running_job_is_not_given_time_that_reaches_into_what_is_reserved() -> None:
    host = host_of(1)
    job = host.start(submit(gpus=4, time_limit_s=600))
    set_(host, booking())

    answer = refused(host, client.UpdateJob(job_id=job, time_limit_s=HOUR))

    assert answer.message == f"job {job} cannot have this time limit: reservation `talk` has n1 from then on"
    assert answer.hint == "use at most --time=15 (minutes, from its start)"
    host.ask(client.UpdateJob(job_id=job, time_limit_s=15 * 60))
    assert host.job(job).time_limit_s == 15 * 60


def test_who_takes_long_to_start_and_to_give_way_is_gone_before_what_is_reserved_begins() -> None:
    policy = msgspec.structs.replace(BOOKABLE, timers=Timers())
    host = host_of(1, policy)
    set_(host, booking(at=1000))
    job = host.submit(submit(gpus=4, time_limit_s=820))
    timers = policy.timers

    host.schedule()

    latest = host.attempt(job).allocated_at + timers.prepare_s + 820 + timers.grace_s
    assert latest == 970
    host = host_of(1, policy)
    set_(host, booking(at=1000))
    host.submit(submit(gpus=4, time_limit_s=821))
    assert host.schedule().events == ()


def test_a_job_inside_is_not_given_time_beyond_the_end_of_its_reservation() -> None:
    host = host_of(1)
    set_(host, booking(at=0))
    job = host.start(submit(gpus=4, time_limit_s=600, reservation="talk"))

    answer = refused(host, client.UpdateJob(job_id=job, time_limit_s=2 * HOUR))

    assert answer.message == f"job {job} cannot have this time limit: it runs in reservation `talk`, which ends earlier"
    assert answer.hint == "use at most --time=60 (minutes, from its start)"


def test_nobody_pays_for_what_runs_in_a_reservation_for_maintenance() -> None:
    host = host_of(1)
    set_(host, booking(gpus=0, at=0, nodelist=("n1",), is_exclusive=True, flags=(Flag.MAINT,)))
    tick(host, 1)

    job = host.start(submit(gpus=2, time_limit_s=600, reservation="talk"))

    assert (host.attempt(job).occurrence, host.attempt(job).billing) == (("talk", 1), 0)


def test_only_a_test_keeps_nothing() -> None:
    host = host_of(1)

    answer = set_(host, booking(), test_only=True)

    assert gpus_of(answer.reservation.occurrences[0].grants) == {"n1": 4}
    assert host.cluster.reservations == {}


# ── offers ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_conflict_offers_the_earliest_the_fewer_and_the_shorter() -> None:
    host = host_of(1)
    set_(host, booking("a", 2, at=1000, length_s=3000))
    set_(host, booking("b", 2, at=5000))

    answer = refuse(host, booking("c", 4, at=0, length_s=2 * HOUR))

    assert answer.code == "conflict"
    assert "reservation a holds some of them until @{4000}" in answer.message
    assert answer.hint == "4 GPUs for 2 h: earliest @{8640}; 2 GPUs: at once; 4 GPUs for 16 min 40 s: at once"
    assert [(one.begin_at, one.duration_s, one.gpus) for one in answer.offers] == [
        (8640, 7200, 4),
        (0, 7200, 2),
        (0, 1000, 4),
    ]


@pytest.mark.parametrize("which", range(3))
def test_an_offer_is_accepted_when_it_is_taken(which: int) -> None:
    host = host_of(1)
    set_(host, booking("a", 2, at=1000, length_s=3000))
    set_(host, booking("b", 2, at=5000))
    wanted = booking("c", 4, at=0, length_s=2 * HOUR)
    offer = refuse(host, wanted).offers[which]

    answer = set_(host, taken(wanted, offer))

    assert [one.gpus for one in answer.reservation.occurrences] == [offer.gpus]


def taken(wanted: Booking, offer: Offer) -> Booking:
    begin_at = None if wanted.cron else offer.begin_at
    return msgspec.structs.replace(wanted, begin_at=begin_at, duration_s=offer.duration_s, resources=offer.resources)


def test_a_series_is_offered_what_all_of_it_can_have() -> None:
    host = host_of(1)
    set_(host, booking("a", 2, at=4 * 86400, length_s=86400))

    answer = refuse(host, series())

    assert next((one.gpus, one.duration_s) for one in answer.offers) == (2, 10 * HOUR)
    set_(host, taken(series(), answer.offers[0]))


# ── series ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_series_is_planned_as_far_as_the_horizon() -> None:
    host = host_of(1)

    shown = set_(host, series(cron="0  20 * * *")).reservation

    assert shown.booking.cron == "0 20 * * *"
    assert [one.number for one in shown.occurrences] == list(range(1, 15))
    assert {one.end_at - one.begin_at for one in shown.occurrences} == {10 * HOUR}
    assert shown.occurrences[0].begin_at == 19 * HOUR  # 20:00 in Berlin, in winter
    assert host.cluster.reservations["nightly"].planned_until == shown.occurrences[-1].begin_at


def test_the_horizon_rolls_on() -> None:
    host = host_of(1)
    set_(host, series())

    turn = tick(host, 86400 + 1)

    assert kinds(turn) == ["OccurrenceBegan", "OccurrencePlanned"]
    assert [one.number for one in host.cluster.reservations["nightly"].occurrences.values()] == list(range(1, 16))
    assert kinds(tick(host, 86400 + 2)) == []


def test_a_series_ends_with_its_last_day() -> None:
    host = host_of(1)
    set_(host, series(until_at=3 * 86400.0))

    assert len(host.cluster.reservations["nightly"].occurrences) == 3
    tick(host, 4 * 86400)
    assert host.cluster.reservations["nightly"].occurrences == {}
    assert kinds(tick(host, 4 * 86400 + 300)) == ["ReservationRemoved"]


def test_what_comes_later_is_planned_with_what_there_is_or_has_failed() -> None:
    host = host_of(1)
    set_(host, series())
    last = max(one.begin_at for one in host.cluster.reservations["nightly"].occurrences.values())
    set_(host, booking("half", 2, at=last + 86400))
    set_(host, booking("whole", 4, at=last + 2 * 86400))

    tick(host, 86400)
    tick(host, 2 * 86400)

    planned = [one for one in host.log if isinstance(one, event.OccurrencePlanned) and one.number in (15, 16)]
    assert [(gpus_of(one.grants), one.missing_gpus) for one in planned] == [({"n1": 2}, 2), ({}, 4)]
    failed = [one for one in host.log if isinstance(one, event.OccurrenceEnded) and one.number == 16]
    assert [one.state for one in failed] == [OccurrenceState.FAILED]


def test_what_fell_into_an_outage_is_passed_by() -> None:
    host = host_of(1)
    set_(host, series())
    host.restart(20 * 86400)
    host.handle(hello("n1"))

    turn = host.handle(Tick())

    numbers = [one.number for one in turn.events if isinstance(one, event.OccurrencePlanned)]
    assert numbers == list(range(15, 15 + len(numbers)))
    first = next(one for one in turn.events if isinstance(one, event.OccurrencePlanned))
    assert first.end_at > host.now
    assert "OccurrencesPassed" in kinds(turn)


# ── the same again, and changes ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wanted", [booking(), series()], ids=["once", "series"])
def test_the_same_again_changes_nothing(wanted: Booking) -> None:
    host = host_of()
    set_(host, wanted, replace=True)
    before = len(host.log)

    answer = set_(host, wanted, replace=True)

    assert not answer.is_changed
    assert [type(one) for one in host.log[before:]] == [event.RequestAnswered]


def test_who_says_now_again_while_it_is_under_way_means_what_there_is() -> None:
    host = host_of()
    set_(host, booking(at=0), replace=True)
    assert only(host).state is OccurrenceState.ACTIVE

    host.now = 600
    assert not set_(host, booking(at=590), replace=True).is_changed

    host.now = 3000
    tick(host, 4000)
    answer = set_(host, booking(at=4000), replace=True)
    assert answer.is_changed
    assert only(host).end_at == 4000 + HOUR


def test_an_update_keeps_what_will_do() -> None:
    host = host_of(2)
    set_(host, booking("a", 2))
    set_(host, booking("b", 2))
    assert only(host, "b").grants[0].gpus == (2, 3)

    set_(host, booking("b", 2, users=("alice",), comment="for Friday"), must_exist=True)
    assert only(host, "b").grants[0].gpus == (2, 3)

    set_(host, booking("b", 1), must_exist=True)
    assert gpus_of(only(host, "b").grants) == {"n1": 1}
    assert only(host, "b").grants[0].gpus[0] in (2, 3)

    set_(host, booking("b", 4), must_exist=True)
    assert gpus_of(only(host, "b").grants) == {"n2": 4}
    assert only(host, "b").number == 1


def test_an_update_leaves_what_was_moved_where_it_is_and_what_is_missing_missing() -> None:
    host = host_of(2)
    set_(host, booking(gpus=8))
    host.ask(client.EditOccurrence(name="talk", number=1, begin_at=2000.0))
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="a fan"))
    tick(host, 1)

    set_(host, booking(gpus=8, comment="for Friday"), must_exist=True)

    assert (only(host).begin_at, gpus_of(only(host).grants), only(host).missing_gpus) == (2000, {"n2": 4}, 4)


def test_an_update_of_a_series_leaves_what_was_skipped_skipped() -> None:
    host = host_of()
    set_(host, series())
    host.ask(client.SkipOccurrence(name="nightly"))

    set_(host, series(length_s=5 * HOUR), must_exist=True)

    there = host.cluster.reservations["nightly"].occurrences
    assert list(there) == list(range(2, 15))
    assert {one.end_at - one.begin_at for one in there.values()} == {5 * HOUR}


def test_another_line_keeps_the_times_that_both_name() -> None:
    host = host_of()
    set_(host, series())
    kept = {one.begin_at: one.number for one in host.cluster.reservations["nightly"].occurrences.values()}

    set_(host, series(cron="0 20 * * 1-5"), must_exist=True)

    there = host.cluster.reservations["nightly"].occurrences.values()
    assert len(there) == 10
    assert all(kept[one.begin_at] == one.number for one in there)


def test_one_that_is_over_makes_room_for_another_of_its_name() -> None:
    host = host_of()
    set_(host, booking(at=0))
    tick(host, 2 * HOUR)
    assert "talk" in host.cluster.reservations

    set_(host, booking(at=3 * HOUR))

    assert host.cluster.reservations["talk"].reservation_id == 2


def test_one_that_is_over_is_gone_after_a_while() -> None:
    host = host_of()
    set_(host, booking(at=0))
    tick(host, HOUR)

    tick(host, HOUR + 299)
    assert "talk" in host.cluster.reservations
    tick(host, HOUR + 300)
    assert "talk" not in host.cluster.reservations


# ── one occurrence ────────────────────────────────────────────────────────────────────────────────────────────


def test_one_occurrence_is_moved_and_made_longer() -> None:
    host = host_of()
    set_(host, series())
    one = host.cluster.reservations["nightly"].occurrences[2]
    begin_at = one.begin_at

    host.ask(client.EditOccurrence(name="nightly", number=2, begin_at=begin_at + HOUR, duration_s=11 * HOUR))

    assert (one.begin_at, one.end_at) == (begin_at + HOUR, begin_at + 12 * HOUR)
    third = host.cluster.reservations["nightly"].occurrences[3].begin_at
    answer = refused(host, client.EditOccurrence(name="nightly", number=2, begin_at=third - HOUR))
    assert (answer.code, "occurrence 3" in answer.message) == ("overlap", True)
    assert refused(host, client.EditOccurrence(name="nightly", number=99)).code == "unknown_occurrence"


def test_the_last_that_is_planned_is_not_made_longer_over_those_that_will_be_planned_later() -> None:
    host = host_of()
    set_(host, series())
    last = list(host.cluster.reservations["nightly"].occurrences.values())[-1]

    answer = refused(host, client.EditOccurrence(name="nightly", number=last.number, duration_s=200 * HOUR))

    assert (answer.code, f"@{{{int(last.begin_at) + 24 * HOUR}}}" in answer.message) == ("overlap", True)
    assert refused(host, client.EditOccurrence(name="nightly", number=last.number, begin_at=last.end_at + 200 * HOUR))
    host.ask(client.EditOccurrence(name="nightly", number=last.number, duration_s=24 * HOUR))
    set_(host, series(until_at=last.begin_at + 1), replace=True)
    host.ask(client.EditOccurrence(name="nightly", number=last.number, duration_s=200 * HOUR))


def test_one_that_is_under_way_can_be_made_longer_and_not_moved() -> None:
    host = host_of(1)
    set_(host, booking(at=0))
    set_(host, booking("next", at=2 * HOUR))

    host.ask(client.EditOccurrence(name="talk", number=1, duration_s=2 * HOUR))

    assert only(host).end_at == 2 * HOUR
    assert refused(host, client.EditOccurrence(name="talk", number=1, begin_at=50.0)).code == "has_begun"
    assert refused(host, client.EditOccurrence(name="talk", number=1, duration_s=3 * HOUR)).code == "conflict"
    assert refused(host, client.EditOccurrence(name="talk", number=1, duration_s=0)).code == "bad_duration"


def test_the_next_is_skipped_or_one_by_its_number() -> None:
    host = host_of()
    set_(host, series())

    host.ask(client.SkipOccurrence(name="nightly"))
    host.ask(client.SkipOccurrence(name="nightly", number=4))

    assert list(host.cluster.reservations["nightly"].occurrences)[:3] == [2, 3, 5]
    tick(host, 10)
    assert list(host.cluster.reservations["nightly"].occurrences)[:3] == [2, 3, 5]


def test_what_has_begun_is_ended_and_not_skipped() -> None:
    host = host_of()
    set_(host, booking(at=0))
    assert refused(host, client.SkipOccurrence(name="talk", number=1)).code == "has_begun"

    host.ask(client.EndReservation(name="talk"), now=100)

    assert host.cluster.reservations["talk"].over_at == 100
    assert refused(host, client.EndReservation(name="talk")).code == "not_active"
    assert refused(host, client.SkipOccurrence(name="talk")).code == "nothing_planned"


def test_what_is_deleted_leaves_its_gpus_to_others() -> None:
    host = host_of(1)
    set_(host, booking(at=0))
    job = host.submit(submit(gpus=4, time_limit_s=600))
    host.schedule()
    assert host.job(job).attempt == 0

    host.ask(client.DeleteReservation(name="talk"))
    assert host.controller.wants_plan(host.now)
    host.schedule()

    assert host.job(job).attempt == 1
    assert refused(host, client.DeleteReservation(name="talk")).code == "unknown_reservation"


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_begins_and_ends_at_its_times_and_asks_to_be_woken_for_them() -> None:
    host = host_of()
    set_(host, booking())
    tick(host, 1)
    assert host.controller.next_wakeup(1) == 1000

    assert kinds(tick(host, 1000)) == ["OccurrenceBegan"]
    assert kinds(tick(host, 1000)) == []
    assert host.controller.next_wakeup(1000) == 1000 + HOUR
    assert host.controller.wants_plan(1000) is False  # nobody waits
    assert kinds(tick(host, 1000 + HOUR)) == ["OccurrenceEnded"]
    assert host.cluster.reservations["talk"].over_at == 1000 + HOUR


def test_nobody_came_and_others_have_it_in_the_same_pass() -> None:
    host = host_of(1)
    set_(host, booking(at=0, no_show_s=1200))
    waiting = host.submit(submit(gpus=4, time_limit_s=600))
    tick(host, 1199)
    host.schedule()
    assert host.job(waiting).attempt == 0

    turn = tick(host, 1200)

    [released] = [one for one in turn.events if isinstance(one, event.OccurrenceEnded)]
    assert (released.state, released.why) == (OccurrenceState.RELEASED, "no job started in it within 20 min")
    assert host.controller.wants_plan(1200)
    host.schedule()
    assert host.job(waiting).attempt == 1


def test_while_the_controller_was_away_nobody_could_come() -> None:
    host = host_of(1)
    set_(host, booking(at=0, no_show_s=1200))
    host.restart(2000)
    host.handle(hello("n1"))

    assert kinds(tick(host, 3199))[:1] != ["OccurrenceEnded"]
    assert only(host).state is OccurrenceState.ACTIVE
    assert "OccurrenceEnded" in kinds(tick(host, 3200))


def test_while_time_leapt_nobody_could_come_either() -> None:
    """The machine slept."""
    host = host_of(1)
    set_(host, booking(no_show_s=1200))
    tick(host, 900)

    host.handle(TimeLeapt(by_s=2000), 2900)
    tick(host, 2900)
    assert only(host).state is OccurrenceState.ACTIVE
    tick(host, 2900 + 1199)
    assert only(host).state is OccurrenceState.ACTIVE
    assert kinds(tick(host, 2900 + 1200)) == ["OccurrenceEnded"]


def test_who_came_keeps_it_and_what_was_used_is_counted() -> None:
    host = host_of(1)
    set_(host, booking(at=0, no_show_s=1200))
    tick(host, 1)
    job = host.start(submit(gpus=2, time_limit_s=600, reservation="talk"))
    one = only(host)
    assert host.attempt(job).occurrence == ("talk", 1)
    assert (one.used_at, one.empty_since, list(one.inside)) == (1, None, [host.attempt(job).attempt_id])
    assert host.ask(client.ListReservations()).reservations[0].occurrences[0].job_ids == (job,)  # type: ignore[union-attr]

    tick(host, 201)
    host.finish(job)
    assert (one.empty_since, one.used_gpu_s, one.inside) == (201, 400, {})
    tick(host, 1500)
    assert one.state is OccurrenceState.ACTIVE


def test_an_empty_one_ends_before_its_time_if_it_says_so() -> None:
    host = host_of(1)
    set_(host, booking(at=0, purge_s=300))
    tick(host, 400)
    assert only(host).state is OccurrenceState.ACTIVE  # it was never used
    job = host.start(submit(gpus=1, time_limit_s=600, reservation="talk"))
    tick(host, 500)
    host.finish(job)
    tick(host, 501)
    assert host.controller.next_wakeup(501) == 800

    [ended] = [one for one in tick(host, 800).events if isinstance(one, event.OccurrenceEnded)]

    assert (ended.state, ended.why) == (OccurrenceState.ENDED, "no job ran in it for 5 min")


def test_a_job_that_outlives_it_goes_on_and_has_used_it_until_its_end() -> None:
    host = host_of(1)
    set_(host, booking(at=0))
    tick(host, 1)
    job = host.start(submit(gpus=2, time_limit_s=3000, reservation="talk"))
    one = only(host)
    tick(host, 101)

    host.ask(client.EndReservation(name="talk"))

    assert (one.used_gpu_s, one.inside) == (200, {})
    assert host.job(job).end_at is None
    tick(host, 300)
    host.finish(job)
    assert one.used_gpu_s == 200


def test_jobs_of_one_that_is_gone_are_in_no_occurrence_of_its_successor() -> None:
    host = host_of(1)
    set_(host, booking(gpus=2, at=0))
    tick(host, 1)
    job = host.start(submit(gpus=2, time_limit_s=3000, reservation="talk"))
    host.ask(client.DeleteReservation(name="talk"))

    set_(host, booking(gpus=2, at=1))

    assert host.attempt(job).occurrence == ("talk", 1)
    assert (only(host).number, only(host).inside) == (2, {})
    assert only(host).grants[0].gpus == (2, 3)


# ── nodes that fail ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_on_a_node_that_fails_goes_elsewhere() -> None:
    host = host_of(2)
    set_(host, booking(gpus=4))
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="a fan"))

    [moved] = [one for one in tick(host, 1).events if isinstance(one, event.OccurrenceChanged)]

    assert gpus_of(moved.grants) == {"n2": 4}
    assert moved.why == "n1 is drained: it has moved to n2"


def test_what_cannot_go_elsewhere_is_missing_until_the_node_is_back() -> None:
    host = host_of(2)
    set_(host, booking(gpus=8))
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="a fan"))
    tick(host, 1)
    assert (gpus_of(only(host).grants), only(host).missing_gpus) == ({"n2": 4}, 4)
    assert only(host).why == "n1 is drained, and no replacement is free for 4 GPUs"
    assert kinds(tick(host, 2)) == []

    host.ask(client.UpdateNodes(names=("n1",), action="resume"))
    tick(host, 3)

    assert (gpus_of(only(host).grants), only(host).missing_gpus) == ({"n1": 4, "n2": 4}, 0)
    assert only(host).why == "it is complete again: it has n2, n1"


def test_a_node_that_is_down_is_said_to_have_failed_and_one_that_is_gone_to_be_removed() -> None:
    host = host_of(3)
    set_(host, booking(gpus=8))
    host.ask(client.UpdateNodes(names=("n1",), action="down", reason="smoke"))
    host.ask(client.UpdateNodes(names=("n2",), action="down", reason="smoke"))
    host.ask(client.RemoveNode(name="n2"))

    tick(host, 1)

    assert only(host).why == "n1 failed, n2 was removed, and no replacement is free for 4 GPUs"


def test_a_part_of_what_is_missing_is_better_than_nothing() -> None:
    host = host_of(3)
    set_(host, booking("a", gpus=8))
    set_(host, booking("b", gpus=2))
    host.ask(client.UpdateNodes(names=("n1",), action="down", reason="a fan"))

    tick(host, 1)

    assert (gpus_of(only(host, "a").grants), only(host, "a").missing_gpus) == ({"n2": 4, "n3": 2}, 2)


def test_a_gpu_that_is_drained_is_replaced_on_its_node() -> None:
    host = host_of(1)
    set_(host, booking(gpus=2))
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="ECC", gpu=0))

    tick(host, 1)

    assert only(host).grants[0].gpus == (1, 2)


def test_a_whole_node_is_replaced_by_another() -> None:
    host = host_of(3)
    set_(host, booking(gpus=0, nodes_min=2, is_exclusive=True))
    host.ask(client.RemoveNode(name="n1"))

    tick(host, 1)

    assert gpus_of(only(host).grants) == {"n2": 4, "n3": 4}


def test_during_it_what_is_left_of_the_time_is_kept_elsewhere() -> None:
    host = host_of(2)
    set_(host, booking(at=0))
    tick(host, 1000)
    host.now = 1000
    host.ask(client.UpdateNodes(names=("n1",), action="down", reason="a fan"))

    tick(host, 1001)

    assert (gpus_of(only(host).grants), only(host).begin_at) == ({"n2": 4}, 0)
    assert only(host).state is OccurrenceState.ACTIVE


# ── whose it is ───────────────────────────────────────────────────────────────────────────────────────────────


def test_users_reserve_only_where_the_site_lets_them() -> None:
    host = host_of(1, msgspec.structs.replace(OPEN, booking=Rules()))

    assert refuse(host, booking(), ALICE).code == "not_operator"
    set_(host, booking(), OLGA)


def test_only_its_owner_and_operators_change_it() -> None:
    host = host_of(1, OPEN)
    set_(host, booking(), ALICE)

    for body in (
        client.SetReservation(booking=booking(gpus=1), replace=True),
        client.EditOccurrence(name="talk", number=1, duration_s=60),
        client.SkipOccurrence(name="talk"),
        client.EndReservation(name="talk"),
        client.DeleteReservation(name="talk"),
    ):
        assert refused(host, body, BOB).code == "not_owner"
    set_(host, booking(gpus=1), OLGA, must_exist=True)
    assert host.cluster.reservations["talk"].owner == "alice"


def test_flags_that_pass_over_others_are_for_administrators() -> None:
    host = host_of(1, OPEN)

    for flag in (Flag.MAINT, Flag.IGNORE_JOBS):
        assert refuse(host, booking(flags=(flag,)), OLGA, replace=True).code == "not_administrator"
        set_(host, booking(flags=(flag,)), ADAM, replace=True)


def test_a_user_has_a_quota_and_is_told_what_is_left() -> None:
    rules = Rules(users=True, max_per_user=2, max_gpu_hours=10, max_ahead_s=86400, max_duration_s=4 * HOUR)
    host = host_of(2, msgspec.structs.replace(OPEN, booking=rules))
    assert refuse(host, booking(length_s=5 * HOUR), ALICE).code == "too_long"
    assert refuse(host, booking(at=2 * 86400), ALICE).code == "too_far_ahead"
    set_(host, booking("a", 4, length_s=2 * HOUR), ALICE)
    answer = refuse(host, booking("b", 4), ALICE)
    assert (answer.code, answer.message) == (
        "too_many_gpu_hours",
        "this is 4 GPU-hours, and 2 of 10 are left",
    )
    assert refused(host, client.EditOccurrence(name="a", number=1, duration_s=4 * HOUR), ALICE).code == answer.code
    set_(host, booking("b", 2), ALICE)
    assert refuse(host, booking("c", 1, length_s=60), ALICE).code == "too_many_reservations"
    set_(host, booking("c", 1, length_s=60), BOB)
    set_(host, booking("d", 1, at=2 * 86400, length_s=5 * HOUR), OLGA)


def test_jobs_name_one_that_is_there_and_for_them() -> None:
    host = host_of(1, OPEN)
    set_(host, booking(users=("bob",), at=0, gpus=1), ALICE)
    named = submit(time_limit_s=60, reservation="talk")

    host.submit(named, peer=BOB)
    host.submit(named, peer=ALICE)
    assert refused(host, named, OLGA).code == "not_in_reservation"
    assert refused(host, submit(reservation="tolk"), BOB).code == "unknown_reservation"
    job = host.submit(submit(time_limit_s=60), peer=OLGA)
    assert refused(host, client.UpdateJob(job_id=job, reservation="talk"), OLGA).code == "not_in_reservation"
    set_(host, booking(users=("bob", "olga"), at=0, gpus=1), ALICE, must_exist=True)
    host.ask(client.UpdateJob(job_id=job, reservation="talk"), peer=OLGA)
    assert host.job(job).spec.reservation == "talk"
    host.ask(client.UpdateJob(job_id=job, reservation=""), peer=OLGA)
    assert host.job(job).spec.reservation == ""
    host.ask(client.EndReservation(name="talk"), peer=ALICE)
    assert refused(host, named, BOB).code == "reservation_over"


def test_the_audit_trail_names_the_reservation() -> None:
    host = host_of(1, OPEN)
    set_(host, booking(), ALICE)
    host.ask(client.SkipOccurrence(name="talk", number=1), peer=ALICE)
    refused(host, client.DeleteReservation(name="talk"), BOB)

    told = [(one.user, one.action, one.object, one.outcome, one.detail) for one in host.trail]
    assert told == [
        ("alice", "SetReservation", "reservation talk", "done", "at 1000 for 3600 s"),
        ("alice", "SkipOccurrence", "reservation talk, occurrence 1", "done", ""),
        ("bob", "DeleteReservation", "reservation talk", "not_owner", "reservation `talk` belongs to alice"),
    ]


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────

MISTAKES: dict[str, tuple[Booking, str, str]] = {
    "overlap": (booking("b", 8), "conflict", "reservation talk holds some of them until"),
    "known": (booking(gpus=1), "known_reservation", "`talk` already exists"),
    "past": (booking("b", at=10), "past_start", "the begin, @{10}, is in the past"),
    "no length": (booking("b", length_s=0), "bad_duration", "needs a duration"),
    "too large": (booking("b", 9), "impossible", "it asks for 9 GPUs; its nodes have 8"),
    "too large series": (series(gpus=9), "impossible", "9 GPUs"),
    "no such node": (booking("b", 0, nodelist=("n9",), is_exclusive=True), "unknown_node", "`n9` does not exist"),
    "no such type": (booking("b", 1, gpu_type="h900"), "impossible", "h900"),
    "no such partition": (booking("b", partition="mian"), "unknown_partition", "`mian` does not exist"),
    "no such account": (booking("b", accounts=("nlp",)), "unknown_account", "`nlp`"),
    "bad name": (booking("a b"), "bad_name", "'a b' is not a name for a reservation"),
    "a name that means none": (booking("None"), "bad_name", "cannot be named `None`"),
    "bad user": (booking("b", users=("a,b",)), "bad_name", "'a,b'"),
    "never": (series(cron="0 0 30 2 *"), "bad_cron", "never occurs"),
    "not before its end": (series(until_at=1500.0), "never", "never occurs before the end"),
    "too often": (series(cron="0 * * * *"), "too_often", "repeats after 1 h"),
    "too often once": (series(cron="0 20,23 * * *"), "too_often", "repeats after 3 h"),
    "no cron line": (series(cron="0 20 * *"), "bad_cron", "has 4 fields"),
    "no such zone": (booking("b", zone="Europe/Berlinn"), "unknown_zone", "`Europe/Berlinn`"),
    "neither": (booking("b", at=None), "contradiction", "either a begin or a cron line"),
    "both": (booking("b", cron="0 20 * * *"), "contradiction", "either a begin or a cron line"),
    "no number": (booking("b", at=float("inf")), "bad_time", "not a calendar time"),
    "beyond calendars": (booking("b", at=2.0**40), "bad_time", "not a calendar time"),
}


def test_a_line_that_comes_once_in_a_generation_is_looked_at_for_a_moment_only() -> None:
    """29th of February, if that is a Sunday: 260 of them are all that the calendar has."""
    host = host_of(1)

    answer = set_(host, series(cron="0 0 29 2 */7", length_s=HOUR))

    assert answer.is_changed
    assert answer.reservation.occurrences == ()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_and_change_nothing(mistake: str) -> None:
    host = host_of(2)
    set_(host, booking(at=1500))
    host.now = 1000
    wanted, code, words = MISTAKES[mistake]

    answer = refuse(host, wanted)

    assert answer.code == code
    assert words in answer.message
    assert answer.hint
    assert list(host.cluster.reservations) == ["talk"]


def test_users_whom_the_host_does_not_know_are_named() -> None:
    host = host_of(1)
    request = client.SetReservation(booking=booking(users=("bob", "bbo")))

    turn = host.handle(msgspec.structs.replace(client_request(request, 7), strangers=("bbo",)))

    [answer] = [one.body for one in host.replies[-1:]]
    assert isinstance(answer, client.Refused)
    assert (answer.code, "`bbo`" in answer.message) == ("unknown_user", True)
    assert kinds(turn) == []


def test_what_a_running_job_without_a_limit_holds_is_not_reserved() -> None:
    slow = Partition(name="slow", nodes=("n2",))
    host = host_of(2, msgspec.structs.replace(BOOKABLE, partitions=(MAIN, slow)))
    host.start(submit(gpus=1, partition="slow"))

    answer = refuse(host, booking("b", 0, nodelist=("n2",), is_exclusive=True))
    assert (answer.code, "1 with no time limit" in answer.message) == ("conflict", True)
    assert "default_time and max_time of [[partition]] `slow`" in answer.hint
    set_(host, booking("a", 7))
    assert gpus_of(only(host, "a").grants) == {"n1": 4, "n2": 3}


def test_a_request_that_is_sent_again_is_done_once() -> None:
    host = host_of(1)
    request = client_request(client.SetReservation(booking=booking()), 7)

    first = host.handle(request)
    second = host.handle(request)

    assert kinds(first) == ["ReservationSet", "OccurrencePlanned", "RequestAnswered"]
    assert kinds(second) == []
    assert host.replies[-1].body == host.replies[-2].body


# ── what is past ──────────────────────────────────────────────────────────────────────────────────────────────


def past_of(host: CoreHost, **query: Any) -> tuple[ReservationInfo, ...]:
    """As the shell answers."""
    turn = host.handle(client_request(client.ListReservations(**query), 99_000 + len(host.log)))
    [effect] = [one for one in turn.effects if isinstance(one, ReplyReservations)]
    past = host.store.past_occurrences(effect.query)
    return bookings.with_past(effect.current, past, effect.query.limit).reservations


def usage_of(host: CoreHost, since: float = 0.0) -> tuple[BookingUsage, ...]:
    turn = host.handle(client_request(client.QueryBookings(since=since), 99_000 + len(host.log)))
    [effect] = [one for one in turn.effects if isinstance(one, ReplyBookings)]
    return bookings.by_user([*host.store.bookings(effect.query), *effect.under_way])


def test_past_occurrences_are_shown_also_of_reservations_that_are_gone() -> None:
    host = host_of(1)
    set_(host, series(gpus=2))
    set_(host, booking(gpus=2, at=0))
    tick(host, 2 * 86400)
    assert "talk" in host.cluster.reservations
    tick(host, 2 * 86400 + 300)
    assert "talk" not in host.cluster.reservations

    shown = {one.booking.name: one for one in past_of(host, since=0.0)}

    assert [one.state.value for one in shown["talk"].occurrences] == ["OVER"]
    assert [one.state.value for one in shown["nightly"].occurrences[:3]] == ["OVER", "ACTIVE", "PLANNED"]
    assert [one.booking.name for one in past_of(host, since=0.0, names=("talk",))] == ["talk"]
    assert [one.booking.name for one in past_of(host, since=0.0, limit=1)] == ["nightly"]
    assert [one.booking.name for one in past_of(host, since=0.0, limit=1, after="nightly")] == ["talk"]
    assert [one.booking.name for one in past_of(host, since=host.now + 1)] == ["nightly"]


def test_who_booked_and_used_how_much_is_counted_by_user() -> None:
    host = host_of(2, OPEN)
    set_(host, booking("came", 2, at=0, no_show_s=600), ALICE)
    set_(host, booking("never", 2, at=0, no_show_s=600), ALICE)
    set_(host, booking("skipped", 1, at=5000), ALICE)
    host.ask(client.SkipOccurrence(name="skipped"), peer=ALICE)
    set_(host, booking("now", 4, at=0), BOB)
    tick(host, 1)
    job = host.start(submit(gpus=2, time_limit_s=900, reservation="came"), peer=ALICE)
    tick(host, 101)
    host.finish(job)
    tick(host, 600)
    tick(host, HOUR)

    assert usage_of(host) == (
        BookingUsage(user="bob", occurrences=1, booked_gpu_s=4 * HOUR),
        BookingUsage(user="alice", occurrences=2, no_shows=1, booked_gpu_s=2 * HOUR + 2 * 600, used_gpu_s=200),
    )
    assert usage_of(host, since=1) == ()
