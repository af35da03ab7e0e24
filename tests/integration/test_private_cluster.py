"""One round on real daemons: submitted, run, crashed, found again; and nothing is left."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import config

MakeCluster = Callable[..., PrivateCluster]


def test_a_job_runs_on_a_shared_cluster_with_exactly_its_gpus(shared_cluster: PrivateCluster) -> None:
    command = 'echo "node $GQ_NODEID has $CUDA_VISIBLE_DEVICES"'
    job = shared_cluster.ok("gqsub", "--parsable", "--gpus=2", "--wrap", command).strip()

    assert shared_cluster.run("gqwait", job).returncode == 0
    assert shared_cluster.ok("gqlog", job) == "node 0 has 0,1\n"


def test_a_gang_starts_on_both_nodes_with_its_own_ranks(shared_cluster: PrivateCluster) -> None:
    command = "gqrun -l sh -c 'echo $GQ_NODEID of $GQ_NNODES: $CUDA_VISIBLE_DEVICES'"
    job = shared_cluster.ok("gqsub", "--parsable", "-N2", "--gpus-per-node=4", "--wrap", command).strip()

    assert shared_cluster.run("gqwait", job).returncode == 0
    assert sorted(shared_cluster.ok("gqlog", job).splitlines()) == ["0: 0 of 2: 0,1,2,3", "1: 1 of 2: 0,1,2,3"]


@pytest.mark.slow
def test_daemons_that_are_killed_lose_nothing_and_the_job_goes_on(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, fake_gpus=1, cpus=2)
    script = "#!/bin/sh\necho began\nwhile [ ! -e go ]; do sleep 0.1; done\nexit 7\n"
    job = cluster.ok("gqsub", "--parsable", "--gpus=1", stdin=script).strip()
    wait_until(lambda: "began" in cluster.run("gqlog", job).stdout, what="the job runs")

    cluster.kill("gqd")
    cluster.kill("gqnode-n1")
    (cluster.workdir / "go").touch()
    cluster.up()

    assert cluster.run("gqwait", job).returncode == 7
    assert cluster.ok("gqlog", job) == "began\n", "it ran once"
    [story] = json.loads(cluster.ok("gqacct", "-X", "-j", job, "--json"))
    assert (story["state"], story["exit_code"], story["restart_count"]) == ("FAILED", 7, 0)


@pytest.mark.slow
def test_what_the_script_of_a_pretended_gpu_says_is_shown_with_its_node(private_cluster: MakeCluster) -> None:
    lines = ({"at_s": 0, "utilisation_percent": 97, "memory_used_mib": 4000}, {"at_s": 0.5, "xids": [79]})
    with tempfile.NamedTemporaryFile("w", dir="/tmp") as script:
        script.write("\n".join(map(json.dumps, lines)))
        script.flush()
        Path(script.name).chmod(0o644)
        settings = config(gpus=2, heartbeat_s=0.2).replace("'fake'}", f"'fake', script = '{script.name}'}}", 1)
        cluster = private_cluster(config=settings)

        def gpus() -> list[dict[str, Any]]:
            [node] = json.loads(cluster.ok("gqinfo", "-N", "--json"))
            return list(node["gpus"])

        wait_until(lambda: gpus()[0]["xids"], what="the Xid is shown")
    scripted, idle = gpus()
    assert [error["xid"] for error in scripted["xids"]] == [79]
    assert (idle["utilisation_percent"], idle["xids"], idle["does_answer"]) == (0, [], True)


def test_a_job_whose_working_directory_is_missing_is_held_and_runs_once_it_is_there(
    shared_cluster: PrivateCluster,
) -> None:
    cluster = shared_cluster
    directory = cluster.workdir / "later"
    job = cluster.ok("gqsub", "--parsable", f"--chdir={directory}", "--wrap", "pwd > here").strip()

    def word() -> str:
        return cluster.ok("gqstat", "-h", "-j", job, "-o", "%t %r").strip()

    wait_until(lambda: word() == "PD BadWorkdir" and "it is held" in cluster.ok("gqwhy", job), what="no node is left")
    why = " ".join(cluster.ok("gqwhy", job).split())
    assert "cannot change to the directory" in why and f"gqctl release {job}" in why

    directory.mkdir()
    cluster.ok("gqctl", "release", job)
    assert cluster.run("gqwait", job).returncode == 0
    assert (directory / "here").read_text().strip() == str(directory)
