"""Small clusters and traces for the tests, and the shared traces where they are."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from gqd.sim.engine import Engine, Run
from gqd.sim.policies import read_policies
from gqd.sim.workload import Pool, SimJob, gpus_wanted, setup_for, site_of
from tests.replay.oracle import Job

Pools = dict[str, tuple[int, int]]
"""Name → (nodes, GPUs of each)."""


EngineT = TypeVar("EngineT", bound=Engine)
ALL = "all"
"""The only pool of most small clusters."""


def job(name: str, submit_s: float, duration_s: float, gpus: int, **fields: object) -> SimJob:
    own = SimJob(
        name=name,
        user="ada",
        account=ALL,
        partition=ALL,
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        resources=gpus_wanted(gpus),
    )
    return msgspec.structs.replace(own, **fields)


def sim_jobs(jobs: list[Job]) -> list[SimJob]:
    """The same jobs for gq, of two users."""
    return [
        job(f"j{row}", submit_s, duration_s, gpus, user=f"user{row % 2}", account=pool, partition=pool)
        for row, (submit_s, duration_s, gpus, pool) in enumerate(jobs)
    ]


def replayed(policy: str, jobs: list[SimJob], pools: Pools, start_delay_s: float = 0.0, resume_s: float = 0.0) -> Run:
    """Through the engine."""
    return engine_of(Engine, policy, jobs, pools, start_delay_s, resume_s).run()


def engine_of(
    kind: type[EngineT],
    policy: str,
    jobs: list[SimJob],
    pools: Pools,
    start_delay_s: float = 0.0,
    resume_s: float = 0.0,
) -> EngineT:
    site = site_of([Pool(pool=name, nodes=nodes, gpus_per_node=gpus) for name, (nodes, gpus) in pools.items()])
    site = msgspec.structs.replace(site, setup=setup_for(jobs))
    chosen = read_policies([policy], [])[0]
    return kind(site, chosen.policy, jobs, start_delay_s, chosen.knows, resume_s)


def random_case(seed: int, most_nodes: int = 4) -> tuple[list[Job], Pools]:
    """A few dozen jobs that come in the same seconds, and end in the same seconds, often."""
    chance = random.Random(seed)
    pools = {
        name: (chance.randint(1, most_nodes), chance.choice((2, 4))) for name in ("a", "b")[: chance.randint(1, 2)]
    }
    jobs: list[Job] = []
    for submit_s in sorted(chance.randrange(60) for _ in range(chance.randint(10, 40))):
        pool = chance.choice(list(pools))
        nodes, gpus = pools[pool]
        jobs.append((submit_s, chance.randint(1, 30), chance.randint(1, nodes * gpus), pool))
    return jobs, pools


def shared_traces() -> Path:
    """The folder of the shared traces; the test is skipped where there is none."""
    folder = os.environ.get("GQ_TEST_TRACES", "")
    if not folder:
        pytest.skip("GQ_TEST_TRACES names no folder of traces")
    return Path(folder)


def shared_case(name: str, variant: str) -> tuple[list[Job], Pools]:
    """For the oracle, which reads for itself."""
    folder = shared_traces()
    described = json.loads((folder / f"{name}.cluster.json").read_text())["variants"][variant]
    with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    column, first = described["pool_by"], described["pools"][0]["pool"]
    jobs = [
        (int(row["submit_s"]), int(row["duration_s"]), int(row["gpus"]), row[column] if column else first)
        for row in rows
    ]
    return jobs, {pool["pool"]: (pool["nodes"], pool["gpus_per_node"]) for pool in described["pools"]}
