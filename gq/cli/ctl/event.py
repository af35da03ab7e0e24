"""`gqctl events`: the change log, from any point on, and as it grows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import msgspec

from gq.calendar.times import past_instant
from gq.cli.framework.command import Command
from gq.cli.framework.connection import RECONNECT_S, ask, controller, say_waiting
from gq.cli.framework.operands import job_id, refuse_operands
from gq.cli.framework.output import is_terminal, json_text, local_time, printable
from gq.connection.client import Client
from gq.model.notice import EventInfo
from gq.request.getopt import Arguments, whole_number
from gq.request.option import Option
from gq.units import iso_instant
from gq.wire.client import Events, QueryEvents

DEFAULT_SINCE = "1h"
HOLD_S = 25.0


def _events(arguments: Arguments) -> int:
    refuse_operands(arguments)
    follows = arguments.has("follow")
    query = _query(arguments, follows)
    write = _write_json if arguments.has("json") or not is_terminal() else _write_line
    with controller() as client, client.reconnecting(RECONNECT_S if follows else 0.0, say_waiting):
        for page in _pages(client, query, follows):
            for event in page.events:
                write(event)
            sys.stdout.flush()
    return 0


def _query(arguments: Arguments, follows: bool) -> QueryEvents:
    """Without a beginning: from now on, or what was in the last hour."""
    number = arguments.read("since", lambda text: whole_number(text, 0) if text.isdecimal() else None)
    since = None
    if number is None and (arguments.has("since") or not follows):
        since = arguments.read("since", _instant) or _instant(DEFAULT_SINCE)
    return QueryEvents(
        after=number or 0,
        since=since,
        job_ids=arguments.items("job", job_id),
        types=arguments.words("type"),
        from_now=follows and not arguments.has("since"),
    )


def _instant(text: str) -> float:
    return past_instant(text, time.time())


def _pages(client: Client, query: QueryEvents, follows: bool) -> Iterator[Events]:
    while True:
        page = ask(client, query, Events)
        yield page
        if not page.more and not follows:
            return
        wait_s = 0.0 if page.more else HOLD_S
        query = msgspec.structs.replace(query, after=page.last, from_now=False, wait_s=wait_s)


def _write_json(info: EventInfo) -> None:
    head = {
        "seq": info.seq,
        "at": iso_instant(info.at),
        "type": info.type,
        "job_id": info.job_id,
        "node": info.node or None,
    }
    sys.stdout.write(json_text({**head, "event": msgspec.Raw(info.body.encode())}) + "\n")


def _write_line(info: EventInfo) -> None:
    about = [f"job {info.job_id}"] if info.job_id else []
    about += [f"node {info.node}"] if info.node else []
    sys.stdout.write(printable(f"{local_time(info.at)} {info.seq:>9} {info.type} {' '.join(about)}".rstrip()) + "\n")


def commands() -> dict[str, Command]:
    return {
        "events": Command(
            name="gqctl events",
            summary="Show the events of your jobs; operators see all events.",
            options=(
                Option(name="follow", letter="f", help="Print new events until interrupted."),
                Option(
                    name="since",
                    letter="S",
                    metavar="N|TIME",
                    help=f"Only events after this number or time, or this long ago ({DEFAULT_SINCE}; with -f now).",
                ),
                Option(
                    name="job",
                    letter="j",
                    metavar="JOB,...",
                    help="Only events of these jobs (of an array: all tasks).",
                ),
                Option(name="type", metavar="TYPE,...", help="Only these events: JobStarted, JobEnded, NodeLost ..."),
                Option(name="json", help="Print one line of JSON per event on a terminal, too."),
            ),
            run=_events,
        ),
    }
