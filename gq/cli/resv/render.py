"""How reservations and their occurrences are shown: rows, JSON, what a person hears after making one, and offers."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import tzinfo

from gq.calendar.times import render_moments, spoken_moment, spoken_span, zone_named
from gq.cli.framework.command import report
from gq.cli.framework.connection import ask
from gq.cli.framework.output import Column, JsonValue, is_terminal, local_time, plural, printable, sentence, write_json
from gq.cli.framework.request_view import asked_json
from gq.cli.resv.options import Asked, command_of, duration_word
from gq.connection.client import Client
from gq.errors import Refusal
from gq.host.error_text import folded
from gq.model.nodelist import compress
from gq.model.notice import Target
from gq.model.reservation import Booking, BookingUsage, OccurrenceInfo, OccurrenceState, Offer, ReservationInfo
from gq.model.resource import Grant, format_ids
from gq.request.getopt import Arguments
from gq.units import format_memory, iso_instant, render_instants, spoken_duration
from gq.wire.client import RequestBody, Reserved

_WEEK_S = 6 * 86400
_HOUR_S = 3600
_MOST_SKIPPED = 10
COLUMNS = (
    Column("NAME", is_wide=True),
    Column("OWNER"),
    Column("STATE", is_whole=True),
    Column("START", is_whole=True),
    Column("END", is_whole=True),
    Column("GPUS", is_number=True, is_whole=True),
    Column("NODES", is_wide=True),
    Column("USERS", is_wide=True),
    Column("NEXT", is_whole=True),
)
OCCURRENCE_COLUMNS = (
    Column("NAME", is_wide=True),
    Column("NO", is_number=True, is_whole=True),
    Column("STATE", is_whole=True),
    Column("START", is_whole=True),
    Column("END", is_whole=True),
    Column("GPUS", is_number=True, is_whole=True),
    Column("NODES", is_wide=True),
    Column("USED", is_number=True, is_whole=True),
    Column("WHY", is_wide=True, is_wrapped=True),
)
USAGE_COLUMNS = (
    Column("USER"),
    Column("OCCURRENCES", is_number=True),
    Column("NO-SHOWS", is_number=True),
    Column("BOOKED", is_number=True),
    Column("USED", is_number=True),
    Column("SHARE", is_number=True),
)


DELETED = "DELETED"
"""The state of a reservation that was deleted before it began."""


def short_instant(at: float | None, now: float) -> str:
    """On a terminal the clock time, with the day of the week or the date where it is another day."""
    if at is None or not is_terminal():
        return local_time(at, "-")
    moment = time.localtime(at)
    if moment[:3] == time.localtime(now)[:3]:
        return time.strftime("%H:%M:%S" if moment.tm_sec else "%H:%M", moment)
    return time.strftime("%a %H:%M" if 0 <= at - now < _WEEK_S else "%m-%d %H:%M", moment)


# ── a reservation ─────────────────────────────────────────────────────────────────────────────────────────────


def current(info: ReservationInfo) -> OccurrenceInfo | None:
    """The occurrence that it is about now: the one under way, the next, or else the last."""
    for state in (OccurrenceState.ACTIVE, OccurrenceState.PLANNED):
        if found := next((occurrence for occurrence in info.occurrences if occurrence.state is state), None):
            return found
    return info.occurrences[-1] if info.occurrences else None


def coming(info: ReservationInfo) -> OccurrenceInfo | None:
    """The next after that."""
    now = current(info)
    later = (
        occurrence
        for occurrence in info.occurrences
        if occurrence.state is OccurrenceState.PLANNED and occurrence is not now
    )
    return next(later, None)


def state_of(info: ReservationInfo) -> str:
    """A series may have nothing planned for a while; anything else of which nothing is left is over."""
    one = current(info)
    if info.gone_at is not None and one is not None and _is_never_begun(one):
        return DELETED
    return one.state.value if one else "IDLE" if info.booking.cron else OccurrenceState.OVER.value


def _is_never_begun(info: OccurrenceInfo) -> bool:
    """Ended by hand before its begin."""
    return info.state is OccurrenceState.ENDED and info.ended_at is not None and info.ended_at < info.begin_at


def users_of(booking: Booking) -> str:
    """Return the users and accounts besides the owner that may use it: ``ada,bob,@nlp``."""
    return ",".join((*booking.users, *(f"@{name}" for name in booking.accounts))) or "-"


def nodes_of(info: OccurrenceInfo | None) -> str:
    return (compress(grant.node for grant in info.grants) if info else "") or "-"


def gpus_of(info: OccurrenceInfo | None) -> str:
    """``4``; ``3/4`` where one is missing."""
    if info is None:
        return "-"
    return f"{info.gpus}/{info.gpus + info.missing_gpus}" if info.missing_gpus else str(info.gpus)


def row(info: ReservationInfo, now: float) -> tuple[str, ...]:
    one, following = current(info), coming(info)
    return (
        info.booking.name,
        info.owner,
        state_of(info),
        *_span(info, one, now),
        gpus_of(one),
        nodes_of(one),
        users_of(info.booking),
        short_instant(following.begin_at if following else None, now),
    )


def _span(info: ReservationInfo, one: OccurrenceInfo | None, now: float) -> tuple[str, str]:
    """Begin and end; a reservation that was deleted before it began has no begin, and ended when it was deleted."""
    if state_of(info) == DELETED:
        return short_instant(None, now), short_instant(info.gone_at, now)
    return short_instant(one.begin_at if one else None, now), short_instant(_end_at(one) if one else None, now)


def _end_at(info: OccurrenceInfo) -> float:
    """Return when the occurrence ended or ends; its planned end if it was given up before it began."""
    return info.end_at if info.ended_at is None or info.ended_at < info.begin_at else info.ended_at


def occurrence_row(info: ReservationInfo, one: OccurrenceInfo, now: float) -> tuple[str, ...]:
    return (
        info.booking.name,
        str(one.number),
        _word(info, one),
        short_instant(one.begin_at, now),
        short_instant(_end_at(one), now),
        gpus_of(one),
        nodes_of(one),
        gpu_hours(one.used_gpu_s),
        sentence(one.why) or "-",
    )


def _word(info: ReservationInfo, one: OccurrenceInfo) -> str:
    return DELETED if info.gone_at is not None and _is_never_begun(one) else one.state.value


def gpu_hours(gpu_seconds: float) -> str:
    """``12.5h``"""
    return f"{gpu_seconds / _HOUR_S:.1f}h"


def usage_row(usage: BookingUsage) -> tuple[str, ...]:
    share = f"{100 * usage.used_gpu_s / usage.booked_gpu_s:.0f}%" if usage.booked_gpu_s else "-"
    booked, used = gpu_hours(usage.booked_gpu_s), gpu_hours(usage.used_gpu_s)
    return usage.user, str(usage.occurrences), str(usage.no_shows), booked, used, share


def what(booking: Booking) -> str:
    """``4 a100 GPUs over 2 nodes``, ``2 whole nodes``."""
    asked = booking.resources
    if asked.gpus and not asked.is_exclusive:
        kind = f"{asked.gpu_type} " if asked.gpu_type else ""
        over = f" over {plural(asked.nodes_min, 'node')}" if asked.nodes_min else ""
        return f"{asked.gpus} {kind}{'GPU' if asked.gpus == 1 else 'GPUs'}{over}"
    count = asked.nodes_min or len(asked.nodelist) or 1
    return f"{count} whole {'node' if count == 1 else 'nodes'}"


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────


def reservation_json(info: ReservationInfo) -> dict[str, JsonValue]:
    """A reservation as programs see it, in a stable order."""
    asked = info.booking
    return {
        "name": asked.name,
        "owner": info.owner,
        "state": state_of(info),
        "partition": asked.partition,
        "gpus": asked.resources.gpus,
        "gpu_type": asked.resources.gpu_type,
        "nodes": asked.resources.nodes_min,
        "nodelist": asked.resources.nodelist,
        "is_exclusive": asked.resources.is_exclusive,
        **asked_json(asked.resources),
        "start_at": iso_instant(asked.begin_at, zone_named(asked.zone)),
        "duration_s": asked.duration_s,
        "cron": asked.cron,
        "zone": asked.zone,
        "until_at": iso_instant(asked.until_at, zone_named(asked.zone)),
        "users": asked.users,
        "accounts": asked.accounts,
        "flags": asked.flags,
        "no_show_s": asked.no_show_s,
        "purge_s": asked.purge_s,
        "comment": asked.comment,
        "notify": [_target(one) for one in asked.notify],
        "created_at": iso_instant(info.created_at),
        "deleted_at": iso_instant(info.gone_at) if state_of(info) == DELETED else None,
        "occurrences": [occurrence_json(occurrence) for occurrence in info.occurrences],
    }


def occurrence_json(info: OccurrenceInfo) -> dict[str, JsonValue]:
    return {
        "number": info.number,
        "state": info.state,
        "start_at": iso_instant(info.begin_at),
        "end_at": iso_instant(info.end_at),
        "ended_at": iso_instant(info.ended_at),
        "gpus": info.gpus,
        "missing_gpus": info.missing_gpus,
        "nodes": [grant.node for grant in info.grants],
        "grants": [_grant_json(grant) for grant in info.grants],
        "why": render_instants(info.why),
        "used_at": iso_instant(info.used_at),
        "booked_gpu_s": info.booked_gpu_s,
        "used_gpu_s": info.used_gpu_s,
        "job_ids": info.job_ids,
        "lent_to": info.lent_to,
    }


def _grant_json(grant: Grant) -> dict[str, JsonValue]:
    ids = {"cpus": format_ids(grant.cpus), "gpus": format_ids(grant.gpus)}
    return {"node": grant.node, **ids, "memory_mib": grant.memory_mib}


def usage_json(usage: BookingUsage) -> dict[str, JsonValue]:
    return {
        "user": usage.user,
        "occurrences": usage.occurrences,
        "no_shows": usage.no_shows,
        "booked_gpu_s": usage.booked_gpu_s,
        "used_gpu_s": usage.used_gpu_s,
    }


# ── everything of one ─────────────────────────────────────────────────────────────────────────────────────────


def record(info: ReservationInfo, now: float) -> dict[str, JsonValue]:
    asked = info.booking
    zone = zone_named(asked.zone)
    first = current(info)
    when = spoken_span(first.begin_at, first.end_at, zone) if first else "-"
    return {
        "name": asked.name,
        "owner": info.owner,
        "state": state_of(info),
        "keeps": what(asked),
        "partition": asked.partition or "the default partition",
        "when": f"at `{asked.cron}` ({asked.zone}), for {spoken_duration(asked.duration_s)}" if asked.cron else when,
        "until": local_time(asked.until_at, "-"),
        "users": asked.users,
        "accounts": asked.accounts,
        "flags": [" ".join(asked.flags) or "-"],
        "no-show": "never" if asked.no_show_s is None else f"after {spoken_duration(asked.no_show_s)}",
        "purge": "never" if asked.purge_s is None else f"{spoken_duration(asked.purge_s)} after its last job",
        "comment": asked.comment,
        "notify": [_target(one) for one in asked.notify] or "the site's setting",
        "created": local_time(info.created_at),
        "occurrences": [_occurrence_line(info, occurrence, now) for occurrence in info.occurrences] or "-",
    }


def _target(target: Target) -> str:
    """``webhook:https://hooks.example.org/…``"""
    return f"{target.kind}:{target.to}" if target.to else target.kind


def _occurrence_line(info: ReservationInfo, one: OccurrenceInfo, now: float) -> str:
    words = [
        f"{one.number}",
        _word(info, one),
        f"{short_instant(one.begin_at, now)} - {short_instant(_end_at(one), now)}",
    ]
    words += [_held(grant) for grant in one.grants]
    if one.missing_gpus:
        words.append(f"{plural(one.missing_gpus, 'GPU')} missing")
    if one.used_at is not None:
        words.append(f"used {gpu_hours(one.used_gpu_s)} of {gpu_hours(one.booked_gpu_s)}")
    if one.job_ids:
        words.append(f"jobs {','.join(map(str, one.job_ids))}")
    if one.lent_to:
        words.append(f"lent to {','.join(map(str, one.lent_to))}")
    return " ".join(words) + (f" ({sentence(one.why)})" if one.why else "")


def _held(grant: Grant) -> str:
    """``n1:gpus=0-3,cpus=0-15,16G``"""
    said = [f"{name}={format_ids(ids)}" for name, ids in (("gpus", grant.gpus), ("cpus", grant.cpus)) if ids]
    said += [format_memory(grant.memory_mib)] if grant.memory_mib else []
    return f"{grant.node}:{','.join(said)}"


# ── after asking ──────────────────────────────────────────────────────────────────────────────────────────────


def echo(info: ReservationInfo, verb: str, zone: tzinfo) -> list[str]:
    """``Reservation night created: 4 GPUs on n1`` and from when to when, in full."""
    one, head = current(info), f"Reservation {printable(info.booking.name)} {verb}"
    if one is None:
        return [head]
    lines = [f"{head}: {what(info.booking)} on {nodes_of(one)}"]
    lines.append(spoken_span(one.begin_at, one.end_at, zone))
    if info.booking.cron:
        count = sum(not occurrence.state.is_past for occurrence in info.occurrences)
        lines.append(
            f"and {plural(count - 1, 'more time')} planned so far by `{info.booking.cron}`; gqresv show lists them"
        )
    if one.missing_gpus:
        lines.append(f"{plural(one.missing_gpus, 'GPU')} missing: {sentence(one.why)}")
    return lines


def echo_skipped(begins: Sequence[float], zone: tzinfo) -> list[str]:
    """``skipped, because not available: Fri 2026-11-27 20:00 CET, …``"""
    if not begins:
        return []
    told = [spoken_moment(at, zone) for at in begins[:_MOST_SKIPPED]]
    more = f" and {len(begins) - _MOST_SKIPPED} more" if len(begins) > _MOST_SKIPPED else ""
    return [f"skipped, because not available: {', '.join(told)}{more}"]


def echo_one(info: ReservationInfo, one: OccurrenceInfo, verb: str, zone: tzinfo) -> list[str]:
    """``Occurrence 3 of night skipped: 4 GPUs on n1``"""
    lines = [
        f"Occurrence {one.number} of {printable(info.booking.name)} {verb}: {what(info.booking)} on {nodes_of(one)}"
    ]
    return [*lines, spoken_span(one.begin_at, one.end_at, zone)]


def ask_in(client: Client, body: RequestBody, zone: tzinfo) -> Reserved:
    """The answer; a refusal tells its times in the zone in which they were asked for."""
    try:
        return ask(client, body, Reserved)
    except Refusal as error:
        raise _told(error, zone) from error


def _told(error: Refusal, zone: tzinfo) -> Refusal:
    return Refusal(error.code, render_moments(error.message, zone), render_moments(error.hint, zone))


def show_offers(error: Refusal, arguments: Arguments, asked: Asked) -> None:
    """Print the available alternatives, each as the command line that requests it."""
    if arguments.has("json"):
        offers = [_offer_json(offer, arguments, asked) for offer in error.offers]
        write_json(
            {"refused": error.code, "message": render_instants(error.message, zone=asked.zone), "offers": offers}
        )
        return
    told = _told(error, asked.zone)
    _, _, besides = told.hint.partition("\n")  # the hint's first line says in short what the offers say
    report(told if not error.offers else Refusal(told.code, told.message, besides))
    if error.offers:
        sys.stderr.write("available instead:\n")
        for one in error.offers:
            for line in folded(_offer_line(one, asked), sys.stderr, 2):
                sys.stderr.write(f"  {line}\n")
            sys.stderr.write(f"    {command_of(arguments, one, asked)}\n")
        if asked.booking.cron:
            sys.stderr.write("or add --skip-conflicts, which skips the times that are not available\n")


def _offer_line(offer: Offer, asked: Asked) -> str:
    kept = plural(offer.gpus, "GPU") if offer.gpus else plural(len(offer.nodes), "node")
    where = f" on {compress(offer.nodes)}" if offer.nodes else ""
    span = spoken_span(offer.begin_at, offer.begin_at + offer.duration_s, asked.zone)
    return f"{kept} for {duration_word(offer.duration_s)}{where}, {span}:"


def _offer_json(offer: Offer, arguments: Arguments, asked: Asked) -> dict[str, JsonValue]:
    return {
        "start_at": iso_instant(offer.begin_at, asked.zone),
        "duration_s": offer.duration_s,
        "gpus": offer.gpus,
        "nodes": offer.nodes,
        "command": command_of(arguments, offer, asked),
    }


def by_begin(infos: Sequence[ReservationInfo]) -> list[ReservationInfo]:
    """Sort reservations for display: current first, then upcoming, then past."""

    def order(info: ReservationInfo) -> tuple[int, float, str]:
        one = current(info)
        if one is None or one.state.is_past:
            return (2, one.begin_at if one else 0.0, info.booking.name)
        return (int(one.state is OccurrenceState.PLANNED), one.begin_at, info.booking.name)

    return sorted(infos, key=order)
