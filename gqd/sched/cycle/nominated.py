"""Those to whom others give way, in a pass: each is tried before everybody else, as if it waited alone.  Pure.

A claimant starts on what is kept for it as soon as all of that is free; or on something else that is, where it puts
off nobody who was promised a start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from gq.model.ids import JobId
from gqd.sched.cycle.scheduling_pass import SchedulingPass
from gqd.sched.cycle.wait_reasons import brief_reason
from gqd.sched.preemption.nominations import beside_claims, victims_of, without_claim
from gqd.sched.preemption.suspend_victims import without_lent
from gqd.sched.reservation.scope import Some, active, columns_in, inside, outside, with_running
from gqd.sched.snapshot.model import Claim, PendingJob, RunningJob, Snapshot
from gqd.state.plan import Preempts, Protected, Wait

LATE_S = 300.0
"""Who is there so long after it should have gone may never go: nobody waits for it any more."""


def nominee_view(snapshot: Snapshot, claim: Claim) -> Snapshot:
    """What the claim's job may use, with nobody else in the queue; without it, where it is not ready to start."""
    view = beside_claims(snapshot, but=claim.job_id)
    of = next((one for one in active(view) if (one.name, one.number) == (claim.reservation, claim.occurrence)), None)
    view = outside(view) if of is None else inside(view, of)
    columns = columns_in(snapshot)
    places = np.flatnonzero(columns.job_id == claim.job_id)
    return replace(view, pending=Some(snapshot.pending, places), columns=columns.only(places), resumes_at=None)


def planned_starts_of_others(snapshot: Snapshot, view: Snapshot, but: JobId) -> list[tuple[PendingJob, Protected]]:
    """Of others that wait."""
    ids = columns_in(snapshot).job_id
    told = [one for one in view.protected if one.is_promise and one.job_id != but]
    places = [(one, np.flatnonzero(ids == one.job_id)) for one in told]
    return [(snapshot.pending[int(found[0])], one) for one, found in places if len(found)]


def try_nomination(within: SchedulingPass, claim: Claim, promised: Iterable[tuple[PendingJob, Protected]]) -> None:
    """The job starts if it can; else it is told why not, and holds its place with all limits.

    Nobody else gives way to it: the pass does not preempt.
    """
    job = within.snapshot.pending[0]
    wait = within.non_resource_reason(job)
    if wait is None and within.starts_on(0, claim.grants):
        return
    if wait is None:
        within.protection.promise(promised)
        within.consider(0)
        if within.started_jobs():
            return
    within.draft.claimants[job.job_id] = wait or _told(within, job, claim)
    within.charge(0, job, within.usage_of(job, claim.grants))


def _told(within: SchedulingPass, job: PendingJob, claim: Claim) -> Wait:
    """That others give way to it, as long as one of them is there, and none is late."""
    there = victims_of(within.snapshot.running, job.job_id)
    late_at = LATE_S + min((inf if one.ends_at is None else one.ends_at for one in there), default=inf)
    if not there or late_at <= within.snapshot.now:
        return brief_reason(within, 0, job)
    within.draft.changes_at = min(within.draft.changes_at, late_at)
    return Preempts(victims=tuple(sorted({one.job_id for one in there})), until=claim.until)


def after_nomination(snapshot: Snapshot, claim: Claim, started: Sequence[RunningJob]) -> Snapshot:
    """If it has started, whoever gave way to it stays, nobody knows for how long; they are not asked again at once.

    What is being given up is given up all the same.
    """
    if not started:
        return snapshot
    running = [_staying(one) if one.gives_way_to == claim.job_id else one for one in snapshot.running]
    return with_running(
        without_claim(replace(snapshot, running=running), claim.job_id), without_lent(started, claim.parked)
    )


def _staying(one: RunningJob) -> RunningJob:
    return replace(one, gives_way_to=None) if one.is_part else replace(one, ends_at=None)
