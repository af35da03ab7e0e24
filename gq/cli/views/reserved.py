"""The line of `gqinfo` about what is reserved today: of each reservation the occurrence under way, or the next."""

from __future__ import annotations

import time

from gq.cli.framework.connection import ask
from gq.cli.framework.output import plural, printable
from gq.connection.client import Client
from gq.model.nodelist import compress
from gq.model.reservation import OccurrenceInfo, OccurrenceState, ReservationInfo
from gq.wire.client import ListReservations, Reservations

AHEAD_S = 24 * 3600
MOST = 5


def reserved_line(client: Client, now: float) -> str:
    """``reserved: paper 4 GPUs on n1 until 18:00; night 8 GPUs on n[1-2] from 20:00``; empty: nothing in 24 hours."""
    found = ask(client, ListReservations(), Reservations).reservations
    coming = [(one, info) for info in found if (one := _coming(info, now)) is not None]
    coming.sort(key=lambda pair: (pair[0].state is OccurrenceState.PLANNED, pair[0].begin_at))
    told = [_told(one, info, now) for one, info in coming[:MOST]]
    more = [f"{len(coming) - MOST} more in gqresv list"] if len(coming) > MOST else []
    return f"reserved: {'; '.join([*told, *more])}" if told else ""


def _coming(info: ReservationInfo, now: float) -> OccurrenceInfo | None:
    return next(
        (
            occurrence
            for occurrence in info.occurrences
            if not occurrence.state.is_past and occurrence.begin_at <= now + AHEAD_S
        ),
        None,
    )


def _told(one: OccurrenceInfo, info: ReservationInfo, now: float) -> str:
    kept = plural(one.gpus, "GPU") if one.gpus else plural(len(one.grants), "node")
    where = f" on {compress(grant.node for grant in one.grants)}" if one.gpus and one.grants else ""
    is_active = one.state is OccurrenceState.ACTIVE
    when = f"until {_clock(one.end_at, now)}" if is_active else f"from {_clock(one.begin_at, now)}"
    return printable(f"{info.booking.name} {kept}{where} {when}")


def _clock(at: float, now: float) -> str:
    moment = time.localtime(at)
    is_today = moment[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M" if is_today else "%a %H:%M" if at < now + 6 * AHEAD_S else "%m-%d %H:%M", moment)
