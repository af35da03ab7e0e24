"""gqlog: show what a job printed, or follow it from the queue to its end.

Owns which job is meant (``last``), which lines (``.RANK``), and when following is over: a job that is queued again
is followed on.  Where the bytes come from is `_log_source`.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from gq.cli.framework.command import EXIT_NO_ANSWER, Command, report, warn
from gq.cli.framework.connection import EXIT_NO_CODE, RECONNECT_S, ask, controller, last_job, missing_job, say_waiting
from gq.cli.framework.job_words import JobWord
from gq.cli.framework.operands import LAST, one_job, read
from gq.cli.views.log_source import LogSource
from gq.connection.client import Client
from gq.errors import GqError, Refusal, Unreachable, UsageError
from gq.model.job import JobInfo
from gq.model.state import ACTIVE_WORDS, Reason
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import render_instants
from gq.wire.client import AccessLog, JobFilter, Jobs, LogAccess, QueryHistory, Waited, WaitJobs

_POLL_S = 0.1
"""Between looks at a file that grows."""
_ASK_S = 1.0
"""Between questions to gqd how the job stands, while it prints nothing."""
_WAIT_S = 10.0


class Target(msgspec.Struct, frozen=True):
    """``12``, ``12_4`` (a task of an array), ``12.3`` (rank 3), ``last``."""

    job_id: int | None
    """None: the caller's latest."""
    task: int | None = None
    rank: int | None = None


def parse_target(text: str) -> Target:
    job, dot, rank = text.partition(".")
    if dot and not rank.isdecimal():
        raise UsageError("bad_job", f"`{text}` is not a job", "give a job id, 12.3 for rank 3 of job 12, or `last`")
    job_id, task = (None, None) if job == LAST else read(one_job, job)
    return Target(job_id, task, int(rank) if dot else None)


def run(arguments: Arguments) -> int:
    if len(arguments.operands) != 1:
        raise UsageError(
            "one_job", f"gqlog takes exactly one job, not {len(arguments.operands)}", "gqlog [-f] JOB[_TASK][.RANK]"
        )
    target = parse_target(arguments.operands[0])
    stream = "error" if arguments.has("stderr") else "output"
    with controller() as client:
        asked = AccessLog(job_id=target.job_id or _last(client), task=target.task, stream=stream)
        printer = Printer(target.rank, arguments.integer("lines", at_least=0))
        if not arguments.has("follow"):
            return _show(client, asked, printer)
        try:
            with client.reconnecting(RECONNECT_S, say_waiting):
                return _follow(client, asked, printer)
        except GqError as error:
            report(error)
            return EXIT_NO_ANSWER if isinstance(error, Unreachable) else error.exit_status


def _last(client: Client) -> int:
    """The caller's last job of those that write a file."""
    return last_job(client, lambda job: not job.is_interactive).job_id


def _access(client: Client, asked: AccessLog) -> LogAccess:
    """From gqd's memory, or for a job that ended long ago from its database: then only as a file of this host."""
    try:
        return ask(client, asked, LogAccess)
    except Refusal as refusal:
        if refusal.code != "job_over":
            raise
        found = ask(client, QueryHistory(filter=_filter(asked), with_steps=False), Jobs).jobs
        if not found:
            raise missing_job(client, JobWord.of(asked.job_id, asked.task), refusal) from None
        if len(found) != 1:
            raise
    [job] = found
    path = job.error_path if asked.stream == "error" and job.error_path else job.output_path
    if job.attempt and not path:  # the controller keeps to itself where the files of others are
        message = f"job {_label(asked)} belongs to {job.user}; its output is only for its owner"
        raise Refusal("not_owner", message, "ask the owner or an operator")
    if job.attempt and job.nodes and not os.path.exists(path):  # noqa: PTH110 - a Path costs more than the check
        message = f"the output of job {_label(asked)} is in {path} on node {job.nodes[0]}, not on this host"
        raise Refusal(
            "not_here",
            message,
            "log in to the node; it serves the file to other hosts only for some minutes after the job's end",
        )
    return LogAccess(
        job_id=job.job_id,
        attempt=job.attempt,
        state=job.state,
        node=job.nodes[0] if job.nodes else "",
        path=path if job.attempt else "",
        exit_code=job.exit_code,
        signal=job.signal,
    )


def _filter(asked: AccessLog) -> JobFilter:
    if asked.task is None:
        return JobFilter(job_ids=(asked.job_id,))
    return JobFilter(tasks={asked.job_id: str(asked.task)})


def _label(asked: AccessLog) -> str:
    return str(asked.job_id) if asked.task is None else f"{asked.job_id}_{asked.task}"


# ── once ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(client: Client, asked: AccessLog, printer: Printer) -> int:
    access = _access(client, asked)
    is_over = access.state not in ACTIVE_WORDS
    if not access.path and not is_over:
        message = f"job {_label(asked)} has no output yet: it is {access.state}"
        raise Refusal("no_output", message, "`gqlog -f` waits for the output; `gqwhy` explains the wait")
    source = LogSource(client, access, asked)
    try:
        while data := source.read():
            printer.feed(data)
    except Refusal as refusal:
        return _tell_why_unreadable(client, access, source, refusal)
    if access.state == "PENDING" and not source.offset:
        message = (
            f"job {_label(asked)} was requeued; the output of its earlier run is not in {access.path} on this host"
        )
        raise Refusal("no_output", message, "look on the node where it ran, or follow its next run with `gqlog -f`")
    printer.finish()
    if is_over and not source.offset and access.state != "COMPLETED":
        return _tell_why(client, access)
    return 0


def _tell_why(client: Client, access: LogAccess) -> int:
    """A job that printed nothing and did not complete mostly never ran: say what became of it; its code."""
    job = _in_history(client, access)
    why = render_instants(job.why) if job is not None and job.why else f"it is {access.state}"
    warn(f"job {access.job_id} has no output: {why}")
    return _code(access)


def _tell_why_unreadable(client: Client, access: LogAccess, source: LogSource, refusal: Refusal) -> int:
    """Say why a job could not be started, where that is why its output cannot be read; else raise the refusal.

    A job whose output directory is closed to its owner, or is a file, never had output.
    """
    if refusal.code != "unreadable" or source.offset or access.state in ACTIVE_WORDS:
        raise refusal
    job = _in_history(client, access)
    if job is None or job.reason != Reason.LAUNCH_FAILURE:
        raise refusal
    return _tell_why(client, access)


def _in_history(client: Client, access: LogAccess) -> JobInfo | None:
    query = QueryHistory(filter=JobFilter(job_ids=(access.job_id,)), with_steps=False)
    return next(iter(ask(client, query, Jobs).jobs), None)


# ── following ─────────────────────────────────────────────────────────────────────────────────────────────────


def _follow(client: Client, asked: AccessLog, printer: Printer) -> int:
    """Until the job has ended and all of its output is shown; returns its code."""
    source: LogSource | None = None
    silent_since: float | None = None
    while True:
        access = _access(client, asked)
        if source is None or access.path != source.access.path:
            source = LogSource(client, access, asked)
        elif access.attempt != source.access.attempt:
            source.access = access  # the same file, appended to by the next attempt
        is_over = access.state not in ACTIVE_WORDS
        try:
            _copy(source, printer, patience_s=0.0 if is_over or not access.path else _ASK_S)
        except Unreachable as error:  # of the node: it may be starting again
            now = time.monotonic()
            if silent_since is None and not is_over:
                say_waiting(error)
            silent_since = now if silent_since is None else silent_since
            if is_over or now - silent_since >= RECONNECT_S:
                raise
            source.close()
            source.access = access
            time.sleep(_ASK_S)
            continue
        except Refusal as refusal:
            return _tell_why_unreadable(client, access, source, refusal)
        silent_since = None
        if is_over:
            printer.finish()
            is_mute = not source.offset and access.state != "COMPLETED"
            return _tell_why(client, access) if is_mute else _code(access)
        if not access.path:
            wanted = _filter(asked)
            wait = WaitJobs(job_ids=wanted.job_ids, tasks=wanted.tasks, until="started", timeout_s=_WAIT_S)
            ask(client, wait, Waited)


def _copy(source: LogSource, printer: Printer, patience_s: float) -> None:
    """Show what there is, and what comes until nothing has come for `patience_s`."""
    quiet_since = time.monotonic()
    while True:
        data = source.read()
        if data:
            printer.feed(data)
            quiet_since = time.monotonic()
            continue
        printer.show_tail()
        if time.monotonic() - quiet_since >= patience_s:
            return
        time.sleep(_POLL_S)


def _code(access: LogAccess) -> int:
    if access.state == "COMPLETED":
        return 0
    if access.signal:
        return 128 + access.signal
    return access.exit_code or EXIT_NO_CODE


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Printer:
    """Writes bytes to standard output; with a rank only the lines that `gqrun --label` marked with it, unmarked.

    With `lines`, only the last so many of the lines that come before `show_tail` are written.
    """

    def __init__(self, rank: int | None, lines: int | None = None) -> None:
        self._rank = rank
        self._lines = lines
        self._tail = b""
        """The part of the last `lines` lines that has come so far; empty once it is shown."""
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
        if self._rank is not None:
            self._write(self._own(self._rest))
        self.show_tail()
        if self._rank is not None and self._has_seen_line and not self._has_seen_label:
            raise Refusal("no_labels", "the lines of this output have no rank", "run the command with `gqrun --label`")

    def _own(self, line: bytes) -> bytes:
        label, colon, text = line.partition(b": ")
        is_label = bool(colon) and label.strip().isdigit()
        self._has_seen_line |= bool(line)
        self._has_seen_label |= is_label
        return text + b"\n" if is_label and int(label) == self._rank else b""

    def show_tail(self) -> None:
        """Write the last lines of what has come; what comes from now on is written as it comes."""
        tail, self._tail, self._lines = self._tail, b"", None
        self._write(tail)

    def _write(self, data: bytes) -> None:
        if self._lines is not None:
            lines = (self._tail + data).split(b"\n")
            is_whole = not lines[-1]
            self._tail = b"\n".join(lines[-self._lines - is_whole :]) if self._lines else b""
        elif data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


COMMAND = Command(
    name="gqlog",
    summary="Show the output of a job, or follow it from pending to its end.",
    operands="JOB[_TASK][.RANK]|last",
    options=(
        Option(name="follow", letter="f", help="Follow until the job ends; return its exit code."),
        Option(
            name="lines",
            letter="n",
            metavar="COUNT",
            help="Only the last COUNT lines; with -f also new lines.",
        ),
        Option(name="stderr", help="The job's standard error, if it has its own file."),
    ),
    run=run,
    details=(
        "12_4 is task 4 of array 12. With .RANK, only the lines that `gqrun --label` marked with that rank. `last` is "
        "your last job. The file is read on this host if it is visible here, otherwise by the node daemon of the "
        "job's node."
    ),
)
