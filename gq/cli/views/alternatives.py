"""The table of alternative requests that `gqsub --what-if` prints."""

from __future__ import annotations

import time

from gq.cli.framework.command import note
from gq.cli.framework.connection import ask
from gq.cli.framework.output import Column, JsonValue, printable, write_json_list, write_table
from gq.connection.client import Client
from gq.model.estimate import Alternative
from gq.model.job import JobSpec
from gq.units import format_duration, iso_instant, render_instants
from gq.wire.client import Alternatives, WhatIf

_COLUMNS = (
    Column("START"),
    Column("P90"),
    Column("END"),
    Column("ALTERNATIVE", is_wide=True, is_wrapped=True),
    Column("OPTIONS", is_wide=True, is_wrapped=True),
)
NOW_S = 1.0


def show_alternatives(client: Client, spec: JobSpec, as_json: bool) -> int:
    found = ask(client, WhatIf(spec=spec), Alternatives)
    if as_json:
        write_json_list(_json(alternative) for alternative in found.alternatives)
    else:
        write_table(_COLUMNS, [[_row(alternative, found.made_at) for alternative in found.alternatives]])
        if told := _told(found):
            note(told)
    return 0


def _told(found: Alternatives) -> str:
    """The note below the table: what the table does not show."""
    asked, *others = found.alternatives
    is_now = asked.start_at is not None and asked.start_at - found.made_at < NOW_S
    if found.is_cut_short:
        return "the search took too long and was cut short; other requests may start sooner, too"
    return "" if others or is_now else "no other request that you may make would start sooner"


def _row(alternative: Alternative, made_at: float) -> tuple[str, ...]:
    what = (
        alternative.what
        if not alternative.why
        else f"{alternative.what}: {render_instants(alternative.why, time.time())}"
    )
    return (
        _from_now(alternative.start_at, made_at),
        _from_now(alternative.p90_at, made_at),
        _from_now(alternative.end_at, made_at),
        what,
        alternative.options,
    )


def _from_now(at: float | None, made_at: float) -> str:
    """``now``, ``+2:05:00``: whoever compares wants to know how long."""
    if at is None:
        return "N/A"
    wait_s = at - made_at
    return "now" if wait_s < NOW_S else f"+{format_duration(wait_s)}"


def _json(alternative: Alternative) -> dict[str, JsonValue]:
    return {
        "options": alternative.options,
        "what": printable(alternative.what),
        "expected_start_at": iso_instant(alternative.start_at),
        "expected_start_p90_at": iso_instant(alternative.p90_at),
        "expected_end_at": iso_instant(alternative.end_at),
        "nodes": alternative.nodes,
        "why": render_instants(alternative.why),
    }
