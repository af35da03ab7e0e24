"""Who gives way to whom, and what came of it: values of the durable state, and their invariant.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gq.model.ids import AttemptId, JobId
from gq.model.job import SignalSpec
from gq.model.resource import Grant, gpus_in
from gq.model.state import JobState

if TYPE_CHECKING:
    from gqd.state.cluster import Cluster
    from gqd.state.records import Attempt


MOST_NOTICE_S = 600
"""So long before its end a job that gives way is told at most: else one that wants its signal a week before its time
limit would give way to nobody."""


class GivingWay(msgspec.Struct, frozen=True, kw_only=True):
    """Of an attempt that was told to: it is ended at `ends_at`, unless it is over by then or may stay after all."""

    to: JobId
    told_at: float
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


@dataclass(slots=True)
class Claim:
    """What a waiting job is to have when others have given way.  Nobody else gets what is free of it."""

    job_id: JobId
    grants: tuple[Grant, ...]
    victims: tuple[AttemptId, ...]
    made_at: float
    reservation: str = ""
    occurrence: int = 0


def notice_s(signal: SignalSpec | None) -> float:
    """From when a job that gives way is told to when it is ended: as long as before its time limit, within bounds."""
    return 0.0 if signal is None else float(min(signal.before_s, MOST_NOTICE_S))


def lost_gpu_s(attempt: Attempt, at: float) -> float:
    """What it has done by then and not saved, in GPU-seconds; nothing of one that has not started."""
    if attempt.start_at is None:
        return 0.0
    stood_s = attempt.suspended_s + (0.0 if attempt.suspended_at is None else at - attempt.suspended_at)
    since_s = at - max(attempt.start_at, attempt.checkpoint_at or 0.0)
    return max(0.0, min(since_s, at - attempt.start_at - stood_s)) * gpus_in(attempt.grants)


def check(cluster: Cluster) -> None:
    """Claims are of jobs that wait, and each running victim gives way to exactly the job whose claim names it."""
    named: dict[AttemptId, JobId] = {}
    for job_id, claim in cluster.claims.items():
        job = cluster.jobs.get(job_id)
        assert job is not None and job.state is JobState.PENDING, f"15: a claim of job {job_id}, which does not wait"
        for attempt_id in claim.victims:
            assert attempt_id not in named, f"15: {attempt_id} gives way to {job_id} and {named[attempt_id]}"
            named[attempt_id] = job_id
    for attempt_id, attempt in cluster.attempts.items():
        to = named.get(attempt_id) if attempt.end_at is None else None
        way = None if attempt.end_at is not None or attempt.giving_way is None else attempt.giving_way.to
        assert way == to, f"15: {attempt_id} gives way to {way}, and the claims say {to}"
