"""What a job sees: gq's names always, Slurm's as Slurm sets them, absences included (slurm 22.05, recorded)."""

from __future__ import annotations

from typing import Any

import pytest

from gq.model.ids import AttemptId, JobId, StepId
from gq.model.node import Gpu
from gq.model.resource import Grant
from gq.model.step import StepLayout, StepPart
from gq.request.environment import OWN_VARIABLES
from gq.wire.node import GangMember, Launch, LaunchStep
from gqnode.control.environment import gpus_of, job_environment, task_environment

LOCATION = {"GQ_DIR": "/home/ann/.local/state/gq"}
LOGIN = {"HOME": "/home/ann", "PATH": "/opt/gq/bin:/usr/bin", "USER": "ann"}


def _gpu(index: int, is_fake: bool) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index:04}", type="h100", memory_mib=81920, is_fake=is_fake)


FAKE = tuple(_gpu(index, is_fake=True) for index in range(8))
REAL = tuple(_gpu(index, is_fake=False) for index in range(8))


def _launch(nodes: int = 1, rank: int = 0, **facts: Any) -> Launch:
    members = tuple(
        GangMember(node=f"c{one + 1}", address=f"10.0.0.{one + 1}", tasks=2, cpus=4, gpus=len(facts.get("on_node", ())))
        for one in range(nodes)
    )
    gpus = facts.pop("on_node", ())
    given: dict[str, Any] = {
        "attempt_id": AttemptId(JobId(36), 1),
        "job_name": "gpujob",
        "cluster": "contract",
        "user": "root",
        "uid": 0,
        "gid": 0,
        "partition": "main",
        "node_rank": rank,
        "members": members,
        "grant": Grant(node=f"c{rank + 1}", tasks=2, cpus=(0, 1, 2, 3), gpus=gpus, memory_mib=1024),
        "chdir": "/scratch",
        "submit_dir": "/scratch/vc/g",
        "submit_host": "vm",
    }
    return Launch(**{**given, **facts})


def _batch(launch: Launch, submitted: dict[str, str] | None = None, gpus: tuple[Gpu, ...] = FAKE) -> dict[str, str]:
    granted = gpus_of(launch.grant.gpus, gpus)
    return job_environment(launch, submitted or {}, 20007, LOCATION, granted, LOGIN, 1000.0, 3600)


def _task(launch: Launch, local_rank: int = 0, client: dict[str, str] | None = None, **facts: Any) -> dict[str, str]:
    part_gpus = facts.pop("part_gpus", ())
    parts = tuple(
        StepPart(node=member.node, first_rank=2 * index, tasks=2, cpus=(0, 1), gpus=part_gpus)
        for index, member in enumerate(launch.members)
    )
    order = LaunchStep(
        step_id=StepId(JobId(36), 1, 3), key=b"", layout=StepLayout(**{"name": "step", "parts": parts, **facts})
    )
    gpus = gpus_of(part_gpus, FAKE)
    return task_environment(launch, order, client or {}, local_rank, 20007, LOCATION, gpus, LOGIN, 1000.0, 3600)


RECORDED_BATCH = {
    "SLURMD_NODENAME": "c1",
    "SLURM_CLUSTER_NAME": "contract",
    "SLURM_CPUS_ON_NODE": "4",
    "SLURM_CPUS_PER_TASK": "2",
    "SLURM_GPUS_ON_NODE": "1",
    "SLURM_GTIDS": "0",
    "SLURM_JOBID": "36",
    "SLURM_JOB_CPUS_PER_NODE": "4",
    "SLURM_JOB_GID": "0",
    "SLURM_JOB_GPUS": "0",
    "SLURM_JOB_ID": "36",
    "SLURM_JOB_NAME": "gpujob",
    "SLURM_JOB_NODELIST": "c1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_PARTITION": "main",
    "SLURM_JOB_QOS": "normal",
    "SLURM_JOB_UID": "0",
    "SLURM_JOB_USER": "root",
    "SLURM_LOCALID": "0",
    "SLURM_MEM_PER_NODE": "1024",
    "SLURM_NNODES": "1",
    "SLURM_NODEID": "0",
    "SLURM_NODELIST": "c1",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_SUBMIT_DIR": "/scratch/vc/g",
    "SLURM_SUBMIT_HOST": "vm",
    "SLURM_TASKS_PER_NODE": "2",
}
"""Of ``-n2 -c2 --gres=gpu:1 --mem=1G`` on Slurm itself, without what no client reads and what has no account yet."""


def _slurm(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("SLURM")}


def test_a_batch_script_sees_under_slurms_names_what_slurm_was_recorded_to_set() -> None:
    launch = _launch(on_node=(0,), ntasks=2, cpus_per_task=2, mem_per_node_mib=1024)

    assert _slurm(_batch(launch)) == RECORDED_BATCH


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, set()),
        ({"ntasks": 4}, {"SLURM_NTASKS", "SLURM_NPROCS"}),
        ({"ntasks_per_node": 2}, {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE"}),
        ({"ntasks_per_gpu": 2}, {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_GPU"}),
        ({"cpus_per_task": 2}, {"SLURM_CPUS_PER_TASK"}),
        ({"gpus": 2, "on_node": (0, 1)}, {"SLURM_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"}),
        ({"on_node": (0, 1)}, {"SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"}),
        ({"mem_per_node_mib": 2048}, {"SLURM_MEM_PER_NODE"}),
        ({"mem_per_cpu_mib": 512}, {"SLURM_MEM_PER_CPU"}),
        ({"restart_count": 1}, {"SLURM_RESTART_COUNT"}),
        ({"reservation": "night"}, {"SLURM_JOB_RESERVATION"}),
    ],
)
def test_slurms_names_for_wishes_are_absent_unless_it_was_asked_for(asked: dict[str, Any], names: set[str]) -> None:
    plain = set(_slurm(_batch(_launch(nodes=2))))

    assert set(_slurm(_batch(_launch(nodes=2, **asked)))) == plain | names
    assert not [name for name in plain if name.startswith(("SLURM_STEP", "SLURM_ARRAY"))]


def test_all_memory_of_the_node_is_said_as_a_number() -> None:
    assert _batch(_launch(mem_per_node_mib=0))["SLURM_MEM_PER_NODE"] == "1024"


def test_a_gang_sees_compressed_lists_and_the_place_to_meet() -> None:
    seen = _batch(_launch(nodes=4, on_node=(0, 1)))

    assert seen["SLURM_JOB_NODELIST"] == seen["GQ_NODELIST"] == "c[1-4]"
    assert seen["SLURM_JOB_CPUS_PER_NODE"] == "4(x4)"
    assert seen["SLURM_TASKS_PER_NODE"] == "2(x4)"
    assert seen["GQ_NODE_ADDRS"] == "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"
    assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("10.0.0.1", "20007")
    assert (seen["GQ_NNODES"], seen["GQ_NTASKS"], seen["GQ_GPUS"], seen["GQ_GPUS_ON_NODE"]) == ("4", "8", "8", "2")


def test_gqs_own_names_are_always_set() -> None:
    always = """
        JOB_ID JOB_NAME NODELIST NNODES NTASKS NODEID PROCID LOCALID STEP_ID CPUS_ON_NODE GPUS GPUS_ON_NODE
        NODE_ADDRS RESTART_COUNT SUBMIT_DIR JOB_END_TIME
    """

    for seen in (_batch(_launch()), _task(_launch())):
        assert [name for name in always.split() if f"GQ_{name}" not in seen] == []
        assert seen["GQ_JOB_END_TIME"] == "4600"


@pytest.mark.parametrize(
    ("granted", "inventory", "expected"),
    [((), FAKE, ""), ((2, 5), FAKE, "2,5"), ((2, 5), REAL, "GPU-0002,GPU-0005")],
)
def test_cuda_sees_exactly_the_granted_gpus_by_uuid_where_they_are_real(
    granted: tuple[int, ...], inventory: tuple[Gpu, ...], expected: str
) -> None:
    assert _batch(_launch(on_node=granted), gpus=inventory)["CUDA_VISIBLE_DEVICES"] == expected


def test_what_was_true_of_another_job_does_not_come_in_but_the_users_own_variables_do() -> None:
    submitted = dict.fromkeys(OWN_VARIABLES, "stale") | {
        "SLURM_HOSTFILE": "/hosts",
        "SLURM_TIME_FORMAT": "%s",
        "OMP_NUM_THREADS": "8",
        "PATH": "/my/bin",
        "GQ_DIR": "/elsewhere",
    }

    for seen in (_batch(_launch(), submitted), _task(_launch(), client=submitted)):
        assert "stale" not in seen.values()
        assert (seen["SLURM_HOSTFILE"], seen["SLURM_TIME_FORMAT"]) == ("/hosts", "%s")
        assert (seen["OMP_NUM_THREADS"], seen["PATH"]) == ("8", "/my/bin")
        assert seen["GQ_DIR"] == LOCATION["GQ_DIR"]


def test_without_any_environment_a_job_has_a_login_and_finds_its_cluster() -> None:
    seen = _batch(_launch())

    assert {name: seen[name] for name in LOGIN} == LOGIN
    assert seen["GQ_DIR"] == LOCATION["GQ_DIR"]
    assert not [name for name in LOCATION if name.startswith(("SLURM_", "SRUN_", "SBATCH_"))]


RECORDED_TASKS = [
    # rank, node, local rank, node index: as recorded of `srun` on 2 nodes × 2 tasks
    (0, 0, 0),
    (1, 0, 1),
    (2, 1, 0),
    (3, 1, 1),
]


@pytest.mark.parametrize(("rank", "node", "local_rank"), RECORDED_TASKS)
def test_a_task_knows_its_rank_its_place_and_its_step(rank: int, node: int, local_rank: int) -> None:
    seen = _task(_launch(nodes=2, rank=node, ntasks=4, ntasks_per_node=2), local_rank)

    for prefix in ("SLURM", "GQ"):
        found = tuple(
            seen[f"{prefix}_{name}"] for name in ("PROCID", "LOCALID", "NODEID", "NTASKS", "NNODES", "STEP_ID")
        )
        assert found == (str(rank), str(local_rank), str(node), "4", "2", "3")
    assert (seen["SLURM_STEP_NODELIST"], seen["SLURM_STEP_NUM_NODES"]) == ("c[1-2]", "2")
    assert (seen["SLURM_STEP_NUM_TASKS"], seen["SLURM_STEP_TASKS_PER_NODE"]) == ("4", "2(x2)")
    assert (seen["SLURM_NTASKS_PER_NODE"], seen["SLURMD_NODENAME"]) == ("2", f"c{node + 1}")
    assert seen["SLURM_GTIDS"] == ("0,1" if node == 0 else "2,3")


def test_a_task_always_knows_how_many_there_are_even_if_the_job_did_not_ask_for_tasks() -> None:
    launch = _launch()

    assert "SLURM_NTASKS" not in _batch(launch)
    assert _task(launch)["SLURM_NTASKS"] == _task(launch)["SLURM_NPROCS"] == "2"


@pytest.mark.parametrize(
    ("tasks_per_gpu", "local_rank", "expected"), [(1, 0, "4"), (1, 1, "5"), (2, 0, "4"), (2, 1, "4")]
)
def test_tasks_that_share_a_gpu_see_only_that_gpu(tasks_per_gpu: int, local_rank: int, expected: str) -> None:
    launch = _launch(on_node=(4, 5), ntasks_per_gpu=tasks_per_gpu)

    seen = _task(launch, local_rank, part_gpus=(4, 5), tasks_per_gpu=tasks_per_gpu)

    assert seen["CUDA_VISIBLE_DEVICES"] == expected


@pytest.mark.parametrize(
    ("gpus_per_task", "local_rank", "expected"), [(None, 0, "4,5,6,7"), (2, 0, "4,5"), (2, 1, "6,7"), (0, 0, "")]
)
def test_a_task_sees_the_gpus_of_its_step_or_its_own_share_of_them(
    gpus_per_task: int | None, local_rank: int, expected: str
) -> None:
    launch = _launch(on_node=tuple(range(8)))

    seen = _task(launch, local_rank, part_gpus=(4, 5, 6, 7), gpus_per_task=gpus_per_task)

    assert seen["CUDA_VISIBLE_DEVICES"] == expected
    assert seen["SLURM_STEP_GPUS"] == "4,5,6,7"
    assert seen["SLURM_JOB_GPUS"] == "0,1,2,3,4,5,6,7"


# ── sweeps ────────────────────────────────────────────────────────────────────────────────────────────────────

SWEPT = {"parameters": (("lr", "1e-3"), ("note", "a b"))}


def test_a_task_of_a_sweep_has_its_values_under_their_names_and_under_names_of_gqs() -> None:
    seen = _batch(_launch(**SWEPT), {"lr": "what the submitter had", "GQ_SWEEP_old": "of the job that submitted"})

    assert (seen["lr"], seen["note"]) == ("1e-3", "a b")
    assert {name: value for name, value in seen.items() if name.startswith("GQ_SWEEP")} == {
        "GQ_SWEEP_lr": "1e-3",
        "GQ_SWEEP_note": "a b",
    }


def test_a_step_has_the_values_of_its_sweep_and_what_the_script_made_of_them() -> None:
    launch = _launch(**SWEPT)

    assert _task(launch)["lr"] == "1e-3"
    changed = _task(launch, client={"lr": "0.5", "GQ_SWEEP_lr": "0.5"})
    assert (changed["lr"], changed["note"], changed["GQ_SWEEP_lr"]) == ("0.5", "a b", "1e-3")
