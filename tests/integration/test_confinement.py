"""What a job cannot escape: the end of all its processes, its memory, its GPUs; with cgroups, and without any."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterYard, PrivateCluster, cluster_yard, wait_until
from tests.conftest import MARK
from tests.effort import first
from tests.integration.jobs import LONG_S, MakeCluster, await_state, config, node_facts, submit, why
from tests.integration.mount_namespace import ordinary_user
from tests.requires import needs_root

ESCAPES = """#!/bin/sh
stay='echo $$ >> pids; exec sleep 1000'
setsid sh -c "$stay" &
(setsid sh -c "$stay" &)
(setsid sh -c "(trap '' TERM HUP INT; $stay) &" &)
(env -i PATH="$PATH" setsid sh -c "(trap '' TERM; $stay) &" &)
gqrun sh -c "setsid sh -c '$stay' & until [ \\$(wc -l < pids) = 5 ]; do sleep 0.05; done"
cp pids all-pids
"""
ESCAPED = 5
EATER = """#!/usr/bin/env python3
import time
eaten = [b"x" * 2**26 for _ in range(6)]
time.sleep(600)
"""
NEIGHBOUR = 'python3 -c \'import time; kept = b"x" * (32 * 2**20); open("held", "w").close(); time.sleep(600)\''


@pytest.fixture(scope="module")
def user_yard(pytestconfig: pytest.Config) -> Iterator[ClusterYard]:
    """Clusters of somebody without any rights."""
    base = Path("/tmp") / f"{pytestconfig.stash[MARK]}-u"
    with ordinary_user() as run_as, cluster_yard(base, pytestconfig.stash[MARK], run_as) as yard:
        yield yard
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(params=[pytest.param("root", marks=needs_root), "user"])
def make(request: pytest.FixtureRequest) -> MakeCluster:
    """Makes clusters: of root, with the cgroups of this machine; of an ordinary user, with none."""
    if request.param == "root":
        found: MakeCluster = request.getfixturevalue("private_cluster")
        return found
    yard: ClusterYard = request.getfixturevalue("user_yard")
    request.addfinalizer(yard.end)
    return yard.make


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def escaped(cluster: PrivateCluster) -> list[int]:
    path = cluster.workdir / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", first(1, ["cancel", "exit", "limit"]))
def test_processes_that_left_the_session_their_parents_and_their_environment_are_gone_with_the_job(
    make: MakeCluster, end: str
) -> None:
    cluster = make(config=config(grace_s=1))
    job = submit(cluster, "-t", "10", script=ESCAPES if end == "exit" else f"{ESCAPES}sleep 600\n")
    if end != "exit":
        wait_until((cluster.workdir / "all-pids").exists, LONG_S, "all have escaped")
        assert [pid for pid in escaped(cluster) if is_alive(pid)], "they live while the job does"
        cluster.ok(*(("gqdel", job) if end == "cancel" else ("gqctl", "update", job, "--time=0:01")))
    await_state(cluster, job, {"exit": "COMPLETED", "cancel": "CANCELLED", "limit": "TIMEOUT"}[end])
    assert len(escaped(cluster)) == ESCAPED
    assert [pid for pid in escaped(cluster) if is_alive(pid)] == []


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_takes_more_memory_than_it_was_given_is_ended_and_its_neighbour_lives(make: MakeCluster) -> None:
    cluster = make(config=config(cpus=4, memory="1G"))
    neighbour = submit(cluster, "--mem=128M", wrap=NEIGHBOUR)
    wait_until((cluster.workdir / "held").exists, LONG_S, "the neighbour has its memory")
    greedy = submit(cluster, "--mem=96M", script=EATER)
    ended = await_state(cluster, greedy, "OUT_OF_MEMORY")
    assert ended["failure_class"] == "memory"
    assert "it exceeded its memory limit" in why(cluster, greedy)["why"]
    hidden = submit(cluster, "--mem=96M", wrap=f"cat > hide.py <<'EOF'\n{EATER}EOF\npython3 hide.py; exit 0")
    await_state(cluster, hidden, "OUT_OF_MEMORY")
    step = submit(cluster, "--mem=96M", wrap=f"cat > eat.py <<'EOF'\n{EATER}EOF\ngqrun python3 eat.py")
    await_state(cluster, step, "OUT_OF_MEMORY")
    assert await_state(cluster, neighbour, "RUNNING")["restart_count"] == 0
    cluster.ok("gqdel", neighbour)
    await_state(cluster, neighbour, "CANCELLED")


def test_each_user_is_told_what_is_enforced_and_how(make: MakeCluster) -> None:
    cluster = make(config=config())
    isolation = node_facts(cluster, "n1")["isolation"]
    if cluster.run_as.uid != 0:
        assert isolation == {
            "cpu": "none",
            "cpuset": "none",
            "memory": "watched",
            "devices": "environment",
            "pids": "none",
            "kill": "subreaper",
            "tmp": "shared",
            "user": "daemon",
        }
    else:
        assert set(isolation) == {"cpu", "cpuset", "memory", "devices", "pids", "kill", "tmp", "user"}
        assert isolation["user"] == "daemon", "a private cluster, also root's, runs jobs as its owner"


# ── GPUs ──────────────────────────────────────────────────────────────────────────────────────────────────────

OPEN_ALL = """#!/usr/bin/env python3
import errno, os, sys
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print("opened")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


@pytest.fixture
def gpu_nodes(cluster_base: Path) -> Iterator[list[Path]]:
    """Device nodes of GPUs that no machine has: ENXIO says that the job may open one, EPERM that it may not."""
    paths = [cluster_base / f"gpu{minor}" for minor in range(3)]
    for minor, path in enumerate(paths):
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(195, 230 + minor))
    yield paths
    for path in paths:
        path.unlink()


@needs_root
def test_a_job_that_forgets_what_it_was_given_still_opens_only_its_own_gpus(
    private_cluster: MakeCluster, gpu_nodes: list[Path]
) -> None:
    fakes = "fake_gpu = [" + ", ".join(f"{{type = 'fake', device = '{path}'}}" for path in gpu_nodes) + "]"
    cluster = private_cluster(config=config().replace("fake_gpu = []", fakes))
    if node_facts(cluster, "n1")["isolation"]["devices"] == "environment":
        pytest.skip("this machine has no cgroup that guards devices")
    paths = " ".join(map(str, gpu_nodes))
    (cluster.workdir / "open-all").write_text(OPEN_ALL)
    both = "python3 open-all {0} > batch-$GQ_JOB_ID; gqrun python3 open-all {0} > step-$GQ_JOB_ID; {1}"

    first = submit(cluster, "--gpus=1", wrap=both.format(paths, "exec sleep 600"))
    wait_until(lambda: _opened(cluster, f"step-{first}"), LONG_S, "the first has tried")
    second = submit(cluster, "--gpus=2", wrap=both.format(paths, "true"))
    none = submit(cluster, wrap=both.format(paths, "true"))
    for job in (second, none):
        await_state(cluster, job, "COMPLETED")
    granted = {first: ["ENXIO", "EPERM", "EPERM"], second: ["EPERM", "ENXIO", "ENXIO"], none: ["EPERM"] * 3}
    for job, expected in granted.items():
        assert _opened(cluster, f"batch-{job}") == _opened(cluster, f"step-{job}") == expected


def _opened(cluster: PrivateCluster, name: str) -> list[str]:
    path = cluster.workdir / name
    found = path.read_text().split() if path.exists() else []
    return found if len(found) == 3 else []
