"""Environment variables with the facts of a job, under gq's names and Slurm's, for every process of the job.  Pure.

Both daemons use them: a node for the processes that it starts, the controller for `gqalloc`, whose command runs
elsewhere.  A fact with both names has the same value under both.  Slurm's names follow what Slurm 22.05 was seen to
set, absences included, since clients test for missing variables (``SLURM_NTASKS`` in a batch script only if tasks were
requested).
"""

from __future__ import annotations

from collections.abc import Mapping

from gq.model.account import NORMAL_QOS
from gq.model.nodelist import compress, compress_counts
from gq.model.role import role_word
from gq.model.sweep import PREFIX as SWEEP_PREFIX
from gq.wire.node import Launch

_STEP_NAMES = (
    "STEP_ID",
    "STEPID",
    "STEP_NODELIST",
    "STEP_NUM_NODES",
    "STEP_NUM_TASKS",
    "STEP_TASKS_PER_NODE",
    "STEP_GPUS",
    "STEP_NNODES",
    "STEP_NTASKS",
    "GTIDS",
    "TASK_PID",
    "PROCID",
    "LOCALID",
    "NODEID",
    "NODENAME",
    "CPUS_ON_NODE",
    "GPUS_ON_NODE",
    "ROLE",
)
"""Variables about one step, task or node only."""
_JOB_NAMES = (
    "JOB_ID",
    "JOBID",
    "JOB_NAME",
    "JOB_USER",
    "JOB_UID",
    "JOB_GID",
    "JOB_PARTITION",
    "JOB_ACCOUNT",
    "JOB_QOS",
    "JOB_RESERVATION",
    "JOB_NODELIST",
    "JOB_NUM_NODES",
    "JOB_CPUS_PER_NODE",
    "JOB_GPUS",
    "JOB_START_TIME",
    "JOB_END_TIME",
    "CLUSTER_NAME",
    "NODELIST",
    "NNODES",
    "NODE_ADDRS",
    "NTASKS",
    "NPROCS",
    "NTASKS_PER_NODE",
    "NTASKS_PER_GPU",
    "TASKS_PER_NODE",
    "CPUS_PER_TASK",
    "CPUS_PER_NODE",
    "GPUS",
    "MEM_PER_NODE",
    "MEM_PER_CPU",
    "RESTART_COUNT",
    "SUBMIT_DIR",
    "SUBMIT_HOST",
    "ARRAY_JOB_ID",
    "ARRAY_TASK_ID",
    "ARRAY_TASK_MIN",
    "ARRAY_TASK_MAX",
    "ARRAY_TASK_STEP",
    "ARRAY_TASK_COUNT",
    "ROLES",
    "ELASTIC_FILE",
)
_FAMILIES = ("GQ_ROLE_", "SLURM_HET_", SWEEP_PREFIX)
"""Prefixes of variables that exist for each role, and for each name of a sweep."""
_HET_GROUP = "_HET_GROUP_"
"""Infix in the names of the variables of each role."""
_PREFIXES = ("GQ_", "SLURM_")
_OTHER_NAMES = (
    "SLURMD_NODENAME",
    "GQ_CELL",
    "GQ_DIR",
    "GQ_CONFIG",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
STEP_VARIABLES = frozenset(prefix + name for prefix in _PREFIXES for name in _STEP_NAMES) | {"SLURMD_NODENAME"}
OWN_VARIABLES = (
    STEP_VARIABLES | frozenset(prefix + name for prefix in _PREFIXES for name in _JOB_NAMES) | frozenset(_OTHER_NAMES)
)
"""All variables that gq may set in a job, and that must not be inherited from the job that submitted it."""


def without(environment: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """Return an environment without variables about another job.  Input variables such as ``SLURM_HOSTFILE`` stay."""
    return {name: value for name, value in environment.items() if name not in names and not _is_of_a_family(name)}


def _is_of_a_family(name: str) -> bool:
    return name.startswith(_FAMILIES) or (name.startswith("SLURM_") and _HET_GROUP in name)


def job_variables(launch: Launch, master_port: int, start_at: float, time_limit_s: int | None) -> dict[str, str]:
    """Return the variables on every node of the job, inside and outside of steps; no limit: no end time."""
    return {
        **_gq_facts(launch, start_at, time_limit_s),
        **_slurm_facts(launch),
        **_owner_and_array(launch),
        **_rendezvous(launch, master_port),
        **_roles(launch),
        **{f"{SWEEP_PREFIX}{name}": value for name, value in launch.parameters},
    }


def own_parameters(launch: Launch) -> dict[str, str]:
    """Return the sweep's parameters under the names that its owner gave; a script may change them for its steps."""
    return dict(launch.parameters)


def _roles(launch: Launch) -> dict[str, str]:
    """Return the nodes and tasks of each role; under Slurm's names the roles are components of a heterogeneous job.

    All roles belong to one job, so each has the job's id.
    """
    if not launch.roles:
        return {}
    facts = {"GQ_ROLES": ",".join(role.name for role in launch.roles), "SLURM_HET_SIZE": str(len(launch.roles))}
    for number, role in enumerate(launch.roles):
        nodelist, nodes, tasks = compress(role.nodes), str(len(role.nodes)), str(sum(role.tasks))
        own = {"NODELIST": nodelist, "NNODES": nodes, "NTASKS": tasks, "GPUS": str(sum(role.gpus))}
        facts |= {f"GQ_ROLE_{role_word(role.name)}_{name}": value for name, value in own.items()}
        slurms = {
            "JOB_ID": str(launch.attempt_id.job_id),
            "JOB_NAME": role.name,
            "JOB_PARTITION": launch.partition,
            "JOB_NODELIST": nodelist,
            "JOB_NUM_NODES": nodes,
            "JOB_CPUS_PER_NODE": compress_counts(role.cpus),
            "NODELIST": nodelist,
            "NNODES": nodes,
            "NTASKS": tasks,
            "NPROCS": tasks,
            "TASKS_PER_NODE": compress_counts(role.tasks),
            "CPUS_PER_TASK": "" if role.cpus_per_task is None else str(role.cpus_per_task),
            "MEM_PER_CPU": "" if role.mem_per_cpu_mib is None else str(role.mem_per_cpu_mib),
        }
        facts |= {f"SLURM_{name}{_HET_GROUP}{number}": value for name, value in slurms.items() if value}
    return facts


def _owner_and_array(launch: Launch) -> dict[str, str]:
    """Return account, QOS, reservation and array task, each only if it exists, since clients test for the variables."""
    facts: dict[str, str | int] = {"JOB_QOS": launch.qos or NORMAL_QOS}
    if launch.account:
        facts["JOB_ACCOUNT"] = launch.account
    if launch.reservation:
        facts["JOB_RESERVATION"] = launch.reservation
    if launch.array_job_id is not None and launch.array_task_id is not None:
        facts |= {
            "ARRAY_JOB_ID": launch.array_job_id,
            "ARRAY_TASK_ID": launch.array_task_id,
            "ARRAY_TASK_MIN": launch.array_task_min,
            "ARRAY_TASK_MAX": launch.array_task_max,
            "ARRAY_TASK_STEP": launch.array_task_step,
            "ARRAY_TASK_COUNT": launch.array_task_count,
        }
    return {f"{prefix}{name}": str(value) for name, value in facts.items() for prefix in _PREFIXES}


def _gq_facts(launch: Launch, start_at: float, time_limit_s: int | None) -> dict[str, str]:
    members = launch.members
    return {
        "GQ_JOB_ID": str(launch.attempt_id.job_id),
        "GQ_JOB_NAME": launch.job_name,
        "GQ_JOB_USER": launch.user,
        "GQ_JOB_PARTITION": launch.partition,
        "GQ_CLUSTER_NAME": launch.cluster,
        "GQ_NODELIST": compress(member.node for member in members),
        "GQ_NNODES": str(len(members)),
        "GQ_NTASKS": str(sum(member.tasks for member in members)),
        "GQ_TASKS_PER_NODE": compress_counts(member.tasks for member in members),
        "GQ_CPUS_PER_NODE": compress_counts(member.cpus for member in members),
        "GQ_CPUS_PER_TASK": str(launch.cpus_per_task or 1),
        "GQ_GPUS": str(sum(member.gpus for member in members)),
        "GQ_RESTART_COUNT": str(launch.restart_count),
        "GQ_SUBMIT_DIR": launch.submit_dir,
        "GQ_SUBMIT_HOST": launch.submit_host,
        "GQ_JOB_START_TIME": str(int(start_at)),
        "GQ_JOB_END_TIME": "" if time_limit_s is None else str(int(start_at + time_limit_s)),
    }


def _rendezvous(launch: Launch, master_port: int) -> dict[str, str]:
    """Return the variables by which a training's ranks meet: the first node, and a port leased to this job."""
    addresses = [member.address for member in launch.members]
    facts = {"GQ_NODE_ADDRS": ",".join(addresses), "MASTER_ADDR": addresses[0]}
    return {**facts, "MASTER_PORT": str(master_port)} if master_port else facts


def _slurm_facts(launch: Launch) -> dict[str, str]:
    members, job_id = launch.members, str(launch.attempt_id.job_id)
    nodelist, count = compress(member.node for member in members), str(len(members))
    return {
        "SLURM_JOB_ID": job_id,
        "SLURM_JOBID": job_id,
        "SLURM_JOB_NAME": launch.job_name,
        "SLURM_JOB_USER": launch.user,
        "SLURM_JOB_UID": str(launch.uid),
        "SLURM_JOB_GID": str(launch.gid),
        "SLURM_JOB_PARTITION": launch.partition,
        "SLURM_JOB_NODELIST": nodelist,
        "SLURM_NODELIST": nodelist,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_JOB_CPUS_PER_NODE": compress_counts(member.cpus for member in members),
        "SLURM_TASKS_PER_NODE": compress_counts(member.tasks for member in members),
        "SLURM_CLUSTER_NAME": launch.cluster,
        "SLURM_SUBMIT_DIR": launch.submit_dir,
        "SLURM_SUBMIT_HOST": launch.submit_host,
        **_slurm_wishes(launch),
    }


def _slurm_wishes(launch: Launch) -> dict[str, str]:
    """Return Slurm's variables for options, each only if its option was given."""
    wishes: dict[str, int | None] = {
        "SLURM_NTASKS_PER_NODE": launch.ntasks_per_node,
        "SLURM_NTASKS_PER_GPU": launch.ntasks_per_gpu,
        "SLURM_CPUS_PER_TASK": launch.cpus_per_task,
        "SLURM_GPUS": launch.gpus,
        "SLURM_MEM_PER_CPU": launch.mem_per_cpu_mib,
        "SLURM_RESTART_COUNT": launch.restart_count or None,
    }
    if (launch.ntasks, launch.ntasks_per_node, launch.ntasks_per_gpu) != (None, None, None):
        ntasks = sum(member.tasks for member in launch.members)
        wishes |= {"SLURM_NTASKS": ntasks, "SLURM_NPROCS": ntasks}
    if launch.mem_per_node_mib is not None:
        # 0 requests all memory of the node, and the grant has it.
        wishes["SLURM_MEM_PER_NODE"] = launch.mem_per_node_mib or launch.grant.memory_mib
    return {name: str(value) for name, value in wishes.items() if value is not None}
