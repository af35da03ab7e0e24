"""Steps of jobs with roles: the roles whose tasks a step runs, and their resources on each node.  Pure.

A step runs the tasks of all roles, or of the roles that it names, in role order; each task has what its role was
granted on its node, and nothing of the other roles.  A step that asks for a number of tasks, CPUs or GPUs is laid out
over the whole job, without roles, or over the one role that it names.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gq.errors import Refusal
from gq.model.resource import Grant, Role, RoleRequest, RoleShare
from gq.model.step import StepLayout, StepPart, StepRequest, StepRole
from gq.near_miss import nearest
from gq.request.options import STEP_SIZES
from gqd.state.records import Attempt, Job

_Free = dict[str, tuple[set[int], set[int]]]
"""Node → CPUs and GPUs that no other step has."""
_LayoutOn = Callable[[tuple[Grant, ...], StepRequest, Job, RoleRequest, _Free], StepLayout | None]


def layout_of(request: StepRequest, job: Job, attempt: Attempt, free: _Free, layout_on: _LayoutOn) -> StepLayout | None:
    """The layout of a step, or None: it has to wait for other steps; `Refusal` if it can never run.

    `layout_on` lays out steps without roles.
    """
    chosen = _chosen(request, job)
    names = tuple(role.name for role in job.spec.resources.roles)
    if not any(getattr(request, name) is not None for name in STEP_SIZES):
        return _whole_roles(request, job, attempt, chosen, free)
    bare = msgspec.structs.replace(request, roles=())
    if not request.roles:
        layout = layout_on(attempt.grants, bare, job, RoleRequest(), free)
    elif len(chosen) == 1:
        layout = _part_of_role(bare, job, attempt, chosen[0], free, layout_on)
    else:
        message = "a step of several roles has the tasks and resources of its roles"
        raise Refusal("contradiction", message, "leave out the numbers, or name a single role")
    return None if layout is None else msgspec.structs.replace(layout, roles=names)


def _chosen(request: StepRequest, job: Job) -> list[Role]:
    """The roles of the step in the job's order, by name or number."""
    roles = job.spec.resources.roles
    names = [role.name for role in roles]
    wanted = set()
    for word in request.roles:
        name = names[int(word)] if word.isdecimal() and int(word[:9]) < len(names) else word
        if name not in names:
            raise _unknown(word, job, names)
        wanted.add(name)
    return [role for role in roles if role.name in wanted or not wanted]


def _unknown(word: str, job: Job, names: list[str]) -> Refusal:
    if not names:
        return Refusal("unknown_role", f"job {job.job_id} has no roles", "leave out --role and --het-group")
    close = nearest(word, names)
    listed = ", ".join(f"`{name}`" for name in names)
    hint = f"did you mean `{close}`?" if close else f"it has {listed}, numbered from 0"
    return Refusal("unknown_role", f"job {job.job_id} has no role `{word}`", hint)


def _share(grant: Grant, role: Role) -> RoleShare | None:
    return next((share for share in grant.roles if share.role == role.name), None)


def _part_of_role(
    request: StepRequest, job: Job, attempt: Attempt, role: Role, free: _Free, layout_on: _LayoutOn
) -> StepLayout | None:
    """The layout of a step that asks for a number of tasks or resources of one role."""
    granted = tuple(
        Grant(node=grant.node, tasks=share.tasks, cpus=share.cpus, gpus=share.gpus)
        for grant in attempt.grants
        if (share := _share(grant, role)) is not None
    )
    own = {
        grant.node: (free[grant.node][0] & set(grant.cpus), free[grant.node][1] & set(grant.gpus))
        for grant in granted
        if grant.node in free
    }
    layout = layout_on(granted, request, job, role.resources, own)
    if layout is None:
        return None
    parts = tuple(
        msgspec.structs.replace(
            part,
            roles=(
                StepRole(
                    role=role.name,
                    first_rank=part.first_rank,
                    first_role_rank=part.first_rank,
                    tasks=part.tasks,
                    cpus=part.cpus,
                    gpus=part.gpus,
                    gpus_per_task=layout.gpus_per_task,
                    tasks_per_gpu=layout.tasks_per_gpu,
                    cpus_per_task=layout.cpus_per_task,
                ),
            ),
        )
        for part in layout.parts
    )
    return msgspec.structs.replace(layout, parts=parts)


def _whole_roles(request: StepRequest, job: Job, attempt: Attempt, roles: list[Role], free: _Free) -> StepLayout | None:
    """All tasks of these roles on the live nodes that the step may use."""
    unknown = sorted(set(request.nodelist) - free.keys())
    if unknown:
        raise Refusal("not_in_allocation", f"node `{unknown[0]}` is not one of the job's live nodes")
    by_node: dict[str, list[StepRole]] = {}
    rank = 0
    for role in roles:
        first = rank
        for grant in attempt.grants:
            share = _share(grant, role)
            if share is None or not _may_use(request, grant.node, free):
                continue
            if not (set(share.cpus) <= free[grant.node][0] and set(share.gpus) <= free[grant.node][1]):
                return None
            by_node.setdefault(grant.node, []).append(_step_role(role, share, rank, rank - first))
            rank += share.tasks
    if not by_node:
        names = ", ".join(f"`{role.name}`" for role in roles)
        raise Refusal("step_too_large", f"none of the nodes of {names} is available to the step")
    return StepLayout(
        name=request.name,
        parts=tuple(_part(grant.node, by_node[grant.node]) for grant in attempt.grants if grant.node in by_node),
        kill_on_bad_exit=job.spec.kill_on_bad_exit if request.kill_on_bad_exit is None else request.kill_on_bad_exit,
        overlap=request.overlap,
        roles=tuple(role.name for role in job.spec.resources.roles),
    )


def _may_use(request: StepRequest, node: str, free: _Free) -> bool:
    return node in free and node not in request.exclude and (not request.nodelist or node in request.nodelist)


def _step_role(role: Role, share: RoleShare, rank: int, role_rank: int) -> StepRole:
    return StepRole(
        role=role.name,
        first_rank=rank,
        first_role_rank=role_rank,
        tasks=share.tasks,
        cpus=share.cpus,
        gpus=share.gpus,
        gpus_per_task=role.resources.gpus_per_task,
        tasks_per_gpu=role.resources.ntasks_per_gpu,
        cpus_per_task=role.resources.cpus_per_task or 1,
    )


def _part(node: str, roles: list[StepRole]) -> StepPart:
    return StepPart(
        node=node,
        first_rank=roles[0].first_rank,
        tasks=sum(role.tasks for role in roles),
        cpus=tuple(sorted(cpu for role in roles for cpu in role.cpus)),
        gpus=tuple(sorted(gpu for role in roles for gpu in role.gpus)),
        roles=tuple(roles),
    )
