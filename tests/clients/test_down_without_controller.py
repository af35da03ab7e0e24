"""gq down where gqd cannot start, and second daemons of one directory or name, on real daemons."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.clusters import PrivateCluster, marked, processes, wait_until

MakeCluster = Callable[..., PrivateCluster]


def truncate_queue(cluster: PrivateCluster) -> None:
    """As a disk that lost half of the database."""
    path = cluster.directory / "gq.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def start_daemon(cluster: PrivateCluster, *words: str) -> subprocess.Popen[str]:
    return cluster.start(sys.executable, "-P", "-m", *words, "--dir", str(cluster.directory))


def refusal(process: subprocess.Popen[str]) -> str:
    """Standard error of a daemon that must not start."""
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    return err


def test_down_ends_jobs_and_daemons_of_a_cluster_whose_gqd_cannot_start(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=2, cpus=2)
    for node in ("n1", "n2"):
        cluster.ok(
            "gqsub", "-w", node, "--wrap", f"trap 'echo told > told-{node}; exit' TERM; touch {node}; sleep 600 & wait"
        )
    wait_until(lambda: all((cluster.workdir / node).exists() for node in ("n1", "n2")), what="both jobs run")
    cluster.kill("gqd")
    cluster.kill("gqnode-n2")
    truncate_queue(cluster)

    refused = cluster.run("gq", "down")
    done = cluster.run("gq", "down", "--yes")

    assert refused.returncode == 1
    assert "error: jobs are running (1, 2)" in refused.stderr
    assert (done.returncode, done.stdout) == (0, f"the cluster in {cluster.directory} is down\n")
    assert f"{cluster.directory}/gq.db cannot be used as the database" in done.stderr
    assert "Traceback" not in refused.stderr + done.stderr
    assert marked(str(cluster.directory), processes()) == []
    assert [(cluster.workdir / f"told-{node}").exists() for node in ("n1", "n2")] == [True, True], "with their grace"


@pytest.mark.slow
def test_a_second_daemon_is_refused_also_where_the_directory_was_made_anew(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    pid = {name: cluster.pid(name) for name in ("gqd", "gqnode-n1")}
    runs = f"error: a gqnode for n1 is already running (process {pid['gqnode-n1']})"
    in_use = f"error: {cluster.directory}/gq.db is in use by another controller (process {pid['gqd']})"
    assert refusal(start_daemon(cluster, "gqnode", "--name", "n1")).startswith(runs)
    assert refusal(start_daemon(cluster, "gqd")).startswith(in_use)

    text = (cluster.directory / "gq.toml").read_text()
    shutil.rmtree(cluster.directory)
    cluster.directory.mkdir(mode=0o700)
    (cluster.directory / "gq.toml").write_text(text)

    assert refusal(start_daemon(cluster, "gqnode", "--name", "n1")).startswith(runs)
    assert refusal(start_daemon(cluster, "gqd")).startswith(in_use)
    cluster.ok("gq", "down", "--yes")
    assert marked(str(cluster.directory), processes()) == []
    cluster.up()


@pytest.mark.parametrize("file", ["gq.db", "blobs.db"])
def test_gqd_refuses_a_damaged_database_in_the_form_of_every_error(private_cluster: MakeCluster, file: str) -> None:
    cluster = private_cluster(nodes=1)
    cluster.ok("gq", "down")
    path = cluster.directory / file
    kept = path.read_bytes()
    path.write_bytes(kept[:100] + bytes(len(kept) - 100))

    said = refusal(start_daemon(cluster, "gqd")).splitlines()

    assert said[0].startswith(f"error: {path} cannot be used as the database: ")
    assert said[1:] == ["hint: restore a backup, or move the file away"]
    path.write_bytes(kept)
