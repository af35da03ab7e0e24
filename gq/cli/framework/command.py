"""What a command is: a name, a table of options, a function.

Owns the way from words to a call and from an exception to a message and an exit status.  A command module exposes
``COMMAND``; nothing is registered anywhere. Help and completion are in `gq.cli.framework.help`, loaded only when asked
for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gq.errors import GqError, ProtocolError, Unreachable, UsageError
from gq.near_miss import nearest
from gq.request.getopt import Arguments, parse
from gq.request.option import Option, not_available
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


def invoke(command: Command, words: Sequence[str]) -> int:
    """Run `command` on these words; every failure becomes a message on stderr and an exit status."""
    try:
        command, words = _descend(command, list(words))
        ends = command.operands_end_options
        given, operands = parse(words, all_options(command), operands_end_options=ends, command=command.name)
        arguments = Arguments(given, operands)
        for name in ("help", "version", "completion"):
            if arguments.has(name):
                return _standard(name, command, arguments)
        if command.run is None:
            raise UsageError("missing_verb", f"missing command after `{command.name}`", _verbs_hint(command))
        return command.run(arguments)
    except GqError as error:
        if error.code == "missing_operand" and not error.hint:
            error.hint = f"{command.name} {command.operands}"
        report(error)
        return _status(error, command)


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


def _status(error: GqError, command: Command) -> int:
    is_own_failure = isinstance(error, Unreachable | ProtocolError)
    return EXIT_NO_ANSWER if is_own_failure and command.returns_job_code else error.exit_status


def _descend(command: Command, words: list[str]) -> tuple[Command, list[str]]:
    """Follow verbs: ``gqctl node drain n1`` → the command ``gqctl node drain`` and ``n1``."""
    while command.verbs is not None and words and not words[0].startswith("-"):
        verb = words.pop(0)
        if verb in command.unbuilt:
            raise not_available(f"`{command.name} {verb}`")
        verbs = command.verbs()
        if verb not in verbs:
            raise _unknown_verb(command, verb, list(verbs))
        command = verbs[verb]
    return command, words


def _unknown_verb(command: Command, verb: str, known: list[str]) -> UsageError:
    close = command.named_here.get(verb) or nearest(verb, known)
    hint = f"did you mean `{close}`?" if close else _verbs_hint(command)
    return UsageError("unknown_verb", f"`{command.name}` does not know `{verb}`", hint)


def _verbs_hint(command: Command) -> str:
    """The verbs of a family as a table."""
    rows = verb_rows(command)
    width = max((len(verb) for verb, _ in rows), default=0)
    return "\n".join(["use one of", *(f"  {verb:{width}}  {summary}" for verb, summary in rows)])


def verb_rows(command: Command) -> list[tuple[str, str]]:
    """Each verb of a family and its summary; the summary of a noun ends with the noun's own verbs."""
    verbs = command.verbs() if command.verbs else {}
    return [
        (verb, f"{member.summary.removesuffix('.')}: {', '.join(member.verbs())}." if member.verbs else member.summary)
        for verb, member in verbs.items()
    ]


def _standard(name: str, command: Command, arguments: Arguments) -> int:
    from gq.cli.framework import help  # loads typer: three times the start-up of everything else

    match name:
        case "help":
            help.show_help(command)
        case "version":
            help.show_version(command)
        case _:
            help.show_completion_script(command, arguments.text("completion"))
    return 0
