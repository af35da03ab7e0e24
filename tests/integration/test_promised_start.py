"""A job over all GPUs under an endless stream of jobs with one GPU, with daemons: it starts when first promised."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_state, config, submit

LIMIT_S = 30
STREAM = 400
"""Many times what could run while the wide job waits."""


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(config=config(nodes=2, cpus=16, gpus=8, head='[scheduler]\nprotect_wide_after = "1s"'))


def promise(cluster: PrivateCluster, job: str) -> list[str]:
    """What gqstat --start says of it, if that is more than an estimate."""
    told: list[dict[str, Any]] = json.loads(cluster.ok("gqstat", "--start", "--json", "-j", job))
    return [one["expected_start_p90_at"] for one in told if one["is_start_promised"]]


def seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()


@pytest.mark.slow
def test_sixteen_gpus_under_an_endless_stream_of_single_ones_are_had_when_first_promised(
    cluster: PrivateCluster,
) -> None:
    sleeps = f"sleep $((4 + (SLURM_ARRAY_TASK_ID * 7) % {LIMIT_S // 2}))"
    stream = submit(cluster, "--gpus=1", "-t", f"{LIMIT_S}s", "-a", f"1-{STREAM}", wrap=sleeps)
    running = ("gqstat", "-h", "-r", "-t", "R", "-j", stream, "-o", "%i")
    wait_until(lambda: len(cluster.ok(*running).splitlines()) == 16, LONG_S, "the stream holds all GPUs")
    wide = submit(cluster, "-N2", "--gpus-per-node=8", "-t", f"{LIMIT_S}s", wrap="true")
    told: list[str] = []
    wait_until(lambda: told or told.extend(promise(cluster, wide)), LONG_S, "the wide job is promised a start")

    ended = await_state(cluster, wide, "COMPLETED", within_s=3 * LIMIT_S)

    assert seconds(ended["start_at"]) <= seconds(told[0])
    left = cluster.ok("gqstat", "-h", "-r", "-t", "PD", "-j", stream, "-o", "%i").splitlines()
    assert len(left) > 16, "the stream goes on and on"
    cluster.ok("gqdel", stream)
