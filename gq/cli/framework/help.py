"""Help texts, shell completion and versions, which typer writes from a `Command`.

Typer is slow to load, so this module is imported only for these options.  It parses no command line:
`gq.request.getopt` does, from the same table of options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from click import Command as ClickCommand
from click import Context
from typer._completion_classes import completion_init
from typer.completion import shell_complete
from typer.core import MarkupMode, TyperArgument, TyperCommand, TyperGroup, TyperOption

from gq.cli.framework.command import Command, all_options, verb_rows
from gq.errors import UsageError
from gq.near_miss import suggestion
from gq.request.option import Option

SHELLS = ("bash", "zsh", "fish")
DISTRIBUTION = "gq-batch"
_MAX_NAMES = 30
"""Maximum width of the names of an option; the text after longer names begins on the next line."""


def typer_command(command: Command, name: str, is_rich: bool) -> TyperCommand | TyperGroup:
    """Convert the command for typer."""
    text = "\n\n".join(filter(None, (command.summary, command.details)))
    params = [_option(option) for option in all_options(command)]
    if command.verbs is not None:
        members: dict[str, ClickCommand] = {
            verb: typer_command(member, verb, is_rich) for verb, member in command.verbs().items()
        }
        return TyperGroup(
            name=name,
            help=text,
            commands=members,
            params=[*params],
            add_help_option=False,
            rich_markup_mode=_markup(is_rich),
        )
    operands = TyperArgument(param_decls=["operands"], nargs=-1, required=False, metavar=command.operands, hidden=True)
    return TyperCommand(
        name=name,
        help=text,
        params=[*params, *([operands] if command.operands else [])],
        add_help_option=False,
        rich_markup_mode=_markup(is_rich),
    )


def _markup(is_rich: bool) -> MarkupMode:
    return "rich" if is_rich else None


def _option(option: Option) -> TyperOption:
    names = [f"-{option.letter}"] if option.letter else []
    names += [f"--{name}" for name in (option.name, *option.aliases)]
    return TyperOption(
        param_decls=[f"option_{option.name.replace('-', '_')}", *names],
        is_flag=not option.takes_value,
        metavar=option.metavar or None,
        help=option.help,
        hidden=option.is_hidden,
        rich_help_panel=option.group or None,
        show_default=False,
        expose_value=False,
    )


def show_help(command: Command) -> None:
    is_rich = sys.stdout.isatty()
    shown = typer_command(command, command.name, is_rich)
    with shown.make_context(command.name, [], resilient_parsing=True) as context:
        text = shown.get_help(context) if is_rich else _plain_help(command, shown, context)
    if text:
        sys.stdout.write(f"{text.rstrip()}\n")


def _plain_help(command: Command, shown: ClickCommand, context: Context) -> str:
    """Help for a pipe: options under the headings of their groups, verbs with their whole summaries."""
    formatter = context.make_formatter()
    shown.format_usage(context, formatter)
    shown.format_help_text(context, formatter)
    groups = _option_groups(shown, context)
    width = min(_MAX_NAMES, max(len(names) for records in groups.values() for names, _ in records))
    for heading, records in groups.items():
        with formatter.section(heading):
            formatter.write_dl([(names.ljust(width), text) for names, text in records], col_max=_MAX_NAMES)
    if command.verbs is not None:
        with formatter.section("Commands"):
            formatter.write_dl(verb_rows(command))
    return formatter.getvalue()


def _option_groups(shown: ClickCommand, context: Context) -> dict[str, list[tuple[str, str]]]:
    """Names and help of the visible options by heading, headings in the order of their first option."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for param in shown.get_params(context):
        record = param.get_help_record(context)
        if record is not None:
            names, text = record
            heading = getattr(param, "rich_help_panel", None) or "Options"
            groups.setdefault(heading, []).append((names.replace(" [=", "[="), text))
    return groups


def show_version(command: Command) -> None:
    sys.stdout.write(f"{command.name} {version()}\n")


def version() -> str:
    from importlib.metadata import version as installed_version

    return installed_version(DISTRIBUTION)


def show_completion_script(command: Command, shell: str) -> None:
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        hint = suggestion(shell, SHELLS, f"use one of {', '.join(SHELLS)}")
        raise UsageError("bad_value", f"no completion for shell `{shell}`", hint)
    script = get_completion_script(prog_name=command.name, complete_var=completion_variable(command.name), shell=shell)
    sys.stdout.write(f"{script}\n")


def completion_variable(name: str) -> str:
    """Return the variable that a completion script sets to ask the command for completions."""
    return f"_{name.upper()}_COMPLETE"


def complete(command: Command, environ: Mapping[str, str] = os.environ) -> int:
    """Print completions for the completion script."""
    completion_init()
    variable = completion_variable(command.name)
    return shell_complete(
        typer_command(command, command.name, False), {}, command.name, variable, environ[variable]
    )  # fmt: skip
