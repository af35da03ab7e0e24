"""gqlog: show what a job printed, or follow it from the queue to its end.

Owns which job is meant (``last``), which lines (``.RANK``), and when following is over: a job that is queued again
is followed on.  Where the bytes come from is `_log_source`.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from gq.cli._command import EXIT_NO_ANSWER, Command, report, warn
from gq.cli._connection import EXIT_NO_CODE, ask, controller, job_pages
from gq.cli._log_source import LogSource
from gq.client import Client
from gq.errors import GqError, Refusal, Unreachable, UsageError
from gq.getopt import Arguments, Option, not_available
from gq.model.state import ACTIVE_WORDS
from gq.units import tell_instants
from gq.wire.client import AccessLog, JobFilter, Jobs, ListJobs, LogAccess, QueryHistory, Waited, WaitJobs

_POLL_S = 0.1
"""Between looks at a file that grows."""
_ASK_S = 1.0
"""Between questions to gqd how the job stands, while it prints nothing."""
_WAIT_S = 10.0


class Target(msgspec.Struct, frozen=True):
    """``12``, ``12.3`` (rank 3), ``last``."""

    job_id: int | None
    """None: the caller's latest."""
    rank: int | None = None


def parse_target(text: str) -> Target:
    job, dot, rank = text.partition(".")
    if "_" in job:
        raise not_available(f"the output of an array's task, `{text}`,")
    if (dot and not rank.isdecimal()) or not (job == "last" or (job.isdecimal() and int(job) > 0)):
        raise UsageError("bad_job", f"`{text}` is not a job", "give its number, 12.3 for rank 3 of it, or `last`")
    return Target(None if job == "last" else int(job), int(rank) if dot else None)


def run(arguments: Arguments) -> int:
    if len(arguments.operands) != 1:
        raise UsageError("one_job", f"gqlog shows one job, not {len(arguments.operands)}", "gqlog [-f] JOB[.RANK]")
    target = parse_target(arguments.operands[0])
    stream = "error" if arguments.has("stderr") else "output"
    with controller() as client:
        job_id = _latest(client) if target.job_id is None else target.job_id
        printer = Printer(target.rank)
        if not arguments.has("follow"):
            return _show(client, job_id, stream, printer)
        try:
            return _follow(client, job_id, stream, printer)
        except GqError as error:
            report(error)
            return EXIT_NO_ANSWER if isinstance(error, Unreachable) else error.exit_status


def _latest(client: Client) -> int:
    """The caller's job with the highest number, of those that write a file."""
    import pwd

    user = pwd.getpwuid(os.getuid()).pw_name
    mine = JobFilter(users=(user,))
    for query in (ListJobs(filter=mine), QueryHistory(filter=mine, with_steps=False)):
        jobs = [job for page in job_pages(client, query) for job in page if not job.is_interactive]
        if jobs:
            return max(job.job_id for job in jobs)
    raise Refusal("no_jobs", f"{user} has not submitted any batch job yet", "gqsub submits one")


def _access(client: Client, job_id: int, stream: str) -> LogAccess:
    """From gqd's memory, or for a job that ended long ago from its database: then only as a file of this host."""
    try:
        return ask(client, AccessLog(job_id=job_id, stream=stream), LogAccess)
    except Refusal as refusal:
        if refusal.code != "job_over":
            raise
        found = ask(client, QueryHistory(filter=JobFilter(job_ids=(job_id,)), with_steps=False), Jobs).jobs
        if not found:
            raise
    [job] = found
    path = job.error_path if stream == "error" and job.error_path else job.output_path
    if job.attempt and job.nodes and not os.path.exists(path):  # noqa: PTH110 - a Path costs more than the check
        message = f"the output of job {job_id} is in {path} on node {job.nodes[0]}, and not on this host"
        raise Refusal("not_here", message, "a node shows it to other hosts for some minutes after the job's end")
    return LogAccess(
        job_id=job_id,
        attempt=job.attempt,
        state=job.state,
        node=job.nodes[0] if job.nodes else "",
        path=path if job.attempt else "",
        exit_code=job.exit_code,
        signal=job.signal,
    )


# ── once ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(client: Client, job_id: int, stream: str, printer: Printer) -> int:
    access = _access(client, job_id, stream)
    is_over = access.state not in ACTIVE_WORDS
    if not access.path and not is_over:
        message = f"job {job_id} has no output yet: it is {access.state}"
        raise Refusal("no_output", message, "`gqlog -f` waits for it, `gqwhy` says why")
    source = LogSource(client, access, stream)
    while data := source.read():
        printer.feed(data)
    printer.finish()
    if is_over and not source.offset and access.state != "COMPLETED":
        return _tell_why(client, access)
    return 0


def _tell_why(client: Client, access: LogAccess) -> int:
    """A job that printed nothing and did not complete mostly never ran: say what became of it; its code."""
    query = QueryHistory(filter=JobFilter(job_ids=(access.job_id,)), with_steps=False)
    found = ask(client, query, Jobs).jobs
    why = tell_instants(found[0].why) if found and found[0].why else f"it is {access.state}"
    warn(f"job {access.job_id} has no output: {why}")
    return _code(access)


# ── following ─────────────────────────────────────────────────────────────────────────────────────────────────


def _follow(client: Client, job_id: int, stream: str, printer: Printer) -> int:
    """Until the job has ended and all of its output is shown; returns its code."""
    source: LogSource | None = None
    while True:
        access = _access(client, job_id, stream)
        if source is None or access.path != source.access.path:
            source = LogSource(client, access, stream)
        elif access.attempt != source.access.attempt:
            source.access = access  # the same file, appended to by the next attempt
        is_over = access.state not in ACTIVE_WORDS
        _copy(source, printer, patience_s=0.0 if is_over or not access.path else _ASK_S)
        if is_over:
            printer.finish()
            is_mute = not source.offset and access.state != "COMPLETED"
            return _tell_why(client, access) if is_mute else _code(access)
        if not access.path:
            ask(client, WaitJobs(job_ids=(job_id,), until="started", timeout_s=_WAIT_S), Waited)


def _copy(source: LogSource, printer: Printer, patience_s: float) -> None:
    """Show what there is, and what comes until nothing has come for `patience_s`."""
    quiet_since = time.monotonic()
    while True:
        data = source.read()
        if data:
            printer.feed(data)
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since >= patience_s:
            return
        else:
            time.sleep(_POLL_S)


def _code(access: LogAccess) -> int:
    if access.state == "COMPLETED":
        return 0
    if access.signal:
        return 128 + access.signal
    return access.exit_code or EXIT_NO_CODE


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Printer:
    """Writes bytes to standard output; with a rank only the lines that `gqrun --label` marked with it, unmarked."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._rest = b""
        self._has_seen_label = False
        self._has_seen_line = False

    def feed(self, data: bytes) -> None:
        if self._rank is None:
            self._write(data)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._write(b"".join(self._own(line) for line in lines))

    def finish(self) -> None:
        """The end; `Refusal` if a rank was asked for and nothing is labelled."""
        if self._rank is None:
            return
        self._write(self._own(self._rest))
        if self._has_seen_line and not self._has_seen_label:
            raise Refusal(
                "no_labels", "the lines of this output do not tell whose they are", "run it by `gqrun --label`"
            )

    def _own(self, line: bytes) -> bytes:
        label, colon, text = line.partition(b": ")
        is_label = bool(colon) and label.strip().isdigit()
        self._has_seen_line |= bool(line)
        self._has_seen_label |= is_label
        return text + b"\n" if is_label and int(label) == self._rank else b""

    def _write(self, data: bytes) -> None:
        if data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


COMMAND = Command(
    name="gqlog",
    summary="Show the output of a job, or follow it from pending to its end.",
    operands="JOB[.RANK]|last",
    options=(
        Option(name="follow", letter="f", help="Go on until the job ends; returns its exit code."),
        Option(name="stderr", help="Its standard error (where that is a file of its own)."),
    ),
    run=run,
    details=(
        "With .RANK only the lines that `gqrun --label` marked with that rank. `last` is your latest job. The file is "
        "read here where this host sees it, else by the daemon of the node that wrote it."
    ),
)
