"""`gqsub`: queue a batch script.

The script comes from a file, from ``--wrap`` or from standard input; its head may hold options.  Whatever can be
seen to be wrong with it is said before anything is sent.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from gq.cli._command import EXIT_NO_ANSWER, JSON, Command, report, warn
from gq.cli._connection import EXIT_NO_CODE, ask, await_jobs, controller, job_exit_code
from gq.cli._operands import JobWord, only
from gq.cli._output import local_time, sentence, write_json, write_line
from gq.cli._submission import job_environment, submission
from gq.client import Client
from gq.directives import read_header
from gq.errors import ProtocolError, Refusal, Unreachable, UsageError
from gq.getopt import Arguments
from gq.jobspec import job_spec
from gq.model.job import JobSpec
from gq.options import SUB, job_arguments, options_of
from gq.units import iso_instant, tell_instants
from gq.wire.client import MAX_SCRIPT_BYTES, Submit, Submitted, Tested


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
    script = _script(arguments)
    header = read_header(script.data.decode(errors="replace"), script.file) if script.file else None
    for note in header.notes if header else ():
        warn(note)
    options = job_arguments(SUB, arguments, os.environ, header.given if header else ())
    spec = job_spec(options, submission(script.job_name, script.command, script.args))
    try:
        return _send(spec, script, options, arguments.has("json"))
    except (Unreachable, ProtocolError) as error:
        if not options.has("wait"):
            raise
        report(error)
        return EXIT_NO_ANSWER


def _send(spec: JobSpec, script: Script, options: Arguments, as_json: bool) -> int:
    with controller() as client:
        environment = job_environment(options)
        is_test = options.has("test-only")
        request = Submit(spec=spec, script=script.data, environment=environment, test_only=is_test)
        return _test(client, request, as_json) if is_test else _submit(client, request, options, as_json)


def _submit(client: Client, request: Submit, options: Arguments, as_json: bool) -> int:
    job_id = ask(client, request, Submitted).job_id
    if as_json:
        write_json({"job_id": job_id})
    else:
        write_line(str(job_id) if options.has("parsable") else f"Submitted batch job {job_id}")
    if not options.has("wait"):
        return 0
    sys.stdout.flush()
    _, jobs = await_jobs(client, only(JobWord(job_id)))
    return max((job_exit_code(job) for job in jobs), default=EXIT_NO_CODE)


def _test(client: Client, request: Submit, as_json: bool) -> int:
    tested = ask(client, request, Tested)
    if as_json:
        write_json({"start_at": iso_instant(tested.start_at), "nodes": tested.nodes, "why": tell_instants(tested.why)})
        return 0
    where = f" on {','.join(tested.nodes)}" if tested.nodes else ""
    start = f"would start at {local_time(tested.start_at)}{where}" if tested.start_at is not None else "could be queued"
    write_line(f"{start}{': ' if tested.why else ''}{sentence(tested.why)}")
    return 0


# ── the script ────────────────────────────────────────────────────────────────────────────────────────────────


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
        warn("reading the script from the terminal; end it with Ctrl-D")
    data = sys.stdin.buffer.read(MAX_SCRIPT_BYTES + 1)
    _check(data, "stdin")
    return Script(data, SUB, "stdin", "stdin")


def _check(data: bytes, file: str) -> None:
    """Refuse what cannot be a batch script."""
    first_line = data.partition(b"\n")[0]
    if not data.strip():
        raise Refusal("empty_script", f"`{file}` is empty", "a batch script begins with a line such as #!/bin/sh")
    if not data.startswith(b"#!"):
        hint = "the first line names the interpreter, for instance #!/bin/sh; to run a command, use --wrap 'COMMAND'"
        raise Refusal("not_a_script", f"`{file}` does not begin with #!, so it is no batch script", hint)
    if first_line.endswith(b"\r"):
        raise Refusal("dos_script", f"`{file}` has DOS line ends, which its interpreter cannot read", "use dos2unix")
    if len(data) > MAX_SCRIPT_BYTES:
        rule = f"`{file}` is larger than {MAX_SCRIPT_BYTES // 1024**2} MiB"
        raise Refusal("too_large", rule, "keep the data in a file of its own and let the script read it")


COMMAND = Command(
    name=SUB,
    summary="Queue a batch script and print its job id.",
    operands="[SCRIPT [ARGS...]]",
    details=(
        "Without SCRIPT (and without --wrap) the script is read from standard input. Lines that begin with #GQ or"
        " #SBATCH before the script's first command hold options; variables GQSUB_<OPTION> win over them, and the"
        " command line wins over both."
    ),
    options=(*options_of(SUB), JSON),
    run=run,
    operands_end_options=True,
)
