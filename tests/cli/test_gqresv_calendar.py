"""`gqresv cal`: what is drawn for whom, when, and on days that have 23 or 25 hours."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gq.cli.resv import grid
from gq.model.estimate import StartEstimate
from gq.model.node import GpuInfo, NodeInfo
from gq.model.reservation import Booking, OccurrenceInfo, OccurrenceState, ReservationInfo
from gq.model.resource import Grant, ResourceRequest
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job, jobs

BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2035, 11, 19, tzinfo=UTC).timestamp()
HOUR_S = 3600


def node(name: str, gpus: int) -> NodeInfo:
    held = tuple(
        GpuInfo(index=index, uuid=f"{name}-{index}", type="a100", memory_mib=1, state="IDLE") for index in range(gpus)
    )
    return NodeInfo(node=name, state="IDLE", cpus=8, cpus_free=8, memory_mib=1, memory_free_mib=1, gpus=held)


def kept(name: str, *spans: tuple[float, float, tuple[Grant, ...]], **fields: object) -> ReservationInfo:
    """A reservation with occurrences from and to so many hours after Monday's midnight."""
    shown = tuple(
        OccurrenceInfo(number=place, begin_at=MONDAY + begin * HOUR_S, end_at=MONDAY + end * HOUR_S, grants=grants)
        for place, (begin, end, grants) in enumerate(spans, 1)
    )
    booking = Booking(name=name, resources=ResourceRequest(gpus=2), duration_s=HOUR_S, begin_at=MONDAY, **fields)  # type: ignore[arg-type]
    return ReservationInfo(booking=booking, owner="ada", uid=1, created_at=0, occurrences=shown)


def with_end(info: ReservationInfo, at_hour: float) -> ReservationInfo:
    """As if its only occurrence had been ended then."""
    [one] = info.occurrences
    one = msgspec.structs.replace(one, state=OccurrenceState.ENDED, ended_at=MONDAY + at_hour * HOUR_S)
    return msgspec.structs.replace(info, occurrences=(one,))


FIRST_TWO = (Grant(node="n1", gpus=(0, 1)),)
ALL_OF_N2 = (Grant(node="n2", gpus=(0, 1, 2, 3)),)
NIGHT = kept("night", (18, 30, FIRST_TWO), (42, 54, FIRST_TWO), cron="0 18 * * *")
PAPER = kept("paper", (33, 60, ALL_OF_N2))


@pytest.fixture
def cluster(controller: ScriptedController, monkeypatch: pytest.MonkeyPatch) -> ScriptedController:
    monkeypatch.setenv("COLUMNS", "80")
    controller.on(wire.ListNodes, wire.Nodes(nodes=(node("n1", 4), node("n2", 4), node("n3", 0))))
    controller.on(wire.ListReservations, wire.Reservations(reservations=(NIGHT, PAPER)))
    endless = a_job(7, state="RUNNING", start_at=1.0, grants=(Grant(node="n1", gpus=(3,)),))
    controller.on(wire.ListJobs, jobs(endless))
    promised = StartEstimate(
        job_id=9,
        position=1,
        start_at=MONDAY + 15 * HOUR_S,
        end_at=MONDAY + 36 * HOUR_S,
        is_promised=True,
        nodes=("n1",),
    )
    controller.on(wire.EstimateStarts, wire.StartEstimates(estimates=(promised,)))
    return controller


@pytest.mark.usefixtures("cluster")
def test_a_week_is_drawn_in_eighty_columns(run: Run) -> None:
    done = run("gqresv", "cal", "--from=2035-11-19")

    assert done.lines == [
        "Mon 2035-11-19 to Sun 2035-11-25 (UTC), 3 h a column",
        "      │Mon 19  │Tue 20  │Wed 21  │Thu 22  │Fri 23  │Sat 24  │Sun 25",
        "      │0   12  │0   12  │0   12  │0   12  │0   12  │0   12  │0   12",
        "n1:0-1│·····◆AA│AA◆◆··AA│AA······│········│········│········│········",
        "n1:2  │·····◆◆◆│◆◆◆◆····│········│········│········│········│········",
        "n1:3  │▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒",
        "n2:0-3│········│···BBBBB│BBBB····│········│········│········│········",
        "n3    │········│········│········│········│········│········│········",
        "",
        "A night (ada): 2 GPUs, at `0 18 * * *`, for 1 h",
        "B paper (ada): 2 GPUs, Tue 11-20 09:00 - Wed 11-21 12:00",
        "▒ jobs  ░ on some GPUs  ◆ promised start  · free  a: on some GPUs  + several",
    ]
    assert max(map(len, done.lines)) <= 80


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("view", "rows"),
    [
        ("node", ["n1│░░░░░◆aa│aa◆◆░░aa│", "n2│········│···BBBBB│", "n3│········│········│"]),
        ("type", ["a100  │░░░░░◆aa│aa◆bbb++│"]),
    ],
)
def test_in_coarser_rows_small_letters_are_on_some_gpus_only(run: Run, view: str, rows: list[str]) -> None:
    lines = run("gqresv", "cal", "--from=2035-11-19", f"--by={view}").lines

    for row in rows:
        assert any(line.startswith(row) for line in lines), lines


@pytest.mark.usefixtures("cluster")
def test_a_wider_terminal_shows_single_hours(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    lines = run("gqresv", "cal", "--from=2035-11-19").lines

    assert lines[0].endswith(", 1 h a column")
    assert lines[3].split("│")[1] == "···············◆◆◆AAAAAA"
    assert max(map(len, lines)) <= 200


def test_the_calendar_as_json_is_what_holds_what(run: Run, cluster: ScriptedController) -> None:
    blocks = json.loads(run("gqresv", "cal", "--from=2035-11-19", "--json").out)

    assert {"kind": "reservation", "name": "paper", "start_at": "2035-11-20T09:00:00+00:00",
            "end_at": "2035-11-21T12:00:00+00:00", "node": "n2", "gpus": [0, 1, 2, 3]} in blocks  # fmt: skip
    assert sorted({(one["kind"], one["name"]) for one in blocks}) == [
        ("job", "7"), ("reservation", "night"), ("reservation", "paper"), ("start", "9")
    ]  # fmt: skip
    assert cluster.the(wire.ListReservations).since == MONDAY


def test_what_was_deleted_before_it_began_is_not_drawn_and_what_was_ended_is_until_then(
    run: Run, cluster: ScriptedController
) -> None:
    gone, ended = kept("gone", (33.5, 60, ALL_OF_N2)), kept("short", (36, 60, ALL_OF_N2))
    gone = with_end(gone, at_hour=33.1)
    namesake = with_end(kept("short", (90, 99, ALL_OF_N2)), at_hour=33)
    shown = (gone, with_end(ended, at_hour=39), namesake)
    cluster.on(wire.ListReservations, wire.Reservations(reservations=shown))

    lines = run("gqresv", "cal", "--from=2035-11-19", "--by=node").lines

    assert lines[4] == "n2│········│····A···│········│········│········│········│········"
    assert [line for line in lines if "(ada)" in line] == ["A short (ada): 2 GPUs, Tue 11-20 12:00 - Tue 11-20 15:00"]


def test_a_cron_line_of_another_zone_than_the_calendars_is_told_with_it(run: Run, cluster: ScriptedController) -> None:
    night = kept("night", (18, 30, FIRST_TWO), cron="0 19 * * *", zone="Europe/Berlin")
    cluster.on(wire.ListReservations, wire.Reservations(reservations=(night,)))

    told = "A night (ada): 2 GPUs, at `0 19 * * *`"
    assert f"{told} (Europe/Berlin), for 1 h" in run("gqresv", "cal", "--from=2035-11-19").lines
    assert f"{told}, for 1 h" in run("gqresv", "cal", "--from=2035-11-19", "--tz=Europe/Berlin").lines


def test_where_output_is_ascii_so_is_the_calendar(
    run: Run, cluster: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gq.cli.resv.calendar._is_fancy", lambda: False)

    assert run("gqresv", "cal", "--from=2035-11-19").out.isascii()


def test_a_calendar_may_begin_yesterday(run: Run, cluster: ScriptedController) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)

    done = run("gqresv", "cal", "--from=yesterday", "--days=2")

    assert (done.status, f"{yesterday:%a}" in done.out) == (0, True)


@pytest.mark.parametrize("words", [["--by=user"], ["--days=0"], ["--from=fri 18"], ["extra"], ["--tz=Mars/Base"]])
def test_a_calendar_of_nothing_that_there_is_is_a_wrong_use(run: Run, words: list[str]) -> None:
    assert run("gqresv", "cal", *words).status == 2


# ── days that are not 24 hours long ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("day", "hours"), [((2035, 3, 25), 23), ((2035, 10, 28), 25), ((2035, 7, 1), 24)])
@pytest.mark.parametrize("cell", [1, 2, 3, 6, 24])
def test_a_days_cells_are_together_as_long_as_the_day(day: tuple[int, int, int], hours: int, cell: int) -> None:
    edges = grid.bounds(datetime(*day), 1, cell, BERLIN)

    assert len(edges) == 24 // cell + 1
    assert edges[-1] - edges[0] == hours * HOUR_S
    assert edges == sorted(edges)


def painted(begin: datetime, end: datetime) -> str:
    """The cells of that day, an hour each, of a reservation from then to then."""
    unit = grid.Unit("n1", 0, "a100")
    block = grid.Block(grid.RESERVATION, "night", begin.timestamp(), end.timestamp(), "n1", (0,))
    edges = grid.bounds(end.replace(hour=0, minute=0, tzinfo=None), 1, 1, BERLIN)
    return "".join(grid.paint([unit], [block], edges, grid.letters_of([block]))[unit])


def test_the_hour_that_clocks_leave_out_is_nobodys_and_the_one_that_comes_twice_is_one_cell() -> None:
    spring = (datetime(2035, 3, 24, 20, tzinfo=BERLIN), datetime(2035, 3, 25, 6, tzinfo=BERLIN))
    autumn = (datetime(2035, 10, 27, 20, tzinfo=BERLIN), datetime(2035, 10, 28, 2, 30, tzinfo=BERLIN, fold=1))

    assert painted(*spring) == "AA AAA.................."
    assert painted(*autumn) == "AAA....................."


def test_what_was_released_is_drawn_until_then_and_what_was_skipped_not_at_all() -> None:
    over = OccurrenceInfo(
        number=1, begin_at=0.0, end_at=7200.0, ended_at=1200.0, state=OccurrenceState.RELEASED, grants=FIRST_TWO
    )
    skipped = OccurrenceInfo(number=2, begin_at=9000.0, end_at=9900.0, state=OccurrenceState.SKIPPED, grants=FIRST_TWO)
    info = ReservationInfo(
        booking=Booking(name="a", duration_s=7200), owner="ada", uid=1, created_at=0, occurrences=(over, skipped)
    )

    assert [(one.begin_at, one.end_at) for one in grid.of_reservations([info])] == [(0.0, 1200.0)]


def test_a_job_is_drawn_until_it_is_expected_to_end_and_at_most_to_its_limit() -> None:
    grants = (Grant(node="n1", gpus=(0,)),)
    times = [
        grid.of_jobs([a_job(1, state="RUNNING", start_at=0.0, grants=grants, **fields)], now=100.0, until=9999.0)[
            0
        ].end_at
        for fields in (
            {"time_limit_s": 1000, "expected_s": 500.0},
            {"time_limit_s": 1000, "expected_s": 50.0},
            {"time_limit_s": 1000},
            {"expected_s": 500.0},
            {},
        )
    ]

    assert times == [500.0, 1000.0, 1000.0, 500.0, 9999.0]


def test_more_reservations_than_letters_share_the_last_sign() -> None:
    blocks = [grid.Block(grid.RESERVATION, f"r{place:02}", float(place), 99.0, "n1", (0,)) for place in range(30)]

    letters = grid.letters_of(blocks)

    assert (letters["r00"], letters["r25"], letters["r26"], letters["r29"]) == ("A", "Z", "~", "~")


def test_on_a_small_terminal_rows_are_as_fine_as_there_is_room_for(
    run: Run, cluster: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gq.cli.resv.calendar.is_terminal", lambda: True)
    monkeypatch.setenv("LINES", "15")
    nodes = tuple(node(f"n{number}", 4) for number in range(1, 9))
    cluster.on(wire.ListNodes, wire.Nodes(nodes=nodes))
    busy = [
        a_job(number, state="RUNNING", start_at=1.0, time_limit_s=2**31 - number * 10**5,
              grants=(Grant(node=f"n{number}", gpus=(number % 4,)),))
        for number in range(1, 9)
    ]  # fmt: skip
    cluster.on(wire.ListJobs, jobs(*busy))

    lines = run("gqresv", "cal", "--from=2035-11-19").lines

    assert len(lines) <= 15
    assert [line.split("│")[0].strip() for line in lines[3:6]] == ["n1", "n2", "n[3-8]"]
