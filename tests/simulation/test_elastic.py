"""Jobs that grow and shrink under faults: no GPU is used by two, none is lost, and who waits for them gets them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gq.model.ids import AttemptId, JobId
from gq.model.job import SignalSpec
from gq.model.state import JobState, Outcome
from gq.wire import client
from gqd.state.events import event
from gqd.state.order_clocks import RESIZE
from gqd.state.records import Attempt
from gqd.store.rows.rows import event_of
from gqnode.control.attempt import Phase
from tests.builders import inventory, submit
from tests.simulation.conftest import are_all, played_again_by, seeds_of
from tests.simulation.test_preemption import happened
from tests.simulation.world import Faults, World

ROUNDS = 40
FAULTS = Faults(
    drop=0.05, repeat=0.05, slow=0.05, refuse=0.03, node_crashes=8.0, power_losses=1.0, controller_crashes=20.0
)
SETTLED_S = 14.0
"""After the last fault, for every order that was lost to have been repeated."""


def play(seed: int, shape: Callable[[World], dict[str, Any]]) -> World:
    has = replace(inventory(), can_resize=True, can_join=True)
    world = World(seed, {f"n{number}": has for number in range(1, 4)})
    world.run(world.now + 1.0)
    world.faults = FAULTS
    for number in range(16):
        world.run(world.now + world.random.uniform(0.0, 8.0))
        if world.controller is not None:
            qos = world.random.choice(("", "scavenger"))
            world.ask(submit(f"job{number}", time_limit_s=120, qos=qos, **shape(world)))
        if world.controller is not None and world.random.random() < 0.15:
            world.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(world.random.randint(1, 16),))))
    world.calm()
    world.run(world.now + SETTLED_S)
    judge_settled(world)
    world.run(world.now + 7200.0, stop=world.is_quiet)
    return world


def of_gpus(world: World) -> dict[str, Any]:
    random = world.random
    if random.random() < 0.15:
        return {"gpus_per_node": random.choice((1, 2, 3)), "nodes_min": 2}
    if random.random() < 0.4:
        return {"gpus": random.choice((1, 2, 3))}
    before_s = random.choice((None, None, 0, 3, 20))
    told = None if before_s is None else SignalSpec(signum=signal.SIGUSR1, before_s=before_s)
    cpus_per_gpu = random.choice((None, None, 1, 2))
    most = random.choice((2, 4, 8))
    return {"gpus": random.choice((1, 2)), "most_gpus": most, "signal": told, "cpus_per_gpu": cpus_per_gpu}


def of_nodes(world: World) -> dict[str, Any]:
    random = world.random
    if random.random() < 0.55:
        return of_gpus(world)
    share = random.choice(({"gpus_per_node": 1}, {"gpus_per_node": 2, "cpus_per_gpu": 2}, {"gpus_per_node": 4}))
    told = random.choice((None, SignalSpec(signum=signal.SIGUSR1, before_s=3)))
    least = random.choice((1, 1, 2))
    return {"nodes_min": least, "nodes_max": 3, "is_elastic": True, "signal": told, **share}


def judge_settled(world: World) -> None:
    """Nodes know the newest change, and have what the books say."""
    assert world.controller is not None
    for attempt_id, attempt in world.controller.cluster.elastic.items():
        job = world.controller.cluster.jobs[attempt_id.job_id]
        record = world.machines[attempt.batch_node].spool.get(attempt_id)
        if job.attempt_id != attempt_id or job.state is not JobState.RUNNING or attempt.elastic is None:
            continue
        if record is None or record.phase is not Phase.RUNNING or world.now - attempt.allocated_at < SETTLED_S:
            continue
        known = 0 if record.resize is None else record.resize.generation
        changed_at = attempt.elastic.changed_at or attempt.allocated_at
        if attempt.elastic.is_of_nodes:
            judge_nodes(world, attempt, changed_at)
            continue
        if attempt.elastic.keeps is None and world.now - changed_at >= SETTLED_S:
            assert known == attempt.elastic.generation, f"{attempt_id} knows change {known}: {attempt.elastic}"
            assert record.launch.grant == attempt.grants[0], f"{attempt_id} has {record.launch.grant}"


def judge_nodes(world: World, attempt: Attempt, changed_at: float) -> None:
    """All that live know all that live."""
    one = attempt.elastic
    assert one is not None
    if one.going or one.left or world.now - changed_at < SETTLED_S:
        return
    nodes = [grant.node for grant in attempt.grants]
    for name in nodes:
        record = world.machines[name].spool.get(attempt.attempt_id)
        is_there = record is not None and record.phase in (Phase.STARTING, Phase.RUNNING)  # that it runs is not saved
        assert record is not None and is_there, f"{attempt.attempt_id} on {name}: {record}"
        known = 0 if record.resize is None else record.resize.generation
        assert known == one.generation, f"{attempt.attempt_id} on {name} knows change {known}: {one}"
        assert [member.node for member in record.launch.members] == nodes, f"{name} knows {record.launch.members}"


def taken_from_others(world: World) -> list[str]:
    """Who was given a GPU that was kept for somebody else: free already, or given up for that one."""
    kept: dict[JobId, set[tuple[str, int]]] = {}
    nodes: dict[AttemptId, str] = {}
    wrong: list[str] = []

    def take(fact: event.Event, job_id: JobId, gpus: set[tuple[str, int]]) -> None:
        wrong.extend(f"{fact}: kept for {to}" for to, its in kept.items() if to != job_id and its & gpus)

    for fact in map(event_of, world.store._events):
        match fact:
            case event.PreemptionDecided():
                kept[fact.job_id] = {(one.node, gpu) for one in fact.grants for gpu in one.gpus}
            case event.PreemptionDropped() | event.JobEnded():
                kept.pop(fact.job_id, None)
            case event.JobAllocated():
                kept.pop(fact.attempt_id.job_id, None)
                nodes[fact.attempt_id] = fact.grants[0].node
                take(fact, fact.attempt_id.job_id, {(one.node, gpu) for one in fact.grants for gpu in one.gpus})
            case event.NodeAdded():
                take(fact, fact.attempt_id.job_id, {(fact.grant.node, gpu) for gpu in fact.grant.gpus})
            case event.GpusAdded():
                take(fact, fact.attempt_id.job_id, {(nodes[fact.attempt_id], gpu) for gpu in fact.gpus})
            case _:
                pass
    return wrong


def judge_end(world: World) -> None:
    assert world.is_quiet() and world.controller is not None, "something is left"
    cluster = world.controller.cluster
    for job in cluster.jobs.values():
        assert job.outcome in (Outcome.COMPLETED, Outcome.CANCELLED), f"job {job.job_id} is {job.outcome}: {job.why}"
    for node in cluster.nodes.values():
        assert not node.held and node.free_gpu_mask == 0b1111, f"{node.name} has {node.held}"
    assert not cluster.elastic and not world.controller.volatile.order_clocks.owed(RESIZE)


def test_no_gpu_is_used_by_two_and_none_is_lost_whatever_dies_while_jobs_grow_and_shrink(shard: int) -> None:
    grown = given_up = 0
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world = play(seed, of_gpus)
            judge_end(world)
            assert not taken_from_others(world)
            grown += len(happened(world, event.GpusAdded))
            given_up += len(happened(world, event.GpusGivenUp))
    assert (grown and given_up) or not are_all(), f"{grown} have grown, {given_up} given something up"


def test_no_gpu_is_used_by_two_and_none_is_lost_whatever_dies_while_nodes_come_and_go(shard: int) -> None:
    came = went = left = 0
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world = play(seed, of_nodes)
            judge_end(world)
            assert not taken_from_others(world)
            came += len(happened(world, event.NodeAdded))
            went += len(happened(world, event.NodesGoing))
            left += len(happened(world, event.NodesLeft))
    assert (came and went and left) or not are_all(), f"{came} nodes came to jobs, {went} times some were told to go"
