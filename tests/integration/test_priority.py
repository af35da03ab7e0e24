"""Who goes next, on real daemons: what the commands print, other weights without a restart, usage that survives one."""

from __future__ import annotations

import json

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import MakeCluster, await_state, config, submit


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    """With a job that holds all, and behind it a small one and a large one."""
    cluster = private_cluster(config=config(cpus=4, gpus=4))
    first = submit(cluster, "--gpus=4", "--wrap", "exec sleep 600")
    submit(cluster, "--gpus=1", "--wrap", "true")
    submit(cluster, "--gpus=4", "-c4", "--wrap", "true")
    await_state(cluster, first, "RUNNING")
    return cluster


def queue(cluster: PrivateCluster) -> list[int]:
    return [one["job_id"] for one in json.loads(cluster.ok("gqprio", "--json"))]


def reload(cluster: PrivateCluster, *lines: str) -> None:
    file = cluster.directory / "gq.toml"
    file.write_text("\n".join([file.read_text(), *lines, ""]))
    cluster.ok("gqctl", "config", "reload")


@pytest.mark.slow
def test_other_weights_reorder_the_queue_without_a_restart(cluster: PrivateCluster) -> None:
    before, pid = queue(cluster), cluster.pid("gqd")
    reload(cluster, "[priority]", "job_size = 50000")

    assert (before, queue(cluster)) == ([2, 3], [3, 2])
    shown = json.loads(cluster.ok("gqprio", "--json", "-j", "3"))[0]
    assert shown["points"]["job_size"] == 50000
    assert sum(shown["points"].values()) == shown["priority"]
    listed = {one["job_id"]: one["priority"] for one in json.loads(cluster.ok("gqstat", "--json"))}
    assert listed[3] == pytest.approx(shown["priority"], abs=2), "its age may have grown meanwhile"
    cluster.ok("gqdel", "1")
    await_state(cluster, "3", "COMPLETED")
    assert cluster.pid("gqd") == pid


def test_a_weight_for_a_factor_that_nobody_installed_changes_nothing_and_says_so(cluster: PrivateCluster) -> None:
    file = cluster.directory / "gq.toml"
    whole = file.read_text()
    file.write_text(f"{whole}\n[priority]\njob_size = 50000\n[priority.factors]\nno_such = 5\n")
    done = cluster.run("gqctl", "config", "reload")

    assert done.returncode == 1
    assert "[priority.factors] no_such: no installed package provides this factor" in done.stderr
    assert queue(cluster) == [2, 3]
    file.write_text(whole)


def usage_hours(cluster: PrivateCluster) -> float:
    """Of the only user."""
    return max(float(one["usage_gpu_hours"]) for one in json.loads(cluster.ok("gqshare", "--json")))


@pytest.mark.slow
def test_usage_grows_while_a_job_runs_and_survives_the_death_of_the_controller(cluster: PrivateCluster) -> None:
    """What a job that is over used can only have survived."""
    wait_until(lambda: usage_hours(cluster) > 0, what="usage")
    first = usage_hours(cluster)
    wait_until(lambda: usage_hours(cluster) > first, what="usage that grows")
    cluster.ok("gqdel", "1", "2", "3")
    await_state(cluster, "1", "CANCELLED")
    used = usage_hours(cluster)
    cluster.kill("gqd")
    cluster.up()

    assert usage_hours(cluster) == pytest.approx(used, rel=0.01)
    again = submit(cluster, "--gpus=4", "--wrap", "exec sleep 600")
    await_state(cluster, again, "RUNNING")
    wait_until(lambda: usage_hours(cluster) > 1.02 * used, what="usage that goes on where it was")
