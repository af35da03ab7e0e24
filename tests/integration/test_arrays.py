"""Arrays on real daemons: what each task finds, where it writes, and one task or a range steered by J_T."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import ClusterYard, PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, config, submit, why

DUMP = "env | grep _ARRAY_ | sort; echo job $GQ_JOB_ID"


pytestmark = pytest.mark.xdist_group("arrays")  # so that the cluster is set up once


def made(make: MakeCluster) -> PrivateCluster:
    return make(nodes=2, fake_gpus=1, cpus=8)


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return made(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def tasks(cluster: PrivateCluster, array: str) -> list[dict[str, Any]]:
    """All of the array, as gqacct tells it."""
    return list(json.loads(cluster.ok("gqacct", "-X", "--json", "-j", array)))


def states(cluster: PrivateCluster, array: str) -> dict[int, str]:
    """Of the tasks that have left the record."""
    left = (one for one in tasks(cluster, array) if one["array_task_id"] is not None)
    return {one["array_task_id"]: one["state"] for one in left}


def written(cluster: PrivateCluster, array: str, task: int) -> str:
    return (cluster.workdir / f"gq-{array}_{task}.out").read_text()


def test_each_task_finds_which_it_is_and_has_a_file_of_its_own(cluster: PrivateCluster) -> None:
    array = submit(cluster, "--array=2-8:3", wrap=DUMP)
    assert cluster.run("gqwait", array).returncode == 0
    jobs = {one["array_task_id"]: one["job_id"] for one in tasks(cluster, array)}
    assert set(jobs) == {2, 5, 8}
    for task, job_id in jobs.items():
        told = {"JOB_ID": array, "TASK_ID": task, "TASK_MIN": 2, "TASK_MAX": 8, "TASK_STEP": 3, "TASK_COUNT": 3}
        lines = [f"{prefix}_ARRAY_{name}={value}" for prefix in ("GQ", "SLURM") for name, value in told.items()]
        assert written(cluster, array, task).splitlines() == [*sorted(lines), f"job {job_id}"]
        assert cluster.ok("gqlog", f"{array}_{task}").endswith(f"job {job_id}\n")


def test_a_pattern_of_a_file_name_knows_array_and_task(cluster: PrivateCluster) -> None:
    array = submit(cluster, "--array=1-2", "-o", "out-%A-%3a-%j.txt", wrap="echo $SLURM_ARRAY_TASK_ID")
    assert cluster.run("gqwait", array).returncode == 0
    for one in tasks(cluster, array):
        path = cluster.workdir / f"out-{array}-{one['array_task_id']:03}-{one['job_id']}.txt"
        assert path.read_text() == f"{one['array_task_id']}\n"


def test_a_range_is_cancelled_and_the_others_go_on(cluster: PrivateCluster) -> None:
    array = submit(cluster, "--array=1-9%2", wrap="while [ ! -e go ]; do sleep 0.05; done")
    wait_until(lambda: Counter(states(cluster, array).values())["RUNNING"] == 2, LONG_S, "two tasks run")
    assert f"{array}_[3-9%2]" in cluster.ok("gqstat")
    cluster.ok("gqdel", f"{array}_[3-6]")
    assert f"{array}_[7-9%2]" in cluster.ok("gqstat")
    (cluster.workdir / "go").touch()
    assert cluster.run("gqwait", array).returncode != 0
    assert states(cluster, array) == dict.fromkeys((1, 2, 7, 8, 9), "COMPLETED")
    [record] = [one for one in tasks(cluster, array) if one["array_task_id"] is None]
    assert (record["state"], record["job_id"]) == ("CANCELLED", int(array))


def test_one_task_is_requeued_and_runs_again_as_itself(cluster: PrivateCluster) -> None:
    script = "echo start $SLURM_ARRAY_TASK_ID $GQ_RESTART_COUNT; while [ ! -e go ]; do sleep 0.05; done"
    array = submit(cluster, "--array=1-3", "--requeue", wrap=script)
    wait_until(lambda: Counter(states(cluster, array).values())["RUNNING"] == 3, LONG_S, "all run")
    wait_until(lambda: written(cluster, array, 2), LONG_S, "it has begun")
    before = {one["array_task_id"]: one["job_id"] for one in tasks(cluster, array)}
    cluster.ok("gqctl", "requeue", f"{array}_2")
    wait_until(lambda: "start 2 1" in written(cluster, array, 2), LONG_S, "it runs again")
    (cluster.workdir / "go").touch()
    assert cluster.run("gqwait", array).returncode == 0
    assert {one["array_task_id"]: one["job_id"] for one in tasks(cluster, array)} == before
    assert {one["array_task_id"]: one["restart_count"] for one in tasks(cluster, array)} == {1: 0, 2: 1, 3: 0}


def test_one_task_is_held_and_released_and_why_it_waits_is_told(cluster: PrivateCluster) -> None:
    array = submit(cluster, "--array=1-3", "--hold", wrap="true")
    cluster.ok("gqctl", "release", f"{array}_2")
    wait_until(lambda: states(cluster, array) == {2: "COMPLETED"}, LONG_S, "one task ends")
    assert json.loads(cluster.ok("gqwhy", f"{array}_3", "--json"))[0]["reason"] == "JobHeldUser"
    cluster.ok("gqctl", "release", array)
    assert cluster.run("gqwait", array).returncode == 0


@pytest.mark.slow
def test_a_controller_killed_in_the_middle_loses_no_task_and_runs_none_twice(private_cluster: MakeCluster) -> None:
    cluster = made(private_cluster)
    array = submit(cluster, "--array=1-40%6", wrap="echo $SLURM_ARRAY_TASK_ID >> ran; sleep 0.2")
    for least in (3, 15):
        wait_until(lambda least=least: len(states(cluster, array)) > least, LONG_S, "some have begun")  # type: ignore[misc]
        cluster.kill("gqd")
        cluster.up()
    assert cluster.run("gqwait", array).returncode == 0
    assert states(cluster, array) == dict.fromkeys(range(1, 41), "COMPLETED")
    ran = [int(line) for line in (cluster.workdir / "ran").read_text().split()]
    assert sorted(ran) == list(range(1, 41))


def test_with_fail_fast_one_failure_ends_the_others(cluster: PrivateCluster) -> None:
    script = "test $SLURM_ARRAY_TASK_ID != 2 && sleep 60"
    array = submit(cluster, "--array=1-90%3", "--fail-fast", wrap=script)
    assert cluster.run("gqwait", array).returncode != 0
    assert states(cluster, array)[2] == "FAILED"
    assert states(cluster, array)[1] == "CANCELLED"


@pytest.mark.slow
def test_how_jobs_and_tasks_ended_is_told_when_they_have_left_memory(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=config(head="[limits]\nended_job_keep_s = 1"))
    job = submit(cluster, wrap="exit 3")
    array = submit(cluster, "--array=1-3", "--hold", wrap="test $GQ_ARRAY_TASK_ID = 1")
    cluster.ok("gqdel", f"{array}_3")
    cluster.ok("gqctl", "release", array)
    assert cluster.run("gqwait", job, array).returncode != 0
    wait_until(lambda: cluster.run("gqstat", "-h", "-t", "all").stdout == "", what="all have left memory")

    story = why(cluster, job)
    assert (story["state"], story["reason"], "3" in story["why"]) == ("FAILED", "NonZeroExitCode", True)
    ends = {task: why(cluster, f"{array}_{task}") for task in (1, 2, 3)}
    assert {task: end["state"] for task, end in ends.items()} == {1: "COMPLETED", 2: "FAILED", 3: "CANCELLED"}
    assert all(end["why"] for end in ends.values())
    whole = why(cluster, array)
    assert whole["why"] == "all of its tasks have ended: 1 CANCELLED, 1 COMPLETED, 1 FAILED"
    assert cluster.run("gqwhy", "999").returncode == 1
