"""gqrun: start tasks on the nodes of a job, and stand in for them here.

Inside a job (``GQ_JOB_ID``, ``--jobid``) it makes a step of it; outside it queues a job, runs one step and gives the
job back.  Owns how options become a `StepRequest` and what the tasks get from here; running is `_steps`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
import zmq

from gq.cli.framework.command import Command
from gq.cli.framework.components import component_arguments, split_commands
from gq.cli.framework.connection import ask, chosen_cluster, present_job
from gq.cli.framework.job_words import JobWord
from gq.cli.framework.operands import one_job
from gq.cli.framework.submission import job_environment, refuse_missing_programs, submission, warn_of_missing_files
from gq.cli.step.async_client import AsyncClient, JobWatch
from gq.cli.step.interactive import allocation_environment, held_job
from gq.cli.step.steps import Bring, Note, lead_step, say
from gq.cli.step.task_output import OutputOptions, TaskOutput, open_output
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.resource import ResourceRequest
from gq.model.step import StepRequest
from gq.request.getopt import Arguments, whole_number
from gq.request.jobspec import job_spec, refuse_unknown_code
from gq.request.option import ParsedOption, bad_value
from gq.request.options import RESOURCE_OPTIONS, RUN, STEP_SIZES, shown_options
from gq.request.patterns import expand_pattern
from gq.request.resources import resource_request
from gq.wire.client import CreateStep, Done, SignalStep, StepCreated

_PATIENCE_S = 60.0
"""How long a controller that restarts may keep a step waiting."""
_AT_ONCE_S = 0.5
"""A step that starts within this time is not said to wait."""
_HELD_S = 25.0
"""How long the controller may hold the answer afterwards."""
_FOR_NEW_JOBS = frozenset({
    "partition", "time", "comment", "begin", "hold", "nice", "dependency", "kill-on-invalid-dep", "deadline", "signal",
    "no-kill", "account", "qos", "priority", *(option.name for option in RESOURCE_OPTIONS if not option.in_steps),
})  # fmt: skip
"""Options that mean nothing to a step."""


def run(arguments: Arguments) -> int:
    components = split_commands(RUN, arguments)
    commands = [component.command for component in components]
    if not commands[-1]:
        raise UsageError("no_command", "no command to run", "gqrun [OPTIONS] COMMAND [ARGUMENT...]")
    options, *others = component_arguments(RUN, [component.given for component in components], os.environ)
    for name in ("output", "error"):
        if given := options.last(name):
            refuse_unknown_code(given)
    enclosing = _enclosing_job(options)
    if enclosing is not None:
        for component in components:
            _refuse_job_options(component.given, enclosing)
    _refuse_with_pty(options)
    note = say("gqrun")
    if options.has("elastic"):
        from gq.cli.step.follow import follow  # few jobs are elastic

        return follow([given for component in components for given in component.given], is_in_job=enclosing is not None)
    client = Client(
        chosen_cluster(),
        patience_s=_PATIENCE_S if enclosing else 0.0,
        on_wait=lambda error: note(error.message),
    )
    with client:
        if enclosing is not None:
            job_id = present_job(client, enclosing).job_id if enclosing.tasks else enclosing.job_id
            environment = _step_environment(client, job_id, options)
            work = Work(commands, step_request(options, commands[-1]), _selected([options, *others]))
            return _run_step(client, job_id, options, work, environment, note, lambda now: "")
        return _run_job(client, [options, *others], commands, note)


def _selected(components: list[Arguments]) -> list[tuple[str, ...]]:
    """The roles of each component of a step; empty: all."""
    if len(components) == 1 and not (components[0].has("role") or components[0].has("het-group")):
        return [()]
    from gq.request.het_job import selections  # few jobs have roles

    return selections(components)


class Work(NamedTuple):
    """The commands of a step and the resources that it requests."""

    commands: list[tuple[str, ...]]
    """Command of each component."""
    request: StepRequest
    roles: list[tuple[str, ...]]
    """Role of each component, by name or number."""

    def programs(self, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Return the command of each role, empty for a single command; `names` are all roles of the job."""
        if len(self.commands) == 1:
            return {}
        return {
            names[int(role)] if role.isdecimal() else role: command
            for roles, command in zip(self.roles, self.commands, strict=True)
            for role in roles
        }


def _enclosing_job(options: Arguments) -> JobWord | None:
    """The job to make a step of; None: outside."""
    given = options.read("jobid", one_job)
    if given is not None:
        return JobWord.of(*given)
    inherited = os.environ.get("GQ_JOB_ID", "")
    return JobWord(int(inherited)) if inherited.isdecimal() else None


def _refuse_job_options(arguments: Iterable[ParsedOption], job: JobWord) -> None:
    """On the command line they are a mistake; as variables they are for other calls and do not count here."""
    for given in arguments:
        if given.name in _FOR_NEW_JOBS:
            raise UsageError(
                "not_for_steps",
                f"{given.place} is only for a new job, but this is a step of job {job}",
                "remove it; `env -u GQ_JOB_ID gqrun …` queues a new job",
            )


def _refuse_with_pty(options: Arguments) -> None:
    if not options.has("pty"):
        return
    for name in ("label", "output", "error", "input"):
        given = options.last(name)
        if given is not None:
            raise UsageError(
                "contradiction",
                f"{given.place} and `--pty` exclude each other",
                "with --pty, the terminal is the only input and output",
            )


# ── outside a job ─────────────────────────────────────────────────────────────────────────────────────────────


def _run_job(client: Client, components: list[Arguments], commands: list[tuple[str, ...]], note: Note) -> int:
    """Queue a job, run one step on all of it, and give it back with the step's code."""
    options, *others = components
    _refuse_selection(components)
    program = commands[0][0].rpartition("/")[2]
    shown = " : ".join(shlex.join(command) for command in commands)
    spec = job_spec(options, submission(program, shown, is_interactive=True), others)
    refuse_missing_programs(spec.notify)
    warn_of_missing_files(spec)
    work = _whole_job(options, spec.resources, components, commands)
    exported = job_environment(options)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with held_job(client, spec, exported, note) as held:
        job_id = held.job.job_id
        async_client = AsyncClient(context, client.location)
        watch = JobWatch(async_client, job_id)

        def job_end(now: float) -> str:
            watch.turn(now)
            if not watch.is_over:
                return ""
            return f"job {job_id} has ended" + (f": {watch.job.state}" if watch.job is not None else "")

        try:
            environment = exported | allocation_environment(client, job_id)
            code = _run_step(client, job_id, options, work, environment, note, job_end)
            held.end(code)
        finally:
            async_client.close()
            context.destroy(linger=0)
    return code


def _refuse_selection(components: list[Arguments]) -> None:
    for component in components:
        if given := component.last("het-group"):
            message = f"{given.place} selects components of a job, but gqrun was not started in a job"
            raise UsageError("no_choice", message, "use it inside a job, or with --jobid")


def _whole_job(
    options: Arguments, asked: ResourceRequest, components: list[Arguments], commands: list[tuple[str, ...]]
) -> Work:
    """A step on all that a new job has."""
    request = step_request(options, commands[0])
    if not asked.roles:
        return Work(commands, request, [()])
    bare = StepRequest(name=request.name, kill_on_bad_exit=request.kill_on_bad_exit, overlap=request.overlap)
    from gq.request.het_job import component_roles

    roles = [tuple(role.name for role in roles) for roles in component_roles(components)]
    return Work(commands, bare, roles)


# ── the step ──────────────────────────────────────────────────────────────────────────────────────────────────


def _run_step(
    client: Client,
    job_id: int,
    options: Arguments,
    work: Work,
    environment: dict[str, str],
    note: Note,
    job_end: Callable[[float], str],
) -> int:
    """Make a step and run it."""
    here = submission("")
    directory = os.path.join(here.submit_dir, options.text("chdir"))  # noqa: PTH118 - no Path on the way to a start
    stdin_fd, stdin_rank = _input(options, directory)
    wanted = tuple(role for roles in work.roles for role in roles)
    created = create_step(client, job_id, msgspec.structs.replace(work.request, roles=wanted), note)
    output = _output_or_end(client, options, created, environment, directory)
    bring = Bring(
        argv=work.commands[-1],
        programs=work.programs(created.layout.roles),
        environment=environment,
        chdir=directory,
        umask=here.umask,
        stdin_fd=stdin_fd,
        stdin_rank=stdin_rank,
        is_pty=options.has("pty"),
    )
    return lead_step(client.location, created, bring, output, note, job_end)


def step_request(options: Arguments, command: tuple[str, ...]) -> StepRequest:
    """Return the request for a step in an allocation, from the options."""
    wanted = resource_request(options)
    if wanted.gpu_type is not None:
        message = f"a step uses GPUs of its job's type and cannot ask for type `{wanted.gpu_type}`"
        raise UsageError("no_choice", message, "give only a number of GPUs")
    if wanted.resources:
        message = f"a step uses its job's resources and cannot ask for `{wanted.resources[0].name}`"
        raise UsageError("no_choice", message, "request it when you submit the job")
    if wanted.nodes_max not in (None, wanted.nodes_min):
        raise UsageError("no_choice", "a step has a fixed number of nodes", f"use --nodes={wanted.nodes_min}")
    bad_exit = options.last("kill-on-bad-exit")
    request = StepRequest(
        name=options.text("job-name") or command[0].rpartition("/")[2],
        nodelist=wanted.nodelist,
        exclude=wanted.exclude,
        overlap=options.has("overlap"),
        kill_on_bad_exit=None if bad_exit is None else _is_on(options),
    )
    sizes = {field: getattr(wanted, field) for field in STEP_SIZES if field != "nodes"}
    return msgspec.structs.replace(request, nodes=wanted.nodes_min, **sizes)


def _is_on(options: Arguments) -> bool:
    return options.integer("kill-on-bad-exit", at_least=0, at_most=1) == 1


def create_step(client: Client, job_id: int, request: StepRequest, note: Note) -> StepCreated:
    """Ask until the resources are free; other steps of the job may hold them."""
    wait_s = _AT_ONCE_S
    while True:
        try:
            return ask(client, CreateStep(job_id=job_id, step=request, wait_s=wait_s), StepCreated)
        except Refusal as refusal:
            if refusal.code != "step_waits":
                raise
        if wait_s == _AT_ONCE_S:
            note(f"the step is waiting for resources that other steps of job {job_id} hold")
        wait_s = _HELD_S


# ── what the tasks get ────────────────────────────────────────────────────────────────────────────────────────


def _step_environment(client: Client, job_id: int, options: Arguments) -> dict[str, str]:
    """Return the exported environment with the job's own variables: ours if we run in that job, else gqd's."""
    exported = job_environment(options)
    if os.environ.get("GQ_JOB_ID") == str(job_id):
        return exported | {name: value for name, value in os.environ.items() if name not in exported and _is_ours(name)}
    return exported | allocation_environment(client, job_id)


def _is_ours(name: str) -> bool:
    return name.startswith(("GQ_", "SLURM_", "SLURMD_")) or name in ("MASTER_ADDR", "MASTER_PORT")


def _input(options: Arguments, directory: str) -> tuple[int | None, int | None]:
    """(file descriptor, only reader) of standard input; None: nothing to read, every task reads."""
    given = options.last("input")
    if options.has("pty"):
        return 0, 0
    if given is None or given.value == "all":
        return 0, None
    if given.value == "none":
        return None, None
    if given.value.isdecimal():
        return 0, whole_number(given.value)
    if "%" in given.value:
        raise bad_value(
            given,
            f"`{given.value}` contains a pattern",
            "give one file; all tasks of a step read the same file",
        )
    path = os.path.join(directory, given.value)  # noqa: PTH118
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), None
    except OSError as error:
        raise Refusal("input_failed", f"cannot open {path}: {error.strerror}") from error


def _output_or_end(
    client: Client, options: Arguments, created: StepCreated, environment: Mapping[str, str], directory: str
) -> TaskOutput:
    """A step whose output has no place is ended before a task runs."""
    try:
        return _output(options, created, environment, directory)
    except Refusal:
        ask(client, SignalStep(job_id=created.job_id, step=created.step), Done)
        raise


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _output(options: Arguments, created: StepCreated, environment: Mapping[str, str], directory: str) -> TaskOutput:
    """The step's output: to this terminal or to files."""
    parts = created.layout.parts
    nodes = {rank: part.node for part in parts for rank in part.ranks}
    node_ranks = {rank: index for index, part in enumerate(parts) for rank in part.ranks}

    def file_name(pattern: str, rank: int) -> str:
        name = expand_pattern(
            pattern,
            job_id=created.job_id,
            name=environment.get("GQ_JOB_NAME", created.layout.name),
            user=environment.get("USER", ""),
            node=nodes[rank],
            rank=rank,
            node_rank=node_ranks[rank],
            step=created.step,
            array_job_id=_number(environment.get("GQ_ARRAY_JOB_ID")),
            array_task_id=_number(environment.get("GQ_ARRAY_TASK_ID")),
        )
        return os.path.join(directory, name)  # noqa: PTH118

    wanted = OutputOptions(
        output=options.text("output") or None,
        error=options.text("error") or None,
        is_appending=options.text("open-mode", "truncate").startswith("a"),
        is_labelled=options.has("label"),
        is_unbuffered=options.has("unbuffered") or options.has("pty"),
    )
    return open_output(wanted, created.layout.ntasks, file_name)


COMMAND = Command(
    name="gqrun",
    summary="Run a command on the nodes of a job, once per task, with live output.",
    operands="COMMAND [ARGUMENT...] [: OPTIONS... COMMAND...]",
    options=shown_options(RUN),
    run=run,
    details=(
        "Inside a job, gqrun starts a step on the job's nodes; several steps may run at once, each with its own CPUs "
        "and GPUs. Outside a job, it queues a job, waits for it to start, runs the command and ends the job.\n\n"
        "Standard input goes to all tasks (--input RANK or none). Ctrl-C interrupts the tasks; twice within a second "
        "kills them. Returns the highest exit code of the tasks, or 128 + the signal for a task that a signal "
        "killed. Tasks that were ended because another task failed (--kill-on-bad-exit) do not count."
    ),
    operands_end_options=True,
    returns_job_code=True,
)
