"""`gqresv`: GPUs and nodes that are kept for some people for a while, once or again and again.

Each verb is a function of `gq.cli.resv`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from gq.cli.framework.command import JSON, Command
from gq.cli.resv.options import BOOKING_OPTIONS, DURATION, END, FOR_OPTIONS, START, WHAT_OPTIONS, ZONE
from gq.request.getopt import Arguments
from gq.request.option import Option

_NAME = Option(name="name", metavar="NAME", help="Its name, also as an operand.")
_TEST = Option(name="test-only", help="Only say whether it can be had, and what it would keep.")
_SKIP = Option(name="skip-conflicts", help="Of a series: leave out the times that cannot be had.")
_QUIET = Option(name="quiet", help="Print nothing when all is well.")
_NO_HEADER = Option(name="noheader", letter="h", help="Omit the header line.")
_SINCE = Option(name="since", metavar="TIME", help="Also what ended since then, or within so long: 7d.")


def _late(module: str, function: str) -> Callable[[Arguments], int]:
    """Each verb loads only what it needs."""

    def run(arguments: Arguments) -> int:
        status: int = getattr(import_module(f"gq.cli.resv.{module}"), function)(arguments)
        return status

    return run


def _verbs() -> dict[str, Command]:
    return {**_of_reservations(), **_of_occurrences(), **_of_calendars()}


def _of_reservations() -> dict[str, Command]:
    return {
        "create": Command(
            name="gqresv create",
            summary="Reserve GPUs or nodes, once or by a cron line.",
            operands="[NAME]",
            details="What is in the way is refused, with what could be had instead. With --replace it may be asked for"
            " again and again, from a crontab: then it prints nothing unless it fails.",
            options=(
                _NAME,
                *BOOKING_OPTIONS,
                Option(name="replace", help="There may be one of that name: it becomes this."),
                _SKIP,
                _TEST,
                _QUIET,
                JSON,
            ),
            run=_late("edit", "create"),
        ),
        "update": Command(
            name="gqresv update",
            summary="Change a reservation; what is not named stays.",
            operands="[NAME]",
            options=(_NAME, *BOOKING_OPTIONS, _SKIP, _TEST, _QUIET, JSON),
            run=_late("edit", "update"),
        ),
        "list": Command(
            name="gqresv list",
            summary="List reservations, what is under way first.",
            operands="[NAME...]",
            options=(
                Option(name="occurrences", help="A line for each occurrence, with its number."),
                Option(name="usage", help="For each user what was booked, used, and not come to (30d)."),
                _SINCE,
                _NO_HEADER,
                JSON,
            ),
            run=_late("listing", "show_list"),
        ),
        "show": Command(
            name="gqresv show",
            summary="Show everything of reservations, with all their occurrences.",
            operands="NAME...",
            options=(_SINCE, JSON),
            run=_late("listing", "show"),
        ),
    }


def _of_occurrences() -> dict[str, Command]:
    return {
        "skip": Command(
            name="gqresv skip",
            summary="Let one occurrence not take place: the next, or that of this number.",
            operands="NAME [NUMBER]",
            options=(_QUIET, JSON),
            run=_late("edit", "skip"),
        ),
        "edit": Command(
            name="gqresv edit",
            summary="Move one occurrence, or make it longer or shorter.",
            operands="NAME NUMBER",
            options=(START, END, DURATION, ZONE, _QUIET, JSON),
            run=_late("edit", "edit"),
        ),
        "renew": Command(
            name="gqresv renew",
            summary="Make the occurrence under way, or else the last, longer.",
            operands="NAME",
            options=(
                Option(name="duration", letter="t", metavar="TIME", help="By so much: 2h, 1d, minutes."),
                _QUIET,
                JSON,
            ),
            run=_late("edit", "renew"),
        ),
        "end": Command(
            name="gqresv end",
            summary="End the occurrence that is under way; its jobs go on.",
            operands="NAME...",
            options=(_QUIET, JSON),
            run=_late("edit", "end"),
        ),
        "delete": Command(
            name="gqresv delete",
            summary="Remove reservations; jobs in them go on, those that wait for them are told.",
            operands="NAME...",
            options=(_QUIET, JSON),
            run=_late("edit", "delete"),
        ),
    }


def _of_calendars() -> dict[str, Command]:
    return {
        "cal": Command(
            name="gqresv cal",
            summary="Draw a week of GPUs and hours.",
            details="Letters are reservations, in lower case where they keep only some of the row's GPUs; jobs are"
            " drawn until they are expected to end.",
            options=(
                Option(name="from", metavar="TIME", help="From this day on (today)."),
                Option(name="days", metavar="COUNT", help="So many days (7)."),
                Option(name="by", metavar="gpu|node|type", help="A row for each (as fine as there is room for)."),
                ZONE,
                Option(name="json", help="Print what is kept or held, on which GPUs and from when to when."),
            ),
            run=_late("calendar", "show_calendar"),
        ),
        "ics": Command(
            name="gqresv ics",
            summary="Write reservations as iCalendar, or take events of one.",
            operands="[NAME...]",
            details="With --import, the other options say what to reserve for events that do not say it themselves"
            " (X-GQ-GPUS), and in which time zone times are that have none.",
            options=(
                Option(name="output", letter="o", metavar="FILE", help="Write to this file (standard output)."),
                Option(name="import", metavar="FILE", help="Reserve for the events of this file; -: standard input."),
                _NAME,
                *WHAT_OPTIONS,
                ZONE,
                *FOR_OPTIONS,
                Option(name="replace", help="There may be one of that name: it becomes this."),
                _TEST,
                _QUIET,
            ),
            run=_late("calendar_file", "exchange"),
        ),
    }


COMMAND = Command(
    name="gqresv",
    summary="Reserve GPUs and nodes, and see what is reserved.",
    operands="VERB",
    verbs=_verbs,
)
