"""`gqsub`: queue a batch script.

The script comes from a file, from ``--wrap`` or from standard input; its head may hold options.  Whatever can be
seen to be wrong with it is said before anything is sent.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from gq.cli.framework.command import EXIT_NO_ANSWER, JSON, Command, report, warn
from gq.cli.framework.components import component_arguments, split_options
from gq.cli.framework.connection import EXIT_NO_CODE, ask, await_jobs, controller, job_exit_code
from gq.cli.framework.job_words import JobWord, only
from gq.cli.framework.output import local_time, sentence, write_json, write_line, write_sentence
from gq.cli.framework.submission import job_environment, refuse_missing_programs, submission, warn_of_missing_files
from gq.cli.views.alternatives import show_alternatives
from gq.cli.views.chain import Stage, gate_of, jobs_of
from gq.connection.client import Client
from gq.errors import ProtocolError, Refusal, Unreachable, UsageError
from gq.request.directives import read_header
from gq.request.getopt import Arguments
from gq.request.jobspec import job_spec
from gq.request.option import ParsedOption
from gq.request.options import RESOURCE_NAMES, SUB, options_of
from gq.units import iso_instant, render_instants
from gq.wire.client import MAX_SCRIPT_BYTES, ChainSubmitted, Submit, SubmitChain, Submitted, Tested

_QUEUE_OPTIONS = {"partition", "time", "account", "qos", "array", "dependency"}
_ASKED = RESOURCE_NAMES - {"data", "elastic"} | _QUEUE_OPTIONS | {"wrap"}
"""Options that a script hardly takes: those for resources, the place in the queue, and the command of the job."""


class Script(NamedTuple):
    """A batch script before it is sent."""

    data: bytes
    job_name: str
    """Name of a job that was given none."""
    file: str = ""
    """How complaints about its head call it; empty: it has no head."""
    command: str = ""
    args: tuple[str, ...] = ()


def run(arguments: Arguments) -> int:
    arguments, components = split_options(SUB, arguments)
    if components and arguments.has("chain"):
        raise UsageError("contradiction", "`--chain` and ` : ` exclude each other", "write `#GQ hetjob` in the scripts")
    scripts = _scripts(arguments)
    stages: list[Stage] = []
    options = Arguments(())
    for stage_index, script in enumerate(scripts):
        options, *others = _options(arguments, components, script, stage_index)
        gate = gate_of(options)
        spec = job_spec(options, submission(script.job_name, script.command, script.args), others)
        refuse_missing_programs(spec.notify)
        warn_of_missing_files(spec)
        _note_options_of_script(script.args)
        job = Submit(spec=spec, script=script.data, environment=job_environment(options))
        stages.append(Stage(job, gate))
    try:
        return _send(stages, options, arguments)
    except (Unreachable, ProtocolError) as error:
        if not options.has("wait"):
            raise
        report(error)
        return EXIT_NO_ANSWER


def _options(
    arguments: Arguments, components: list[list[ParsedOption]], script: Script, stage_index: int
) -> list[Arguments]:
    """Return the options of each component of the stage with index `stage_index`.

    The gate of the command line applies between stages; without a chain it applies before the job.
    """
    header = read_header(script.data.decode(errors="replace"), script.file) if script.file else None
    for note in header.notes if header else ():
        warn(note)
    said, environ = list(arguments), dict(os.environ)
    if arguments.has("chain") and not stage_index:
        said = [option for option in said if option.name != "if"]
        environ.pop("GQSUB_IF", None)
    elif "?" in arguments.text("dependency"):  # the first stage has waited for any of them
        said = [one for one in said if not stage_index or one.name != "dependency"]
    return component_arguments(SUB, [said, *components], environ, header.components if header else ((),))


def _note_options_of_script(args: tuple[str, ...]) -> None:
    """Tell whoever wrote ``gqsub train.sh --gpus=2`` that gq does not read what follows the script."""
    names = {
        name
        for option in options_of(SUB)
        if option.name in _ASKED
        for name in (f"--{option.name}", f"-{option.letter}")
    }
    found = [word for word in args if word.partition("=")[0] in names - {"-"}]
    if found:
        listed = ", ".join(f"`{word[:40]}`" for word in found[:3])
        warn(f"note: {listed} follows the script and is passed to it; options of gqsub go before the script")


def _send(stages: list[Stage], options: Arguments, arguments: Arguments) -> int:
    as_json = arguments.has("json")
    with controller() as client:
        if options.has("what-if"):
            return show_alternatives(client, stages[0].job.spec, as_json)
        if options.has("test-only"):
            return _test(client, msgspec.structs.replace(stages[0].job, test_only=True), as_json)
        if len(stages) == 1 and not stages[0].gate:
            answer = ask(client, stages[0].job, Submitted)
            job_ids: tuple[int, ...] = (answer.job_id,)
            note = answer.note
            _tell(job_ids, (), options, arguments)
        else:
            jobs, places = jobs_of(stages)
            chain = ask(client, SubmitChain(stages=jobs), ChainSubmitted)
            queued, note = chain.job_ids, chain.note
            job_ids = tuple(queued[stage_index] for stage_index in places)
            _tell(job_ids, tuple(one for one in queued if one not in job_ids), options, arguments)
        if note:
            warn(note)
        return _wait(client, job_ids[-1]) if options.has("wait") else 0


def _tell(job_ids: tuple[int, ...], gates: tuple[int, ...], options: Arguments, arguments: Arguments) -> None:
    if arguments.has("json"):
        chain = {"job_ids": job_ids} if arguments.has("chain") else {}
        write_json({"job_id": job_ids[-1], **chain, **({"gate_job_ids": gates} if gates else {})})
        return
    for job_id in job_ids:
        write_line(str(job_id) if options.has("parsable") else f"Submitted batch job {job_id}")


def _wait(client: Client, job_id: int) -> int:
    sys.stdout.flush()
    _, jobs = await_jobs(client, only(JobWord(job_id)))
    return max((job_exit_code(job) for job in jobs), default=EXIT_NO_CODE)


def _test(client: Client, request: Submit, as_json: bool) -> int:
    tested = ask(client, request, Tested)
    if as_json:
        write_json(
            {"start_at": iso_instant(tested.start_at), "nodes": tested.nodes, "why": render_instants(tested.why)}
        )
        return 0
    where = f" on {','.join(tested.nodes)}" if tested.nodes else ""
    start = f"would start at {local_time(tested.start_at)}{where}" if tested.start_at is not None else "could be queued"
    write_sentence(f"{start}{': ' if tested.why else ''}{sentence(tested.why)}")
    return 0


# ── the script ────────────────────────────────────────────────────────────────────────────────────────────────


def _scripts(arguments: Arguments) -> list[Script]:
    if not arguments.has("chain"):
        return [_script(arguments)]
    for name in ("wrap", "test-only", "what-if"):
        if arguments.has(name):
            raise UsageError("contradiction", f"`--chain` and `--{name}` exclude each other", "give one of them")
    if not arguments.operands:
        raise UsageError("missing_operand", "`--chain` needs scripts", "gqsub --chain prep.sh train.sh eval.sh")
    if odd := next((word for word in arguments.operands if word.startswith("-")), ""):
        raise UsageError("bad_operand", f"`{odd}` is not a script", "give options before the scripts of a chain")
    return [_from_file((path,)) for path in arguments.operands]


def _script(arguments: Arguments) -> Script:
    wrapped = arguments.last("wrap")
    if wrapped is None:
        return _from_file(arguments.operands) if arguments.operands else _from_stdin()
    if arguments.operands:
        raise UsageError("contradiction", "`--wrap` and a script exclude each other", "give one of them")
    if not wrapped.value.strip():
        raise UsageError("bad_value", "`--wrap`: the command is empty")
    return Script(f"#!/bin/sh\n{wrapped.value}\n".encode(errors="surrogateescape"), "wrap", command=wrapped.value)


def _from_file(operands: tuple[str, ...]) -> Script:
    path = Path(operands[0])
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        hint = "to run a command, use --wrap 'COMMAND'" if isinstance(error, FileNotFoundError) else ""
        raise Refusal("no_script", f"cannot read `{path}`: {error.strerror}", hint) from error
    _check(data, str(path))
    return Script(data, path.name, str(path), str(path.absolute()), operands[1:])


def _from_stdin() -> Script:
    if sys.stdin.isatty():
        warn("reading the script from the terminal; press Ctrl-D at its end")
    data = sys.stdin.buffer.read(MAX_SCRIPT_BYTES + 1)
    _check(data, "stdin")
    return Script(data, SUB, "stdin", "stdin")


def _check(data: bytes, file: str) -> None:
    """Refuse what cannot be a batch script."""
    first_line = data.partition(b"\n")[0]
    if not data.strip():
        raise Refusal("empty_script", f"`{file}` is empty", "begin the script with a line such as #!/bin/sh")
    if not data.startswith(b"#!"):
        hint = "begin it with the interpreter's line, such as #!/bin/sh; to run a command, use --wrap 'COMMAND'"
        raise Refusal("not_a_script", f"`{file}` is not a batch script: it does not begin with #!", hint)
    if first_line.endswith(b"\r"):
        raise Refusal(
            "dos_script",
            f"`{file}` has DOS line endings, which its interpreter cannot read",
            "convert it with dos2unix",
        )
    if len(data) > MAX_SCRIPT_BYTES:
        rule = f"`{file}` is larger than {MAX_SCRIPT_BYTES // 1024**2} MiB"
        raise Refusal("too_large", rule, "move data into a separate file that the script reads")


COMMAND = Command(
    name=SUB,
    summary="Queue a batch script and print its job id.",
    operands="[: OPTIONS...] [SCRIPT [ARGS...]] | --chain SCRIPT...",
    details=(
        "Without SCRIPT and --wrap, the script is read from standard input. Lines that begin with #GQ or #SBATCH "
        "before the script's first command hold options. Variables GQSUB_<OPTION> override them, and the command "
        "line overrides both."
    ),
    options=(*options_of(SUB), JSON),
    run=run,
    operands_end_options=True,
)
