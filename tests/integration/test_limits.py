"""Limits on real daemons, set and met by the commands that people type."""

from __future__ import annotations

import getpass

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import MakeCluster, await_state, state, submit, why


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(nodes=1, fake_gpus=4, cpus=16)


@pytest.mark.slow
def test_a_limit_keeps_a_job_back_over_a_crash_of_the_controller_until_the_other_ends(cluster: PrivateCluster) -> None:
    user = getpass.getuser()
    cluster.ok("gqctl", "account", "add", "team")
    cluster.ok("gqctl", "user", "add", user, "--account=team")
    cluster.ok("gqctl", "limit", "set", "--account=team", "gpus=3")
    first = submit(cluster, "--gpus=2", "-t", "10", wrap="sleep 300")
    await_state(cluster, first, "RUNNING")
    second = submit(cluster, "--gpus=2", "-t", "10", wrap="sleep 300")
    third = submit(cluster, "--gpus=1", "-t", "10", wrap="sleep 300")
    await_state(cluster, third, "RUNNING")
    wait_until(lambda: why(cluster, second)["reason"] == "AssocGrpGRES", what="the limit is told")
    story = why(cluster, second)
    assert "account `team` may hold 3 GPUs, 3 are in use, the job asks for 2" in story["why"]
    assert story["blockers"] == [int(first), int(third)]

    cluster.kill("gqd")
    cluster.up()
    wait_until(lambda: why(cluster, second)["reason"] == "AssocGrpGRES", what="the limit is told again")
    assert state(cluster, second) == "PENDING"
    cluster.ok("gqdel", first)
    await_state(cluster, second, "RUNNING")


def test_what_a_limit_at_submit_leaves_no_room_for_is_refused_with_what_is_left(cluster: PrivateCluster) -> None:
    cluster.ok("gqctl", "limit", "set", f"--user={getpass.getuser()}", "--at=submit", "gpus=3")
    submit(cluster, "--gpus=2", wrap="sleep 300")
    refused = cluster.run("gqsub", "--gpus=2", "--wrap=true")
    assert refused.returncode == 1
    assert "may have 3 GPUs queued and running together, has 2, and this asks for 2" in refused.stderr
    assert "hint: 1 left" in refused.stderr
    alone = cluster.run("gqsub", "--gpus=4", "--wrap=true")
    assert alone.returncode == 1 and "may have 3 at most" in alone.stderr


def test_an_array_runs_as_many_tasks_as_the_limit_allows(cluster: PrivateCluster) -> None:
    cluster.ok("gqctl", "limit", "set", "--qos=normal", "--per-user", "running_jobs=2")
    array = submit(cluster, "--array=1-4", "-t", "10", wrap="sleep 300")
    wait_until(
        lambda: cluster.ok("gqstat", "-h", "-t", "RUNNING", "-o", "%i").split() == [f"{array}_1", f"{array}_2"],
        60,
        what="two tasks run",
    )
    wait_until(lambda: why(cluster, array)["reason"] == "QOSMaxJobsPerUserLimit", what="the limit is told")
    running = cluster.ok("gqstat", "-h", "-t", "CF,R", "-o", "%i").split()
    assert running == [f"{array}_1", f"{array}_2"], "and no more of them when the others were looked at"
    cluster.ok("gqdel", f"{array}_1")
    await_state(cluster, f"{array}_3", "RUNNING")
