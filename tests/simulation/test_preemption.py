"""Jobs that give way under faults: no victim is lost, nobody starves, and no GPU is given twice."""

from __future__ import annotations

import signal
from typing import TypeVar

import msgspec

from gq.model.ids import AttemptId
from gq.model.job import SignalSpec
from gq.model.scheduling import PRESETS, Scheduling
from gq.model.state import JobState, Outcome
from gq.wire import client
from gqd.state.events import event
from gqd.state.policy import Policy
from gqd.store.rows.rows import event_of
from tests.builders import OWNER, SHARED, inventory, submit
from tests.simulation.conftest import are_all, played_again_by, seeds_of
from tests.simulation.world import Faults, World

E = TypeVar("E")
ROUNDS = 40
LONG_S = 12
CRASHES = Faults(
    drop=0.05, repeat=0.05, slow=0.05, refuse=0.03, node_crashes=5.0, power_losses=1.0, controller_crashes=20.0
)
BAD_LINKS = Faults(drop=0.05, repeat=0.05, slow=0.05)
TURNS = Scheduling(**PRESETS["las"], trial_s=8.0, turn_s=8.0)
SHAPES = ({"gpus": 1}, {"gpus": 4}, {"nodes_min": 2, "gpus_per_node": 2}, {"nodes_min": 3, "gpus_per_node": 4})


class Listening(World):
    """Notes which signals reach the machines."""

    def __init__(self, seed: int, policy: Policy | None = None) -> None:
        super().__init__(seed, {f"n{number}": inventory() for number in range(1, 5)}, policy=policy)
        self.heard: dict[tuple[str, AttemptId], int] = {}

    def _signal(self, name: str, attempt_id: AttemptId, signum: int) -> None:
        if signum == signal.SIGUSR1:
            self.heard[name, attempt_id] = self.heard.get((name, attempt_id), 0) + 1
        super()._signal(name, attempt_id, signum)


def play(seed: int, faults: Faults) -> Listening:
    world = Listening(seed)
    world.run(world.now + 1.0)
    world.faults = faults
    for number in range(16):
        world.run(world.now + world.random.uniform(0.0, 8.0))
        if world.controller is None:
            continue
        fields = dict(world.random.choice(SHAPES))
        if world.random.random() < 0.6:
            before_s = world.random.choice([None, 0, 3, LONG_S])
            told = None if before_s is None else SignalSpec(signum=signal.SIGUSR1, before_s=before_s)
            world.ask(submit(f"scavenger{number}", qos="scavenger", signal=told, time_limit_s=60, **fields))
        else:
            world.ask(submit(f"urgent{number}", time_limit_s=60, **fields))
        if world.controller is not None and world.random.random() < 0.2:
            world.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(world.random.randint(1, 16),))))
    world.calm()
    world.run(world.now + 7200.0, stop=world.is_quiet)
    return world


def play_turns(seed: int, faults: Faults) -> Listening:
    """All of one QOS: they give way since they have had their trials."""
    policy = msgspec.structs.replace(SHARED, owner_uid=OWNER.uid, scheduling=TURNS)
    world = Listening(seed, policy)
    world.run(world.now + 1.0)
    world.faults = faults
    for number in range(16):
        world.run(world.now + world.random.uniform(0.0, 6.0))
        if world.controller is not None:
            before_s = world.random.choice([None, 0, 3])
            told = None if before_s is None else SignalSpec(signum=signal.SIGUSR1, before_s=before_s)
            fields = dict(world.random.choice(SHAPES))
            world.ask(submit(f"job{number}", signal=told, resume_s=1, time_limit_s=60, **fields))
        if world.controller is not None and world.random.random() < 0.1:
            world.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(world.random.randint(1, 16),))))
    world.calm()
    world.run(world.now + 7200.0, stop=world.is_quiet)
    return world


def happened(world: World, kind: type[E]) -> list[E]:
    return [one for one in map(event_of, world.store._events) if isinstance(one, kind)]


def judge(world: World) -> None:
    assert world.is_quiet() and world.controller is not None, "something is left"
    cluster = world.controller.cluster
    assert not cluster.claims
    for job in cluster.jobs.values():
        assert job.state is JobState.ENDED, f"job {job.job_id} never ended"
        assert job.outcome in (Outcome.COMPLETED, Outcome.CANCELLED), f"job {job.job_id} is {job.outcome}: {job.why}"
    assert not {node.name: node.held for node in cluster.nodes.values() if node.held}


def signals_misheard(world: Listening) -> list[str]:
    """Who heard it more often than it was decided, or never, though the notice was long enough to say it again."""
    decided: dict[AttemptId, int] = {}
    for fact in happened(world, event.PreemptionDecided):
        for attempt_id, _ends_at in fact.victims:
            decided[attempt_id] = decided.get(attempt_id, 0) + 1
    wrong = [f"{one} on {name}: {count}" for (name, one), count in world.heard.items() if count > decided[one]]
    ended = {one.attempt_id for one in happened(world, event.JobEnding) if one.exit is None and one.lost_gpu_s}
    heard = {attempt_id for _, attempt_id in world.heard}
    for fact in happened(world, event.PreemptionDecided):
        long = [one for one, ends_at in fact.victims if ends_at - fact.at >= LONG_S]
        wrong += [f"{one}: never" for one in long if one in ended and one not in heard]
    return wrong


def test_all_that_gives_way_is_queued_again_and_completes_and_so_does_what_it_gave_way_to(shard: int) -> None:
    decided = 0
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world = play(seed, CRASHES)
            judge(world)
            decided += len(happened(world, event.PreemptionDecided))
    assert decided or not are_all(), "nobody gave way in any of them"


def test_where_jobs_take_turns_all_of_them_complete_and_each_had_run_for_its_least_time(shard: int) -> None:
    decided = 0
    for seed in seeds_of(shard, ROUNDS // 2):
        with played_again_by(seed):
            world = play_turns(seed, CRASHES)
            judge(world)
            began = {fact.attempt_id: fact.at for fact in happened(world, event.JobStarted)}
            told = [(fact.at, one) for fact in happened(world, event.PreemptionDecided) for one, _ in fact.victims]
            assert all(at - began[one] >= 3.0 for at, one in told), "three resumes' worth"
            decided += len(told)
    assert decided or not are_all(), "nobody gave its turn in any of them"


def test_who_is_told_hears_it_once_on_each_node_however_bad_the_links_are(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS // 2):
        with played_again_by(seed):
            world = play(seed, BAD_LINKS)
            judge(world)
            misheard = signals_misheard(world)
            assert not misheard, f"these were not told as often as was decided: {misheard}"
