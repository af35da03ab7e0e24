"""Jobs that give way by standing still, on real daemons: another one runs on their GPUs, and then they go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster
from tests.effort import first
from tests.integration.jobs import Facts, MakeCluster, await_file, await_state, config, facts, instants, submit
from tests.integration.test_steering import COUNTING, await_more, await_rest, count

WHOLE = ("-G2", "-t", "10", "--mem=100M")
BESIDE = (*WHOLE, "--min-gpu-mem=8G")
HELD_MIB = 4000


def cluster_of(
    make: MakeCluster, scripts: Path, used: tuple[int, int] = (HELD_MIB, 0), kill: str = ""
) -> PrivateCluster:
    """One node with two GPUs of 16 GiB, of which so many MiB are in use; scavengers stand still when they give way."""
    gpus = []
    for mib in used:
        script = scripts / f"{mib}.jsonl"
        script.write_text(json.dumps({"at_s": 0, "memory_used_mib": mib}) + "\n")
        gpus.append(f"{{type = 'fake', memory = '16G', script = '{script}'}}")
    text = config(cpus=4, memory="4G", grace_s=3).replace("fake_gpu = []", f"fake_gpu = [{', '.join(gpus)}]")
    cluster = make(config=text + (f"[node.isolation]\nkill = '{kill}'\n" if kill else ""))
    cluster.ok("gqctl", "qos", "set", "scavenger", "--preempt-mode=suspend")
    return cluster


def listed(cluster: PrivateCluster, job: str) -> Facts:
    """As the controller tells it now."""
    [found] = json.loads(cluster.ok("gqstat", "--json", "-j", job))
    return dict(found)


def scavenger(cluster: PrivateCluster, counted: Path, *options: str) -> str:
    """It counts on, and has begun."""
    job = submit(cluster, *WHOLE, "-q", "scavenger", *options, wrap=COUNTING.format(counted))
    await_file(counted)
    return job


@pytest.mark.parametrize("kill", first(1, ["auto", "none"]))
def test_a_job_stands_still_while_another_has_its_gpus_and_goes_on_where_it_was(
    private_cluster: MakeCluster, tmp_path: Path, kill: str
) -> None:
    cluster = cluster_of(private_cluster, tmp_path, kill=kill)
    counted, go = cluster.workdir / "counted", cluster.workdir / "go"
    job = scavenger(cluster, counted)

    other = submit(
        cluster, *BESIDE, wrap=f"echo $CUDA_VISIBLE_DEVICES > gpus; while [ ! -e {go} ]; do sleep 0.05; done"
    )
    await_state(cluster, other, "RUNNING")

    await_rest(counted)
    assert await_file(cluster.workdir / "gpus").strip() == "0,1"
    told = listed(cluster, job)
    assert (told["state"], told["reason"], told["parked_for"]) == ("SUSPENDED", "Parked", other)
    assert listed(cluster, other)["runs_on_parked"] == [job]
    why = cluster.ok("gqwhy", job).replace("\n", " ")
    assert f"it was preempted by job {other} of " in why
    assert "which uses 2 GPUs of it" in why
    assert f"job {job} is suspended for it" in cluster.ok("gqwhy", other).replace("\n", " ")
    for daemon in ("gqd", "gqnode-n1"):
        cluster.kill(daemon)
    cluster.up()
    await_rest(counted)
    so_far = count(counted)()

    go.touch()

    await_state(cluster, other, "COMPLETED")
    await_more(counted)
    assert count(counted)() >= so_far
    again = listed(cluster, job)
    assert (again["state"], again["restart_count"], again["parked_for"]) == ("RUNNING", 0, None)
    assert facts(cluster, job)["suspended_s"] > 1.0
    [stood], [went] = instants(cluster, "JobParked", job), instants(cluster, "JobUnparked", job)
    assert stood <= instants(cluster, "JobStarted", other)[0] <= instants(cluster, "PartEmptied", other)[0] <= went
    cluster.ok("gqdel", job)
    await_state(cluster, job, "CANCELLED")


@pytest.mark.slow
def test_one_that_holds_too_much_of_the_memory_of_its_gpus_is_queued_again(
    private_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = cluster_of(private_cluster, tmp_path, used=(HELD_MIB, 12_000))
    job = scavenger(cluster, cluster.workdir / "counted")

    other = submit(cluster, *BESIDE, wrap="true")
    await_state(cluster, other, "COMPLETED")

    again = await_state(cluster, job, "RUNNING")
    assert again["restart_count"] == 1
    assert len(instants(cluster, "JobParking", job)) == 1 and not instants(cluster, "JobParked", job)
    cluster.ok("gqdel", job)


@pytest.mark.slow
def test_a_parked_job_that_is_cancelled_leaves_the_other_alone(private_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = cluster_of(private_cluster, tmp_path)
    job = scavenger(cluster, cluster.workdir / "counted")
    other = submit(cluster, *BESIDE, wrap="while [ ! -e go ]; do sleep 0.05; done")
    await_state(cluster, other, "RUNNING")

    cluster.ok("gqdel", job)

    await_state(cluster, job, "CANCELLED")
    assert facts(cluster, other)["state"] == "RUNNING"
    (cluster.workdir / "go").touch()
    await_state(cluster, other, "COMPLETED")
