"""gq ssh: a shell, or a command, inside a running job, where the job is.

Owns which of the job's nodes is meant and what runs there.  It is a step like any other that shares the job's CPUs and
GPUs: it runs as the job's user, in the job's cell, and ends with the job.  Only the job's owner may do it.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Callable

import msgspec

from gq.cli.framework.command import Command
from gq.cli.framework.connection import ask, chosen_cluster, present_job
from gq.cli.framework.job_words import JobWord
from gq.cli.framework.operands import one_job, read
from gq.cli.framework.submission import job_environment, submission
from gq.cli.gqrun import create_step
from gq.cli.step.steps import Bring, Note, lead_step, say
from gq.cli.step.task_output import OutputOptions, open_output
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.job import JobInfo
from gq.model.resource import Grant
from gq.model.step import StepRequest
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.wire.client import GetJobEnvironment, JobEnvironment

_PATIENCE_S = 60.0
"""How long a controller that restarts may keep us waiting."""


class Target(msgspec.Struct, frozen=True):
    """``12``, ``12_4`` (a task of an array), or ``12.1``: the second of its nodes."""

    job: JobWord
    index: int | None = None


def parse_target(text: str) -> Target:
    job, dot, index = text.partition(".")
    if dot and not index.isdecimal():
        raise UsageError("bad_job", f"`{text}` is not a job", "give a job id, or 12.1 for the second node of job 12")
    return Target(JobWord.of(*read(one_job, job)), int(index) if dot else None)


def run(arguments: Arguments) -> int:
    if not arguments.operands:
        raise UsageError("missing_operand", "no job given", "gq ssh [--node NODE] JOB[.INDEX] [--] [COMMAND...]")
    target = parse_target(arguments.operands[0])
    command = remote_command(arguments.operands[1:])
    note = say("gq ssh")
    client = Client(chosen_cluster(), patience_s=_PATIENCE_S, on_wait=lambda error: note(error.message))
    with client:
        job = present_job(client, target.job)
        grant = _grant(job, target, arguments.text("node"))
        inside = ask(client, GetJobEnvironment(job_id=job.job_id), JobEnvironment)
        bring = Bring(
            argv=command or (user_shell(), "-l"),
            environment=job_environment(arguments) | dict(inside.variables),
            chdir=inside.chdir or "/",
            umask=submission("").umask,
            stdin_fd=0,
            stdin_rank=0,
            is_pty=has_terminal(command),
            tells_codes=False,
        )
        name = command[0].rpartition("/")[2] if command else "ssh"
        return lead_shared_step(client, job.job_id, grant, name, bring, note)


def lead_shared_step(
    client: Client,
    job_id: int,
    grant: Grant,
    name: str,
    bring: Bring,
    note: Note,
    job_end: Callable[[float], str] = lambda now: "",
) -> int:
    """Run one task that sees all that the job has on a node, and takes nothing away from other steps."""
    request = StepRequest(
        name=name,
        nodes=1,
        ntasks=1,
        cpus_per_task=max(1, len(grant.cpus)),
        nodelist=(grant.node,),
        overlap=True,
    )
    created = create_step(client, job_id, request, note)
    output = open_output(OutputOptions(is_unbuffered=True), 1, lambda pattern, rank: pattern)
    return lead_step(client.location, created, bring, output, note, job_end)


def _grant(job: JobInfo, target: Target, node: str) -> Grant:
    """The node that is meant; the job's first where none is named."""
    if job.state != "RUNNING":
        raise Refusal(
            "not_running", f"job {target.job} is {job.state}: only a running job can be entered", job.why or ""
        )
    if node and target.index is not None:
        raise UsageError(
            "contradiction",
            f"`--node` and the index in `{target.job}.{target.index}` exclude each other",
            "give one",
        )
    index = (target.index or 0) if not node else next((i for i, one in enumerate(job.nodes) if one == node), -1)
    if not 0 <= index < len(job.grants):
        wanted = f"node `{node}` is not one" if node else f"{target.job}.{target.index} is not one"
        raise Refusal("not_in_allocation", f"{wanted} of job {target.job}'s nodes", f"it has {', '.join(job.nodes)}")
    return job.grants[index]


def remote_command(words: tuple[str, ...]) -> tuple[str, ...]:
    """The program to run and its arguments; empty: a login shell.

    One word that a shell would divide or interpret is a command line, as it is for ssh: ``'nvidia-smi -l | head'``.
    """
    words = words[1:] if words[:1] == ("--",) else words
    if len(words) == 1 and shlex.quote(words[0]) != words[0]:
        return (user_shell(), "-c", words[0])
    return words


def user_shell() -> str:
    """The shell in the user database of this host."""
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        shell = ""
    return shell or "/bin/sh"


def has_terminal(command: tuple[str, ...]) -> bool:
    """A shell wants a terminal where we have one; a command only if all of us is one, so that it can be piped."""
    return os.isatty(0) and (not command or sys.stdout.isatty())


COMMAND = Command(
    name="gq ssh",
    summary="Run a shell or a command inside a running job, on one of its nodes.",
    operands="JOB[_TASK][.INDEX] [--] [COMMAND [ARGUMENT...]]",
    options=(Option(name="node", letter="w", metavar="NODE", help="Node of the job (default: its first node)."),),
    run=run,
    details=(
        "Without a command, it starts your login shell. One quoted word is a command line for that shell, as with "
        "ssh; several words are a program and its arguments. The command runs as a step in the job's cell and "
        "directory, shares the job's CPUs and GPUs, and ends with the job. 12.1 is the second node of job 12. "
        "Only the owner of a job can enter it. Returns the command's exit code."
    ),
    operands_end_options=True,
    returns_job_code=True,
)
