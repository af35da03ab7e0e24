"""`gqdel`: cancel or signal jobs and steps.

As scancel it is silent when all went well, and an unknown or ended job is no error, unless it was to get a signal:
programs cancel jobs that may be over.  Who sits at a terminal may have mistyped the number, and is told.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from gq.cli.framework.command import Command, warn
from gq.cli.framework.connection import ask, controller
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
from gq.cli.framework.job_words import JobWord, NamedJobs
from gq.cli.framework.operands import job_word, listed, one_job, read, refusals
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.tasks import parse_tasks
from gq.request.getopt import Arguments, whole_number
from gq.request.option import Option
from gq.request.signals import parse_signal, signal_name
from gq.wire.client import CancelJobs, Done, JobFilter, JobsDone, SignalStep

_FILTERS = ("me", "user", "partition", "name", "states", "nodelist", "account", "qos")
_NO_FILTER = JobFilter()
_GONE = ("unknown_job", "unknown_step", "job_over", "not_running")
"""Refusals that mean: there is nothing left to end."""


class _Step(NamedTuple):
    job_id: int
    task: int | None
    step: int

    def __str__(self) -> str:
        return f"{self.job_id}.{self.step}" if self.task is None else f"{self.job_id}_{self.task}.{self.step}"


def run(arguments: Arguments) -> int:
    targets = [read(_target, word) for operand in arguments.operands for word in listed(operand)]
    jobs = NamedJobs.of(target for target in targets if isinstance(target, JobWord))
    steps = [target for target in targets if isinstance(target, _Step)]
    chosen = job_filter(arguments, jobs)
    _refuse_nothing(arguments, chosen, steps)
    _refuse_batch_alone(arguments)
    signum = arguments.read("signal", parse_signal)
    failures = 0
    with controller() as client:
        for step in steps:
            failures += _end_step(client, step, signum, arguments)
        if chosen != _NO_FILTER:
            failures += _end_jobs(client, chosen, signum, arguments)
    return 1 if failures else 0


def _target(word: str) -> JobWord | _Step:
    """``123``, ``123_[1-5]``, ``123.0`` or ``123_4.0``"""
    job, dot, step = word.partition(".")
    return _Step(*one_job(job), whole_number(step, 0)) if dot else job_word(word)


def _refuse_nothing(arguments: Arguments, chosen: JobFilter, steps: list[_Step]) -> None:
    if chosen == _NO_FILTER and not steps:
        raise UsageError("missing_operand", "no job given", "give job ids, or use --me, --user, --name, ...")
    if steps and any(arguments.has(name) for name in _FILTERS):
        raise UsageError("contradiction", "a filter cannot select steps", "give the step's id without a filter")


def _refuse_batch_alone(arguments: Arguments) -> None:
    if arguments.has("batch") and not arguments.has("signal"):
        raise UsageError("contradiction", "`--batch` works only with --signal", "add --signal=SIG")


def _end_jobs(client: Client, chosen: JobFilter, signum: int | None, arguments: Arguments) -> int:
    """Cancel or signal; the number of failures."""
    done = ask(client, CancelJobs(filter=chosen, signum=signum, scope=_scope(arguments)), JobsDone)
    if not (done.job_ids or done.tasks or done.refused or done.skipped):
        refuse_unknown_names(client, chosen)
    verb = "cancelled" if signum is None else f"sent {signal_name(signum)} to"
    for job_id in done.job_ids:
        _tell(arguments, f"{verb} job {job_id}")
    for array, tasks in done.tasks:
        _tell(arguments, f"{verb} job {JobWord(array, parse_tasks(tasks))}")
    for line in refusals(done):
        warn(f"error: {line}")
    is_picky = signum is not None and not any(arguments.has(name) for name in _FILTERS)
    for one in done.skipped:
        text = f"job {one} is unknown or has ended"
        if is_picky and not arguments.has("quiet"):
            warn(f"error: {text}")
        elif not is_picky:
            _tell_gone(arguments, text)
    return len(done.refused) + (len(done.skipped) if is_picky else 0)


def _end_step(client: Client, step: _Step, signum: int | None, arguments: Arguments) -> int:
    try:
        ask(client, SignalStep(job_id=step.job_id, task=step.task, step=step.step, signum=signum), Done)
    except Refusal as error:
        if signum is None and error.code in _GONE:
            _tell_gone(arguments, error.message)
            return 0
        warn(f"error: step {step}: {error.message}")
        return 1
    _tell(arguments, f"{'ended' if signum is None else 'signalled'} step {step}")
    return 0


def _scope(arguments: Arguments) -> str:
    """Return the scope of a signal: steps by default, with --batch the script, with --full both."""
    if arguments.has("full"):
        return "all"
    return "batch" if arguments.has("batch") else "steps"


def _tell(arguments: Arguments, text: str) -> None:
    if arguments.has("verbose"):
        warn(text)


def _tell_gone(arguments: Arguments, text: str) -> None:
    """Report that no job is left to end."""
    if arguments.has("verbose") or (sys.stderr.isatty() and not arguments.has("quiet")):
        warn(text)


COMMAND = Command(
    name="gqdel",
    summary="Cancel jobs or steps, or send them a signal.",
    operands="[JOB|JOB_TASKS|JOB.STEP]...",
    details=(
        "A job must match all filters. Without --signal the job is cancelled: TERM, and KILL after the grace time. "
        "With --signal the job's steps receive that signal and the job continues. Unknown and ended jobs are "
        "skipped, with a message only on a terminal. JOB may be an array, one task (12_4), or several tasks "
        "(12_[1-5,8])."
    ),
    options=(
        ME,
        USER,
        PARTITION,
        NAME,
        STATES,
        NODELIST,
        ACCOUNT,
        QOS,
        Option(name="signal", letter="s", metavar="SIG", help="Send this signal to the job's steps instead."),
        Option(name="batch", letter="b", help="Send the signal to the batch script only."),
        Option(name="full", letter="f", help="Send the signal to the batch script and the steps."),
        Option(name="quiet", letter="Q", help="Print nothing about unknown and ended jobs."),
        Option(name="verbose", letter="v", help="Print what is done to each job."),
    ),
    run=run,
)
