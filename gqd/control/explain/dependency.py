"""Explanations about dependencies: the jobs that a job waits for, and why it may never start.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gq.model.dependency import DependencyKind, DependencyTerm, format_dependency
from gq.model.ids import JobId
from gq.model.state import JobState, Reason, state_word
from gq.model.tasks import format_tasks
from gqd.control.explain.explanation import Explanation
from gqd.sched.reasons.unschedulable import counted
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.index.queue import startable_tasks
from gqd.state.records import Job

MAX_NAMED = 4
_WANTED = {
    DependencyKind.AFTER: "start",
    DependencyKind.AFTERANY: "end",
    DependencyKind.AFTEROK: "end well",
    DependencyKind.AFTERNOTOK: "end badly",
}


def wait_of(job: Job) -> planned.DependsOn | None:
    """The dependency that keeps a pending job, or all tasks of an array, from starting; None: none does."""
    if job.dependency is None or (job.array is not None and startable_tasks(job)):
        return None
    return planned.DependsOn(terms=format_dependency(job.dependency), never=job.never or lost_tasks(job))


def sentence(cluster: Cluster, job: Job, wait: planned.DependsOn) -> Explanation:
    terms = job.dependency.terms if job.dependency is not None else ()
    blockers = tuple(dict.fromkeys(term.job_id for term in terms if JobId(term.job_id) in cluster.jobs))
    if wait.never:
        why = f"it can never start: {wait.never}" if job.never else wait.never
        hint = (
            f"gqctl update {job.job_id} --dependency=none lets it start; gqdel {job.job_id} takes it out of the queue"
        )
        return Explanation(Reason.DEPENDENCY_NEVER.value, why, hint, blockers)
    is_any = job.dependency is not None and job.dependency.is_any
    named = [_wanted(cluster, job, term) for term in terms[:MAX_NAMED]]
    more = f", {'or' if is_any else 'and'} {len(terms) - MAX_NAMED} more" if len(terms) > MAX_NAMED else ""
    why = f"it waits for {(' or ' if is_any else ' and for ').join(named)}{more}"
    due = [term.since + term.delay_s for term in terms if term.since is not None]
    if len(due) == len(terms) and due:
        return Explanation(Reason.DEPENDENCY.value, why, "", blockers, min(due) if is_any else max(due))
    hint = f"gqwhy {blockers[0]} says how that one stands" if blockers else ""
    return Explanation(Reason.DEPENDENCY.value, why, hint, blockers)


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
    what, whose = ("task", "counterpart of it") if lost.bit_count() == 1 else ("tasks", "counterparts of them")
    return f"{what} {format_tasks(lost, 8)} can never start, since {_parents(job)} has no {whose} that ended well"


def _parents(job: Job) -> str:
    terms = job.dependency.terms if job.dependency is not None else ()
    ids = dict.fromkeys(term.job_id for term in terms if term.kind is DependencyKind.AFTERCORR)
    return " and ".join(f"array {job_id}" for job_id in ids) or "the other array"


def _wanted(cluster: Cluster, job: Job, term: DependencyTerm) -> str:
    if term.kind is DependencyKind.SINGLETON:
        return f"all earlier jobs of {job.user} named {job.spec.name} to end"
    if term.since is not None:
        return f"@{{{int(term.since + term.delay_s)}}}, {_minutes(term)} after the start of {_name(term)}"
    gate = cluster.jobs.get(JobId(term.job_id))
    if gate is not None and gate.spec.is_gate:
        word = state_word(gate.state, gate.outcome).lower()
        return f"its --if command (job {gate.label}, {word}) to succeed"
    parent = _described(cluster, term)
    if term.kind is DependencyKind.AFTERCORR:
        return f"the same tasks of {parent} to end well"
    later = f" and {_minutes(term)} to pass" if term.delay_s else ""
    return f"{parent} to {_WANTED[term.kind]}{later}"


def _minutes(term: DependencyTerm) -> str:
    return counted(term.delay_s // 60, "minutes")


def _described(cluster: Cluster, term: DependencyTerm) -> str:
    parent = cluster.jobs.get(JobId(term.job_id))
    if parent is None:
        return _name(term)
    left = parent.array.jobs.get(term.task) if parent.array is not None and term.task is not None else None
    stands = cluster.jobs[left] if left is not None else parent
    word = state_word(stands.state, stands.outcome).lower()
    if parent.array is not None and term.task is None and parent.state is JobState.PENDING:
        word = f"{parent.array.waiting.bit_count()} tasks still pending"
    return f"{_name(term)} ({parent.user}: {parent.spec.name}, {word})"


def _name(term: DependencyTerm) -> str:
    return f"job {term.job_id}" if term.task is None else f"task {term.job_id}_{term.task}"
