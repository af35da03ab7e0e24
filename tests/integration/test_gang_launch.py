"""A gang whose launch fails on one node: nothing of the user's ran anywhere, and it is soon back in the queue."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import (
    LONG_S,
    Facts,
    MakeCluster,
    await_state,
    facts,
    instants,
    node_facts,
    submit,
    why,
)

BACK_IN_QUEUE_S = 5.0
SILENCE_S = 2.0
BOTH_NODES = ("-N2", "--gpus-per-node=4")
SCRIPT = """#!/bin/sh
echo "$GQ_JOB_ID" >> script-ran
gqrun sh -c 'echo "$GQ_NODEID" >> task-ran'
"""


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(nodes=2, fake_gpus=4, cpus=8)


def await_back_in_queue(cluster: PrivateCluster, job: str) -> Facts:
    """Pending again after a failed launch; what was told of it."""
    wait_until(lambda: instants(cluster, "JobRequeued", job), LONG_S, f"job {job} is pending again")
    found = facts(cluster, job)
    assert (found["state"], found["reason"]) == ("PENDING", "LaunchFailed")
    return found


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def check_nothing_ran(cluster: PrivateCluster) -> None:
    assert lines(cluster.workdir / "script-ran") == lines(cluster.workdir / "task-ran") == []


def check_ran_once_on_both(cluster: PrivateCluster, job: str) -> None:
    assert lines(cluster.workdir / "script-ran") == [job]
    assert sorted(lines(cluster.workdir / "task-ran")) == ["0", "1"]
    assert facts(cluster, job)["restart_count"] == 0, "a failed launch is no run"


@contextmanager
def stopped(cluster: PrivateCluster, daemon: str) -> Iterator[None]:
    """A daemon that is there and says nothing."""
    pid = cluster.pid(daemon)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_node_that_refuses_sends_the_whole_gang_back_to_the_queue_at_once(cluster: PrivateCluster) -> None:
    obstacle = cluster.directory / "nodes" / "n2" / "1.1"
    obstacle.write_text("a file where the attempt's directory belongs")
    job = submit(cluster, *BOTH_NODES, script=SCRIPT)

    assert "node n2" in await_back_in_queue(cluster, job)["why"]
    [refused_at], [pending_at] = (instants(cluster, kind, job) for kind in ("LaunchFailed", "JobRequeued"))
    assert pending_at - refused_at < BACK_IN_QUEUE_S
    check_nothing_ran(cluster)
    story = why(cluster, job)
    assert story["reason"] == "LaunchFailed"
    assert "node n2" in story["why"] and "gqctl node resume" in story["hint"]
    assert node_facts(cluster, "n1")["cpus_free"] == 8, "the other node is free again"

    obstacle.unlink(missing_ok=True)
    cluster.ok("gqctl", "node", "resume", "n2")
    await_state(cluster, job, "COMPLETED")
    check_ran_once_on_both(cluster, job)


@pytest.mark.slow
def test_a_refusing_node_is_left_out_and_the_others_go_on_serving(cluster: PrivateCluster) -> None:
    (cluster.directory / "nodes" / "n1" / "1.1").write_text("a file where the attempt's directory belongs")
    job = submit(cluster, wrap="echo $GQ_NODELIST")

    await_state(cluster, job, "COMPLETED")
    assert cluster.ok("gqlog", job) == "n2\n", "it did not wait for the back-off of n1"


def test_a_node_that_never_answers_withholds_what_it_has_and_the_gang_waits(cluster: PrivateCluster) -> None:
    with stopped(cluster, "gqnode-n2"):
        job = submit(cluster, *BOTH_NODES, script=SCRIPT)
        assert "node n2" in await_back_in_queue(cluster, job)["why"]

        [asked_at], [pending_at] = (instants(cluster, kind, job) for kind in ("JobAllocated", "JobRequeued"))
        assert SILENCE_S <= pending_at - asked_at < SILENCE_S + BACK_IN_QUEUE_S
        check_nothing_ran(cluster)
        assert node_facts(cluster, "n1")["cpus_free"] == 8
        silent = node_facts(cluster, "n2")
        assert silent["cpus_free"] < 8
        assert {gpu["job_id"] for gpu in silent["gpus"]} == {int(job)}, "its GPUs are withheld"
        alone = submit(cluster, "--gpus=4", wrap="echo $GQ_NODELIST")
        await_state(cluster, alone, "COMPLETED")
        assert cluster.ok("gqlog", alone) == "n1\n"
        assert facts(cluster, job)["state"] == "PENDING"

    wait_until(lambda: node_facts(cluster, "n2")["cpus_free"] == 8, LONG_S, "n2 has emptied its part")
    check_nothing_ran(cluster)
    cluster.ok("gqctl", "node", "resume", "n2")
    await_state(cluster, job, "COMPLETED")
    check_ran_once_on_both(cluster, job)


@pytest.mark.slow
def test_a_batch_node_that_never_answers_starts_nothing_when_it_wakes(cluster: PrivateCluster) -> None:
    with stopped(cluster, "gqnode-n1"):
        job = submit(cluster, *BOTH_NODES, script=SCRIPT)
        assert "node n1" in await_back_in_queue(cluster, job)["why"]
        cluster.ok("gqdel", job)
        await_state(cluster, job, "CANCELLED")

    wait_until(lambda: node_facts(cluster, "n1")["cpus_free"] == 8, LONG_S, "n1 has emptied its part")
    check_nothing_ran(cluster)


@pytest.mark.slow
def test_a_single_node_that_never_answers_starts_nothing_when_it_wakes_and_the_job_ran_elsewhere(
    cluster: PrivateCluster,
) -> None:
    with stopped(cluster, "gqnode-n1"):
        job = submit(cluster, "--gpus=4", script=SCRIPT)
        ended = await_state(cluster, job, "COMPLETED")
        assert ended["nodes"] == ["n2"]

    wait_until(lambda: node_facts(cluster, "n1")["cpus_free"] == 8, LONG_S, "n1 has emptied its part")
    assert lines(cluster.workdir / "script-ran") == [job], "it ran once"
