"""gqalloc: hold an allocation while a command or a shell runs here.

Owns the life of that command: it is told when the allocation ends under it, and its code is returned.  The command
runs on this host; `gqrun` inside it runs on the allocation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

import zmq

from gq.cli._command import Command
from gq.cli._components import component_arguments, split_options
from gq.cli._connection import controller
from gq.cli._conversation import Conversation, JobWatch
from gq.cli._interactive import HeldJob, allocation_environment, held_job
from gq.cli._signals import SignalPipe
from gq.cli._steps import Note, say
from gq.cli._submission import job_environment, submission
from gq.errors import Refusal
from gq.getopt import Arguments
from gq.jobspec import job_spec
from gq.options import ALLOC, shown_options

JOB_NAME = "interactive"
_HANDLED = (
    signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_FORWARDED = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})
"""Ctrl-C and Ctrl-\\ reach the command from the terminal itself."""
_TURN_MS = 1000
_GRACE_S = 30.0
"""Between the signal that tells of the allocation's end and KILL."""


def run(arguments: Arguments) -> int:
    arguments, components = split_options(ALLOC, arguments)
    options, *others = component_arguments(ALLOC, [arguments, *components], os.environ)
    shell = os.environ.get("SHELL") or "/bin/sh"
    command = list(arguments.operands) or [shell]
    note = say("gqalloc")
    with controller() as client:
        spec = job_spec(options, submission(JOB_NAME, " ".join(arguments.operands), is_interactive=True), others)
        with held_job(client, spec, job_environment(options), note) as held:
            note(f"Granted job allocation {held.job.job_id}")
            environment = {**os.environ, **allocation_environment(client, held.job.job_id)}
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            conversation = Conversation(context, client.location)
            try:
                watch = JobWatch(conversation, held.job.job_id)
                code = _run_here(command, environment, spec.chdir, watch, held, note)
            finally:
                conversation.close()
                context.term()
            held.end(code)
    note(f"Relinquishing job allocation {held.job.job_id}")
    return code


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
    summary="Allocate resources, and run a command or a shell here that may use them by gqrun.",
    operands="[: OPTIONS...] [COMMAND [ARGUMENT...]]",
    options=shown_options(ALLOC),
    run=run,
    details=(
        "The command (without one: $SHELL) runs on this host, with the environment of the job. The allocation is "
        "given back when it ends. Returns its exit code."
    ),
    operands_end_options=True,
    returns_job_code=True,
)
