"""Two gangs that each want 60 % of the GPUs, over a network that drops, delays and repeats, with crashes between."""

from __future__ import annotations

import random

import pytest

from gq.model.state import JobState
from gq.wire import node as wire
from gqd.control import attempt as attempt_control
from gqd.control import orders
from gqd.control.turn import TurnBuilder
from gqd.state.events import event
from tests.builders import inventory, submit
from tests.simulation.conftest import played_again_by, seeds_of
from tests.simulation.world import Faults, World

ROUNDS = 48
FAULTS = Faults(
    drop=0.08, repeat=0.08, slow=0.08, refuse=0.05, node_crashes=6.0, power_losses=2.0, controller_crashes=15.0
)
CALM_AFTER_S = 90.0
PATIENCE_S = 3600.0


def play(seed: int) -> World:
    """A round on 5 nodes × 4 GPUs, of which both want 12: submitted in peace, then faults, then all must end."""
    world = World(seed, {f"n{number}": inventory() for number in range(1, 6)})
    world.run(world.now + 1.0)
    world.ask(submit("one", nodes_min=3, gpus_per_node=4))
    world.ask(submit("two", nodes_min=3, gpus_per_node=4))
    world.faults = FAULTS
    begun = world.now
    world.run(begun + CALM_AFTER_S)
    world.calm()
    world.run(world.now + PATIENCE_S, stop=world.is_quiet)
    assert world.is_quiet(), "gangs are left hanging"
    return world


def test_gangs_start_whole_or_not_at_all(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world = play(seed)
            assert world.controller is not None
            assert all(job.state is JobState.ENDED for job in world.controller.cluster.jobs.values())


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """GO before all have acknowledged: the judge, or the table of a job's life, must see it within a few rounds."""

    def on_prepared_too_early(draft: TurnBuilder, node: str, report: wire.Prepared) -> None:
        attempt = draft.cluster.attempts.get(report.attempt_id)
        job = draft.cluster.jobs.get(report.attempt_id.job_id)
        if attempt is None or job is None or job.state is not JobState.STARTING or node not in attempt.parts:
            return
        draft.emit(event.PartsReleased(at=draft.now, attempt_id=report.attempt_id, nodes=(node,), master_port=1))
        orders.send_owed(draft, attempt, node)

    monkeypatch.setattr(attempt_control, "on_prepared", on_prepared_too_early)
    with pytest.raises(AssertionError, match=r"before n|does not happen"):
        for seed in range(50):
            play(seed)


def test_the_same_seed_plays_the_same_round() -> None:
    seed = random.Random(7).randrange(10_000)
    ends = []
    for _ in range(2):
        world = play(seed)
        assert world.controller is not None
        ends.append((world.now, sorted(world.runs), world.controller.cluster.jobs))
    assert ends[0] == ends[1]
