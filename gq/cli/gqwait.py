"""`gqwait`: block until jobs have ended, and return what they returned."""

from __future__ import annotations

import time

from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import await_jobs, controller, job_exit_code, missing_job
from gq.cli.framework.operands import jobs_named
from gq.cli.framework.output import job_json, write_json_list
from gq.model.state import ACTIVE_WORDS
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import parse_seconds

EXIT_TIMEOUT = 124


def run(arguments: Arguments) -> int:
    named = jobs_named(arguments)
    timeout_s = arguments.read("timeout", parse_seconds)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with controller() as client:
        is_done, jobs = await_jobs(client, named, arguments.has("any"), deadline)
        if is_done and not jobs:
            raise missing_job(client, named.words()[0])
    if arguments.has("json"):
        write_json_list(job_json(job) for job in jobs)
    if not is_done:
        return EXIT_TIMEOUT
    return max((job_exit_code(job) for job in jobs if job.state not in ACTIVE_WORDS), default=0)


COMMAND = Command(
    name="gqwait",
    summary="Wait until jobs have ended and return their exit code.",
    operands="JOB...",
    details=(
        "Returns the job's exit code, 128 + signal if a signal ended the job, or 1 if it ended without either "
        "(cancelled while pending, node lost). With several jobs, returns the highest code. Returns 124 after "
        "--timeout, 125 if the controller was lost."
    ),
    options=(
        Option(name="any", help="Return as soon as one of the jobs has ended."),
        Option(name="timeout", metavar="SECONDS", help="Give up after SECONDS, or 30s, 5m, 2h."),
        JSON,
    ),
    run=run,
    returns_job_code=True,
)
