"""Everything at once: faults of every kind, nodes cut off until they count as lost, and people who steer at random.

Afterwards every job has ended, nothing is left on any machine, and the controller remembers nothing that it owes.
"""

from __future__ import annotations

from msgspec.structs import replace

from gq.model.state import JobState
from gq.wire import client
from gqnode.control.attempt import Phase
from tests.builders import OWNER, inventory
from tests.simulation.conftest import played_again_by, seeds_of
from tests.simulation.operator import Operator
from tests.simulation.world import Faults, World

ROUNDS = 24
FAULTS = Faults(
    drop=0.05,
    repeat=0.05,
    slow=0.05,
    refuse=0.05,
    node_crashes=8.0,
    power_losses=2.0,
    controller_crashes=10.0,
    partitions=4.0,
)
SETTLED_S = 14.0
"""After the last fault, for every order that was lost to have been repeated."""


def play(seed: int) -> World:
    world = World(seed, {f"n{number}": replace(inventory(), can_resize=True) for number in range(1, 5)})
    world.run(world.now + 1.0)
    people = Operator(world, jobs=15)
    world.faults = FAULTS
    for _ in range(60):
        world.run(world.now + world.random.uniform(0.0, 8.0))
        people.act()
    suspend_all(world)
    world.run(world.now + world.random.uniform(0.0, 3.0))
    world.calm()
    people.make_good()
    world.run(world.now + SETTLED_S)
    judge_time_limits(world)
    judge_suspended(world)
    resume_all(world)
    world.run(world.now + 7200.0, stop=world.is_quiet)
    assert world.is_quiet(), "something is left"
    world.run(world.now + 30.0)
    return world


def judge_time_limits(world: World) -> None:
    """Only nodes enforce them: each must have the one that the job has."""
    assert world.controller is not None
    for job in world.controller.cluster.jobs.values():
        if job.state is not JobState.RUNNING:
            continue
        for node in world.controller.cluster.attempts[job.attempt_id].parts:
            record = world.machines[node].spool.get(job.attempt_id)
            if record is not None and record.phase is Phase.RUNNING:
                assert record.time_limit_s == job.time_limit_s, f"{node} enforces another limit on job {job.job_id}"


def judge_suspended(world: World) -> None:
    """What stands still is what was told to, on each of its nodes; and nothing else does."""
    assert world.controller is not None
    for job in world.controller.cluster.jobs.values():
        attempt = world.controller.cluster.attempts.get(job.attempt_id)
        if job.state is not JobState.RUNNING or attempt is None:
            continue
        for node in attempt.parts:
            machine = world.machines[node]
            record = machine.spool.get(job.attempt_id)
            if record is not None and record.phase is Phase.RUNNING and job.attempt_id in machine.shepherds:
                is_frozen = job.attempt_id in machine.frozen
                assert is_frozen is (attempt.suspended_at is not None), f"{job.attempt_id} on {node}"


def suspend_all(world: World) -> None:
    """While messages are lost and daemons die."""
    if world.controller is not None:
        running = [job.job_id for job in world.controller.cluster.jobs.values() if job.state is JobState.RUNNING]
        world.ask(client.SuspendJobs(job_ids=tuple(running)), OWNER)


def resume_all(world: World) -> None:
    assert world.controller is not None
    attempts = world.controller.cluster.attempts.values()
    held = [one.attempt_id.job_id for one in attempts if one.suspended_at is not None]
    if held:
        world.ask(client.ResumeJobs(job_ids=tuple(held)), OWNER)


OWED = (*("order_clocks", "ending_steps", "client_seen_at", "job_waiters", "step_waiters"),)


def left_over(world: World) -> dict[str, object]:
    """What nodes hold, attempts have and the controller owes when all is over."""
    controller = world.controller
    assert controller is not None
    found: dict[str, object] = {f"held on {node.name}": node.held for node in controller.cluster.nodes.values()}
    found |= {f"steps of {one.attempt_id}": one.steps for one in controller.cluster.attempts.values()}
    found |= {name: getattr(controller.volatile, name) for name in OWED}
    return {name: value for name, value in found.items() if value}


def test_whatever_people_and_faults_do_everything_ends_and_nothing_is_left(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            assert left_over(play(seed)) == {}
