"""Job dependencies (``--dependency``): conditions on other jobs that a pending job waits for.  Pure.

    ====================  ==========================================================================================
    after:J[+minutes]     J started (at least `minutes` ago), or was cancelled before its start
    afterany:J            J ended
    afterok:J             J succeeded (an array: every task did)
    afternotok:J          J failed (an array: any task did)
    aftercorr:J           both are arrays: task T of this array waits until task T of J succeeded
    singleton             every job of this name and user that was queued before has ended
    ====================  ==========================================================================================

J is a job, an array or a task of one (``7_3``); ``7_[1-3,8]`` is a term for each of these tasks.  ``,`` between terms:
all of them; ``?``: any of them.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from gq.model.resource import Count
from gq.model.tasks import parse_tasks, tasks_in
from gq.near_miss import nearest

_JOB = re.compile(r"(\d{1,18})(?:_(\d{1,9}|\[[^\[\]]*\]))?(?:\+(\d{1,9}))?")
MAX_TERMS = 1000


class DependencyKind(StrEnum):
    AFTER = "after"
    AFTEROK = "afterok"
    AFTERANY = "afterany"
    AFTERNOTOK = "afternotok"
    AFTERCORR = "aftercorr"
    SINGLETON = "singleton"


class DependencyTerm(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: DependencyKind
    job_id: Count = 0
    """0 for ``singleton``."""
    task: Count | None = None
    """The array task; None: the job, or the whole array."""
    delay_s: Count = 0
    """For ``after``: seconds that must have passed since the start."""
    since: float | None = None
    """For ``after`` with a delay: when the other job started; None: not started.  Set by the controller."""
    good: str | None = None
    """For ``aftercorr``, once all tasks are decided: those that may start (`pack_tasks`).  Set by the controller."""

    def __str__(self) -> str:
        """Format the term in the syntax of ``--dependency``."""
        if self.kind is DependencyKind.SINGLETON:
            return self.kind.value
        task = "" if self.task is None else f"_{self.task}"
        delay = f"+{self.delay_s // 60}" if self.delay_s else ""
        return f"{self.kind.value}:{self.job_id}{task}{delay}"


class Dependency(msgspec.Struct, frozen=True, omit_defaults=True):
    terms: tuple[DependencyTerm, ...]
    is_any: bool = False
    """Whether a single met term is enough."""


def parse_dependency(text: str) -> Dependency:
    """Parse ``afterok:7:8,singleton`` into its terms; ValueError names the mistake and the syntax."""
    if len(_parts(text, ",")) > 1 and "?" in text:
        raise ValueError("`,` (all of them) and `?` (any of them) cannot be mixed")
    is_any = "?" in text
    terms = [term for part in _parts(text, "?" if is_any else ",") for term in _terms(part.strip())]
    _refuse_too_many(len(terms))
    return Dependency(tuple(dict.fromkeys(terms)), is_any)


def _parts(text: str, between: str) -> list[str]:
    """Split at `between` outside of brackets."""
    return re.split(rf"{re.escape(between)}(?![^\[]*\])", text)


def _refuse_too_many(count: int) -> None:
    if count > MAX_TERMS:
        raise ValueError(f"it names {count} jobs; at most {MAX_TERMS} can be named")


def _terms(text: str) -> list[DependencyTerm]:
    word, _, jobs = text.partition(":")
    try:
        kind = DependencyKind(word.lower())
    except ValueError:
        raise ValueError(f"`{word[:40]}` is not a kind of dependency; {_kind_hint(text)}") from None
    if kind is DependencyKind.SINGLETON:
        if jobs:
            raise ValueError("singleton takes no job id")
        return [DependencyTerm(kind)]
    if not jobs:
        raise ValueError(f"{kind.value} needs the id of a job, as in {kind.value}:123")
    return [term for job in _parts(jobs, ":") for term in _terms_of_job(kind, job)]


def _kind_hint(text: str) -> str:
    """Return the hint for a term without a known kind: `26` most likely means `afterok:26`."""
    if all(_JOB.fullmatch(part) for part in _parts(text, ":")):
        return f"did you mean {DependencyKind.AFTEROK.value}:{text}?"
    word, colon, jobs = text.partition(":")
    kinds = [part.value for part in DependencyKind]
    close = nearest(word, kinds)
    return f"did you mean {close}{colon}{jobs}?" if close else f"there are {', '.join(kinds)}"


def _terms_of_job(kind: DependencyKind, text: str) -> list[DependencyTerm]:
    match = _JOB.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f"`{text[:40]}` is not the id of a job; for example 123, 123_4 for a task, or 123_[1-4]")
    if match[3] is not None and kind is not DependencyKind.AFTER:
        raise ValueError(f"`+{match[3]}` (minutes after the start) works only with `after`")
    job_id, delay_s = int(match[1]), 60 * int(match[3] or 0)
    if match[2] is None:
        return [DependencyTerm(kind, job_id, None, delay_s)]
    tasks = parse_tasks(match[2].strip("[]"))
    _refuse_too_many(tasks.bit_count())
    return [DependencyTerm(kind, job_id, task, delay_s) for task in tasks_in(tasks)]


def as_asked(dependency: Dependency) -> Dependency:
    """Return the dependency without the fields that only the controller sets."""
    terms = tuple([msgspec.structs.replace(term, since=None, good=None) for term in dependency.terms])
    return Dependency(terms, dependency.is_any)


def format_dependency(dependency: Dependency) -> str:
    """Format the dependency in the syntax of `parse_dependency`."""
    return ("?" if dependency.is_any else ",").join(str(term) for term in dependency.terms)
