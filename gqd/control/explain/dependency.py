"""Explanations about dependencies: the jobs that a job waits for, and why it may never start.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from gq.model.dependency import DependencyKind, DependencyTerm, format_dependency
from gq.model.ids import JobId
from gq.model.state import JobState, Reason, state_word
from gq.model.tasks import format_tasks
from gqd.control.explain.explanation import Explanation
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.index.queue import startable_tasks
from gqd.state.records import Job


def wait_of(job: Job) -> planned.DependsOn | None:
    """The dependency that keeps a pending job, or all tasks of an array, from starting; None: none does."""
    if job.dependency is None or (job.array is not None and startable_tasks(job)):
        return None
    return planned.DependsOn(terms=format_dependency(job.dependency), never=job.never or lost_tasks(job))


def explain(cluster: Cluster, job: Job, wait: planned.DependsOn) -> Explanation:
    terms = job.dependency.terms if job.dependency is not None else ()
    blockers = tuple(dict.fromkeys(term.job_id for term in terms if JobId(term.job_id) in cluster.jobs))
    is_any = job.dependency is not None and job.dependency.is_any
    still_open = tuple(_open(cluster, term) for term in terms)
    wait = replace(wait, has_failed=bool(job.never), is_any=is_any, open=still_open)
    if wait.never:
        return Explanation(Reason.DEPENDENCY_NEVER.value, (wait,), blockers)
    due = [term.since + term.delay_s for term in terms if term.since is not None]
    expected = (min(due) if is_any else max(due)) if due and len(due) == len(terms) else None
    return Explanation(Reason.DEPENDENCY.value, (wait,), blockers, expected)


def _open(cluster: Cluster, term: DependencyTerm) -> planned.OpenTerm:
    open_term = planned.OpenTerm(
        kind=term.kind, job_id=term.job_id, task=term.task, delay_s=term.delay_s, since=term.since
    )
    parent = cluster.jobs.get(JobId(term.job_id))
    if parent is None:
        return open_term
    array = parent.array
    task_id = array.jobs.get(term.task) if array is not None and term.task is not None else None
    state_of = parent if task_id is None else cluster.jobs[task_id]
    is_pending_array = array is not None and term.task is None and parent.state is JobState.PENDING
    return replace(
        open_term,
        label=parent.label,
        user=parent.user,
        name=parent.spec.name,
        state=state_word(state_of.state, state_of.outcome).lower(),
        tasks_pending=array.waiting.bit_count() if array is not None and is_pending_array else None,
        is_gate=parent.spec.is_gate,
    )


def hangs_on_failure(cluster: Cluster, job: Job) -> bool:
    """Whether the job can start only after the failure of a job that it depends on, directly or indirectly."""
    return any(
        term.kind is DependencyKind.AFTERNOTOK for one in line_of(cluster, job) for term in _terms_that_may_be_met(one)
    )


def line_of(cluster: Cluster, job: Job) -> Iterator[Job]:
    """The job and all jobs that it depends on, directly or indirectly."""
    waiting, seen = [job], {job.job_id}
    while waiting:
        one = waiting.pop()
        yield one
        known = (cluster.jobs.get(JobId(term.job_id)) for term in _terms_that_may_be_met(one))
        parents = [parent for parent in known if parent is not None]
        waiting += [parent for parent in parents if parent.job_id not in seen]
        seen.update(parent.job_id for parent in parents)


def _terms_that_may_be_met(job: Job) -> tuple[DependencyTerm, ...]:
    return job.dependency.terms if job.dependency is not None and not job.never else ()


def lost_tasks(job: Job) -> str:
    """The tasks of an array that can never start while others may, since their counterparts did not succeed.

    A counterpart may also be missing: an array may have tasks that the array it depends on does not have.
    """
    if job.array is None or job.dependency is None or any(term.good is None for term in job.dependency.terms):
        return ""
    lost = job.array.waiting & ~job.ready
    if not lost:
        return ""
    what, others = ("task", "that task") if lost.bit_count() == 1 else ("tasks", "those tasks")
    return f"{what} {format_tasks(lost, 8)} can never start, because {others} of {_parents(job)} did not succeed"


def _parents(job: Job) -> str:
    terms = job.dependency.terms if job.dependency is not None else ()
    ids = dict.fromkeys(term.job_id for term in terms if term.kind is DependencyKind.AFTERCORR)
    return " and ".join(f"array {job_id}" for job_id in ids) or "the other array"
