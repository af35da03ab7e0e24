"""A turn: the events and effects of one call of the controller, and the builder that collects them.  Pure."""

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
    """Actions that the shell carries out after the commit."""


def _job_of(event: Event) -> JobId | None:
    subject = getattr(event, "attempt_id", None) or getattr(event, "step_id", None) or event
    return getattr(subject, "job_id", None)


@dataclass(slots=True)
class TurnBuilder:
    """A turn under construction.  Each event is applied as soon as it is emitted, so later decisions see its change."""

    cluster: Cluster
    policy: Policy
    volatile: Volatile
    now: float
    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    denied: dict[str, list[int]] = field(default_factory=dict)
    """Code of a refusal → the jobs that a request about many jobs was refused for (for the audit trail)."""

    def emit(self, event: Event) -> None:
        """Apply the event to the cluster and add it to the turn."""
        apply(self.cluster, event)
        self.events.append(event)

    def touched_jobs(self) -> set[JobId]:
        """The jobs that an event of this turn is about; for a task, its array as well."""
        touched = {job_id for event in self.events if (job_id := _job_of(event)) is not None}
        arrays = {event.array_job_id for event in self.events if isinstance(event, ArrayEvent)}
        jobs = (self.cluster.jobs.get(job_id) for job_id in touched)
        return touched | arrays | {job.array_job_id for job in jobs if job is not None and job.array_job_id is not None}

    def deny(self, job_id: int, code: str = "not_owner") -> None:
        """Record that the request may not touch this job."""
        self.denied.setdefault(code, []).append(job_id)

    def enqueue(self, effect: Effect) -> None:
        """Add an effect, which the shell carries out after the commit."""
        self.effects.append(effect)

    def build(self) -> Turn:
        return Turn(tuple(self.events), tuple(self.effects))
