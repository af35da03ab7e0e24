"""A gang of roles on real daemons: started together, each task with what its role was given, or not started at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterYard, PrivateCluster
from tests.integration.jobs import MakeCluster, await_file, await_state, facts, submit, why

GANG = ("--role", "ps:2,cpus=1", "--role", "worker:2,gpus=2,nodes=2")
TELL = (
    "echo $GQ_ROLE $GQ_ROLE_RANK/$GQ_ROLE_NTASKS of $GQ_PROCID/$GQ_NTASKS on $GQ_NODENAME:"
    " $GQ_CPUS_ON_NODE cpus, gpus ${CUDA_VISIBLE_DEVICES:-none}"
)


pytestmark = pytest.mark.xdist_group("roles")  # so that the cluster is set up once


def made(make: MakeCluster) -> PrivateCluster:
    return make(nodes=2, fake_gpus=2, cpus=4)


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return made(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def output(cluster: PrivateCluster, job: str) -> list[str]:
    return (cluster.workdir / f"gq-{job}.out").read_text().splitlines()


def variables(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def test_a_gang_is_started_together_and_each_task_knows_its_role(cluster: PrivateCluster) -> None:
    job = submit(cluster, *GANG, script=f"#!/bin/sh\nenv > batch-env\ngqrun sh -c '{TELL}'\n")
    found = await_state(cluster, job, "COMPLETED")

    assert (found["gpus"], found["cpus"]) == (4, 4)
    told = output(cluster, job)
    places = [line.partition(" on ")[0] for line in sorted(told)]
    assert places == ["ps 0/2 of 0/4", "ps 1/2 of 1/4", "worker 0/2 of 2/4", "worker 1/2 of 3/4"]
    assert {line.partition("gpus ")[2] for line in told if line.startswith("ps")} == {"none"}
    assert {line.partition("gpus ")[2] for line in told if line.startswith("worker")} == {"0,1"}
    seen = variables(cluster.workdir / "batch-env")
    assert seen["GQ_ROLES"] == "ps,worker"
    assert (seen["GQ_ROLE_PS_NTASKS"], seen["GQ_ROLE_WORKER_NTASKS"], seen["GQ_ROLE_WORKER_NNODES"]) == ("2", "2", "2")
    assert seen["GQ_ROLE_WORKER_NODELIST"] == seen["SLURM_JOB_NODELIST_HET_GROUP_1"] == "n[1-2]"
    assert (seen["SLURM_HET_SIZE"], seen["SLURM_JOB_ID_HET_GROUP_1"]) == ("2", job)
    assert "GQ_ROLE" not in seen


def test_a_gang_whose_workers_do_not_fit_does_not_start_any_role(cluster: PrivateCluster) -> None:
    holder = submit(cluster, "--gpus=1", wrap="while [ ! -e go ]; do sleep 0.05; done")
    await_state(cluster, holder, "RUNNING")
    job = submit(cluster, *GANG, wrap="true")
    story = why(cluster, job)

    assert (facts(cluster, job)["state"], story["reason"]) == ("PENDING", "Resources")
    [shown] = json.loads(cluster.ok("gqctl", "show", job, "--json"))
    assert shown["grants"] == []

    (cluster.workdir / "go").touch()
    await_state(cluster, job, "COMPLETED")


def test_a_step_of_one_role_and_two_programs_in_one_step(cluster: PrivateCluster) -> None:
    script = """#!/bin/sh
gqrun --role ps sh -c 'echo only $GQ_ROLE $GQ_ROLE_RANK' | sort
gqrun --het-group=1 sh -c 'echo second $GQ_ROLE' | sort
gqrun --role ps sh -c 'echo serve $GQ_ROLE $GQ_PROCID' : --role worker sh -c 'echo train $GQ_ROLE $GQ_PROCID' | sort
gqrun -N1 -n1 sh -c 'echo alone "${GQ_ROLE-none}"'
gqrun --role nobody true 2>&1
gqrun --role ps true : --role ps true 2>&1
"""
    job = submit(cluster, *GANG, script=script)
    await_file(cluster.workdir / f"gq-{job}.out")
    await_state(cluster, job, "COMPLETED", "FAILED")

    assert output(cluster, job) == [
        "only ps 0", "only ps 1", "second worker", "second worker",
        "serve ps 0", "serve ps 1", "train worker 2", "train worker 3",
        "alone none",
        f"error: job {job} has no role `nobody`", "hint: it has `ps`, `worker`, numbered from 0",
        "error: two components run in role `ps`", "hint: name the role in one component only",
    ]  # fmt: skip


def test_the_components_of_a_slurm_script_are_roles(cluster: PrivateCluster) -> None:
    script = """#!/bin/sh
#SBATCH --job-name=role-0 --ntasks=1 --cpus-per-task=1
#SBATCH hetjob
#SBATCH --job-name=role-1 --ntasks=2 --gpus-per-task=1
gqrun sh -c 'echo $GQ_ROLE $SLURM_PROCID' : --het-group=1 sh -c 'echo gpu $GQ_ROLE $SLURM_PROCID' | sort
"""
    job = submit(cluster, script=script)
    found = await_state(cluster, job, "COMPLETED")

    assert found["name"] == "role-0"
    assert output(cluster, job) == ["gpu role-1 1", "gpu role-1 2", "role-0 0"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two roles cannot have CPUs of their own on one CPU")
def test_tasks_of_different_roles_on_one_node_run_on_different_cpus(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, cpus=2)
    tell = 'import os; print(os.environ["GQ_ROLE"], *os.sched_getaffinity(0))'
    done = cluster.ok("gqrun", "--role", "a:1", "--role", "b:1", "python3", "-c", tell)

    (first, *of_a), (second, *of_b) = sorted(line.split() for line in done.splitlines())
    assert (first, second, len(of_a), len(of_b)) == ("a", "b", 1, 1)
    assert of_a != of_b


def test_gqrun_outside_runs_a_program_for_each_role(cluster: PrivateCluster) -> None:
    done = cluster.ok(
        "gqrun", "--role", "ps:1", "sh", "-c", "echo serve $GQ_ROLE", ":",
        "--role", "worker:2,gpus=1", "sh", "-c", "echo train $GQ_ROLE $CUDA_VISIBLE_DEVICES",
    )  # fmt: skip

    assert sorted(done.splitlines()) == ["serve ps", "train worker 0", "train worker 1"]


def test_gqalloc_holds_components_and_tells_its_command_of_them(cluster: PrivateCluster) -> None:
    told = cluster.ok("gqalloc", "-n1", ":", "-n2", "--gpus-per-task=1", "sh", "-c", "echo $GQ_ROLES $SLURM_HET_SIZE")

    assert told.split() == ["group0,group1", "2"]
