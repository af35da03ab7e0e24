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
    """A job was added to the queue."""

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
    """Terms of the spec's dependency that are not met yet."""
    never: str = ""
    """Why the dependency can never be met; empty: it can."""
    ready: str = ""
    """Tasks that may start at once, of an array with ``aftercorr``."""
    hook: str = ""
    """Changes that the site's submit hook made to the spec."""
    expected_s: float | None = None
    """Expected run time in seconds; None: unknown."""


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
    """A job was updated; the event holds all values that an update may change."""

    job_id: JobId
    spec: JobSpec
    partition: str
    time_limit_s: int | None
    requeue: bool
    account: str = ""
    """New account; empty: unchanged."""
    qos: str = ""
    """New QOS; empty: unchanged."""
    expected_s: float | None = None


class ArrayTaskLeft(EventBase, frozen=True, kw_only=True):
    """A task left the array's record and became a job of its own, pending like the record.

    A task leaves because it is about to start, or because a request concerns this task alone.
    """

    array_job_id: JobId
    task: int
    job_id: JobId


class ArrayTasksCancelled(EventBase, frozen=True, kw_only=True):
    """Tasks that wait in the array's record will never start (`gq.model.tasks.pack_tasks`)."""

    array_job_id: JobId
    tasks: str
    why: str = ""
    reason: str = "None"
    """`gq.model.state.Reason`; ``DeadLine``: the tasks' deadline passed."""


class ArrayThrottleSet(EventBase, frozen=True, kw_only=True):
    """The throttle of an array was changed."""

    array_job_id: JobId
    throttle: int | None
    is_auto: bool = False
    """The array runs as many tasks as there are idle resources: see `JobSpec.array_auto`."""


class DependencyChanged(EventBase, frozen=True, kw_only=True):
    """The open terms of the job's dependency changed; None: the job has no open dependency."""

    job_id: JobId
    left: Dependency | None = None
    never: str = ""
    """Why the dependency can never be met; empty: it can."""
    ready: str = ""
    """Further tasks that may start, of an array with ``aftercorr`` (`gq.model.tasks.pack_tasks`)."""
    is_new: bool = False
    """The owner replaced the dependency: tasks that were ready under the former one are not."""


class StartEstimated(EventBase, frozen=True, kw_only=True):
    """The first estimate of the pending job's start, recorded once before each attempt."""

    job_id: JobId
    estimate: FirstEstimate


class JobEnded(EventBase, frozen=True, kw_only=True):
    """The job ended: from COMPLETING with the values of `JobEnding`, from PENDING with the values here.  → ENDED."""

    job_id: JobId
    outcome: Outcome
    exit: ExitStatus | None = None
    reason: str = "None"
    why: str = ""
    failure_class: str = ""


class JobsForgotten(EventBase, frozen=True, kw_only=True):
    """The jobs were removed from memory; the database keeps them."""

    job_ids: tuple[JobId, ...]
