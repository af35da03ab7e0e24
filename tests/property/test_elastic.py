"""Random clusters with elastic jobs: nobody is ended where it is enough that they shrink, no more is given up than must
be, and where both is needed no other set would lose less.

``GQ_CLUSTERS=500`` looks at so many clusters instead of some; a failure names its seed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf

import msgspec
import pytest

from gq.model.ids import AttemptId
from gq.model.resource import Grant, ResourceRequest
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.placement.placement import is_possible
from gqd.sched.placement.placement import place as put
from gqd.sched.planner import plan_whole
from gqd.sched.preemption.partial_release import grant_of
from gqd.sched.snapshot.model import Overlay, PendingJob, ResizeBounds, RunningJob, Share
from gqd.state.plan import Preemption, Shrink
from tests.property.test_preemption import CLUSTERS, Scene, lost_gpu_s, may_go, small, some_request


def with_elastic_jobs(scene: Scene) -> dict[int, list[Grant]]:
    """Most that have several GPUs on one node, or several nodes, may shrink: what each of them could do without."""
    beyond: dict[int, list[Grant]] = {}
    for at, job in enumerate(scene.running):
        [held, *others] = job.grants
        if others and scene.random.random() < 0.8:
            joined = others[scene.random.randrange(len(others)) :]
            share = Share(ResourceRequest(nodes_min=1, nodes_max=8, is_elastic=True), "main")
            names = tuple(one.node for one in joined)
            scene.running[at] = replace(
                job, resize_bounds=ResizeBounds((), 8, None, 0, 3, 10.0, share=share, joined=names)
            )
            beyond[job.job_id] = joined
            continue
        if others or len(held.gpus) < 2 or scene.random.random() < 0.2:
            continue
        least = scene.random.randint(1, len(held.gpus) - 1)
        count = len(held.gpus) - least
        per_gpu = scene.random.choice((0, 0, 1))
        if len(held.cpus) <= count:
            per_gpu = 0
        cpus = held.cpus[: len(held.cpus) - per_gpu * count]
        resize_bounds = ResizeBounds(held.gpus[:least], 8, None, 0, 3, 10.0, per_gpu, cpus)
        scene.running[at] = replace(job, resize_bounds=resize_bounds)
        gone = tuple(one for one in held.cpus if one not in cpus) if per_gpu else ()
        beyond[job.job_id] = [Grant(node=held.node, tasks=0, gpus=held.gpus[least:], cpus=gone)]
    return beyond


def free_without(scene: Scene, gone: list[RunningJob], given: list[Grant]) -> Overlay:
    overlay = Overlay.of(scene.snapshot())
    places = {one.name: place for place, one in enumerate(scene.nodes)}
    for grant in (grant for one in gone for grant in one.grants):
        overlay.give_back(places[grant.node], grant)
    for grant in given:
        overlay.give_back(places[grant.node], grant)
    return overlay


def fits(scene: Scene, job: PendingJob, gone: list[RunningJob], given: list[Grant]) -> bool:
    return put(free_without(scene, gone, given), job.shape, list(range(len(scene.nodes)))) is not None


def fewer(scene: Scene, shrink: Shrink) -> list[Shrink]:
    """With a GPU less each, and the CPUs that come with it; of a node nothing."""
    if shrink.is_node:
        return [msgspec.structs.replace(shrink, gpus=(), cpus=(), memory_mib=0, resources=())]
    [resize_bounds] = [one.resize_bounds for one in scene.running if one.job_id == shrink.attempt_id.job_id]
    assert resize_bounds is not None
    cpus = shrink.cpus[resize_bounds.cpus_per_gpu :]
    gpus = [tuple(one for one in shrink.gpus if one != gpu) for gpu in shrink.gpus]
    return [msgspec.structs.replace(shrink, gpus=left, cpus=cpus) for left in gpus]


def test_as_little_as_must_be_is_lost_and_no_more_given_up_than_is_needed() -> None:
    decided = mixed = of_nodes = 0
    for seed in range(3 * CLUSTERS):
        scene = small(seed)
        beyond = with_elastic_jobs(scene)
        job = scene.ask(99, some_request(scene.random), scene.random.choice(("normal", "high", "scavenger")))
        plan = plan_whole(scene.snapshot())
        if plan.starts:
            assert not plan.preemptions
            continue
        best = least_lost(scene, job, beyond)
        if not plan.preemptions:
            assert best == inf, f"seed {seed}: {best} would have to be lost for {job}"
            continue
        decided += 1
        [one] = plan.preemptions
        ended = [each for each in scene.running if AttemptId(each.job_id, each.attempt) in one.victims]
        mixed += bool(ended and one.shrinks)
        of_nodes += any(shrink.is_node for shrink in one.shrinks)
        assert lost_gpu_s(ended) == pytest.approx(best, abs=0.01), f"seed {seed}: {one} for {job}"
        check_gifts(scene, job, one, ended, beyond, seed)
        applicant = StartRequest(job.job_id, job.user, job.account, "", job.time_limit_s, job.qos)
        assert PlanValidator(scene.snapshot()).admit_preemption(one, applicant), f"seed {seed}: it cannot be adopted"
    assert decided > CLUSTERS // 4 and mixed, f"{decided} decided, {mixed} of both kinds"
    assert of_nodes, "no node was ever given up"


def least_lost(scene: Scene, job: PendingJob, beyond: dict[int, list[Grant]]) -> float:
    """By those that are ended, where all others give up what they can, if it asks for a GPU or CPUs come with them."""
    could, best = may_go(scene, job.qos), inf
    for count in range(len(could) + 1):
        for some in combinations(could, count):
            ids = {each.job_id for each in some}
            given = [grant for job_id, grants in beyond.items() if job_id not in ids for grant in grants]
            if lost_gpu_s(list(some)) < best and fits(scene, job, list(some), given):
                best = lost_gpu_s(list(some))
    return best


def check_gifts(
    scene: Scene, job: PendingJob, one: Preemption, ended: list[RunningJob], beyond: dict[int, list[Grant]], seed: int
) -> None:
    places = {each.name: place for place, each in enumerate(scene.nodes)}
    given = [grant_of(each) for each in one.shrinks]
    assert is_possible(free_without(scene, ended, given), one.grants, places), f"seed {seed}: {one}"
    for shrink, grant in zip(one.shrinks, given, strict=True):
        [could] = [each for each in beyond[shrink.attempt_id.job_id] if each.node == shrink.node]
        assert not shrink.is_node or (shrink.gpus, shrink.cpus) == (could.gpus, could.cpus), f"seed {seed}: {shrink}"
        assert set(shrink.gpus) <= set(could.gpus) and set(shrink.cpus) <= set(could.cpus), f"seed {seed}: {shrink}"
        assert shrink.attempt_id not in one.victims, f"seed {seed}: {shrink} of one that is ended"
        others = [each for each in given if each is not grant]
        for less in fewer(scene, shrink):
            assert not fits(scene, job, ended, [*others, grant_of(less)]), (
                f"seed {seed}: {shrink} is more than is needed"
            )
    for victim in ended:
        rest = [each for each in ended if each is not victim]
        stays = beyond.get(victim.job_id, [])
        assert not fits(scene, job, rest, [*given, *stays]), f"seed {seed}: {victim} could stay"
