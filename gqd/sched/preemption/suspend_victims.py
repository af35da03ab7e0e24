"""Who gives way by standing still where it is, and what others may count on then.  Pure.

A parked job (`gqd.state.parked`) lends its CPUs and GPUs to the job that it gives way to and to nobody else, keeps its
memory and all else that is only counted, and has its own back when that job is over.  For everybody else it holds all
of it all the time, and nobody knows until when.  So it is only parked where nobody counts on its end: what is kept for
a protected start or for a reservation must be elsewhere.
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
    from gqd.sched.backfill.windows import Guard
    from gqd.sched.reservation.windows import BookedWindow

NOBODY: frozenset[JobId] = frozenset()


def parkable(
    guard: Guard, job: PendingJob, there: Iterable[RunningJob], known: Mapping[str, QosInfo]
) -> frozenset[JobId]:
    """Those who could stand still for this job."""
    if not job.fits_beside:
        return NOBODY
    windows: list[JobWindow | BookedWindow] = [one for one in guard.windows if one.job.job_id != job.job_id]
    windows += guard.booked
    return frozenset(
        one.job_id
        for one in there
        if may_park(one, known) and not any(counts_on(guard, one, window) for window in windows)
    )


def may_park(job: RunningJob, known: Mapping[str, QosInfo]) -> bool:
    """As far as itself and its QOS go."""
    own = known.get(job.qos)
    return job.can_park and own is not None and own.preempt_mode is PreemptMode.SUSPEND


def counts_on(guard: Guard, job: RunningJob, window: JobWindow | BookedWindow) -> bool:
    """Something of what the job holds may be meant for whoever has the window."""
    nodes = {grant.node for grant in job.grants}
    if any(grant.node in nodes for grant in window.grants):
        return True
    if isinstance(window, JobWindow) and window.profile is not None:  # it may be moved
        here = {guard.places[node] for node in nodes if node in guard.places}
        return not here.isdisjoint(int(one) for one in window.candidates)
    return False


# ── what is lent ──────────────────────────────────────────────────────────────────────────────────────────────


def cut(grants: Iterable[Grant], taken: Sequence[Grant]) -> tuple[Grant, ...]:
    """Without these CPUs and GPUs."""
    left = []
    for grant in grants:
        for one in taken:
            if one.node == grant.node:
                grant = without(grant, one)
        left.append(grant)
    return tuple(left)


def without_lent(jobs: Iterable[RunningJob], lent: Sequence[Grant]) -> list[RunningJob]:
    """As everybody else sees who has what others lend: that does not come back to all when they end."""
    return [replace(one, grants=cut(one.grants, lent)) for one in jobs] if lent else list(jobs)


def give(books: Overlay, lent: Iterable[Grant]) -> None:
    """It is free for the one whom it is lent to."""
    for one in lent:
        if one.node in books.node_table.index_of:
            books.give_masks(books.node_table.index_of[one.node], mask_of(one.cpus), mask_of(one.gpus), 0)
