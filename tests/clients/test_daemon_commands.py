"""gqd and gqnode start, stop and restart, SIGHUP, and their errors, on a private cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, wait_until

MakeCluster = Callable[..., PrivateCluster]


def test_gqd_is_stopped_started_and_restarted_and_has_every_job(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    job = cluster.ok("gqsub", "--parsable", "--hold", "--wrap", "true").strip()
    first = cluster.pid("gqd")
    assert cluster.ok("gqd", "start") == f"gqd runs already (process {first})\n"

    said = cluster.ok("gqd", "restart").splitlines()
    second = cluster.pid("gqd")
    assert said == [
        f"gqd (process {first}) has stopped",
        f"gqd runs (process {second}); its log: {cluster.directory}/gqd.log",
    ]
    assert job in cluster.ok("gqstat", "-j", job)

    assert cluster.ok("gqd", "stop") == f"gqd (process {second}) has stopped\n"
    assert cluster.ok("gqd", "stop") == "gqd did not run\n"
    assert cluster.run("gqstat").returncode == 3
    assert cluster.ok("gqd", "start").startswith("gqd runs (process ")
    assert job in cluster.ok("gqstat", "-j", job)


@pytest.mark.slow
def test_a_restart_with_wrong_settings_stops_nothing(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    config = cluster.directory / "gq.toml"
    text = config.read_text()
    pids = cluster.pid("gqd"), cluster.pid("gqnode-n1")
    config.write_text(f"wrong = 1\n{text}")

    for daemon in ("gqd", "gqnode"):
        done = cluster.run(daemon, "restart")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {config}: `wrong` is not a setting")
    assert (cluster.pid("gqd"), cluster.pid("gqnode-n1")) == pids
    assert cluster.run("gqstat").returncode == 0
    config.write_text(text)


@pytest.mark.slow
def test_gqnode_is_restarted_alone_or_with_the_others_and_jobs_go_on(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=2, cpus=2)
    script = "touch began; while [ ! -e go ]; do sleep 0.05; done; exit 5"
    job = cluster.ok("gqsub", "--parsable", "-w", "n2", "--wrap", script).strip()
    wait_until((cluster.workdir / "began").exists, what="the job runs")
    first, second = cluster.pid("gqnode-n1"), cluster.pid("gqnode-n2")

    alone = cluster.ok("gqnode", "--name", "n2", "restart").splitlines()
    assert [line.split(" (process")[0] for line in alone] == ["gqnode-n2", "gqnode-n2 runs"]
    assert cluster.pid("gqnode-n1") == first
    assert cluster.pid("gqnode-n2") != second
    cluster.ok("gqnode", "restart")
    assert cluster.pid("gqnode-n1") != first

    (cluster.workdir / "go").touch()
    assert cluster.run("gqwait", job).returncode == 5


@pytest.mark.slow
def test_sighup_opens_the_log_files_again_after_they_were_renamed(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    for daemon in ("gqd", "gqnode-n1"):
        log = cluster.directory / f"{daemon}.log"
        kept, mode = log.with_suffix(".kept"), log.stat().st_mode
        log.rename(kept)
        os.kill(cluster.pid(daemon), signal.SIGHUP)
        wait_until(log.exists, what=f"{log} is there again")
        size, pid = kept.stat().st_size, cluster.pid(daemon)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda log=log: log.stat().st_size, what=f"{daemon} writes to it that it ends")
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), what=f"{daemon} has ended")

        assert log.stat().st_mode == mode
        assert kept.stat().st_size == size


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gqd", "--wrong"], "error: no such option '--wrong'"),
        (["gqd", "--dir"], "error: option '--dir' requires an argument"),
        (["gqnode", "jion"], "error: no such command 'jion'"),
        (["gqnode", "--dir", "/a", "--config", "/b"], "error: `--dir` and `--config` exclude each other"),
        (["gqd", "--dir", "/a", "--config", "/b"], "error: `--dir` and `--config` exclude each other"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_told_in_the_form_of_every_error(
    shared_cluster: PrivateCluster, words: list[str], said: str
) -> None:
    done = shared_cluster.run(*words)

    first, hint = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert first.lower().replace("`", "'").startswith(said.replace("`", "'"))
    assert hint.startswith("hint: ")


def test_a_cluster_that_is_not_there_cannot_be_started(shared_cluster: PrivateCluster) -> None:
    done = shared_cluster.run("gqd", "--dir", "/nowhere/at/all", "start")

    assert done.returncode == 1
    assert done.stderr.startswith("error: /nowhere/at/all/gq.toml does not exist\nhint: ")


def test_a_dry_run_of_gq_toml_says_what_would_change(shared_cluster: PrivateCluster) -> None:
    path = shared_cluster.workdir / "new.toml"
    text = (shared_cluster.directory / "gq.toml").read_text()
    path.write_text(f"{text}\n[limits]\njobs = 77\n")

    lines = shared_cluster.ok("gqctl", "config", "check", "new.toml").splitlines()
    path.write_text(f"{text}\n[limits]\njbos = 77\n")
    wrong = shared_cluster.run("gqctl", "config", "check", "new.toml")

    assert lines[:2] == ["new.toml is valid; nothing was changed", "would take effect with `gqctl config reload`:"]
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["limits.jobs"]
    assert lines[2].endswith(" -> 77")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: new.toml: `limits.jbos` is not a setting")
