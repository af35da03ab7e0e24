"""Operands of commands: none missing, none too many, each read with a complaint that names it; and jobs among them.

Owns how jobs are named wherever a command takes one: ``123`` (of an array: all of it), ``123_4`` (a task of an
array), ``123_1-5`` and ``123_[1-5,8]`` (some of its tasks).  In the place of a number, ``last`` is the job that the
caller submitted last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from gq.cli.framework.connection import last_job_id
from gq.cli.framework.job_words import JobWord, NamedJobs
from gq.errors import UsageError
from gq.model.tasks import first_task, parse_tasks
from gq.request.getopt import Arguments, whole_number
from gq.request.option import bad_value
from gq.wire.client import JobsDone

T = TypeVar("T")
MAX_JOB_ID = 2**63 - 1
LAST = "last"


def operands(arguments: Arguments, reader: Callable[[str], T], what: str, at_most: int | None = None) -> tuple[T, ...]:
    """Read at least one operand, each by `reader`; lists with commas count as several operands."""
    words = [word for operand in arguments.operands for word in listed(operand)]
    if not words:
        raise UsageError("missing_operand", f"{what} is missing", "gqstat lists the jobs" if what == "JOB" else "")
    if at_most is not None and len(words) > at_most:
        raise UsageError("extra_operand", f"unexpected argument `{words[at_most]}`", f"give {at_most} {what}")
    return tuple(read(reader, word) for word in words)


def read(reader: Callable[[str], T], word: str) -> T:
    try:
        return reader(word)
    except ValueError as error:
        rule, _, way_out = str(error).partition("; ")
        raise UsageError("bad_value", rule, way_out) from error


def refuse_operands(arguments: Arguments, hint: str = "") -> None:
    if arguments.operands:
        raise UsageError("extra_operand", f"unexpected argument `{arguments.operands[0]}`", hint)


def listed(text: str) -> Iterator[str]:
    """Split ``7,8_[1-5,8]`` into ``7`` and ``8_[1-5,8]``, at commas outside brackets."""
    depth = begin = 0
    for place, letter in enumerate(f"{text},"):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            if word := text[begin:place].strip():
                yield word
            begin = place + 1
    if depth > 0 and (word := text[begin:].strip()):
        yield word


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def job_id(text: str) -> int:
    """Read ``123``, or ``last``, for which the controller is asked; ``ValueError`` for any other word."""
    if text == LAST:
        return last_job_id()
    try:
        return whole_number(text, 1, MAX_JOB_ID)
    except ValueError:
        raise ValueError(f"`{text}` is not a job id; use a number such as 123, or `last`") from None


def job_word(text: str) -> JobWord:
    """Read ``123``, ``123_4``, ``123_1-5``, ``123_[1-5,8]``; ``ValueError`` for any other word."""
    job, underscore, tasks = text.partition("_")
    if not underscore:
        return JobWord(job_id(text))
    if tasks.startswith("[") and tasks.endswith("]"):
        tasks = tasks[1:-1]
    return JobWord(job_id(job), parse_tasks(tasks))


def one_job(text: str) -> tuple[int, int | None]:
    """Read a job, or one task of an array: ``(123, None)``, ``(123, 4)``."""
    word = job_word(text)
    if word.tasks.bit_count() > 1:
        raise ValueError(f"`{text}` names several tasks; give one, such as {word.job_id}_{first_task(word.tasks)}")
    return word.job_id, word.task


def refusals(done: JobsDone) -> Iterator[str]:
    """Yield a line for each refused job; tasks of an array with the same reason share a line."""
    words = {job_id: job_word(label) for job_id, label in done.labels}
    together: dict[tuple[int, str, bool], int] = {}
    for one, why in done.refused:
        word = words.get(one, JobWord(one))
        alike = (word.job_id, why, bool(word.tasks))
        together[alike] = together.get(alike, 0) | word.tasks
    for (job, why, _), tasks in together.items():
        yield f"job {JobWord(job, tasks)}: {why}"


def jobs_named(arguments: Arguments) -> NamedJobs:
    """Return the jobs that the operands name, at least one."""
    return NamedJobs.of(operands(arguments, job_word, "JOB"))


def with_last_job(text: str) -> str:
    """Replace ``last`` in a dependency by the caller's last job: ``afterok:last`` → ``afterok:123``."""
    return re.sub(rf"(?<=:){LAST}(?![A-Za-z0-9])", lambda _: str(job_id(LAST)), text)


def words_of(arguments: Arguments, option: str, reader: Callable[[str], T]) -> tuple[T, ...]:
    """Read the values of a repeatable option that holds lists with brackets: ``-j 7,8_[1-5,8]``."""
    found: list[T] = []
    for given in arguments.every(option):
        try:
            found.extend(reader(word) for word in listed(given.value))
        except ValueError as error:
            raise bad_value(given, str(error)) from error
    return tuple(found)
