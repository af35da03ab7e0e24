"""What a batch script and a task find in their environment on real nodes, by gq's names and by Slurm's."""

from __future__ import annotations

import json
import os

import pytest

from tests.clusters import PrivateCluster
from tests.integration.jobs import await_state, submit

DUMP = "python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'"
ONE_OF_EACH = """#!/bin/sh
{dump} > batch-$GQ_JOB_ID
gqrun sh -c "{task}"
"""
STEP_ONLY = ("STEP_ID", "STEPID", "STEP_NODELIST", "STEP_NUM_NODES", "STEP_NUM_TASKS", "STEP_TASKS_PER_NODE")


def dumps(cluster: PrivateCluster, *options: str, **environ: str) -> list[dict[str, str]]:
    """The environments of a batch script and of its tasks, by rank."""
    task = DUMP.replace('"', '\\"') + " > task-$GQ_JOB_ID-$GQ_PROCID"
    script = ONE_OF_EACH.format(dump=DUMP, task=task.replace("$", "\\$"))
    job = submit(cluster, *options, script=script, **environ)
    await_state(cluster, job, "COMPLETED")
    tasks = sorted(cluster.workdir.glob(f"task-{job}-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return [json.loads(path.read_text()) for path in (cluster.workdir / f"batch-{job}", *tasks)]


def test_a_job_that_asks_for_little_finds_what_slurm_sets_and_no_more(shared_cluster: PrivateCluster) -> None:
    batch, task = dumps(shared_cluster, "-J", "plain", "-w", "n2")
    job = batch["GQ_JOB_ID"]
    both = {
        **dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), job),
        **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME", "GQ_NODELIST"), "n2"),
        **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "GQ_NNODES"), "1"),
        **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "GQ_PROCID", "GQ_LOCALID", "GQ_NODEID"), "0"),
        **dict.fromkeys(("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_TASKS_PER_NODE"), "1"),
        "SLURM_JOB_NAME": "plain",
        "SLURM_JOB_PARTITION": "main",
        "SLURM_CLUSTER_NAME": "gq",
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_SUBMIT_DIR": str(shared_cluster.workdir),
        "GQ_SUBMIT_DIR": str(shared_cluster.workdir),
        "SLURM_SUBMIT_HOST": os.uname().nodename,
        "GQ_RESTART_COUNT": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "GQ_DIR": str(shared_cluster.directory),
        "GQ_NODE_ADDRS": "127.0.0.1",
        "MASTER_ADDR": "127.0.0.1",
    }
    asked_for = ("NTASKS_PER_NODE", "CPUS_PER_TASK", "GPUS", "MEM_PER_NODE", "MEM_PER_CPU", "RESTART_COUNT")
    without_gpus = ("GPUS_ON_NODE", "JOB_GPUS", "STEP_GPUS", "ARRAY_JOB_ID", "ARRAY_TASK_ID")
    for environment in (batch, task):
        assert both.items() <= environment.items()
        assert not [name for name in (*asked_for, *without_gpus) if f"SLURM_{name}" in environment]
    assert not [name for name in ("NTASKS", "NPROCS", *STEP_ONLY) if f"SLURM_{name}" in batch]
    assert (task["SLURM_NTASKS"], task["SLURM_STEP_ID"], task["SLURM_STEP_NODELIST"]) == ("1", "0", "n2")


def test_a_gang_that_asks_for_much_finds_all_of_it_and_each_task_its_place(shared_cluster: PrivateCluster) -> None:
    shape = ("-N2", "--ntasks-per-node=2", "-c2", "--gpus-per-task=2", "--mem-per-cpu=64M")
    batch, *tasks = dumps(shared_cluster, *shape)
    both = {
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_MEM_PER_CPU": "64",
        "SLURM_GPUS_ON_NODE": "4",
        "SLURM_JOB_GPUS": "0,1,2,3",
        "GQ_NODELIST": "n[1-2]",
        "GQ_GPUS": "8",
        "GQ_NODE_ADDRS": "127.0.0.1,127.0.0.1",
    }
    for environment in (batch, *tasks):
        assert both.items() <= environment.items()
        assert environment["MASTER_PORT"] == batch["MASTER_PORT"]
    places = [
        (one["SLURM_PROCID"], one["SLURM_NODEID"], one["SLURM_LOCALID"], one["CUDA_VISIBLE_DEVICES"]) for one in tasks
    ]
    assert places == [("0", "0", "0", "0,1"), ("1", "0", "1", "2,3"), ("2", "1", "0", "0,1"), ("3", "1", "1", "2,3")]
    assert {(one["SLURM_STEP_NUM_NODES"], one["SLURM_STEP_NUM_TASKS"]) for one in tasks} == {("2", "4")}


def test_tasks_that_share_a_gpu_see_only_that_gpu(shared_cluster: PrivateCluster) -> None:
    batch, *tasks = dumps(shared_cluster, "-n4", "--ntasks-per-gpu=2")

    for environment in (batch, *tasks):
        assert (environment["SLURM_NTASKS_PER_GPU"], environment["SLURM_NTASKS"]) == ("2", "4")
        assert environment["GQ_GPUS"] == "2"
    gpus = batch["SLURM_JOB_GPUS"].split(",")
    assert [task["CUDA_VISIBLE_DEVICES"] for task in tasks] == [gpus[0], gpus[0], gpus[1], gpus[1]]


@pytest.mark.parametrize(
    ("export", "seen"),
    [("ALL", ("mine", None)), ("NONE", (None, None)), ("NAMED=5", (None, "5")), ("ALL,NAMED=5", ("mine", "5"))],
)
def test_export_says_what_of_the_submitters_environment_comes_along_and_gq_is_found_always(
    shared_cluster: PrivateCluster, export: str, seen: tuple[str | None, str | None]
) -> None:
    batch, task = dumps(shared_cluster, f"--export={export}", OWN="mine", SLURM_JOB_ID="77", GQ_JOB_ID="77")
    for environment in (batch, task):
        assert (environment.get("OWN"), environment.get("NAMED")) == seen
        assert environment["SLURM_JOB_ID"] == environment["GQ_JOB_ID"] != "77"
