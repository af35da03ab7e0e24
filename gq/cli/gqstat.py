"""`gqstat`: the queue.

Asks for jobs page by page and prints each page as it comes.  Without ``-t`` it shows what has not ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gq.calendar.times import past_instant
from gq.cli.framework.columns import DEFAULT_COLUMNS, Format, JobColumn, each_task, job_label, parse_codes, parse_fields
from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask, controller, job_pages, missing_job
from gq.cli.framework.filter import (
    ACCOUNT,
    ME,
    NAME,
    NODELIST,
    PARTITION,
    QOS,
    STATES,
    USER,
    job_filter,
    refuse_unknown_names,
)
from gq.cli.framework.job_words import NamedJobs
from gq.cli.framework.operands import job_word, refuse_operands, words_of
from gq.cli.framework.output import job_json, write_json_list, write_line, write_table
from gq.cli.views.estimates import START_COLUMNS, show_accuracy, with_estimates
from gq.cli.views.job_order import Sort, parse_sort
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.job import JobInfo
from gq.model.state import ACTIVE_WORDS
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import parse_seconds
from gq.wire.client import JobFilter, Jobs, ListJobs, QueryHistory

_ACTIVE = tuple(sorted(ACTIVE_WORDS))
_END_OF_TIME = float("inf")
DEFAULT_SINCE = "30d"
MOST_ASKED = 5
"""Jobs of which it is said that somebody asks a favour."""


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "use -j for job ids")
    if arguments.has("accuracy"):
        return _accuracy(arguments)
    if arguments.has("since"):
        raise UsageError("contradiction", "`--since` works only with `--accuracy`", "gqstat --accuracy --since=7d")
    form = _form(arguments)
    query = _query(arguments)
    limit = arguments.integer("limit", at_least=1)
    sort = arguments.read("sort", parse_sort)
    if sort and arguments.has("start"):
        raise UsageError(
            "contradiction",
            "`--sort` and `--start` exclude each other",
            "remove --sort; --start sorts by the start",
        )
    every_s = arguments.read("iterate", _interval_s)
    with controller() as client:
        while True:
            _show(arguments, form, _jobs(client, query, limit, arguments.has("start"), sort))
            if every_s is None:
                return 0
            sys.stdout.flush()
            time.sleep(every_s)


def _accuracy(arguments: Arguments) -> int:
    since = arguments.read("since", _since)
    with controller() as client:
        at = _since(DEFAULT_SINCE) if since is None else since
        show_accuracy(client, at, arguments.has("json"), not arguments.has("noheader"))
    return 0


def _interval_s(text: str) -> float:
    """Seconds between two lists."""
    seconds = parse_seconds(text)
    if seconds < 1:
        raise ValueError(f"`{text}` is too short; the minimum is 1 second")
    return seconds


def _since(text: str) -> float:
    return past_instant(text, time.time())


def _show(arguments: Arguments, form: Format | None, pages: Iterable[Sequence[JobInfo]]) -> None:
    now = time.time()
    if arguments.has("array"):
        pages = ([task for job in page for task in each_task(job)] for page in pages)
    if arguments.has("iterate") and not arguments.has("json"):
        write_line(time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(now)))
    with_header = not arguments.has("noheader")
    if arguments.has("json"):
        write_json_list(job_json(job) for page in pages for job in page)
    elif form is not None:
        _write_lines(form, pages, now, with_header)
    else:
        asked: list[JobInfo] = []
        columns = START_COLUMNS if arguments.has("start") else DEFAULT_COLUMNS
        _write_table(columns, _noting_asks(pages, asked), now, with_header)
        for job in asked[:MOST_ASKED]:
            warn(f"note: job {job_label(job)} has a request from another user: see `gqctl asks`")


def _noting_asks(pages: Iterable[Sequence[JobInfo]], asked: list[JobInfo]) -> Iterator[Sequence[JobInfo]]:
    """Yield the pages, and collect the caller's jobs with open questions in `asked`."""
    own = os.getuid()
    for page in pages:
        asked += [job for job in page if job.open_asks and job.uid == own]
        yield page


def _write_lines(form: Format, pages: Iterable[Sequence[JobInfo]], now: float, with_header: bool) -> None:
    if with_header:
        write_line(form.header())
    for page in pages:
        for job in page:
            write_line(form.line(job, now))


def _write_table(
    columns: Sequence[JobColumn], pages: Iterable[Sequence[JobInfo]], now: float, with_header: bool
) -> None:
    rows = ([[column.value(job, now) for column in columns] for job in page] for page in pages)
    write_table([column.column for column in columns], rows, with_header)


# ── what to show ──────────────────────────────────────────────────────────────────────────────────────────────


def _form(arguments: Arguments) -> Format | None:
    if arguments.has("format") and arguments.has("Format"):
        raise UsageError("contradiction", "`--format` and `--Format` exclude each other", "give one of them")
    form = arguments.read("format", parse_codes)
    if form is not None and not any(piece.column for piece in form.pieces):
        warn(
            f"note: `{arguments.text('format')[:40]}` contains no code such as %i; use -O for names such as jobid,state"
        )
    return form or arguments.read("Format", parse_fields)


def _query(arguments: Arguments) -> ListJobs:
    chosen = job_filter(arguments, NamedJobs.of(words_of(arguments, "jobs", job_word)))
    states = chosen.states
    if arguments.has("start"):
        states = ("PENDING",)
    elif not arguments.has("states"):
        states = _ACTIVE
    is_brief = not any(arguments.has(name) for name in ("json", "format", "Format", "start", "sort"))
    return ListJobs(filter=msgspec.structs.replace(chosen, states=states), brief=is_brief)


def _jobs(
    client: Client, query: ListJobs, limit: int | None, by_start: bool, sort: Sort | None
) -> Iterator[Sequence[JobInfo]]:
    """Pages of what the query means, at most `limit` jobs."""
    if sort is not None:
        jobs = sort.sorted_jobs(client, query, limit, time.time())
        if not jobs:
            _refuse_unknown(client, query.filter)
        yield jobs[:limit]
        return
    if by_start:
        jobs = [job for page in job_pages(client, query) for job in page]
        if not jobs:
            _refuse_unknown(client, query.filter)
        jobs = with_estimates(client, query.filter, jobs)
        jobs.sort(key=_expected_start)
        yield jobs[:limit]
        return
    if limit is not None:
        query = msgspec.structs.replace(query, limit=min(limit, query.limit))
    shown = 0
    for page in job_pages(client, query, limit):
        if not page:
            break
        yield page if limit is None else page[: limit - shown]
        shown += len(page)
    if not shown:
        _refuse_unknown(client, query.filter)


def _expected_start(job: JobInfo) -> tuple[float, int]:
    return (_END_OF_TIME if job.expected_start_at is None else job.expected_start_at, job.job_id)


def _refuse_unknown(client: Client, asked: JobFilter) -> None:
    """Names that do not exist are an error; as in squeue, so is a single id that the queue does not know."""
    refuse_unknown_names(client, asked)
    if len(asked.job_ids) + len(asked.tasks) != 1:
        return
    named = JobFilter(job_ids=asked.job_ids, tasks=asked.tasks)
    if ask(client, ListJobs(filter=named), Jobs).jobs:
        return
    [word] = NamedJobs(asked.job_ids, asked.tasks).words()
    hint = f"`gqacct -j {word}` shows jobs that have ended"
    refusal = Refusal("unknown_job", f"job {word} is not in the queue", hint)
    has_ended = not word.tasks or ask(client, QueryHistory(filter=named, with_steps=False), Jobs).jobs
    raise refusal if has_ended else missing_job(client, word, refusal)


COMMAND = Command(
    name="gqstat",
    summary="Show the queue.",
    details=(
        "Without --states, only jobs that have not ended are shown. In --format, %i is the job id, %t and %T the state,"
        " %j the name, %u the user, %P the partition, %M the run time, %l the time limit, %D the nodes, %R nodes or"
        " reason; a width goes before the letter, with a dot to align right: %.18i."
    ),
    options=(
        ME,
        Option(name="jobs", letter="j", aliases=("job",), metavar="IDS", help="Only these jobs, or tasks (12_[1-5])."),
        USER,
        PARTITION,
        STATES,
        NODELIST,
        NAME,
        ACCOUNT,
        QOS,
        Option(name="array", letter="r", help="One line for each array task, also for pending tasks."),
        Option(name="start", help="Pending jobs by expected start, with the latest likely start."),
        Option(name="accuracy", help="Show how accurate the first start estimates were."),
        Option(name="since", metavar="TIME", help="With --accuracy: jobs started after TIME (default: 30d ago)."),
        Option(
            name="sort",
            letter="S",
            metavar="FIELDS|queue",
            help="Sort by fields of --format or --Format, descending with -: -Q,i; queue: the order in which jobs "
            "start.",
        ),
        Option(name="limit", metavar="COUNT", help="Show at most COUNT jobs."),
        Option(name="format", letter="o", metavar="FORMAT", help="Line format with Slurm's %-codes."),
        Option(name="Format", letter="O", metavar="FIELDS", help="Columns by name, with widths: jobid,state:20,gpus."),
        Option(name="noheader", letter="h", help="Omit the header line."),
        Option(name="iterate", letter="i", metavar="SECONDS", help="Show again every SECONDS, or 5m."),
        JSON,
    ),
    run=run,
)
