"""Node lists as users and Slurm write them: ``n[1-4]``, ``gpu[01-03,7],login``, and counts such as ``2(x2),1``.  Pure.

`compress` keeps the order of the names, since a job's first node has a special role; `expand` is its inverse and also
reads several brackets in one name (``r[1-2]n[1-3]``).  `expand` raises ``ValueError`` with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

MAX_NAMES = 65_536
"""Maximum number of names in one list; a longer list is taken for a mistake."""

_TRAILING_NUMBER = re.compile(r"(.*?)([0-9]+)", re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class _Name(NamedTuple):
    prefix: str
    number: str
    """The trailing digits with leading zeros; empty: the name does not end in a number."""


def _split(name: str) -> _Name:
    match = _TRAILING_NUMBER.fullmatch(name)
    return _Name(match[1], match[2]) if match else _Name(name, "")


def compress(names: Iterable[str]) -> str:
    """Format node names, keeping their order: ``("n1", "n2", "n4", "login")`` → ``n[1-2,4],login``."""
    groups: list[str] = []
    for (prefix, is_numbered), members in groupby(
        (_split(name) for name in names), lambda n: (n.prefix, bool(n.number))
    ):
        numbers = [member.number for member in members]
        if not is_numbered:
            groups.extend([prefix] * len(numbers))
        elif len(numbers) == 1:
            groups.append(prefix + numbers[0])
        else:
            groups.append(f"{prefix}[{','.join(_ranges(numbers))}]")
    return ",".join(groups)


def _ranges(numbers: Sequence[str]) -> list[str]:
    """Return the ranges: ``["1", "2", "4"]`` → ``["1-2", "4"]``; the numbers of a range have the same padding."""
    ranges: list[str] = []
    first = last = numbers[0]
    for number in numbers[1:]:
        if number == f"{int(last) + 1:0{len(last)}}":
            last = number
            continue
        ranges.append(_range(first, last))
        first = last = number
    return [*ranges, _range(first, last)]


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"


def expand(text: str) -> tuple[str, ...]:
    """Parse a node list, ignoring blanks around names: ``n[1-2,4],login`` → ``("n1", "n2", "n4", "login")``."""
    names: list[str] = []
    for word in _words(text):
        names.extend(_expand_word(word, text))
        if len(names) > MAX_NAMES:
            raise ValueError(f"`{text[:60]}` names more than {MAX_NAMES} nodes")
    return tuple(names)


def _words(text: str) -> list[str]:
    """Split a node list at commas outside of brackets."""
    words, depth, word = [], 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"`{text}` is not a node list: its brackets do not match")
        if letter == "," and not depth:
            words.append(word.strip())
            word = ""
        else:
            word += letter
    if depth:
        raise ValueError(f"`{text}` is not a node list: its brackets do not match")
    words.append(word.strip())
    return [word for word in words if word]


def _expand_word(word: str, text: str) -> list[str]:
    """Return all names of one word: the product of its literals and brackets."""
    names = [""]
    for literal, inside in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", word):
        choices = [literal] if literal else _numbers(inside, text)
        if len(names) * len(choices) > MAX_NAMES:
            raise ValueError(f"`{text[:60]}` names more than {MAX_NAMES} nodes")
        names = [name + choice for name in names for choice in choices]
    return names


def _numbers(inside: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise ValueError(f"`{text}` is not a node list: `{part}` is neither a number nor a range")
        low, high = match[1], match[2] or match[1]
        if int(high) - int(low) >= MAX_NAMES:
            raise ValueError(f"`{text[:60]}` names more than {MAX_NAMES} nodes")
        numbers.extend(f"{number:0{len(low)}}" for number in range(int(low), int(high) + 1))
    return numbers


def compress_counts(counts: Iterable[int]) -> str:
    """Format one count per node, as in ``SLURM_TASKS_PER_NODE``: ``(2, 2, 1)`` → ``2(x2),1``."""
    words = []
    for count, run in groupby(counts):
        times = len(list(run))
        words.append(str(count) if times == 1 else f"{count}(x{times})")
    return ",".join(words)
