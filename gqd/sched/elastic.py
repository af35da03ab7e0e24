"""Which running jobs take idle GPUs, and which give some back: looked at when a pass is over.  Pure.

A job grows on its own node, by GPUs that are free after everybody has been considered: where no job that waits for room
could use them, and where neither a protected start nor a reservation is put off by it.  Of several jobs that with the
fewest GPUs goes first, one GPU at a time.

It shrinks where somebody who waits would find room with what it has beyond its least: in the order of the queue, as
much as that one needs, and only if that puts off nobody who is protected.  What is about to be given up anyway is
counted first.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.sched.billing import amounts_of, billing_of
from gqd.sched.limit import Asker, Wanted, hours
from gqd.sched.placement import place as put
from gqd.sched.shape import every_shape, wanted_in_all
from gqd.sched.timeline import Ends, ends_if_started
from gqd.sched.view import Overlay, PendingJob, RunningJob, Snapshot, Stretch
from gqd.state.cluster import mask_of
from gqd.state.plan import Growth, Shrink

if TYPE_CHECKING:
    from gqd.sched.one_pass import Pass

MOST_LOOKS = 64
"""Waiting jobs of each shape that are asked whether they wait for room."""
MOST_WISHES = 32
"""Waiting jobs for which room is looked for."""


def ids_of(mask: int) -> tuple[int, ...]:
    return tuple(one for one in range(mask.bit_length()) if mask >> one & 1)


def stretch(of: Pass) -> tuple[tuple[Growth, ...], tuple[Shrink, ...]]:
    """What running jobs take and give back; nothing, while nobody knows what all others come to."""
    there = [one for one in of.snapshot.running if _may_change(of, one)]
    if not there or of.resumes_at is not None:
        return (), ()
    waiting = _waiting(of)
    of.protection.settle()
    shrinks = _shrinks(of, there, _wishes(of, waiting))
    return (_growths(of, there, waiting), shrinks)


def suffices(of: Pass, job: PendingJob) -> bool:
    """It finds room with what running jobs have beyond their least: they give that up after the pass (`stretch`), and
    nobody is to be ended for it."""
    there = [one for one in of.snapshot.running if one.stretch is not None and _may_change(of, one)]
    beyond = {one.job_id: _beyond(one) | _going(one) for one in there}
    if of.snapshot.inside is not None or not any(beyond.values()):
        return False
    of.protection.settle()
    return _room_with(of, of.guard.now.copy(), job, there, beyond) is not None


def _may_change(of: Pass, job: RunningJob) -> bool:
    return job.stretch is not None and job.gives_way_to is None and job.grants[0].node in of.ground.places


def _waiting(of: Pass) -> list[PendingJob]:
    """Some of each shape that want GPUs and wait for room, in the order of the queue."""
    started = {start.job_id for start in of.starts if not of.tasks.get(start.job_id)}
    found: list[tuple[int, PendingJob]] = []
    for code in of.walk.codes:
        for place in of.walk.of_shape(code)[:MOST_LOOKS].tolist():
            job = of.snapshot.pending[place]
            of.spent += 1
            if not wanted_in_all(job.shape)[0]:
                break
            if job.job_id not in started and of.waits_for_room(job):
                found.append((place, job))
    return [job for _, job in sorted(found, key=lambda one: one[0])]


def _wishes(of: Pass, waiting: list[PendingJob]) -> list[PendingJob]:
    """Those who could have had others ended, and were told to wait for this, are not among what is too many."""
    first = waiting[:MOST_WISHES]
    known = {one.job_id for one in first}
    relying = () if of.preempting is None else of.preempting.relying
    return [*first, *(one for one in relying if one.job_id not in known)]


# ── giving back ───────────────────────────────────────────────────────────────────────────────────────────────


def _shrinks(of: Pass, there: list[RunningJob], waiting: list[PendingJob]) -> tuple[Shrink, ...]:
    beyond = {one.job_id: _beyond(one) for one in there if one.stretch is not None and one.stretch.keeps is None}
    overlay = of.guard.now.copy()
    for one in there:
        if one.stretch is not None and one.stretch.keeps is not None:
            overlay.give_masks(of.ground.places[one.grants[0].node], 0, _going(one), 0)
    wanted: dict[JobId, list[tuple[JobId, int]]] = {}
    for job in waiting if any(beyond.values()) else ():
        grants = _room_for(of, overlay, job) or _room_with(of, overlay, job, there, beyond)
        if grants is None:
            continue
        for one in there:
            used = _used_of(one, beyond.get(one.job_id, 0), grants)
            if used:
                wanted.setdefault(one.job_id, []).append((job.job_id, used))
                beyond[one.job_id] &= ~used
                overlay.give_masks(of.ground.places[one.grants[0].node], 0, used, 0)
        overlay.take_all(of.ground.places, grants)
    return tuple(_shrink(one, wanted[one.job_id]) for one in there if one.job_id in wanted)


def _shrink(job: RunningJob, wanted: list[tuple[JobId, int]]) -> Shrink:
    assert job.stretch is not None, f"job {job.job_id} keeps what it has"
    keeps = mask_of(job.grants[0].gpus)
    for _, used in wanted:
        keeps &= ~used
    to = tuple((job_id, used.bit_count()) for job_id, used in wanted)
    return Shrink(AttemptId(job.job_id, job.attempt), job.stretch.generation, ids_of(keeps), to)


def _beyond(job: RunningJob) -> int:
    """The GPUs that it could do without."""
    return mask_of(job.grants[0].gpus) & ~mask_of(job.stretch.least) if job.stretch is not None else 0


def _going(job: RunningJob) -> int:
    """Those that it is giving up."""
    one = job.stretch
    return 0 if one is None or one.keeps is None else mask_of(job.grants[0].gpus) & ~mask_of(one.keeps)


def _used_of(job: RunningJob, beyond: int, grants: tuple[Grant, ...]) -> int:
    return beyond & mask_of(tuple(gpu for one in grants if one.node == job.grants[0].node for gpu in one.gpus))


def _room_with(
    of: Pass, overlay: Overlay, job: PendingJob, there: list[RunningJob], beyond: dict[JobId, int]
) -> tuple[Grant, ...] | None:
    """Where it goes if all of them have their least."""
    checkpoint = overlay.checkpoint()
    for one in there:
        if beyond.get(one.job_id):
            overlay.give_masks(of.ground.places[one.grants[0].node], 0, beyond[one.job_id], 0)
    grants = _room_for(of, overlay, job)
    overlay.rollback(checkpoint)
    return grants


def _room_for(of: Pass, overlay: Overlay, job: PendingJob) -> tuple[Grant, ...] | None:
    """Where it goes without putting off anybody who is protected."""
    places = of.ground.available(job, of.snapshot.now)
    of.spent += 1 + len(places) // 64
    grants = put(overlay, job.shape, places, waited_s=of.snapshot.now - job.since, qos=job.qos)
    if grants is None or of.ledger.over(job.asker, of.wanted_of(job, grants)) is not None:
        return None
    ends = ends_if_started(job, of.snapshot.now, of.scheduling)
    others = [one for one in of.guard.met(ends) if one.job.job_id != job.job_id]
    windows = [*(one.grants for one in others), *(one.grants for one in of.guard.booked_met(ends))]
    kept = {one for kept_grants in windows for one in _gpus_of(kept_grants)}
    return grants if kept.isdisjoint(_gpus_of(grants)) else None


def _gpus_of(grants: tuple[Grant, ...]) -> set[tuple[str, int]]:
    return {(one.node, gpu) for one in grants for gpu in one.gpus}


# ── taking ────────────────────────────────────────────────────────────────────────────────────────────────────


def _growths(of: Pass, there: list[RunningJob], waiting: list[PendingJob]) -> tuple[Growth, ...]:
    """One GPU at a time, to the job that has the fewest."""
    free: dict[int, int] = {}
    queue = [(len(one.grants[0].gpus), one.job_id, one) for one in there if _may_grow(one)]
    heapify(queue)
    grown: dict[JobId, tuple[RunningJob, list[int]]] = {}
    while queue:
        held, job_id, job = heappop(queue)
        place = of.ground.places[job.grants[0].node]
        if place not in free:
            free[place] = of.guard.now.free_gpus[place] & ~_wanted_there(of, place, waiting)
        gpu = _next_gpu(of, job, place, free[place])
        if gpu is None:
            continue
        free[place] &= ~(1 << gpu)
        grown.setdefault(job_id, (job, []))[1].append(gpu)
        if job.stretch is not None and held + 1 < job.stretch.most:
            heappush(queue, (held + 1, job_id, job))
    return tuple(_growth(job, gpus) for job, gpus in grown.values())


def _may_grow(job: RunningJob) -> bool:
    one = job.stretch
    return one is not None and one.keeps is None and not job.reservation and len(job.grants[0].gpus) < one.most


def _growth(job: RunningJob, gpus: list[int]) -> Growth:
    assert job.stretch is not None, f"job {job.job_id} keeps what it has"
    grant = Grant(node=job.grants[0].node, tasks=0, gpus=tuple(sorted(gpus)))
    return Growth(AttemptId(job.job_id, job.attempt), job.stretch.generation, grant)


def _next_gpu(of: Pass, job: RunningJob, place: int, free: int) -> int | None:
    """The first that it may have; the ledger and the guard then count it."""
    assert job.stretch is not None, f"job {job.job_id} keeps what it has"
    node = of.snapshot.nodes[place]
    if node.unavailable:
        return None
    ends = ends_of(job)
    for gpu in ids_of(free & fitting(of.snapshot, place, job.stretch)):
        grants = (Grant(node=node.name, tasks=0, gpus=(gpu,)),)
        asker, wanted = Asker(job.user, job.account, job.qos), wanted_by(of.snapshot, job, of.ground.places, grants)
        of.spent += 1
        if of.ledger.over(asker, wanted) is not None:
            return None
        if of.guard.make_room(grants, ends) is None:
            of.ledger.take(asker, wanted)
            of.guard.start(grants, ends)
            return gpu
    return None


def fitting(snapshot: Snapshot, place: int, one: Stretch) -> int:
    """GPUs of the node of which it may have more."""
    return snapshot.nodes[place].fitting_mask(one.gpu_type, one.min_gpu_mem_mib)


def ends_of(job: RunningJob) -> Ends:
    by_limit = inf if job.ends_at is None else job.ends_at
    return Ends(by_limit, by_limit)


def wanted_by(snapshot: Snapshot, job: RunningJob, places: dict[str, int], grants: tuple[Grant, ...]) -> Wanted:
    """What limits count of more GPUs, until its end."""
    amounts = amounts_of(grants, snapshot.nodes, places) | {"jobs": 0}
    billing = billing_of(snapshot.policy.billing, amounts, snapshot.limits.usage_factor(job.qos))
    left_s = None if job.ends_at is None else int(max(0.0, job.ends_at - snapshot.now))
    return Wanted(amounts, hours(billing, left_s))


def _wanted_there(of: Pass, place: int, waiting: list[PendingJob]) -> int:
    """GPUs of the node that somebody who waits could use."""
    found, node = 0, of.snapshot.nodes[place]
    for job in waiting:
        if place in of.ground.standing(job.shape).capable.tolist():
            for shape in every_shape(job.shape):
                found |= node.fitting_mask(shape.gpu_type, shape.min_gpu_mem_mib)
        if found == node.gpu_mask:
            break
    return found
