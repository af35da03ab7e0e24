"""A mixed stream of jobs under faults of every kind: nothing is lost, nothing runs twice, everything is cleaned up."""

from __future__ import annotations

from gq.model.state import JobState
from gq.wire import client
from tests.builders import inventory, submit
from tests.simulation.conftest import played_again_by, seeds_of
from tests.simulation.world import Faults, World

ROUNDS = 40
FAULTS = Faults(
    drop=0.05, repeat=0.05, slow=0.05, refuse=0.03, node_crashes=5.0, power_losses=1.0, controller_crashes=10.0
)
SHAPES = ({}, {"gpus": 1}, {"nodes_min": 2, "gpus_per_node": 2}, {"ntasks": 6, "gpus_per_task": 1}, {"gpus": 4})


def play(seed: int) -> tuple[World, int]:
    """Returns how many jobs were accepted."""
    world = World(seed, {f"n{number}": inventory() for number in range(1, 5)})
    world.run(world.now + 1.0)
    world.faults = FAULTS
    accepted = 0
    for number in range(12):
        world.run(world.now + world.random.uniform(0.0, 15.0))
        if world.controller is None:
            continue
        before = len(world.store.load().jobs)
        world.ask(submit(f"job{number}", **world.random.choice(SHAPES), time_limit_s=20))
        accepted += len(world.store.load().jobs) - before
        if world.controller is not None and world.random.random() < 0.2:
            world.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(world.random.randint(1, 12),))))
    world.calm()
    world.run(world.now + 7200.0, stop=world.is_quiet)
    return world, accepted


def test_every_accepted_job_ends_and_leaves_nothing(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world, accepted = play(seed)
            assert world.is_quiet(), "something is left"
            assert world.controller is not None
            assert world.store.load().next_job_id == accepted + 1, "an accepted job was lost"
            assert all(job.state is JobState.ENDED for job in world.controller.cluster.jobs.values())
            assert not {node.name: node.held for node in world.controller.cluster.nodes.values() if node.held}
