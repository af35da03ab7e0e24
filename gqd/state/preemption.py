"""Values of preemption in the records of attempts and jobs.  Pure."""

from __future__ import annotations

import msgspec

from gq.model.ids import JobId
from gq.model.job import SignalSpec

MAX_NOTICE_S = 600
"""Maximum number of seconds between the notice and the end of a victim.  Without it, a job that asks for its signal a
week before its time limit could hardly be preempted."""


class PreemptionNotice(msgspec.Struct, frozen=True, kw_only=True, rename={"preemptor": "to", "notified_at": "told_at"}):
    """The preemption that a victim was notified of: it ends at `ends_at` unless it ends earlier or the preemption is
    withdrawn."""

    preemptor: JobId
    notified_at: float
    ends_at: float
    is_reclaim: bool = False
    parks: bool = False
    """At `ends_at` the victim is parked (`gqd.state.parked`), not ended."""


class Preempted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The latest preemption of a job, and the cost of all its preemptions."""

    by: str
    """Label of the preemptor, which may no longer be in memory."""
    user: str
    """Owner of the preemptor."""
    at: float
    lost_gpu_s: float
    is_reclaim: bool = False
    reservation: str = ""
    """Reservation in which the preemptor runs; empty: none."""
    not_parked: str = ""
    """Why the job was ended although it was to be parked."""
    times: int = 1
    all_lost_gpu_s: float = 0.0


class Resumed(msgspec.Struct, frozen=True):
    """Measured cost of a job's resumes after preemption."""

    attempt: int
    """Attempt that last reported to have caught up."""
    cost_s: float
    """Mean seconds until a restarted attempt has caught up: the last one weighs one half, the one before a quarter, and
    so on."""


def notice_s(signal: SignalSpec | None) -> float:
    """Seconds between the notice and the end of a victim: as in its ``--signal``, within bounds."""
    return 0.0 if signal is None else float(min(signal.before_s, MAX_NOTICE_S))
