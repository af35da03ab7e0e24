"""Parses ``#GQ`` and ``#SBATCH`` lines in the header of a batch script into options.  Pure.

The header ends at the first line that is a command.  Lines are split as a shell splits them: quotes, backslashes, and
comments that begin a word.  A script with ``#GQ`` lines uses only those; in ``#SBATCH`` lines long names may be
abbreviated (GNU getopt), and options without effect in gq are accepted and noted.  A line ``hetjob`` begins the next
component of a het job.  A line that looks like a header line but would be a comment is refused: a misspelt mark
(``#GQ--gpus=1``, ``# SBATCH -n4``), a line after the first command, ``#PBS`` and ``#BSUB``.  Every message names file
and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gq.errors import UsageError
from gq.request.getopt import parse
from gq.request.option import Option, ParsedOption
from gq.request.options import NO_EFFECT, SUB, header_options

GQ = "#GQ"
SBATCH = "#SBATCH"
SCRON = "#SCRON"
FOREIGN = ("#PBS", "#BSUB")
"""Marks of other systems, whose options gq does not read."""

# Patterns are compiled only when a script has a header, since most submissions have none.
_WORD = r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+"""
_HETJOB = ("hetjob", "packjob")
_PART = r"""\\(?P<escaped>.)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<plain>[^"'\\]+)"""
_ESCAPED_IN_QUOTES = r'\\(["\\$`])'
_LOOK_ALIKE = r"\s*#\s*(?P<mark>gq|sbatch)\s*(?=--?[a-z])"
"""Matches a comment spelt like a header line, in any letter case; ``##SBATCH`` disables a line on purpose."""
_MENTION = r"#\s*(?:gq|sbatch|pbs|bsub)"
_HERE_DOCUMENT = r"(?<!<)<<(?!<)-?\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)"
_SHELL = r"#!.*\b(?:ba|da|k|mk|z)?sh\b"


class Header(NamedTuple):
    """The options in a script's header."""

    given: tuple[ParsedOption, ...] = ()
    notes: tuple[str, ...] = ()
    """Accepted options without effect, to be reported on stderr."""
    others: tuple[tuple[ParsedOption, ...], ...] = ()
    """For a het job: the options of each component after the first."""

    @property
    def components(self) -> tuple[tuple[ParsedOption, ...], ...]:
        return (self.given, *self.others)


class _Line(NamedTuple):
    number: int
    mark: str
    text: str
    """The rest of the line, after the mark."""
    is_late: bool = False
    """Whether the line is after the first command."""
    misspelt: str = ""
    """The whole line, if it only looks like a header line."""


def read_header(script: str, file: str) -> Header:
    """Read the options in the header of `script`; `file` is its name in messages."""
    lines = list(_marked_lines(script))
    marks = {line.mark for line in lines if not line.is_late}
    mark = GQ if GQ in marks else SBATCH
    _refuse_misplaced(lines, file, GQ in marks)
    table = header_options() if mark == GQ else _sbatch_options()
    no_effect = frozenset(option.name for option in NO_EFFECT) if mark == SBATCH else frozenset()
    components: list[list[ParsedOption]] = [[]]
    notes: list[str] = []
    for line in lines:
        if line.mark != mark or line.is_late:
            continue
        options, begins_another = _read_line(line, f"{file}:{line.number}", table)
        if begins_another:
            components.append([])
        for option in options:
            if option.name in no_effect:
                notes.append(f"{option.source}: {option.written} has no effect")
            else:
                components[-1].append(option)
    return Header(tuple(components[0]), tuple(notes), tuple(tuple(option) for option in components[1:]))


class OptionLine(NamedTuple):
    """The options in one line of a crontab."""

    given: tuple[ParsedOption, ...]
    notes: tuple[str, ...]
    """Notes as in `Header`."""


def option_line(line: str, source: str, more: Sequence[Option] = ()) -> OptionLine | None:
    """Read a comment with options (``#GQ``, ``#SBATCH``, ``#SCRON``), those of `more`, too; None for other comments."""
    mark = line.split(None, 1)[0]
    if mark not in (GQ, SBATCH, SCRON):
        if match := re.match(_LOOK_ALIKE, line, re.IGNORECASE):
            raise _misspelt(source, line.strip(), f"#{match['mark'].upper()}", line[match.end() :])
        return None
    header_line = _Line(0, SBATCH if mark == SCRON else mark, line[len(mark) :])
    table = header_options() if mark == GQ else _sbatch_options()
    options, begins_another = _read_line(header_line, source, (*table, *more))
    if begins_another:
        raise UsageError(
            "bad_header", f"{source}: a crontab entry cannot have components", "use --role for the parts of a job"
        )
    no_effect = frozenset(option.name for option in NO_EFFECT) if mark != GQ else frozenset()
    notes = tuple(f"{source}: {option.written} has no effect" for option in options if option.name in no_effect)
    return OptionLine(tuple(option for option in options if option.name not in no_effect), notes)


def _sbatch_options() -> tuple[Option, ...]:
    idle = {option.name for option in NO_EFFECT}
    return (*(option for option in header_options() if option.name not in idle), *NO_EFFECT)


def _marked_lines(script: str) -> Iterator[_Line]:
    """Yield header lines, and lines that look like header lines, of the whole script."""
    if re.search(_MENTION, script, re.IGNORECASE) is None:
        return
    marks, look_alike = (GQ, SBATCH, *FOREIGN), re.compile(_LOOK_ALIKE, re.IGNORECASE)
    is_late = False
    for number, line in _lines_outside_of_texts(script):
        is_late = is_late or bool(line.strip() and not line.lstrip().startswith("#"))
        mark = next(
            (prefix for prefix in marks if line == prefix or (line.startswith(prefix) and line[len(prefix)].isspace())),
            "",
        )
        if mark:
            yield _Line(number, mark, line[len(mark) :], is_late)
        elif not is_late and (match := look_alike.match(line)):
            yield _Line(number, f"#{match['mark'].upper()}", line[match.end() :], is_late, line.strip())


def _lines_outside_of_texts(script: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines outside of here-documents and Python's long strings, which may hold another script."""
    is_shell, here_document = re.match(_SHELL, script) is not None, re.compile(_HERE_DOCUMENT)
    text_ends_at = ""
    for number, whole in enumerate(script.split("\n"), 1):
        line = whole.rstrip("\r")
        if text_ends_at:
            is_end = line.strip() == text_ends_at if is_shell else line.count(text_ends_at) % 2 == 1
            text_ends_at = "" if is_end else text_ends_at
            continue
        yield number, line
        if line.startswith("#"):
            continue
        if is_shell:
            match = here_document.search(line)
            text_ends_at = match["end"] if match else ""
        else:
            text_ends_at = next((one for one in ('"""', "'''") if line.count(one) % 2), "")


def _misspelt(place: str, line: str, mark: str, options: str) -> UsageError:
    rule = f"{place}: `{line[:60]}` is a comment, not a header line"
    return UsageError(
        "bad_header", rule, f"write `{mark} {options.strip()[:60]}`, or begin it with `##` to keep it a comment"
    )


def _refuse_misplaced(lines: Sequence[_Line], file: str, has_gq: bool) -> None:
    """Refuse lines that would silently be comments; beside ``#GQ`` lines, marks of other systems are ignored."""
    for line in lines:
        if has_gq and line.mark != GQ:
            continue
        place = f"{file}:{line.number}"
        if line.misspelt:
            raise _misspelt(place, line.misspelt, line.mark, line.text)
        if line.mark in FOREIGN and not line.is_late:
            rule = f"{place}: this version does not read {line.mark} lines"
            hint = (
                f"write its options as {GQ} lines, for example `{GQ} --time=2h`; then the {line.mark} lines are ignored"
            )
            raise UsageError("bad_header", rule, hint)
        if line.is_late and line.mark not in FOREIGN:
            rule = f"{place}: this {line.mark} line comes after the first command of the script"
            raise UsageError("bad_header", rule, "move it up, above the first command")


def _read_line(line: _Line, source: str, table: Sequence[Option]) -> tuple[list[ParsedOption], bool]:
    """Return the line's options, and whether the line begins another component."""
    words, abbreviate = _words(line.text, source), line.mark == SBATCH
    given, operands = parse(words, table, source=source, abbreviate=abbreviate, command=SUB)
    odd = next((word for word in operands if word not in _HETJOB), "")
    if odd:
        rule = f"{source}: `{odd}` is not an option"
        raise UsageError("bad_header", rule, f"{line.mark} lines hold options only, such as --time=2h")
    return given, bool(operands)


def _words(text: str, source: str) -> list[str]:
    """Split a line into words as a POSIX shell does, without expanding anything."""
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
                "bad_header",
                f"{source}: a quotation mark is not closed, or a backslash ends the line",
                "close the quotes",
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
