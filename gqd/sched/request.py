"""Normalised resource requests: defaults are filled in and contradictions refused, so that a job can be placed.  Pure.

There are three kinds of request, by the unit that is distributed over the nodes:

* ``node``: every node gets the same (``-N 4 --gpus-per-node=8``, ``--ntasks-per-node=2``);
* ``task``: a number of tasks is distributed (``-n 30 --gpus-per-task=1``);
* ``gpu``: a number of GPUs is distributed (``--gpus=12``).

A heterogeneous job (``roles``) consists of several such requests, which are placed together
(`gqd.sched.placement.roles`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from gq.errors import Refusal
from gq.model.constraint import ANYTHING, Constraint, parse_constraint
from gq.model.ids import NAME
from gq.model.resource import Amount, ResourceRequest, RoleRequest, as_request
from gq.model.role import check_roles
from gq.request.options import OPTION_OF_FIELD, RESOURCE_OPTIONS
from gqd.state.policy import Policy

ANY_NUMBER = 1_000_000
"""Stands for an unlimited number of nodes, tasks, CPUs or GPUs; larger than any cluster."""
_MOST_MEMORY_MIB = 1 << 40
_NOTHING = RoleRequest()
_MINIMUM = {option.sets: option.minimum for option in RESOURCE_OPTIONS if option.minimum is not None} | {"nodes_max": 1}
_MAXIMUM = {field: _MOST_MEMORY_MIB for field in _MINIMUM if field.endswith("_mib")}


class Shape(NamedTuple):
    """A normalised, hashable request: jobs with the same shape fit on the same nodes."""

    partition: str
    unit: str
    """``node``, ``task`` or ``gpu``; ``roles`` for a heterogeneous job, whose requests are in `roles`."""
    units: int
    """Number of tasks or GPUs to distribute; 0 for ``node``, where the numbers of nodes suffice."""
    nodes_min: int
    nodes_max: int
    is_even: bool
    """Distribute the units evenly over exactly ``nodes_min`` nodes, if they fit that way."""
    tasks_per_node: int
    """Tasks on each node, 1 by default; the maximum on one node, if tasks are distributed."""
    ntasks: int | None
    """Total number of tasks, if GPUs are distributed and a number of tasks was given: then both are distributed."""
    tasks_per_gpu: int
    """Tasks that each distributed GPU brings along, whose CPUs are part of `cpus_per_gpu`; 0: not requested."""
    cpus_per_task: int
    gpus_per_node: int
    gpus_per_task: int
    cpus_per_gpu: int
    mem_per_node_mib: int | None
    mem_per_cpu_mib: int | None
    mem_per_gpu_mib: int | None
    gpu_type: str | None = None
    """This and each later field is an attribute (see `knows`), with its default for a job that does not request it."""
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    is_exclusive: bool = False
    is_dense: bool = False
    """The distributed GPUs fill whole nodes, except for the remainder."""
    min_gpu_mem_mib: int = 0
    constraint: str = ""
    prefer: str = ""
    switches: int | None = None
    switches_wait_s: int | None = None
    data: tuple[str, ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    """Generic resources on each node: (name, count)."""
    licenses: tuple[tuple[str, int], ...] = ()
    """Licences of the cluster: (name, count)."""
    roles: tuple[tuple[str, Shape], ...] = ()
    """The roles of a heterogeneous job in their order: (name, shape)."""

    @property
    def gpu_kind(self) -> tuple[str | None, int]:
        """The requested kind of GPU: (type, minimum memory in MiB)."""
        return self.gpu_type, self.min_gpu_mem_mib


RESTRICTIONS = frozenset({
    "gpu_type", "min_gpu_mem_mib", "nodelist", "exclude", "is_exclusive", "constraint", "prefer", "switches",
    "switches_wait_s", "data", "resources", "licenses",
})  # fmt: skip
"""Attributes that only exclude or rank nodes: a job that does not fit without them does not fit with them."""


@lru_cache(maxsize=65536)
def knows(attributes: frozenset[str], shape: Shape) -> bool:
    """Whether a short cut that understands these attributes may be used for the shape.

    Every bound and every fast path names the attributes that it understands, so that a shape with another attribute,
    for instance a newer one, goes the exact way.
    """
    return all(
        field in attributes or getattr(shape, field) == default for field, default in Shape._field_defaults.items()
    )


class Demand(NamedTuple):
    """The resources that one node must provide."""

    tasks: int
    cpus: int
    gpus: int
    memory_mib: int
    """-1: all memory of the node; 0: memory is not counted."""


def shape_in(policy: Policy, request: ResourceRequest, partition: str) -> Shape:
    """Return the shape of a request in a partition; raises `Refusal` if the request contradicts itself."""
    info = policy.partition(partition)
    max_nodes = None if info is None else info.max_nodes
    return shape_of(request, partition, policy.default_mem_per_cpu_mib, max_nodes)


@lru_cache(maxsize=4096)
def shape_of(
    request: ResourceRequest, partition: str, default_mem_per_cpu_mib: int | None = None, max_nodes: int | None = None
) -> Shape:
    """Return the shape of a request; raises `Refusal` if the request contradicts itself.

    `max_nodes` caps a number of nodes that the job leaves open; a request for more nodes is refused elsewhere.
    """
    if request.roles:
        return _with_roles(request, partition, default_mem_per_cpu_mib, max_nodes)
    _refuse_nonsense(request)
    if request.is_elastic:
        request = _on_min_nodes(request)
    if request.most_gpus is not None:
        request = _on_one_node(request)
    request, tasks_per_gpu = _by_gpus(request), request.ntasks_per_gpu or 0
    per_node = _tasks_per_node(request)
    unit, units, nodes_min, nodes_max = _counts(request, per_node)
    if max_nodes is not None:
        nodes_max = max(nodes_min, min(nodes_max, max_nodes))
    are_tasks_distributed = unit == "task" or (unit == "gpu" and request.ntasks is not None)
    has_memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib) != (None, None, None)
    return Shape(
        partition=partition,
        unit=unit,
        units=units,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        is_even=nodes_min == nodes_max and unit != "node",
        tasks_per_node=per_node or (ANY_NUMBER if are_tasks_distributed else 1),
        ntasks=request.ntasks if unit == "gpu" else None,
        tasks_per_gpu=tasks_per_gpu if unit == "gpu" else 0,
        cpus_per_task=request.cpus_per_task or 1,
        gpus_per_node=request.gpus_per_node or 0,
        gpus_per_task=request.gpus_per_task or 0,
        cpus_per_gpu=request.cpus_per_gpu or 0,
        mem_per_node_mib=request.mem_per_node_mib,
        mem_per_cpu_mib=request.mem_per_cpu_mib if has_memory else default_mem_per_cpu_mib,
        mem_per_gpu_mib=request.mem_per_gpu_mib,
        data=tuple(sorted(set(request.data))),
        resources=_summed("--gres", request.resources),
        licenses=_summed("--licenses", request.licenses),
    )._replace(**{field: value for field in _COPIED if (value := getattr(request, field)) is not None})


_COPIED = tuple(
    field
    for field in Shape._field_defaults
    if field in ResourceRequest.__struct_fields__ and field not in ("data", "resources", "licenses", "roles")
)
"""Attributes that a shape has as they were requested."""
_NOT_WITH_A_RANGE = ("ntasks_per_gpu", "gpus_per_node", "gpus_per_task", "mem_per_gpu_mib", "is_exclusive", "is_dense")
_INSTEAD = {
    "mem_per_gpu_mib": "memory in use cannot be taken back: give --mem, which does not depend on the number of GPUs",
}


def _on_one_node(request: ResourceRequest) -> ResourceRequest:
    """Return a request for a range of GPUs as one for its minimum on a single node; refuse what excludes a range."""
    min_gpus, max_gpus = request.gpus or 0, request.most_gpus or 0
    gpu_range = f"--gpus={min_gpus}-{max_gpus}"
    if not 1 <= min_gpus <= max_gpus:
        raise Refusal(
            "contradiction", f"{gpu_range} is not a range of GPUs", "give a minimum of at least 1 and a maximum: 1-8"
        )
    nodes = max(request.nodes_min or 1, request.nodes_max or 1, len(request.nodelist))
    if nodes > 1:
        hint = "leave out --nodes, or give one number of GPUs: a job on several nodes keeps its GPUs"
        raise Refusal("contradiction", f"{gpu_range} is for jobs on one node, and this job asks for {nodes}", hint)
    for field in _NOT_WITH_A_RANGE:
        if getattr(request, field):
            hint = _INSTEAD.get(field, "leave it out, or give one number of GPUs")
            raise Refusal("contradiction", f"{gpu_range} and {OPTION_OF_FIELD[field]} exclude each other", hint)
    return msgspec.structs.replace(request, nodes_min=1, nodes_max=1)


_NOT_WITH_ELASTIC = {
    "most_gpus": "a range of --gpus",
    **{field: OPTION_OF_FIELD[field] for field in ("gpus", "ntasks", "switches", "is_dense")},
}
"""Options for all nodes together, which an elastic job cannot use: each of its nodes has the same share."""


def _on_min_nodes(request: ResourceRequest) -> ResourceRequest:
    """Return an elastic request for a range of nodes as one for its minimum; refuse what excludes a range."""
    min_nodes, max_nodes = request.nodes_min or 1, request.nodes_max or 0
    if min_nodes >= max_nodes:
        hint = "give the minimum, with which it starts, and the maximum: --nodes=1-4 --elastic"
        raise Refusal("contradiction", "--elastic is for jobs that ask for a range of nodes", hint)
    for field, option in _NOT_WITH_ELASTIC.items():
        if getattr(request, field):
            hint = "give the resources of each node: --gpus-per-node, --ntasks-per-node"
            if field == "switches":
                hint = "leave it out: any idle node may join the job"
            raise Refusal("contradiction", f"--elastic and {option} exclude each other", hint)
    counts = _constraint("--constraint", request.constraint)
    if counts.counts or counts.kinds:
        hint = "give one constraint for all nodes"
        message = f"--elastic and counts in --constraint={request.constraint[:60]} exclude each other"
        raise Refusal("contradiction", message, hint)
    return msgspec.structs.replace(request, nodes_max=min_nodes)


def share_in(policy: Policy, request: ResourceRequest, partition: str) -> Shape:
    """Return the shape of what each node that joins an elastic job must provide."""
    share = msgspec.structs.replace(
        request, is_elastic=False, nodes_min=1, nodes_max=1, nodelist=(), prefer="", data=(), licenses=()
    )
    return shape_in(policy, share, partition)


def _with_roles(
    request: ResourceRequest, partition: str, default_mem_per_cpu_mib: int | None, max_nodes: int | None
) -> Shape:
    """Return the shape of a heterogeneous job, with a shape for each role.  Roles may share nodes."""
    _refuse_bad_roles(request)
    roles = []
    for role in request.roles:
        try:
            shape = shape_of(as_request(role.resources), partition, default_mem_per_cpu_mib, max_nodes)
        except Refusal as refusal:
            raise Refusal(refusal.code, f"role `{role.name}`: {refusal.message}", refusal.hint) from None
        roles.append((role.name, shape))
    whole = shape_of(msgspec.structs.replace(request, roles=()), partition)
    nodes_min = max(shape.nodes_min for _, shape in roles)
    nodes_max = min(ANY_NUMBER, sum(shape.nodes_max for _, shape in roles))
    return whole._replace(
        unit="roles",
        roles=tuple(roles),
        prefer=next(
            (shape.prefer for _, shape in roles if shape.prefer), ""
        ),  # the job waits for preferred nodes while one of its roles does
        nodes_min=nodes_min,
        nodes_max=nodes_max if max_nodes is None else max(nodes_min, min(nodes_max, max_nodes)),
    )


def _refuse_bad_roles(request: ResourceRequest) -> None:
    """Refuse roles with bad names, and options that a job with roles can only give for each role."""
    if request.most_gpus is not None:
        raise Refusal("contradiction", "a range of GPUs is for a job without roles, on one node", "give one number")
    if request.is_elastic:
        raise Refusal("contradiction", "--elastic is for a job without roles", "leave it out")
    try:
        check_roles(role.name for role in request.roles)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise Refusal("bad_role", message, hint) from None
    own = [field for field in RoleRequest.__struct_fields__ if getattr(request, field) != getattr(_NOTHING, field)]
    if own:
        name = _option(own[0])
        raise Refusal("contradiction", f"{name} and --role exclude each other", "give it for each role")


def _by_gpus(request: ResourceRequest) -> ResourceRequest:
    """Return a request with ``--ntasks-per-gpu`` as one for GPUs: with tasks for each node, or CPUs for each GPU."""
    per_gpu, gpus, ntasks = request.ntasks_per_gpu, request.gpus, request.ntasks
    if not per_gpu:
        return request
    for field in ("gpus_per_task", "ntasks_per_node"):
        if getattr(request, field) is not None:
            message = f"--ntasks-per-gpu and {_option(field)} exclude each other"
            raise Refusal("contradiction", message, "give one of them")
    if request.nodes_max not in (None, request.nodes_min):
        message = f"--ntasks-per-gpu and a range of --nodes={request.nodes_min}-{request.nodes_max} exclude each other"
        raise Refusal("contradiction", message, f"use --nodes={request.nodes_min}, or leave it out")
    if not gpus and (ntasks is not None or not request.gpus_per_node):
        message = "--ntasks-per-gpu needs GPUs, and the job requests none"
        raise Refusal("contradiction", message, "add --gpus, --gpus-per-node or --ntasks")
    if gpus and ntasks not in (None, per_gpu * gpus):
        message = f"--ntasks={ntasks} contradicts the {per_gpu * gpus} tasks of {gpus} GPUs at {per_gpu} per GPU"
        raise Refusal("contradiction", message, "leave out --ntasks, or the number of GPUs")
    if request.gpus_per_node:
        return msgspec.structs.replace(request, ntasks=None, ntasks_per_node=per_gpu * request.gpus_per_node)
    cpus = max(request.cpus_per_gpu or 0, per_gpu * (request.cpus_per_task or 1))
    return msgspec.structs.replace(request, ntasks=None, cpus_per_gpu=cpus)


def _tasks_per_node(request: ResourceRequest) -> int | None:
    """Return the number of tasks per node, as given or as GPUs per node and per task imply it."""
    given = request.ntasks_per_node
    if not request.gpus_per_node or not request.gpus_per_task:
        return given
    implied = _exactly(request.gpus_per_node, request.gpus_per_task, "--gpus-per-node", "--gpus-per-task")
    if given is not None and given != implied:
        message = f"--ntasks-per-node={given} contradicts the {implied} tasks that the GPUs of a node imply"
        raise Refusal("contradiction", message)
    return implied


def _counts(request: ResourceRequest, per_node: int | None) -> tuple[str, int, int, int]:
    """Return (unit, units, minimum number of nodes, maximum number of nodes)."""
    nodes_min, nodes_max = _nodes(request)
    ntasks, gpus = request.ntasks, request.gpus
    if gpus and request.gpus_per_task:
        implied = _exactly(gpus, request.gpus_per_task, "--gpus", "--gpus-per-task", ntasks or 1)
        _refuse_other_ntasks(ntasks, implied)
        ntasks = implied
    if gpus and request.gpus_per_node:
        nodes = _exactly(gpus, request.gpus_per_node, "--gpus", "--gpus-per-node", nodes_min)
        if not nodes_min <= nodes <= nodes_max:
            count = f"{nodes} node{'s' if nodes > 1 else ''}"
            raise Refusal("contradiction", f"--gpus={gpus} at {request.gpus_per_node} per node means {count}")
        nodes_min = nodes_max = nodes
    if gpus and not request.gpus_per_node and not request.gpus_per_task:
        parts = gpus if ntasks is None else min(gpus, ntasks)
        nodes_min = _enough_nodes(request, ntasks, per_node, nodes_min, nodes_max)
        _refuse_too_thin("GPUs" if parts == gpus else "tasks", parts, nodes_min)
        return "gpu", gpus, nodes_min, min(nodes_max, parts)
    if ntasks is None or (per_node and ntasks == nodes_min * per_node and (request.nodes_min or gpus)):
        return "node", 0, nodes_min, (nodes_min if ntasks else min(nodes_max, request.nodes_max or nodes_min))
    nodes_min = _enough_nodes(request, ntasks, per_node, nodes_min, nodes_max)
    _refuse_too_thin("tasks", ntasks, nodes_min)
    return "task", ntasks, nodes_min, min(nodes_max, ntasks)


def _nodes(request: ResourceRequest) -> tuple[int, int]:
    """Return the (minimum, maximum) number of nodes, as given or as the node list and constraint imply."""
    nodes_max = request.nodes_max or request.nodes_min or ANY_NUMBER
    named = len(set(request.nodelist))
    counts = _constraint("--constraint", request.constraint)
    _constraint("--prefer", request.prefer, may_count=False)
    if (count := max((term.nodes for term in counts.counts), default=0)) > nodes_max:
        message = f"--constraint={request.constraint} needs {count} nodes of a kind, --nodes allows {nodes_max}"
        raise Refusal("contradiction", message)
    if named > nodes_max:
        message = f"--nodelist names {named} nodes, --nodes allows {nodes_max}"
        raise Refusal("contradiction", message, "all nodes of the list are given to the job")
    return max(request.nodes_min or min(counts.nodes_min, nodes_max) or 1, named), nodes_max


def _constraint(option: str, text: str, may_count: bool = True) -> Constraint:
    if not text:
        return ANYTHING
    try:
        constraint = parse_constraint(text)
    except ValueError as error:
        hint = "for example ib&cuda>=12.4, rack1|rack2, ib*2, [rack1|rack2]; see gqsub(1)"
        raise Refusal("bad_constraint", f"{option}={text[:60]}: {error}", hint) from None
    if not may_count and (constraint.counts or constraint.kinds):
        message = f"{option}={text[:60]}: counts (`*N`) and `[a|b]` are valid in --constraint only"
        raise Refusal("bad_constraint", message, "give one preference for all nodes")
    return constraint


def _summed(option: str, amounts: tuple[Amount, ...]) -> tuple[tuple[str, int], ...]:
    """Return (name, count) in the order of names; counts given for the same name are added up."""
    counts: dict[str, int] = {}
    for amount in amounts:
        if not NAME.fullmatch(amount.name):
            message = f"{option}: `{amount.name[:60]}` is not a name; use letters, digits, `.`, `_` and `-`"
            raise Refusal("bad_name", message)
        counts[amount.name] = counts.get(amount.name, 0) + amount.count
    return tuple(sorted((name, count) for name, count in counts.items() if count))


def _enough_nodes(
    request: ResourceRequest, ntasks: int | None, per_node: int | None, nodes_min: int, nodes_max: int
) -> int:
    """Return the minimum number of nodes, raised to what the tasks need at `per_node` tasks on each."""
    if ntasks is None or not per_node:
        return nodes_min
    needed = -(-ntasks // per_node)
    if needed > nodes_max:
        message = f"{ntasks} tasks at {per_node} per node need {needed} nodes, --nodes allows {nodes_max}"
        raise Refusal("contradiction", message)
    return max(nodes_min, needed)


def _refuse_too_thin(what: str, count: int, nodes: int) -> None:
    if nodes > count:
        message = f"{count} {what if count > 1 else what[:-1]} cannot be spread over {nodes} nodes"
        raise Refusal("contradiction", message, "every node gets at least one")


def _exactly(total: int, per_unit: int, total_name: str, unit_name: str, units: int = 1) -> int:
    """Return total / per_unit, refusing a remainder; `units`: the quotient that the hint of the refusal suggests."""
    count, rest = divmod(total, per_unit)
    if rest:
        message = f"{total_name}={total} is not a multiple of {unit_name}={per_unit}"
        hint = f"{total_name}={per_unit * units} would be; a header line of the script may set either of the two"
        raise Refusal("contradiction", message, hint)
    return count


def _refuse_other_ntasks(ntasks: int | None, implied: int) -> None:
    if ntasks is not None and ntasks != implied:
        raise Refusal("contradiction", f"--ntasks={ntasks} contradicts the {implied} tasks that the GPUs imply")


def _option(field: str) -> str:
    return "--nodes" if field == "nodes_max" else OPTION_OF_FIELD.get(field, "--" + field.replace("_", "-"))


def _refuse_nonsense(request: ResourceRequest) -> None:
    """Refuse numbers out of range and options that contradict each other."""
    for field, minimum in _MINIMUM.items():
        value = getattr(request, field)
        if value is not None and not minimum <= value <= _MAXIMUM.get(field, ANY_NUMBER):
            wrong = f"less than {minimum}" if value < minimum else f"more than {_MAXIMUM.get(field, ANY_NUMBER)}"
            raise Refusal("bad_count", f"{_option(field)}={value} is {wrong}")
    if request.nodes_max is not None and request.nodes_max < (request.nodes_min or 1):
        raise Refusal("bad_count", f"--nodes={request.nodes_min}-{request.nodes_max} is reversed")
    memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib)
    if sum(value is not None for value in memory) > 1:
        raise Refusal("contradiction", "--mem, --mem-per-cpu and --mem-per-gpu exclude each other", "give one of them")
    has_gpus = bool(request.gpus or request.gpus_per_node or request.gpus_per_task)
    if request.min_gpu_mem_mib and not has_gpus:
        raise Refusal("contradiction", "--min-gpu-mem needs GPUs, and the job asks for none", "add --gpus")
    if request.is_dense and (not request.gpus or request.gpus_per_node or request.gpus_per_task or request.ntasks):
        message = "--fill-nodes needs --gpus without --ntasks, --gpus-per-node or --gpus-per-task"
        raise Refusal("contradiction", message, "give --gpus alone")
    both = sorted(set(request.nodelist) & set(request.exclude))
    if both:
        raise Refusal("contradiction", f"node `{both[0]}` is both asked for and excluded")


def every_shape(shape: Shape) -> tuple[Shape, ...]:
    """Return the shapes of the roles of a heterogeneous job; else the shape itself."""
    return tuple(role for _, role in shape.roles) or (shape,)


def named_nodes(shape: Shape) -> set[str]:
    """Return the names of all nodes that the shape or one of its roles asks for."""
    return set(shape.nodelist).union(*(role.nodelist for _, role in shape.roles))


def demand_of(shape: Shape, tasks: int, gpus: int) -> Demand:
    """Return what a node must provide for these numbers of tasks and GPUs."""
    cpus = max(tasks * shape.cpus_per_task, gpus * shape.cpus_per_gpu)
    if shape.mem_per_node_mib is not None:
        memory = shape.mem_per_node_mib or -1
    elif shape.mem_per_cpu_mib is not None:
        memory = shape.mem_per_cpu_mib * cpus
    else:
        memory = (shape.mem_per_gpu_mib or 0) * gpus
    return Demand(tasks, cpus, gpus, memory)


def demand_for_units(shape: Shape, units: int) -> Demand:
    """Return what a node must provide for this number of distributed units (``node``: always one)."""
    assert not shape.roles, "each role has units of its own"
    match shape.unit:
        case "node":
            tasks = shape.tasks_per_node
            return demand_of(shape, tasks, shape.gpus_per_node or tasks * shape.gpus_per_task)
        case "task":
            return demand_of(shape, units, shape.gpus_per_node or units * shape.gpus_per_task)
        case _:
            tasks = shape.tasks_per_gpu * units or (shape.tasks_per_node if shape.ntasks is None else 1)
            return demand_of(shape, tasks, units)


def wanted_in_all(shape: Shape) -> tuple[int, int]:
    """Return the minimum numbers of (GPUs, CPUs) of the whole job."""
    if shape.roles:
        totals = [wanted_in_all(role) for role in every_shape(shape)]
        return sum(gpus for gpus, _ in totals), sum(cpus for _, cpus in totals)
    match shape.unit:
        case "node":
            demand = demand_for_units(shape, 1)
            return demand.gpus * shape.nodes_min, demand.cpus * shape.nodes_min
        case "task":
            gpus = shape.gpus_per_node * shape.nodes_min or shape.units * shape.gpus_per_task
            return gpus, max(shape.units * shape.cpus_per_task, gpus * shape.cpus_per_gpu)
        case _:
            tasks = shape.ntasks or shape.nodes_min * shape.tasks_per_node
            return shape.units, max(tasks * shape.cpus_per_task, shape.units * shape.cpus_per_gpu)
