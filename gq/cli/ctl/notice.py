"""`gqctl notice`: what owners of jobs were told, and what could not be delivered."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from gq.calendar.times import past_instant
from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import job_id, refuse_operands
from gq.cli.framework.output import Column, plural, recent_time, write_json_list, write_table
from gq.connection.client import Client
from gq.model.notice import NoticeInfo
from gq.near_miss import none_of
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import iso_instant
from gq.wire.client import ListNotices, Notices

STATES = ("waiting", "delivered", "given_up")

_COLUMNS = (
    Column("NOTICE", is_number=True),
    Column("QUEUED", is_whole=True),
    Column("USER"),
    Column("JOB", is_number=True),
    Column("OF"),
    Column("TO", is_wide=True),
    Column("STATE", is_whole=True),
    Column("TRIES", is_number=True),
    Column("WHY", is_wide=True, is_wrapped=True),
)
_INSTANTS = ("queued_at", "next_at", "ended_at")


def _list(arguments: Arguments) -> int:
    refuse_operands(arguments)
    query = ListNotices(
        user=arguments.text("user"),
        job_ids=arguments.items("job", job_id),
        states=arguments.items("state", _state),
    )
    since = arguments.read("since", lambda text: past_instant(text, time.time()))
    with controller() as client:
        pages = list(_pages(client, query))
    found = [notice for page in pages for notice in page.notices if since is None or notice.queued_at >= since]
    if arguments.has("json"):
        write_json_list(_json(one) for one in found)
    else:
        write_table(_COLUMNS, [[_row(one) for one in found]])
    for user, count in sorted(pages[-1].dropped.items()):
        warn(f"note: {plural(count, 'notice')} of {user} dropped: the queue of notices was full")
    return 0


def _state(word: str) -> str:
    if word not in STATES:
        raise ValueError(none_of(word, STATES))
    return word


def _pages(client: Client, query: ListNotices) -> Iterator[Notices]:
    while True:
        page = ask(client, query, Notices)
        yield page
        if not page.more:
            return
        query = msgspec.structs.replace(query, after=page.notices[-1].notice_id)


def _row(info: NoticeInfo) -> tuple[str, ...]:
    return (
        str(info.notice_id),
        recent_time(info.queued_at),
        info.user,
        str(info.job_id) if info.job_id else "-",
        info.on,
        f"{info.kind} {info.to}".strip(),
        info.state,
        str(info.attempts),
        info.why or "-",
    )


def _json(info: NoticeInfo) -> dict[str, object]:
    fields = {name: getattr(info, name) for name in info.__struct_fields__}
    return {**fields, "job_id": info.job_id or None, **{name: iso_instant(fields[name]) for name in _INSTANTS}}


def verbs() -> dict[str, Command]:
    return {
        "list": Command(
            name="gqctl notice list",
            summary="Show your notices; operators see all notices.",
            options=(
                Option(name="user", letter="u", metavar="USER", help="Only notices of this user."),
                Option(name="job", letter="j", metavar="JOB,...", help="Only notices of these jobs."),
                Option(name="state", metavar="STATE,...", help=f"Only these states: {', '.join(STATES)}."),
                Option(
                    name="since", letter="S", metavar="TIME", help="Only notices after this time, or this long ago."
                ),
                JSON,
            ),
            run=_list,
        ),
    }
