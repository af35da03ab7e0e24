"""The result type of the renderers, and words that several of them use.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gq.model.explanation import JobName
from gq.units import format_duration

MAX_NAMED = 4
"""Number of jobs or nodes that a sentence names; it counts the others."""


class Context(NamedTuple):
    """The job that is explained, and the names of the jobs that the facts mention by their ids."""

    job: JobName
    name_of: Callable[[int], JobName | None]

    def label_of(self, job_id: int) -> str:
        known = self.name_of(job_id)
        return str(job_id) if known is None else known.label

    def described(self, job_id: int) -> str:
        """``job 7 (ada: train)``"""
        known = self.name_of(job_id)
        return f"job {job_id}" if known is None else f"job {known.label} ({known.user}: {known.name})"

    def labels(self, job_ids: Sequence[int]) -> list[str]:
        """The labels of those jobs that are still known."""
        return [known.label for job_id in job_ids if (known := self.name_of(job_id)) is not None]


class Sentence(NamedTuple):
    """A fact in words; instants are written as ``@{seconds}``."""

    why: str
    hint: str = ""
    """A change that would help."""
    lead: str = ""
    """The first part of `why`, where that ends with a colon instead of a semicolon."""


def mark(at: float) -> str:
    """An instant for a sentence, truncated to whole seconds as everywhere, so that equal instants look equal."""
    return f"@{{{int(at)}}}"


def names_of(names: Sequence[str]) -> str:
    """The first few names, and the number of the others."""
    named = ", ".join(names[:MAX_NAMED])
    return f"{named} and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else named


def shorter_hint(label: str, longest_s: int | None) -> str:
    """A hint: the time limit with which a job could start now; empty: none of a minute or more."""
    if longest_s is None:
        return f"with a time limit that ends before then it could start now: gqctl update {label} --time=TIME"
    if longest_s < 60:
        return ""
    time = format_duration(longest_s // 60 * 60)
    return f"with --time={time} or less it could start now: gqctl update {label} --time={time}"
