"""`gqresv ics`: what is written is read by another reader, and back into the same reservations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest
import vobject

from gq.calendar import ics
from gq.calendar.recurrence import cron_of, rule_of
from gq.calendar.schedule import instants
from gq.model.node import ClusterInfo
from gq.model.reservation import Booking, Flag, OccurrenceInfo, OccurrenceState, ReservationInfo
from gq.model.resource import Grant, ResourceRequest
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2035, 10, 1, 12, 0, tzinfo=BERLIN).timestamp()
HOUR_S = 3600
GRANTS = (Grant(node="n1", gpus=(0, 1, 2, 3)),)
NIGHT = Booking(
    name="night", resources=ResourceRequest(gpus=4, gpu_type="a100"), cron="0 20 * * 1-5", zone="Europe/Berlin",
    duration_s=10 * HOUR_S, users=("bob",), comment="the nightly training, of all",
)  # fmt: skip


def planned(booking: Booking, count: int, now: float = NOW) -> tuple[OccurrenceInfo, ...]:
    begins = islice(instants(booking.cron, ZoneInfo(booking.zone), now), count)
    return tuple(
        OccurrenceInfo(number=place, begin_at=at, end_at=at + booking.duration_s, grants=GRANTS)
        for place, at in enumerate(begins, 1)
    )


def info(booking: Booking, *occurrences: OccurrenceInfo) -> ReservationInfo:
    shown = occurrences or planned(booking, 10)
    return ReservationInfo(booking=booking, owner="ada", uid=1000, created_at=NOW, occurrences=shown)


def read_by_another(data: bytes) -> list[tuple[str, list[float]]]:
    """(summary, the first begins) of each event, as vobject and dateutil understand it."""
    vobject.icalendar.registerTzid("Europe/Berlin", None)  # it keeps the rules of the first file that named a zone
    calendar = vobject.readOne(data.decode())
    found = []
    for event in calendar.vevent_list:
        begins = islice(event.rruleset, 40) if "rrule" in event.contents else [event.dtstart.value]
        found.append((str(event.summary.value), [each.timestamp() for each in begins]))
    return found


# ── export ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_reader_finds_a_series_at_the_times_of_its_cron_line_over_both_changes_of_clocks() -> None:
    [(summary, begins)] = read_by_another(ics.write_calendar([info(NIGHT)], "lab", NOW))

    assert summary == "night (ada)"
    assert begins == list(islice(instants(NIGHT.cron, BERLIN, NOW), 40))
    assert {datetime.fromtimestamp(at, BERLIN).utcoffset() for at in begins} == {timedelta(hours=1), timedelta(hours=2)}


def test_the_zone_is_in_the_file_and_what_only_gq_understands_beside_it() -> None:
    text = ics.write_calendar([info(NIGHT)], "lab", NOW).decode()

    assert "BEGIN:VTIMEZONE" in text and "TZID:Europe/Berlin" in text
    assert "UID:night@lab.gq" in text
    assert "RRULE:FREQ=WEEKLY;BYMINUTE=0;BYHOUR=20;BYDAY=MO,TU,WE,TH,FR" in text
    assert "DURATION:PT36000S" in text
    assert "X-GQ-GPUS:4" in text and "X-GQ-GPU-TYPE:a100" in text and "X-GQ-USERS:bob" in text
    assert ics.write_calendar([info(NIGHT)], "lab", NOW).decode() == text


def test_what_was_skipped_is_no_date_and_what_was_moved_is_an_event_of_its_own() -> None:
    first, second, third, *rest = planned(NIGHT, 8)
    skipped = msgspec.structs.replace(second, state=OccurrenceState.SKIPPED, ended_at=NOW)
    moved = msgspec.structs.replace(third, begin_at=third.begin_at + HOUR_S, end_at=third.end_at + 3 * HOUR_S)

    data = ics.write_calendar([info(NIGHT, first, skipped, moved, *rest)], "lab", NOW)

    (_, begins), (_, alone) = read_by_another(data)
    assert second.begin_at not in begins and first.begin_at in begins
    assert alone == [moved.begin_at]
    [event] = ics.read_calendar(data, UTC)
    assert event.left_out[0].timestamp() == second.begin_at
    [(was, begin, end)] = event.moved
    assert (was.timestamp(), begin.timestamp(), end.timestamp()) == (third.begin_at, moved.begin_at, moved.end_at)


def test_what_no_rule_says_exactly_is_an_event_for_each_planned_occurrence() -> None:
    either = msgspec.structs.replace(NIGHT, cron="0 20 13 * 5")
    left_out_hour = msgspec.structs.replace(NIGHT, cron="30 2 * * *", duration_s=HOUR_S)

    for booking in (either, left_out_hour):
        events = read_by_another(ics.write_calendar([info(booking, *planned(booking, 5))], "lab", NOW))
        assert [begins for _, begins in events] == [[one.begin_at] for one in planned(booking, 5)]


def test_a_single_reservation_is_one_event_and_one_that_was_skipped_none() -> None:
    once = msgspec.structs.replace(NIGHT, cron="", begin_at=NOW + 86400)
    one = OccurrenceInfo(number=1, begin_at=NOW + 86400, end_at=NOW + 86400 + 10 * HOUR_S, grants=GRANTS)
    gone = msgspec.structs.replace(one, state=OccurrenceState.SKIPPED)

    assert [begins for _, begins in read_by_another(ics.write_calendar([info(once, one)], "lab", NOW))] == [
        [NOW + 86400]
    ]
    assert b"VEVENT" not in ics.write_calendar([info(once, gone)], "lab", NOW)


@pytest.mark.parametrize(
    "cron",
    ["0 20 * * 1-5", "30 6 * * *", "0 8,20 * * 0", "15 9 1,15 * *", "0 0 1 1 *", "0 12 * 6-8 mon,wed",
     "*/15 9-17 * * 7", "0 10 */10 * *", "5 4 * * sun", "0 18 31 * *"],
)  # fmt: skip
def test_a_rule_and_its_cron_line_come_at_the_same_times_and_back(cron: str) -> None:
    booking = msgspec.structs.replace(NIGHT, cron=cron, duration_s=60)

    [event] = ics.read_calendar(ics.write_calendar([info(booking, *planned(booking, 3))], "lab", NOW), UTC)
    [(_, begins)] = read_by_another(ics.write_calendar([info(booking, *planned(booking, 3))], "lab", NOW))
    back = cron_of(event.rule, event.start, NOW)

    line = list(takewhile(lambda at: at <= begins[-1], instants(cron, BERLIN, NOW)))
    assert begins == line[: len(begins)]
    assert list(islice(instants(back, BERLIN, NOW), 60)) == list(islice(instants(cron, BERLIN, NOW), 60))


@pytest.mark.parametrize(
    "cron", ["0 20 1 * 1", "30 2 * * *", "0 * * * *", "0 20 * * 5#2", "0 20 L * *", "0 20 * * fri-sun"]
)
def test_a_line_without_an_exact_rule_has_none(cron: str) -> None:
    assert rule_of(cron, BERLIN, NOW) is None


def test_where_clocks_never_change_every_hour_is_steady() -> None:
    assert rule_of("30 2 * * *", ZoneInfo("Asia/Kolkata"), NOW) is not None


# ── import ────────────────────────────────────────────────────────────────────────────────────────────────────


def calendar(*lines: str, begin: str = "DTSTART;TZID=Europe/Berlin:20351015T200000") -> str:
    event = [
        begin,
        "DURATION:PT10H",
        "UID:x@example.org",
        "DTSTAMP:20350101T000000Z",
        "SUMMARY:Group meeting, big!",
        *lines,
    ]
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//x//EN", "BEGIN:VEVENT", *event, "END:VEVENT",
                        "END:VCALENDAR", ""])  # fmt: skip


@pytest.fixture
def taker(controller: ScriptedController) -> ScriptedController:
    def answer(request: wire.SetReservation) -> wire.Reserved:
        booking = request.booking
        if booking.cron:
            return wire.Reserved(reservation=info(booking, *planned(booking, 10, datetime.now().timestamp())))
        assert booking.begin_at is not None
        one = OccurrenceInfo(number=1, begin_at=booking.begin_at, end_at=booking.begin_at + booking.duration_s)
        return wire.Reserved(reservation=info(booking, one))

    controller.on(wire.SetReservation, answer)
    for kind in (wire.SkipOccurrence, wire.EditOccurrence):
        controller.on(kind, wire.Reserved(reservation=info(NIGHT)))
    return controller


def take(run: Run, tmp_path: Path, text: str, *words: str) -> tuple[int, str, str]:
    (tmp_path / "in.ics").write_text(text)
    return run("gqresv", "ics", f"--import={tmp_path / 'in.ics'}", *words)


def test_an_event_becomes_a_reservation_of_what_the_command_line_says(
    run: Run, taker: ScriptedController, tmp_path: Path
) -> None:
    status, out, err = take(run, tmp_path, calendar(), "--gpus=4", "--users=bob", "--no-show=20m")

    begin_at = datetime(2035, 10, 15, 20, tzinfo=BERLIN).timestamp()
    assert (status, err) == (0, "")
    assert out.splitlines()[0].startswith("Reservation Group-meeting-big imported: 4 GPUs")
    assert [one.test_only for one in taker.all(wire.SetReservation)] == [True, False]
    assert taker.all(wire.SetReservation)[1].booking == Booking(
        name="Group-meeting-big", resources=ResourceRequest(gpus=4), begin_at=begin_at, zone="Europe/Berlin",
        duration_s=10 * HOUR_S, users=("bob",), no_show_s=1200,
    )  # fmt: skip


def test_what_gq_exported_it_takes_back_as_it_was(
    run: Run, controller: ScriptedController, taker: ScriptedController, tmp_path: Path
) -> None:
    now = datetime.now().timestamp()
    first, second, third, *rest = planned(NIGHT, 8, now)
    skipped = msgspec.structs.replace(second, state=OccurrenceState.SKIPPED)
    moved = msgspec.structs.replace(third, end_at=third.end_at - HOUR_S)
    shown = info(NIGHT, first, skipped, moved, *rest)
    controller.on(wire.ListReservations, wire.Reservations(reservations=(shown,)))
    controller.on(wire.GetCluster, wire.Cluster(info=ClusterInfo(cluster="lab", gq_version="1", started_at=0.0)))
    file = tmp_path / "out.ics"

    assert run("gqresv", "ics", "night", "-o", str(file)) == (0, "", "")
    assert run("gqresv", "ics", "night").out.encode().startswith(file.read_bytes()[:40])
    assert run("gqresv", "ics", f"--import={file}", "--replace", "--quiet") == (0, "", "")

    booking = taker.all(wire.SetReservation)[1].booking
    assert sorted(booking.cron.split()[4].split(",")) == ["1", "2", "3", "4", "5"]
    assert msgspec.structs.replace(booking, cron=NIGHT.cron) == NIGHT
    assert taker.the(wire.SkipOccurrence) == wire.SkipOccurrence(name="night", number=2)
    changed = wire.EditOccurrence(name="night", number=3, begin_at=third.begin_at, duration_s=9 * HOUR_S)
    assert taker.the(wire.EditOccurrence) == changed


@pytest.mark.parametrize(
    "resources",
    [
        ResourceRequest(gpus=8, is_exclusive=True, exclude=("n7",), constraint="ib"),
        ResourceRequest(gpus=2, cpus_per_gpu=4, mem_per_gpu_mib=8192, min_gpu_mem_mib=40960),
        ResourceRequest(nodelist=("n1", "n2"), is_exclusive=True),
    ],
)
def test_all_that_was_said_of_a_reservation_is_in_the_file_and_read_back(
    run: Run, taker: ScriptedController, tmp_path: Path, resources: ResourceRequest
) -> None:
    begin_at = datetime(2035, 10, 15, 20, tzinfo=BERLIN).timestamp()
    talk = Booking(
        name="talk", resources=resources, begin_at=begin_at, zone="Europe/Berlin", duration_s=HOUR_S,
        users=("ada", "bob"), accounts=("nlp", "vision"), flags=(Flag.FLEX, Flag.MAGNETIC), no_show_s=1200, purge_s=90,
    )  # fmt: skip
    one = OccurrenceInfo(number=1, begin_at=begin_at, end_at=begin_at + HOUR_S, grants=GRANTS)
    text = ics.write_calendar([info(talk, one)], "lab", NOW).decode()

    assert take(run, tmp_path, text, "--quiet") == (0, "", "")
    assert taker.all(wire.SetReservation)[1].booking == talk
    assert take(run, tmp_path, text, "--quiet", "--flags=", "--no-show=5m") == (0, "", "")
    changed = msgspec.structs.replace(talk, flags=(), purge_s=None, no_show_s=300)
    assert taker.all(wire.SetReservation)[3].booking == changed


@pytest.mark.parametrize("state", [OccurrenceState.ENDED, OccurrenceState.RELEASED])
def test_what_was_given_up_before_its_end_is_not_written_as_if_it_took_place(state: OccurrenceState) -> None:
    one = OccurrenceInfo(number=1, begin_at=NOW - 60, end_at=NOW + HOUR_S, state=state, grants=GRANTS)
    talk = Booking(name="talk", resources=ResourceRequest(gpus=4), begin_at=NOW - 60, duration_s=HOUR_S + 60)

    assert b"VEVENT" not in ics.write_calendar([info(talk, one)], "lab", NOW)
    first, *rest = planned(NIGHT, 5)
    given_up = msgspec.structs.replace(first, state=state)
    [(_, begins)] = read_by_another(ics.write_calendar([info(NIGHT, given_up, *rest)], "lab", NOW))
    assert first.begin_at not in begins and rest[0].begin_at in begins


@pytest.mark.parametrize(
    ("lines", "words", "why"),
    [
        ([], [], "no GPUs or nodes given"),
        (["RRULE:FREQ=WEEKLY;INTERVAL=2"], ["-G", "1"], "INTERVAL=2 in its RRULE cannot be written as a cron line"),
        (["RRULE:FREQ=MONTHLY;BYDAY=2TU"], ["-G", "1"], "BYDAY=2TU counts weekdays of a month"),
        (["RRULE:FREQ=MONTHLY;BYMONTHDAY=-1"], ["-G", "1"], "BYMONTHDAY=-1 counts from the end of a month, which a "
            "cron line cannot"),
        (["RRULE:FREQ=MONTHLY;BYMONTHDAY=15;BYDAY=MO"], ["-G", "1"], "BYDAY and BYMONTHDAY must both match"),
        (["RRULE:FREQ=YEARLY;BYWEEKNO=20"], ["-G", "1"], "BYWEEKNO in its RRULE cannot be written as a cron line"),
        (["RRULE:FREQ=SECONDLY"], ["-G", "1"], "FREQ=SECONDLY in its RRULE cannot be written as a cron line"),
        (["RRULE:FREQ=DAILY"], ["-G", "1"], "the moved occurrence at Mon 2035-10-15 20:00 CEST"),
        (["RRULE:FREQ=DAILY;BYHOUR=2"], ["-G", "1"], "its time of day does not exist or occurs twice when clocks "
            "change"),
        (["RRULE:FREQ=WEEKLY;BYDAY=TU"], ["-G", "1"], "its begin does not match its RRULE"),
    ],
)  # fmt: skip
def test_an_event_that_would_not_be_exact_is_refused_with_the_reason(
    run: Run, taker: ScriptedController, tmp_path: Path, lines: list[str], words: list[str], why: str
) -> None:
    status, _, err = take(run, tmp_path, calendar(*lines), *words)

    assert (status, [one for one in taker.all(wire.SetReservation) if not one.test_only]) == (1, [])
    assert err.startswith(f"error: `Group meeting, big!`: {why}")


def test_one_event_that_is_refused_stops_no_other(run: Run, taker: ScriptedController, tmp_path: Path) -> None:
    bad, good = calendar("RRULE:FREQ=DAILY;INTERVAL=3"), calendar()
    both = bad.partition("END:VCALENDAR")[0] + "BEGIN:VEVENT" + good.partition("BEGIN:VEVENT")[2]

    status, out, err = take(run, tmp_path, both, "-G", "2")

    assert status == 1
    assert out.startswith("Reservation Group-meeting-big imported: 2 GPUs")
    assert err.count("error: ") == 1


def test_what_is_past_is_left_out_and_said_so(run: Run, taker: ScriptedController, tmp_path: Path) -> None:
    status, out, err = take(run, tmp_path, calendar(begin="DTSTART:20200101T100000Z"), "-G", "1")

    assert (status, out, taker.heard) == (0, "", [])
    assert err == "`Group meeting, big!` is in the past and was skipped\n"


def test_a_file_that_is_no_calendar_is_refused(run: Run, taker: ScriptedController, tmp_path: Path) -> None:
    for text in ("", "hello", "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n", calendar().replace("DURATION:PT10H", "X:1")):
        status, _, err = take(run, tmp_path, text, "-G", "1")
        assert (status, err.startswith("error: ")) == (1, True), text
    assert run("gqresv", "ics", "--import=/no/such/file").status == 1
    assert run("gqresv", "ics", "night", "--gpus=4").status == 2
    assert taker.heard == []


def test_of_a_series_that_begins_later_what_would_come_before_is_skipped(
    run: Run, taker: ScriptedController, tmp_path: Path
) -> None:
    fourth = planned(msgspec.structs.replace(NIGHT, cron="0 20 * * *"), 4, datetime.now().timestamp())[3]
    begin = f"DTSTART;TZID=Europe/Berlin:{datetime.fromtimestamp(fourth.begin_at, BERLIN):%Y%m%dT%H%M%S}"

    status, _, err = take(run, tmp_path, calendar("RRULE:FREQ=DAILY", begin=begin), "-G", "4", "--name=night")

    assert (status, err) == (0, "")
    assert [one.number for one in taker.all(wire.SkipOccurrence)] == [1, 2, 3]


def test_of_an_event_under_way_the_rest_is_reserved(run: Run, taker: ScriptedController, tmp_path: Path) -> None:
    begin = datetime.now(UTC) - timedelta(hours=4)

    assert take(run, tmp_path, calendar(begin=f"DTSTART:{begin:%Y%m%dT%H%M%SZ}"), "-G", "1")[0] == 0

    booking = taker.all(wire.SetReservation)[-1].booking
    assert booking.begin_at == pytest.approx(datetime.now().timestamp(), abs=60)
    assert booking.duration_s == pytest.approx(6 * HOUR_S, abs=60)
