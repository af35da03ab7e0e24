"""`gqresv`: what is asked of the controller, what is shown, what is refused, and what is offered instead."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gq.model.node import NodeInfo
from gq.model.reservation import (
    Booking,
    BookingUsage,
    Flag,
    OccurrenceInfo,
    OccurrenceState,
    Offer,
    ReservationInfo,
)
from gq.model.resource import Grant, ResourceRequest
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2035, 11, 23, 18, 0, tzinfo=BERLIN).timestamp()
HOURS_S = 3600
GRANTS = (Grant(node="n1", gpus=(0, 1), cpus=(0, 1, 2, 3), memory_mib=4096), Grant(node="n2", gpus=(0, 1)))
NIGHT = Booking(name="night", resources=ResourceRequest(gpus=4), begin_at=FRIDAY, duration_s=12 * HOURS_S,
                zone="Europe/Berlin")  # fmt: skip


def occurrence(number: int = 1, state: OccurrenceState = OccurrenceState.PLANNED, **fields: object) -> OccurrenceInfo:
    begin_at = FRIDAY + (number - 1) * 24 * HOURS_S
    shown: dict[str, object] = {"begin_at": begin_at, "end_at": begin_at + 12 * HOURS_S, "grants": GRANTS}
    return OccurrenceInfo(number=number, state=state, **(shown | fields))  # type: ignore[arg-type]


def info(booking: Booking = NIGHT, *occurrences: OccurrenceInfo) -> ReservationInfo:
    shown = occurrences or (occurrence(),)
    return ReservationInfo(booking=booking, owner="ada", uid=1000, created_at=FRIDAY - 86400, occurrences=shown)


def as_asked(request: wire.SetReservation) -> wire.Reserved:
    return wire.Reserved(reservation=info(request.booking))


@pytest.fixture
def berlin(set_zone: Callable[[str], None]) -> None:
    set_zone("Europe/Berlin")


# ── create ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("berlin")
def test_who_reserves_hears_in_full_from_when_to_when_and_in_which_zone(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.SetReservation, as_asked)

    done = run("gqresv", "create", "--name=night", "--gpus=4", "--start=2035-11-23T18:00", "--duration=12h")

    assert controller.the(wire.SetReservation) == wire.SetReservation(booking=NIGHT)
    assert (done.status, done.err) == (0, "")
    assert done.lines == [
        "Reservation night created: 4 GPUs on n[1-2]",
        "from Fri 2035-11-23 18:00 CET to Sat 2035-11-24 06:00 CET (Europe/Berlin)",
    ]


def test_everything_that_can_be_said_of_a_reservation_reaches_the_controller(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.SetReservation, as_asked)

    done = run(
        "gqresv", "create", "dawn", "--gpus", "4", "--type=A100", "--nodes=2", "--cpus-per-gpu=8", "--mem-per-gpu=16G",
        "-C", "nvlink", "-x", "n9", "-p", "gpu", "--cron=0  20 * * 1-5", "--tz=America/New_York", "-t", "10h",
        "--until=2036-01-01", "-u", "bob,carol", "-A", "nlp", "--no-show=20m", "--comment=for us",
        "--flags=flex,MAGNETIC,ignore_jobs,purge_comp=10m", "--maint", "--replace", "--test-only", "--quiet",
    )  # fmt: skip

    assert done == (0, "", "")
    until = datetime(2036, 1, 1, tzinfo=ZoneInfo("America/New_York")).timestamp()
    resources = ResourceRequest(
        gpus=4, gpu_type="a100", nodes_min=2, cpus_per_gpu=8, mem_per_gpu_mib=16384, constraint="nvlink",
        exclude=("n9",),
    )  # fmt: skip
    assert controller.the(wire.SetReservation) == wire.SetReservation(
        booking=Booking(
            name="dawn", resources=resources, partition="gpu", cron="0 20 * * 1-5", zone="America/New_York",
            until_at=until, duration_s=10 * HOURS_S, users=("bob", "carol"), accounts=("nlp",),
            flags=(Flag.MAINT, Flag.FLEX, Flag.MAGNETIC, Flag.IGNORE_JOBS), no_show_s=1200, purge_s=600,
            comment="for us",
        ),
        replace=True,
        test_only=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "resources"),
    [
        (["--nodes=2"], ResourceRequest(nodes_min=2, is_exclusive=True)),
        (["--nodelist=n[1-2]"], ResourceRequest(nodelist=("n1", "n2"), is_exclusive=True)),
        (["--nodes=all"], ResourceRequest(nodelist=("n1", "n2"), is_exclusive=True)),
        (["--nodes=ALL", "-p", "gpu"], ResourceRequest(nodelist=("n2",), is_exclusive=True)),
        (["--gpus=h100:2"], ResourceRequest(gpus=2, gpu_type="h100")),
        (["--gpus=8", "--nodes=1", "--exclusive"], ResourceRequest(gpus=8, nodes_min=1, is_exclusive=True)),
    ],
)
def test_gpus_are_shared_nodes_are_whole(
    run: Run, controller: ScriptedController, words: list[str], resources: ResourceRequest
) -> None:
    nodes = [
        NodeInfo(node=name, state="IDLE", cpus=8, cpus_free=8, memory_mib=1, memory_free_mib=1, partitions=partitions)
        for name, partitions in (("n1", ("main",)), ("n2", ("main", "gpu")))
    ]
    controller.on(wire.ListNodes, wire.Nodes(nodes=tuple(nodes)))
    controller.on(wire.SetReservation, as_asked)

    assert run("gqresv", "create", "n", "--start=now+1h", "--duration=1h", *words).status == 0
    assert controller.the(wire.SetReservation).booking.resources == resources


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "NAME is missing"),
        (["a", "b"], "unexpected argument `b`"),
        (["a", "--name=b"], "unexpected argument `a`"),
        (["--name="], "`--name`: `` is not a valid name"),
        (["a", "--start=now", "-t", "1h"], "no GPUs or nodes given"),
        (["a", "-G", "4", "-t", "1h"], "no begin given"),
        (["a", "-G", "4", "--start=now"], "no duration given"),
        (["a", "-G", "4", "--start=now", "--duration=0"], "`--duration`: `0` is not longer than 0"),
        (["a", "-G", "4", "--start=now", "--duration=unlimited"], "`--duration`: the duration must be finite"),
        (["a", "-G", "4", "--start=now", "--duration=-5m"], "`--duration`: `-5m` is not a duration"),
        (["a", "-G", "4", "--start=2035-11-24", "--end=2035-11-23"],
         "`--end`, Fri 2035-11-23 00:00 UTC, is before the begin, Sat 2035-11-24 00:00 UTC\nhint: give a later --end"),
        (["a", "-G", "4", "--start=now", "--duration=100000d"],
         "`--duration`: `100000d` is longer than ten years\nhint: for example 12h or 7d"),
        (["a", "-G", "4", "--start=now", "--end=now+1h", "-t", "1h"], "`--duration` and `--end` exclude each other"),
        (["a", "-G", "4", "--start=fri 18", "-t", "1h"], "`--start`: `fri 18` is not a time"),
        (["a", "-G", "4", "--cron=0 20 * * *", "--start=now", "-t", "1h"], "`--cron` and `--start` exclude"),
        (["a", "-G", "4", "--start=now", "-t", "1h", "--tz=Mars/Base"], "`--tz`: `Mars/Base` is not a time zone"),
        (["a", "-G", "4", "--start=now", "-t", "1h", "--flags=LOUD"], "`--flags`: `LOUD` is not a flag"),
        (["a", "-G", "4", "--start=now", "-t", "1h", "--flags=PURGE_COMP=0"], "`--flags`: `0` is not longer than 0"),
        (["a", "-G", "a100:4", "--type=h100", "--start=now", "-t", "1h"], "--type=h100 and --gpus=a100:4 name"),
        (["a", "-G", "0", "--start=now", "-t", "1h"], "`-G`: a reservation needs at least 1 GPU"),
        (["a", "-G", "4", "--start=now", "-t", "1h", "--until=fri 18:00"], "`--until` works only with --cron"),
        (["a", "--nodes=1-2", "--start=now", "-t", "1h"], "`--nodes`: a reservation has a fixed number of nodes"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_a_wrong_use_and_reserves_nothing(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    done = run("gqresv", "create", *words)

    assert (done.status, controller.all(wire.SetReservation)) == (2, [])
    assert done.err.startswith(f"error: {message}")


@pytest.mark.usefixtures("berlin")
def test_a_time_that_comes_twice_is_said_to_be_the_first(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SetReservation, as_asked)

    done = run("gqresv", "create", "a", "-G", "1", "--start=2034-10-29T02:30", "--duration=1h")

    assert done.err.startswith(
        "--start: 02:30 occurs twice that day; the first is used, CEST; the second is 2034-10-29T"
    )


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [("fri 18:00", "mon 8:00", 62), ("fri 18:00", "20:00", 2), ("mon 8:00", "mon 9:00", 1), ("wed 23:00", "1:00", 2)],
)
def test_the_end_is_the_first_such_moment_after_the_begin_on_whatever_day_it_is_said(
    run: Run, controller: ScriptedController, start: str, end: str, hours: int
) -> None:
    controller.on(wire.SetReservation, as_asked)

    assert run("gqresv", "create", "a", "-G", "1", f"--start={start}", f"--end={end}").status == 0

    booking = controller.the(wire.SetReservation).booking
    assert booking.begin_at is not None
    begin, end_at = (
        datetime.fromtimestamp(at, BERLIN) for at in (booking.begin_at, booking.begin_at + booking.duration_s)
    )
    assert (end_at.replace(tzinfo=None) - begin.replace(tzinfo=None)).total_seconds() == hours * HOURS_S


def test_from_a_crontab_to_replace_is_quiet_and_changing_nothing_is_well_done(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.SetReservation, wire.Reserved(reservation=info(), is_changed=False))
    words = ["gqresv", "create", "--name=night", "--gpus=4", "--start=now", "--duration=12h"]

    assert run(*words, "--replace") == (0, "", "")
    assert run(*words, "--quiet") == (0, "", "")
    assert run(*words).lines[0] == "Reservation night is unchanged: 4 GPUs on n[1-2]"
    assert run(*words, "--test-only").lines[0] == "Reservation night is available: 4 GPUs on n[1-2]"
    assert json.loads(run(*words, "--replace", "--json").out)[0]["is_changed"] is False


@pytest.mark.usefixtures("berlin")
def test_who_leaves_out_what_cannot_be_had_hears_what_it_is(run: Run, controller: ScriptedController) -> None:
    kept = wire.Reserved(reservation=info(), skipped_at=(FRIDAY, *[FRIDAY + 86400] * 11))
    controller.on(wire.SetReservation, kept)
    words = ["gqresv", "create", "night", "-G4", "--cron=0 18 * * *", "-t12h", "--skip-conflicts"]

    lines = run(*words).lines
    assert controller.the(wire.SetReservation).skip_conflicts
    assert lines[-1].startswith("skipped, because not available: Fri 2035-11-23 18:00 CET, Sat 2035-11-24 18:00 CET")
    assert lines[-1].endswith(" and 2 more")
    assert json.loads(run(*words, "--json").out)[0]["skipped_at"][0] == "2035-11-23T18:00:00+01:00"


OFFERS = (
    Offer(begin_at=FRIDAY + 8 * HOURS_S, duration_s=12 * HOURS_S, resources=NIGHT.resources, gpus=4, nodes=("n1",)),
    Offer(begin_at=FRIDAY, duration_s=12 * HOURS_S, resources=ResourceRequest(gpus=2), gpus=2, nodes=("n2",)),
    Offer(begin_at=FRIDAY, duration_s=90 * 60, resources=NIGHT.resources, gpus=4, nodes=("n1",)),
)
OFFERED = "available instead:"
TAKEN = wire.Refused(code="conflict", message="4 GPUs are not free then", hint="see gqresv cal", offers=OFFERS)


@pytest.mark.usefixtures("berlin")
def test_a_refusal_tells_its_times_in_the_zone_in_which_they_were_asked_for(
    run: Run, controller: ScriptedController
) -> None:
    message = f"`night` cannot have 4 GPUs from @{{{int(FRIDAY)}}}"
    controller.on(wire.SetReservation, wire.Refused(code="conflict", message=message, hint=f"@{{{int(FRIDAY)}}}"))
    words = ["gqresv", "create", "night", "-G4", "--cron=0 20 * * *", "--duration=12h", "--tz=Asia/Tokyo"]

    assert run(*words).err == (
        "error: `night` cannot have 4 GPUs from Sat 2035-11-24 02:00 JST\nhint: Sat 2035-11-24 02:00 JST\n"
    )
    assert "2035-11-24T02:00:00+09:00" in json.loads(run(*words, "--json").out)["message"]


@pytest.mark.usefixtures("berlin")
def test_notes_on_jobs_that_wait_are_on_standard_error_and_in_json(run: Run, controller: ScriptedController) -> None:
    told = f"jobs without --time wait until @{{{int(FRIDAY)}}}\nhint: set default_time"
    controller.on(wire.SetReservation, wire.Reserved(reservation=info(), notes=(told,)))
    words = ["gqresv", "create", "--name=night", "--gpus=4", "--start=2035-11-23T18:00", "--duration=12h"]

    done = run(*words)

    assert (done.status, len(done.lines)) == (0, 2)
    assert done.err == "note: jobs without --time wait until Fri 2035-11-23 18:00 CET\nhint: set default_time\n"
    assert run(*words, "--quiet").err == ""
    [shown] = json.loads(run(*words, "--json").out)
    assert shown["notes"] == ["jobs without --time wait until 2035-11-23T18:00:00+01:00\nhint: set default_time"]


@pytest.mark.usefixtures("berlin")
def test_a_conflict_with_offers_still_tells_which_settings_would_help(run: Run, controller: ScriptedController) -> None:
    hint = "4 GPUs: then\nset default_time of [[partition]] `main` in gq.toml"
    controller.on(wire.SetReservation, msgspec.structs.replace(TAKEN, hint=hint))
    lines = run("gqresv", "create", "night", "-G4", "--start=2035-11-23T18:00", "-t12h").err.splitlines()
    assert lines[:3] == ["error: 4 GPUs are not free then", hint.replace("4 GPUs: then\n", "hint: "), OFFERED]


@pytest.mark.usefixtures("berlin")
def test_a_refusal_of_one_occurrence_tells_its_times_in_the_zone_of_the_reservation(
    run: Run, controller: ScriptedController
) -> None:
    tokyo = msgspec.structs.replace(NIGHT, zone="Asia/Tokyo")
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(tokyo),)))
    controller.on(wire.EditOccurrence, wire.Refused(code="conflict", message=f"until @{{{int(FRIDAY)}}}"))

    assert run("gqresv", "renew", "night", "--duration=2h").err == "error: until Sat 2035-11-24 02:00 JST\n"


@pytest.mark.usefixtures("berlin")
def test_a_conflict_offers_command_lines_that_would_do(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SetReservation, TAKEN)

    done = run("gqresv", "create", "night", "--gpus=4", "--start=2035-11-23T18:00", "-t", "12h", "--comment=it's ours")

    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines() == [
        "error: 4 GPUs are not free then",
        "available instead:",
        "  4 GPUs for 12h on n1, from Sat 2035-11-24 02:00 CET to Sat 2035-11-24 14:00 CET (Europe/Berlin):",
        "    gqresv create night --gpus=4 '--comment=it'\"'\"'s ours' --start=2035-11-24T02:00+01:00 --duration=12h",
        "  2 GPUs for 12h on n2, from Fri 2035-11-23 18:00 CET to Sat 2035-11-24 06:00 CET (Europe/Berlin):",
        "    gqresv create night '--comment=it'\"'\"'s ours' --gpus=2 --start=2035-11-23T18:00+01:00 --duration=12h",
        "  4 GPUs for 90m on n1, from Fri 2035-11-23 18:00 CET to Fri 2035-11-23 19:30 CET (Europe/Berlin):",
        "    gqresv create night --gpus=4 '--comment=it'\"'\"'s ours' --start=2035-11-23T18:00+01:00 --duration=90m",
    ]


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("place", range(len(OFFERS)))
def test_each_offered_command_line_asks_for_what_was_offered(
    run: Run, controller: ScriptedController, place: int
) -> None:
    controller.on(wire.SetReservation, TAKEN)
    words = ["night", "--gpus=4", "--start=2035-11-23T18:00", "--end=2035-11-24T06:00", "--no-show=20m", "--json"]
    refused = run("gqresv", "create", *words)
    assert refused.status == 1
    offer = json.loads(refused.out)["offers"][place]
    controller.on(wire.SetReservation, as_asked)

    assert run(*shlex.split(offer["command"])).status == 0

    wanted = OFFERS[place]
    assert controller.all(wire.SetReservation)[-1].booking == msgspec.structs.replace(
        NIGHT, begin_at=wanted.begin_at, duration_s=wanted.duration_s, resources=wanted.resources, no_show_s=1200
    )
    assert (offer["gpus"], offer["nodes"], offer["duration_s"]) == (wanted.gpus, [*wanted.nodes], wanted.duration_s)


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("place", range(len(OFFERS)))
def test_what_is_offered_on_an_update_is_an_update(run: Run, controller: ScriptedController, place: int) -> None:
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(),)))
    controller.on(wire.SetReservation, TAKEN)
    refused = run("gqresv", "update", "night", "--duration=14h", "--no-show=20m", "--json")
    assert refused.status == 1
    controller.on(wire.SetReservation, as_asked)

    assert run(*shlex.split(json.loads(refused.out)["offers"][place]["command"])).status == 0

    taken, wanted = controller.all(wire.SetReservation)[-1], OFFERS[place]
    assert taken.must_exist
    assert taken.booking == msgspec.structs.replace(
        NIGHT, begin_at=wanted.begin_at, duration_s=wanted.duration_s, resources=wanted.resources, no_show_s=1200
    )


# ── update, and single occurrences ────────────────────────────────────────────────────────────────────────────

SERIES = msgspec.structs.replace(NIGHT, name="series", begin_at=None, cron="0 18 * * *", users=("bob",), no_show_s=60)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--gpus=8"], {"resources": ResourceRequest(gpus=8)}),
        (["--duration=1h"], {"duration_s": HOURS_S}),
        (["--start=2035-11-23T20:00"], {"begin_at": FRIDAY + 2 * HOURS_S}),
        (["--end=2035-11-23T20:00"], {"duration_s": 2 * HOURS_S}),
        (["--users=", "--no-show=never", "--flags="], {"users": (), "no_show_s": None, "flags": ()}),
        (["--nodelist=n2"], {"resources": ResourceRequest(nodelist=("n2",), is_exclusive=True)}),
        (["--cron=0 1 * * *"], {"cron": "0 1 * * *", "begin_at": None}),
    ],
)
def test_what_an_update_does_not_name_stays_and_times_are_those_of_the_reservations_zone(
    run: Run, controller: ScriptedController, words: list[str], fields: dict[str, object]
) -> None:
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(),)))
    controller.on(wire.SetReservation, as_asked)

    done = run("gqresv", "update", "night", *words)

    assert (done.status, done.lines[0].split(":")[0]) == (0, "Reservation night changed")
    assert controller.the(wire.SetReservation) == wire.SetReservation(
        booking=msgspec.structs.replace(NIGHT, **fields), replace=True, must_exist=True
    )


def test_a_series_has_no_start_to_update(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(SERIES),)))

    done = run("gqresv", "update", "series", "--start=now+1h")

    assert (done.status, done.err.splitlines()[0]) == (2, "error: `series` begins on its cron schedule")
    assert controller.all(wire.SetReservation) == []


def test_single_occurrences_are_skipped_edited_and_renewed(run: Run, controller: ScriptedController) -> None:
    shown = info(SERIES, occurrence(1, OccurrenceState.ACTIVE), occurrence(2), occurrence(3))
    controller.on(wire.ListReservations, wire.Reservations(reservations=(shown,)))
    for kind in (wire.SkipOccurrence, wire.EditOccurrence, wire.EndReservation):
        controller.on(kind, wire.Reserved(reservation=shown))

    assert run("gqresv", "skip", "series").status == 0
    assert run("gqresv", "skip", "series", "3", "--quiet") == (0, "", "")
    assert run("gqresv", "edit", "series", "2", "--start=2035-11-24T20:00", "--end=2035-11-25T01:00").status == 0
    assert run("gqresv", "edit", "series", "3", "--duration=30m").status == 0
    assert run("gqresv", "renew", "series", "--duration=2h").lines[0].startswith("Occurrence 1 of series renewed: ")
    assert run("gqresv", "end", "series").status == 0

    begin_at = FRIDAY + 26 * HOURS_S
    assert [body for body in controller.heard if not isinstance(body, wire.ListReservations)] == [
        wire.SkipOccurrence(name="series", number=2),
        wire.SkipOccurrence(name="series", number=3),
        wire.EditOccurrence(name="series", number=2, begin_at=begin_at, duration_s=5 * HOURS_S),
        wire.EditOccurrence(name="series", number=3, duration_s=1800),
        wire.EditOccurrence(name="series", number=1, duration_s=14 * HOURS_S),
        wire.EndReservation(name="series"),
    ]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["skip"], 2, "NAME is missing"),
        (["skip", "night", "x"], 2, "`x` is not a whole number"),
        (["skip", "night", "1", "2"], 2, "unexpected argument `2`"),
        (["edit", "night"], 2, "the number of the occurrence is missing"),
        (["edit", "night", "1"], 2, "no change given"),
        (["edit", "night", "7", "-t", "1h"], 1, "`night` has no occurrence 7"),
        (["update", "night"], 2, "no change given"),
        (["update", "night", "--test-only"], 2, "no change given"),
        (["list", "--since=foo"], 2, "`--since`: `foo` is not a time, or it is ambiguous\nhint: use 7d"),
        (["renew", "night"], 2, "no duration given"),
        (["show", "other"], 1, "reservation `other` does not exist"),
        (["list", "other"], 1, "reservation `other` does not exist"),
        (["list", "--usage", "night"], 2, "`--usage` cannot be combined with"),
        (["delete"], 2, "NAME is missing"),
    ],
)
def test_a_wrong_word_about_an_occurrence_changes_nothing(
    run: Run, controller: ScriptedController, words: list[str], status: int, message: str
) -> None:
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(),)))

    done = run("gqresv", *words)

    assert done.status == status
    assert done.err.startswith(f"error: {message}")
    assert all(isinstance(body, wire.ListReservations) for body in controller.heard)


def test_what_is_over_cannot_be_renewed(run: Run, controller: ScriptedController) -> None:
    over = info(NIGHT, occurrence(1, OccurrenceState.OVER))
    controller.on(wire.ListReservations, wire.Reservations(reservations=(over,)))

    assert run("gqresv", "renew", "night", "-t", "1h").err.splitlines()[0] == "error: reservation `night` has ended"


def test_reservations_are_deleted_one_by_one(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.DeleteReservation, wire.Done())

    assert run("gqresv", "delete", "a,b") == (0, "", "")
    assert controller.heard == [wire.DeleteReservation(name="a"), wire.DeleteReservation(name="b")]


# ── list and show ─────────────────────────────────────────────────────────────────────────────────────────────


def everything(request: wire.ListReservations) -> wire.Reservations:
    """Two pages."""
    if not request.after:
        return wire.Reservations(reservations=(info(),), more=True)
    assert request.after == "night"
    short = occurrence(2, missing_gpus=2, why="n3 is down")
    return wire.Reservations(
        reservations=(info(SERIES, occurrence(1, OccurrenceState.ACTIVE, used_gpu_s=5400), short),)
    )


@pytest.mark.usefixtures("berlin")
def test_the_list_has_what_is_under_way_first_and_tells_what_comes_next(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.ListReservations, everything)

    assert run("gqresv", "list").lines == [
        "NAME   OWNER STATE   START               END                 GPUS NODES  USERS NEXT",
        "series ada   ACTIVE  2035-11-23T18:00:00 2035-11-24T06:00:00    4 n[1-2] bob   2035-11-24T18:00:00",
        "night  ada   PLANNED 2035-11-23T18:00:00 2035-11-24T06:00:00    4 n[1-2] -     -",
    ]
    assert run("gqresv", "list", "--occurrences", "-h").lines[:2] == [
        "series 1 ACTIVE  2035-11-23T18:00:00 2035-11-24T06:00:00   4 n[1-2] 1.5h -",
        "series 2 PLANNED 2035-11-24T18:00:00 2035-11-25T06:00:00 4/6 n[1-2] 0.0h n3 is down",
    ]


def test_a_single_time_that_has_passed_is_over_and_a_series_without_a_next_time_idle(
    run: Run, controller: ScriptedController
) -> None:
    passed = [msgspec.structs.replace(info(booking), occurrences=()) for booking in (NIGHT, SERIES)]
    controller.on(wire.ListReservations, wire.Reservations(reservations=tuple(passed)))

    rows = [line.split()[:3] for line in run("gqresv", "list", "-h").lines]

    assert sorted(rows) == [["night", "ada", "OVER"], ["series", "ada", "IDLE"]]


def test_as_json_a_reservation_has_all_its_occurrences(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListReservations, everything)

    series, night = json.loads(run("gqresv", "list", "--json").out)

    assert (night["name"], night["owner"], night["gpus"], night["state"]) == ("night", "ada", 4, "PLANNED")
    assert (night["start_at"], night["duration_s"], night["cron"]) == ("2035-11-23T18:00:00+01:00", 43200, "")
    assert (series["start_at"], series["cron"], series["zone"]) == (None, "0 18 * * *", "Europe/Berlin")
    assert [one["number"] for one in series["occurrences"]] == [1, 2]
    assert series["occurrences"][1]["missing_gpus"] == 2
    assert night["occurrences"][0]["grants"][0] == {"node": "n1", "cpus": "0-3", "gpus": "0-1", "memory_mib": 4096}


@pytest.mark.usefixtures("berlin")
def test_show_tells_everything_and_with_since_what_is_past(run: Run, controller: ScriptedController) -> None:
    used = occurrence(1, OccurrenceState.ACTIVE, used_at=FRIDAY, used_gpu_s=7200, job_ids=(7, 9), lent_to=(8,))
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(SERIES, used),)))

    lines = run("gqresv", "show", "series", "--since=7d").lines

    assert controller.the(wire.ListReservations).since is not None
    assert "keeps        4 GPUs" in lines
    assert "when         at `0 18 * * *` (Europe/Berlin), for 12 h" in lines
    assert "no-show      after 1 min" in lines
    assert lines[-1] == (
        "occurrences  1 ACTIVE 2035-11-23T18:00:00 - 2035-11-24T06:00:00 n1:gpus=0-1,cpus=0-3,4G n2:gpus=0-1"
        " used 2.0h of 48.0h jobs 7,9 lent to 8"
    )


@pytest.mark.usefixtures("berlin")
def test_a_reservation_that_was_deleted_before_it_began_is_deleted_and_not_over_in_the_future(
    run: Run, controller: ScriptedController
) -> None:
    over = occurrence(1, OccurrenceState.ENDED, ended_at=FRIDAY - 3600)
    gone = msgspec.structs.replace(info(NIGHT, over), gone_at=FRIDAY - 3600)
    controller.on(wire.ListReservations, wire.Reservations(reservations=(gone,)))

    _, line = run("gqresv", "list", "--since=7d").lines
    [shown] = json.loads(run("gqresv", "list", "--since=7d", "--json").out)

    assert "DELETED" in line and "2035-11-23T17:00:00" in line
    assert "2035-11-24" not in line, "the end that it would have had is not shown as its end"
    assert (shown["state"], shown["deleted_at"]) == ("DELETED", "2035-11-23T17:00:00+01:00")


def test_usage_tells_what_was_booked_used_and_not_come_to(run: Run, controller: ScriptedController) -> None:
    ada = BookingUsage(user="ada", occurrences=10, no_shows=2, booked_gpu_s=480 * 3600, used_gpu_s=360 * 3600)
    controller.on(wire.QueryBookings, wire.Bookings(usage=(ada, BookingUsage(user="bob"))))

    assert run("gqresv", "list", "--usage", "--since=2035-01-01").lines == [
        "USER OCCURRENCES NO-SHOWS BOOKED   USED SHARE",
        "ada           10        2 480.0h 360.0h   75%",
        "bob            0        0   0.0h   0.0h     -",
    ]
    [shown, _] = json.loads(run("gqresv", "list", "--usage", "--json").out)
    assert shown == {
        "user": "ada", "occurrences": 10, "no_shows": 2, "booked_gpu_s": 1728000.0, "used_gpu_s": 1296000.0,
    }  # fmt: skip


# ── the examples ──────────────────────────────────────────────────────────────────────────────────────────────

CRONTAB = Path(__file__).parents[2] / "examples" / "cron" / "reservations.crontab"


def test_every_line_of_the_example_for_cron_is_understood_and_quiet(run: Run, controller: ScriptedController) -> None:
    shown = info(NIGHT, occurrence(1, OccurrenceState.ACTIVE))
    controller.on(wire.SetReservation, as_asked)
    controller.on(wire.ListReservations, wire.Reservations(reservations=(shown,)))
    controller.on(wire.EditOccurrence, wire.Reserved(reservation=shown))
    lines = [line for line in CRONTAB.read_text().splitlines() if line and not line.startswith("#")]

    for line in lines:
        command = re.sub(r'"\$\(date[^)]*\)(T08:00)"', r"2035-11-24\1", line[line.index("gqresv ") :])
        done = run(*shlex.split(command))

        assert (done.status, done.out) == (0, ""), line
    names = [one.booking.name for one in controller.all(wire.SetReservation)]
    assert (len(lines), names) == (4, ["nightly", "weekend", "service"])
