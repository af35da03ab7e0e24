"""`gqresv list` and `show`: what is kept, for whom and when, and how much of it was used."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from gq.calendar.times import past_instant
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import operands
from gq.cli.framework.output import write_json_list, write_records, write_table
from gq.cli.resv.edit import a_name, unknown
from gq.cli.resv.render import (
    COLUMNS,
    OCCURRENCE_COLUMNS,
    USAGE_COLUMNS,
    by_begin,
    occurrence_row,
    record,
    reservation_json,
    row,
    usage_json,
    usage_row,
)
from gq.connection.client import Client
from gq.errors import UsageError
from gq.model.reservation import ReservationInfo
from gq.request.getopt import Arguments
from gq.wire.client import Bookings, ListReservations, QueryBookings, Reservations

DEFAULT_SINCE = "30d"


def all_reservations(client: Client, names: tuple[str, ...] = (), since: float | None = None) -> list[ReservationInfo]:
    """Return all reservations by name, reading all pages; `since`: with past occurrences."""
    return list(_pages(client, ListReservations(names=names, since=since)))


def _pages(client: Client, query: ListReservations) -> Iterator[ReservationInfo]:
    while True:
        page = ask(client, query, Reservations)
        yield from page.reservations
        if not page.more or not page.reservations:
            return
        query = msgspec.structs.replace(query, after=page.reservations[-1].booking.name)


def show_list(arguments: Arguments) -> int:
    names = operands(arguments, a_name, "NAME") if arguments.operands else ()
    since = arguments.read("since", lambda text: past_instant(text, time.time()))
    if arguments.has("usage"):
        return _usage(arguments, since)
    with controller() as client:
        found = by_begin(known(client, all_reservations(client, names, since), names))
    now = time.time()
    if arguments.has("json"):
        write_json_list(map(reservation_json, found))
    elif arguments.has("occurrences"):
        rows = [occurrence_row(info, occurrence, now) for info in found for occurrence in info.occurrences]
        write_table(OCCURRENCE_COLUMNS, [rows], not arguments.has("noheader"))
    else:
        write_table(COLUMNS, [[row(info, now) for info in found]], not arguments.has("noheader"))
    return 0


def _usage(arguments: Arguments, since: float | None) -> int:
    if arguments.operands or arguments.has("occurrences"):
        raise UsageError("contradiction", "`--usage` cannot be combined with NAME or --occurrences", "remove them")
    at = past_instant(DEFAULT_SINCE, time.time()) if since is None else since
    with controller() as client:
        usage = ask(client, QueryBookings(since=at), Bookings).usage
    if arguments.has("json"):
        write_json_list(map(usage_json, usage))
    else:
        write_table(USAGE_COLUMNS, [map(usage_row, usage)], not arguments.has("noheader"))
    return 0


def show(arguments: Arguments) -> int:
    names = operands(arguments, a_name, "NAME")
    since = arguments.read("since", lambda text: past_instant(text, time.time()))
    with controller() as client:
        found = known(client, all_reservations(client, names, since), names)
    if arguments.has("json"):
        write_json_list(map(reservation_json, found))
    else:
        write_records(record(info, time.time()) for info in found)
    return 0


def known(client: Client, found: list[ReservationInfo], names: tuple[str, ...]) -> list[ReservationInfo]:
    """Return all of `found`; `Refusal` if one of `names` is not among them."""
    there = {info.booking.name for info in found}
    for name in names:
        if name not in there:
            raise unknown(client, name)
    return found
