"""Preemption by suspension: which jobs may be suspended in place, and what other jobs may count on.  Pure.

A suspended victim (`gqd.state.parked`) lends its CPUs and GPUs to its preemptor only, keeps its memory and all other
scalar resources, and gets everything back when the preemptor is over.  To all other jobs it holds its resources for an
unknown time.  So a job is only suspended if nothing counts on its end: resources of planned starts and reservations
must be elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gq.model.account import PreemptMode, QosInfo
from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.backfill.windows import JobWindow
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob
from gqd.state.parked import without
from gqd.state.records import mask_of

if TYPE_CHECKING:
    from gqd.sched.backfill.windows import BackfillProfile
    from gqd.sched.reservation.windows import ReservationWindow

NOBODY: frozenset[JobId] = frozenset()


def parkable(
    backfill: BackfillProfile, job: PendingJob, there: Iterable[RunningJob], known: Mapping[str, QosInfo]
) -> frozenset[JobId]:
    """The running jobs that could be suspended for this job."""
    if not job.fits_beside:
        return NOBODY
    windows: list[JobWindow | ReservationWindow] = [
        window for window in backfill.windows if window.job.job_id != job.job_id
    ]
    windows += backfill.booked
    return frozenset(
        one.job_id
        for one in there
        if may_park(one, known) and not any(counts_on(backfill, one, window) for window in windows)
    )


def may_park(job: RunningJob, known: Mapping[str, QosInfo]) -> bool:
    """Whether the job itself and its QOS allow suspension."""
    own = known.get(job.qos)
    return job.can_park and own is not None and own.preempt_mode is PreemptMode.SUSPEND


def counts_on(backfill: BackfillProfile, job: RunningJob, window: JobWindow | ReservationWindow) -> bool:
    """Whether the window may rely on resources that the job holds."""
    nodes = {grant.node for grant in job.grants}
    if any(grant.node in nodes for grant in window.grants):
        return True
    if isinstance(window, JobWindow) and window.profile is not None:  # it may be moved
        here = {backfill.places[node] for node in nodes if node in backfill.places}
        return not here.isdisjoint(int(candidate) for candidate in window.candidates)
    return False


# ── what is lent ──────────────────────────────────────────────────────────────────────────────────────────────


def cut(grants: Iterable[Grant], taken: Sequence[Grant]) -> tuple[Grant, ...]:
    """The grants without the CPUs and GPUs of `taken`."""
    left = []
    for grant in grants:
        for one in taken:
            if one.node == grant.node:
                grant = without(grant, one)
        left.append(grant)
    return tuple(left)


def without_lent(jobs: Iterable[RunningJob], lent: Sequence[Grant]) -> list[RunningJob]:
    """The jobs without the resources lent to them, which are not released to all when they end."""
    return [replace(job, grants=cut(job.grants, lent)) for job in jobs] if lent else list(jobs)


def give(books: Overlay, lent: Iterable[Grant]) -> None:
    """Mark lent resources as free in `books`, for the job that they are lent to."""
    for one in lent:
        if one.node in books.node_table.index_of:
            books.give_masks(books.node_table.index_of[one.node], mask_of(one.cpus), mask_of(one.gpus), 0)
