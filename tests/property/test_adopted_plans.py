"""A plan that is adopted on the cluster it was made of is adopted whole: the controller's re-check says what it says.

``GQ_CLUSTERS=1000`` looks at so many clusters instead of a few; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.node import Inventory
from gq.model.reservation import Booking, Flag
from gq.model.resource import Amount, ResourceRequest
from gq.model.scheduling import PRESETS, Scheduling
from gq.wire import client
from gqd.sched.planner import plan_whole
from gqd.state.input import Tick
from gqd.state.policy import Partition
from tests.builders import inventory, submit
from tests.effort import first
from tests.hosts import POLICY, CoreHost
from tests.property.streams import POLICIES

CLUSTERS = int(os.environ.get("GQ_CLUSTERS", "5"))
ROUNDS = 25
REQUESTS: tuple[dict[str, Any], ...] = (
    {"gpus": 1},
    {"gpus": 2, "mem_per_gpu_mib": 9000},
    {"gpus": 5, "is_dense": True},
    {"nodes_min": 2, "gpus_per_node": 2},
    {"nodes_min": 2, "is_exclusive": True},
    {"ntasks": 6, "mem_per_cpu_mib": 4000},
    {"gpus": 1, "array": "1-6", "array_throttle": 2},
    {"gpus": 1, "licenses": (Amount("solver", 1),)},
    {"cpus_per_task": 7},
)


def host_of(seed: int, policy: str, chance: random.Random, max_time_s: int | None = None) -> CoreHost:
    rules = msgspec.structs.replace(
        POLICY,
        scheduling=Scheduling(**PRESETS[policy]),
        licenses={"solver": 2},
        partitions=(Partition(name="main", is_default=True, max_time_s=max_time_s),),
    )
    return CoreHost(
        rules, nodes={f"n{number}": node_of(chance) for number in range(chance.randint(1, 4))}, checked=False
    )


def node_of(chance: random.Random) -> Inventory:
    return inventory(cpus=chance.choice((4, 8)), gpu_count=chance.choice((0, 2, 4, 8)), memory_mib=32768)


def come_and_go(host: CoreHost, chance: random.Random) -> None:
    """Some jobs are submitted, some end, and time goes on."""
    for _ in range(chance.randint(0, 4)):
        limit_s = chance.choice((None, 60, 600, 6000))
        fields = chance.choice(REQUESTS)
        try:
            host.submit(submit(time_limit_s=limit_s, **fields))
        except Refusal as refusal:
            assert refusal.code == "impossible", refusal
    running = [job.job_id for job in host.cluster.jobs.values() if job.start_at is not None and job.end_at is None]
    for job_id in chance.sample(running, min(len(running), chance.randint(0, 2))):
        host.finish(job_id)
    host.now += chance.choice((1.0, 30.0, 700.0, 8000.0))
    host.beat()


@pytest.mark.parametrize("policy", first(1, POLICIES))
def test_a_plan_that_is_adopted_at_once_is_adopted_whole(policy: str) -> None:
    adopted = 0
    for seed in range(CLUSTERS):
        chance = random.Random(f"{policy} {seed}")
        host = host_of(seed, policy, chance)
        for _ in range(ROUNDS):
            come_and_go(host, chance)
            plan = plan_whole(host.controller.snapshot(host.now))
            before = dict(host.cluster.attempts)
            host.adopt(plan)
            new = [one for key, one in host.cluster.attempts.items() if key not in before]
            assert {one.grants for one in new} == {start.grants for start in plan.starts}, f"seed {seed}"
            adopted += len(new)
            host.obey()
    assert adopted > 10 * CLUSTERS


@pytest.mark.parametrize("policy", first(1, POLICIES))
def test_it_is_so_where_something_is_reserved(policy: str) -> None:
    inside = 0
    for seed in range(CLUSTERS):
        chance = random.Random(f"{policy} {seed}")
        host = host_of(seed, policy, chance, max_time_s=9000)
        for number in range(ROUNDS):
            reserve_something(host, chance, f"r{number}")
            come_and_go(host, chance)
            host.handle(Tick())
            plan = plan_whole(host.controller.snapshot(host.now))
            before = dict(host.cluster.attempts)
            host.adopt(plan)
            new = [one for key, one in host.cluster.attempts.items() if key not in before]
            assert {one.grants for one in new} == {start.grants for start in plan.starts}, f"seed {seed}"
            inside += sum(one.occurrence is not None for one in new)
            host.obey()
    assert inside > CLUSTERS


def reserve_something(host: CoreHost, chance: random.Random, name: str) -> None:
    """Now or later; of jobs some name one of those that there are."""
    request = chance.choice(({"gpus": 2}, {"gpus": 4}, {"nodes_min": 1, "is_exclusive": True}))
    booking = Booking(
        name=name,
        resources=ResourceRequest(**request),
        begin_at=host.now + chance.choice((0, 100, 1000, 9000)),
        duration_s=chance.choice((500, 5000)),
        flags=chance.choice(((), (), (Flag.MAGNETIC,), (Flag.FLEX,))),
    )
    names = [*host.cluster.reservations, name]
    bodies = [client.SetReservation(booking=booking)]
    bodies += [submit(gpus=1, time_limit_s=400, reservation=chance.choice(names)) for _ in range(chance.randint(0, 2))]
    for body in bodies:
        try:
            host.ask(body)
        except Refusal:
            continue  # there is no room, or it is over
