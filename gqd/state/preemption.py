"""Who gives way to whom, and what came of it: values of the durable state, and their invariant.  Pure."""

from __future__ import annotations

import msgspec

from gq.model.ids import JobId
from gq.model.job import SignalSpec

MOST_NOTICE_S = 600
"""So long before its end a job that gives way is told at most: else one that wants its signal a week before its time
limit would give way to nobody."""


class PreemptionNotice(msgspec.Struct, frozen=True, kw_only=True, rename={"preemptor": "to", "notified_at": "told_at"}):
    """Of an attempt that was told to: it is ended at `ends_at`, unless it is over by then or may stay after all."""

    preemptor: JobId
    notified_at: float
    ends_at: float
    is_reclaim: bool = False
    parks: bool = False
    """It is not ended at that instant but parked (`gqd.state.parked`)."""


class Preempted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a job that has given way: the last time, and what all times have cost."""

    by: str
    """The label of the other job, whoever asks; it may be long gone."""
    user: str
    """Its owner."""
    at: float
    lost_gpu_s: float
    is_reclaim: bool = False
    reservation: str = ""
    """In which that one runs."""
    not_parked: str = ""
    """Why it was ended, where it was to stand still."""
    times: int = 1
    all_lost_gpu_s: float = 0.0


class Resumed(msgspec.Struct, frozen=True):
    """Of a job that was started again and said when it was where it had been before."""

    attempt: int
    """In which it said so last."""
    cost_s: float
    """What a resume costs it: half of it is the last one, a quarter the one before."""


def notice_s(signal: SignalSpec | None) -> float:
    """From when a job that gives way is told to when it is ended: as long as before its time limit, within bounds."""
    return 0.0 if signal is None else float(min(signal.before_s, MOST_NOTICE_S))
