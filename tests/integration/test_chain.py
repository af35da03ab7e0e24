"""Pipelines on real daemons: a preparation, a training and an evaluation that want different things, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterYard, PrivateCluster, wait_until
from tests.integration.jobs import MakeCluster, await_state, config, facts, instants, state, submit, why

pytestmark = pytest.mark.xdist_group("chain")  # so that the cluster is set up once


def made(make: MakeCluster) -> PrivateCluster:
    return make(config=config(cpus=4, gpus=2))


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return made(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def script(cluster: PrivateCluster, name: str, *lines: str) -> Path:
    path = cluster.workdir / f"{name}.sh"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    return path


def pipeline(cluster: PrivateCluster, gate: str = "test -s data") -> list[str]:
    """Three stages; each notes when it ran and what it had."""
    return [
        str(script(cluster, "prep", "#GQ -c 4", "sleep 0.3; echo ready >data; echo prep cpus=$GQ_CPUS_ON_NODE >>log")),
        str(script(cluster, "train", f'#GQ --gpus=2 --if "{gate}"', "echo train gpus=$CUDA_VISIBLE_DEVICES >>log")),
        str(script(cluster, "eval", "#GQ --gpus=1 -t 5", "echo eval gpus=$CUDA_VISIBLE_DEVICES >>log")),
    ]


def test_three_scripts_run_in_order_from_one_command_each_with_its_own_resources(cluster: PrivateCluster) -> None:
    done = cluster.run("gqsub", "--wait", "--parsable", "--chain", *pipeline(cluster))

    assert (done.returncode, done.stderr) == (0, "")
    jobs = done.stdout.split()
    assert [facts(cluster, job)["name"] for job in jobs] == ["prep.sh", "train.sh", "eval.sh"]
    log = (cluster.workdir / "log").read_text().splitlines()
    assert log == ["prep cpus=4", "train gpus=0,1", "eval gpus=0"]
    starts = [instants(cluster, "JobStarted", job)[0] for job in jobs]
    assert starts == sorted(starts)


def test_a_gate_that_fails_ends_the_rest_and_what_it_said_can_be_read(cluster: PrivateCluster) -> None:
    prep, train, evaluation = cluster.ok(
        "gqsub", "--parsable", "--chain", *pipeline(cluster, gate="echo no model here; exit 3")
    ).split()

    await_state(cluster, evaluation, "CANCELLED")

    assert state(cluster, prep) == "COMPLETED"
    assert state(cluster, train) == "CANCELLED"
    gate = str(int(train) - 1)
    assert (facts(cluster, gate)["name"], facts(cluster, gate)["exit_code"]) == ("if:train.sh", 3)
    assert "no model here" in cluster.ok("gqlog", gate)
    story = why(cluster, evaluation)
    assert f"job {train} had to succeed and failed (CANCELLED)" in story["why"]
    assert facts(cluster, evaluation)["reason"] == "DependencyNeverSatisfied"
    assert (cluster.workdir / "log").read_text() == "prep cpus=4\n"


def test_a_chain_is_queued_whole_or_not_at_all(cluster: PrivateCluster) -> None:
    prep, train, _ = pipeline(cluster)
    big = str(script(cluster, "big", "#GQ --gpus=99", "true"))

    before = json.loads(cluster.ok("gqacct", "--json"))

    refused = cluster.run("gqsub", "--chain", prep, train, big)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "stage 4 of 4 (big.sh): the job can never run" in refused.stderr
    assert json.loads(cluster.ok("gqacct", "--json")) == before


@pytest.mark.slow
def test_a_job_can_wait_for_one_that_only_the_database_remembers(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=config(head="[limits]\nended_job_keep_s = 1"))
    good, bad = submit(cluster, wrap="true"), submit(cluster, wrap="false")
    for job in (good, bad):
        await_state(cluster, job, "COMPLETED", "FAILED")
    wait_until(lambda: cluster.run("gqstat", "-h", "-t", "all").stdout == "", what="both have left memory")

    after_good = submit(cluster, "-d", f"afterok:{good}", wrap="true")
    after_bad = submit(cluster, "-d", f"afterok:{bad}", wrap="true")
    unknown = cluster.run("gqsub", "-d", "afterok:999", "--wrap", "true")

    await_state(cluster, after_good, "COMPLETED")
    story = why(cluster, after_bad)
    assert (story["reason"], f"job {bad} had to succeed" in story["why"]) == ("DependencyNeverSatisfied", True)
    assert unknown.returncode == 1 and "job 999" in unknown.stderr and "hint:" in unknown.stderr
    cluster.ok("gqctl", "update", after_bad, f"dependency=afterany:{bad}")
    await_state(cluster, after_bad, "COMPLETED")


@pytest.mark.slow
def test_dependencies_and_deadlines_survive_a_controller_that_is_killed(private_cluster: MakeCluster) -> None:
    cluster = made(private_cluster)
    parent = submit(cluster, wrap="while ! test -e go; do sleep 0.1; done")
    await_state(cluster, parent, "RUNNING")
    child = submit(cluster, "-d", f"afterok:{parent}", wrap="true")
    late = submit(cluster, "--hold", "--deadline=now+5", wrap="true")
    cluster.kill("gqd")
    cluster.up()
    assert json.loads(cluster.ok("gqstat", "-j", child, "--json"))[0]["dependency"] == f"afterok:{parent}"

    (cluster.workdir / "go").touch()

    await_state(cluster, child, "COMPLETED")
    assert facts(cluster, late)["state"] in ("PENDING", "DEADLINE")
    await_state(cluster, late, "DEADLINE")
    assert "it never started" in why(cluster, late)["why"]


def test_a_running_job_ends_at_its_deadline(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--deadline=now+3", wrap="sleep 60")
    found = await_state(cluster, job, "DEADLINE")
    assert found["reason"] == "DeadLine"


def test_tasks_of_two_arrays_follow_each_other(cluster: PrivateCluster) -> None:
    first = submit(cluster, "--array=1-3", wrap="test $GQ_ARRAY_TASK_ID != 2")
    second = submit(
        cluster,
        "--array=1-3",
        "-d",
        f"aftercorr:{first}",
        "--kill-on-invalid-dep=yes",
        wrap="echo $GQ_ARRAY_TASK_ID >>ran",
    )
    wait_until(lambda: cluster.run("gqstat", "-h").stdout == "", 60, "all is over")
    assert sorted((cluster.workdir / "ran").read_text().split()) == ["1", "3"]
    states = {
        job["array_task_id"]: job["state"] for job in json.loads(cluster.ok("gqacct", "-X", "--json", "-j", second))
    }
    assert "CANCELLED" in states.values()
