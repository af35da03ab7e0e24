"""What a pass says of those that it did not start: why each of them waits, as things stand after all starts.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

import msgspec

from gq.model.resource import Grant
from gqd.sched.backfill.windows import overlap, runs_into
from gqd.sched.placement.placement import place as put
from gqd.sched.reasons.unschedulable import is_picky, why_not_now
from gqd.sched.request import Shape, wanted_in_all
from gqd.sched.reservation.windows import BookedWindow
from gqd.sched.snapshot.model import PendingJob, RunningJob
from gqd.sched.timeline.timeline import ends_if_started
from gqd.state.plan import Behind, Insufficient, Wait, WouldDelay

if TYPE_CHECKING:
    from gqd.sched.cycle.scheduling_pass import SchedulingPass

_Known = dict[tuple[Shape, tuple[tuple[str, float], ...]], Wait]


def explain(of: SchedulingPass) -> Iterator[None]:
    """Everybody who has no reason yet gets one."""
    running = [*of.snapshot.running, *of.started_jobs()]
    known: _Known = {}
    for job in of.snapshot.pending:
        is_through = job.job_id in of.waits or (of.asked is not None and job.job_id not in of.asked)
        if is_through or of.has_started(job):
            continue
        wait = of.non_resource_reason(job) or of.ground.hopeless(of.snapshot, job)
        of.waits[job.job_id] = wait or _why_blocked(of, job, running, known)
        yield


def set_missing_resource_reasons(of: SchedulingPass) -> None:
    """Those that were left out for their shape lack the same as the first of it."""
    for code, wait in of.lacking.items():
        places = of.scan.indices_of_shape(code)
        for job_id in of.scan.columns.job_id[places[of.scan.is_unvisited[places]]].tolist():
            of.waits.setdefault(job_id, wait)


def brief_reason(of: SchedulingPass, place: int, job: PendingJob) -> Insufficient:
    """What it wants, without who holds it."""
    starts_at = of.protection.promised_at(job.job_id)
    short = of.lacking.get(int(of.scan.columns.shape[place]))
    if isinstance(short, Insufficient):
        return msgspec.structs.replace(short, starts_at=starts_at)
    gpus, cpus = wanted_in_all(job.shape)
    places = of.ground.available(job, of.snapshot.now)
    now = of.guard.now
    counts = now.gpu_counts if gpus else now.cpu_counts
    free = int(counts[places].sum()) if len(places) else 0
    wanted = gpus or cpus
    return Insufficient(
        resource="GPUs" if gpus else "CPUs",
        wanted=wanted,
        free=free,
        holders=(),
        is_fragmented=free >= wanted,
        starts_at=starts_at,
    )


def _why_blocked(of: SchedulingPass, job: PendingJob, running: list[RunningJob], known: _Known) -> Wait:
    places = of.ground.available(job, of.snapshot.now)
    key = (job.shape, job.avoid)
    if key not in known:
        waited_s = of.waited_s(job)
        grants = put(of.guard.now, job.shape, places, waited_s=waited_s)
        if grants is not None:
            return _would_delay(of, job, grants)
        why = why_not_now(of.snapshot, of.guard.now, job, places, running, waited_s)
        if is_picky(job.shape):
            return why
        known[key] = why
    return known[key]


def _would_delay(of: SchedulingPass, job: PendingJob, grants: tuple[Grant, ...]) -> Wait:
    """It fits, and does not start."""
    ends = ends_if_started(job, of.snapshot.now, of.scheduling)
    blocker = of.guard.make_room(grants, ends)
    if blocker is None:
        return Behind(of.heads.get(job.shape.partition, job.job_id))
    if isinstance(blocker, BookedWindow):
        return runs_into(blocker, grants, ends)
    end = blocker.end_of(ends)
    nodes = overlap(grants, blocker.grants)
    return WouldDelay(job_id=blocker.job.job_id, starts_at=blocker.at, ends_at=end if end < inf else None, nodes=nodes)
