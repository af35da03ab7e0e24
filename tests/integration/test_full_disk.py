"""Disks that are full: under a job's output, and under the spool of a node."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterYard, PrivateCluster, cluster_yard, wait_until
from tests.conftest import MARK
from tests.integration.jobs import LONG_S, await_state, config, facts, instants, node_facts, submit, why
from tests.integration.mount_namespace import own_mounts
from tests.requires import needs_root

pytestmark = needs_root
DISK_KIB = 256
Sh = Callable[[str], None]


@pytest.fixture
def yard(cluster_base: Path, pytestconfig: pytest.Config) -> Iterator[ClusterYard]:
    """Its clusters see what is mounted for this test."""
    with own_mounts() as run_as, cluster_yard(cluster_base, pytestconfig.stash[MARK], run_as) as yard:
        yield yard


@pytest.fixture
def sh(yard: ClusterYard) -> Sh:
    """A shell that sees the same."""

    def run(script: str) -> None:
        subprocess.run([*yard.run_as.prefix, "sh", "-ec", script], check=True, capture_output=True, text=True)

    return run


@pytest.fixture
def cluster(yard: ClusterYard) -> PrivateCluster:
    return yard.make(config=config(nodes=2))


def small_disk(sh: Sh, path: Path, options: str = f"size={DISK_KIB}k") -> None:
    sh(f"mkdir -p {path}; mount -t tmpfs -o {options} none {path}")


@pytest.mark.slow
def test_a_job_whose_output_fills_the_disk_hears_it_and_nobody_else_is_harmed(cluster: PrivateCluster, sh: Sh) -> None:
    small_disk(sh, cluster.workdir / "small")
    pids = {daemon: cluster.pid(daemon) for daemon in ("gqd", "gqnode-n1", "gqnode-n2")}
    job = submit(cluster, "-o", "small/out", wrap=f"head -c {4 * DISK_KIB * 1024} /dev/zero || exit 9")
    assert (await_state(cluster, job, "FAILED")["exit_code"], facts(cluster, job)["restart_count"]) == (9, 0)

    step = submit(cluster, "-o", "small/out", "--open-mode=append", wrap="gqrun sh -c 'echo lost; exit 3'; exit 4")
    assert await_state(cluster, step, "FAILED")["exit_code"] == 4
    beside = submit(cluster, wrap="echo fine")
    await_state(cluster, beside, "COMPLETED")
    assert cluster.ok("gqlog", beside) == "fine\n"
    assert {daemon: cluster.pid(daemon) for daemon in pids} == pids


def test_a_job_whose_output_cannot_be_made_fails_with_the_path_and_the_reason_and_runs_nowhere(
    cluster: PrivateCluster, sh: Sh
) -> None:
    small_disk(sh, cluster.workdir / "none", "nr_inodes=1")
    job = submit(cluster, "-o", "none/out", wrap="touch ran")
    ended = await_state(cluster, job, "FAILED")
    assert "none/out" in ended["why"] and "No space left on device" in ended["why"]
    assert not (cluster.workdir / "ran").exists()
    assert len(instants(cluster, "JobAllocated", job)) == 1, "no other node would help"
    assert "none/out" in why(cluster, job)["why"]
    assert node_facts(cluster, "n1")["cpus_free"] == 4


@pytest.mark.slow
def test_a_node_whose_spool_is_full_is_left_out_until_it_has_room_again(cluster: PrivateCluster, sh: Sh) -> None:
    spool = cluster.directory / "nodes" / "n2"
    cluster.ok("gq", "down")
    small_disk(sh, spool)
    cluster.up()
    sh(f"cat /dev/zero > {spool}/filler || true")
    gang = submit(cluster, "-N2", wrap="echo $GQ_JOB_ID >> ran")
    wait_until(lambda: instants(cluster, "JobRequeued", gang), LONG_S, "the gang is pending again")
    found = facts(cluster, gang)
    assert (found["state"], found["reason"]) == ("PENDING", "LaunchFailed")
    assert "No space left on device" in found["why"] and "node n2" in found["why"]
    assert not (cluster.workdir / "ran").exists()

    sh(f"rm {spool}/filler")
    cluster.ok("gqctl", "node", "resume", "n2")
    await_state(cluster, gang, "COMPLETED")
    assert (cluster.workdir / "ran").read_text() == f"{gang}\n"


@pytest.mark.slow
def test_a_job_that_ends_while_the_spool_of_its_node_is_full_is_reported_with_its_exit_code(
    cluster: PrivateCluster, sh: Sh
) -> None:
    spool = cluster.directory / "nodes" / "n2"
    cluster.ok("gq", "down")
    small_disk(sh, spool)
    cluster.up()
    job = submit(cluster, "-w", "n2", wrap="touch began; while [ ! -e go ]; do sleep 0.05; done; touch over; exit 6")
    wait_until((cluster.workdir / "began").exists, LONG_S, "it runs")
    sh(f"cat /dev/zero > {spool}/filler || true")
    (cluster.workdir / "go").touch()
    wait_until((cluster.workdir / "over").exists, LONG_S, "it ends while nothing can be written")

    sh(f"rm {spool}/filler")
    cluster.up()
    ended = await_state(cluster, job, "FAILED")
    assert (ended["exit_code"], ended["restart_count"]) == (6, 0)


def test_a_controller_whose_disk_is_full_acknowledges_nothing_that_it_cannot_keep(yard: ClusterYard, sh: Sh) -> None:
    cluster = yard.make(config=config())
    cluster.ok("gq", "down")
    directory = cluster.directory
    copy = f"{directory}.copy"
    sh(f"cp -a {directory} {copy}; mount -t tmpfs -o size=4m,mode=700 none {directory}")
    sh(f"cp -a {copy}/. {directory}; rm -rf {copy}")
    cluster.up()
    kept = submit(cluster, "--hold", wrap="true")
    sh(f"cat /dev/zero > {directory}/filler || true")
    refused = cluster.run("gqsub", "--hold", "--wrap", "true")
    assert refused.returncode != 0 and refused.stdout == ""
    assert refused.stderr.startswith("error: ")

    sh(f"rm {directory}/filler")
    cluster.up()
    assert facts(cluster, kept)["state"] == "PENDING"
    again = submit(cluster, "--hold", wrap="true")
    assert facts(cluster, again)["state"] == "PENDING"
    cluster.ok("gq", "down", "--yes")
    sh(f"umount {directory}")
