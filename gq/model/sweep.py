"""Sweeps of parameters: ``lr=1e-3,1e-4 bs=32,64`` as users write them, and the values of each task.  Pure.

A sweep has a task for each combination of its values, numbered from 0; the last name varies fastest, as the last digit
of a number does.  The values of a task follow from its number, so nothing is stored for each task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import TypeAlias

from gq.model.tasks import MAX_TASK

Sweep: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""(name, its values) for each name; in a task's sweep each name has one value."""

PREFIX = "GQ_SWEEP_"
"""Prefix of a second name for each variable, which the user's environment cannot hide."""
MAX_NAMES = 64
MAX_CHARACTERS = 10_000
"""Maximum length of all values together, which are in the array's record and in every list that shows it."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PLAIN = r"[^\s,'\"\\]+"
_RESERVED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "IFS", "ENV", "BASH_ENV", "BASHOPTS",
    "SHELLOPTS", "PYTHONHOME", "PYTHONSTARTUP", "XDG_RUNTIME_DIR", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
})  # fmt: skip
_RESERVED_BEGINNINGS = ("GQ_", "SLURM_", "SLURMD_", "LD_", "BASH_FUNC_")


def parse_sweep(text: str) -> Sweep:
    """Parse a sweep; ValueError names the mistake and the syntax."""
    values_of: dict[str, tuple[str, ...]] = {}
    for name, values in _items(text):
        if name in values_of:
            raise ValueError(f"`{name}` is given twice; write {name}={','.join((*values_of[name], *values))[:60]}")
        values_of[name] = values
    sweep = tuple(values_of.items())
    check_sweep(sweep)
    return sweep


def check_sweep(sweep: Sweep) -> None:
    """Raise ValueError unless each name can be a variable of the job and the sweep is small enough for an array."""
    if not sweep:
        raise ValueError("the sweep is empty; for example --sweep 'lr=1e-3,1e-4 bs=32,64'")
    if len(sweep) > MAX_NAMES:
        raise ValueError(f"the sweep has {len(sweep)} names; the maximum is {MAX_NAMES}")
    if len({name for name, _ in sweep}) < len(sweep):
        raise ValueError("a name is given twice")
    for name, values in sweep:
        _check_name(name)
        if not values:
            raise ValueError(f"`{name}` has no values; for example {name}=1,2")
        if any("\0" in value for value in values):
            raise ValueError(f"a value of `{name}` contains a NUL character, which a variable cannot hold")
    if sum(len(value) for _, values in sweep for value in values) > MAX_CHARACTERS:
        raise ValueError(f"the values have more than {MAX_CHARACTERS} characters together; keep them in a file")
    if tasks_of(sweep) > MAX_TASK + 1:
        raise ValueError(f"it has {tasks_of(sweep)} combinations, but an array has at most {MAX_TASK + 1} tasks")


def _check_name(name: str) -> None:
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"`{name[:40]}` is not a valid variable name; use letters, digits and _")
    if name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS):
        lower = name.lower()
        other = f"my_{lower}" if lower == name else lower
        raise ValueError(f"`{name}` is a variable that programs of the job use; choose another name, such as {other}")


def tasks_of(sweep: Sweep) -> int:
    """Return the number of combinations."""
    return prod(len(values) for _, values in sweep)


def sweep_of_task(sweep: Sweep, task: int) -> Sweep:
    """Return the sweep with the one value of each name that this task has."""
    chosen: list[tuple[str, tuple[str, ...]]] = []
    for name, values in reversed(sweep):
        task, index = divmod(task, len(values))
        chosen.append((name, (values[index],)))
    return tuple(reversed(chosen))


def parameters(sweep: Sweep) -> dict[str, str]:
    """Return the parameters of a task's sweep: name → value."""
    return {name: values[0] for name, values in sweep}


def format_sweep(sweep: Sweep) -> str:
    """Format a sweep in the syntax of `parse_sweep`."""
    return " ".join(f"{name}={','.join(map(_quoted, values))}" for name, values in sweep)


def _quoted(value: str) -> str:
    if re.fullmatch(_PLAIN, value):
        return value
    return "'" + value.replace("'", "'\\''") + "'"


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────


def _items(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (name, values) of each word, with quotes and backslashes as in a shell."""
    words = _words(text)
    for word in words:
        plain = "".join(letter for letter, _ in word)
        if ("=", False) not in word:
            raise ValueError(f"`{plain[:40]}` is not NAME=VALUE,...; for example lr=1e-3,1e-4")
        at = word.index(("=", False))
        name = plain[:at]
        yield name, tuple(_values(name, word[at + 1 :]))


_Word: TypeAlias = list[tuple[str, bool]]
"""(letter, whether it was quoted); an empty quoted string is an empty letter."""


def _values(name: str, word: _Word) -> Iterator[str]:
    value: _Word = []
    for letter in (*word, (",", False)):
        if letter != (",", False):
            value.append(letter)
            continue
        if not value:
            raise ValueError(f"a value of `{name}` is empty; write {name}='' for an empty value")
        yield "".join(letter for letter, _ in value)
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
        raise ValueError(f"`{text[:60]}` ends inside {quote or 'an escape'}; close the quote")
    return [word for word in words if word]
