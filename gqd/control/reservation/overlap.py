"""Whether a job that gets more time, or starts late, would run into a reservation.  Pure; changes nothing."""

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
    """The job must have ended by this instant."""
    why: str


def refuse_reaching(draft: TurnBuilder, job: Job, attempt: Attempt, time_limit_s: int | None) -> None:
    """`Refusal` if the attempt, with this time limit (None: no limit), would run into a reservation."""
    began_at = attempt.allocated_at + held_up_s(draft, attempt) if attempt.start_at is None else attempt.start_at
    began_at += paused_s(attempt, draft.now)
    first = first_bound(draft, attempt)
    if first is not None and (time_limit_s is None or began_at + time_limit_s > first.at):
        minutes = max(0, int(first.at - began_at) // 60)
        message = f"job {job.label} cannot have this time limit: {first.why}"
        raise Refusal("reaches_reservation", message, f"use at most --time={minutes} (minutes, from its start)")


def first_bound(draft: TurnBuilder, attempt: Attempt) -> Bound | None:
    """The earliest instant at which a reservation needs what the attempt holds; None: none does."""
    return min(_bounds(draft, attempt), default=None)


def held_up_s(draft: TurnBuilder, attempt: Attempt) -> float:
    """Seconds by which the launch exceeds ``prepare_s`` so far, which reduce `Policy.clear_s`; 0 once it started."""
    job = draft.cluster.jobs.get(attempt.attempt_id.job_id)
    if job is None or job.state is not JobState.STARTING or job.attempt_id != attempt.attempt_id:
        return 0.0
    return max(0.0, draft.now - attempt.allocated_at - draft.policy.timers.prepare_s)


def late_for(draft: TurnBuilder, attempt: Attempt, began_at: float) -> str:
    """Why a start at `began_at`, delayed by a crash or a broken link, is too late for a reservation; '': it is not."""
    job, policy = draft.cluster.jobs[attempt.attempt_id.job_id], draft.policy
    if began_at - attempt.allocated_at <= policy.timers.prepare_s:
        return ""  # the plan that allocated it, and reservations, allow for this delay
    until = inf if job.time_limit_s is None else began_at + job.time_limit_s
    clear_s = policy.clear_s - policy.timers.prepare_s
    name = next((name for name, _ in _met(draft, attempt, until + clear_s)), None)
    return "" if name is None else f"its start was delayed so long that it would overlap reservation `{name}`"


def _bounds(draft: TurnBuilder, attempt: Attempt) -> Iterator[Bound]:
    key = attempt.occurrence
    own = None if key is None else draft.cluster.reservations.get(key.name)
    if key is not None and own is not None and key.number in own.occurrences and Flag.FLEX not in own.booking.flags:
        yield Bound(own.occurrences[key.number].end_at, f"it runs in reservation `{key.name}`, which ends earlier")
    for name, one in _met(draft, attempt, inf):
        clear_at = one.begin_at - draft.policy.clear_s
        yield Bound(clear_at, f"reservation `{name}` has {', '.join(_shared(attempt, one))} from then on")


def _met(draft: TurnBuilder, attempt: Attempt, before: float) -> Iterator[tuple[str, Occurrence]]:
    """(reservation name, occurrence) of the occurrences that begin before `before` and share resources of the attempt.

    Without the attempt's own reservation; a borrowing attempt is preempted instead by reservations that lend.
    """
    for reservation in draft.cluster.reservations.values():
        if attempt.occurrence is not None and attempt.occurrence.name == reservation.name:
            continue
        if attempt.borrows and reservation.is_lent:
            continue
        for occurrence in reservation.occurrences.values():
            if occurrence.begin_at < before and _shared(attempt, occurrence):
                yield reservation.name, occurrence


def _shared(attempt: Attempt, occurrence: Occurrence) -> list[str]:
    """Names of nodes on which the occurrence reserves CPUs or GPUs of the attempt."""
    kept = {grant.node: grant for grant in occurrence.grants}
    return [name for name, part in attempt.parts.items() if name in kept and shares(part.grant, kept[name])]
