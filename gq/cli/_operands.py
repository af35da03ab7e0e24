"""Operands of commands: none missing, none too many, each read with a complaint that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gq.errors import UsageError
from gq.getopt import Arguments

T = TypeVar("T")


def operands(arguments: Arguments, reader: Callable[[str], T], what: str, at_most: int | None = None) -> tuple[T, ...]:
    """At least one operand, each read by `reader`; lists with commas count as several."""
    words = [word for operand in arguments.operands for word in operand.split(",") if word]
    if not words:
        raise UsageError("missing_operand", f"{what} is missing")
    if at_most is not None and len(words) > at_most:
        raise UsageError("extra_operand", f"`{words[at_most]}` is one too many", f"give {at_most} {what}")
    return tuple(read(reader, word) for word in words)


def read(reader: Callable[[str], T], word: str) -> T:
    try:
        return reader(word)
    except ValueError as error:
        rule, _, way_out = str(error).partition("; ")
        raise UsageError("bad_value", rule, way_out) from error


def refuse_operands(arguments: Arguments, hint: str = "") -> None:
    if arguments.operands:
        raise UsageError("extra_operand", f"`{arguments.operands[0]}` is not expected here", hint)
