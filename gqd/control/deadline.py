"""``--deadline``: a job that cannot end before its deadline never starts; a running job is ended at it.  Pure.

A pending job ends once its time limit no longer fits before the deadline.  For a running job the time left before the
deadline is its time limit, if that is shorter; the nodes enforce it like any time limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.errors import Refusal
from gq.model.job import JobSpec
from gq.model.state import Outcome, Reason
from gq.units import spoken_duration
from gqd.control import array
from gqd.state.events import event
from gqd.state.index.deadlines import last_start_at, time_limit_of
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_SECONDS = 2**40


def refuse_late(spec: JobSpec, time_limit_s: int | None, now: float) -> None:
    """`Refusal` if a job with this time limit cannot end before its deadline even if it starts as early as it may."""
    at = spec.deadline_at
    if at is None:
        return
    if not 0 <= at <= MAX_SECONDS:
        raise Refusal("bad_number", f"--deadline is {at}, which is not between 0 and {MAX_SECONDS}")
    if at <= now:
        late = spoken_duration(now - at)
        raise Refusal("deadline_passed", f"the deadline passed {late} ago", "choose a deadline in the future")
    start_at = max(now, spec.begin_at or 0.0)
    if start_at + (time_limit_s or 0) <= at and start_at < at:
        return
    left = spoken_duration(max(0.0, at - start_at))
    if time_limit_s is None:
        raise Refusal(
            "deadline", "the job begins after its deadline", "choose a later --deadline or an earlier --begin"
        )
    message = f"only {left} is left before the deadline, and the time limit is {spoken_duration(time_limit_s)}"
    minutes = int(max(0.0, at - start_at) // 60)
    shorter = f"ask for at most --time={minutes} (minutes), or " if minutes else "ask "
    raise Refusal("deadline", message, f"{shorter}for a later deadline")


def tick(draft: TurnBuilder) -> None:
    """End the pending jobs that can no longer end before their deadline."""
    for job_id, at in list(draft.cluster.deadlines.items()):
        if at < draft.now:
            _end(draft, draft.cluster.jobs[job_id])


def _end(draft: TurnBuilder, job: Job) -> None:
    assert job.spec.deadline_at is not None
    limit = f"with its time limit of {spoken_duration(job.time_limit_s)} " if job.time_limit_s else ""
    why = f"{limit}it could no longer end before its deadline"
    reason = Reason.DEADLINE.value
    if job.array is not None:
        array.cancel_tasks(draft, job, job.array.waiting, why, reason)
        return
    draft.volatile.client_seen_at.pop(job.job_id, None)
    draft.emit(event.JobEnded(at=draft.now, job_id=job.job_id, outcome=Outcome.DEADLINE, reason=reason, why=why))


def may_start(job: Job, now: float) -> bool:
    """Whether the job still fits before its deadline, if it has one."""
    last = last_start_at(job)
    return last is None or now <= last


def is_what_ended(job: Job, attempt: Attempt) -> bool:
    """Whether the time limit that ended the job was the time left before its deadline."""
    return time_limit_of(job, attempt) != job.time_limit_s
