"""gqalloc: hold an allocation while a command or a shell runs.

Owns where that command runs and its life: it is told when the allocation ends under it, and its code is returned.  On a
host that is a node of the job the command is a step that shares all that the job has there, so that it runs in the
job's cell with exactly the job's GPUs.  On another host it runs outside and sees no GPU; `gqrun` inside it runs on the
allocation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping

import zmq

from gq.cli.framework.command import Command
from gq.cli.framework.components import component_arguments, split_options
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.submission import job_environment, refuse_missing_programs, submission, warn_of_missing_files
from gq.cli.step.async_client import AsyncClient, JobWatch
from gq.cli.step.interactive import HeldJob, held_job
from gq.cli.step.signals import SignalPipe
from gq.cli.step.steps import Bring, Note, say
from gq.connection.client import Client
from gq.connection.locate import Location
from gq.errors import GqError, Refusal
from gq.model.job import JobInfo
from gq.model.nodelist import compress
from gq.model.resource import Grant
from gq.model.state import ACTIVE_WORDS
from gq.request.getopt import Arguments
from gq.request.jobspec import job_spec
from gq.request.options import ALLOC, shown_options
from gq.wire.client import GetJobEnvironment, JobEnvironment, Waited, WaitJobs

JOB_NAME = "interactive"
_HANDLED = (
    signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_FORWARDED = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})
"""Ctrl-C and Ctrl-\\ reach the command from the terminal itself."""
_COUNTS = (
    "GQ_STEP_ID", "GQ_STEP_NODELIST", "GQ_NNODES", "GQ_NTASKS", "GQ_TASKS_PER_NODE", "GQ_CPUS_PER_TASK",
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK", "SLURM_NTASKS_PER_NODE",
)  # fmt: skip
"""Variables that gqnode sets for the tasks of each step (`gqnode.control.environment`)."""
_TURN_MS = 1000
_CLEANING_S = 5.0
"""How long a job that is over may take to say how it ended."""
_GRACE_S = 30.0
"""Between the signal that tells of the allocation's end and KILL."""


def run(arguments: Arguments) -> int:
    arguments, components = split_options(ALLOC, arguments)
    options, *others = component_arguments(ALLOC, [arguments, *components], os.environ)
    command = arguments.operands
    note = say("gqalloc")
    with controller() as client:
        spec = job_spec(options, submission(JOB_NAME, " ".join(command), is_interactive=True), others)
        refuse_missing_programs(spec.notify)
        warn_of_missing_files(spec)
        with held_job(client, spec, job_environment(options), note) as held:
            note(f"Granted job allocation {held.job.job_id}")
            inside = ask(client, GetJobEnvironment(job_id=held.job.job_id), JobEnvironment)
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            async_client = AsyncClient(context, client.location)
            try:
                watch = JobWatch(async_client, held.job.job_id)
                if (grant := _step_grant(client, held.job, inside, command, note)) is not None:
                    code = _run_in_cell(client, held.job, grant, command, inside, spec.chdir, watch, note)
                else:
                    environment = {**os.environ, **inside.variables, "CUDA_VISIBLE_DEVICES": ""}
                    code = _run_here(list(command) or [_shell()], environment, spec.chdir, watch, held, note)
            finally:
                async_client.close()
                context.term()
            held.end(code)
    note(f"Relinquishing job allocation {held.job.job_id}")
    return code


def _shell() -> str:
    return os.environ.get("SHELL") or "/bin/sh"


def _step_grant(
    client: Client, job: JobInfo, inside: JobEnvironment, command: tuple[str, ...], note: Note
) -> Grant | None:
    """The share of the job on the node where the command runs as a step; None: it runs on this host, outside."""
    local = grant_of_this_host(client.location, job)
    if local is not None:
        return local
    first = job.grants[0]
    if inside.use_interactive_step and not command:
        note(f"opening a shell on {first.node}")
        return first
    note(f"this host is not a node of job {job.job_id}: CUDA_VISIBLE_DEVICES is empty here")
    note(f"`gqrun` runs commands on {compress(job.nodes)}, `gq ssh {job.job_id}` opens a shell on {first.node}")
    return None


def grant_of_this_host(location: Location, job: JobInfo) -> Grant | None:
    """The first share of the job that a node daemon of this host holds for this user."""
    from gq.cli.gq.pam_check import cells_at

    for grant in job.grants:
        try:
            path = location.step_endpoint(grant.node).removeprefix("ipc://")
            cells = cells_at(path, os.getuid()) if os.path.exists(path) else ()  # noqa: PTH110
        except GqError:  # the daemon is away or does not answer: gqrun says so, if it is used
            continue
        if any(cell.attempt_id.job_id == job.job_id for cell in cells):
            return grant
    return None


def _run_in_cell(
    client: Client,
    job: JobInfo,
    grant: Grant,
    command: tuple[str, ...],
    inside: JobEnvironment,
    directory: str,
    watch: JobWatch,
    note: Note,
) -> int:
    """Run the command, or a shell, as a step that shares all that the job has on this node."""
    from gq.cli.gq.ssh import has_terminal, lead_shared_step

    def job_end(now: float) -> str:
        watch.turn(now)
        if not watch.is_over:
            return ""
        return f"job {job.job_id} has ended" + (f": {watch.job.state}" if watch.job is not None else "")

    bring = Bring(
        argv=("env", *_as_in_the_job(inside.variables), *(command or (_shell(),))),
        environment={**os.environ, **inside.variables},
        chdir=directory,
        umask=submission("").umask,
        stdin_fd=0,
        stdin_rank=0,
        is_pty=has_terminal(command),
        tells_codes=False,
    )
    code = lead_shared_step(client, job.job_id, grant, JOB_NAME, bring, note, job_end)
    if code:
        _tell_end(client, job.job_id, note)
    return code


def _tell_end(client: Client, job_id: int, note: Note) -> None:
    """If the command was ended because the job was."""
    for wait_s in (0.0, _CLEANING_S):
        job = ask(client, WaitJobs(job_ids=(job_id,), until="ended", timeout_s=wait_s), Waited).jobs[0]
        if job.state not in ACTIVE_WORDS:
            note(f"job {job_id} has ended: {job.state}")
        if job.state != "COMPLETING":
            return


def _as_in_the_job(variables: Mapping[str, str]) -> Iterator[str]:
    """Arguments of env(1) that undo what a step says of itself: the counts are those of the whole job again."""
    for name in _COUNTS:
        if name not in variables:
            yield f"--unset={name}"
    for name in _COUNTS:
        if name in variables:
            yield f"{name}={variables[name]}"


def _run_here(
    command: list[str], environment: dict[str, str], directory: str, watch: JobWatch, held: HeldJob, note: Note
) -> int:
    """Run the command until it ends, or the allocation does."""
    with SignalPipe(_HANDLED) as signals:
        try:
            process = subprocess.Popen(command, env=environment, cwd=directory)
        except OSError as error:
            raise Refusal("no_command", f"cannot run `{command[0]}`: {error.strerror}") from error
        poller = zmq.Poller()
        poller.register(signals.fd, zmq.POLLIN)
        poller.register(watch.socket, zmq.POLLIN)
        kill_at: float | None = None
        while process.poll() is None:
            poller.poll(_TURN_MS)
            for signum in signals.taken():
                if signum in _FORWARDED:
                    process.send_signal(signum)
            now = time.monotonic()
            watch.turn(now)
            if watch.is_over and kill_at is None:
                state = f": {watch.job.state}" if watch.job is not None else ""
                note(f"job {held.job.job_id} has ended{state}")
                process.send_signal(_farewell(command))
                kill_at = now + _GRACE_S
            if kill_at is not None and now >= kill_at:
                process.kill()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _farewell(command: list[str]) -> int:
    """An interactive shell ignores TERM, but leaves when its terminal hangs up."""
    return signal.SIGHUP if len(command) == 1 else signal.SIGTERM


COMMAND = Command(
    name="gqalloc",
    summary="Allocate resources and run a command or a shell that can use them.",
    operands="[: OPTIONS...] [COMMAND [ARGUMENT...]]",
    options=shown_options(ALLOC),
    run=run,
    details=(
        "The command (default: $SHELL) runs on this host with the environment of the job. If this host is a node of "
        "the job, the command runs in the job's cell with exactly the job's GPUs; otherwise it runs outside the "
        "job, without GPUs. gqrun inside it runs on the job's nodes. The allocation is released when the "
        "command ends. Returns the command's exit code."
    ),
    operands_end_options=True,
    returns_job_code=True,
)
