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
"""Of commands that return a job's exit code: gq itself failed, the controller lost among it."""

JSON = Option(name="json", help="Print JSON with stable keys instead of a table.")


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command, or (with `verbs`) a family of them."""

    name: str
    """As typed: ``gqstat``, ``gqctl node drain``."""
    summary: str
    """One sentence."""
    operands: str = ""
    """How the operands are shown in the usage line: ``JOB...``."""
    options: tuple[Option, ...] = ()
    run: Callable[[Arguments], int] | None = None
    """Does it and returns the exit status; None for a family."""
    details: str = ""
    """More for the help text: paragraphs separated by blank lines."""
    operands_end_options: bool = False
    """The first operand is a script or command whose own options follow."""
    returns_job_code: bool = False
    """A lost controller is 125 then, not 3."""
    verbs: Callable[[], dict[str, Command]] | None = None
    """The members of a family by verb; loaded only when one is wanted."""
    unbuilt: tuple[str, ...] = ()
    """Verbs that a later version brings."""
    named_here: Mapping[str, str] = {}
    """Verbs that other systems have, and the command that does it here."""


def all_options(command: Command) -> tuple[Option, ...]:
    """The command's own options and those that every command has; ``-h`` is help unless the command uses it."""
    help_letter = "" if any(option.letter == "h" for option in command.options) else "h"
    return (
        *command.options,
        Option(name="completion", metavar="SHELL", help="Print the completion script for bash, zsh or fish and exit."),
        Option(name="version", letter="V", help="Show the version and exit."),
        Option(name="help", letter=help_letter, help="Show this text and exit."),
    )


def report(error: GqError) -> None:
    """The one form of a complaint: ``error: …`` and ``hint: …`` on stderr."""
    from gq.cli.framework.output import printable  # not needed while all goes well
    from gq.host.error_text import folded

    sys.stdout.flush()
    now = time.time()
    text = f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    for line in render_instants(text, now).split("\n"):
        for part in folded(printable(line), sys.stderr):
            sys.stderr.write(f"{part}\n")


def warn(text: str) -> None:
    """Something worth knowing that stops nothing."""
    sys.stderr.write(f"{text}\n")


def note(text: str) -> None:
    """A fact that the user should know, on standard error; its hint, if it has one, is in the second line."""
    from gq.cli.framework.output import printable
    from gq.host.error_text import folded

    sys.stdout.flush()
    for line in render_instants(f"note: {text}", time.time()).split("\n"):
        for part in folded(printable(line), sys.stderr):
            warn(part)


def verb_rows(command: Command) -> list[tuple[str, str]]:
    """Each verb of a family and its summary; the summary of a noun ends with the noun's own verbs."""
    verbs = command.verbs() if command.verbs else {}
    return [
        (verb, f"{member.summary.removesuffix('.')}: {', '.join(member.verbs())}." if member.verbs else member.summary)
        for verb, member in verbs.items()
    ]
