"""Moments as people say them: what is understood, what is refused, what clocks that change make of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gq.calendar.times import (
    local_zone,
    local_zone_name,
    moment,
    past_instant,
    spoken_moment,
    spoken_span,
    zone_name,
    zone_named,
)
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController

BERLIN = ZoneInfo("Europe/Berlin")
SUNDAY = datetime(2026, 11, 22, 11, 30, tzinfo=BERLIN).timestamp()


def told(text: str) -> str:
    return spoken_moment(moment(text, SUNDAY, BERLIN).at, BERLIN)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("fri 18:00", "Fri 2026-11-27 18:00 CET"),
        ("Friday 6pm", "Fri 2026-11-27 18:00 CET"),
        ("18:00 on friday", "Fri 2026-11-27 18:00 CET"),
        ("thurs 9:00", "Thu 2026-11-26 09:00 CET"),
        ("tomorrow 9am", "Mon 2026-11-23 09:00 CET"),
        ("9am tomorrow", "Mon 2026-11-23 09:00 CET"),
        ("next monday 9:00", "Mon 2026-11-23 09:00 CET"),
        ("monday", "Mon 2026-11-23 00:00 CET"),
        ("sun 10:00", "Sun 2026-11-29 10:00 CET"),
        ("sun 12:00", "Sun 2026-11-22 12:00 CET"),
        ("fri noon", "Fri 2026-11-27 12:00 CET"),
        ("at 9am", "Mon 2026-11-23 09:00 CET"),
        ("24 dec 9:00", "Thu 2026-12-24 09:00 CET"),
        ("July 1st 9:00", "Thu 2027-07-01 09:00 CEST"),
        ("fri, 27 nov 2026 18:00", "Fri 2026-11-27 18:00 CET"),
        ("2026-12-24T18:00", "Thu 2026-12-24 18:00 CET"),
        ("2026-12-24 6pm", "Thu 2026-12-24 18:00 CET"),
        ("2026-12-24T18:00Z", "Thu 2026-12-24 19:00 CET"),
        ("9:00:30", "Mon 2026-11-23 09:00:30 CET"),
        ("in 2 hours", "Sun 2026-11-22 13:30 CET"),
        ("now+2h", "Sun 2026-11-22 13:30 CET"),
        ("now-1h", "Sun 2026-11-22 10:30 CET"),
        ("yesterday", "Sat 2026-11-21 00:00 CET"),
        ("monday 9:00 UTC", "Mon 2026-11-23 10:00 CET"),
        ("monday 9:00 America/New_York", "Mon 2026-11-23 15:00 CET"),
    ],
)  # fmt: skip
def test_a_moment_may_be_said_in_many_ways(text: str, meant: str) -> None:
    assert told(text) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("7d", "Sun 2026-11-15 11:30 CET"),
        ("2 hours ago", "Sun 2026-11-22 09:30 CET"),
        ("1d12h", "Fri 2026-11-20 23:30 CET"),
        ("yesterday", "Sat 2026-11-21 00:00 CET"),
        ("yesterday 18:00", "Sat 2026-11-21 18:00 CET"),
        ("fri 18:00", "Fri 2026-11-20 18:00 CET"),
        ("sun 10:00", "Sun 2026-11-22 10:00 CET"),
        ("sun 12:00", "Sun 2026-11-15 12:00 CET"),
        ("monday", "Mon 2026-11-16 00:00 CET"),
        ("24 dec 9:00", "Wed 2025-12-24 09:00 CET"),
        ("9am", "Sun 2026-11-22 09:00 CET"),
        ("13:00", "Sat 2026-11-21 13:00 CET"),
        ("now-1week", "Sun 2026-11-15 11:30 CET"),
        ("2026-11-01T09:00Z", "Sun 2026-11-01 10:00 CET"),
        ("12/24", "Wed 2025-12-24 00:00 CET"),
    ],
)
def test_where_the_past_is_meant_a_time_is_the_last_one(set_zone: Callable[[str], None], text: str, meant: str) -> None:
    set_zone("Europe/Berlin")

    assert spoken_moment(past_instant(text, SUNDAY), BERLIN) == meant


@pytest.mark.parametrize("text", ["", "7", "2-12", "sometime", "feb 30"])
def test_what_is_no_time_in_the_past_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match="; use 7d, 2h, yesterday, 'fri 18:00', HH:MM") as caught:
        past_instant(text, SUNDAY)

    assert str(caught.value).startswith(f"`{text}`")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fri 18", "not a time, or it is ambiguous"),
        ("tomorrow 9", "not a time, or it is ambiguous"),
        ("12/11 9:00", "not a time, or it is ambiguous"),
        ("1.12.2026 9:00", "not a time, or it is ambiguous"),
        ("next week", "not a time, or it is ambiguous"),
        ("fri midnight", "not a time, or it is ambiguous"),
        ("2 hours ago", "not a time, or it is ambiguous"),
        ("monday 9:00 CET", "not a time, or it is ambiguous"),
        ("soon", "not a time, or it is ambiguous"),
        ("", "not a time, or it is ambiguous"),
        ("feb 30", "not a valid date or time of day"),
        ("fri 25:00", "not a valid date or time of day"),
        ("sat 27 nov 18:00", "27 November 2026 is a Friday"),
        ("fri 18:00 Mars/Base", "`Mars/Base` is not a time zone"),
        ("2040-01-01", "more than ten years away"),
    ],
)
def test_what_may_mean_several_moments_or_none_is_refused_with_examples(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"; for example |ten years") as refused:
        moment(text, SUNDAY, BERLIN)

    assert why in str(refused.value)


def test_a_time_that_the_clocks_leave_out_is_refused_and_the_next_one_named() -> None:
    with pytest.raises(
        ValueError, match=r"Europe/Berlin go forward, so this time does not exist; use 2027-03-28T03:30$"
    ):
        moment("28 mar 2027 2:30am", SUNDAY, BERLIN)


def test_of_a_time_that_is_there_twice_the_first_is_meant_and_the_second_named() -> None:
    found = moment("2027-10-31T02:30", SUNDAY, BERLIN)

    assert spoken_moment(found.at, BERLIN) == "Sun 2027-10-31 02:30 CEST"
    assert found.note.startswith("02:30 occurs twice that day; the first is used, CEST; the second is ")
    assert moment(found.note.rpartition(" ")[2], SUNDAY, BERLIN).at == found.at + 3600


def test_so_many_hours_are_hours_that_pass_also_where_the_clocks_change() -> None:
    evening = datetime(2027, 3, 27, 20, 0, tzinfo=BERLIN).timestamp()

    assert moment("in 12 hours", evening, BERLIN).at == evening + 12 * 3600
    assert spoken_moment(moment("tomorrow 8:00", evening, BERLIN).at, BERLIN) == "Sun 2027-03-28 08:00 CEST"


def test_a_span_is_told_with_days_and_zone() -> None:
    begin_at = moment("fri 18:00", SUNDAY, BERLIN).at

    assert spoken_span(begin_at, begin_at + 43200, BERLIN) == (
        "from Fri 2026-11-27 18:00 CET to Sat 2026-11-28 06:00 CET (Europe/Berlin)"
    )


def test_the_local_zone_goes_by_the_name_that_tz_says(set_zone: Callable[[str], None]) -> None:
    set_zone("Asia/Kolkata")
    assert (local_zone_name(), zone_name(local_zone())) == ("Asia/Kolkata", "Asia/Kolkata")
    set_zone(":/usr/share/zoneinfo/Europe/Berlin")
    assert local_zone_name() == "Europe/Berlin"
    set_zone("XYZ-3")
    assert datetime.fromtimestamp(0, local_zone()).utcoffset() == datetime.fromtimestamp(0).astimezone().utcoffset()


@pytest.mark.parametrize("name", ["Mars/Base", "../../etc/passwd", "", "x" * 5000, "Europe"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone; for example Europe/Berlin or UTC"):
        zone_named(name)


def test_a_job_may_begin_when_people_say_and_hears_what_was_understood(
    run: Run, controller: ScriptedController, set_zone: Callable[[str], None]
) -> None:
    set_zone("Europe/Berlin")
    controller.on(wire.Submit, wire.Submitted(job_id=7))

    done = run("gqsub", "--begin=24 dec 18:00", "--wrap", "true")

    begin_at = controller.the(wire.Submit).spec.begin_at
    assert begin_at is not None
    assert (done.status, done.out) == (0, "Submitted batch job 7\n")
    assert done.err == f"`24 dec 18:00` is {spoken_moment(begin_at, BERLIN)} (Europe/Berlin)\n"
    assert run("gqsub", "--begin=now+2h", "--wrap", "true").err == ""
    assert run("gqsub", "--begin=12/11 9:00", "--wrap", "true").status == 2


def test_what_reads_words_is_loaded_only_for_words() -> None:
    code = "import sys; from gq.calendar.times import moment; moment('18:00', 0); print('dateparser' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
