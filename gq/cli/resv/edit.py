"""`gqresv create`, `update`, `delete`, `end`, `skip`, `edit`, `renew`: what changes reservations."""

from __future__ import annotations

import sys
import time
from datetime import tzinfo

from gq.calendar.times import render_moments, zone_named
from gq.cli.framework.command import note
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import operands, refuse_operands
from gq.cli.framework.output import write_json_list, write_sentence
from gq.cli.resv.options import (
    ALL_NODES,
    MAX_NAME_LENGTH,
    Asked,
    changed_booking,
    end_instant,
    instant,
    length_s,
    new_booking,
    span_s,
    with_all_nodes,
    zone_of,
)
from gq.cli.resv.render import ask_in, echo, echo_one, echo_skipped, reservation_json, show_offers
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.reservation import OccurrenceInfo, OccurrenceState, ReservationInfo
from gq.near_miss import suggestion
from gq.request.getopt import Arguments, whole_number
from gq.units import iso_instant, render_instants
from gq.wire.client import (
    DeleteReservation,
    Done,
    EditOccurrence,
    EndReservation,
    ListNodes,
    ListReservations,
    Nodes,
    Reservations,
    Reserved,
    SetReservation,
    SkipOccurrence,
)


def a_name(text: str) -> str:
    """``ValueError`` for what cannot be the name of a reservation."""
    if not text.strip() or not text.isprintable() or len(text) > MAX_NAME_LENGTH:
        raise ValueError(f"`{text[:40]}` is not a valid name; a name has 1 to {MAX_NAME_LENGTH} printable characters")
    return text.strip()


# ── create and update ─────────────────────────────────────────────────────────────────────────────────────────


def create(arguments: Arguments) -> int:
    name = _name(arguments, CREATE_FORM)
    now = time.time()
    with controller() as client:
        arguments = _all_nodes_named(client, arguments)
        asked = new_booking(arguments, name, now)
        replace = arguments.has("replace")
        request = SetReservation(
            booking=asked.booking,
            replace=replace,
            test_only=arguments.has("test-only"),
            skip_conflicts=arguments.has("skip-conflicts"),
        )
        return _set(client, request, asked, arguments)


def update(arguments: Arguments) -> int:
    name = _name(arguments, UPDATE_FORM)
    now = time.time()
    with controller() as client:
        arguments = _all_nodes_named(client, arguments)
        asked = changed_booking(arguments, find(client, name).booking, now)
        is_test = arguments.has("test-only")
        request = SetReservation(
            booking=asked.booking,
            replace=True,
            must_exist=True,
            test_only=is_test,
            skip_conflicts=arguments.has("skip-conflicts"),
        )
        return _set(client, request, asked, arguments)


CREATE_FORM = "for example: gqresv create NAME --gpus=4 --start=18:00 --duration=2h"
UPDATE_FORM = "for example: gqresv update NAME --duration=4h; `gqresv list` shows the names"


def _name(arguments: Arguments, example: str) -> str:
    """From ``--name``, or the operand; `example` is the hint if there is neither."""
    said = arguments.read("name", a_name)
    if said is None:
        if not arguments.operands:
            raise UsageError("missing_operand", "NAME is missing", example)
        [said] = operands(arguments, a_name, "NAME", at_most=1)
    else:
        refuse_operands(arguments, "--name already gives the name")
    return said


def _all_nodes_named(client: Client, arguments: Arguments) -> Arguments:
    if arguments.text("nodes").lower() != ALL_NODES:
        return arguments
    partition = arguments.text("partition")
    nodes = ask(client, ListNodes(), Nodes).nodes
    return with_all_nodes(arguments, [node.node for node in nodes if not partition or partition in node.partitions])


def _set(client: Client, request: SetReservation, asked: Asked, arguments: Arguments) -> int:
    try:
        answer = ask(client, request, Reserved)
    except Refusal as error:
        show_offers(error, arguments, asked)
        return error.exit_status
    _tell(answer, _verb(request, answer), asked.zone, arguments)
    return 0


def _verb(request: SetReservation, answer: Reserved) -> str:
    if request.test_only:
        return "is available"
    if not answer.is_changed:
        return "is unchanged"
    return "changed" if request.must_exist else "created"


def _tell(answer: Reserved, verb: str, zone: tzinfo, arguments: Arguments) -> None:
    """Quiet is who was told to be, and who replaces from a crontab: there every line is a mail."""
    if arguments.has("json"):
        skipped_at = [iso_instant(at, zone) for at in answer.skipped_at]
        notes = [render_instants(each, zone=zone) for each in answer.notes]
        told = {"is_changed": answer.is_changed, "skipped_at": skipped_at, "notes": notes}
        write_json_list([{**reservation_json(answer.reservation), **told}])
    elif not is_quiet(arguments):
        for line in (*echo(answer.reservation, verb, zone), *echo_skipped(answer.skipped_at, zone)):
            write_sentence(line)
        for each in answer.notes:
            note(render_moments(each, zone))


def is_quiet(arguments: Arguments) -> bool:
    is_repeated = arguments.has("replace") and not arguments.has("test-only") and not sys.stdout.isatty()
    return arguments.has("quiet") or is_repeated


# ── one occurrence ────────────────────────────────────────────────────────────────────────────────────────────


def skip(arguments: Arguments) -> int:
    name, number = _name_and_number(arguments, is_needed=False)
    with controller() as client:
        info = find(client, name)
        coming = [occurrence for occurrence in info.occurrences if occurrence.state is OccurrenceState.PLANNED]
        one = next((one for one in coming if number in (None, one.number)), None)
        number = one.number if one is not None and number is None else number
        zone = zone_named(info.booking.zone)
        answer = ask_in(client, SkipOccurrence(name=name, number=number), zone)
    return _tell_one(answer, one, "skipped", zone, arguments)


def edit(arguments: Arguments) -> int:
    name, number = _name_and_number(arguments, is_needed=True)
    now = time.time()
    with controller() as client:
        info = find(client, name)
        one = _numbered(info, number)
        zone = zone_of(arguments, info.booking)
        begin_at = instant(arguments, "start", zone, now)
        duration_s = _new_length_s(arguments, one, begin_at, zone, now)
        if begin_at is None and duration_s is None:
            raise UsageError("missing_option", "no change given", "for example --start=20:00 --duration=8h")
        request = EditOccurrence(name=name, number=one.number, begin_at=begin_at, duration_s=duration_s)
        return _tell_one(ask_in(client, request, zone), one, "changed", zone, arguments)


def _new_length_s(
    arguments: Arguments, info: OccurrenceInfo, begin_at: float | None, zone: tzinfo, now: float
) -> int | None:
    start = info.begin_at if begin_at is None else begin_at
    end_at = end_instant(arguments, start, zone, now)
    duration_s = arguments.read("duration", length_s)
    if end_at is None or duration_s is not None:
        if end_at is not None:
            raise UsageError("contradiction", "`--duration` and `--end` exclude each other", "give one of them")
        return duration_s
    return span_s(start, end_at, zone)


def renew(arguments: Arguments) -> int:
    [name] = operands(arguments, a_name, "NAME", at_most=1)
    more_s = arguments.read("duration", length_s)
    if more_s is None:
        raise UsageError("missing_option", "no duration given", "for example --duration=2h")
    with controller() as client:
        info = find(client, name)
        open_ones = [occurrence for occurrence in info.occurrences if not occurrence.state.is_past]
        active = [one for one in open_ones if one.state is OccurrenceState.ACTIVE]
        if not open_ones:
            raise Refusal("over", f"reservation `{name}` has ended", "create a new one with `gqresv create --replace`")
        one = (active or open_ones)[-1]
        request = EditOccurrence(name=name, number=one.number, duration_s=round(one.end_at - one.begin_at) + more_s)
        zone = zone_named(info.booking.zone)
        return _tell_one(ask_in(client, request, zone), one, "renewed", zone, arguments)


def end(arguments: Arguments) -> int:
    names = operands(arguments, a_name, "NAME")
    with controller() as client:
        for name in names:
            answer = ask(client, EndReservation(name=name), Reserved)
            _tell(answer, "ended", zone_named(answer.reservation.booking.zone), arguments)
    return 0


def delete(arguments: Arguments) -> int:
    names = operands(arguments, a_name, "NAME")
    texts = []
    with controller() as client:
        for name in names:
            texts.append(ask(client, DeleteReservation(name=name), Done).text)
            if texts[-1] and not is_quiet(arguments) and not arguments.has("json"):
                write_sentence(texts[-1])
    if arguments.has("json"):
        write_json_list({"name": name, "message": text} for name, text in zip(names, texts, strict=True))
    return 0


def _tell_one(answer: Reserved, info: OccurrenceInfo | None, verb: str, zone: tzinfo, arguments: Arguments) -> int:
    """Print the occurrence after a change, or as it was if it no longer exists."""
    if info is None or arguments.has("json") or is_quiet(arguments):
        _tell(answer, verb, zone, arguments)
        return 0
    now = next((occurrence for occurrence in answer.reservation.occurrences if occurrence.number == info.number), info)
    for line in echo_one(answer.reservation, now, verb, zone):
        write_sentence(line)
    return 0


def _name_and_number(arguments: Arguments, is_needed: bool) -> tuple[str, int | None]:
    words = operands(Arguments((), arguments.operands), str, "NAME")
    if len(words) > 2:
        raise UsageError(
            "extra_operand", f"unexpected argument `{words[2]}`", "give NAME and the number of an occurrence"
        )
    if is_needed and len(words) < 2:
        raise UsageError("missing_operand", "the number of the occurrence is missing", "`gqresv show NAME` lists them")
    [name] = operands(Arguments((), words[:1]), a_name, "NAME")
    numbers = operands(Arguments((), words[1:]), lambda text: whole_number(text, 1), "NUMBER") if words[1:] else (None,)
    return name, numbers[0]


# ── finding ───────────────────────────────────────────────────────────────────────────────────────────────────


def find(client: Client, name: str) -> ReservationInfo:
    found = ask(client, ListReservations(names=(name,)), Reservations).reservations
    if not found:
        raise unknown(client, name)
    return found[0]


def unknown(client: Client, name: str) -> Refusal:
    there = ask(client, ListReservations(), Reservations).reservations
    hint = suggestion(name, [info.booking.name for info in there], "`gqresv list` lists all")
    return Refusal("unknown_reservation", f"reservation `{name}` does not exist", hint)


def _numbered(info: ReservationInfo, number: int | None) -> OccurrenceInfo:
    for occurrence in info.occurrences:
        if occurrence.number == number:
            return occurrence
    there = ", ".join(str(occurrence.number) for occurrence in info.occurrences[:12]) or "none"
    raise Refusal("unknown_occurrence", f"`{info.booking.name}` has no occurrence {number}", f"there are {there}")
