"""What is asked about running jobs while they run: messages between clients and the controller."""

from __future__ import annotations

import msgspec

from gq.model.ask import AskAnswer, AskInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class ExtendJob(_Body, frozen=True, kw_only=True):
    """Give a running job so much more time, if nobody's promised start and no reservation is in the way.  → `Extended`

    Refused otherwise, with what is in the way and how much would be granted.
    """

    job_id: int
    task: int | None = None
    by_s: int


class SuspendJobs(_Body, frozen=True, kw_only=True):
    """Let running jobs stand still; they keep what they hold, and their time limits stand still, too.  → `JobsDone`"""

    job_ids: tuple[int, ...] = ()
    tasks: dict[int, str] = {}
    """As of `HoldJobs`."""


class ResumeJobs(_Body, frozen=True, kw_only=True):
    """Let suspended jobs go on.  → `JobsDone`"""

    job_ids: tuple[int, ...] = ()
    tasks: dict[int, str] = {}


class Extended(_Body, frozen=True, kw_only=True):
    job_id: int
    time_limit_s: int
    """From now on."""
    end_at: float
    """When it is over by that."""


class AskJob(_Body, frozen=True, kw_only=True):
    """Ask the holder of a job a favour.  → `Done`

    The holder is told, and answers or does not.  One line; one open request of a user and job.
    """

    job_id: int
    task: int | None = None
    text: str


class AnswerAsks(_Body, frozen=True, kw_only=True):
    """Answer all who have asked something of this job.  → `Done`

    ``release`` also ends the job; with ``requeue`` it is queued again.  ``shrink`` takes ``keep`` GPUs, or nodes, as
    the most that an elastic job has from now on; None: those that it began with.
    """

    job_id: int
    task: int | None = None
    answer: AskAnswer
    text: str = ""
    requeue: bool = False
    keep: int | None = None


class ListAsks(_Body, frozen=True, kw_only=True):
    """What was asked of the caller's jobs, and what the caller has asked.  Operators see all.  → `Asks`"""

    job_ids: tuple[int, ...] = ()
    limit: int = 1000
    """The newest."""


class Asks(_Body, frozen=True, kw_only=True):
    asks: tuple[AskInfo, ...]
