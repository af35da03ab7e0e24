"""The reasons for which jobs wait, as a scheduling pass finds them after all of its starts.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from gq.model.resource import Grant
from gqd.sched.backfill.windows import overlap, runs_into
from gqd.sched.cycle.state import PassState
from gqd.sched.placement.placement import place as place_job
from gqd.sched.reasons.unschedulable import is_picky, why_not_now
from gqd.sched.request import Shape, wanted_in_all
from gqd.sched.reservation.windows import ReservationWindow
from gqd.sched.snapshot.model import PendingJob, RunningJob
from gqd.sched.timeline.timeline import ends_if_started
from gqd.state.plan import BehindPlannedStart, Insufficient, Wait, WouldDelay

_ReasonCache = dict[tuple[Shape, tuple[tuple[str, float], ...]], Wait]


def explain(state: PassState) -> Iterator[None]:
    """Give each job that has not started, of those asked for, a reason unless it has one."""
    running = [*state.snapshot.running, *state.started_jobs()]
    cache: _ReasonCache = {}
    for job in state.snapshot.pending:
        is_done = job.job_id in state.waits or (state.asked is not None and job.job_id not in state.asked)
        if is_done or state.has_started(job):
            continue
        wait = state.non_resource_reason(job) or state.eligibility.never_fits_reason(state.snapshot, job)
        state.waits[job.job_id] = wait or _why_blocked(state, job, running, cache)
        yield


def set_missing_resource_reasons(state: PassState) -> None:
    """Give jobs that were skipped with their shape the reason of the first job of that shape."""
    for code, wait in state.missing_by_shape.items():
        indices = state.scan.indices_of_shape(code)
        for job_id in state.scan.columns.job_id[indices[state.scan.is_unvisited[indices]]].tolist():
            state.waits.setdefault(job_id, wait)


def brief_reason(state: PassState, queue_index: int, job: PendingJob) -> Insufficient:
    """Return the resource that the job lacks, without the jobs that hold it."""
    starts_at = state.planned_starts.promised_at(job.job_id)
    short = state.missing_by_shape.get(int(state.scan.columns.shape[queue_index]))
    if isinstance(short, Insufficient):
        return msgspec.structs.replace(short, starts_at=starts_at)
    gpus, cpus = wanted_in_all(job.shape)
    node_indices = state.eligibility.available(job, state.snapshot.now)
    now = state.backfill.now
    counts = now.gpu_counts if gpus else now.cpu_counts
    free = int(counts[node_indices].sum()) if len(node_indices) else 0
    wanted = gpus or cpus
    return Insufficient(
        resource="GPUs" if gpus else "CPUs",
        wanted=wanted,
        free=free,
        holders=(),
        is_fragmented=free >= wanted,
        starts_at=starts_at,
    )


def _why_blocked(state: PassState, job: PendingJob, running: list[RunningJob], cache: _ReasonCache) -> Wait:
    """Return why the job does not start; jobs with the same shape and the same avoided nodes share one reason."""
    node_indices = state.eligibility.available(job, state.snapshot.now)
    key = (job.shape, job.avoid)
    if key not in cache:
        waited_s = state.waited_s(job)
        grants = place_job(state.backfill.now, job.shape, node_indices, waited_s=waited_s)
        if grants is not None:
            return _would_delay(state, job, grants)
        why = why_not_now(state.snapshot, state.backfill.now, job, node_indices, running, waited_s)
        if is_picky(job.shape):
            return why
        cache[key] = why
    return cache[key]


def _would_delay(state: PassState, job: PendingJob, grants: tuple[Grant, ...]) -> Wait:
    """Return why a job that fits now does not start: it would delay another job, or run into a reservation."""
    ends = ends_if_started(job, state.snapshot.now, state.scheduling)
    blocker = state.backfill.relocate_conflicting(grants, ends)
    if blocker is None:
        return BehindPlannedStart(state.heads.get(job.shape.partition, job.job_id))
    if isinstance(blocker, ReservationWindow):
        return runs_into(blocker, grants, ends)
    end = blocker.end_of(ends)
    nodes = overlap(grants, blocker.grants)
    return WouldDelay(job_id=blocker.job.job_id, starts_at=blocker.at, ends_at=end if end < inf else None, nodes=nodes)
