"""Sets of array tasks: ``1-100,200-300:10`` as users write them, and as a bit set to compute with.  Pure.

Bit n of the set is task n.  A set of a hundred thousand tasks is an integer of 12.5 kB, and removing a task or finding
the first takes a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

MAX_TASK = 1_000_000
"""The largest task number."""
MAX_PARTS = 1024
"""Maximum number of ranges in one set; each range may have a million tasks."""
READABLE_RUNS = 256
_SPAN = re.compile(r"([0-9]{1,30})(?:-([0-9]{1,30})(?::([0-9]{1,30}))?)?")


def parse_tasks(text: str) -> int:
    """Parse ``1-5,8,10-20:5`` into a set; ValueError names the mistake and the syntax."""
    parts = text.split(",")
    if len(parts) > MAX_PARTS:
        raise ValueError(f"it has {len(parts)} tasks and ranges; at most {MAX_PARTS} can be named")
    tasks = 0
    for part in parts:
        tasks |= _span(part.strip())
    return tasks


def _span(text: str) -> int:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text[:40]}` is not a task or a range of tasks; for example 1-100, 1,5,9 or 0-30:10")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if last < first:
        raise ValueError(f"`{text}` is reversed; use {last}-{first}")
    if last > MAX_TASK:
        raise ValueError(f"task {last} is over {MAX_TASK}, the largest number of a task")
    if step < 1:
        raise ValueError(f"`{text}` has a step of 0; the minimum is 1")
    return _every(step, (last - first) // step + 1) << first


def _every(step: int, count: int) -> int:
    """Return `count` bits, `step` apart, from bit 0; by doubling, since a loop over millions takes seconds."""
    if step == 1:
        return (1 << count) - 1
    bits, filled = 1, 1
    while filled < count:
        more = min(filled, count - filled)
        bits |= (bits & ((1 << (more * step)) - 1)) << (filled * step)
        filled += more
    return bits


@lru_cache(maxsize=64)
def format_tasks(tasks: int, max_parts: int | None = None) -> str:
    """Format the set in the shortest syntax of `parse_tasks`; ``...`` replaces what exceeds `max_parts` ranges."""
    parts: list[str] = []
    for index, part in enumerate(_parts(tasks)):
        if index == max_parts:
            return ",".join([*parts, "..."])
        parts.append(part)
    return ",".join(parts)


def pack_tasks(tasks: int) -> str:
    """Format the set for a database row: in the users' syntax, or if that is long, as a bit set (``0x...``)."""
    runs = (tasks & ~(tasks << 1)).bit_count()
    return format_tasks(tasks) if runs <= READABLE_RUNS else hex(tasks)


def unpack_tasks(text: str) -> int:
    """Parse the output of `pack_tasks`."""
    if not text:
        return 0
    return int(text, 16) if text.startswith("0x") else parse_tasks(text)


def _parts(tasks: int) -> Iterator[str]:
    """Yield the set's ranges; four or more single tasks at equal distance become one range with a step."""
    runs = list(_runs(tasks))
    index = 0
    while index < len(runs):
        first, last = runs[index]
        count = _evenly_apart(runs, index)
        if count >= 4:
            yield f"{first}-{runs[index + count - 1][0]}:{runs[index + 1][0] - first}"
            index += count
            continue
        yield str(first) if first == last else f"{first}-{last}"
        index += 1


def _evenly_apart(runs: list[tuple[int, int]], index: int) -> int:
    """Return how many single tasks, from run `index` on, have the distance of the first two."""
    if index + 1 == len(runs) or runs[index][0] != runs[index][1]:
        return 1
    last, step, count = runs[index][0], runs[index + 1][0] - runs[index][0], 1
    while index + count < len(runs) and runs[index + count] == (last + step, last + step):
        last, count = last + step, count + 1
    return count


def _runs(tasks: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each run of consecutive tasks, in order."""
    lowest = first_task(tasks) if tasks else 0
    bits = bin(tasks >> lowest)[:1:-1]
    first = bits.find("1")
    while first >= 0:
        end = bits.find("0", first)
        if end < 0:
            end = len(bits)
        yield lowest + first, lowest + end - 1
        first = bits.find("1", end)


def tasks_in(tasks: int) -> Iterator[int]:
    """Yield the task numbers in order."""
    for first, last in _runs(tasks):
        yield from range(first, last + 1)


def first_task(tasks: int) -> int:
    """Return the lowest task of a set that is not empty."""
    return (tasks & -tasks).bit_length() - 1


def task_bit(task: int) -> int:
    return 1 << task
