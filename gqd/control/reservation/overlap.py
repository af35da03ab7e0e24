"""Whether a job that is given more time, or starts late, would reach into what is reserved.  Pure; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gq.errors import Refusal
from gq.model.reservation import Flag
from gq.model.resource import shares
from gq.model.state import JobState
from gqd.state.index.deadlines import paused_s
from gqd.state.records import Attempt, Job
from gqd.state.reservation import Occurrence

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


class Bound(NamedTuple):
    at: float
    """The job must be over by then."""
    why: str


def refuse_reaching(draft: TurnBuilder, job: Job, attempt: Attempt, time_limit_s: int | None) -> None:
    """The attempt must not run so long; None: for ever."""
    began_at = attempt.allocated_at + held_up_s(draft, attempt) if attempt.start_at is None else attempt.start_at
    began_at += paused_s(attempt, draft.now)
    first = first_bound(draft, attempt)
    if first is not None and (time_limit_s is None or began_at + time_limit_s > first.at):
        minutes = max(0, int(first.at - began_at) // 60)
        message = f"job {job.label} cannot have so long: {first.why}"
        raise Refusal("reaches_reservation", message, f"at most --time={minutes} (minutes, from its start)")


def first_bound(draft: TurnBuilder, attempt: Attempt) -> Bound | None:
    """What is first in its way."""
    return min(_bounds(draft, attempt), default=None)


def held_up_s(draft: TurnBuilder, attempt: Attempt) -> float:
    """How much longer than it may its launch takes by now: so much of `Policy.clear_s` is gone.  0 if it is over."""
    job = draft.cluster.jobs.get(attempt.attempt_id.job_id)
    if job is None or job.state is not JobState.STARTING or job.attempt_id != attempt.attempt_id:
        return 0.0
    return max(0.0, draft.now - attempt.allocated_at - draft.policy.timers.prepare_s)


def late_for(draft: TurnBuilder, attempt: Attempt, began_at: float) -> str:
    """Why a launch that a crash or a cut line held up is too late if it begins then; else empty."""
    job, policy = draft.cluster.jobs[attempt.attempt_id.job_id], draft.policy
    if began_at - attempt.allocated_at <= policy.timers.prepare_s:
        return ""  # so much was allowed for when it was allocated, and is when something is reserved
    until = inf if job.time_limit_s is None else began_at + job.time_limit_s
    clear_s = policy.clear_s - policy.timers.prepare_s
    name = next((name for name, _ in _met(draft, attempt, until + clear_s)), None)
    return "" if name is None else f"its start was held up until it would reach into reservation `{name}`"


def _bounds(draft: TurnBuilder, attempt: Attempt) -> Iterator[Bound]:
    key = attempt.occurrence
    own = None if key is None else draft.cluster.reservations.get(key.name)
    if key is not None and own is not None and key.number in own.occurrences and Flag.FLEX not in own.booking.flags:
        yield Bound(own.occurrences[key.number].end_at, f"it runs in reservation `{key.name}`, which ends before")
    for name, one in _met(draft, attempt, inf):
        clear_at = one.begin_at - draft.policy.clear_s
        yield Bound(clear_at, f"reservation `{name}` keeps {', '.join(_shared(attempt, one))} then")


def _met(draft: TurnBuilder, attempt: Attempt, before: float) -> Iterator[tuple[str, Occurrence]]:
    """What begins before that and keeps what the attempt has, by the reservation's name.

    But for that it runs in; and who borrows is asked to go where it is wanted.
    """
    for reservation in draft.cluster.reservations.values():
        if attempt.occurrence is not None and attempt.occurrence.name == reservation.name:
            continue
        if attempt.borrows and reservation.is_lent:
            continue
        for one in reservation.occurrences.values():
            if one.begin_at < before and _shared(attempt, one):
                yield reservation.name, one


def _shared(attempt: Attempt, one: Occurrence) -> list[str]:
    """Nodes on which the occurrence keeps CPUs or GPUs that the attempt has."""
    kept = {grant.node: grant for grant in one.grants}
    return [name for name, part in attempt.parts.items() if name in kept and shares(part.grant, kept[name])]
