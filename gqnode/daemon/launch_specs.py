"""Builds the requests to a shepherd from the order, the environment and the expanded paths.

Pure apart from the names that it imports from the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gq.host import job_tmp
from gq.model.node import Gpu
from gq.model.resource import Grant
from gq.request.patterns import expand_pattern
from gq.wire.node import Launch
from gq.wire.step import Attach
from gqnode.control.account import Account
from gqnode.control.attempt import AttemptRecord
from gqnode.control.environment import gpus_of, job_environment, task_environment
from gqnode.daemon import elastic
from gqnode.isolation.cell import Cell
from gqnode.isolation.protocol import CellLimits
from gqnode.shepherd.specs import Confinement, Identity, ShepherdSpec, TaskSpec

NULL_FILE = "/dev/null"


class LaunchContext(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of this node that apply to every process of its jobs."""

    location_env: dict[str, str]
    """Variables by which commands find the cluster."""
    login_env: dict[str, str]
    """Login variables of the daemon's own user."""
    gpus: tuple[Gpu, ...] = ()
    confinement: Confinement = Confinement()
    private_tmp: bool = False
    cpu_ids: tuple[int, ...] = ()
    """The machine's CPU of each of the node's CPUs; empty if the node shares or pretends its CPUs."""
    node: str = ""
    run_dir: str = ""
    """Directory of the files that list the GPUs of elastic jobs."""


def limits_of(grant: Grant, inventory: tuple[Gpu, ...]) -> CellLimits:
    devices = tuple(gpu.device for gpu in gpus_of(grant.gpus, inventory) if gpu.device)
    return CellLimits(cpus=grant.cpus, memory_mib=grant.memory_mib, devices=devices)


def login_environment(account: Account | None, context: LaunchContext) -> dict[str, str]:
    """Return the variables that a login of the user would set."""
    if account is None:
        return context.login_env
    names = {"HOME": account.home, "USER": account.user, "LOGNAME": account.user, "SHELL": account.shell}
    return {**context.login_env, **names}


def _elastic(launch: Launch, context: LaunchContext) -> dict[str, str]:
    if launch.most_gpus is None and launch.most_nodes is None:
        return {}
    return {elastic.VARIABLE: elastic.path_of(context.run_dir, context.node, launch.attempt_id)}


def identity(account: Account | None) -> Identity | None:
    return None if account is None else Identity(account.uid, account.gid, account.groups)


def _confinement(record: AttemptRecord, context: LaunchContext) -> Confinement:
    user = record.account.user if record.account else context.login_env.get("USER", "")
    return context.confinement._replace(pam_user=user)


def shepherd_spec(
    record: AttemptRecord,
    cell: Cell,
    context: LaunchContext,
    submitted_env: Mapping[str, str],
    now: float,
) -> ShepherdSpec:
    """Build the spec for a batch script, or for a shepherd that only holds processes."""
    launch = record.launch
    if launch.node_rank != 0 or launch.is_interactive:
        return ShepherdSpec(
            environment={},
            cgroup_procs=cell.procs_files,
            watch_memory_mib=cell.watch_memory_mib,
            private_tmp=context.private_tmp,
            shm_mib=launch.grant.memory_mib,
            kept_in_tmp=job_tmp.own_programs() if context.private_tmp else (),
        )
    environment = job_environment(
        launch,
        submitted_env,
        record.master_port,
        context.location_env,
        gpus_of(launch.grant.gpus, context.gpus),
        login_environment(record.account, context),
        now,
        record.time_limit_s,
    )
    return ShepherdSpec(
        environment=environment | _elastic(launch, context),
        is_batch=True,
        args=launch.args,
        chdir=launch.chdir,
        umask=launch.umask,
        output_path=_expand(launch, launch.output_path) or NULL_FILE,
        error_path=_expand(launch, launch.error_path),
        input_path=_expand(launch, launch.input_path) or NULL_FILE,
        append=launch.open_mode == "append",
        cgroup_procs=cell.procs_files,
        watch_memory_mib=cell.watch_memory_mib,
        identity=identity(record.account),
        confinement=_confinement(record, context),
        private_tmp=context.private_tmp,
        shm_mib=launch.grant.memory_mib,
        kept_in_tmp=job_tmp.own_programs() if context.private_tmp else (),
    )


def _expand(launch: Launch, pattern: str) -> str:
    return expand_pattern(
        pattern,
        job_id=launch.attempt_id.job_id,
        name=launch.job_name,
        user=launch.user,
        node=launch.grant.node,
        rank=0,
        node_rank=launch.node_rank,
        array_job_id=launch.array_job_id,
        array_task_id=launch.array_task_id,
    )


def task_specs(record: AttemptRecord, attach: Attach, cell: Cell, context: LaunchContext, now: float) -> list[TaskSpec]:
    """Build the specs of all tasks that the step has on this node."""
    step = record.steps[attach.step_id.step].order
    part = next(part for part in step.layout.parts if part.node == record.launch.grant.node)
    specs = []
    for local_rank, rank in enumerate(part.ranks):
        role = part.role_of(rank)
        environment = task_environment(
            record.launch,
            step,
            attach.environment,
            local_rank,
            record.master_port,
            context.location_env,
            gpus_of(part.gpus if role is None else role.gpus, context.gpus),
            login_environment(record.account, context),
            now if record.started_at is None else record.started_at,
            record.time_limit_s,
        )
        has_terminal = attach.pty is not None and rank == 0
        specs.append(
            TaskSpec(
                rank=rank,
                argv=attach.argv if role is None else attach.programs.get(role.role, attach.argv),
                environment=environment | _elastic(record.launch, context),
                chdir=attach.chdir,
                umask=attach.umask,
                stdin="pty" if has_terminal else _stdin(attach, rank),
                rows=attach.pty.rows if attach.pty else 24,
                columns=attach.pty.columns if attach.pty else 80,
                cgroup_procs=cell.procs_files,
                identity=identity(record.account),
                confinement=_confinement(record, context),
                cpus=() if role is None else _machine_cpus(context, role.cpus),
            )
        )
    return specs


def _machine_cpus(context: LaunchContext, cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Return the machine's CPUs of a role; the tasks of different roles share one cell."""
    return tuple(context.cpu_ids[cpu] for cpu in cpus if cpu < len(context.cpu_ids))


def _stdin(attach: Attach, rank: int) -> str:
    return "pipe" if attach.stdin_rank in (None, rank) else "null"
