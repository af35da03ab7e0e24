"""The facts of an explanation, as data: why a job waits, what is expected of it, and what else concerns it.  Pure.

The first fact of a waiting job is one of the reasons of `gq.model.wait`; the facts here follow it.
"""

from __future__ import annotations

import msgspec

from gq.model.wait import OverLimit, OverQuota, Wait, kind_of


class JobName(msgspec.Struct, frozen=True):
    """The id, owner and name of a job, as sentences write them."""

    job_id: int
    label: str
    """Id as users write it: ``7``, or ``7_3`` for a task."""
    user: str
    name: str


class _Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=kind_of):
    """Base of all facts."""


class Text(_Fact, frozen=True):
    """A sentence without numbers of its own."""

    text: str
    """Instants are written as ``@{seconds}``."""
    hint: str = ""


class LimitHolder(msgspec.Struct, frozen=True):
    """A running job and what it uses of a limit."""

    job_id: int
    amount: int


class LimitHolders(_Fact, frozen=True):
    """The jobs that use most of the limit that the first fact is about, the largest first."""

    resource: str
    """``jobs``, ``gpus``, ``cpus``, ``memory`` (in MiB) or ``gpus:TYPE``."""
    holders: tuple[LimitHolder, ...]
    count: int
    """Number of all holders."""


class OtherLimits(_Fact, frozen=True):
    """Further limits that the job exceeds."""

    limits: tuple[OverLimit | OverQuota, ...]


class TrialOver(_Fact, frozen=True):
    """The job has used the first quantum of time-slicing."""

    trial_s: float
    jobs_ahead: int
    """Number of waiting jobs with precedence."""


class NextTurn(_Fact, frozen=True):
    """The holder that may yield its resources to the job first under time-slicing."""

    job_id: int | None = None
    """None: no holder will."""
    at: float | None = None
    some_now: bool = False
    """Not enough holders may yield now, but a few may."""
    why_none: str = ""
    """``would_not_wait``, ``several_nodes`` or ``came_before``; empty: `at` or `some_now` is set."""


class JobsAhead(_Fact, frozen=True):
    """Waiting jobs of the same partition with a higher priority."""

    jobs: tuple[int, ...]
    """The first few."""
    count: int
    """Number of all of them."""


class StartsBy(_Fact, frozen=True):
    """The instant by which the missing resources are free at the latest."""

    at: float


class RoomBy(_Fact, frozen=True):
    """The instant at which the missing resources are free, if no other job takes them."""

    at: float


class StartPromised(_Fact, frozen=True):
    """No job behind this one delays its planned start."""


class ExpectedStart(_Fact, frozen=True):
    """The start that the last forecast expects."""

    at: float
    is_after_others: bool = False
    """Later than the resources are free, since jobs with precedence take them."""
    names_others: bool = False
    """An earlier fact names the jobs with precedence."""


class ShrinkingJob(msgspec.Struct, frozen=True, kw_only=True):
    """An elastic job that gives up a node, GPUs or CPUs for the waiting job."""

    job_id: int
    node: str = ""
    gpus: int = 0
    cpus: int = 0
    ends_at: float


class Shrinking(_Fact, frozen=True):
    """Elastic jobs that shrink for the job."""

    jobs: tuple[ShrinkingJob, ...]
    """The first few."""
    count: int
    """Number of all of them."""


Fact = (
    Wait | Text | LimitHolders | OtherLimits | TrialOver | NextTurn | JobsAhead | StartsBy | RoomBy | StartPromised
    | ExpectedStart | Shrinking
)  # fmt: skip
