"""Requests that control running jobs: messages between clients and the controller."""

from __future__ import annotations

import msgspec

from gq.model.ask import AskAnswer, AskInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class ExtendJob(_Body, frozen=True, kw_only=True):
    """Extend a running job's time limit unless a planned start or a reservation is in the way.  → `Extended`

    A refusal names the obstacle and the extension that would be granted.
    """

    job_id: int
    task: int | None = None
    by_s: int


class SuspendJobs(_Body, frozen=True, kw_only=True):
    """Suspend running jobs; they keep their resources, and their time limits stop.  → `JobsDone`"""

    job_ids: tuple[int, ...] = ()
    tasks: dict[int, str] = {}
    """Tasks of arrays as in `JobFilter`."""


class ResumeJobs(_Body, frozen=True, kw_only=True):
    """Resume suspended jobs.  → `JobsDone`"""

    job_ids: tuple[int, ...] = ()
    tasks: dict[int, str] = {}


class Extended(_Body, frozen=True, kw_only=True):
    job_id: int
    time_limit_s: int
    """The new time limit."""
    end_at: float
    """End of the job by the new limit."""


class AskJob(_Body, frozen=True, kw_only=True):
    """Ask the owner of a job for something.  → `Done`

    The owner is notified, and may answer.  ``text`` is one line; a user may have one open ask per job.
    """

    job_id: int
    task: int | None = None
    text: str


class AnswerAsks(_Body, frozen=True, kw_only=True):
    """Answer all open asks of this job.  → `Done`

    ``release`` also ends the job; with ``requeue`` it is queued again.  ``shrink`` sets the maximum of an elastic job
    to ``keep`` GPUs, or nodes; None: the number that it began with.
    """

    job_id: int
    task: int | None = None
    answer: AskAnswer
    text: str = ""
    requeue: bool = False
    keep: int | None = None


class ListAsks(_Body, frozen=True, kw_only=True):
    """List asks about the caller's jobs and asks that the caller sent.  Operators see all asks.  → `Asks`"""

    job_ids: tuple[int, ...] = ()
    limit: int = 1000
    """Maximum number of asks, newest first."""


class Asks(_Body, frozen=True, kw_only=True):
    asks: tuple[AskInfo, ...]
