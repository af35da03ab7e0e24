"""The facts that a submitting command takes from its process: directory, host, umask, clock and environment.

It also checks the request on this host before it is sent: missing files and directories cause a warning, since the
nodes may have them; a missing notification program is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from gq.cli.framework.command import warn
from gq.cli.framework.operands import with_last_job
from gq.errors import Refusal
from gq.model.dependency import Dependency, parse_dependency
from gq.model.job import JobSpec
from gq.model.notice import COMMAND, Target, program_of
from gq.request.getopt import Arguments
from gq.request.jobspec import Submission, exported_environment
from gq.units import parse_instant


def submission(name: str, command: str = "", args: tuple[str, ...] = (), is_interactive: bool = False) -> Submission:
    """The surroundings of this process."""
    try:
        directory = str(Path.cwd())
    except FileNotFoundError:
        raise Refusal(
            "no_directory", "the current directory no longer exists", "change to another directory, or use --chdir"
        ) from None
    return Submission(
        name=name,
        submit_dir=directory,
        submit_host=os.uname().nodename,
        umask=_umask(),
        now=time.time(),
        command=command,
        args=args,
        is_interactive=is_interactive,
        read_instant=read_instant,
        read_dependency=read_dependency,
    )


def read_dependency(text: str) -> Dependency:
    """``afterok:12,singleton``; in the place of a number, ``last`` is the caller's last job."""
    return parse_dependency(with_last_job(text))


def read_instant(text: str, now: float) -> float:
    """Read an instant in the notation of `gq.units`, or in natural language, which is confirmed on stderr."""
    try:
        return parse_instant(text, now)
    except ValueError:
        from gq.calendar.times import local_zone, moment, spoken_moment, zone_name  # for those who use words

    zone = local_zone()
    meant = moment(text, now, zone)
    warn(f"`{text}` is {spoken_moment(meant.at, zone)} ({zone_name(zone)}){'; ' if meant.note else ''}{meant.note}")
    return meant.at


def _umask() -> int:
    mask = os.umask(0o077)  # there is no way to ask without setting
    os.umask(mask)
    return mask


def job_environment(arguments: Arguments) -> dict[str, str]:
    """Return the variables that ``--export`` selects, without those that cannot be sent."""
    return _sendable(exported_environment(arguments.last("export"), os.environ))


def warn_of_missing_files(spec: JobSpec) -> None:
    """Warn of the job's directories and input that this host does not have or the user may not write."""
    if not os.path.isdir(spec.chdir):  # noqa: PTH112 - no Path on the way to a submission
        warn(f"warning: the working directory `{spec.chdir}` does not exist on this host")
    if not spec.is_interactive:
        _warn_of_streams(spec)


def _warn_of_streams(spec: JobSpec) -> None:
    from gq.request.patterns import error_pattern, input_pattern, output_pattern

    named = {pattern: name for name, pattern in (("error", error_pattern(spec)), ("output", output_pattern(spec)))}
    told = {spec.chdir}
    for pattern, name in named.items():
        directory = _fixed_part(os.path.dirname(pattern))  # noqa: PTH120
        if not pattern or directory in told or not directory:
            continue
        told.add(directory)
        if not os.path.isdir(directory):  # noqa: PTH112
            warn(f"warning: the directory `{directory}` of the {name} file does not exist on this host")
        elif not os.access(directory, os.W_OK | os.X_OK):
            warn(f"warning: you cannot write to `{directory}`, the directory of the {name} file")
    source = input_pattern(spec)
    if source and "%" not in source and not os.access(source, os.R_OK):
        what = "cannot be read by you" if os.path.exists(source) else "does not exist"  # noqa: PTH110
        warn(f"warning: the input file `{source}` {what} on this host")


def _fixed_part(directory: str) -> str:
    """The part of a pattern's directory that is known before the job runs: ``/a/%j/b`` → ``/a``."""
    head, percent, _ = directory.replace("%%", "\0").partition("%")
    return (head.rpartition("/")[0] if percent else head).replace("\0", "%")


def refuse_missing_programs(targets: Iterable[Target]) -> None:
    """Refuse a notification command whose program this host does not have; a shell decides what a program is."""
    for target in targets:
        program = program_of(target.to) if target.kind == COMMAND else ""
        if program and not _is_program(os.path.expanduser(program)):  # noqa: PTH111
            message = f"--notify: the program `{program[:80]}` does not exist or cannot be executed"
            hint = (
                "correct its path; if the program exists only on the nodes, use --notify='command:exec "
                f"{target.to[:80]}'"
            )
            raise Refusal("bad_notify", message, hint)


def _is_program(word: str) -> bool:
    """Whether ``/bin/sh`` of this host knows a program, a builtin or a keyword of that name."""
    import subprocess  # few jobs tell anybody by a command

    words = ["/bin/sh", "-c", 'command -v "$1"', "sh", word]
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _sendable(environ: dict[str, str]) -> dict[str, str]:
    """Only text travels: a variable that is not UTF-8 is left out, and said so."""
    odd = [name for name, value in environ.items() if not (_is_text(name) and _is_text(value))]
    for name in odd:
        warn(f"the variable {name!a} is not UTF-8 and is not passed to the job")
        del environ[name]
    return environ


def _is_text(word: str) -> bool:
    if word.isascii():
        return True
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
