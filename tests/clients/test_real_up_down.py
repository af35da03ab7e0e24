"""gq up, down, status and doctor on real daemons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, marked, processes, wait_until

MakeCluster = Callable[..., PrivateCluster]


def states(cluster: PrivateCluster) -> dict[str, str]:
    [found] = json.loads(cluster.run("gq", "status", "--json").stdout)
    return {daemon["name"]: daemon["state"] for daemon in found["daemons"]}


def job_state(cluster: PrivateCluster, job_id: int) -> str:
    [job] = json.loads(cluster.ok("gqacct", "-X", "--json", "-j", str(job_id)))
    return str(job["state"])


def await_job_state(cluster: PrivateCluster, job_id: int, state: str) -> None:
    wait_until(lambda: job_state(cluster, job_id) == state, what=f"job {job_id} is {state}")


@pytest.mark.slow
def test_up_again_starts_only_what_does_not_run(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=2, fake_gpus=1)
    before = {name: cluster.pid(name) for name in ("gqd", "gqnode-n1", "gqnode-n2")}
    [again] = json.loads(cluster.ok("gq", "up", "--json"))
    assert again["started"] == []
    cluster.kill("gqnode-n1")
    assert states(cluster)["gqnode-n1"] == "down"
    [mended] = json.loads(cluster.ok("gq", "up", "--json"))
    assert mended["started"] == ["gqnode-n1"]
    after = {name: cluster.pid(name) for name in before}
    assert {name for name in before if before[name] != after[name]} == {"gqnode-n1"}
    assert all(state.startswith("up") for state in states(cluster).values())


@pytest.mark.parametrize(
    ("option", "value", "there", "way_out"),
    [
        ("--nodes", "3", "2", "add or remove [[node]] tables in"),
        ("--cpus-per-node", "3", "16", "set cpus under each [[node]] of"),
        ("--fake-gpus", "7", "4", "set fake_gpu under each [[node]] of"),
    ],
)
def test_up_with_another_shape_is_refused_with_the_setting_to_change(
    shared_cluster: PrivateCluster, option: str, value: str, there: str, way_out: str
) -> None:
    config = shared_cluster.directory / "gq.toml"
    text = config.read_text()

    done = shared_cluster.run("gq", "up", option, value)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: `gq up {option} {value}` cannot change the cluster of {config}, which has {there}\n"
        f"hint: {way_out} {config}, then `gq down --keep-jobs` and `gq up`; or start another cluster with --dir\n"
    )
    assert config.read_text() == text


@pytest.mark.slow
def test_what_up_prints_can_be_pasted_whatever_the_directory_is_called(shared_cluster: PrivateCluster) -> None:
    other = shared_cluster
    directory = other.workdir / "my c'luster"
    lines = other.ok("gq", "up", "--dir", str(directory), "--fake-gpus", "3").splitlines()
    look, stop = (line.split(None, 1)[1] for line in lines if line.startswith(("look", "stop")))
    assert other.ok("sh", "-c", look.partition("   ")[0]).startswith("GPUs 3/3 free")
    assert other.ok("sh", "-c", stop) == f"the cluster in {directory} is down\n"


def test_up_without_gpus_says_so(private_cluster: MakeCluster) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has GPUs")
    done = private_cluster(nodes=1).run("gq", "up")
    assert "no GPU was found on this machine" in done.stderr


def test_a_daemon_that_cannot_start_is_told_with_its_log(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    cluster.ok("gq", "down")
    config = cluster.directory / "gq.toml"
    text = config.read_text()
    database = cluster.directory / "gq.db"
    database.rename(database.with_suffix(".kept"))
    database.write_text("this is no database, and it is long enough to be taken for one" * 20)
    done = cluster.run("gq", "up")
    assert done.returncode == 1
    assert "gqd did not start" in done.stderr
    assert "gqd.log ends with:" in done.stderr
    database.with_suffix(".kept").rename(database)
    assert config.read_text() == text
    cluster.up()


def test_down_refuses_while_jobs_run_unless_told(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    cluster.ok("gqsub", "--wrap", "sleep 600")
    await_job_state(cluster, 1, "RUNNING")
    done = cluster.run("gq", "down")
    assert done.returncode == 1
    assert "jobs are running (1)" in done.stderr
    cluster.ok("gq", "down", "--yes")
    assert marked(str(cluster.directory), processes()) == []
    assert set(states(cluster).values()) == {"down"}
    cluster.up()
    assert job_state(cluster, 1) == "CANCELLED"


@pytest.mark.slow
def test_kept_jobs_go_on_without_daemons_and_are_found_again(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    cluster.ok("gqsub", "--wrap", "while [ ! -e go ]; do sleep 0.05; done; echo done; exit 3")
    await_job_state(cluster, 1, "RUNNING")
    cluster.ok("gq", "down", "--keep-jobs")
    assert set(states(cluster).values()) == {"down"}
    assert marked(str(cluster.directory), processes()), "the job goes on"
    (cluster.workdir / "go").touch()
    cluster.up()
    done = cluster.run("gqlog", "-f", "1")
    assert (done.stdout, done.returncode) == ("done\n", 3)


@pytest.mark.slow
def test_down_ends_the_jobs_of_daemons_that_were_killed(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    cluster.ok("gqsub", "--wrap", "sleep 600")
    await_job_state(cluster, 1, "RUNNING")
    cluster.kill("gqd")
    cluster.kill("gqnode-n1")
    cluster.ok("gq", "down", "--yes")
    assert marked(str(cluster.directory), processes()) == []


def test_down_stops_what_runs_though_the_settings_are_wrong_by_now(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, fake_gpus=1)
    cluster.ok("gqsub", "--wrap", "sleep 600")
    await_job_state(cluster, 1, "RUNNING")
    config = cluster.directory / "gq.toml"
    text = config.read_text()
    config.write_text(text.replace("[controller]", "[controler]"))

    done = cluster.run("gq", "down", "--yes")

    config.write_text(text)
    assert done.returncode == 0, done.stderr
    assert "controler" in done.stderr
    assert marked(str(cluster.directory), processes()) == []


def test_up_warns_of_gpus_that_get_no_job_for_want_of_cpus(private_cluster: MakeCluster) -> None:
    done = private_cluster(nodes=1, fake_gpus=3, cpus=2).run("gq", "up")
    said = " ".join(done.stderr.split())
    assert "n1 has 2 CPUs for 3 GPUs, so at most 2 jobs can run at once; set cpus = 3 in gq.toml" in said


@pytest.mark.slow
def test_doctor_finds_a_daemon_that_is_down_and_says_how_to_mend_it(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, fake_gpus=2)
    findings = json.loads(cluster.ok("gq", "doctor", "--json"))
    assert not [one for one in findings if one["verdict"] == "fail"]
    cluster.kill("gqd")
    sick = cluster.run("gq", "doctor", "--json")
    assert sick.returncode == 1
    failed = {one["check"]: one for one in json.loads(sick.stdout) if one["verdict"] == "fail"}
    assert set(failed) == {"daemons", "controller"}
    assert failed["daemons"]["message"] == "not running: gqd"
    assert "`gq up` starts them" in failed["daemons"]["mend"]


def test_doctor_finds_a_directory_that_others_may_write_to(shared_cluster: PrivateCluster) -> None:
    directory = shared_cluster.directory
    directory.chmod(0o777)
    try:
        findings = json.loads(shared_cluster.run("gq", "doctor", "--json").stdout)
    finally:
        directory.chmod(0o700)
    [found] = [one for one in findings if one["check"] == "directory"]
    assert (found["verdict"], found["mend"]) == ("fail", f"chmod 700 {directory}")
