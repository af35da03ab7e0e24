"""`gqacct`: jobs and their steps, finished or not, from the controller's database.

A job's line comes first, then one line for each of its steps (``25``, ``25.0``).  Without job ids and without
``--starttime`` it begins at midnight; ordinary users see their own jobs unless they ask for others, as in sacct.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gq.cli._account_fields import DEFAULT_FIELDS, FIELDS, Field, Line, parse_format
from gq.cli._command import JSON, Command
from gq.cli._connection import controller, job_pages
from gq.cli._filter import ME, NAME, NODELIST, PARTITION, STATES, USER, job_filter, job_id, own_name
from gq.cli._operands import refuse_operands
from gq.cli._output import job_json, printable, step_json, write_json_list, write_line, write_table
from gq.errors import UsageError
from gq.getopt import Arguments, Option
from gq.model.job import JobInfo
from gq.units import parse_instant
from gq.wire.client import JobFilter, QueryHistory


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "use -j for job ids")
    if arguments.has("helpformat"):
        write_line(" ".join(field.name for field in FIELDS))
        return 0
    fields = arguments.gather("format", parse_format) or DEFAULT_FIELDS
    now = time.time()
    query = _query(arguments, now)
    with controller() as client:
        pages = job_pages(client, query)
        if arguments.has("json"):
            write_json_list(_json(job, query.with_steps) for page in pages for job in page)
        else:
            _write(arguments, fields, (_lines(page, now) for page in pages))
    return 0


def _json(job: JobInfo, with_steps: bool) -> dict[str, object]:
    """A job, and with it its steps."""
    shown = job_json(job)
    return {**shown, "steps": [step_json(step) for step in job.steps]} if with_steps else shown


def _lines(jobs: Sequence[JobInfo], now: float) -> Iterator[Line]:
    for job in jobs:
        yield Line(job, None, now)
        for step in job.steps:
            yield Line(job, step, now)


def _write(arguments: Arguments, fields: Sequence[Field], pages: Iterable[Iterable[Line]]) -> None:
    with_header = not arguments.has("noheader")
    if arguments.has("parsable2") or arguments.has("parsable"):
        _write_parsable(fields, pages, with_header, "|" if arguments.has("parsable") else "")
        return
    rows = ([[field.fit(field.value(line)) for field in fields] for line in page] for page in pages)
    write_table([field.column for field in fields], rows, with_header)


def _write_parsable(fields: Sequence[Field], pages: Iterable[Iterable[Line]], with_header: bool, end: str) -> None:
    if with_header:
        write_line("|".join(field.name for field in fields) + end)
    for page in pages:
        for line in page:
            write_line("|".join(printable(field.value(line)) for field in fields) + end)


# ── which jobs ────────────────────────────────────────────────────────────────────────────────────────────────


def _query(arguments: Arguments, now: float) -> QueryHistory:
    chosen = job_filter(arguments, arguments.items("jobs", job_id))
    starttime = arguments.read("starttime", lambda text: _past_instant(text, now))
    endtime = arguments.read("endtime", lambda text: _past_instant(text, now))
    if starttime is None and not chosen.job_ids:
        starttime = parse_instant("today", now)
    if starttime is not None and endtime is not None and endtime < starttime:
        raise UsageError("contradiction", "`--endtime` is before `--starttime`", "exchange them")
    return QueryHistory(
        filter=_of_users(chosen, arguments),
        started_before=endtime,
        ended_after=starttime,
        with_steps=not arguments.has("allocations"),
    )


def _past_instant(text: str, now: float) -> float:
    """As `parse_instant`, but a clock time is today's, and ``now-2h`` looks back."""
    word = text.strip().lower()
    if word.startswith("now-"):
        return 2 * now - parse_instant(f"now+{word[4:]}", now)
    at = parse_instant(text, now)
    is_clock_time = ":" in word and "-" not in word
    return at - 86400 if is_clock_time and at > now else at


def _of_users(chosen: JobFilter, arguments: Arguments) -> JobFilter:
    """Where no user and no job is named: one's own jobs; root sees all."""
    if chosen.users or chosen.job_ids or arguments.has("allusers") or os.geteuid() == 0:
        return chosen
    return msgspec.structs.replace(chosen, users=(own_name(),))


COMMAND = Command(
    name="gqacct",
    summary="Show jobs and their steps, finished or not.",
    details=(
        "Without --jobs and --starttime: what was there since midnight. Without --user and --allusers: your own jobs"
        " (root: all)."
    ),
    options=(
        Option(name="jobs", letter="j", aliases=("job",), metavar="IDS", help="Only these jobs."),
        Option(name="starttime", letter="S", metavar="TIME", help="Jobs in any state after this time."),
        Option(name="endtime", letter="E", metavar="TIME", help="Jobs that were there before this time."),
        USER,
        ME,
        Option(name="allusers", letter="a", help="Jobs of all users."),
        Option(name="partition", letter="r", metavar="NAMES", help=PARTITION.help),
        Option(name="name", metavar="NAMES", help=NAME.help),
        Option(name="states", letter="s", aliases=("state",), metavar="STATES", help=STATES.help),
        Option(name="nodelist", letter="N", metavar="NODES", help=NODELIST.help),
        Option(name="allocations", letter="X", help="No lines for steps."),
        Option(name="format", letter="o", metavar="FIELDS", help="Fields by name; %20 or %-20 sets a width."),
        Option(name="helpformat", letter="e", help="List the fields."),
        Option(name="parsable2", letter="P", help="Fields separated by |."),
        Option(name="parsable", letter="p", help="The same with a | at the end of the line."),
        Option(name="noheader", letter="n", help="No header line."),
        JSON,
    ),
    run=run,
)
