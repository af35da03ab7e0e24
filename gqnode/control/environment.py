"""Builds the environment of a batch script and of a step's tasks on this node.  Pure: all inputs are arguments.

The user's variables come first, without those that described another job or step; then the login variables that are
missing; then the facts of this job.  `location_env` always identifies the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gq.model.node import Gpu
from gq.model.nodelist import compress, compress_counts
from gq.model.step import StepLayout, StepPart, StepRole
from gq.request.environment import OWN_VARIABLES, job_variables, own_parameters, without
from gq.wire.node import Launch, LaunchStep

BATCH_STEP = "batch"
"""``GQ_STEP_ID`` of the batch script, which is no step."""


def job_environment(
    launch: Launch,
    submitted_env: Mapping[str, str],
    master_port: int,
    location_env: Mapping[str, str],
    gpus: Sequence[Gpu],
    login_env: Mapping[str, str],
    start_at: float,
    time_limit_s: int | None,
) -> dict[str, str]:
    """Return the batch script's environment.

    `gpus` are the GPUs granted on this node; `login_env` holds the variables that a login of the user would set.
    """
    return {
        **login_env,
        **without(submitted_env, OWN_VARIABLES),
        **own_parameters(launch),
        "PWD": launch.chdir,
        **job_variables(launch, master_port, start_at, time_limit_s),
        **_place(launch, launch.node_rank, 0, 0, len(launch.grant.cpus)),
        **_gpu_variables(launch, gpus, gpus),
        "GQ_STEP_ID": BATCH_STEP,
        "SLURM_GTIDS": "0",
        **location_env,
    }


def task_environment(
    launch: Launch,
    step: LaunchStep,
    client_env: Mapping[str, str],
    local_rank: int,
    master_port: int,
    location_env: Mapping[str, str],
    gpus: Sequence[Gpu],
    login_env: Mapping[str, str],
    start_at: float,
    time_limit_s: int | None,
) -> dict[str, str]:
    """Return the environment of one task on this node.

    `client_env` is `gqrun`'s own environment; `gpus` are the GPUs of the task's step, or role, on this node.
    """
    layout = step.layout
    node_index, part = _own_part(layout, launch.grant.node)
    rank = part.ranks[local_rank]
    role = part.role_of(rank)
    return {
        **login_env,
        **own_parameters(launch),
        **without(client_env, OWN_VARIABLES),
        **job_variables(launch, master_port, start_at, time_limit_s),
        **_step_variables(launch, step),
        **_place(launch, node_index, rank, local_rank, len(part.cpus if role is None else role.cpus)),
        **_role_variables(layout, rank, role),
        **_gpu_variables(launch, _gpus_of_task(layout, gpus, local_rank, rank, role), gpus),
        **({"SLURM_STEP_GPUS": _indices(gpus)} if gpus else {}),
        "SLURM_GTIDS": ",".join(map(str, part.ranks)),
        **location_env,
    }


def gpus_of(indices: Sequence[int], inventory: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the node's GPUs with these indices, in their order, without GPUs that no longer exist."""
    return tuple(gpu for index in indices for gpu in inventory if gpu.index == index)


def _own_part(layout: StepLayout, node: str) -> tuple[int, StepPart]:
    for index, part in enumerate(layout.parts):
        if part.node == node:
            return index, part
    raise ValueError(f"the step has no part on {node}")


def _place(launch: Launch, node_index: int, rank: int, local_rank: int, cpus: int) -> dict[str, str]:
    """Return the variables that say which task on which node this is."""
    facts = {
        "NODEID": node_index,
        "PROCID": rank,
        "LOCALID": local_rank,
        "CPUS_ON_NODE": cpus,
    }
    named = {f"{prefix}_{name}": str(value) for name, value in facts.items() for prefix in ("GQ", "SLURM")}
    return {**named, "GQ_NODENAME": launch.grant.node, "SLURMD_NODENAME": launch.grant.node}


def _step_variables(launch: Launch, step: LaunchStep) -> dict[str, str]:
    """Return the variables of the step; counts are the step's, the node list stays the job's (as in Slurm)."""
    layout = step.layout
    nodelist = compress(part.node for part in layout.parts)
    nodes, tasks, number = str(len(layout.parts)), str(layout.ntasks), str(step.step_id.step)
    tasks_per_node = compress_counts(part.tasks for part in layout.parts)
    facts = {
        "GQ_STEP_ID": number,
        "GQ_STEP_NODELIST": nodelist,
        "GQ_NNODES": nodes,
        "GQ_NTASKS": tasks,
        "GQ_TASKS_PER_NODE": tasks_per_node,
        "GQ_CPUS_PER_TASK": str(layout.cpus_per_task),
        "SLURM_STEP_ID": number,
        "SLURM_STEPID": number,
        "SLURM_STEP_NODELIST": nodelist,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_STEP_NUM_TASKS": tasks,
        "SLURM_STEP_TASKS_PER_NODE": tasks_per_node,
        "SLURM_NNODES": nodes,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_TASKS_PER_NODE": tasks_per_node,
    }
    if launch.cpus_per_task is not None or layout.cpus_per_task > 1:
        facts["SLURM_CPUS_PER_TASK"] = str(layout.cpus_per_task)
    counts = {part.tasks for part in layout.parts}
    if launch.ntasks_per_node is not None and len(counts) == 1:
        facts["SLURM_NTASKS_PER_NODE"] = str(counts.pop())
    return facts


def _role_variables(layout: StepLayout, rank: int, role: StepRole | None) -> dict[str, str]:
    """Return the role of a task of a heterogeneous job, and how many tasks of the step have that role."""
    if role is None:
        return {}
    alike = sum(one.tasks for part in layout.parts for one in part.roles if one.role == role.role)
    facts = {
        "GQ_ROLE": role.role,
        "GQ_ROLE_RANK": str(role.first_role_rank + rank - role.first_rank),
        "GQ_ROLE_NTASKS": str(alike),
        "GQ_CPUS_PER_TASK": str(role.cpus_per_task),
    }
    return facts | ({"SLURM_CPUS_PER_TASK": str(role.cpus_per_task)} if role.cpus_per_task > 1 else {})


def _gpus_of_task(
    layout: StepLayout, gpus: Sequence[Gpu], local_rank: int, rank: int, role: StepRole | None
) -> Sequence[Gpu]:
    each = layout.gpus_per_task if role is None else role.gpus_per_task
    index = local_rank if role is None else rank - role.first_rank
    if sharing := layout.tasks_per_gpu if role is None else role.tasks_per_gpu:
        return gpus[index // sharing : index // sharing + 1]
    return gpus if each is None else gpus[index * each : (index + 1) * each]


def _gpu_variables(launch: Launch, visible: Sequence[Gpu], on_node: Sequence[Gpu]) -> dict[str, str]:
    """Return the GPU variables.

    ``CUDA_VISIBLE_DEVICES`` is always set, so that a job without GPUs sees none; Slurm's variables only with GPUs.
    """
    facts = {
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu.index) if gpu.is_fake else gpu.uuid for gpu in visible),
        "GQ_GPUS_ON_NODE": str(len(on_node)),
    }
    if launch.grant.gpus:
        facts["SLURM_JOB_GPUS"] = ",".join(str(index) for index in launch.grant.gpus)
        facts["SLURM_GPUS_ON_NODE"] = str(len(on_node))
        facts["GPU_DEVICE_ORDINAL"] = _indices(visible)
    return facts


def _indices(gpus: Sequence[Gpu]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)
