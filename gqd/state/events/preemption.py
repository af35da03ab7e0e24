"""Facts of jobs that give way to others: see `gqd.state.events.event`.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class PreemptionDecided(EventBase, frozen=True, kw_only=True):
    """The victims were told to give way to this job, and what they leave is kept for it.

    Each of them is ended at its own instant, unless it is over by then.
    """

    job_id: JobId
    grants: tuple[Grant, ...]
    victims: tuple[tuple[AttemptId, float], ...]
    """(who, when it is ended)"""
    is_reclaim: bool = False
    """Its account takes back what it is guaranteed."""
    parks: tuple[AttemptId, ...] = ()
    """Those of the victims that are parked instead: they stand still, and lend what they hold."""
    reservation: str = ""
    """It is to start in this one …"""
    occurrence: int = 0
    """… in this occurrence of it."""


class PreemptionDropped(EventBase, frozen=True, kw_only=True):
    """The job starts, or does not need, or cannot have, what was kept for it: victims that are still running stay."""

    job_id: JobId
    why: str


class JobCheckpointed(EventBase, frozen=True, kw_only=True):
    """What the attempt has done so far is saved, as its processes say."""

    attempt_id: AttemptId


class JobCaughtUp(EventBase, frozen=True, kw_only=True):
    """The attempt, not the job's first, is where the one before was stopped, as its processes say."""

    attempt_id: AttemptId
    resume_s: float
    """That took it so long, since its start, but for when it stood still."""
