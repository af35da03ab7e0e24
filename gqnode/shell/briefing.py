"""What a shepherd is told to start: the order's facts, the environment, paths with their patterns expanded.

Pure apart from the names that it imports from the shell: everything it needs is given.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gq.model.node import Gpu
from gq.model.resource import Grant
from gq.patterns import expand_pattern
from gq.wire.node import Launch
from gq.wire.step import Attach
from gqnode.control.attempt import AttemptRecord
from gqnode.control.environment import gpus_of, job_environment, task_environment
from gqnode.isolation.cell import Cell
from gqnode.isolation.protocol import CellLimits
from gqnode.shell.specs import ShepherdSpec, TaskSpec

NO_FILE = "/dev/null"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of this node's jobs needs to know."""

    location_env: dict[str, str]
    """Finds the cluster."""
    login_env: dict[str, str]
    gpus: tuple[Gpu, ...] = ()


def limits_of(grant: Grant, inventory: tuple[Gpu, ...]) -> CellLimits:
    devices = tuple(gpu.device for gpu in gpus_of(grant.gpus, inventory) if gpu.device)
    return CellLimits(cpus=grant.cpus, memory_mib=grant.memory_mib, devices=devices)


def shepherd_spec(
    record: AttemptRecord,
    cell: Cell,
    around: Surroundings,
    submitted_env: Mapping[str, str],
    now: float,
) -> ShepherdSpec:
    """For the batch script on its node; elsewhere, and for interactive jobs, only to hold what comes."""
    launch = record.launch
    if launch.node_rank != 0 or launch.is_interactive:
        return ShepherdSpec(environment={}, cgroup_procs=cell.procs_files, watch_memory_mib=cell.watch_memory_mib)
    environment = job_environment(
        launch,
        submitted_env,
        record.master_port,
        around.location_env,
        gpus_of(launch.grant.gpus, around.gpus),
        around.login_env,
        now,
        record.time_limit_s,
    )
    return ShepherdSpec(
        environment=environment,
        is_batch=True,
        args=launch.args,
        chdir=launch.chdir,
        umask=launch.umask,
        output_path=_expand(launch, launch.output_path) or NO_FILE,
        error_path=_expand(launch, launch.error_path),
        input_path=_expand(launch, launch.input_path) or NO_FILE,
        append=launch.open_mode == "append",
        cgroup_procs=cell.procs_files,
        watch_memory_mib=cell.watch_memory_mib,
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
    )


def task_specs(record: AttemptRecord, attach: Attach, cell: Cell, around: Surroundings, now: float) -> list[TaskSpec]:
    """One for each task that the step has on this node."""
    step = record.steps[attach.step_id.step].order
    part = next(part for part in step.layout.parts if part.node == record.launch.grant.node)
    specs = []
    for local_rank in range(part.tasks):
        rank = part.first_rank + local_rank
        environment = task_environment(
            record.launch,
            step,
            attach.environment,
            local_rank,
            record.master_port,
            around.location_env,
            gpus_of(part.gpus, around.gpus),
            around.login_env,
            now if record.started_at is None else record.started_at,
            record.time_limit_s,
        )
        has_terminal = attach.pty is not None and rank == 0
        specs.append(
            TaskSpec(
                rank=rank,
                argv=attach.argv,
                environment=environment,
                chdir=attach.chdir,
                umask=attach.umask,
                stdin="pty" if has_terminal else _stdin(attach, rank),
                rows=attach.pty.rows if attach.pty else 24,
                columns=attach.pty.columns if attach.pty else 80,
                cgroup_procs=cell.procs_files,
            )
        )
    return specs


def _stdin(attach: Attach, rank: int) -> str:
    return "pipe" if attach.stdin_rank in (None, rank) else "null"
