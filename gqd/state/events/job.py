"""Events of jobs in the queue: submitted, held, updated, array tasks, dependencies, estimates, forgotten.  Pure."""

from __future__ import annotations

from gq.model.account import NORMAL_QOS
from gq.model.dependency import Dependency
from gq.model.estimate import FirstEstimate
from gq.model.ids import JobId
from gq.model.job import ExitStatus, JobSpec
from gq.model.state import Outcome
from gqd.state.events.record import EventBase
from gqd.state.phases import Hold


class JobSubmitted(EventBase, frozen=True, kw_only=True):
    job_id: JobId
    user: str
    uid: int
    gid: int
    spec: JobSpec
    partition: str
    time_limit_s: int | None
    requeue: bool
    account: str = ""
    qos: str = NORMAL_QOS
    dependency: Dependency | None = None
    """What of the spec's is not met yet."""
    never: str = ""
    """Why it can never be met."""
    ready: str = ""
    """Of an array with ``aftercorr``: the tasks that may start at once."""
    hook: str = ""
    """What the site's submit hook did to the spec."""
    expected_s: float | None = None
    """How long it is expected to run; None: nobody knows."""


class JobHeld(EventBase, frozen=True, kw_only=True):
    job_id: JobId
    hold: Hold
    reason: str = ""
    """The pending reason after failed launches."""
    why: str = ""
    """The reason in words."""


class JobReleased(EventBase, frozen=True, kw_only=True):
    job_id: JobId


class JobUpdated(EventBase, frozen=True, kw_only=True):
    """The whole of what an update may change, after it."""

    job_id: JobId
    spec: JobSpec
    partition: str
    time_limit_s: int | None
    requeue: bool
    account: str = ""
    """Empty: as before; likewise the next."""
    qos: str = ""
    expected_s: float | None = None


class ArrayTaskLeft(EventBase, frozen=True, kw_only=True):
    """A task leaves the array's record and is a job of its own from now on, pending like the record.

    It is about to start, or something is to be done to it alone.
    """

    array_job_id: JobId
    task: int
    job_id: JobId


class ArrayTasksCancelled(EventBase, frozen=True, kw_only=True):
    """Tasks that wait in the record never will start (`gq.model.tasks.pack_tasks`)."""

    array_job_id: JobId
    tasks: str
    why: str = ""
    reason: str = "None"
    """`gq.model.state.Reason`; ``DeadLine``: it was too late for them."""


class ArrayThrottleSet(EventBase, frozen=True, kw_only=True):
    array_job_id: JobId
    throttle: int | None
    is_auto: bool = False
    """As many tasks as there are idle GPUs: see `JobSpec.array_auto`."""


class DependencyChanged(EventBase, frozen=True, kw_only=True):
    """What the job still waits for; None: nothing any more."""

    job_id: JobId
    left: Dependency | None = None
    never: str = ""
    """Why it can never be met."""
    ready: str = ""
    """Of an array with ``aftercorr``: tasks that may start from now on (`gq.model.tasks.pack_tasks`)."""
    is_new: bool = False
    """Its owner asks for another one: what could start by the one before cannot by this."""


class StartEstimated(EventBase, frozen=True, kw_only=True):
    """What the waiting job was told first of when it will start; once before each attempt."""

    job_id: JobId
    estimate: FirstEstimate


class JobEnded(EventBase, frozen=True, kw_only=True):
    """→ ENDED, from COMPLETING with what `JobEnding` said, or from PENDING with what is said here."""

    job_id: JobId
    outcome: Outcome
    exit: ExitStatus | None = None
    reason: str = "None"
    why: str = ""
    failure_class: str = ""


class JobsForgotten(EventBase, frozen=True, kw_only=True):
    """Left memory; the database keeps them."""

    job_ids: tuple[JobId, ...]
