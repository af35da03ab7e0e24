"""What a submitting command takes from its surroundings: directory, host, umask, clock and environment."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gq.cli._command import warn
from gq.errors import Refusal
from gq.getopt import Arguments
from gq.jobspec import Submission, exported_environment
from gq.locate import Location

LOGIN_PATH = "/usr/local/bin:/usr/bin:/bin"
_KEPT_AT_LOGIN = ("LANG", "LANGUAGE", "TZ")


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
    )


def _umask() -> int:
    mask = os.umask(0o077)  # there is no way to ask without setting
    os.umask(mask)
    return mask


def job_environment(arguments: Arguments, location: Location) -> dict[str, str]:
    """The environment that the job gets by ``--export``, without what cannot be sent."""
    given = arguments.last("export")
    needs_login = given is not None and "ALL" not in given.value.split(",")
    login = _login_environment() if needs_login else {}
    exported = exported_environment(given, os.environ, login, location.environment())
    return _sendable(exported)


def _login_environment() -> dict[str, str]:
    """What every login shell has, and this user's commands of gq at the end of its path."""
    import pwd

    user = pwd.getpwuid(os.getuid())
    kept = {name: os.environ[name] for name in _KEPT_AT_LOGIN if name in os.environ}
    return {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        "PATH": f"{LOGIN_PATH}:{_command_dir()}",
        **kept,
    }


def _command_dir() -> str:
    """Where the commands of this installation are: beside the interpreter that runs them."""
    import sys

    return os.path.dirname(sys.executable)  # noqa: PTH120 - a Path would not save anything here


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
