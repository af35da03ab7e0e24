"""Durations, instants and memory sizes, as people write them and as they are shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.units import (
    MAX_COUNT,
    MAX_DURATION_S,
    format_duration,
    format_memory,
    iso_instant,
    parse_duration_s,
    parse_instant,
    parse_memory_mib,
    parse_seconds,
    spoken_duration,
)

MINUTE, HOUR, DAY = 60, 3600, 86400

# ── durations ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10 * MINUTE),
        ("0", 0),
        ("10:30", 10 * MINUTE + 30),
        ("90:00", 90 * MINUTE),
        ("1:02:03", HOUR + 2 * MINUTE + 3),
        ("2-0", 2 * DAY),
        ("1-12", DAY + 12 * HOUR),
        ("1-12:30", DAY + 12 * HOUR + 30 * MINUTE),
        ("1-12:30:15", DAY + 12 * HOUR + 30 * MINUTE + 15),
        ("30s", 30),
        ("30m", 30 * MINUTE),
        ("2h", 2 * HOUR),
        ("1d12h", DAY + 12 * HOUR),
        ("1D", DAY),
        ("2w", 14 * DAY),
        ("90min", 90 * MINUTE),
        ("2 hours", 2 * HOUR),
        ("1 day 6 hrs", DAY + 6 * HOUR),
        (" 5 ", 5 * MINUTE),
        ("unlimited", None),
        ("INFINITE", None),
        ("-1", None),
    ],
)
def test_a_duration_means_what_slurm_says_it_means(text: str, seconds: int | None) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "abc", "1:2:3:4", "-5", "1-", "1-2:3:4:5", "h", "1.5h", "2h1d", ":30", "1::2"])
def test_what_is_no_duration_is_named_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; use minutes") as caught:
        parse_duration_s(text)

    assert f"`{text}`" in str(caught.value)


def test_a_duration_beyond_ten_years_is_refused_and_unlimited_is_named() -> None:
    with pytest.raises(ValueError, match="`unlimited` for no limit"):
        parse_duration_s("99999-0")


@given(st.integers(0, MAX_DURATION_S))
def test_a_duration_that_is_shown_reads_back_as_itself(seconds: int) -> None:
    assert parse_duration_s(format_duration(seconds)) == seconds


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        assert "duration" in str(error) or "ten years" in str(error)
    else:
        assert seconds is None or 0 <= seconds <= MAX_DURATION_S


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (59, "0:59"), (61.9, "1:01"), (3600, "1:00:00"), (90061, "1-01:01:01"), (-4, "0:00")],
)
def test_a_duration_is_shown_as_slurm_shows_it(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


def test_no_limit_is_shown_by_the_word_that_the_caller_chooses() -> None:
    assert (format_duration(None), format_duration(None, "N/A")) == ("UNLIMITED", "N/A")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.4, "0 s"), (40, "40 s"), (7500, "2 h 5 min"), (90061, "1 d 1 h"), (3600, "1 h"), (3601, "1 h 1 s")],
)
def test_a_sentence_names_the_two_largest_units(seconds: float, said: str) -> None:
    assert spoken_duration(seconds) == said


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("0.5", 0.5), (".5", 0.5), ("5m", 300), ("1h30m", 5400)])
def test_where_seconds_are_meant_a_bare_number_counts_them(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "x", "1e3", "nan", "1:30", "99999999999"])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of seconds, and not a duration such as 30s"):
        parse_seconds(text)


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("500", 500),
        ("0", 0),
        ("1K", 1),
        ("1025K", 2),
        ("500M", 500),
        ("16G", 16384),
        ("16GB", 16384),
        ("16gib", 16384),
        ("1T", 1048576),
        (" 2g ", 2048),
    ],
)
def test_a_memory_size_is_in_mebibytes_rounded_up(text: str, mib: int) -> None:
    assert parse_memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "G", "-1G", "1.5G", "12X", "1 0G", "0x10"])
def test_what_is_no_memory_size_is_named_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match="is not a memory size; use a whole number"):
        parse_memory_mib(text)


@pytest.mark.parametrize(
    ("mib", "shown"),
    [(0, "0M"), (500, "500M"), (1024, "1G"), (1536, "1.5G"), (1500, "1500M"), (1048576, "1T"), (1572864, "1.5T")],
)
def test_memory_is_shown_in_the_largest_unit_that_is_exact(mib: int, shown: str) -> None:
    assert format_memory(mib) == shown


@given(st.integers(0, MAX_COUNT))
def test_memory_that_is_shown_without_a_tenth_reads_back_as_itself(mib: int) -> None:
    shown = format_memory(mib)

    assert "." in shown or parse_memory_mib(shown) == mib


# ── instants ──────────────────────────────────────────────────────────────────────────────────────────────────

ZONE = ZoneInfo("Europe/Berlin")
FRIDAY_NOON = datetime(2026, 3, 13, 12, 0, tzinfo=ZONE)


def at(*parts: int) -> float:
    year, month, day, hour, minute, second = (*parts, 0, 0, 0)[:6]
    return datetime(year, month, day, hour, minute, second, tzinfo=ZONE).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", at(2026, 3, 13, 12)),
        ("now+2h", at(2026, 3, 13, 14)),
        ("now+90", at(2026, 3, 13, 12, 1, 30)),
        ("now+2hours", at(2026, 3, 13, 14)),
        ("now + 1 week", at(2026, 3, 20, 12)),
        ("now+1min", at(2026, 3, 13, 12, 1)),
        ("now-2h", at(2026, 3, 13, 10)),
        ("yesterday", at(2026, 3, 12)),
        ("elevenses", at(2026, 3, 14, 11)),
        ("03/20", at(2026, 3, 20)),
        ("3.20-09:30", at(2026, 3, 20, 9, 30)),
        ("0112", at(2027, 1, 12)),
        ("01/12/27-10:00:05", at(2027, 1, 12, 10, 0, 5)),
        ("18:00", at(2026, 3, 13, 18)),
        ("08:30", at(2026, 3, 14, 8, 30)),
        ("12:00", at(2026, 3, 14, 12)),
        ("noon", at(2026, 3, 14, 12)),
        ("teatime", at(2026, 3, 13, 16)),
        ("midnight", at(2026, 3, 14)),
        ("today", at(2026, 3, 13)),
        ("tomorrow", at(2026, 3, 14)),
        ("2026-03-20", at(2026, 3, 20)),
        ("2026-03-20T06:15", at(2026, 3, 20, 6, 15)),
        ("2026-03-20T06:15:30", at(2026, 3, 20, 6, 15, 30)),
        ("2026-03-20T06:15:30+00:00", datetime(2026, 3, 20, 6, 15, 30, tzinfo=UTC).timestamp()),
    ],
)
def test_a_moment_means_what_a_person_meant(text: str, moment: float) -> None:
    assert parse_instant(text, FRIDAY_NOON.timestamp(), ZONE) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("18:00", at(2026, 3, 12, 18)),
        ("08:30", at(2026, 3, 13, 8, 30)),
        ("midnight", at(2026, 3, 13)),
        ("noon", at(2026, 3, 13, 12)),
        ("03/20", at(2025, 3, 20)),
        ("0312", at(2026, 3, 12)),
        ("2026-03-20", at(2026, 3, 20)),
    ],
)
def test_where_the_past_is_meant_a_time_without_a_day_or_year_is_the_last_one(text: str, moment: float) -> None:
    assert parse_instant(text, FRIDAY_NOON.timestamp(), ZONE, is_past=True) == moment


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "now-", "13/01", "02/30", "now+", "now+2fortnights", "2026-13-01", "+2h"]
)
def test_what_is_no_moment_is_named_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time; use now, now\+2h"):
        parse_instant(text, FRIDAY_NOON.timestamp(), ZONE)


def test_eight_in_the_morning_is_eight_also_after_the_night_that_loses_an_hour() -> None:
    saturday_evening = datetime(2026, 3, 28, 20, 0, tzinfo=ZONE).timestamp()

    assert parse_instant("08:00", saturday_evening, ZONE) == at(2026, 3, 29, 8)


@given(st.integers(0, 4_000_000_000), st.integers(-12, 12))
def test_a_moment_that_is_shown_reads_back_as_itself(moment: int, hours: int) -> None:
    shown = iso_instant(moment, timezone(timedelta(hours=hours)))

    assert shown is not None
    assert parse_instant(shown, moment) == moment


@pytest.mark.parametrize("text", ["1987-01-01", "2999-01-01", "now+4000d", "now+" + "9" * 400])
def test_a_moment_more_than_ten_years_away_is_taken_for_a_slip(text: str) -> None:
    with pytest.raises(ValueError, match="more than ten years away"):
        parse_instant(text, FRIDAY_NOON.timestamp(), ZONE)


@given(st.one_of(st.text(max_size=20), st.from_regex(r"now\+\d{1,30}[a-z]{0,8}", fullmatch=True)))
def test_any_text_is_a_moment_or_a_value_error(text: str) -> None:
    try:
        moment = parse_instant(text, FRIDAY_NOON.timestamp(), ZONE)
    except ValueError as error:
        assert "time" in str(error) or "years away" in str(error)
    else:
        assert iso_instant(moment, ZONE)


def test_a_moment_is_shown_in_whole_seconds_with_its_offset_and_none_stays_none() -> None:
    assert iso_instant(FRIDAY_NOON.timestamp() + 0.9, ZONE) == "2026-03-13T12:00:00+01:00"
    assert iso_instant(None) is None
