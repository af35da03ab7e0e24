"""GNU getopt over a table of options: one grammar for command lines, script headers and input variables.  Pure.

The module owns how options are *written*: ``--name value``, ``--name=value``, ``-n value``, ``-nvalue``, bundled flags
(``-hr``), optional arguments (attached only, as in ``-K1`` and ``--nice=5``), ``--``, and operands anywhere or only
first.  Readers of the options interpret the values: values stay text, together with their place, so that every message
can name the place.  Typer is not used to parse: it has no optional arguments and no prefixes, and costs more start-up
time than all the rest of a command; it still writes the help and the completions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from gq.errors import UsageError
from gq.near_miss import suggestion
from gq.request.option import Option, ParsedOption, bad_value
from gq.units import MAX_COUNT

T = TypeVar("T")
MAX_DIGITS = 18
"""Maximum number of digits of an integer; no setting needs more, and longer numbers take time to read."""


# ── reading words ─────────────────────────────────────────────────────────────────────────────────────────────


class _Table:
    """Options by name, alias and letter."""

    def __init__(self, options: Iterable[Option], abbreviate: bool, command: str) -> None:
        self.by_name: dict[str, Option] = {}
        self.by_letter: dict[str, Option] = {}
        self._abbreviate = abbreviate
        self._command = command
        for option in options:
            for name in (option.name, *option.aliases):
                self.by_name[name] = option
            if option.letter:
                self.by_letter[option.letter] = option

    def long(self, name: str, source: str) -> Option:
        option = self.by_name.get(name)
        if option is None and self._abbreviate:
            option = self._by_prefix(name, source)
        if option is None:
            shown = [f"--{known}" for known, one in self.by_name.items() if not one.is_hidden]
            raise _unknown(f"--{name}", shown, source, self._command)
        return option

    def short(self, letter: str, source: str) -> Option:
        option = self.by_letter.get(letter)
        if option is None:
            raise _unknown(f"-{letter}", [], source, self._command)
        return option

    def _by_prefix(self, prefix: str, source: str) -> Option | None:
        matches = {self.by_name[name].name: name for name in self.by_name if name.startswith(prefix)}
        if len(matches) > 1:
            choices = ", ".join(f"`--{name}`" for name in sorted(matches.values()))
            raise UsageError("ambiguous_option", f"{_at(source)}`--{prefix}` is ambiguous", f"it may mean {choices}")
        return self.by_name[next(iter(matches.values()))] if matches else None


def _at(source: str) -> str:
    return f"{source}: " if source else ""


def _unknown(written: str, known: list[str], source: str, command: str) -> UsageError:
    from gq.request.slurm_options import refusal  # loaded only when something is wrong

    if found := refusal(command, written, source):
        return found
    return UsageError("unknown_option", f"{_at(source)}unknown option `{written}`", suggestion(written, known))


def parse(
    words: Sequence[str],
    options: Iterable[Option],
    *,
    source: str = "",
    abbreviate: bool = False,
    operands_end_options: bool = False,
    command: str = "",
) -> tuple[list[ParsedOption], list[str]]:
    """Parse `words` into the options given, in order, and the operands.

    `abbreviate`: an unambiguous prefix of a long name is accepted.  `operands_end_options`: everything after the first
    operand is an operand (a command and its own options).  `command`: the command of these options (``gqsub``), which
    selects the hint for an option that Slurm has and gq does not.
    """
    table = _Table(options, abbreviate, command)
    given: list[ParsedOption] = []
    operands: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            return given, operands + rest[::-1]
        if word.startswith("--"):
            given.append(_long(word, rest, table, source))
        elif word.startswith("-") and word != "-":
            given.extend(_letters(word, rest, table, source))
        else:
            operands.append(word)
            if operands_end_options:
                return given, operands + rest[::-1]
    return given, operands


def _long(word: str, rest: list[str], table: _Table, source: str) -> ParsedOption:
    name, equals, value = word[2:].partition("=")
    option = table.long(name, source)
    written = f"--{option.name}"
    if equals and not option.takes_value:
        raise UsageError("no_value", f"{_at(source)}`{written}` takes no value, not `{value}`")
    if not equals and option.takes_value:
        value = _argument(option, written, rest, source)
    return ParsedOption(option.name, value, written, source)


def _letters(word: str, rest: list[str], table: _Table, source: str) -> Iterable[ParsedOption]:
    position = 1
    while position < len(word):
        option = table.short(word[position], source)
        written = f"-{word[position]}"
        position += 1
        if not option.takes_value:
            yield ParsedOption(option.name, "", written, source)
            continue
        glued = word[position:]
        value = glued if glued else _argument(option, written, rest, source)
        yield ParsedOption(option.name, value, written, source)
        return


def _argument(option: Option, written: str, rest: list[str], source: str) -> str:
    if option.if_bare is not None:
        return option.if_bare
    if not rest:
        raise UsageError("missing_value", f"{_at(source)}`{written}` needs a value", f"{written} {option.metavar}")
    return rest.pop()


# ── parsed options ────────────────────────────────────────────────────────────────────────────────────────────


class Arguments:
    """The options, by long name, and operands of a command.  Getters raise errors that name the value's place."""

    __slots__ = ("_given", "operands")

    def __init__(self, given: Iterable[ParsedOption], operands: Sequence[str] = ()) -> None:
        self._given: dict[str, list[ParsedOption]] = {}
        for one in given:
            self._given.setdefault(one.name, []).append(one)
        self.operands = tuple(operands)

    def __iter__(self) -> Iterator[ParsedOption]:
        """Yield all options given, grouped by name."""
        return (given for same in self._given.values() for given in same)

    def has(self, name: str) -> bool:
        return name in self._given

    def last(self, name: str) -> ParsedOption | None:
        """Return the last use of the option, which counts, or None."""
        found = self._given.get(name)
        return found[-1] if found else None

    def every(self, name: str) -> tuple[ParsedOption, ...]:
        return tuple(self._given.get(name, ()))

    def text(self, name: str, default: str = "") -> str:
        given = self.last(name)
        return default if given is None else given.value

    def read(self, name: str, reader: Callable[[str], T]) -> T | None:
        """Return the value converted by `reader`, whose ``ValueError`` becomes an error about the option."""
        given = self.last(name)
        if given is None:
            return None
        try:
            return reader(given.value)
        except ValueError as error:
            raise bad_value(given, str(error)) from error

    def integer(self, name: str, at_least: int | None = None, at_most: int = MAX_COUNT) -> int | None:
        return self.read(name, lambda text: whole_number(text, at_least, at_most))

    def choice(self, name: str, choices: Mapping[str, T], default: T) -> T:
        """Return the meaning of the option's value, which must be a key of `choices` in any letter case."""
        given = self.last(name)
        if given is None:
            return default
        if given.value.lower() not in choices:
            way_out = suggestion(given.value, choices, f"use one of {', '.join(choices)}")
            raise bad_value(given, f"`{given.value}` is not a valid value", way_out)
        return choices[given.value.lower()]

    def words(self, name: str) -> tuple[str, ...]:
        """Return all values of a repeatable option with lists: ``-j 1,2 -j 3`` → ``1 2 3``."""
        return self.items(name, str)

    def items(self, name: str, reader: Callable[[str], T]) -> tuple[T, ...]:
        """Return all values of a repeatable option with lists, each converted by `reader`."""
        return self.gather(name, lambda text: [reader(word.strip()) for word in text.split(",") if word.strip()])

    def gather(self, name: str, reader: Callable[[str], Iterable[T]]) -> tuple[T, ...]:
        """Return the results of `reader` for every value of a repeatable option."""
        found: list[T] = []
        for given in self.every(name):
            try:
                found.extend(reader(given.value))
            except ValueError as error:
                raise bad_value(given, str(error)) from error
        return tuple(found)


def whole_number(text: str, at_least: int | None = None, at_most: int | None = None) -> int:
    """Parse an integer within bounds; ``ValueError`` with a sentence."""
    word = text.strip()
    digits = word[1:] if word[:1] in "+-" else word
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"`{text}` is not a whole number")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"{word[:40]} is too {'small' if word.startswith('-') else 'large'}")
    number = int(word)
    if at_least is not None and number < at_least:
        raise ValueError(f"{number} is too small; the minimum is {at_least}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{number} is too large; the maximum is {at_most}")
    return number
