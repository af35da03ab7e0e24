"""Random clusters whose jobs take turns: whoever is stopped may be, is worth it, and nobody goes to and fro.

The rules are written here once more, for one pair of jobs at a time.  ``GQ_CLUSTERS=500`` looks at so many clusters
instead of some; a failure names its seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from gq.model.ids import JobId
from gq.model.resource import ResourceRequest
from gq.model.scheduling import PRESETS, Scheduling
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.placement.placement import place as put
from gqd.sched.planner import plan_whole
from gqd.sched.request import Shape, shape_of
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.plan import Plan, Preemption
from gqd.state.policy import Policy
from gqd.state.records import mask_of

CLUSTERS = int(os.environ.get("GQ_CLUSTERS", "60"))
NOW = 1_000_000
GPUS = 4
TRIAL, TURN = 10_800, 7_200
POLICY = Policy(owner_uid=0, scheduling=Scheduling(**PRESETS["las"]))
MOST_ROUNDS = 20


def has_had_trial(job: RunningJob | PendingJob, now: float) -> bool:
    here_s = now - job.began_at if isinstance(job, RunningJob) else 0.0
    return job.ran_s + here_s >= TRIAL


def may_take(taker: PendingJob, giver: RunningJob, now: float) -> bool:
    resume_s = giver.resume_s or 0.0
    if now < giver.began_at + 3 * resume_s or (len(giver.grants) > 1 and not is_gang(taker)):
        return False
    if has_had_trial(giver, now) != has_had_trial(taker, now):
        return has_had_trial(giver, now)
    return taker.since < giver.since and now >= giver.began_at + max(TURN, 20 * resume_s)


def is_gang(job: PendingJob) -> bool:
    return job.shape.units > GPUS


def pays_off_at(taker: PendingJob, victims: Iterable[RunningJob]) -> float:
    price = sum(gpus_of(one) * (one.resume_s or 0.0) for one in victims)
    return taker.waits_since + math.ceil(0.5 * price / taker.shape.units)


def gpus_of(job: RunningJob) -> int:
    return sum(len(one.gpus) for one in job.grants)


def cluster(seed: int, resume_s: float | None = None) -> Snapshot:
    """Nearly full; jobs that have just begun, and some that have run for long, in this attempt or before it."""
    chance = Random(seed)
    nodes = tuple(
        NodeFacts(f"n{one}", 2 * GPUS, 1000, (("a", (1 << GPUS) - 1),)) for one in range(chance.randint(1, 4))
    )
    view = Snapshot(NOW, POLICY, nodes, *_free(nodes, []), pending=(), running=())
    running: list[RunningJob] = []
    for number in range(1, 3 * len(nodes) + 3):
        gpus = chance.choice((1, 1, 2, 3, 4, 2 * GPUS))
        grants = put(Overlay.of(view), _shape(gpus), list(range(len(nodes))))
        if grants is None:
            continue
        began_at = NOW - chance.choice((10, 100, 1000, 8000, 11_000, 90_000)) * chance.uniform(0.5, 1.0) // 1
        cost = chance.choice((1.0, 60.0, 300.0)) if resume_s is None else resume_s
        one = RunningJob(
            JobId(number), "eve", grants, None, began_at=began_at, saved_at=began_at, attempt=1, saves=True,
            comes_back=True, resume_s=cost, since=began_at - chance.choice((0, 50_000)),
            ran_s=chance.choice((0.0, 5000.0, 50_000.0)),
        )  # fmt: skip
        running.append(one)
        view = replace(view, **_as_fields(_free(nodes, running)), running=tuple(running))
    return replace(view, pending=in_order(_waiting(chance, number) for number in range(100, 104)))


def _waiting(chance: Random, number: int) -> PendingJob:
    waits_since = NOW - chance.choice((0, 20, 200, 5000))
    return PendingJob(
        JobId(number), 0, "ada", _shape(chance.choice((1, 2, 3, 4, 2 * GPUS))), None, is_held=False, begin_at=None,
        since=waits_since - chance.choice((0, 0, 100_000)), waits_since=waits_since, resume_s=60.0,
        ran_s=chance.choice((0.0, 0.0, 50_000.0)),
    )  # fmt: skip


def _shape(gpus: int) -> Shape:
    return shape_of(ResourceRequest(gpus=gpus, is_dense=True), "main")


def in_order(jobs: Iterable[PendingJob]) -> tuple[PendingJob, ...]:
    return tuple(sorted(jobs, key=lambda one: (has_had_trial(one, NOW), one.since, one.job_id)))


def _free(nodes: tuple[NodeFacts, ...], running: Iterable[RunningJob]) -> tuple[tuple[int, ...], ...]:
    held = {node.name: [0, 0] for node in nodes}
    for grant in (grant for one in running for grant in one.grants):
        held[grant.node][0] |= mask_of(grant.cpus)
        held[grant.node][1] |= mask_of(grant.gpus)
    cpus = tuple(node.cpu_mask & ~held[node.name][0] for node in nodes)
    return cpus, tuple(node.gpu_mask & ~held[node.name][1] for node in nodes), tuple(one.memory_mib for one in nodes)


def _as_fields(free: tuple[tuple[int, ...], ...]) -> dict[str, tuple[int, ...]]:
    return dict(zip(("free_cpus", "free_gpus", "free_memory_mib"), free, strict=True))


def fits_without(view: Snapshot, victims: Iterable[RunningJob], job: PendingJob) -> bool:
    gone = {one.job_id for one in victims}
    free = _free(view.nodes, [one for one in view.running if one.job_id not in gone])
    overlay = Overlay.of(replace(view, **_as_fields(free)))
    return put(overlay, job.shape, list(range(len(view.nodes)))) is not None


def played(view: Snapshot, plan: Plan) -> Snapshot:
    """What starts runs, and victims wait again, in the same second."""
    pending, running = {one.job_id: one for one in view.pending}, {one.job_id: one for one in view.running}
    for one in (victim for each in plan.preemptions for victim in each.victims):
        gone = running.pop(one.job_id)
        ran_s = gone.ran_s + NOW - gone.began_at
        pending[one.job_id] = PendingJob(
            gone.job_id, 1, gone.user, _shape(gpus_of(gone)), None, is_held=False, begin_at=None, since=gone.since,
            waits_since=NOW, ran_s=ran_s, resume_s=gone.resume_s,
        )  # fmt: skip
    for each in (*plan.preemptions, *plan.starts):
        job = pending.pop(each.job_id)
        running[each.job_id] = RunningJob(
            job.job_id, job.user, each.grants, None, began_at=NOW, saved_at=NOW, attempt=2, saves=True,
            comes_back=True, resume_s=job.resume_s, since=job.since, ran_s=job.ran_s,
        )  # fmt: skip
    there = tuple(running.values())
    return replace(view, pending=in_order(pending.values()), running=there, **_as_fields(_free(view.nodes, there)))


def of(view: Snapshot, one: Preemption) -> tuple[PendingJob, list[RunningJob]]:
    job = next(job for job in view.pending if job.job_id == one.job_id)
    ids = {victim.job_id for victim in one.victims}
    return job, [each for each in view.running if each.job_id in ids]


SEEDS = pytest.mark.parametrize("seed", range(CLUSTERS))


@SEEDS
def test_whoever_gives_its_turn_may_is_worth_it_and_could_not_stay(seed: int) -> None:
    view = cluster(seed)
    plan = plan_whole(view)

    for number, one in enumerate(plan.preemptions):
        job, victims = of(view, one)
        applicant = StartRequest(job.job_id, job.user, "", "", None, job.qos, job.since, job.ran_s)
        assert all(may_take(job, each, NOW) for each in victims)
        assert pays_off_at(job, victims) <= NOW
        if number == 0 and not plan.starts:  # later ones are decided beside what goes before
            assert PlanValidator(view).admit_preemption(one, applicant)
            assert not any(fits_without(view, set(some), job) for some in combinations(victims, len(victims) - 1))


@SEEDS
def test_no_other_set_has_fewer_gpus_on_one_node(seed: int) -> None:
    view = cluster(seed, resume_s=60.0)
    view = replace(view, pending=tuple(one for one in view.pending if not is_gang(one))[:1])
    plan = plan_whole(view)
    job = next(iter(view.pending), None)

    if job is None or plan.starts:
        return
    there = [one for one in view.running if may_take(job, one, NOW)]
    sets = [some for size in range(1, 5) for some in combinations(there, size) if fits_without(view, some, job)]
    least = min((sum(gpus_of(one) for one in some) for some in sets), default=None)
    if plan.preemptions:
        assert sum(gpus_of(one) for one in of(view, plan.preemptions[0])[1]) == least
    else:
        assert least is None or job.waits_since + 30 * least / job.shape.units > NOW


@SEEDS
def test_in_one_second_nobody_is_stopped_twice_and_all_comes_to_rest(seed: int) -> None:
    view, stopped = cluster(seed), set[JobId]()
    for _ in range(MOST_ROUNDS):
        plan = plan_whole(view)
        if not plan.starts and not plan.preemptions:
            break
        gone = {victim.job_id for one in plan.preemptions for victim in one.victims}
        assert not gone & stopped
        stopped |= gone
        view = played(view, plan)
    else:
        pytest.fail("it goes on and on")
    assert sum(gpus_of(one) for one in view.running) <= GPUS * len(view.nodes)


@SEEDS
def test_nothing_is_decided_before_the_instant_at_which_a_plan_says_that_it_may(seed: int) -> None:
    view = cluster(seed)
    plan = plan_whole(view)
    if plan.starts or plan.preemptions:
        return
    until = NOW + 3 * TRIAL if plan.changes_at is None else math.ceil(plan.changes_at)
    seconds = {NOW + 1, until - 1, *Random(seed).sample(range(NOW + 1, until), min(5, until - NOW - 1))}
    for second in sorted(one for one in seconds if NOW < one < until):
        later = plan_whole(replace(view, now=float(second)))
        assert not later.preemptions and not later.starts
