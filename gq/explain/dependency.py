"""Sentences about dependencies: the jobs that a job waits for.  Pure."""

from __future__ import annotations

from gq.explain.sentence import MAX_NAMED, Context, Sentence, mark
from gq.model.dependency import DependencyKind
from gq.model.wait import DependsOn, OpenTerm
from gq.units import counted

_WANTED = {
    DependencyKind.AFTER: "start",
    DependencyKind.AFTERANY: "end",
    DependencyKind.AFTEROK: "succeed",
    DependencyKind.AFTERNOTOK: "fail",
}


def depends_on(context: Context, wait: DependsOn) -> Sentence:
    if wait.never:
        why = f"it can never start: {wait.never}" if wait.has_failed else wait.never
        job_id = context.job.job_id
        hint = f"gqctl update {job_id} --dependency=none removes the dependency; gqdel {job_id} removes the job"
        return Sentence(why, hint)
    named = [_wanted(context, term) for term in wait.open[:MAX_NAMED]]
    others = len(wait.open) - MAX_NAMED
    more = f", {'or' if wait.is_any else 'and'} {others} more" if others > 0 else ""
    why = f"it waits for {(' or ' if wait.is_any else ' and for ').join(named)}{more}"
    if wait.open and all(term.since is not None for term in wait.open):
        return Sentence(why)
    blocker = next((term.job_id for term in wait.open if term.state), None)
    return Sentence(why, f"gqwhy {blocker} explains the state of that job" if blocker is not None else "")


def _wanted(context: Context, term: OpenTerm) -> str:
    if term.kind is DependencyKind.SINGLETON:
        return f"all earlier jobs of {context.job.user} named {context.job.name} to end"
    delay = counted(term.delay_s // 60, "minutes")
    if term.since is not None:
        return f"{mark(term.since + term.delay_s)}, {delay} after the start of {_name(term)}"
    if term.is_gate:
        return f"its --if command (job {term.label}, {term.state}) to succeed"
    if term.kind is DependencyKind.AFTERCORR:
        return f"the same tasks of {_described(term)} to succeed"
    later = f" and {delay} to pass" if term.delay_s else ""
    return f"{_described(term)} to {_WANTED[term.kind]}{later}"


def _described(term: OpenTerm) -> str:
    if not term.state:
        return _name(term)
    state = term.state if term.tasks_pending is None else f"{term.tasks_pending} tasks still pending"
    return f"{_name(term)} ({term.user}: {term.name}, {state})"


def _name(term: OpenTerm) -> str:
    return f"job {term.job_id}" if term.task is None else f"task {term.job_id}_{term.task}"
