"""Resizing elastic jobs: growth on idle GPUs and nodes, and the parts that elastic jobs could release.  Pure.

A job grows after a pass, on GPUs left free when all jobs have been considered: only on GPUs that no job waiting for
room could use, and without delaying planned starts or reservations.  Of several jobs the one with the fewest GPUs grows
first, one GPU at a time.

Releases of what a job holds beyond its minimum are decided together with preemption, where a job finds no room
(`gqd.sched.preemption.preempt`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import TypeAlias

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.sched.cycle.state import PassState
from gqd.sched.limits.ledger import LimitDemand, LimitSubject, hours
from gqd.sched.placement.billing import amounts_of
from gqd.sched.placement.devices import cpus_near
from gqd.sched.placement.placement import place as put
from gqd.sched.preemption.partial_release import as_pseudo_job, ids_of
from gqd.sched.preemption.victims import Candidate, PlacementQuery, VictimSet
from gqd.sched.preemption.victims_exact import Part
from gqd.sched.request import every_shape, share_in, wanted_in_all
from gqd.sched.snapshot.model import PendingJob, ResizeBounds, RunningJob, Snapshot
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.timeline.timeline import EndTimes
from gqd.state.plan import Growth, Shrink
from gqd.state.records import mask_of

MOST_LOOKS = 64
"""Maximum number of pending jobs of each shape that are checked for whether they wait for room."""
MOST_NODES_TRIED = 16
"""Maximum number of nodes tried for a job that could have one more."""
MOST_SPARED = 64
"""Maximum number of trials to leave one GPU more to the jobs that release some."""


# ── giving back ───────────────────────────────────────────────────────────────────────────────────────────────


Key: TypeAlias = tuple[JobId, str]
"""Key of a job's part on a node: (job, node)."""


def releasable_parts(snapshot: Snapshot) -> dict[Key, RunningJob]:
    """The parts that elastic jobs outside reservations could release, as pseudo jobs."""
    if snapshot.inside is not None:
        return {}
    there = {node.name for node in snapshot.nodes}
    parts = (part for one in snapshot.running if one.resize_bounds is not None for part in spare(one))
    return {key_of(part): part for part in parts if part.grants[0].node in there}


def key_of(part: RunningJob) -> Key:
    return part.job_id, part.grants[0].node


def candidate_key(job: RunningJob) -> Key:
    """Key of a job (with an empty node) or of a releasable part."""
    return key_of(job) if job.is_part else (job.job_id, "")


def beside(node: str, part: Part, spare: Iterable[RunningJob]) -> Part:
    """The victim's part on a node without what it could release there, which is a candidate of its own."""
    one = next((each for each in spare if each.grants[0].node == node), None)
    if one is None:
        return part
    _, cpus, gpus = one.cells[0]
    rest = part._replace(cpus=part.cpus & ~cpus, gpus=part.gpus & ~gpus)
    return rest._replace(memory_mib=0, resources=()) if _is_node(one) else rest


def spare(job: RunningJob) -> list[RunningJob]:
    """The parts that the job could release, as pseudo jobs; of an elastic number of nodes, one for each joined node."""
    one = job.resize_bounds
    if one is None or job.preemptor is not None:
        return []
    if one.share is not None:
        ends_at = inf if job.ends_at is None else job.ends_at
        nodes = [as_pseudo_job(job, grant, ends_at, None) for grant in job.grants if grant.node in one.joined]
        return [replace(part, lead_s=one.lead_s, resize_bounds=one) for part in nodes]
    held = job.grants[0]
    gpus, cpus = mask_of(held.gpus) & ~mask_of(one.least), mask_of(held.cpus) & ~mask_of(one.least_cpus)
    if not gpus:
        return []
    grant = Grant(node=held.node, tasks=0, gpus=ids_of(gpus), cpus=ids_of(cpus) if one.cpus_per_gpu else ())
    part = as_pseudo_job(job, grant, inf if job.ends_at is None else job.ends_at, None)
    return [replace(part, lead_s=one.lead_s, resize_bounds=one)]


def remainder_after(part: RunningJob, shrink: Shrink) -> RunningJob | None:
    """The part that the job could still release after this one; None: nothing."""
    held = part.grants[0]
    if shrink.is_node:
        return None
    gpus = tuple(gpu for gpu in held.gpus if gpu not in shrink.gpus)
    cpus = tuple(cpu for cpu in held.cpus if cpu not in shrink.cpus)
    return replace(part, grants=(Grant(node=shrink.node, tasks=0, gpus=gpus, cpus=cpus),)) if gpus else None


def no_more_than_needed(wish: PlacementQuery, choice: VictimSet) -> VictimSet | None:
    """The victim set with releases reduced to what is needed, and without parts of jobs that are stopped anyway."""
    ended = {one.job.job_id for one in choice.victims if not one.job.is_part}
    victims = [one for one in choice.victims if not one.job.is_part or one.job.job_id not in ended]
    left = [one for one in choice.victims if one not in victims]
    tries = MOST_SPARED
    for at, one in enumerate(victims):
        for gpu in one.job.grants[0].gpus if one.job.is_part and not _is_node(one.job) else ():
            if not tries:
                break
            tries -= 1
            fewer = replace(one, parts=(_less(one, one.parts[0], gpu),))
            if wish.placed([*victims[:at], fewer, *victims[at + 1 :], *left]) is not None:
                victims[at] = one = fewer
    grants = wish.placed([*victims, *left])
    return None if grants is None else VictimSet(tuple(victims), grants)


def _is_node(part: RunningJob) -> bool:
    return part.resize_bounds is not None and part.resize_bounds.share is not None


def _less(candidate: Candidate, part: Part, gpu: int) -> Part:
    """The part without this GPU and the CPUs that come with it."""
    cpus = ids_of(part.cpus)
    per_gpu = 0 if candidate.job.resize_bounds is None else candidate.job.resize_bounds.cpus_per_gpu
    return part._replace(gpus=part.gpus & ~(1 << gpu), cpus=mask_of(cpus[per_gpu:]))


def shrinks_of(victims: Iterable[Candidate], grants: tuple[Grant, ...], now: float) -> tuple[Shrink, ...]:
    """The releases of elastic jobs among the victims, reduced to what the grants use."""
    shrinks = []
    for one in (victim for victim in victims if victim.job.is_part):
        job, node = one.job, one.job.grants[0].node
        if job.resize_bounds is not None and _is_node(job):
            shrinks.append(_node_given(job, job.resize_bounds.generation, now))
            continue
        used = mask_of(tuple(gpu for grant in grants if grant.node == node for gpu in grant.gpus))
        gpus, cpus = one.parts[0].gpus, one.parts[0].cpus
        if job.resize_bounds is None or not job.resize_bounds.cpus_per_gpu:
            gpus &= used
        if gpus and job.resize_bounds is not None:
            attempt_id, ends_at = AttemptId(job.job_id, job.attempt), now + job.lead_s
            shrinks.append(Shrink(attempt_id, job.resize_bounds.generation, node, ids_of(gpus), ends_at, ids_of(cpus)))
    return tuple(shrinks)


def _node_given(job: RunningJob, generation: int, now: float) -> Shrink:
    held = job.grants[0]
    return Shrink(
        AttemptId(job.job_id, job.attempt),
        generation,
        held.node,
        held.gpus,
        now + job.lead_s,
        held.cpus,
        is_node=True,
        memory_mib=held.memory_mib,
        resources=held.resources,
    )


# ── taking ────────────────────────────────────────────────────────────────────────────────────────────────────


def growths(state: PassState) -> tuple[Growth, ...]:
    """The growth of running jobs; none while the planner has not finished looking at all jobs.

    One GPU at a time, to the job with the fewest.
    """
    growing = [one for one in state.snapshot.running if _may_grow(state, one)]
    if not growing or state.resumes_at is not None:
        return ()
    takes_cpus = any(
        one.resize_bounds and (one.resize_bounds.cpus_per_gpu or one.resize_bounds.share) for one in growing
    )
    waiting, without_gpus = _waiting(state, takes_cpus)
    state.planned_starts.resolve()
    with_gpus = [one for one in growing if one.resize_bounds is not None and one.resize_bounds.share is None]
    with_nodes = [one for one in growing if one.resize_bounds is not None and one.resize_bounds.share is not None]
    more_gpus = _more_gpus(state, with_gpus, waiting, without_gpus)
    return (*more_gpus, *_more_nodes(state, with_nodes, [*waiting, *without_gpus]))


def _more_gpus(
    state: PassState, growing: list[RunningJob], waiting: list[PendingJob], without_gpus: list[PendingJob]
) -> tuple[Growth, ...]:
    queue = [(len(one.grants[0].gpus), one.job_id, one) for one in growing]
    free: dict[int, int] = {}
    heapify(queue)
    grown: dict[JobId, tuple[RunningJob, list[Grant]]] = {}
    while queue:
        held, job_id, job = heappop(queue)
        place = state.eligibility.places[job.grants[0].node]
        if place not in free:
            free[place] = state.backfill.now.free_gpus[place] & ~_wanted_there(state, place, waiting)
        takes_cpus = job.resize_bounds is not None and job.resize_bounds.cpus_per_gpu > 0
        if takes_cpus and any(
            place in state.eligibility.eligible_nodes(gpu.shape).feasible.tolist() for gpu in without_gpus
        ):
            continue
        more = _next_gpu(state, job, place, free[place])
        if more is None:
            continue
        free[place] &= ~mask_of(more.gpus)
        grown.setdefault(job_id, (job, []))[1].append(more)
        if job.resize_bounds is not None and held + 1 < job.resize_bounds.most:
            heappush(queue, (held + 1, job_id, job))
    return tuple(_growth(job, more) for job, more in grown.values())


def _may_grow(state: PassState, job: RunningJob) -> bool:
    bounds, places = job.resize_bounds, state.eligibility.places
    if bounds is None or job.preemptor is not None or job.reservation or job.grants[0].node not in places:
        return False
    if bounds.share is None:
        return len(job.grants[0].gpus) < bounds.most
    partition = state.snapshot.policy.partition(bounds.share.partition)
    allowed = bounds.most if partition is None or partition.max_nodes is None else partition.max_nodes
    return len(job.grants) < min(bounds.most, allowed)


def _waiting(state: PassState, takes_cpus: bool) -> tuple[list[PendingJob], list[PendingJob]]:
    """(pending jobs of each shape that want GPUs and wait for room, those that want none, if CPUs come with GPUs)."""
    started = {start.job_id for start in state.starts if not state.tasks.get(start.job_id)}
    with_gpus: list[PendingJob] = []
    without_gpus: list[PendingJob] = []
    for code in state.scan.codes:
        for place in state.scan.indices_of_shape(code)[:MOST_LOOKS].tolist():
            job = state.snapshot.pending[place]
            state.spent += 1
            wants_gpus = wanted_in_all(job.shape)[0] > 0
            if not wants_gpus and not takes_cpus:
                break
            if job.job_id not in started and state.waits_for_resources(job):
                (with_gpus if wants_gpus else without_gpus).append(job)
    return with_gpus, without_gpus


def _more_nodes(state: PassState, growing: list[RunningJob], waiting: list[PendingJob]) -> list[Growth]:
    """Growth by a node for each job, the job with the fewest nodes first; no node that a pending job could use."""
    wanted = {place for one in waiting for place in state.eligibility.eligible_nodes(one.shape).feasible.tolist()}
    growths = []
    for job in sorted(growing, key=lambda one: (len(one.grants), one.job_id)):
        if (grant := _next_node(state, job, wanted)) is not None and job.resize_bounds is not None:
            growths.append(Growth(AttemptId(job.job_id, job.attempt), job.resize_bounds.generation, grant))
    return growths


def _next_node(state: PassState, job: RunningJob, wanted: set[int]) -> Grant | None:
    """The node on which the job's share fits best, charged to the ledger and the backfill profile; None without one."""
    assert job.resize_bounds is not None and job.resize_bounds.share is not None, f"job {job.job_id} keeps what it has"
    own = {grant.node for one in state.draft.running if one.job_id == job.job_id for grant in one.grants}
    ends, shape = ends_of(job), share_in(state.snapshot.policy, *job.resize_bounds.share)
    places = [place for place in state.eligibility.eligible_nodes(shape).available.tolist() if place not in wanted]
    places = [place for place in places if _may_join(state.snapshot.nodes[place], own)]
    for _ in range(MOST_NODES_TRIED):
        state.spent += 1
        grants = put(state.backfill.now, shape, places, qos=job.qos) if places else None
        if grants is None:
            return None
        subject, more = LimitSubject(job.user, job.account, job.qos), _demand(state, job, grants)
        if state.ledger.exceeded_limit(subject, more) is not None:
            return None
        if state.backfill.relocate_conflicting(grants, ends) is None:
            state.ledger.take(subject, more)
            state.backfill.start(grants, ends)
            return grants[0]
        places.remove(state.eligibility.places[grants[0].node])
    return None


def _may_join(node: NodeFacts, own: set[str]) -> bool:
    return node.can_join and node.name not in own and not node.is_part


def _growth(job: RunningJob, more: list[Grant]) -> Growth:
    assert job.resize_bounds is not None, f"job {job.job_id} keeps what it has"
    gpus, cpus = (gpu for one in more for gpu in one.gpus), (cpu for one in more for cpu in one.cpus)
    grant = Grant(node=job.grants[0].node, tasks=0, gpus=tuple(sorted(gpus)), cpus=tuple(sorted(cpus)))
    return Growth(AttemptId(job.job_id, job.attempt), job.resize_bounds.generation, grant)


def _next_gpu(state: PassState, job: RunningJob, place: int, free: int) -> Grant | None:
    """The first GPU that the job may have with its CPUs, charged to the ledger and the backfill profile; None
    without one."""
    assert job.resize_bounds is not None, f"job {job.job_id} keeps what it has"
    node = state.snapshot.nodes[place]
    if node.unavailable:
        return None
    ends = ends_of(job)
    for gpu in ids_of(free & fitting(state.snapshot, place, job.resize_bounds)):
        free_cpus, free_gpus = state.backfill.now.free_cpus[place], state.backfill.now.free_gpus[place]
        if free_cpus.bit_count() < job.resize_bounds.cpus_per_gpu:
            return None
        cpus = cpus_near(node, free_cpus, job.resize_bounds.cpus_per_gpu, (gpu,), free_gpus)
        grants = (Grant(node=node.name, tasks=0, gpus=(gpu,), cpus=cpus),)
        subject, wanted = LimitSubject(job.user, job.account, job.qos), _demand(state, job, grants)
        state.spent += 1
        if state.ledger.exceeded_limit(subject, wanted) is not None:
            return None
        if state.backfill.relocate_conflicting(grants, ends) is None:
            state.ledger.take(subject, wanted)
            state.backfill.start(grants, ends)
            return grants[0]
    return None


def fitting(snapshot: Snapshot, place: int, bounds: ResizeBounds) -> int:
    """Mask of the node's GPUs by which the job may grow."""
    return snapshot.nodes[place].fitting_mask(bounds.gpu_type, bounds.min_gpu_mem_mib)


def ends_of(job: RunningJob) -> EndTimes:
    by_limit = inf if job.ends_at is None else job.ends_at
    return EndTimes(by_limit, by_limit)


def _demand(state: PassState, job: RunningJob, grants: tuple[Grant, ...]) -> LimitDemand:
    """The demand on limits for more GPUs until the job's end."""
    amounts = amounts_of(grants, state.snapshot.nodes, state.eligibility.places) | {"jobs": 0}
    left_s = None if job.ends_at is None else int(max(0.0, job.ends_at - state.snapshot.now))
    return LimitDemand(amounts, hours(state.billing(amounts, job.qos), left_s))


def _wanted_there(state: PassState, place: int, waiting: list[PendingJob]) -> int:
    """Mask of the node's GPUs that a pending job could use."""
    found, node = 0, state.snapshot.nodes[place]
    for job in waiting:
        if place in state.eligibility.eligible_nodes(job.shape).feasible.tolist():
            for shape in every_shape(job.shape):
                found |= node.fitting_mask(*shape.gpu_kind)
        if found == node.gpu_mask:
            break
    return found
