"""gqsim under the comparison rules against the brute-force oracle, second by second.

Where ``GQ_CLUSTERS`` is set, under more policies and on the shared cluster too; `make bench` prints those at any time.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from tests.effort import first
from tests.replay import oracle
from tests.replay.traces import random_case, replayed, shared_case, sim_jobs

SEEDS = (range(4), range(4, 20))
TABLE = {
    ("fifo", "real_vc"): (10_883, 21_768),
    ("sjf", "real_vc"): (622, 1_030),
    ("fifo", "shared22"): (25_930, 66_232),
    ("sjf", "shared22"): (4_348, 18_862),
}
"""(mean wait, p95 wait of jobs of more than 8 GPUs) of the reference on helios_venus2vc_sep."""
EASY = {"real_vc": (828, 957), "shared22": (5_017, 12_061)}
IS_LONG = bool(os.environ.get("GQ_CLUSTERS"))
VARIANTS = ["real_vc", "shared22"] if IS_LONG else ["real_vc"]


@pytest.mark.parametrize("seeds", first(1, SEEDS), ids=str)
@pytest.mark.parametrize("policy", ["fifo", "sjf", "fifo-skip", "easy"])
def test_every_job_of_a_small_case_starts_at_the_second_of_the_oracle(policy: str, seeds: range) -> None:
    for seed in seeds:
        jobs, pools = random_case(seed)

        run = replayed(policy, sim_jobs(jobs), pools)

        assert run.starts_s == oracle.replay(policy, jobs, pools), f"seed {seed}"
        assert run.refused == {}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "sjf", "fifo-skip"] if IS_LONG else ["fifo", "sjf"])
def test_every_job_of_helios_starts_at_the_second_of_the_oracle_and_waits_as_the_table_says(policy: str) -> None:
    jobs, pools = shared_case("helios_venus2vc_sep", "real_vc")

    run = replayed(policy, sim_jobs(jobs), pools)

    assert run.starts_s == oracle.replay(policy, jobs, pools)
    assert policy == "fifo-skip" or waits_of(jobs, run.starts_s) == TABLE[policy, "real_vc"]


@pytest.mark.slow
@pytest.mark.skipif(not IS_LONG, reason="GQ_CLUSTERS is not set")
@pytest.mark.parametrize("policy", ["fifo", "sjf"])
def test_fifo_and_sjf_on_helios_shared_wait_as_the_table_says(policy: str) -> None:
    assert waits(policy, "shared22") == TABLE[policy, "shared22"]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_easy_on_helios_waits_as_the_table_says_within_5_percent(variant: str) -> None:
    assert waits("easy", variant) == pytest.approx(EASY[variant], rel=0.05)


def waits(policy: str, variant: str) -> tuple[int, int]:
    jobs, pools = shared_case("helios_venus2vc_sep", variant)
    return waits_of(jobs, replayed(policy, sim_jobs(jobs), pools).starts_s)


def waits_of(jobs: Sequence[tuple[float, float, int, str]], starts_s: Sequence[float]) -> tuple[int, int]:
    waited = [start_s - submit_s for start_s, (submit_s, _, _, _) in zip(starts_s, jobs, strict=True)]
    wide = [wait for wait, (_, _, gpus, _) in zip(waited, jobs, strict=True) if gpus > 8]
    return round(statistics.fmean(waited)), round(float(np.percentile(wide, 95)))
