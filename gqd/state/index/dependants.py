"""Index: which waiting jobs depend on which, on the name of which, and on the clock.  Pure.

A job is in it while it waits for something that can still be met; the id of a parent is a key as long as a term
names it that is not decided.  `check` compares it with one that is made anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from gq.model.dependency import Dependency, DependencyKind, DependencyTerm
from gq.model.ids import JobId
from gq.model.state import JobState
from gq.model.tasks import task_bit, unpack_tasks
from gqd.state.records import Job

Name = tuple[str, str]
"""User, and name of the job."""


@dataclass(slots=True)
class NameGroup:
    """Jobs of one name and user of which some are singletons that wait for those before them."""

    active: dict[JobId, None] = field(default_factory=dict)
    """All that have not ended, by id; an array's record stands for its tasks."""
    waiting: dict[JobId, JobId] = field(default_factory=dict)
    """The singletons, and their place among these: their own id, or that of their array."""

    def next(self) -> list[JobId]:
        """Singletons that no other job is before."""
        first = next(iter(self.active), None)
        return [job_id for job_id, place in self.waiting.items() if first is None or place <= first]

    def add(self, job_id: JobId) -> None:
        is_last = not self.active or job_id > next(reversed(self.active))
        self.active[job_id] = None
        if not is_last:
            self.active = dict.fromkeys(sorted(self.active))


@dataclass(slots=True)
class Dependants:
    by_parent: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    """Jobs with a term about this job, or about a task of this array, that is not decided."""
    groups: dict[Name, NameGroup] = field(default_factory=dict)
    """Of the names that a singleton waits for."""
    due: dict[JobId, float] = field(default_factory=dict)
    """Jobs that wait for some minutes to pass: when the first of them have."""

    @classmethod
    def of(cls, jobs: Collection[Job]) -> Dependants:
        """Build the index of all jobs."""
        index = cls()
        singletons = [job for job in jobs if any(not term.job_id for term in open_terms(job))]
        index.groups = {name_of(job): NameGroup() for job in singletons}
        for job in jobs:
            index.enter(job, ())
        return index

    def enter(self, job: Job, jobs: Iterable[Job]) -> None:
        """The job is new in the queue, or has another name or other terms.  `jobs`: all that there are."""
        group = self.groups.get(name_of(job))
        if group is not None and is_counted(job):
            group.add(job.job_id)
        for term in open_terms(job):
            if term.kind is DependencyKind.SINGLETON:
                self._group(name_of(job), jobs).waiting[job.job_id] = place_of(job)
            elif term.since is not None:
                due_at = term.since + term.delay_s
                self.due[job.job_id] = min(due_at, self.due.get(job.job_id, due_at))
            else:
                self.by_parent.setdefault(JobId(term.job_id), {})[job.job_id] = None

    def leave(self, job: Job) -> None:
        """As it is before it changes, or after it has ended."""
        self.due.pop(job.job_id, None)
        for parent in dict.fromkeys(JobId(term.job_id) for term in (job.dependency.terms if job.dependency else ())):
            children = self.by_parent.get(parent, {})
            children.pop(job.job_id, None)
            if not children:
                self.by_parent.pop(parent, None)
        group = self.groups.get(name_of(job))
        if group is not None:
            group.active.pop(job.job_id, None)
            group.waiting.pop(job.job_id, None)
            if not group.waiting:
                del self.groups[name_of(job)]

    def _group(self, name: Name, jobs: Iterable[Job]) -> NameGroup:
        group = self.groups.get(name)
        if group is None:
            ids = sorted(job.job_id for job in jobs if is_counted(job) and name_of(job) == name)
            group = self.groups[name] = NameGroup(dict.fromkeys(ids))
        return group


def name_of(job: Job) -> Name:
    return job.user, job.spec.name


def place_of(job: Job) -> JobId:
    """Where it was queued: a task where its array was."""
    return job.job_id if job.array_job_id is None else job.array_job_id


def is_counted(job: Job) -> bool:
    return job.state is not JobState.ENDED and job.array_job_id is None


def open_terms(job: Job) -> Iterator[DependencyTerm]:
    """The terms of a waiting job that something can still decide."""
    if job.dependency is None or job.never or job.state is not JobState.PENDING:
        return
    yield from (term for term in job.dependency.terms if term.good is None)


# ── tasks that leave their array ──────────────────────────────────────────────────────────────────────────────


def of_task(record: Job, task: int) -> tuple[Dependency | None, str]:
    """What a task waits for that leaves the record, and why that can never be."""
    if record.dependency is None or record.ready & task_bit(task):
        return None, ""
    own = of_one_task(record.dependency, task)
    return own if own.terms else None, record.never


def of_one_task(dependency: Dependency, task: int) -> Dependency:
    """What an array waits for, as one of its tasks does."""
    terms = tuple([own for term in dependency.terms if (own := _own(term, task)) is not None])
    return Dependency(terms, dependency.is_any)


def _own(term: DependencyTerm, task: int) -> DependencyTerm | None:
    """Of ``aftercorr`` its own counterpart; None: that has ended well."""
    if term.kind is not DependencyKind.AFTERCORR:
        return term
    if term.good is not None and unpack_tasks(term.good) & task_bit(task):
        return None
    return msgspec.structs.replace(term, kind=DependencyKind.AFTEROK, task=task, good=None)
