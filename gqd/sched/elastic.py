"""Which running jobs take idle GPUs, and which could give some back.  Pure.

A job grows on its own node when a pass is over, by GPUs that are free after everybody has been considered: where no job
that waits for room could use them, and where neither a protected start nor a reservation is put off by it.  Of several
jobs that with the fewest GPUs goes first, one GPU at a time.

What it has beyond its least it gives back to somebody who waits: that is decided where a job finds no place, together
with who gives way to it whole (`gqd.sched.preempt`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.sched.billing import amounts_of, billing_of
from gqd.sched.given import ids_of, part_of
from gqd.sched.limit import Asker, Wanted, hours
from gqd.sched.pick import cpus_near
from gqd.sched.shape import every_shape, wanted_in_all
from gqd.sched.timeline import Ends
from gqd.sched.victims import Candidate, Choice, Wish
from gqd.sched.victims_by_node import Part
from gqd.sched.view import PendingJob, RunningJob, Snapshot, Stretch
from gqd.state.cluster import mask_of
from gqd.state.plan import Gift, Growth

if TYPE_CHECKING:
    from gqd.sched.one_pass import Pass

MOST_LOOKS = 64
"""Waiting jobs of each shape that are asked whether they wait for room."""
MOST_SPARED = 64
"""So often it is tried to leave one GPU more to those who give some up."""


# ── giving back ───────────────────────────────────────────────────────────────────────────────────────────────


def spare_of(snapshot: Snapshot) -> dict[JobId, RunningJob]:
    """What each could do without, as if it were a job of its own; only of those that run outside of reservations."""
    if snapshot.inside is not None:
        return {}
    there = {node.name for node in snapshot.nodes}
    parts = (spare(one) for one in snapshot.running if one.stretch is not None and one.grants[0].node in there)
    return {one.job_id: one for one in parts if one is not None}


def spare(job: RunningJob) -> RunningJob | None:
    one = job.stretch
    if one is None or job.gives_way_to is not None:
        return None
    held = job.grants[0]
    gpus, cpus = mask_of(held.gpus) & ~mask_of(one.least), mask_of(held.cpus) & ~mask_of(one.least_cpus)
    if not gpus:
        return None
    grant = Grant(node=held.node, tasks=0, gpus=ids_of(gpus), cpus=ids_of(cpus) if one.cpus_per_gpu else ())
    part = part_of(job, grant, inf if job.ends_at is None else job.ends_at, None)
    return replace(part, lead_s=one.lead_s, stretch=one)


def left_of(part: RunningJob, gift: Gift) -> RunningJob | None:
    """What it could still do without; None: nothing."""
    held = part.grants[0]
    gpus = tuple(one for one in held.gpus if one not in gift.gpus)
    cpus = tuple(one for one in held.cpus if one not in gift.cpus)
    return replace(part, grants=(Grant(node=gift.node, tasks=0, gpus=gpus, cpus=cpus),)) if gpus else None


def no_more_than_needed(wish: Wish, choice: Choice) -> Choice | None:
    """Who gives up some of what it has keeps as much of that as can be; without those who are ended anyway."""
    ended = {one.job.job_id for one in choice.victims if not one.job.is_part}
    victims = [one for one in choice.victims if not one.job.is_part or one.job.job_id not in ended]
    left = [one for one in choice.victims if one not in victims]
    tries = MOST_SPARED
    for at, one in enumerate(victims):
        for gpu in one.job.grants[0].gpus if one.job.is_part else ():
            if not tries:
                break
            tries -= 1
            fewer = replace(one, parts=(_less(one, one.parts[0], gpu),))
            if wish.placed([*victims[:at], fewer, *victims[at + 1 :], *left]) is not None:
                victims[at] = one = fewer
    grants = wish.placed([*victims, *left])
    return None if grants is None else Choice(tuple(victims), grants)


def _less(one: Candidate, part: Part, gpu: int) -> Part:
    """Without this GPU, and as many CPUs as come with it."""
    cpus = ids_of(part.cpus)
    per_gpu = 0 if one.job.stretch is None else one.job.stretch.cpus_per_gpu
    return part._replace(gpus=part.gpus & ~(1 << gpu), cpus=mask_of(cpus[per_gpu:]))


def gifts_of(victims: Iterable[Candidate], grants: tuple[Grant, ...], now: float) -> tuple[Gift, ...]:
    """What those who go on are to give up: that of it which is used."""
    gifts = []
    for one in (each for each in victims if each.job.is_part):
        job, node = one.job, one.job.grants[0].node
        used = mask_of(tuple(gpu for grant in grants if grant.node == node for gpu in grant.gpus))
        gpus, cpus = one.parts[0].gpus, one.parts[0].cpus
        if job.stretch is None or not job.stretch.cpus_per_gpu:
            gpus &= used
        if gpus and job.stretch is not None:
            attempt_id, ends_at = AttemptId(job.job_id, job.attempt), now + job.lead_s
            gifts.append(Gift(attempt_id, job.stretch.generation, node, ids_of(gpus), ends_at, ids_of(cpus)))
    return tuple(gifts)


# ── taking ────────────────────────────────────────────────────────────────────────────────────────────────────


def growths(of: Pass) -> tuple[Growth, ...]:
    """What running jobs take; nothing, while nobody knows what all others come to.

    One GPU at a time, to the job that has the fewest.
    """
    queue = [(len(one.grants[0].gpus), one.job_id, one) for one in of.snapshot.running if _may_grow(of, one)]
    if not queue or of.resumes_at is not None:
        return ()
    waiting, without_gpus = _waiting(of, any(one.stretch and one.stretch.cpus_per_gpu for _, _, one in queue))
    of.protection.settle()
    free: dict[int, int] = {}
    heapify(queue)
    grown: dict[JobId, tuple[RunningJob, list[Grant]]] = {}
    while queue:
        held, job_id, job = heappop(queue)
        place = of.ground.places[job.grants[0].node]
        if place not in free:
            free[place] = of.guard.now.free_gpus[place] & ~_wanted_there(of, place, waiting)
        takes_cpus = job.stretch is not None and job.stretch.cpus_per_gpu > 0
        if takes_cpus and any(place in of.ground.standing(one.shape).capable.tolist() for one in without_gpus):
            continue
        more = _next_gpu(of, job, place, free[place])
        if more is None:
            continue
        free[place] &= ~mask_of(more.gpus)
        grown.setdefault(job_id, (job, []))[1].append(more)
        if job.stretch is not None and held + 1 < job.stretch.most:
            heappush(queue, (held + 1, job_id, job))
    return tuple(_growth(job, more) for job, more in grown.values())


def _may_grow(of: Pass, job: RunningJob) -> bool:
    one = job.stretch
    if one is None or job.gives_way_to is not None or job.reservation or job.grants[0].node not in of.ground.places:
        return False
    return len(job.grants[0].gpus) < one.most


def _waiting(of: Pass, takes_cpus: bool) -> tuple[list[PendingJob], list[PendingJob]]:
    """Some of each shape that want GPUs and wait for room; and, where CPUs come with GPUs, of those who want none."""
    started = {start.job_id for start in of.starts if not of.tasks.get(start.job_id)}
    with_gpus: list[PendingJob] = []
    without_gpus: list[PendingJob] = []
    for code in of.walk.codes:
        for place in of.walk.of_shape(code)[:MOST_LOOKS].tolist():
            job = of.snapshot.pending[place]
            of.spent += 1
            wants_gpus = wanted_in_all(job.shape)[0] > 0
            if not wants_gpus and not takes_cpus:
                break
            if job.job_id not in started and of.waits_for_room(job):
                (with_gpus if wants_gpus else without_gpus).append(job)
    return with_gpus, without_gpus


def _growth(job: RunningJob, more: list[Grant]) -> Growth:
    assert job.stretch is not None, f"job {job.job_id} keeps what it has"
    gpus, cpus = (gpu for one in more for gpu in one.gpus), (cpu for one in more for cpu in one.cpus)
    grant = Grant(node=job.grants[0].node, tasks=0, gpus=tuple(sorted(gpus)), cpus=tuple(sorted(cpus)))
    return Growth(AttemptId(job.job_id, job.attempt), job.stretch.generation, grant)


def _next_gpu(of: Pass, job: RunningJob, place: int, free: int) -> Grant | None:
    """The first that it may have, with the CPUs that come with it; the ledger and the guard then count it."""
    assert job.stretch is not None, f"job {job.job_id} keeps what it has"
    node = of.snapshot.nodes[place]
    if node.unavailable:
        return None
    ends = ends_of(job)
    for gpu in ids_of(free & fitting(of.snapshot, place, job.stretch)):
        free_cpus, free_gpus = of.guard.now.free_cpus[place], of.guard.now.free_gpus[place]
        if free_cpus.bit_count() < job.stretch.cpus_per_gpu:
            return None
        cpus = cpus_near(node, free_cpus, job.stretch.cpus_per_gpu, (gpu,), free_gpus)
        grants = (Grant(node=node.name, tasks=0, gpus=(gpu,), cpus=cpus),)
        asker, wanted = Asker(job.user, job.account, job.qos), wanted_by(of.snapshot, job, of.ground.places, grants)
        of.spent += 1
        if of.ledger.over(asker, wanted) is not None:
            return None
        if of.guard.make_room(grants, ends) is None:
            of.ledger.take(asker, wanted)
            of.guard.start(grants, ends)
            return grants[0]
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
