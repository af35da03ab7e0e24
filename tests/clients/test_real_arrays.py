"""Arrays as users meet them: submitted, looked at, steered by task and waited for, on real daemons."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.clients.lent import lent, standing
from tests.clusters import PrivateCluster, wait_until

pytestmark = pytest.mark.xdist_group("real_arrays")  # so that the cluster is set up once
SLEEPER = "echo task $GQ_ARRAY_TASK_ID of $GQ_ARRAY_JOB_ID, $SLURM_ARRAY_TASK_COUNT in all; sleep 300"


@pytest.fixture(scope="module")
def _cluster(request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with standing(request, nodes=1, cpus=8) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: PrivateCluster, request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with lent(_cluster, request) as cluster:
        yield cluster


def submit(cluster: PrivateCluster, *options: str, command: str = SLEEPER) -> str:
    return cluster.ok("gqsub", "--parsable", *options, "--wrap", command).strip()


def states(cluster: PrivateCluster, array: str) -> dict[str, str]:
    """Task → its state."""
    shown = json.loads(cluster.ok("gqstat", "--array", "-t", "all", "-j", array, "--json"))
    return {str(one["array_task_id"]): one["state"] for one in shown}


def labels(cluster: PrivateCluster, *options: str) -> set[str]:
    return set(cluster.ok("gqstat", "-h", "-o", "%i", *options).split())


def await_states(cluster: PrivateCluster, array: str, wanted: dict[str, str]) -> None:
    wait_until(lambda: states(cluster, array) == wanted, what=f"the tasks of {array} are {wanted}")


def test_an_array_is_one_line_until_its_tasks_start(cluster: PrivateCluster) -> None:
    array = submit(cluster, "--array=1-9:2%2")

    wait_until(
        lambda: labels(cluster) == {f"{array}_1", f"{array}_3", f"{array}_[5,7,9%2]"},
        what="two tasks run and three wait in one line",
    )
    assert labels(cluster, "-r") == {f"{array}_{task}" for task in (1, 3, 5, 7, 9)}
    assert labels(cluster, "-j", f"{array}_[1,7]") == {f"{array}_1", f"{array}_[7%2]"}
    assert "tasks at once" in cluster.ok("gqwhy", f"{array}_7")
    wait_until(
        lambda: cluster.run("gqlog", f"{array}_3").stdout == f"task 3 of {array}, 5 in all\n",
        what="the output of a task is there",
    )
    assert (cluster.workdir / f"gq-{array}_3.out").exists()
    assert cluster.ok("gq", "ssh", f"{array}_3", "sh", "-c", "echo $GQ_ARRAY_TASK_ID") == "3\n"
    assert cluster.ok("gqrun", f"--jobid={array}_1", "--overlap", "sh", "-c", "echo $GQ_ARRAY_TASK_ID") == "1\n"


def test_tasks_are_held_changed_and_cancelled_by_their_names(cluster: PrivateCluster) -> None:
    array = submit(cluster, "--array=1-6", "--hold")

    cluster.ok("gqdel", f"{array}_[5-6]")
    cluster.ok("gqctl", "update", f"{array}_4", "--comment=the fourth")
    cluster.ok("gqctl", "release", f"{array}_1-3")
    cluster.ok("gqctl", "hold", f"{array}_4")
    await_states(
        cluster,
        array,
        {"1": "RUNNING", "2": "RUNNING", "3": "RUNNING", "4": "PENDING", "5": "CANCELLED", "6": "CANCELLED"},
    )
    assert cluster.ok("gqstat", "-h", "-t", "PD", "-o", "%i %r %k") == f"{array}_4 JobHeldUser the fourth\n"

    cluster.ok("gqdel", array)
    cluster.run("gqwait", array)
    found = cluster.ok("gqacct", "-n", "-P", "-X", "-j", array, "-o", "jobid,state").split("\n")
    assert sorted(line.partition(" by ")[0] for line in found if line) == [
        *(f"{array}_{task}|CANCELLED" for task in (1, 2, 3, 4)),
        f"{array}_[5-6]|CANCELLED",
    ]


def test_who_waits_for_an_array_gets_the_highest_code_of_its_tasks(cluster: PrivateCluster) -> None:
    exits = "exit $GQ_ARRAY_TASK_ID"
    assert cluster.run("gqsub", "--wait", "--array=0-3", "--wrap", exits).returncode == 3

    good = submit(cluster, "--array=1-3", command="true")
    assert cluster.run("gqwait", good).returncode == 0

    array = submit(cluster, "--array=2,7", command=exits)
    assert cluster.run("gqwait", f"{array}_2").returncode == 2
    assert cluster.run("gqwait", f"{array}_7", good).returncode == 7


def test_a_task_that_fails_ends_the_others_only_if_that_was_asked_for(cluster: PrivateCluster) -> None:
    fails = "test $GQ_ARRAY_TASK_ID != 1 || exit 9; sleep 300"
    array = submit(cluster, "--array=1-20%3", "--fail-fast", command=fails)
    other = submit(cluster, "--array=1-2", command=fails)

    assert cluster.run("gqwait", array).returncode in (9, 143), "143: another had begun, and was told to end"
    assert set(states(cluster, array).values()) == {"FAILED", "CANCELLED"}
    await_states(cluster, other, {"1": "FAILED", "2": "RUNNING"})


def test_a_job_may_wait_for_one_task_or_for_all(cluster: PrivateCluster) -> None:
    array = submit(cluster, "--array=1-2", command="test $GQ_ARRAY_TASK_ID = 1")
    after_good = submit(cluster, f"--dependency=afterok:{array}_1", command="true")
    after_all = submit(cluster, f"--dependency=afterok:{array}", "--kill-on-invalid-dep=yes", command="true")

    assert cluster.run("gqwait", after_good).returncode == 0
    assert cluster.run("gqwait", after_all).returncode == 1
    [ended] = json.loads(cluster.ok("gqacct", "-X", "--json", "-j", after_all))
    assert (ended["state"], ended["reason"]) == ("CANCELLED", "DependencyNeverSatisfied")
