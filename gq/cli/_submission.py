"""What a submitting command takes from its surroundings: directory, host, umask, clock and environment."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gq.cli._command import warn
from gq.errors import Refusal
from gq.getopt import Arguments
from gq.jobspec import Submission, exported_environment
from gq.units import parse_instant


def submission(name: str, command: str = "", args: tuple[str, ...] = (), is_interactive: bool = False) -> Submission:
    """The surroundings of this process."""
    try:
        directory = str(Path.cwd())
    except FileNotFoundError:
        raise Refusal("no_directory", "the present directory is gone", "go to another one, or use --chdir") from None
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
    )


def read_instant(text: str, now: float) -> float:
    """As `gq.units` has moments; else as people say them, which is told back on stderr."""
    try:
        return parse_instant(text, now)
    except ValueError:
        from gq.times import local_zone, moment, spoken_moment, zone_name  # for those who use words

    zone = local_zone()
    meant = moment(text, now, zone)
    warn(f"`{text}` is {spoken_moment(meant.at, zone)} ({zone_name(zone)}){'; ' if meant.note else ''}{meant.note}")
    return meant.at


def _umask() -> int:
    mask = os.umask(0o077)  # there is no way to ask without setting
    os.umask(mask)
    return mask


def job_environment(arguments: Arguments) -> dict[str, str]:
    """What the job gets of this process's environment by ``--export``, less what cannot be sent."""
    return _sendable(exported_environment(arguments.last("export"), os.environ))


def _sendable(environ: dict[str, str]) -> dict[str, str]:
    """Only text travels: a variable that is not UTF-8 is left out, and said so."""
    odd = [name for name, value in environ.items() if not (_is_text(name) and _is_text(value))]
    for name in odd:
        warn(f"the variable {name!a} is not UTF-8 and is left out of the job's environment")
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
