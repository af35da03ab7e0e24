"""What one call of the controller produced, and the draft of it while the call is under way.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from gq.model.ids import JobId
from gqd.control.apply.table import apply
from gqd.state.cluster import Cluster
from gqd.state.effect import Effect
from gqd.state.events.event import ArrayTaskLeft, ArrayTasksCancelled, ArrayThrottleSet, Event
from gqd.state.policy import Policy
from gqd.state.volatile import Volatile

ArrayEvent = ArrayTaskLeft | ArrayTasksCancelled | ArrayThrottleSet


@dataclass(slots=True, frozen=True)
class Turn:
    events: tuple[Event, ...] = ()
    """Durable facts, past tense."""
    effects: tuple[Effect, ...] = ()
    """To be done by the shell, after the commit."""


def _job_of(event: Event) -> JobId | None:
    subject = getattr(event, "attempt_id", None) or getattr(event, "step_id", None) or event
    return getattr(subject, "job_id", None)


@dataclass(slots=True)
class Draft:
    """A turn in the making.  An event is applied as soon as it is noted, so that what follows sees it."""

    cluster: Cluster
    policy: Policy
    volatile: Volatile
    now: float
    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    denied: dict[str, list[int]] = field(default_factory=dict)
    """Jobs that a request about many named without the right to: by the code of the refusal, for the audit trail."""

    def note(self, event: Event) -> None:
        """It happened: apply it, and write it down."""
        apply(self.cluster, event)
        self.events.append(event)

    def touched_jobs(self) -> set[JobId]:
        """The jobs that something happened to in this turn, and the arrays of those that are tasks."""
        touched = {job_id for event in self.events if (job_id := _job_of(event)) is not None}
        arrays = {event.array_job_id for event in self.events if isinstance(event, ArrayEvent)}
        jobs = (self.cluster.jobs.get(job_id) for job_id in touched)
        return touched | arrays | {job.array_job_id for job in jobs if job is not None and job.array_job_id is not None}

    def deny(self, job_id: int, code: str = "not_owner") -> None:
        self.denied.setdefault(code, []).append(job_id)

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def turn(self) -> Turn:
        return Turn(tuple(self.events), tuple(self.effects))
