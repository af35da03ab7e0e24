"""Whom a reservation tells: said with it, checked as a job's, shown without what opens doors."""

from __future__ import annotations

import msgspec

from gq.model.notice import COMMAND, MAIL, WEBHOOK, NotifySettings, Target
from gq.model.reservation import Booking
from gq.wire import client
from gqd.state.events.event import NoticeQueued
from gqd.state.reservation import Reservation
from gqd.store.queries import stream
from tests.builders import ALICE, OLGA
from tests.control.test_reservations import OPEN, booking, host_of, only, refuse, set_, tick
from tests.hosts import CoreHost

HOOKS = "https://hooks.example.org"
SECRET = Target(kind=WEBHOOK, to=f"{HOOKS}/ada-7f")
OTHER = Target(kind=WEBHOOK, to=f"{HOOKS}/bob-8a")
SHOWN = Target(kind=WEBHOOK, to=f"{HOOKS}/…")
TELLING = msgspec.structs.replace(OPEN, notify=NotifySettings(webhook_hosts=("hooks.example.org",)))
WITH_DEFAULT = msgspec.structs.replace(
    OPEN, notify=NotifySettings(webhook_hosts=("hooks.example.org",), default=f"slack:{HOOKS}/all")
)


def told(host: CoreHost) -> list[tuple[str, str, str]]:
    return [(one.user, one.kind, one.to) for one in host.log if isinstance(one, NoticeQueued)]


def kept(host: CoreHost, name: str = "talk") -> Reservation:
    return host.cluster.reservations[name]


def test_the_owner_is_told_as_the_reservation_says_where_the_site_says_nothing() -> None:
    host = host_of(1, TELLING)
    set_(host, booking(at=0, no_show_s=1200, notify=(SECRET, OTHER)), ALICE)

    tick(host, 1201)

    assert told(host) == [("alice", WEBHOOK, SECRET.to), ("alice", WEBHOOK, OTHER.to)]


def test_what_the_reservation_says_takes_the_place_of_the_default() -> None:
    host = host_of(1, WITH_DEFAULT)
    set_(host, booking("own", 2, at=0, no_show_s=1200, notify=(SECRET,)), ALICE)
    set_(host, booking("site", 2, at=0, no_show_s=1200), ALICE)

    tick(host, 1201)

    assert told(host) == [("alice", WEBHOOK, SECRET.to), ("alice", "slack", f"{HOOKS}/all")]


def test_where_the_site_has_closed_the_target_since_its_default_tells() -> None:
    host = host_of(1, WITH_DEFAULT)
    elsewhere = NotifySettings(webhook_hosts=("new.example.org",), default="slack:https://new.example.org/all")
    set_(host, booking(at=0, no_show_s=1200, notify=(SECRET,)), ALICE)
    host.policy = host.controller.policy = msgspec.structs.replace(WITH_DEFAULT, notify=elsewhere)

    tick(host, 1201)

    assert told(host) == [("alice", "slack", "https://new.example.org/all")]


def test_targets_are_checked_as_those_of_jobs() -> None:
    host = host_of(1, TELLING)

    assert refuse(host, booking(notify=(Target(kind=MAIL),)), ALICE).code == "bad_notify"
    assert (
        refuse(host, booking(notify=(Target(kind=WEBHOOK, to="https://evil.example/x"),)), ALICE).code == "bad_notify"
    )
    assert refuse(host, booking(notify=(SECRET,) * 9), ALICE).code == "bad_notify"


def test_everybody_is_shown_only_the_host_of_a_url_and_who_sends_that_back_means_the_whole() -> None:
    host = host_of(1, TELLING)
    answer = set_(host, booking(notify=(SECRET, OTHER)), ALICE)
    assert answer.reservation.booking.notify == (SHOWN, SHOWN)
    listed = host.ask(client.ListReservations(), peer=OLGA)
    assert isinstance(listed, client.Reservations)

    set_(host, msgspec.structs.replace(listed.reservations[0].booking, comment="ours"), OLGA, must_exist=True)

    assert kept(host).booking.notify == (SECRET, OTHER)
    assert not set_(host, booking(notify=(SECRET, OTHER), comment="ours"), ALICE, replace=True).is_changed
    lines = [stream.event_info(1, (0.0, "ReservationSet", None, None, msgspec.json.encode(one).decode())).body
             for one in host.log if hasattr(one, "booking")]  # fmt: skip
    assert len(lines) == 2
    assert not any("ada-7f" in line for line in lines)
    test = set_(host, booking("try", 1, at=9000, notify=(SECRET,)), ALICE, test_only=True)
    assert test.reservation.booking.notify == (SHOWN,)


def test_of_what_is_past_too_only_the_host_is_shown() -> None:
    host = host_of(1, TELLING)
    set_(host, booking(at=0, notify=(SECRET,)), ALICE)
    assert only(host).number == 1
    host.ask(client.DeleteReservation(name="talk"), peer=ALICE)
    query = client.ListReservations(since=0.0)

    [past] = host.store.past_occurrences(query)

    assert past.booking.notify == (SHOWN,)


def test_a_command_only_the_owner_says_as_whom_it_runs() -> None:
    command = Target(kind=COMMAND, to="page-me")
    host = host_of(1, TELLING)
    set_(host, booking(), ALICE)

    answer = refuse(host, booking(notify=(command,)), OLGA, must_exist=True)

    assert answer.code == "not_owner"
    set_(host, booking(notify=(command,)), ALICE, must_exist=True)
    set_(host, booking(notify=(command,), comment="seen"), OLGA, must_exist=True)
    assert kept(host).booking.notify == (command,)


def test_a_reservation_that_names_nobody_is_on_the_wire_as_it_was_before() -> None:
    plain = Booking(name="talk", duration_s=60)

    assert b"notify" not in msgspec.json.encode(plain)
