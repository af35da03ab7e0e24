"""examples/team on real daemons: the organisation is set up as its README says, and its caps and guarantees hold."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.lent import lent, standing
from tests.clusters import PrivateCluster, wait_until

pytestmark = pytest.mark.xdist_group("team_example")  # so that the organisation is set up once
TEAM = Path(__file__).parents[2] / "examples" / "team"
ME = getpass.getuser()


@pytest.fixture(scope="module")
def _lab(request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with standing(request, config=(TEAM / "gq.toml").read_text()) as cluster:
        cluster.ok("sh", str(TEAM / "setup.sh"))
        yield cluster


@pytest.fixture
def lab(_lab: PrivateCluster, request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    """In no test is whoever runs them in a team, but for those that the test names."""
    with lent(_lab, request) as cluster:
        yield cluster
    for member in rows(_lab, "gqctl", "user", "show"):
        if member["user"] == ME:
            _lab.ok("gqctl", "user", "remove", ME, f"--account={member['account']}")


def rows(cluster: PrivateCluster, *argv: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(cluster.ok(*argv, "--json"))
    return found


def submit(cluster: PrivateCluster, *options: str) -> int:
    return int(cluster.ok("gqsub", "--parsable", *options, "--wrap", "sleep 300"))


def job(cluster: PrivateCluster, job_id: int) -> dict[str, object]:
    [found] = rows(cluster, "gqstat", "-j", str(job_id))
    return found


def await_state(cluster: PrivateCluster, job_id: int, state: str) -> None:
    wait_until(lambda: job(cluster, job_id)["state"] == state, what=f"job {job_id} is {state}")


def test_the_organisation_is_as_its_set_up_says(lab: PrivateCluster) -> None:
    shares = {(line["account"], line["user"]): line for line in rows(lab, "gqshare", "--all")}
    due = {account: round(float(str(line["norm_shares"])), 4) for (account, user), line in shares.items() if not user}
    guaranteed = {account: line["guaranteed_gpus"] for (account, user), line in shares.items() if not user}

    assert due["nlp"] == 2 * due["vision"] == 2 * due["robotics"]
    assert due["lab"] == due["nlp"] + due["vision"] + due["robotics"]
    assert (guaranteed["nlp"], guaranteed["vision"], guaranteed["robotics"]) == (4, 2, None)
    assert {("vision", "ben"), ("robotics", "ben"), ("nlp", "anna")} <= shares.keys()
    assert {qos["qos"]: qos["priority"] for qos in rows(lab, "gqctl", "qos", "show")} == {
        "normal": 50,
        "high": 100,
        "debug": 200,
        "scavenger": 0,
    }
    assert [(one["name"], one["resource"], one["most"]) for one in rows(lab, "gqctl", "limit", "show")] == [
        ("lab", "gpus", 6),
        ("lab", "pending_jobs", 10000),
        ("robotics", "gpu_hours_per_month", 500),
        ("robotics", "gpus:a100", 2),
        ("debug", "gpus", 1),
        ("debug", "running_jobs", 2),
    ]


def test_nobody_submits_who_is_in_no_team(lab: PrivateCluster) -> None:
    refused = lab.run("gqsub", "--wrap", "true")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"user {ME} is in no account" in refused.stderr

    lab.ok("gqctl", "user", "add", ME, "--account=robotics")
    assert job(lab, submit(lab))["account"] == "robotics"


def test_a_limit_at_submit_refuses_and_one_at_start_lets_wait(lab: PrivateCluster) -> None:
    lab.ok("gqctl", "user", "add", ME, "--account=robotics")
    lab.ok("gqctl", "user", "add", ME, "--account=nlp")

    too_many = lab.run("gqsub", "-A", "robotics", "--gpus=a100:3", "--wrap", "true")
    assert (too_many.returncode, too_many.stdout) == (1, "")
    assert "robotics" in too_many.stderr and "2" in too_many.stderr

    first, second = (submit(lab, "-A", "nlp", "--gpus=a100:4") for _ in range(2))
    await_state(lab, first, "RUNNING")
    wait_until(lambda: job(lab, second)["reason"] == "AssocGrpGRES", what="the second waits for the limit of lab")
    [used] = [one["used"] for one in rows(lab, "gqctl", "limit", "show", "-A", "lab") if one["resource"] == "gpus"]
    assert used == 4

    lab.ok("gqdel", str(first))
    await_state(lab, second, "RUNNING")


def test_the_debug_partition_is_for_its_class_of_service_and_two_jobs_each(lab: PrivateCluster) -> None:
    lab.ok("gqctl", "user", "add", ME, "--account=vision")
    assert "debug" in lab.run("gqsub", "-p", "debug", "--wrap", "true").stderr

    array = submit(lab, "-p", "debug", "-q", "debug", "--time=10", "--array=1-4")

    def shown() -> list[tuple[object, object, object]]:
        of_array = rows(lab, "gqstat", "-j", str(array))
        return sorted((str(one["state"]), one["array_task_id"] or 0, one["array_tasks"]) for one in of_array)

    wait_until(
        lambda: shown() == [("PENDING", 0, "3-4"), ("RUNNING", 1, ""), ("RUNNING", 2, "")],
        what="two tasks run, two wait",
    )
    lab.ok("gqdel", f"{array}_1")
    wait_until(lambda: ("RUNNING", 3, "") in shown(), what="the next task follows the one that was cancelled")


def test_a_changed_weight_reorders_the_queue_when_the_file_is_read_again(lab: PrivateCluster) -> None:
    lab.ok("gqctl", "user", "add", ME, "--account=nlp")
    normal = submit(lab, "--begin=now+1h")
    high = submit(lab, "--begin=now+1h", "--qos=high")

    def order() -> list[object]:
        shown = rows(lab, "gqprio")
        assert all(sum(one["points"].values()) == one["priority"] for one in shown)  # type: ignore[attr-defined]
        return [one["job_id"] for one in shown]

    assert order() == [high, normal]

    path = lab.directory / "gq.toml"
    as_it_was = path.read_text()
    path.write_text(as_it_was.replace("qos = 4000", "qos = 0"))
    assert "priority" in lab.ok("gqctl", "config", "reload")
    assert order() == [normal, high]
    assert [one["value"] for one in rows(lab, "gqctl", "config", "show", "priority.qos")] == [0]

    good = path.read_text()
    path.write_text(good.replace("qos = 0", "qos = -1"))
    wrong = lab.run("gqctl", "config", "reload")
    path.write_text(good)
    assert (wrong.returncode, order()) == (1, [normal, high])
    assert "priority.qos" in wrong.stderr

    path.write_text(as_it_was)
    lab.ok("gqctl", "config", "reload")
    assert order() == [high, normal]
