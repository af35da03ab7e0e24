"""Index of pending jobs with open dependencies: by parent job, by job name (singleton) and by due time.  Pure.

A job is in the index while it has a dependency that can still be met; a parent is a key while an open term names it.
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
"""(user, job name)."""


@dataclass(slots=True)
class NameGroup:
    """The jobs of one user and name among which singletons wait for earlier ones."""

    active: dict[JobId, None] = field(default_factory=dict)
    """Jobs that have not ended, in the order of their ids; an array's record stands for its tasks."""
    waiting: dict[JobId, JobId] = field(default_factory=dict)
    """Singleton → its position in the group: its own id, or its array's id."""

    def next(self) -> list[JobId]:
        """Singletons without an earlier active job."""
        first = next(iter(self.active), None)
        return [job_id for job_id, position in self.waiting.items() if first is None or position <= first]

    def add(self, job_id: JobId) -> None:
        is_last = not self.active or job_id > next(reversed(self.active))
        self.active[job_id] = None
        if not is_last:
            self.active = dict.fromkeys(sorted(self.active))


@dataclass(slots=True)
class Dependants:
    """Pending jobs with open dependencies."""

    by_parent: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    """Job, or array → jobs with an open term about it, or about one of the array's tasks."""
    groups: dict[Name, NameGroup] = field(default_factory=dict)
    """Groups of the names for which a singleton waits."""
    due: dict[JobId, float] = field(default_factory=dict)
    """Job with ``after`` delays → end of the shortest remaining delay."""

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
        """Add a job that is new, or whose name or terms have changed.  `jobs`: all jobs of the cluster."""
        group = self.groups.get(name_of(job))
        if group is not None and is_counted(job):
            group.add(job.job_id)
        for term in open_terms(job):
            if term.kind is DependencyKind.SINGLETON:
                self._group(name_of(job), jobs).waiting[job.job_id] = group_position(job)
            elif term.since is not None:
                due_at = term.since + term.delay_s
                self.due[job.job_id] = min(due_at, self.due.get(job.job_id, due_at))
            else:
                self.by_parent.setdefault(JobId(term.job_id), {})[job.job_id] = None

    def leave(self, job: Job) -> None:
        """Remove a job before its name or terms change, or after its end."""
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


def group_position(job: Job) -> JobId:
    """Position of the job among the jobs of its name: its own id, or its array's id."""
    return job.job_id if job.array_job_id is None else job.array_job_id


def is_counted(job: Job) -> bool:
    return job.state is not JobState.ENDED and job.array_job_id is None


def open_terms(job: Job) -> Iterator[DependencyTerm]:
    """Terms of a pending job that can still be decided either way."""
    if job.dependency is None or job.never or job.state is not JobState.PENDING:
        return
    yield from (term for term in job.dependency.terms if term.good is None)


# ── tasks that leave their array ──────────────────────────────────────────────────────────────────────────────


def of_task(record: Job, task: int) -> tuple[Dependency | None, str]:
    """Dependency of a task that leaves the array's record, and why the dependency can never be met."""
    if record.dependency is None or record.ready & task_bit(task):
        return None, ""
    own = of_one_task(record.dependency, task)
    return own if own.terms else None, record.never


def of_one_task(dependency: Dependency, task: int) -> Dependency:
    """The array's dependency from the point of view of one of its tasks."""
    terms = tuple([own for term in dependency.terms if (own := _own(term, task)) is not None])
    return Dependency(terms, dependency.is_any)


def _own(term: DependencyTerm, task: int) -> DependencyTerm | None:
    """The term for one task: of ``aftercorr`` the corresponding task; None: that one has succeeded."""
    if term.kind is not DependencyKind.AFTERCORR:
        return term
    if term.good is not None and unpack_tasks(term.good) & task_bit(task):
        return None
    return msgspec.structs.replace(term, kind=DependencyKind.AFTEROK, task=task, good=None)
