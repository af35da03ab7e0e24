"""Jobs that give way, on real daemons: they save their work and go on, or are ended; the other one starts."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterYard, PrivateCluster, wait_until
from tests.integration.jobs import (
    LONG_S,
    Facts,
    MakeCluster,
    await_file,
    await_state,
    config,
    facts,
    instants,
    submit,
)

TRAIN = Path(__file__).parents[2] / "examples" / "jobs" / "train.py"
WHOLE = ("-G4", "-t", "10")
GRACE_S = 3


pytestmark = pytest.mark.xdist_group("preemption")  # so that the cluster is set up once


def cluster_of(make: MakeCluster, nodes: int = 1) -> PrivateCluster:
    return make(config=config(nodes=nodes, cpus=8, gpus=4, memory="4G", grace_s=GRACE_S))


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return cluster_of(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def urgent(cluster: PrivateCluster, *options: str, wrap: str = "true") -> str:
    """Of the ordinary QOS, to which a scavenger gives way."""
    return submit(cluster, *(options or WHOLE), wrap=wrap)


def lines(cluster: PrivateCluster, job: str) -> list[str]:
    return cluster.run("gqlog", job).stdout.splitlines()


def await_times(path: Path, text: str, times: int) -> None:
    wait_until(lambda: path.exists() and path.read_text().count(text) == times, LONG_S, f"{text!r} is in {path}")


def undisturbed(directory: Path, steps: int) -> str:
    directory.mkdir()
    subprocess.run([sys.executable, str(TRAIN), str(steps), "0"], cwd=directory, check=True, timeout=60)
    return (directory / "result.json").read_text()


def test_training_that_saves_its_work_when_told_is_preempted_twice_and_ends_as_if_undisturbed(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    steps = 300
    command = f"gqrun {shlex.quote(sys.executable)} {shlex.quote(str(TRAIN))} {steps} 0.03"
    job = submit(cluster, *WHOLE, "-q", "scavenger", "--signal=USR1@2", "-o", "train.log", wrap=command)
    log = cluster.workdir / "train.log"
    for count in (1, 2):
        await_times(log, " at step ", count)
        other = urgent(cluster)
        await_state(cluster, other, "COMPLETED")
        assert log.read_text().count("PREEMPTED BY JOB " + other) == 1, "it was told once"
    ended = await_state(cluster, job, "COMPLETED")

    assert (cluster.workdir / "result.json").read_text() == undisturbed(tmp_path / "alone", steps)
    assert ended["restart_count"] == 2
    assert log.read_text().count("DUE TO PREEMPTION") == 2, "its output was appended"
    assert 0 < ended["lost_gpu_s"] < 4 * 60
    assert len(instants(cluster, "JobCheckpointed", job)) >= 2


def test_one_that_ignores_the_signal_is_ended_after_its_grace_and_the_other_starts_soon_after(
    cluster: PrivateCluster,
) -> None:
    script = "#!/bin/sh\ntrap '' USR1 TERM\necho begun\nwhile :; do sleep 1; done\n"
    job = submit(cluster, *WHOLE, "-q", "scavenger", "--signal=B:USR1@1", "--grace=2s", "--no-requeue", script=script)
    wait_until(lambda: "begun" in lines(cluster, job), LONG_S, "it ignores signals by now")

    other = urgent(cluster, wrap="sleep 1")
    ended = await_state(cluster, job, "PREEMPTED")
    wait_until(lambda: instants(cluster, "JobStarted", other), LONG_S, "the other starts")

    [told], [over] = instants(cluster, "PreemptionDecided", other), instants(cluster, "JobEnding", job)[:1]
    [freed] = instants(cluster, "PartEmptied", job)
    assert over - told >= 1 and freed - over >= 2, "it had its notice, and its grace"
    assert ended["why"].startswith(f"it was preempted by job {other} of {ended['user']} after")
    assert ended["why"] in cluster.ok("gqwhy", job).replace("\n", "; ")
    await_state(cluster, other, "COMPLETED")


def test_all_ranks_of_a_gang_are_signalled_before_any_is_ended(private_cluster: MakeCluster) -> None:
    cluster = cluster_of(private_cluster, nodes=3)
    rank = (
        "trap 'date +%s.%N > told.$GQ_PROCID' USR1; trap 'date +%s.%N > ended.$GQ_PROCID; exit 1' TERM; "
        "touch up.$GQ_PROCID; while :; do sleep 0.05; done"
    )
    gang = ("-N3", "--ntasks-per-node=1", "--gpus-per-node=4", "-t", "10")
    job = submit(cluster, *gang, "-q", "scavenger", "--signal=USR1@2", wrap=f"gqrun sh -c {shlex.quote(rank)}")
    for number in range(3):
        wait_until((cluster.workdir / f"up.{number}").exists, LONG_S, f"rank {number} runs")

    other = urgent(cluster)

    told = [float(await_file(cluster.workdir / f"told.{number}")) for number in range(3)]
    ended = [float(await_file(cluster.workdir / f"ended.{number}")) for number in range(3)]
    assert max(told) < min(ended)
    await_state(cluster, other, "COMPLETED")
    again = await_state(cluster, job, "RUNNING")
    assert again["restart_count"] == 1
    cluster.ok("gqdel", job)


@pytest.mark.slow
def test_a_controller_and_a_node_that_are_killed_in_between_lose_nothing(private_cluster: MakeCluster) -> None:
    cluster = cluster_of(private_cluster)
    script = "#!/bin/sh\ntrap 'echo told' USR1\necho begun\nwhile :; do sleep 0.1; done\n"
    job = submit(cluster, *WHOLE, "-q", "scavenger", "--signal=B:USR1@4", script=script)
    wait_until(lambda: "begun" in lines(cluster, job), LONG_S, "it runs")
    other = urgent(cluster, wrap="sleep 1")
    wait_until(lambda: instants(cluster, "PreemptionDecided", other), LONG_S, "it is to give way")
    for daemon in ("gqd", "gqnode-n1"):
        cluster.kill(daemon)
    cluster.up()

    await_state(cluster, other, "COMPLETED")
    text = "\n".join(lines(cluster, job))
    assert text.count("told") in (1, 2) and text.count("PREEMPTED BY") in (1, 2), (
        "twice at most, where a crash was between"
    )
    again: Facts = await_state(cluster, job, "RUNNING")
    assert again["restart_count"] == 1
    cluster.ok("gqdel", job)


def test_if_the_other_goes_away_meanwhile_the_job_stays_and_is_told(cluster: PrivateCluster) -> None:
    script = "#!/bin/sh\ntrap '' USR1\necho begun\nwhile :; do sleep 0.1; done\n"
    job = submit(cluster, *WHOLE, "-q", "scavenger", "--signal=B:USR1@30", script=script)
    wait_until(lambda: "begun" in lines(cluster, job), LONG_S, "it runs")
    other = urgent(cluster)
    wait_until(lambda: f"is preempted by job {other}" in cluster.ok("gqwhy", job), LONG_S, "it is to give way")
    assert f"job {job} is preempted for it" in cluster.ok("gqwhy", other)

    cluster.ok("gqdel", other)

    wait_until(lambda: "is no longer preempted" in "\n".join(lines(cluster, job)), LONG_S, "it is told")
    assert facts(cluster, job)["state"] == "RUNNING"
    cluster.ok("gqdel", job)


def test_a_job_says_in_python_that_its_work_is_saved(cluster: PrivateCluster) -> None:
    code = "import gq, json; print(json.dumps([gq.checkpoint_done() for _ in range(50)]))"
    job = submit(cluster, "-t", "5", wrap=f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}")
    await_state(cluster, job, "COMPLETED")
    assert json.loads(cluster.ok("gqlog", job)) == [True] * 50
    assert 1 <= len(instants(cluster, "JobCheckpointed", job)) < 50, "once a second, no more"
    refused = cluster.run("gq", "checkpoint-done", GQ_JOB_ID=job)
    assert refused.returncode == 1 and "is not running" in refused.stderr
    outside = cluster.run(sys.executable, "-c", "import gq; print(gq.checkpoint_done())")
    assert outside.stdout == "False\n"


@pytest.mark.slow
def test_where_jobs_take_turns_one_that_saves_its_work_gives_its_turn_and_comes_back(
    private_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Without any QOS; what it cost is as it says itself, and where it stands in the queue is kept over a crash."""
    turns = '[scheduler]\npolicy = "las"\ntrial = "2s"\nturn = "3s"\nresume_cost = "1h"\n'
    cluster = private_cluster(config=config(nodes=1, cpus=8, gpus=4, memory="4G", grace_s=GRACE_S) + turns)
    steps = 300
    command = f"gqrun {shlex.quote(sys.executable)} {shlex.quote(str(TRAIN))} {steps} 0.03"
    options = (*WHOLE, "--signal=USR1@2", "-o", "train.log", "--resume-cost=1s")
    job = submit(cluster, *options, wrap=command)
    await_times(cluster.workdir / "train.log", " at step ", 1)

    other = submit(cluster, *WHOLE, "--no-requeue", wrap="sleep 1")
    wait_until(lambda: instants(cluster, "PreemptionDecided", other), LONG_S, "it takes the place of the first")
    cluster.kill("gqd")
    cluster.up()
    await_state(cluster, other, "COMPLETED")
    ended = await_state(cluster, job, "COMPLETED")

    [began], [told] = instants(cluster, "JobStarted", job)[:1], instants(cluster, "PreemptionDecided", other)
    assert told - began >= 2, "its trial was over"
    assert ended["restart_count"] == 1
    assert (cluster.workdir / "result.json").read_text() == undisturbed(tmp_path / "alone", steps)
