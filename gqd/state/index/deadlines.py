"""The last instant at which a job with a deadline may start, and how long an attempt may run.  Pure."""

from __future__ import annotations

from gqd.state.records import Attempt, Job


def last_start_at(job: Job) -> float | None:
    """The last instant at which the job may start; None: the job has no deadline."""
    at = job.spec.deadline_at
    if at is None:
        return None
    return at - (job.time_limit_s or 0)


def time_limit_of(job: Job, attempt: Attempt) -> int | None:
    """Seconds that an attempt of the job may run: the time limit, or the time until the deadline if that is shorter."""
    return limit_under(job.spec.deadline_at, job.time_limit_s, attempt)


def limit_under(deadline_at: float | None, time_limit_s: int | None, attempt: Attempt) -> int | None:
    if deadline_at is None:
        return time_limit_s
    began_at = attempt.allocated_at if attempt.start_at is None else attempt.start_at
    left_s = max(1, int(deadline_at - began_at - attempt.suspended_s))
    return left_s if time_limit_s is None else min(left_s, time_limit_s)


def paused_s(attempt: Attempt, now: float) -> float:
    """Seconds that the attempt has been suspended, by which the end of its time limit is deferred."""
    return attempt.suspended_s + (0.0 if attempt.suspended_at is None else max(0.0, now - attempt.suspended_at))
