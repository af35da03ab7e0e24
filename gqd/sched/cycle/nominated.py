"""Nominated jobs, for which victims make room: each is tried before all other jobs, as if it waited alone.  Pure.

A nominated job starts on its nominated resources as soon as all of them are free.  Before that it starts on other free
resources if it delays no planned start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from gq.model.ids import JobId
from gqd.sched.cycle.scheduling_pass import SchedulingPass
from gqd.sched.cycle.state import PassState
from gqd.sched.cycle.wait_reasons import brief_reason
from gqd.sched.preemption.nominations import victims_of, with_nominations, without_nomination
from gqd.sched.preemption.suspend_victims import without_lent
from gqd.sched.reservation.scope import Some, active, columns_in, inside, outside, with_running
from gqd.sched.snapshot.model import Nomination, PendingJob, RunningJob, Snapshot
from gqd.state.plan import Preempts, Protected, Wait

OVERDUE_S = 300.0
"""Time after its expected end from which the preemptor no longer counts on a victim: it may never end."""


def nominee_view(snapshot: Snapshot, claim: Nomination) -> Snapshot:
    """Return what the nominated job may use; the queue holds this job alone, or nothing if it is not ready."""
    view = with_nominations(snapshot, but=claim.job_id)
    key = (claim.reservation, claim.occurrence)
    occurrence = next((active_ for active_ in active(view) if (active_.name, active_.number) == key), None)
    view = outside(view) if occurrence is None else inside(view, occurrence)
    columns = columns_in(snapshot)
    indices = np.flatnonzero(columns.job_id == claim.job_id)
    return replace(view, pending=Some(snapshot.pending, indices), columns=columns.only(indices), resumes_at=None)


def planned_starts_of_others(snapshot: Snapshot, view: Snapshot, but: JobId) -> list[tuple[PendingJob, Protected]]:
    """Return the guaranteed planned starts of the other pending jobs, each with its job."""
    ids = columns_in(snapshot).job_id
    starts = [start for start in view.protected if start.is_promise and start.job_id != but]
    found = [(start, np.flatnonzero(ids == start.job_id)) for start in starts]
    return [(snapshot.pending[int(indices[0])], start) for start, indices in found if len(indices)]


def try_nomination(
    nominee_pass: SchedulingPass, claim: Nomination, promised: Iterable[tuple[PendingJob, Protected]]
) -> None:
    """Start the nominated job if possible; else record why it waits and count it against all limits.

    The job gets no further victims, since the pass does not preempt.
    """
    state = nominee_pass.state
    job = state.snapshot.pending[0]
    wait = state.non_resource_reason(job)
    if wait is None and nominee_pass.starts_on(0, claim.grants):
        return
    if wait is None:
        state.planned_starts.promise(promised)
        nominee_pass.consider(0)
        if state.started_jobs():
            return
    state.draft.claimants[job.job_id] = wait or _wait_reason(state, job, claim)
    state.charge(0, job, state.usage_of(job, claim.grants))


def _wait_reason(state: PassState, job: PendingJob, claim: Nomination) -> Wait:
    """Return that the job waits for its victims, as long as some are left and none is overdue."""
    victims = victims_of(state.snapshot.running, job.job_id)
    overdue_at = OVERDUE_S + min((inf if victim.ends_at is None else victim.ends_at for victim in victims), default=inf)
    if not victims or overdue_at <= state.snapshot.now:
        return brief_reason(state, 0, job)
    state.draft.changes_at = min(state.draft.changes_at, overdue_at)
    return Preempts(victims=tuple(sorted({victim.job_id for victim in victims})), until=claim.until)


def after_nomination(snapshot: Snapshot, claim: Nomination, started: Sequence[RunningJob]) -> Snapshot:
    """Return the snapshot after a nominated job was tried; `started`: the job, if it has started.

    Its victims then stay, until an unknown instant, so that this plan does not preempt them again.  Resources that an
    elastic job is already releasing are released all the same.
    """
    if not started:
        return snapshot
    running = [_staying(job) if job.preemptor == claim.job_id else job for job in snapshot.running]
    return with_running(
        without_nomination(replace(snapshot, running=running), claim.job_id), without_lent(started, claim.parked)
    )


def _staying(victim: RunningJob) -> RunningJob:
    return replace(victim, preemptor=None) if victim.is_part else replace(victim, ends_at=None)
