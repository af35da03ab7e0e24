"""``#GQ`` and ``#SBATCH`` lines at the head of a batch script → options.  Pure.

The head ends at the first line that is a command.  Lines are split as a shell would: quotes, backslashes, and
comments that begin a word.  A script with ``#GQ`` lines uses only those; in ``#SBATCH`` lines long names may be
abbreviated (GNU getopt), and what has no effect here is accepted and noted.  A line ``hetjob`` begins the next
component of a job whose parts ask for different things.  Every complaint names file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gq.errors import UsageError
from gq.getopt import Given, Option, parse
from gq.options import NO_EFFECT, SUB, header_options

GQ = "#GQ"
SBATCH = "#SBATCH"
SCRON = "#SCRON"
PBS = "#PBS"

# Patterns are compiled when a script has a head: most submissions have none.
_WORD = r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+"""
_HETJOB = ("hetjob", "packjob")
_PART = r"""\\(?P<escaped>.)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<plain>[^"'\\]+)"""
_ESCAPED_IN_QUOTES = r'\\(["\\$`])'


class Header(NamedTuple):
    """What a script's head says."""

    given: tuple[Given, ...] = ()
    notes: tuple[str, ...] = ()
    """For stderr: what was accepted and has no effect."""
    others: tuple[tuple[Given, ...], ...] = ()
    """Of a job with components: what each but the first says."""

    @property
    def components(self) -> tuple[tuple[Given, ...], ...]:
        return (self.given, *self.others)


class _Line(NamedTuple):
    number: int
    mark: str
    text: str


def read_header(script: str, file: str) -> Header:
    """The options in the head of `script`; `file` is its name in complaints."""
    lines = list(_head(script))
    marks = {line.mark for line in lines}
    mark = GQ if GQ in marks else SBATCH
    table = header_options() if mark == GQ else _sbatch_options()
    idle = frozenset(option.name for option in NO_EFFECT) if mark == SBATCH else frozenset()
    components: list[list[Given]] = [[]]
    notes = [f"{file}: {PBS} lines are not read in this version"] if marks == {PBS} else []
    for line in lines:
        if line.mark != mark:
            continue
        given, begins_another = _read_line(line, f"{file}:{line.number}", table)
        if begins_another:
            components.append([])
        for one in given:
            if one.name in idle:
                notes.append(f"{one.source}: {one.written} has no effect")
            else:
                components[-1].append(one)
    return Header(tuple(components[0]), tuple(notes), tuple(tuple(one) for one in components[1:]))


class OptionLine(NamedTuple):
    """What one line of a crontab says."""

    given: tuple[Given, ...]
    notes: tuple[str, ...]
    """As in `Header`."""


def option_line(line: str, source: str, more: Sequence[Option] = ()) -> OptionLine | None:
    """A comment that holds options (``#GQ``, ``#SBATCH``, ``#SCRON``), those of `more` among them; else None."""
    mark = line.split(None, 1)[0]
    if mark not in (GQ, SBATCH, SCRON):
        return None
    found = _Line(0, SBATCH if mark == SCRON else mark, line[len(mark) :])
    table = header_options() if mark == GQ else _sbatch_options()
    given, begins_another = _read_line(found, source, (*table, *more))
    if begins_another:
        raise UsageError("bad_header", f"{source}: an entry has no components", "--role names parts of a job")
    idle = frozenset(option.name for option in NO_EFFECT) if mark != GQ else frozenset()
    notes = tuple(f"{source}: {one.written} has no effect" for one in given if one.name in idle)
    return OptionLine(tuple(one for one in given if one.name not in idle), notes)


def _sbatch_options() -> tuple[Option, ...]:
    idle = {option.name for option in NO_EFFECT}
    return (*(option for option in header_options() if option.name not in idle), *NO_EFFECT)


def _head(script: str) -> Iterator[_Line]:
    """The marked lines before the first command."""
    start, number = 0, 0
    while start < len(script):
        end = script.find("\n", start)
        end = len(script) if end < 0 else end
        line, start, number = script[start:end].rstrip("\r"), end + 1, number + 1
        if not line.startswith("#"):
            if line.strip():
                return
            continue
        for mark in (GQ, SBATCH, PBS):
            if line == mark or (line.startswith(mark) and line[len(mark)].isspace()):
                yield _Line(number, mark, line[len(mark) :])


def _read_line(line: _Line, source: str, table: Sequence[Option]) -> tuple[list[Given], bool]:
    """Its options, and whether they are of another component."""
    words, abbreviate = _words(line.text, source), line.mark == SBATCH
    given, operands = parse(words, table, source=source, abbreviate=abbreviate, command=SUB)
    odd = next((word for word in operands if word not in _HETJOB), "")
    if odd:
        rule = f"{source}: `{odd}` is not an option"
        raise UsageError("bad_header", rule, f"{line.mark} lines hold options only, such as --time=2h")
    return given, bool(operands)


def _words(text: str, source: str) -> list[str]:
    """The words of a line as a POSIX shell would split it, without expanding anything."""
    word = re.compile(_WORD)
    words: list[str] = []
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text) or text[position] == "#":
            return words
        match = word.match(text, position)
        position = match.end() if match else position
        if match is None or (position < len(text) and not text[position].isspace()):
            raise UsageError(
                "bad_header", f"{source}: a quotation mark or backslash has no partner", "close the quotes"
            )
        words.append(_unquote(match[0]))


def _unquote(word: str) -> str:
    return "".join(
        part["escaped"]
        or part["single"]
        or part["plain"]
        or (re.sub(_ESCAPED_IN_QUOTES, r"\1", part["double"]) if part["double"] else "")
        for part in re.finditer(_PART, word)
    )
