"""Nodes that are gone for too long: their jobs run again elsewhere or fail, and what is left of them ends on return."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.effort import first
from tests.integration.jobs import (
    LONG_S,
    MakeCluster,
    await_file,
    await_state,
    config,
    facts,
    node_facts,
    submit,
    why,
)

RUNS = "echo $$ > pid-$GQ_NODENAME; while [ ! -e go ]; do sleep 0.05; done"


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    """Nodes that are silent for three seconds are lost."""
    return private_cluster(config=config(nodes=2, gpus=2, heartbeat_s=0.5, node_lost_s=3, grace_s=1))


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").exists()


def lose(cluster: PrivateCluster, node: str) -> None:
    """For good, while everything that runs is known to run."""
    wait_until(lambda: not cluster.ok("gqstat", "-h", "-t", "PD,CF"), LONG_S, "all are started")
    cluster.kill(f"gqnode-{node}")
    wait_until(lambda: node_facts(cluster, node)["state"] == "DOWN", LONG_S, f"{node} is lost")


def test_a_job_of_a_lost_node_runs_again_elsewhere_and_what_is_left_of_it_ends_when_the_node_is_back(
    cluster: PrivateCluster,
) -> None:
    first = submit(cluster, "--exclusive", wrap=RUNS)
    pid = int(await_file(cluster.workdir / "pid-n1"))
    lose(cluster, "n1")
    await_file(cluster.workdir / "pid-n2")
    assert facts(cluster, first)["restart_count"] == 1
    assert is_running(pid), "nobody can reach it"
    assert node_facts(cluster, "n1")["cpus_free"] == 0, "and so nobody else gets what it holds"

    cluster.up()
    wait_until(lambda: not is_running(pid), LONG_S, "the node ends what is no longer wanted")
    wait_until(lambda: node_facts(cluster, "n1")["cpus_free"] == 4, LONG_S, "and its resources return")
    assert facts(cluster, first)["state"] == "RUNNING"
    (cluster.workdir / "go").touch()
    assert await_state(cluster, first, "COMPLETED")["nodes"] == ["n2"]


@pytest.mark.parametrize("victim", first(1, ["n1", "n2"]))
def test_a_gang_that_loses_one_node_is_stopped_on_the_other_and_queued_again(
    cluster: PrivateCluster, victim: str
) -> None:
    job = submit(cluster, "-N2", "--gpus-per-node=2", wrap=f"gqrun sh -c '{RUNS}'")
    pids = {node: int(await_file(cluster.workdir / f"pid-{node}")) for node in ("n1", "n2")}
    other = "n2" if victim == "n1" else "n1"
    lose(cluster, victim)
    wait_until(lambda: not is_running(pids[other]), LONG_S, "a part of a gang is no gang")
    found = await_state(cluster, job, "PENDING")
    assert found["restart_count"] == 1
    assert node_facts(cluster, other)["cpus_free"] == 4
    assert victim in why(cluster, job)["why"]

    (cluster.workdir / "go").touch()
    cluster.up()
    assert await_state(cluster, job, "COMPLETED")["restart_count"] == 1
    assert not is_running(pids[victim])


@pytest.mark.slow
def test_a_job_that_must_not_run_twice_fails_with_its_node(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--no-requeue", "-w", "n2", wrap=RUNS)
    await_file(cluster.workdir / "pid-n2")
    lose(cluster, "n2")
    ended = await_state(cluster, job, "NODE_FAIL")
    assert (ended["failure_class"], ended["exit_code"], ended["restart_count"]) == ("node", None, 0)
    assert "n2" in why(cluster, job)["why"]
    assert cluster.run("gqwait", job).returncode == 1
    cluster.up()
    wait_until(lambda: node_facts(cluster, "n2")["cpus_free"] == 4, LONG_S, "the node is of use again")


@pytest.mark.slow
def test_a_job_that_can_do_without_goes_on_when_it_loses_a_node_that_has_not_its_script(
    cluster: PrivateCluster,
) -> None:
    job = submit(cluster, "-N2", "--no-kill", wrap=RUNS)
    await_file(cluster.workdir / "pid-n1")
    lose(cluster, "n2")
    assert facts(cluster, job)["state"] == "RUNNING"
    (cluster.workdir / "go").touch()
    assert await_state(cluster, job, "COMPLETED")["restart_count"] == 0
    cluster.up()
    wait_until(lambda: node_facts(cluster, "n2")["cpus_free"] == 4, LONG_S, "the node is of use again")


@pytest.mark.slow
def test_a_node_that_is_set_down_gives_its_jobs_to_others_and_a_drained_one_keeps_them(cluster: PrivateCluster) -> None:
    kept = submit(cluster, "-w", "n1", wrap=RUNS)
    moved = submit(cluster, "-w", "n2", wrap="sleep 600")
    for job in (kept, moved):
        await_state(cluster, job, "RUNNING")
    cluster.ok("gqctl", "node", "drain", "n1", "--reason", "new fan")
    cluster.ok("gqctl", "node", "down", "n2", "--reason", "on fire")
    await_state(cluster, moved, "PENDING")
    assert facts(cluster, kept)["state"] == "RUNNING"
    waiting = submit(cluster, wrap="echo $GQ_NODELIST")
    wait_until(lambda: "on fire" in why(cluster, waiting)["why"], LONG_S, "who waits is told the reason")

    (cluster.workdir / "go").touch()
    await_state(cluster, kept, "COMPLETED")
    assert facts(cluster, waiting)["state"] == "PENDING"
    cluster.ok("gqctl", "node", "resume", "n1")
    await_state(cluster, waiting, "COMPLETED")
    assert cluster.ok("gqlog", waiting) == "n1\n"
