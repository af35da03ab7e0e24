"""Runs a command: parses its command line, calls its function, and turns errors into messages and exit statuses.

`gq.cli.framework.help` is loaded only for ``--help``, ``--version`` and ``--completion``.
"""

from __future__ import annotations

from collections.abc import Sequence

from gq.cli.framework.command import EXIT_NO_ANSWER, Command, all_options, report, verb_rows
from gq.errors import GqError, ProtocolError, Unreachable, UsageError
from gq.near_miss import nearest
from gq.request.getopt import Arguments, parse
from gq.request.option import not_available


def invoke(command: Command, words: Sequence[str]) -> int:
    """Run the command with these arguments; every error becomes a message on stderr and an exit status."""
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
    """Return the verbs of a family as a table."""
    rows = verb_rows(command)
    width = max((len(verb) for verb, _ in rows), default=0)
    return "\n".join(["use one of", *(f"  {verb:{width}}  {summary}" for verb, summary in rows)])


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
