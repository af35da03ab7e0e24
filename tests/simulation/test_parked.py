"""Jobs that stand still for others under faults: no GPU has two running jobs, and whoever stood still goes on."""

from __future__ import annotations

import signal

import msgspec

from gq.model.account import BUILT_IN_QOS, PreemptMode
from gq.model.ids import AttemptId
from gq.model.job import SignalSpec
from gq.wire import client
from gqd.state.events import event
from gqd.state.order_clocks import SUSPEND
from tests.builders import inventory, submit
from tests.simulation.conftest import are_all, played_again_by, seeds_of
from tests.simulation.test_preemption import CRASHES, happened, judge
from tests.simulation.world import Faults, World

ROUNDS = 40
BAD_LINKS = Faults(drop=0.05, repeat=0.05, slow=0.05, controller_crashes=5.0)
NEED_MIB = 8000
SHAPES = ({"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"nodes_min": 2, "gpus_per_node": 2})


class Remembering(World):
    """GPUs have memory; some is in use, and some GPUs do not tell."""

    def gpu_memory(self, name: str, attempt_id: AttemptId, gpu: int) -> int | None:
        return [0, 4000, 4000, 4000, 4000, 15_000, None][(7 * attempt_id.job_id + attempt_id.attempt) % 7]


def play(seed: int, faults: Faults) -> World:
    world = Remembering(seed, {f"n{number}": inventory() for number in range(1, 4)})
    world.run(world.now + 1.0)
    scavengers = msgspec.structs.replace(BUILT_IN_QOS["scavenger"], preempt_mode=PreemptMode.SUSPEND)
    world.ask(client.SetQos(qos=scavengers, is_new=False))
    world.faults = faults
    for number in range(16):
        world.run(world.now + world.random.uniform(0.0, 8.0))
        if world.controller is None:
            continue
        fields = dict(world.random.choice(SHAPES))
        if world.random.random() < 0.6:
            before_s = world.random.choice([None, 0, 3])
            told = None if before_s is None else SignalSpec(signum=signal.SIGUSR1, before_s=before_s)
            world.ask(submit(f"scavenger{number}", qos="scavenger", signal=told, time_limit_s=60, **fields))
        else:
            world.ask(submit(f"urgent{number}", time_limit_s=60, min_gpu_mem_mib=NEED_MIB, **fields))
        if world.controller is not None and world.random.random() < 0.2:
            disturb(world, world.random.randint(1, 16))
    world.calm()
    held = () if world.controller is None else world.controller.cluster.attempts.values()
    world.ask(client.ResumeJobs(job_ids=tuple(one.attempt_id.job_id for one in held if one.suspended_at is not None)))
    world.run(world.now + 7200.0, stop=world.is_quiet)
    return world


def disturb(world: World, job_id: int) -> None:
    what = world.random.random()
    if what < 0.6:
        world.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))))
    elif what < 0.8:
        world.ask(client.RequeueJobs(job_ids=(job_id,)))
    else:
        world.ask(client.SuspendJobs(job_ids=(job_id,)))


def judge_parked(world: World) -> int:
    """Each that was parked went on, or was ended; how many were."""
    judge(world)
    assert world.controller is not None and not world.controller.cluster.parked
    begun = [one.attempt_id for one in happened(world, event.JobParking)]
    over = [one.attempt_id for one in happened(world, event.JobUnparked)]
    ended = {one.attempt_id for one in happened(world, event.JobEnding)}
    for attempt_id in set(begun):
        left = begun.count(attempt_id) - over.count(attempt_id)
        assert left in ((0, 1) if attempt_id in ended else (0,)), f"{attempt_id} was let go on {left} times too few"
    return len(happened(world, event.JobParked))


def test_no_gpu_has_two_running_jobs_and_whoever_stood_still_goes_on_whatever_crashes(shard: int) -> None:
    parked = 0
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            parked += judge_parked(play(seed, CRASHES))
    assert parked or not are_all(), "nobody stood still in any of them"


def test_so_it_is_on_bad_links(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS // 2):
        with played_again_by(seed):
            world = play(seed, BAD_LINKS)
            judge_parked(world)
            assert world.controller is not None and not world.controller.volatile.order_clocks.owed(SUSPEND)
