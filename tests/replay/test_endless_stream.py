"""A job over two nodes under an endless stream of jobs with one GPU, in the simulator: it starts when it was promised.

``GQ_CLUSTERS=100`` plays so many seeds instead of some; a failure names its seed.
"""

from __future__ import annotations

import os
import random

import pytest

from gqd.sched.planner import plan_whole
from gqd.sim.engine import EPOCH, Engine
from gqd.sim.workload import SimJob
from tests.effort import first
from tests.replay.traces import ALL, engine_of, job

SEEDS = min(100, int(os.environ.get("GQ_CLUSTERS", "4")))
NODES = 2
WIDE = "wide"
WIDE_COMES_S, STREAM_ENDS_S = 900, 4000
GPU_EVERY_S = 480
"""So often one of the stream comes for each GPU; more is asked for than there is."""


class Observed(Engine):
    """Notes what the wide job is promised first, as `gqstat --start` would tell it."""

    first_promise_s: float | None = None

    def _plan(self, now: float) -> None:
        super()._plan(now)
        wide = next((one for one in self.controller.cluster.jobs.values() if one.spec.name == WIDE), None)
        if self.first_promise_s is None and wide is not None and wide.is_waiting:
            protected = plan_whole(self.controller.snapshot(now), asked=()).protected
            told = (one.starts_at - EPOCH for one in protected if one.job_id == wide.job_id and one.is_promise)
            self.first_promise_s = next(told, None)


def stream(seed: int, gpus: int) -> list[SimJob]:
    chance = random.Random(seed)
    wide = job(WIDE, WIDE_COMES_S, 600, gpus, limit_s=600, user="grace")
    jobs, submit_s = [wide], 0.0
    while submit_s < STREAM_ENDS_S:
        limit_s = chance.randint(100, 1200)
        runs_s = limit_s * chance.choice((1.0, 1.0, 0.7, 0.2))
        jobs.append(job(f"one{len(jobs)}", submit_s, runs_s, 1, limit_s=limit_s))
        submit_s += chance.expovariate(gpus / GPU_EVERY_S)
    return sorted(jobs, key=lambda one: one.submit_s)


@pytest.mark.parametrize("policy", first(1, ["default", "easy-user", "conservative"]))
def test_a_wide_job_under_an_endless_stream_starts_no_later_than_first_promised(policy: str) -> None:
    """The plan that promises to all takes its time, and so is tried on fewer GPUs of each node."""
    seeds, gpus = (max(1, SEEDS // 10), 4) if policy == "conservative" else (SEEDS, 8)
    overtaken = 0
    for seed in range(seeds):
        jobs = stream(seed, NODES * gpus)
        engine = engine_of(Observed, policy, jobs, {ALL: (NODES, gpus)})
        run = engine.run()
        started_s = dict(zip((one.name for one in jobs), run.starts_s, strict=True))
        wide_s, promised_s = started_s.pop(WIDE), engine.first_promise_s
        assert promised_s is not None and wide_s <= promised_s, f"seed {seed}: {wide_s}, promised for {promised_s}"
        assert wide_s < STREAM_ENDS_S, f"seed {seed}: the stream went on and on, and it starved until {wide_s}"
        late = (one.name for one in jobs if one.submit_s > WIDE_COMES_S)
        overtaken += sum(started_s[name] < wide_s for name in late if name != WIDE)
    assert overtaken > seeds, "the holes before it are filled"
