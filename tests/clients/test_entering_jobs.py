"""Going into a running job: `gqrun --overlap` and `gq ssh`, on real daemons."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.lent import lent, standing
from tests.clients.test_real_steps import Terminal
from tests.clusters import PrivateCluster, wait_until

pytestmark = pytest.mark.xdist_group("entering_jobs")  # so that the cluster is set up once
HOLDS_ALL = "gqrun -N2 sh -c 'touch begun-$GQ_NODEID; exec sleep 600'"
"""A step that has all CPUs and GPUs of its job."""


@pytest.fixture(scope="module")
def _cluster(request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with standing(request, nodes=2, fake_gpus=4, cpus=4) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: PrivateCluster, request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with lent(_cluster, request) as cluster:
        yield cluster


def begin(cluster: PrivateCluster) -> str:
    """A job over both nodes, three GPUs on each, all of it held by a step."""
    job = cluster.ok("gqsub", "--parsable", "-N2", "--gpus-per-node=3", "--wrap", HOLDS_ALL).strip()
    marks = [cluster.workdir / f"begun-{index}" for index in (0, 1)]
    wait_until(lambda: all(mark.exists() for mark in marks), what="the job's step runs on both nodes")
    return job


def told(cluster: PrivateCluster, *argv: str) -> list[str]:
    return cluster.ok(*argv, timeout_s=20).split()


def test_a_step_that_overlaps_shares_what_another_holds_and_does_not_wait(cluster: PrivateCluster) -> None:
    job = begin(cluster)
    shell = ("sh", "-c", "echo $GQ_NODENAME $CUDA_VISIBLE_DEVICES $GQ_CPUS_ON_NODE")

    out = cluster.ok("gqrun", f"--jobid={job}", "--overlap", *shell, timeout_s=20)

    assert sorted(out.splitlines()) == ["n1 0,1,2 1", "n2 0,1,2 1"]


def test_nobody_waits_for_what_a_step_that_overlaps_uses(cluster: PrivateCluster) -> None:
    job = cluster.ok("gqsub", "--parsable", "--gpus=3", "--wrap", "sleep 600").strip()
    wait_until(lambda: cluster.ok("gqstat", "-h", "-o", "%t").strip() == "R")
    first = cluster.start("gqrun", f"--jobid={job}", "--overlap", "sh", "-c", "echo begun; exec sleep 600")
    assert first.stdout is not None and first.stdout.readline() == "begun\n"

    assert told(cluster, "gqrun", f"--jobid={job}", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == ["0,1,2"]


def test_a_step_may_be_sent_to_one_node_of_its_job(cluster: PrivateCluster) -> None:
    job = begin(cluster)
    for node in ("n1", "n2"):
        argv = ("gqrun", f"--jobid={job}", "--overlap", "-n1", "-w", node, "printenv", "GQ_NODENAME")
        assert told(cluster, *argv) == [node]

    done = cluster.run("gqrun", f"--jobid={job}", "--overlap", "-w", "n3", "true")
    assert done.returncode == 1
    assert "node `n3` is not one of the job's live nodes" in done.stderr


def of_attempt(cell: str) -> str:
    """The cell of a step is one within that of its attempt: without its own number."""
    return re.sub(r"(\d+\.\d+)\.\d+$", r"\1", cell)


@pytest.mark.parametrize(
    ("where", "node"), [((), "n1"), (("--node", "n2"), "n2"), (("-w", "n1"), "n1")], ids=["first", "second", "named"]
)
def test_gq_ssh_runs_a_command_beside_a_jobs_tasks(cluster: PrivateCluster, where: tuple[str, ...], node: str) -> None:
    job = begin(cluster)
    script = "echo $GQ_NODENAME $GQ_JOB_ID $CUDA_VISIBLE_DEVICES; pwd; exit 7"

    done = cluster.run("gq", "ssh", *where, job, "sh", "-c", script, timeout_s=20)

    assert done.stdout.splitlines() == [f"{node} {job} 0,1,2", str(cluster.workdir)]
    assert done.returncode == 7


def test_gq_ssh_knows_a_jobs_nodes_by_their_place(cluster: PrivateCluster) -> None:
    job = begin(cluster)
    assert told(cluster, "gq", "ssh", f"{job}.0", "printenv", "GQ_NODENAME") == ["n1"]
    assert told(cluster, "gq", "ssh", f"{job}.1", "printenv", "GQ_NODENAME") == ["n2"]

    beyond = cluster.run("gq", "ssh", f"{job}.2", "true")
    assert beyond.returncode == 1
    assert f"{job}.2 is not one of job {job}'s nodes\nhint: it has n1, n2" in beyond.stderr


def test_gq_ssh_takes_a_command_as_ssh_does(cluster: PrivateCluster) -> None:
    job = f"{begin(cluster)}.1"

    assert told(cluster, "gq", "ssh", job, "--", "printenv", "GQ_NODENAME") == ["n2"]
    assert told(cluster, "gq", "ssh", job, "printenv GQ_NODENAME") == ["n2"]
    assert told(cluster, "gq", "ssh", job, "--", "echo $GQ_NODENAME | tr n N") == ["N2"]
    assert cluster.ok("gq", "ssh", job, "--", "printf", "%s\n", "--", "a  b", timeout_s=20) == "--\na  b\n"


def test_gq_ssh_reads_standard_input(cluster: PrivateCluster) -> None:
    job = begin(cluster)
    assert cluster.ok("gq", "ssh", job, "tr", "a-z", "A-Z", stdin="hello\n") == "HELLO\n"


def test_gq_ssh_is_in_the_cell_of_the_job(cluster: PrivateCluster) -> None:
    """Told by what the kernel says where the machine has cgroups for us, and always by the marker of the cell."""
    job = begin(cluster)
    facts = "grep -v :name= /proc/self/cgroup; echo $GQ_CELL"
    beside = cluster.ok("gqrun", f"--jobid={job}", "--overlap", "-n1", "-N1", "sh", "-c", facts).splitlines()
    inside = cluster.ok("gq", "ssh", job, "sh", "-c", facts).splitlines()

    assert [of_attempt(line) for line in inside] == [of_attempt(line) for line in beside]
    assert of_attempt(inside[-1]).endswith(f"/{job}.1")


def test_gq_ssh_of_a_job_that_waits_or_is_unknown_is_refused(cluster: PrivateCluster) -> None:
    job = cluster.ok("gqsub", "--parsable", "-H", "--wrap", "true").strip()
    waits, unknown = cluster.run("gq", "ssh", job), cluster.run("gq", "ssh", "77777")

    assert (waits.returncode, unknown.returncode) == (1, 1)
    assert f"job {job} is PENDING: only a running job can be entered" in waits.stderr
    assert "job 77777 does not exist" in unknown.stderr


@pytest.mark.parametrize(("target", "why"), [("x", "`x` is not a job id"), ("1.x", "`1.x` is not a job")])
def test_gq_ssh_says_what_is_wrong_with_a_target(cluster: PrivateCluster, target: str, why: str) -> None:
    done = cluster.run("gq", "ssh", target)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {why}")


# ── with a terminal ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bash(cluster: PrivateCluster, tmp_path: Path) -> str:
    """A program that is an interactive bash, whatever the user's own shell says in its files."""
    path = tmp_path / "shell"
    path.write_text("#!/bin/sh\nPS1='in> ' exec bash --norc --noprofile -i\n")
    path.chmod(0o755)
    return str(path)


def test_gq_ssh_gives_a_terminal_in_the_job(cluster: PrivateCluster, bash: str) -> None:
    job = begin(cluster)
    terminal = Terminal(cluster, "gq", "ssh", f"{job}.1", bash)
    try:
        terminal.wait_for("in> ")
        terminal.type("echo $GQ_NODENAME:$CUDA_VISIBLE_DEVICES; tty\r")
        terminal.wait_for("n2:0,1,2\r\n/dev/pts/")
        terminal.type("exit 3\r")
        assert terminal.exit_code() == 3
        assert not terminal.is_raw
    finally:
        terminal.close()


def test_a_shell_in_a_job_ends_with_the_job_at_once(cluster: PrivateCluster, bash: str) -> None:
    """An interactive bash ignores TERM, but not that its terminal hangs up."""
    job = cluster.ok("gqsub", "--parsable", "--wrap", "exec sleep 600").strip()
    wait_until(lambda: cluster.ok("gqstat", "-h", "-o", "%t").strip() == "R")
    terminal = Terminal(cluster, "gqrun", f"--jobid={job}", "--overlap", "--pty", bash)
    try:
        terminal.wait_for("in> ")
        began = time.monotonic()
        cluster.ok("gqdel", job)
        cluster.run("gqwait", job, "--timeout=20")
        assert time.monotonic() - began < 15, "it was ended only when the grace was over"
        assert terminal.exit_code() != 0
    finally:
        terminal.close()


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGTERM])
def test_a_pty_that_is_told_to_end_ends_though_its_shell_ignores_it(
    cluster: PrivateCluster, signum: signal.Signals
) -> None:
    deaf = "trap '' TERM HUP; echo rea''dy; while :; do sleep 1; done"
    terminal = Terminal(cluster, "gqrun", "--pty", "sh", "-c", deaf)
    try:
        terminal.wait_for("ready")
        os.kill(terminal.pid, signum)
        assert terminal.exit_code() != 0
        assert not terminal.is_raw
        wait_until(lambda: not _finds("sleep 1", cluster), what="nothing is left of the step")
    finally:
        terminal.close()


def _finds(words: str, cluster: PrivateCluster) -> bool:
    """Whether a job of this cluster runs it."""
    listed = subprocess.run(["ps", "-eo", "args", "e"], capture_output=True, text=True, check=True).stdout
    return any(line.startswith(words) and str(cluster.directory) in line for line in listed.splitlines())
