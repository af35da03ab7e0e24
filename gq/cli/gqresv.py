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

_NAME = Option(name="name", metavar="NAME", help="Name of the reservation; may also be an operand.")
_TEST = Option(name="test-only", help="Only check availability, and show what would be reserved.")
_SKIP = Option(name="skip-conflicts", help="With --cron: skip the times that are not available.")
_QUIET = Option(name="quiet", help="Print nothing on success.")
_NO_HEADER = Option(name="noheader", letter="h", help="Omit the header line.")
_SINCE = Option(name="since", metavar="TIME", help="Also reservations that ended after TIME: 7d ago.")


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
            summary="Reserve GPUs or nodes, once or on a cron schedule.",
            operands="[NAME]",
            details="A conflicting request is refused, with available alternatives. With --replace, a crontab can "
            "repeat the command: it then prints nothing unless it fails.",
            options=(
                _NAME,
                *BOOKING_OPTIONS,
                Option(name="replace", help="Replace an existing reservation of that name."),
                _SKIP,
                _TEST,
                _QUIET,
                JSON,
            ),
            run=_late("edit", "create"),
        ),
        "update": Command(
            name="gqresv update",
            summary="Change a reservation; other settings stay.",
            operands="[NAME]",
            options=(_NAME, *BOOKING_OPTIONS, _SKIP, _TEST, _QUIET, JSON),
            run=_late("edit", "update"),
        ),
        "list": Command(
            name="gqresv list",
            summary="List reservations, active ones first.",
            operands="[NAME...]",
            options=(
                Option(name="occurrences", help="One line for each occurrence, with its number."),
                Option(name="usage", help="Show for each user what was booked, used and missed (30d)."),
                _SINCE,
                _NO_HEADER,
                JSON,
            ),
            run=_late("listing", "show_list"),
        ),
        "show": Command(
            name="gqresv show",
            summary="Show all details and occurrences of reservations.",
            operands="NAME...",
            options=(_SINCE, JSON),
            run=_late("listing", "show"),
        ),
    }


def _of_occurrences() -> dict[str, Command]:
    return {
        "skip": Command(
            name="gqresv skip",
            summary="Cancel one occurrence: the next one, or occurrence NUMBER.",
            operands="NAME [NUMBER]",
            options=(_QUIET, JSON),
            run=_late("edit", "skip"),
        ),
        "edit": Command(
            name="gqresv edit",
            summary="Move one occurrence, or change its duration.",
            operands="NAME NUMBER",
            options=(START, END, DURATION, ZONE, _QUIET, JSON),
            run=_late("edit", "edit"),
        ),
        "renew": Command(
            name="gqresv renew",
            summary="Extend the active occurrence, or else the last one.",
            operands="NAME",
            options=(
                Option(name="duration", letter="t", metavar="TIME", help="Extend by this time: 2h, 1d, minutes."),
                _QUIET,
                JSON,
            ),
            run=_late("edit", "renew"),
        ),
        "end": Command(
            name="gqresv end",
            summary="End the active occurrence; its jobs continue.",
            operands="NAME...",
            options=(_QUIET, JSON),
            run=_late("edit", "end"),
        ),
        "delete": Command(
            name="gqresv delete",
            summary="Remove reservations; running jobs continue, waiting jobs are notified.",
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
            details="Letters are reservations; a lower-case letter reserves only some of the row's GPUs. Jobs are "
            "drawn until their expected end.",
            options=(
                Option(name="from", metavar="TIME", help="First day (default: today)."),
                Option(name="days", metavar="COUNT", help="Number of days (7)."),
                Option(name="by", metavar="gpu|node|type", help="What each row shows (default: as detailed as fits)."),
                ZONE,
                Option(name="json", help="Print reservations and jobs with their GPUs, begin and end."),
            ),
            run=_late("calendar", "show_calendar"),
        ),
        "ics": Command(
            name="gqresv ics",
            summary="Export reservations as iCalendar, or import its events.",
            operands="[NAME...]",
            details="With --import, the other options set what to reserve for events that do not set it (X-GQ-GPUS), "
            "and the zone of times without a zone.",
            options=(
                Option(
                    name="output", letter="o", metavar="FILE", help="Write to this file (default: standard output)."
                ),
                Option(name="import", metavar="FILE", help="Import the events of this file; -: standard input."),
                _NAME,
                *WHAT_OPTIONS,
                ZONE,
                *FOR_OPTIONS,
                Option(name="replace", help="Replace an existing reservation of that name."),
                _TEST,
                _QUIET,
            ),
            run=_late("calendar_file", "exchange"),
        ),
    }


COMMAND = Command(
    name="gqresv",
    summary="Reserve GPUs and nodes, and show reservations.",
    operands="VERB",
    verbs=_verbs,
)
