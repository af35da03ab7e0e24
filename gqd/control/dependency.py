"""Dependencies: which terms a waiting job still has to wait for, decided as its parents start and end.  Pure.

Each term is decided once, by an event of the waiting job (`DependencyChanged`), in the turn in which its parent starts
or ends; so parents may leave memory, and a restart loses nothing.  Parents that have left memory are looked up in the
database when a dependency is requested (`ClientRequest.past`).  A new job can only depend on older ones, and an
update may not lead back to the job: cycles cannot arise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gq.errors import Refusal
from gq.model.dependency import MAX_TERMS, Dependency, DependencyKind, DependencyTerm, as_asked
from gq.model.ids import JobId
from gq.model.job import JobSpec
from gq.model.state import JobState, Outcome, Reason
from gq.model.tasks import format_tasks, pack_tasks, task_bit, unpack_tasks
from gqd.control import array
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.dependants import Name, group_position, is_counted, name_of, of_one_task
from gqd.state.input import PastJob
from gqd.state.policy import Policy
from gqd.state.records import ArrayTasks, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

_CORR = DependencyKind.AFTERCORR
NO_PAST: Mapping[int, PastJob] = {}
_NO_COUNTERPART = "none of its tasks has a counterpart that succeeded or still can"


class Progress(NamedTuple):
    """How far a parent job has come."""

    began_at: float | None = None
    """When the parent started, or ended without a start; None: neither has happened."""
    is_success: bool | None = None
    """Whether the parent succeeded; None: it has not ended."""
    word: str = ""
    """The outcome of an ended parent."""
    gate: str = ""
    """How the command of an ``--if`` failed, as a sentence; empty: the parent is no gate, or has not failed."""


class Standing(NamedTuple):
    """The state of a whole dependency at one instant."""

    left: Dependency | None
    """The terms that are still open; None: the dependency is met."""
    never: str = ""
    """Why the dependency can never be met; empty: it still can."""
    ready: int = 0
    """The tasks of an array that may start, as a bit set."""
    lost: int = 0
    """The tasks of an array that never may start, as a bit set."""


class _Verdict(NamedTuple):
    """The state of one term; it is open if it is neither met nor `never` is given."""

    is_met: bool
    never: str = ""
    term: DependencyTerm | None = None
    """The term in its new form, if it has changed."""


# ── progress of parents ───────────────────────────────────────────────────────────────────────────────────────


class Parents:
    """Parent jobs, looked up in memory, in the database (`past`) and among jobs about to be queued (`ahead`).

    `is_alone`: no job with the name and user of the dependent job was queued before it.
    """

    def __init__(
        self,
        cluster: Cluster,
        is_alone: bool,
        past: Mapping[int, PastJob] = NO_PAST,
        ahead: Sequence[event.JobSubmitted] = (),
    ) -> None:
        self.is_alone = is_alone
        self._cluster = cluster
        self._past = past
        self._ahead = {fact.job_id: fact for fact in ahead}

    def progress(self, term: DependencyTerm) -> Progress:
        """The progress of the parent that the term names; a task that its array does not have counts as failed."""
        job = self._cluster.jobs.get(JobId(term.job_id))
        if job is not None:
            return _of_job(self._cluster, job) if term.task is None else _of_task(self._cluster, job, term.task)
        past = self._past.get(term.job_id)
        if past is None:
            return Progress()
        if term.task is None:
            return Progress(past.start_at or 0.0, past.is_success)
        return Progress(past.start_at or 0.0, bool(unpack_tasks(past.succeeded_tasks) & task_bit(term.task)))

    def counterparts(self, term: DependencyTerm, own: int) -> tuple[int, int]:
        """(tasks of `own` whose counterparts succeeded, tasks of `own` whose counterparts never can succeed)."""
        if term.good is not None:
            succeeded = own & unpack_tasks(term.good)
            return succeeded, own & ~succeeded
        job = self._cluster.jobs.get(JobId(term.job_id))
        if job is not None and job.array is not None:
            tasks = job.array
            succeeded = own & tasks.succeeded
            open_tasks = 0 if job.state is JobState.ENDED else array.all_tasks(job.spec.array)
            return succeeded, own & ~succeeded & ~(open_tasks & ~(tasks.failed | tasks.cancelled))
        past = self._past.get(term.job_id)
        if past is None:
            return 0, 0
        succeeded = own & unpack_tasks(past.succeeded_tasks)
        return succeeded, own & ~succeeded

    def refuse_bad(self, term: DependencyTerm, before: int, is_array: bool) -> None:
        """`Refusal` if no job can wait for this parent.  `before`: ids from here on are not assigned yet."""
        job = self._cluster.jobs.get(JobId(term.job_id))
        past = self._past.get(term.job_id)
        if not 0 < term.job_id < before or (job is None and past is None and term.job_id not in self._ahead):
            message = f"job {term.job_id}, which the dependency `{term}` names, does not exist"
            raise Refusal("unknown_job", message, "gqstat lists the queue, gqacct ended jobs")
        tasks = self._tasks(term.job_id)
        if term.kind is _CORR and (tasks == 0 or term.task is not None or not is_array):
            what = "this job" if not is_array else f"job {term.job_id}{'' if term.task is None else f'_{term.task}'}"
            hint = f"use afterok:{term.job_id}" + ("" if term.task is None else f"_{term.task}")
            raise Refusal("not_an_array", f"`{term}` needs two arrays, and {what} is not an array", hint)
        if term.task is not None and not tasks & task_bit(term.task):
            what = f"array {term.job_id} has no task {term.task}" if tasks else f"job {term.job_id} is not an array"
            hint = f"its tasks are {format_tasks(tasks, 8)}" if tasks else f"use {term.kind.value}:{term.job_id}"
            raise Refusal("unknown_task", f"`{term}`: {what}", hint)

    def _tasks(self, job_id: int) -> int:
        job = self._cluster.jobs.get(JobId(job_id))
        if job is not None:
            return array.all_tasks(job.spec.array) if job.array is not None else 0
        if job_id in self._ahead:
            return (
                array.all_tasks(self._ahead[JobId(job_id)].spec.array) if self._ahead[JobId(job_id)].spec.array else 0
            )
        past = self._past.get(job_id)
        return 0 if past is None else unpack_tasks(past.ended_tasks)


def _of_job(cluster: Cluster, job: Job) -> Progress:
    if job.state is JobState.ENDED:
        began_at = next(at for at in (job.start_at, job.end_at, job.submit_at) if at is not None)
        word = job.outcome.value if job.outcome else ""
        return Progress(began_at, job.outcome is Outcome.COMPLETED, word, _failed_gate(job))
    if job.array is None:
        return Progress(job.start_at)
    return Progress(_all_began_at(cluster, job, job.array))


def _failed_gate(job: Job) -> str:
    """How an --if command failed, without the command itself: other users may read why a job waits."""
    if not job.spec.is_gate or job.outcome is Outcome.COMPLETED:
        return ""
    how = f"ended with {job.outcome.value if job.outcome else 'no result'}"
    if job.outcome is Outcome.FAILED and job.exit is not None:
        how = f"was ended by signal {job.exit.signal}" if job.exit.signal else f"returned {job.exit.code}"
    return f"its --if command {how} (gqlog {job.label} shows the output)"


def _all_began_at(cluster: Cluster, record: Job, tasks: ArrayTasks) -> float | None:
    """When the last task of an array started; None: a task has not started."""
    if tasks.waiting:
        return None
    began_at = record.submit_at
    for job_id in reversed(tasks.jobs.values()):  # the last materialised tasks are the last to start
        at = _of_job(cluster, cluster.jobs[job_id]).began_at
        if at is None:
            return None
        began_at = max(began_at, at)
    return began_at


def _of_task(cluster: Cluster, record: Job, task: int) -> Progress:
    bit, tasks = task_bit(task), record.array
    if tasks is None:
        return Progress(record.submit_at, False)
    left = cluster.jobs.get(tasks.jobs.get(task, JobId(0)))
    if left is not None:
        return _of_job(cluster, left)
    if tasks.waiting & bit:
        return Progress()
    if tasks.succeeded & bit:
        return Progress(record.submit_at, True)
    return Progress(record.submit_at, False, Outcome.CANCELLED.value if tasks.cancelled & bit else "")


# ── state of a dependency ─────────────────────────────────────────────────────────────────────────────────────


def standing(dependency: Dependency, own: int, parents: Parents, now: float) -> Standing:
    """The state of the dependency.  `own`: the tasks that wait in the array's record; 0: the job is no array."""
    make = _any_of if dependency.is_any else _all_of
    return make(dependency, own, parents, now)


def _all_of(dependency: Dependency, own: int, parents: Parents, now: float) -> Standing:
    left: list[DependencyTerm] = []
    nevers: list[str] = []
    ready = possible = own
    for term in dependency.terms:
        if term.kind is _CORR:
            good, lost = parents.counterparts(term, own)
            ready, possible = ready & good, possible & ~lost
            if own & ~good:
                left.append(_decided(term, good) if own == good | lost else term)
            continue
        verdict = _judge(term, parents, now)
        if verdict.never:
            nevers.append(verdict.never)
        if not verdict.is_met:
            left.append(verdict.term or term)
            ready = 0
    if own and not possible:
        nevers.append(_NO_COUNTERPART)
    if nevers:
        return Standing(Dependency(tuple(left)), "; ".join(nevers[:3]), 0, own)
    return Standing(Dependency(tuple(left)) if left else None, "", ready, own & ~possible)


def _any_of(dependency: Dependency, own: int, parents: Parents, now: float) -> Standing:
    left: list[DependencyTerm] = []
    nevers: list[str] = []
    ready = possible = 0
    for term in dependency.terms:
        if term.kind is _CORR:
            good, lost = parents.counterparts(term, own)
            ready, possible = ready | good, possible | (own & ~lost)
            is_decided = own == good | lost
            if good or not is_decided:
                left.append(_decided(term, good) if is_decided else term)
            continue
        verdict = _judge(term, parents, now)
        if verdict.is_met:
            return Standing(None)
        if verdict.never:
            nevers.append(verdict.never)
        else:
            left.append(verdict.term or term)
            possible = own
    if own and ready == own:
        return Standing(None)
    if not left or (own and not possible):
        nevers = nevers or [_NO_COUNTERPART]
        return Standing(dependency, "; ".join(nevers[:3]), 0, own)
    return Standing(Dependency(tuple(left), is_any=True), "", ready, own & ~possible)


def _decided(term: DependencyTerm, good: int) -> DependencyTerm:
    return term if term.good is not None else msgspec.structs.replace(term, good=pack_tasks(good))


def _judge(term: DependencyTerm, parents: Parents, now: float) -> _Verdict:
    if term.kind is DependencyKind.SINGLETON:
        return _Verdict(is_met=parents.is_alone)
    if term.since is not None:
        return _Verdict(is_met=now >= term.since + term.delay_s)
    parent = parents.progress(term)
    match term.kind:
        case DependencyKind.AFTER:
            return _Verdict(False) if parent.began_at is None else _after(term, parent.began_at, now)
        case DependencyKind.AFTERANY:
            return _Verdict(parent.is_success is not None)
        case DependencyKind.AFTEROK:
            return _ended(term, parent, wanted=True)
        case _:
            return _ended(term, parent, wanted=False)


def _after(term: DependencyTerm, began_at: float, now: float) -> _Verdict:
    if now >= began_at + term.delay_s:
        return _Verdict(is_met=True)
    return _Verdict(is_met=False, term=msgspec.structs.replace(term, since=began_at))


def _ended(term: DependencyTerm, parent: Progress, wanted: bool) -> _Verdict:
    if parent.is_success is None or parent.is_success is wanted:
        return _Verdict(is_met=parent.is_success is wanted)
    if parent.gate and wanted:
        return _Verdict(is_met=False, never=parent.gate)
    parent_name = f"job {term.job_id}" if term.task is None else f"task {term.job_id}_{term.task}"
    how = f" ({parent.word})" if parent.word else ""
    expected, actual = ("succeed", "failed") if wanted else ("fail", "succeeded")
    return _Verdict(is_met=False, never=f"{parent_name} had to {expected} and {actual}{how}")


# ── submit and update ─────────────────────────────────────────────────────────────────────────────────────────


def at_submit(
    draft: TurnBuilder,
    spec: JobSpec,
    user: str,
    past: Mapping[int, PastJob],
    ahead: Sequence[event.JobSubmitted] = (),
) -> Standing:
    """The state of a new job's dependency, or `Refusal`.  `ahead`: jobs of the same request queued before it."""
    if spec.dependency is None:
        return Standing(None)
    cluster = draft.cluster
    job_id = JobId(cluster.next_job_id + len(ahead))
    own = array.all_tasks(spec.array) if spec.array else 0
    dependency = as_asked(spec.dependency)
    is_alone = _is_alone(cluster, dependency, (user, spec.name), job_id) and not any(
        fact.spec.name == spec.name for fact in ahead
    )
    parents = Parents(cluster, is_alone, past, ahead)
    _refuse_bad_terms(dependency, parents, job_id, bool(own))
    return standing(dependency, own, parents, draft.now)


def refuse_update(draft: TurnBuilder, selection: array.Selection, spec: JobSpec, past: Mapping[int, PastJob]) -> None:
    """`Refusal` if the selected jobs cannot have the new dependency, or cannot have the new name with the old one."""
    job = selection.job
    if spec.dependency != job.spec.dependency and spec.dependency is not None:
        dependency = as_asked(spec.dependency)
        parents = Parents(draft.cluster, False, past)
        is_array = job.array is not None or job.array_job_id is not None
        _refuse_bad_terms(dependency, parents, draft.cluster.next_job_id, is_array)
        _refuse_cycle(draft.cluster, selection, spec.name, dependency)
    elif spec.name != job.spec.name:
        _refuse_cycle(draft.cluster, selection, spec.name, job.dependency)


def after_update(draft: TurnBuilder, job: Job, before: JobSpec, past: Mapping[int, PastJob]) -> None:
    """Renew the dependency after a permitted update of its terms or of the job's name."""
    if job.spec.dependency != before.dependency:
        draft.emit(_renewed(draft, job, past))
    if job.spec.name != before.name:
        _decide_group(draft, (job.user, before.name))
        decide(draft, job)


def _renewed(draft: TurnBuilder, job: Job, past: Mapping[int, PastJob]) -> event.DependencyChanged:
    dependency, own = job.spec.dependency, 0 if job.array is None else job.array.waiting
    result = Standing(None)
    if dependency is not None:
        dependency = as_asked(dependency)
        if job.array_task_id is not None:
            dependency = of_one_task(dependency, job.array_task_id)
        is_alone = _is_alone(draft.cluster, dependency, name_of(job), group_position(job))
        result = standing(dependency, own, Parents(draft.cluster, is_alone, past), draft.now)
    return event.DependencyChanged(
        at=draft.now,
        job_id=job.job_id,
        left=result.left,
        never=result.never,
        ready=pack_tasks(result.ready if result.left is not None else 0),
        is_new=True,
    )


def _refuse_bad_terms(dependency: Dependency, parents: Parents, before: int, is_array: bool) -> None:
    if not 0 < len(dependency.terms) <= MAX_TERMS:
        raise Refusal("bad_dependency", f"a dependency has 1 to {MAX_TERMS} terms, not {len(dependency.terms)}")
    for term in dependency.terms:
        if term.kind is not DependencyKind.SINGLETON:
            parents.refuse_bad(term, before, is_array)


def _is_alone(cluster: Cluster, dependency: Dependency | None, name: Name, place: JobId) -> bool:
    """Whether no job of that name was queued before; False without a look if no term is a singleton."""
    if dependency is None or not any(term.kind is DependencyKind.SINGLETON for term in dependency.terms):
        return False
    group = cluster.dependants.groups.get(name)
    if group is not None:
        return next(iter(group.active), place) >= place
    return not any(job.job_id < place and is_counted(job) and name_of(job) == name for job in cluster.jobs.values())


# ── cycles (only an update could create one) ──────────────────────────────────────────────────────────────────


class _Node(NamedTuple):
    """A job or task in the graph of waiting jobs."""

    job_id: JobId
    task: int | None = None
    """The number of a task that waits in the array's record; None: the job, or the whole array."""


def _refuse_cycle(cluster: Cluster, selection: array.Selection, name: str, dependency: Dependency | None) -> None:
    """`Refusal` if the selected jobs would wait for themselves with this name and this dependency."""
    job = selection.job
    seen: set[_Node] = set()
    ahead = list(_waits_for(cluster, job, name, dependency))
    while ahead:
        node = ahead.pop()
        if node.job_id == job.job_id and (
            selection.is_whole or node.task is None or selection.tasks & task_bit(node.task)
        ):
            message = f"job {job.job_id} would wait for itself"
            raise Refusal(
                "cycle", message, "remove the dependency that leads back to it; gqwhy shows what a job waits for"
            )
        other = cluster.jobs.get(node.job_id)
        if node in seen or other is None or other.state is JobState.ENDED:
            continue
        seen.add(node)
        ahead.extend(_waits_for(cluster, other, other.spec.name, other.dependency, (job, name)))
        if node.task is None and other.array is not None:
            ahead.extend(_Node(job_id) for job_id in other.array.jobs.values())


def _waits_for(
    cluster: Cluster, job: Job, name: str, dependency: Dependency | None, renamed: tuple[Job, str] | None = None
) -> Iterator[_Node]:
    """The jobs that this job waits for directly; `renamed`: a job that is about to get another name."""
    for term in dependency.terms if dependency is not None else ():
        if term.kind is DependencyKind.SINGLETON:
            yield from _queued_before(cluster, job, name, renamed)
        elif term.task is None:
            yield _Node(JobId(term.job_id))
        else:
            record = cluster.jobs.get(JobId(term.job_id))
            left = None if record is None or record.array is None else record.array.jobs.get(term.task)
            yield _Node(JobId(term.job_id), term.task) if left is None else _Node(left)


def _queued_before(cluster: Cluster, job: Job, name: str, renamed: tuple[Job, str] | None) -> Iterator[_Node]:
    for other in cluster.jobs.values():
        now_named = renamed[1] if renamed is not None and other is renamed[0] else other.spec.name
        if other.job_id < group_position(job) and is_counted(other) and (other.user, now_named) == (job.user, name):
            yield _Node(other.job_id)


# ── decisions as parents start and end ────────────────────────────────────────────────────────────────────────


_DECIDING = frozenset({
    event.JobStarted, event.JobEnded, event.ArrayTasksCancelled, event.JobSubmitted, event.ArrayTaskLeft,
    event.DependencyChanged,
})  # fmt: skip


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """Decide the dependencies of the jobs that waited for this event."""
    if type(fact) not in _DECIDING:
        return
    match fact:
        case event.JobStarted():
            _decide_children(draft, fact.attempt_id.job_id)
        case event.JobEnded():
            _decide_children(draft, fact.job_id)
            _decide_group(draft, name_of(draft.cluster.jobs[fact.job_id]))
        case event.ArrayTasksCancelled():
            _decide_children(draft, fact.array_job_id)
            decide(
                draft, draft.cluster.jobs[fact.array_job_id]
            )  # its other tasks may never start, or wait for nothing now
        case event.JobSubmitted() | event.DependencyChanged(is_new=True):
            decide(draft, draft.cluster.jobs[fact.job_id])
        case event.ArrayTaskLeft():
            decide(draft, draft.cluster.jobs[fact.job_id])
            decide(draft, draft.cluster.jobs[fact.array_job_id])  # it may have lost its only task that can still start


def may_start(job: Job) -> bool:
    """Whether the job's dependency allows a start; arrays are checked by task (`queue.startable_tasks`)."""
    return job.dependency is None or job.array is not None


def _decide_children(draft: TurnBuilder, parent: JobId) -> None:
    job = draft.cluster.jobs[parent]
    by_parent = draft.cluster.dependants.by_parent
    children = [*by_parent.get(parent, ())]
    if job.array_job_id is not None:
        children += by_parent.get(job.array_job_id, ())
    for child in children:
        decide(draft, draft.cluster.jobs[child])


def _decide_group(draft: TurnBuilder, name: Name) -> None:
    group = draft.cluster.dependants.groups.get(name)
    for job_id in group.next() if group is not None else ():
        decide(draft, draft.cluster.jobs[job_id])


def tick(draft: TurnBuilder) -> None:
    """Decide the `after:JOB+MINUTES` terms whose delay is over."""
    for job_id, due_at in list(draft.cluster.dependants.due.items()):
        if due_at <= draft.now:
            decide(draft, draft.cluster.jobs[job_id])


def decide(draft: TurnBuilder, job: Job) -> None:
    """Record the new state of a waiting job's dependency; end what can never start, if so configured."""
    if job.dependency is None or job.state is not JobState.PENDING:
        return
    own = 0 if job.array is None else job.array.waiting
    lost = own
    if not job.never:
        result = _standing_of(draft, job, own)
        _note(draft, job, result)
        lost = result.lost
    if (job.never or lost) and kills(draft.policy, job.spec):
        _end_hopeless(draft, job, lost)


def _standing_of(draft: TurnBuilder, job: Job, own: int) -> Standing:
    assert job.dependency is not None
    if job.array is not None and not own:
        return Standing(None)  # all tasks are jobs of their own, each with its own dependency
    is_alone = _is_alone(draft.cluster, job.dependency, name_of(job), group_position(job))
    return standing(job.dependency, own, Parents(draft.cluster, is_alone), draft.now)


def _note(draft: TurnBuilder, job: Job, result: Standing) -> None:
    fresh = result.ready & ~job.ready if result.left is not None else 0
    if result.left == job.dependency and not fresh and not result.never:
        return
    draft.emit(
        event.DependencyChanged(
            at=draft.now, job_id=job.job_id, left=result.left, never=result.never, ready=pack_tasks(fresh)
        )
    )


def kills(policy: Policy, spec: JobSpec) -> bool:
    """Whether a job whose dependency can never be met is cancelled: --kill-on-invalid-dep, else gq.toml."""
    wanted = spec.kill_on_invalid_dep
    return policy.accounting.kill_on_invalid_dep if wanted is None else wanted


def _end_hopeless(draft: TurnBuilder, job: Job, lost: int) -> None:
    reason = Reason.DEPENDENCY_NEVER.value
    if job.array is not None:
        why = job.never or "no counterpart succeeded"
        array.cancel_tasks(draft, job, lost, why, reason)
        return
    why = job.never
    fact = event.JobEnded(at=draft.now, job_id=job.job_id, outcome=Outcome.CANCELLED, reason=reason, why=why)
    draft.emit(fact)
    draft.volatile.client_seen_at.pop(job.job_id, None)
