"""Het jobs, whose roles have different resources: ``--role NAME:COUNT,…`` and components between `` : ``.  Pure.

The module turns both notations into the roles of one request.  Each role has its own resource options; options of the
whole job (its name, partition, time limit …) are in the first component, before the first `` : `` (in a script: before
the first ``hetjob`` line).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gq.errors import UsageError
from gq.model.resource import Amount, ResourceRequest, Role, RoleRequest, as_role
from gq.model.role import check_role_name, check_roles
from gq.request.getopt import Arguments, whole_number
from gq.request.node_options import TMP, read_constraint
from gq.request.option import bad_value
from gq.request.options import RESOURCE_NAMES
from gq.request.resources import NOTHING, Gpus, gpu_count, resource_request
from gq.units import parse_memory_mib

MAX_TASKS = 1_000_000
_SHARED = ("exclude", "is_exclusive", "constraint", "prefer", "data")
"""Fields that, given beside ``--role``, apply to every role without a value of its own."""
_OF_THE_WHOLE = ("switches", "switches_wait_s", "licenses")
_FORM = "a role is NAME:TASKS[,KEY=VALUE]..., for example worker:4,gpus=2"


def het_job_request(components: Sequence[Arguments]) -> ResourceRequest:
    """Return the request of all components together; a single component without roles is an ordinary request."""
    first, *others = components
    for other in others:
        _refuse_whole_job_options(other, first)
    if not others and not first.has("role"):
        return resource_request(first)
    whole = resource_request(first)
    if whole.is_elastic:
        raise UsageError("contradiction", "--elastic cannot be used with roles or components", "remove it")
    roles = [role for component in component_roles(components) for role in component]
    try:
        check_roles(role.name for role in roles)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise UsageError("bad_role", message, hint) from error
    return msgspec.structs.replace(
        NOTHING, roles=tuple(roles), **{field: getattr(whole, field) for field in _OF_THE_WHOLE}
    )


def component_roles(components: Sequence[Arguments]) -> list[list[Role]]:
    """Return the roles of each component: its ``--role`` options, else one role with all of its options."""
    names = _component_names(components)
    return [
        roles_of(component) if component.has("role") else [_as_role(name, resource_request(component))]
        for component, name in zip(components, names, strict=True)
    ]


def _component_names(components: Sequence[Arguments]) -> list[str]:
    """Return the components' job names if they are distinct, valid role names, else ``group0``, ``group1`` …"""
    names = [component.text("job-name") for component in components]
    try:
        check_roles(names)
    except ValueError:
        return [f"group{number}" for number in range(len(components))]
    return names


def _refuse_whole_job_options(component: Arguments, first: Arguments) -> None:
    """Refuse options in a later component that are no resources and differ from the first component's."""
    for given in component:
        is_said = first.has(given.name) and first.text(given.name) == given.value
        if given.name in ("switches", "licenses") or not (
            is_said or given.name in RESOURCE_NAMES or given.name in ("role", "job-name")
        ):
            hint = "move it to the first component, before ` : ` or `hetjob`"
            raise UsageError("contradiction", f"{given.place} applies to the whole job", hint)


# ── --role ────────────────────────────────────────────────────────────────────────────────────────────────────


def roles_of(arguments: Arguments) -> list[Role]:
    """Return the roles of ``--role``, with the options beside it applied to each."""
    roles = arguments.gather("role", lambda text: [read_role(text)])
    common = resource_request(arguments)
    _refuse_options_beside(arguments, common)
    shared = {field: getattr(common, field) for field in _SHARED if getattr(common, field) != getattr(NOTHING, field)}
    return [_with(role, shared) for role in roles]


def _with(role: Role, shared: dict[str, object]) -> Role:
    missing = {field: value for field, value in shared.items() if not getattr(role.resources, field)}
    return msgspec.structs.replace(role, resources=msgspec.structs.replace(role.resources, **missing))


def _refuse_options_beside(arguments: Arguments, common: ResourceRequest) -> None:
    allowed = {*_SHARED, *_OF_THE_WHOLE}
    fields = [field for field in RoleRequest.__struct_fields__ if getattr(common, field) != getattr(NOTHING, field)]
    if all(field in allowed for field in fields):
        return
    of_roles = [given for given in arguments if given.name in RESOURCE_NAMES and given.name not in _ALLOWED_BESIDE]
    place = of_roles[0].place if of_roles else "a number"
    raise UsageError("contradiction", f"{place} and `--role` exclude each other", "set it for each role")


_ALLOWED_BESIDE = ("exclude", "exclusive", "constraint", "prefer", "data", "switches", "licenses")


def read_role(text: str) -> Role:
    """Parse ``NAME:TASKS,cpus=4,gpus=a100:2,mem=8G,nodes=2``, where all but `nodes` is per task."""
    head, *words = text.split(",")
    name, colon, count = head.partition(":")
    if not colon:
        raise ValueError(f"`{text[:60]}` does not give a number of tasks; {_FORM}")
    fields: dict[str, object] = {"ntasks": whole_number(count, at_least=1, at_most=MAX_TASKS)}
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key.strip()
        if not equals or key not in _READERS:
            raise ValueError(f"`{word[:60]}` is not a setting of a role; use {', '.join(_READERS)}")
        if key in values:
            raise ValueError(f"`{key}` is given twice for role `{name[:40]}`; give it once")
        values[key] = value
        fields |= _READERS[key](value)
    if "mem" in values:
        fields |= _memory_of_tasks(parse_memory_mib(values["mem"]), fields)
    return Role(name=check_role_name(name), resources=msgspec.convert(fields, RoleRequest))


def _memory_of_tasks(mib: int, fields: dict[str, object]) -> dict[str, object]:
    """Convert the memory of a task into memory per CPU."""
    cpus = fields.setdefault("cpus_per_task", 1)
    assert isinstance(cpus, int)
    if not mib:
        raise ValueError("mem=0 is not allowed for a task; give the memory that it needs")
    return {"mem_per_cpu_mib": -(-mib // cpus)}


def _as_role(name: str, request: ResourceRequest) -> Role:
    if request.most_gpus is not None:
        message = f"--gpus={request.gpus}-{request.most_gpus} (a range) cannot be used with components"
        raise UsageError("contradiction", message, "give one number of GPUs")
    if request.is_elastic:
        raise UsageError("contradiction", "--elastic cannot be used with roles or components", "remove it")
    return as_role(name, request)


def _gpus(text: str) -> dict[str, object]:
    gpus: Gpus = gpu_count(text)
    if gpus.max_number is not None:
        raise ValueError("a range of GPUs cannot be used with roles; give one number")
    return {"gpus_per_task": gpus.number} | ({"gpu_type": gpus.type} if gpus.type else {})


def _number(field: str) -> Callable[[str], dict[str, object]]:
    return lambda text: {field: whole_number(text, at_least=1, at_most=MAX_TASKS)}


_READERS: dict[str, Callable[[str], dict[str, object]]] = {
    "cpus": _number("cpus_per_task"),
    "gpus": _gpus,
    "mem": lambda text: {},
    "nodes": _number("nodes_min"),
    "constraint": lambda text: {"constraint": read_constraint(text)},
    "prefer": lambda text: {"prefer": read_constraint(text)},
    "min-gpu-mem": lambda text: {"min_gpu_mem_mib": parse_memory_mib(text)},
    "tmp": lambda text: {"resources": (Amount(TMP, parse_memory_mib(text)),)},
}
"""Key of ``--role`` → reader, which returns fields of the request."""


def selections(components: Sequence[Arguments]) -> list[tuple[str, ...]]:
    """Return the roles of each component of a step; as in Slurm, component N without roles runs in role number N."""
    if len(components) == 1:
        return [selected_roles(components[0])]
    found = [selected_roles(component) or (str(number),) for number, component in enumerate(components)]
    names = [name for names in found for name in names]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise UsageError(
            "contradiction", f"two components run in role `{twice}`", "name the role in one component only"
        )
    for component in components[1:]:
        for given in component:
            if given.name not in ("role", "het-group"):
                hint = "after ` : `, give only --role or --het-group and a command; give other options before it"
                raise UsageError("contradiction", f"{given.place} applies to the whole step", hint)
    return found


def selected_roles(arguments: Arguments) -> tuple[str, ...]:
    """Return the roles of a step that ``--role`` names and ``--het-group`` numbers; empty: all."""
    names: list[str] = []
    for given in arguments.every("role"):
        for word in given.value.split(","):
            if ":" in word or "=" in word:
                hint = "inside a job, give only the name, as in --role worker"
                raise bad_value(
                    given,
                    f"`{given.value}` describes a new role, but the roles of a job that has started cannot change",
                    hint,
                )
            try:
                names.append(check_role_name(word.strip()))
            except ValueError as error:
                raise bad_value(given, str(error)) from error
    names += [str(number) for number in arguments.gather("het-group", _group_numbers)]
    return tuple(dict.fromkeys(names))


def _group_numbers(text: str) -> list[int]:
    """Parse ``0,2-3`` into numbers."""
    numbers: list[int] = []
    for word in text.split(","):
        low, dash, high = word.partition("-")
        first = whole_number(low, at_least=0, at_most=MAX_TASKS)
        last = whole_number(high, at_least=first, at_most=first + 1000) if dash else first
        numbers.extend(range(first, last + 1))
    return numbers
