"""`gqctl audit`: who did what, when, from where, and what came of it; `gqctl whoami`: who I am to gqd."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import msgspec

from gq.calendar.times import past_instant
from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import Column, local_time, recent_time, write_json_list, write_records, write_table
from gq.connection.client import Client
from gq.model.audit import AuditEntry
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import iso_instant
from gq.wire.client import AuditTrail, Identity, QueryAudit, WhoAmI

DEFAULT_SINCE = "1d"
REFUSED = "refused"

_COLUMNS = (
    Column("TIME"),
    Column("USER"),
    Column("FROM", is_wide=True, is_wrapped=True),
    Column("ACTION"),
    Column("OBJECT", is_wide=True, is_wrapped=True),
    Column("OUTCOME", is_wide=True, is_wrapped=True),
)


def _audit(arguments: Arguments) -> int:
    refuse_operands(arguments)
    since = arguments.read("since", _since)
    query = QueryAudit(
        user=arguments.text("user"),
        action=arguments.text("action"),
        outcome=REFUSED if arguments.has("refused") else "",
        since=_since(DEFAULT_SINCE) if since is None else since,
    )
    limit = arguments.integer("limit", at_least=1)
    with controller() as client:
        entries = deque(_entries(client, query), maxlen=limit)
    if arguments.has("json"):
        write_json_list(_json(entry) for entry in entries)
    else:
        write_table(_COLUMNS, [[_row(entry) for entry in entries]])
    return 0


def _since(text: str) -> float:
    return past_instant(text, time.time())


def _entries(client: Client, query: QueryAudit) -> Iterator[AuditEntry]:
    """Oldest first, a page at a time."""
    while True:
        trail = ask(client, query, AuditTrail)
        yield from trail.entries
        if not trail.more or trail.last <= query.after:
            return
        query = msgspec.structs.replace(query, after=trail.last)


def _row(entry: AuditEntry) -> tuple[str, ...]:
    return (
        recent_time(entry.at),
        entry.user or "-",
        entry.origin or "-",
        entry.action,
        entry.object or "-",
        f"{entry.outcome}: {entry.detail}" if entry.detail else entry.outcome,
    )


def _json(entry: AuditEntry) -> dict[str, object]:
    return {**{name: getattr(entry, name) for name in entry.__struct_fields__}, "at": iso_instant(entry.at)}


def _whoami(arguments: Arguments) -> int:
    refuse_operands(arguments)
    with controller() as client:
        identity = ask(client, WhoAmI(), Identity)
    shown = ("user", "uid", "role", "origin", "cluster", "now")
    fields = {name: getattr(identity, name) for name in shown}
    if arguments.has("json"):
        write_json_list([{**fields, "now": iso_instant(identity.now)}])
    else:
        write_records([{**fields, "now": local_time(identity.now)}])
    return 0


def commands() -> dict[str, Command]:
    return {
        "audit": Command(
            name="gqctl audit",
            summary="Show the audit trail: who did what, when, from where, with which result (operators).",
            options=(
                Option(name="user", letter="u", metavar="USER", help="Only actions of this user."),
                Option(name="action", metavar="ACTION", help="Only this action: CancelJobs, CreateToken, Impostor ..."),
                Option(name="refused", help="Only refused actions."),
                Option(
                    name="since",
                    letter="S",
                    metavar="TIME",
                    help=f"Only entries after this time, or this long ago ({DEFAULT_SINCE}).",
                ),
                Option(name="limit", metavar="COUNT", help="Only the last COUNT entries."),
                JSON,
            ),
            run=_audit,
        ),
        "whoami": Command(
            name="gqctl whoami",
            summary="Show your identity and your rights, as the controller sees them.",
            options=(JSON,),
            run=_whoami,
        ),
    }
