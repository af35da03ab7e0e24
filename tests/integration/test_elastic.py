"""Elastic jobs on real daemons: they take what is idle, give it back in time, and nothing is given twice."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterYard, PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_file, await_state, facts, submit

EXAMPLE = Path(__file__).parents[2] / "examples" / "jobs" / "elastic.py"
HOLD = "while [ ! -e end ]; do sleep 0.1; done"
WORKER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
gpu, began = os.environ["CUDA_VISIBLE_DEVICES"], time.time()
log = open("uses.txt", "a", buffering=1)
while not os.path.exists("end"):
    log.write(f"{time.time()} {os.environ['GQ_JOB_ID']} {gpu}\\n")
    time.sleep(0.1)
"""
GROWS_S = 10.0
SHRINKS_S = 30.0


pytestmark = pytest.mark.xdist_group("elastic")  # so that the cluster is set up once


def made(make: MakeCluster) -> PrivateCluster:
    return make(nodes=1, fake_gpus=4, cpus=8)


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return made(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def gpus(cluster: PrivateCluster, job: str) -> int:
    [shown] = json.loads(cluster.ok("gqstat", "--json", "-j", job))
    return int(shown["gpus"])


def told(cluster: PrivateCluster, job: str) -> dict[str, object]:
    """The job's own file."""
    return dict(json.loads(Path(await_file(cluster.workdir / f"file-{job}").strip()).read_text()))


def elastic(cluster: PrivateCluster, wrap: str = HOLD, most: int = 4, *options: str) -> str:
    """It runs on all that is idle."""
    tells = 'echo "$GQ_ELASTIC_FILE" > file-$GQ_JOB_ID; '
    job = submit(cluster, f"--gpus=1-{most}", "-t", "1h", *options, wrap=tells + wrap)
    await_state(cluster, job, "RUNNING")
    return job


def test_it_takes_all_idle_gpus_and_is_told_so(cluster: PrivateCluster) -> None:
    job = elastic(cluster)
    wait_until(lambda: gpus(cluster, job) == 4, GROWS_S, "it has all four")
    wait_until(lambda: len(told(cluster, job)["current"]) == 4, GROWS_S, "the file says so")  # type: ignore[arg-type]
    path = Path(await_file(cluster.workdir / f"file-{job}").strip())
    assert path.stat().st_mode & 0o777 == 0o400
    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0
    wait_until(lambda: not path.exists(), LONG_S, "the file goes with the job")
    assert facts(cluster, job)["gpus"] == 4


def test_a_rival_gets_its_gpus_in_time_and_only_what_is_overdue_is_ended(cluster: PrivateCluster) -> None:
    """The job does not listen: of its two processes the one on a GPU that stays goes on."""
    keeper = "CUDA_VISIBLE_DEVICES=0 sh -c 'while [ ! -e end ]; do sleep 0.1; done; touch kept'"
    squatter = "while [ ! -e grown ]; do sleep 0.1; done; CUDA_VISIBLE_DEVICES=3 sleep 600; echo $? > squatter"
    job = elastic(cluster, f"({squatter}) & {keeper}; wait")
    wait_until(lambda: gpus(cluster, job) == 4, GROWS_S, "it has all four")
    (cluster.workdir / "grown").touch()

    rival = submit(cluster, "--gpus=3", "-t", "10", wrap="echo got $CUDA_VISIBLE_DEVICES > rival")

    assert await_file(cluster.workdir / "rival", SHRINKS_S) == "got 1,2,3\n"
    assert await_file(cluster.workdir / "squatter") == "137\n"
    assert cluster.run("gqwait", rival).returncode == 0
    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0
    assert (cluster.workdir / "kept").exists()


@pytest.mark.slow
def test_a_stream_of_rivals_beside_a_job_that_listens(cluster: PrivateCluster) -> None:
    """No task fails, and no GPU is used by two jobs at a time."""
    (cluster.workdir / "worker.py").write_text(WORKER)
    job = elastic(cluster, f"exec {sys.executable} {EXAMPLE} {sys.executable} worker.py")
    wait_until(lambda: gpus(cluster, job) == 4, GROWS_S, "it has all four")

    script = f"timeout 3 {sys.executable} worker.py; true"
    for count in (1, 3):
        at = time.monotonic()
        each = "".join(f"CUDA_VISIBLE_DEVICES=${{GPUS[{one}]}} {script} & " for one in range(count))
        rival = submit(cluster, f"--gpus={count}", "-t", "5", script=_script(each))
        await_state(cluster, rival, "RUNNING", "COMPLETED", within_s=SHRINKS_S)
        assert time.monotonic() - at < SHRINKS_S
        assert cluster.run("gqwait", rival).returncode == 0
        wait_until(lambda: gpus(cluster, job) == 4, 2 * GROWS_S, "it has taken them again")

    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0, cluster.ok("gqlog", job)
    assert _used_by_two(cluster.workdir / "uses.txt") == []


def _script(body: str) -> str:
    return f"#!/bin/bash\nIFS=, read -ra GPUS <<< $CUDA_VISIBLE_DEVICES\n{body} wait\n"


def _used_by_two(path: Path) -> list[tuple[str, str, str]]:
    """(GPU, job, job) where two jobs used a GPU at the same time."""
    spans: dict[tuple[str, str], list[list[float]]] = {}
    for line in path.read_text().splitlines():
        at, job, gpu = line.split()
        of = spans.setdefault((gpu, job), [])
        if of and float(at) - of[-1][1] < 1:
            of[-1][1] = float(at)
        else:
            of.append([float(at), float(at)])
    pairs = itertools.combinations([(*key, *span) for key, of in spans.items() for span in of], 2)
    return [
        (gpu, job, other)
        for (gpu, job, begin, end), (other_gpu, other, other_begin, other_end) in pairs
        if gpu == other_gpu and job != other and begin <= other_end and other_begin <= end
    ]


@pytest.mark.slow
def test_both_daemons_may_be_killed_in_the_middle_of_it(private_cluster: MakeCluster) -> None:
    cluster = made(private_cluster)
    job = elastic(cluster)
    wait_until(lambda: gpus(cluster, job) == 4, GROWS_S, "it has all four")
    rival = submit(cluster, "--gpus=2", "-t", "10", wrap="true")
    wait_until(lambda: told(cluster, job)["target"] != told(cluster, job)["current"], LONG_S, "it is told")
    cluster.kill("gqnode-n1")
    cluster.kill("gqd")
    cluster.up()
    await_state(cluster, rival, "RUNNING", "COMPLETED")
    assert facts(cluster, job)["state"] == "RUNNING"
    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0


@pytest.mark.slow
def test_cpus_come_and_go_with_gpus(cluster: PrivateCluster) -> None:
    """And what is given up is not taken by somebody who comes later."""
    job = elastic(cluster, HOLD, 4, "--cpus-per-gpu=2")
    wait_until(lambda: held(cluster, job) == (4, 8), GROWS_S, "it has all GPUs and all CPUs")
    rival = submit(cluster, "--gpus=2", "--cpus-per-gpu=2", "-t", "10", wrap=HOLD)
    wait_until(lambda: told(cluster, job)["target"] != told(cluster, job)["current"], LONG_S, "it is told")
    late = submit(cluster, "--gpus=2", "-t", "10", "--priority=1000000", wrap="true")
    await_state(cluster, rival, "RUNNING", within_s=SHRINKS_S)
    assert (held(cluster, job), held(cluster, rival)) == ((2, 4), (2, 4))
    assert facts(cluster, late)["state"] == "PENDING"
    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job, rival, late).returncode == 0


def held(cluster: PrivateCluster, job: str) -> tuple[int, int]:
    [shown] = json.loads(cluster.ok("gqstat", "--json", "-j", job))
    return int(shown["gpus"]), int(shown["cpus"])


def test_a_range_over_several_nodes_is_refused(cluster: PrivateCluster) -> None:
    refused = cluster.run("gqsub", "--gpus=1-4", "-N", "2", "--wrap", "true")
    assert refused.returncode == 1
    assert "--gpus=1-4 is for jobs on one node, and this job asks for 2" in refused.stderr


def test_the_range_may_be_in_the_script(cluster: PrivateCluster) -> None:
    job = submit(cluster, script="#!/bin/sh\n#GQ --gpus=fake:1-2 -t 5\nwhile [ ! -e end ]; do sleep 0.1; done\n")
    wait_until(lambda: gpus(cluster, job) == 2, GROWS_S + LONG_S, "it has its two")
    (cluster.workdir / "end").touch()
    assert cluster.run("gqwait", job).returncode == 0
