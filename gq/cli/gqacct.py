"""`gqacct`: jobs and their steps, finished or not, from the controller's database.

A job's line comes first, then one line for each of its steps (``25``, ``25.0``).  Without job ids and without
``--starttime`` it begins at midnight; ordinary users see their own jobs unless they ask for others, as in sacct.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from gq.calendar.times import past_instant
from gq.cli.framework.command import JSON, Command, report
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
    own_name,
    refuse_unknown_names,
)
from gq.cli.framework.job_words import JobWord, NamedJobs
from gq.cli.framework.operands import job_word, one_job, refuse_operands, words_of
from gq.cli.framework.output import job_json, printable, step_json, write_json_list, write_line, write_table
from gq.cli.views.account_fields import DEFAULT_FIELDS, FIELDS, Field, Line, parse_format
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.job import JobInfo
from gq.model.tasks import parse_tasks
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.wire.client import Explain, Explanation, JobFilter, QueryHistory


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "use -j for job ids")
    if arguments.has("helpformat"):
        write_line(" ".join(field.name for field in FIELDS))
        return 0
    fields = arguments.gather("format", parse_format) or DEFAULT_FIELDS
    now = time.time()
    chosen = Chosen.of(words_of(arguments, "jobs", job_or_step))
    query = _query(arguments, chosen.jobs, now)
    with controller() as client:
        seen = Seen()
        pages = (chosen.narrowed(page) for page in _pages(client, query, seen))
        if arguments.has("json"):
            write_json_list(_json(job, query.with_steps) for page in pages for job in page)
        else:
            _write(arguments, fields, (_lines(page, chosen, now) for page in pages))
        return 1 if _report_missing(client, chosen, query.with_steps, seen) else 0


def _pages(client: Client, query: QueryHistory, seen: Seen) -> Iterator[Sequence[JobInfo]]:
    """Pages with jobs; `Refusal` if there is none because of a name that does not exist."""
    yield from (page for page in seen.noting(job_pages(client, query)) if page)
    if not seen.jobs:
        refuse_unknown_names(client, query.filter)


class Seen:
    """Jobs, tasks of arrays and steps that were found."""

    def __init__(self) -> None:
        self.jobs: dict[int, int] = {}
        """Job id, or id of an array → set of tasks (0 of a job)."""
        self.steps: dict[JobWord, frozenset[int]] = {}

    def noting(self, pages: Iterable[Sequence[JobInfo]]) -> Iterator[Sequence[JobInfo]]:
        for page in pages:
            for job in page:
                self._note(job)
            yield page

    def _note(self, job: JobInfo) -> None:
        tasks = parse_tasks(job.array_tasks) if job.array_tasks else 0
        word = JobWord.of(job.array_job_id or job.job_id, job.array_task_id)
        self.jobs[word.job_id] = self.jobs.get(word.job_id, 0) | tasks | word.tasks
        self.jobs.setdefault(job.job_id, 0)
        self.steps[word] = self.steps[JobWord(job.job_id)] = frozenset(step.step for step in job.steps)

    def lacks(self, word: JobWord) -> JobWord | None:
        """The part of what is named that was not found; None: all of it was."""
        if word.job_id not in self.jobs:
            return word
        missing = word.tasks & ~self.jobs[word.job_id]
        return JobWord(word.job_id, missing) if missing else None


def _report_missing(client: Client, chosen: Chosen, with_steps: bool, seen: Seen) -> int:
    """Say on stderr which of the named jobs and steps do not exist; how many.

    A job that other options leave out is not one of them, so what was not found is looked for without these.
    """
    missing = NamedJobs.of(word for named in chosen.jobs.words() if (word := seen.lacks(named)))
    steps = chosen.steps if with_steps else {}
    steps_missing = {word: numbers - seen.steps.get(word, numbers) for word, numbers in steps.items()}
    if missing.job_ids or missing.tasks:
        alone = QueryHistory(filter=JobFilter(job_ids=missing.job_ids, tasks=missing.tasks), with_steps=False)
        for _ in seen.noting(job_pages(client, alone)):
            pass
    absent = [_absence(client, word) for named in missing.words() if (word := seen.lacks(named))]
    for word, numbers in steps_missing.items():
        absent += [Refusal("unknown_step", f"job {word} has no step {number}") for number in sorted(numbers)]
    for refusal in absent:
        report(refusal)
    return len(absent)


def _absence(client: Client, word: JobWord) -> Refusal:
    """Why the history does not have the job: there never was one, or it was forgotten."""
    refusal = missing_job(client, word)
    if refusal.code != "unknown_job":
        return refusal
    try:
        ask(client, Explain(job_id=word.job_id), Explanation)
    except Refusal as error:
        if error.code == "job_over":
            message = f"job {word} ended long ago and is no longer in the history"
            return Refusal(
                "job_forgotten", message, "`history.keep_jobs_days` in gq.toml sets how long the history keeps jobs"
            )
    return refusal


class Chosen(NamedTuple):
    """The jobs that ``--jobs`` names, with all of their steps, and the steps that it names alone."""

    jobs: NamedJobs
    steps: dict[JobWord, frozenset[int]]
    """Named steps of jobs that are not named as a whole."""

    @staticmethod
    def of(named: Sequence[tuple[JobWord, int | None]]) -> Chosen:
        whole = NamedJobs.of(job for job, step in named if step is None)
        steps: dict[JobWord, frozenset[int]] = {}
        for job, step in named:
            if step is not None and not whole.has(job):
                steps[job] = steps.get(job, frozenset()) | {step}
        return Chosen(NamedJobs.of(job for job, _ in named), steps)

    def narrowed(self, jobs: Sequence[JobInfo]) -> list[JobInfo]:
        """Return the job with only the named steps."""
        return [self._narrowed(job, self.steps_of(job)) for job in jobs] if self.steps else list(jobs)

    def steps_of(self, job: JobInfo) -> frozenset[int] | None:
        """Return the named steps of the job; None: the job itself and all its steps."""
        steps = self.steps.get(JobWord(job.job_id))
        if steps is None and job.array_job_id is not None and job.array_task_id is not None:
            steps = self.steps.get(JobWord.of(job.array_job_id, job.array_task_id))
        return steps

    @staticmethod
    def _narrowed(job: JobInfo, steps: frozenset[int] | None) -> JobInfo:
        if steps is None:
            return job
        return msgspec.structs.replace(job, steps=tuple(step for step in job.steps if step.step in steps))


def job_or_step(text: str) -> tuple[JobWord, int | None]:
    """``35``, ``35_[1-4]``, ``35.2`` or ``35_4.2``."""
    job, dot, step = text.partition(".")
    if not dot:
        return job_word(job), None
    if not step.isdecimal():
        raise ValueError(f"`{text}` is not a step; use a job and a number such as 123.0")
    return JobWord.of(*one_job(job)), int(step)


def _json(job: JobInfo, with_steps: bool) -> dict[str, object]:
    """A job, and with it its steps."""
    shown = job_json(job)
    return {**shown, "steps": [step_json(step) for step in job.steps]} if with_steps else shown


def _lines(jobs: Sequence[JobInfo], chosen: Chosen, now: float) -> Iterator[Line]:
    for job in jobs:
        if chosen.steps_of(job) is None:
            yield Line(job, None, now)
        for step in job.steps:
            yield Line(job, step, now)


def _write(arguments: Arguments, fields: Sequence[Field], pages: Iterable[Iterable[Line]]) -> None:
    with_header = not arguments.has("noheader")
    if arguments.has("parsable2") or arguments.has("parsable"):
        _write_parsable(fields, pages, with_header, "|" if arguments.has("parsable") else "")
        return
    rows = ([[field.fit(field.in_table(line)) for field in fields] for line in page] for page in pages)
    write_table([field.column for field in fields], rows, with_header)


def _write_parsable(fields: Sequence[Field], pages: Iterable[Iterable[Line]], with_header: bool, end: str) -> None:
    if with_header:
        write_line("|".join(field.name for field in fields) + end)
    for page in pages:
        for line in page:
            write_line("|".join(printable(field.value(line)) for field in fields) + end)


# ── which jobs ────────────────────────────────────────────────────────────────────────────────────────────────


def _query(arguments: Arguments, jobs: NamedJobs, now: float) -> QueryHistory:
    chosen = job_filter(arguments, jobs)
    starttime = arguments.read("starttime", lambda text: past_instant(text, now))
    endtime = arguments.read("endtime", lambda text: past_instant(text, now))
    if starttime is None and not (chosen.job_ids or chosen.tasks):
        starttime = past_instant("today", now)
    if starttime is not None and endtime is not None and endtime < starttime:
        raise UsageError("contradiction", "`--endtime` is before `--starttime`", "swap the two times")
    return QueryHistory(
        filter=_of_users(chosen, arguments),
        started_before=endtime,
        ended_after=starttime,
        with_steps=not arguments.has("allocations"),
    )


def _of_users(chosen: JobFilter, arguments: Arguments) -> JobFilter:
    """Where no user and no job is named: one's own jobs; root sees all."""
    if chosen.users or chosen.job_ids or chosen.tasks or arguments.has("allusers") or os.geteuid() == 0:
        return chosen
    return msgspec.structs.replace(chosen, users=(own_name(),))


COMMAND = Command(
    name="gqacct",
    summary="Show jobs and their steps, finished or not.",
    details=(
        "Without --jobs and --starttime: jobs that were queued or ran since midnight. Without --user and --allusers: "
        "your own jobs (root: all jobs)."
    ),
    options=(
        Option(
            name="jobs",
            letter="j",
            aliases=("job",),
            metavar="IDS",
            help="Only these jobs, tasks (35_4), or steps (35.2).",
        ),
        Option(name="starttime", letter="S", metavar="TIME", help="Jobs in any state after this time."),
        Option(name="endtime", letter="E", metavar="TIME", help="Jobs that were queued or ran before this time."),
        USER,
        ME,
        Option(name="allusers", letter="a", help="Jobs of all users."),
        Option(name="partition", letter="r", metavar="NAMES", help=PARTITION.help),
        Option(name="name", metavar="NAMES", help=NAME.help),
        ACCOUNT,
        QOS,
        Option(name="states", letter="s", aliases=("state",), metavar="STATES", help=STATES.help),
        Option(name="nodelist", letter="N", metavar="NODES", help=NODELIST.help),
        Option(name="allocations", letter="X", help="Omit the lines of steps."),
        Option(name="format", letter="o", metavar="FIELDS", help="Fields to show, by name; %20 or %-20 sets a width."),
        Option(name="helpformat", letter="e", help="List the fields."),
        Option(name="parsable2", letter="P", help="Fields separated by |."),
        Option(name="parsable", letter="p", help="The same, with a | at the end of each line."),
        Option(name="noheader", letter="n", help="Omit the header line."),
        JSON,
    ),
    run=run,
)
