"""Events of preemption: decisions, checkpoints and resumes.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class PreemptionDecided(EventBase, frozen=True, kw_only=True):
    """The victims were notified of their preemption for this job, for which their resources are kept.

    Each victim is ended at its own instant, unless it ends earlier.
    """

    job_id: JobId
    grants: tuple[Grant, ...]
    victims: tuple[tuple[AttemptId, float], ...]
    """(victim, instant of its end)."""
    is_reclaim: bool = False
    """The job's account reclaims guaranteed GPUs."""
    parks: tuple[AttemptId, ...] = ()
    """Victims that are parked instead of ended: suspended, with their resources lent to the job."""
    reservation: str = ""
    """Reservation in which the job is to start; empty: outside reservations."""
    occurrence: int = 0
    """Number of the reservation's occurrence."""


class PreemptionDropped(EventBase, frozen=True, kw_only=True):
    """The job starts, or does not need or cannot get the kept resources: victims that still run stay."""

    job_id: JobId
    why: str


class JobCheckpointed(EventBase, frozen=True, kw_only=True):
    """The attempt's processes reported that their work is saved."""

    attempt_id: AttemptId


class JobCaughtUp(EventBase, frozen=True, kw_only=True):
    """The processes of a restarted attempt reported that they are where the former attempt was stopped."""

    attempt_id: AttemptId
    resume_s: float
    """Seconds from the attempt's start until then, without suspensions."""
