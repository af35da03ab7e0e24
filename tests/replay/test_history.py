"""A cluster's own history through gqsim, on real daemons: as recorded, under the present settings, and under others."""

from __future__ import annotations

import json

import pytest

from tests.clusters import ClusterYard, PrivateCluster
from tests.integration.jobs import MakeCluster, await_state, config, submit

pytestmark = pytest.mark.xdist_group("history")  # so that the history is lived once


@pytest.fixture(scope="module")
def cluster(module_yard: ClusterYard) -> PrivateCluster:
    """Four jobs have ended, one after the other, and an array of two; one waits."""
    cluster = module_yard.make(config=config(cpus=4, gpus=4))
    for _ in range(2):
        await_state(cluster, submit(cluster, "--gpus=4", "--wrap", "sleep 0.3"), "COMPLETED")
        await_state(cluster, submit(cluster, "-c2", "-t10", "--wrap", "sleep 0.3"), "COMPLETED")
    array = submit(cluster, "--array=1-2", "--gpus=1", "--wrap", "sleep 0.3")
    cluster.ok("gqwait", array, "--timeout", "60")
    submit(cluster, "--hold", "--gpus=1", "--wrap", "true")
    return cluster


def test_history_is_replayed_as_it_was_and_under_other_settings(cluster: PrivateCluster) -> None:
    shown = json.loads(cluster.ok("gqsim", "--replay", "--since=1h", "--set", "scheduler.policy=fifo", "--json"))

    assert list(shown) == ["recorded", "present", "changed"]
    assert [(one["jobs"], one["dropped"]) for one in shown.values()] == [(6, 0)] * 3
    assert shown["present"]["mean_wait_s"] <= shown["recorded"]["mean_wait_s"], "a virtual node starts jobs at once"


def test_history_is_replayed_under_a_named_policy_and_changes_nothing(cluster: PrivateCluster) -> None:
    before = cluster.ok("gqacct", "--parsable2", "--format=JobID,State,Start,End")

    lines = cluster.ok("gqsim", "--replay", "--policy=fifo-skip").splitlines()

    assert [line.split()[0] for line in lines] == ["POLICY", "recorded", "fifo-skip"]
    assert cluster.ok("gqacct", "--parsable2", "--format=JobID,State,Start,End") == before


def test_a_history_without_jobs_is_refused(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=config(cpus=4, gpus=4))

    done = cluster.run("gqsim", "--replay", "--since=1h")

    assert done.returncode == 1
    assert "no job started and ended in that time" in done.stderr
    assert "hint: go back further with --since" in done.stderr
