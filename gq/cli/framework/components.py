"""`` : `` on a command line: what stands between them are the components of one job, each with resources of its own.

Owns where one component ends and the next begins.  What they mean together is in `gq.request.het_job`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gq.request.getopt import Arguments, parse
from gq.request.layers import job_arguments, merge
from gq.request.option import ParsedOption
from gq.request.options import options_of

SEPARATOR = ":"


class Component(NamedTuple):
    given: tuple[ParsedOption, ...]
    command: tuple[str, ...] = ()
    """Command with its arguments; only `gqrun` has several."""


def split_options(command: str, arguments: Arguments) -> tuple[Arguments, list[list[ParsedOption]]]:
    """`gqsub` and `gqalloc`: options in each component, operands behind the last.  → (the first, the others)"""
    others: list[list[ParsedOption]] = []
    operands = list(arguments.operands)
    while operands[:1] == [SEPARATOR]:
        given, operands = parse(operands[1:], options_of(command), operands_end_options=True, command=command)
        others.append(given)
    return Arguments(arguments, operands), others


def split_commands(command: str, arguments: Arguments) -> list[Component]:
    """`gqrun`: a command in each component; one without runs that of the next.

    A `:` among the arguments of a command is a separator only before an option: other programs use it, too.
    """
    given: Iterable[ParsedOption] = arguments
    words = list(arguments.operands)
    found: list[Component] = []
    while (end := _separator(words)) is not None:
        found.append(Component(tuple(given), tuple(words[:end])))
        given, words = parse(words[end + 1 :], options_of(command), operands_end_options=True, command=command)
    found.append(Component(tuple(given), tuple(words)))
    for index in range(len(found) - 2, -1, -1):
        if not found[index].command:
            found[index] = found[index]._replace(command=found[index + 1].command)
    return found


def _separator(words: list[str]) -> int | None:
    for index, word in enumerate(words[:-1]):
        if word == SEPARATOR and (words[index + 1].startswith("-") or not index):
            return index
    return None


def component_arguments(
    command: str,
    given: Sequence[Iterable[ParsedOption]],
    environ: Mapping[str, str],
    header: Sequence[Iterable[ParsedOption]] = ((),),
) -> list[Arguments]:
    """Return the arguments of each component; exported variables belong to the first.

    A component of the command line overrides the component of the script at the same position.
    """
    first = job_arguments(command, given[0], environ, header[0])
    layers = [[*given[1:]], [*header[1:]]]
    count = max(len(layer) for layer in layers)
    said, scripted = ([*layer, *([()] * (count - len(layer)))] for layer in layers)
    return [first, *(Arguments(merge(below, above)) for below, above in zip(scripted, said, strict=True))]
