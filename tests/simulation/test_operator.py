"""Everything at once: faults of every kind, nodes cut off until they count as lost, and people who steer at random.

Afterwards every job has ended, nothing is left on any machine, and the controller remembers nothing that it owes.
"""

from __future__ import annotations

from gq.model.state import JobState
from gqnode.control.attempt import Phase
from tests.builders import inventory
from tests.simulation.conftest import seeds_of
from tests.simulation.operator import Operator
from tests.simulation.world import Faults, World

ROUNDS = 80
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
    world = World(seed, {f"n{number}": inventory() for number in range(1, 5)})
    world.run(world.now + 1.0)
    people = Operator(world, jobs=15)
    world.faults = FAULTS
    for _ in range(60):
        world.run(world.now + world.random.uniform(0.0, 8.0))
        people.act()
    world.calm()
    people.make_good()
    world.run(world.now + SETTLED_S)
    judge_time_limits(world)
    world.run(world.now + 7200.0, stop=world.is_quiet)
    assert world.is_quiet(), "something is left"
    world.run(world.now + 30.0)
    judge_end(world)
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


def judge_end(world: World) -> None:
    controller = world.controller
    assert controller is not None
    for node in controller.cluster.nodes.values():
        assert not node.held, f"{node.name} still holds {node.held}"
    for attempt in controller.cluster.attempts.values():
        assert not attempt.steps, f"{attempt.attempt_id} still has steps"
    owed = controller.volatile
    for name in ("part_orders", "step_orders", "ending_steps", "limit_orders", "stop_orders", "client_seen_at"):
        assert not getattr(owed, name), f"{name} are left: {getattr(owed, name)}"
    for name in ("job_waiters", "step_waiters"):
        assert not getattr(owed, name), f"{name} are left"


def test_whatever_people_and_faults_do_everything_ends_and_nothing_is_left(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}; again: make sim SEED={seed}") from error
