"""The `Command` structure that each command module exposes as ``COMMAND``, and the form of messages on stderr.

`gq.cli.framework.invoke` runs a command; `gq.cli.framework.help` writes help texts and completion scripts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

import msgspec

from gq.errors import GqError
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import render_instants

EXIT_NO_ANSWER = 125
"""Exit status of gq's own failures, such as a lost controller, in commands that return a job's exit code."""

JSON = Option(name="json", help="Print JSON with stable keys instead of a table.")


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command or, with `verbs`, a family of commands."""

    name: str
    """Name as typed: ``gqstat``, ``gqctl node drain``."""
    summary: str
    """Description in a single sentence."""
    operands: str = ""
    """Operands as the usage line shows them: ``JOB...``."""
    options: tuple[Option, ...] = ()
    run: Callable[[Arguments], int] | None = None
    """Function that runs the command and returns the exit status; None for a family."""
    details: str = ""
    """Further paragraphs of the help text, separated by blank lines."""
    operands_end_options: bool = False
    """Whether the first operand is a script or command whose own options follow."""
    returns_job_code: bool = False
    """Whether a lost controller is exit status 125, not 3."""
    verbs: Callable[[], dict[str, Command]] | None = None
    """Function that loads the members of a family by verb, called only when needed."""
    unbuilt: tuple[str, ...] = ()
    """Verbs that a later version provides."""
    named_here: Mapping[str, str] = {}
    """Verbs of other systems and the gq command for each."""


def all_options(command: Command) -> tuple[Option, ...]:
    """Return the command's own options and the common ones; ``-h`` is help unless the command uses it."""
    help_letter = "" if any(option.letter == "h" for option in command.options) else "h"
    return (
        *command.options,
        Option(name="completion", metavar="SHELL", help="Print the completion script for bash, zsh or fish and exit."),
        Option(name="version", letter="V", help="Show the version and exit."),
        Option(name="help", letter=help_letter, help="Show this text and exit."),
    )


def report(error: GqError) -> None:
    """Write an error to stderr as ``error: …`` and ``hint: …``."""
    from gq.cli.framework.output import printable  # not needed while all goes well
    from gq.host.error_text import folded

    sys.stdout.flush()
    now = time.time()
    text = f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    for line in render_instants(text, now).split("\n"):
        for part in folded(printable(line), sys.stderr):
            sys.stderr.write(f"{part}\n")


def warn(text: str) -> None:
    """Write a warning to stderr."""
    sys.stderr.write(f"{text}\n")


def note(text: str) -> None:
    """Write a note to stderr; a hint follows on the second line."""
    from gq.cli.framework.output import printable
    from gq.host.error_text import folded

    sys.stdout.flush()
    for line in render_instants(f"note: {text}", time.time()).split("\n"):
        for part in folded(printable(line), sys.stderr):
            warn(part)


def verb_rows(command: Command) -> list[tuple[str, str]]:
    """Return each verb of a family and its summary; the summary of a noun ends with the noun's own verbs."""
    verbs = command.verbs() if command.verbs else {}
    return [
        (verb, f"{member.summary.removesuffix('.')}: {', '.join(member.verbs())}." if member.verbs else member.summary)
        for verb, member in verbs.items()
    ]
