"""Jobs whose nodes come and go, on real daemons: no task fails, and nothing is used by two jobs at a time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_file, await_state, facts, submit

AGENT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
node, began = os.environ["GQ_NODENAME"], time.time()
log = open("uses.txt", "a", buffering=1)
while not os.path.exists((*sys.argv, "end")[1]):
    for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        log.write(f"{time.time()} {os.environ['GQ_JOB_ID']} {node}:{gpu}\\n")
    time.sleep(0.1)
"""
GROWS_S = 90.0
SHRINKS_S = 90.0


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    made = private_cluster(nodes=3, fake_gpus=2, cpus=2)
    (made.workdir / "agent.py").write_text(AGENT)
    return made


def nodes(cluster: PrivateCluster, job: str) -> list[str]:
    return [str(one) for one in facts(cluster, job)["nodes"]]


def elastic(cluster: PrivateCluster, *options: str) -> str:
    """One agent on each of its nodes."""
    script = f'#!/bin/bash\necho "$GQ_ELASTIC_FILE" > file\ngqrun --elastic {sys.executable} agent.py\necho $? > code\n'
    job = submit(cluster, "-N", "1-3", "--elastic", "--gpus-per-node=2", "-t", "1h", *options, script=script)
    await_state(cluster, job, "RUNNING")
    return job


def told(cluster: PrivateCluster) -> dict[str, object]:
    return dict(json.loads(Path(await_file(cluster.workdir / "file").strip()).read_text()))


def agents(cluster: PrivateCluster) -> set[str]:
    """Nodes on which something runs now."""
    path = cluster.workdir / "uses.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split()[2].partition(":")[0] for line in lines[-12:]}


@pytest.mark.slow
def test_a_job_takes_idle_nodes_gives_one_to_a_rival_and_takes_it_again(cluster: PrivateCluster) -> None:
    job = elastic(cluster)
    wait_until(lambda: len(nodes(cluster, job)) == 3, GROWS_S, "it has all three")
    wait_until(lambda: len(told(cluster)["target_nodes"]) == 3, GROWS_S, "its file says so")  # type: ignore[arg-type]
    wait_until(lambda: len(agents(cluster)) == 3, GROWS_S, "its command runs on each")

    rival = submit(cluster, "--gpus=2", "-t", "10", wrap=f"{sys.executable} agent.py off")

    wait_until(lambda: told(cluster).get("deadline") is not None, LONG_S, "it is told")
    assert len(told(cluster)["target_nodes"]) == 2  # type: ignore[arg-type]
    await_state(cluster, rival, "RUNNING", within_s=SHRINKS_S)
    assert facts(cluster, job)["state"] == "RUNNING" and len(nodes(cluster, job)) == 2
    (cluster.workdir / "off").touch()
    assert cluster.run("gqwait", rival).returncode == 0
    wait_until(lambda: len(nodes(cluster, job)) == 3, GROWS_S, "it has all three again")
    wait_until(lambda: len(agents(cluster)) == 3, GROWS_S, "its command runs on each again")

    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0, cluster.ok("gqlog", job)
    assert (cluster.workdir / "code").read_text() == "0\n"
    assert used_by_two(cluster.workdir / "uses.txt") == []


def used_by_two(path: Path) -> list[str]:
    """GPUs on which two jobs took turns more often than one came and went."""
    holders: dict[str, list[str]] = {}
    for line in sorted(path.read_text().splitlines(), key=lambda one: float(one.split()[0])):
        _, job, gpu = line.split()
        of = holders.setdefault(gpu, [])
        if not of or of[-1] != job:
            of.append(job)
    return [gpu for gpu, of in holders.items() if len(of) > 3]


@pytest.mark.slow
def test_all_daemons_may_be_killed_in_the_middle_of_it(cluster: PrivateCluster) -> None:
    job = elastic(cluster)
    wait_until(lambda: len(nodes(cluster, job)) == 3, GROWS_S, "it has all three")
    wait_until(lambda: len(agents(cluster)) == 3, GROWS_S, "its command runs on each")
    rival = submit(cluster, "--gpus=2", "-t", "10", wrap="true")
    wait_until(lambda: told(cluster).get("deadline") is not None, LONG_S, "it is told")
    for daemon in ("gqnode-n1", "gqnode-n2", "gqnode-n3", "gqd"):
        cluster.kill(daemon)
    cluster.up()
    assert cluster.run("gqwait", rival).returncode == 0
    assert facts(cluster, job)["state"] == "RUNNING"
    wait_until(lambda: len(nodes(cluster, job)) == 3, GROWS_S, "it has all three again")
    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0, cluster.ok("gqlog", job)


def test_gqrun_follows_the_nodes_only_of_a_job_where_they_come_and_go(cluster: PrivateCluster) -> None:
    outside = cluster.run("gqrun", "--elastic", "true")
    assert outside.returncode == 2 and "follows the nodes of the job in which it is called" in outside.stderr

    script = "gqrun --elastic true 2> rigid; gqrun --elastic -n2 true 2>> rigid; echo done > done"
    submit(cluster, "-t", "1", wrap=script)

    await_file(cluster.workdir / "done")
    said = (cluster.workdir / "rigid").read_text()
    assert "the nodes of this job do not come and go" in said and "`-n` and --elastic exclude each other" in said


def test_a_node_that_came_and_dies_is_only_one_fewer(cluster: PrivateCluster) -> None:
    job = elastic(cluster)
    wait_until(lambda: len(nodes(cluster, job)) == 3, GROWS_S, "it has all three")
    wait_until(lambda: len(agents(cluster)) == 3, GROWS_S, "its command runs on each")
    cluster.ok("gqctl", "node", "down", nodes(cluster, job)[2], "--reason", "smoke")
    wait_until(lambda: len(nodes(cluster, job)) == 2, GROWS_S, "it goes on with two")
    assert facts(cluster, job)["state"] == "RUNNING"
    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0, cluster.ok("gqlog", job)
    assert (cluster.workdir / "code").read_text() == "0\n"
