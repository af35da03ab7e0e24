"""Sweeps: ``lr=1e-3,1e-4 bs=32,64`` as people write them, and which values are a task's.  Pure.

A sweep has a task for each combination of its values, numbered from 0; the last name varies fastest, as the last
digit of a number does.  So the values of a task follow from its number, and nothing is kept for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import TypeAlias

from gq.model.tasks import MAX_TASK

Sweep: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""(name, its values) of each; of a task each has one value."""

PREFIX = "GQ_SWEEP_"
"""Before the names of variables that the user's own cannot hide."""
MAX_NAMES = 64
MAX_CHARACTERS = 10_000
"""Of all values together: they are in the record of the array, and in every list that shows it."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PLAIN = r"[^\s,'\"\\]+"
_RESERVED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "IFS", "ENV", "BASH_ENV", "BASHOPTS",
    "SHELLOPTS", "PYTHONHOME", "PYTHONSTARTUP", "XDG_RUNTIME_DIR", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
})  # fmt: skip
_RESERVED_BEGINNINGS = ("GQ_", "SLURM_", "SLURMD_", "LD_", "BASH_FUNC_")


def parse_sweep(text: str) -> Sweep:
    """What somebody wrote; ValueError says what is wrong and how it is written."""
    found: dict[str, tuple[str, ...]] = {}
    for name, values in _items(text):
        if name in found:
            raise ValueError(f"`{name}` is there twice; write {name}={','.join((*found[name], *values))[:60]}")
        found[name] = values
    sweep = tuple(found.items())
    check_sweep(sweep)
    return sweep


def check_sweep(sweep: Sweep) -> None:
    """ValueError unless each name can be a variable of the job, and all of it can be an array."""
    if not sweep:
        raise ValueError("nothing is to vary; for example --sweep 'lr=1e-3,1e-4 bs=32,64'")
    if len(sweep) > MAX_NAMES:
        raise ValueError(f"{len(sweep)} names are to vary; at most {MAX_NAMES} can")
    if len({name for name, _ in sweep}) < len(sweep):
        raise ValueError("a name is there twice")
    for name, values in sweep:
        _check_name(name)
        if not values:
            raise ValueError(f"`{name}` has no values; for example {name}=1,2")
        if any("\0" in value for value in values):
            raise ValueError(f"a value of `{name}` has a NUL in it, which no variable can hold")
    if sum(len(value) for _, values in sweep for value in values) > MAX_CHARACTERS:
        raise ValueError(f"the values have more than {MAX_CHARACTERS} characters together; keep them in a file")
    if tasks_of(sweep) > MAX_TASK + 1:
        raise ValueError(f"it comes to {tasks_of(sweep)} combinations, and an array has at most {MAX_TASK + 1} tasks")


def _check_name(name: str) -> None:
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"`{name[:40]}` cannot be the name of a variable; use letters, digits and _")
    if name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS):
        lower = name.lower()
        other = f"my_{lower}" if lower == name else lower
        raise ValueError(f"`{name}` means something to every program of the job; take another name, such as {other}")


def tasks_of(sweep: Sweep) -> int:
    """How many combinations there are."""
    return prod(len(values) for _, values in sweep)


def sweep_of_task(sweep: Sweep, task: int) -> Sweep:
    """The one value of each name that this task has."""
    own: list[tuple[str, tuple[str, ...]]] = []
    for name, values in reversed(sweep):
        task, place = divmod(task, len(values))
        own.append((name, (values[place],)))
    return tuple(reversed(own))


def parameters(sweep: Sweep) -> dict[str, str]:
    """Of a task: name → value."""
    return {name: values[0] for name, values in sweep}


def format_sweep(sweep: Sweep) -> str:
    """As `parse_sweep` reads it."""
    return " ".join(f"{name}={','.join(map(_quoted, values))}" for name, values in sweep)


def _quoted(value: str) -> str:
    if re.fullmatch(_PLAIN, value):
        return value
    return "'" + value.replace("'", "'\\''") + "'"


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────


def _items(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, values) of each word; quotes and backslashes as in a shell."""
    words = _words(text)
    for word in words:
        plain = "".join(letter for letter, _ in word)
        if ("=", False) not in word:
            raise ValueError(f"`{plain[:40]}` is not NAME=VALUE,...; for example lr=1e-3,1e-4")
        at = word.index(("=", False))
        name = plain[:at]
        yield name, tuple(_values(name, word[at + 1 :]))


_Word: TypeAlias = list[tuple[str, bool]]
"""(letter, whether it was quoted); what was quoted and is empty is an empty letter."""


def _values(name: str, word: _Word) -> Iterator[str]:
    value: _Word = []
    for letter in (*word, (",", False)):
        if letter != (",", False):
            value.append(letter)
            continue
        if not value:
            raise ValueError(f"a value of `{name}` is empty; write {name}='' if that is meant")
        yield "".join(one for one, _ in value)
        value = []


def _words(text: str) -> list[_Word]:
    words: list[_Word] = [[]]
    quote, is_escaped = "", False
    for letter in text:
        if is_escaped:
            words[-1].append((letter, True))
            is_escaped = False
        elif letter == "\\" and quote != "'":
            is_escaped = True
        elif letter == quote:
            quote = ""
            words[-1].append(("", True))
        elif quote:
            words[-1].append((letter, True))
        elif letter in "'\"":
            quote = letter
        elif letter.isspace():
            words.append([])
        else:
            words[-1].append((letter, False))
    if quote or is_escaped:
        raise ValueError(f"`{text[:60]}` ends inside of {quote or 'an escape'}; close the quote")
    return [word for word in words if word]
