"""A request made ready for placing: what is not said filled in, contradictions refused.  Pure.

Three kinds of request exist, by what is counted out over the nodes:

* ``node``: every node gets the same (``-N 4 --gpus-per-node=8``, ``--ntasks-per-node=2``);
* ``task``: a number of tasks is dealt out (``-n 30 --gpus-per-task=1``);
* ``gpu``: a number of GPUs is dealt out (``--gpus=12``);

and a gang of roles (``roles``) is several of these, placed together (`gqd.sched.placement.roles`).
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
from gqd.state.policy import Policy

ANY_NUMBER = 1_000_000
"""Of nodes, tasks, CPUs or GPUs: more than there will be."""
_MOST_MEMORY_MIB = 1 << 40
_NOTHING = RoleRequest()
_LEAST = {
    "nodes_min": 1,
    "nodes_max": 1,
    "ntasks": 1,
    "ntasks_per_node": 1,
    "cpus_per_task": 1,
    "cpus_per_gpu": 1,
    "mem_per_node_mib": 0,
    "mem_per_cpu_mib": 1,
    "mem_per_gpu_mib": 1,
    "gpus": 0,
    "gpus_per_node": 0,
    "gpus_per_task": 0,
    "min_gpu_mem_mib": 1,
    "switches": 1,
}
_MOST = {field: _MOST_MEMORY_MIB for field in _LEAST if field.endswith("_mib")}
_OPTIONS = {
    "nodes_min": "--nodes",
    "nodes_max": "--nodes",
    "mem_per_node_mib": "--mem",
    "mem_per_cpu_mib": "--mem-per-cpu",
    "mem_per_gpu_mib": "--mem-per-gpu",
    "min_gpu_mem_mib": "--min-gpu-mem",
}
"""Fields that are not called like their options."""


class Shape(NamedTuple):
    """Hashable: jobs of one shape fit or do not fit alike."""

    partition: str
    unit: str
    """``node``, ``task`` or ``gpu``; ``roles`` where `roles` say it all."""
    units: int
    """How many tasks or GPUs are dealt out; for ``node`` 0 (the node counts say it)."""
    nodes_min: int
    nodes_max: int
    is_even: bool
    """Deal the units out evenly over exactly ``nodes_min`` nodes if they fit so."""
    tasks_per_node: int
    """Fixed where tasks are not dealt out (1 if not said); else the most that one node may get."""
    ntasks: int | None
    """Total, where it was said and GPUs are dealt out: then both are."""
    cpus_per_task: int
    gpus_per_node: int
    gpus_per_task: int
    cpus_per_gpu: int
    mem_per_node_mib: int | None
    mem_per_cpu_mib: int | None
    mem_per_gpu_mib: int | None
    gpu_type: str | None
    nodelist: tuple[str, ...]
    exclude: tuple[str, ...]
    is_exclusive: bool
    is_dense: bool = False
    """GPUs that are dealt out fill whole nodes, but for what is left over."""
    min_gpu_mem_mib: int = 0
    constraint: str = ""
    prefer: str = ""
    switches: int | None = None
    switches_wait_s: int | None = None
    data: tuple[str, ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    """Generic resources of each node: (name, how many)."""
    licenses: tuple[tuple[str, int], ...] = ()
    """Of the cluster, likewise."""
    roles: tuple[tuple[str, Shape], ...] = ()
    """Of a gang of roles, by name and in their order."""


class Demand(NamedTuple):
    """What one node must give."""

    tasks: int
    cpus: int
    gpus: int
    memory_mib: int
    """-1: all of the node; 0: not counted."""


def shape_in(policy: Policy, request: ResourceRequest, partition: str) -> Shape:
    """The shape of a request in a partition of this policy; `Refusal` where the request contradicts itself."""
    known = policy.partition(partition)
    most = None if known is None else known.max_nodes
    return shape_of(request, partition, policy.default_mem_per_cpu_mib, most)


@lru_cache(maxsize=4096)
def shape_of(
    request: ResourceRequest, partition: str, default_mem_per_cpu_mib: int | None = None, max_nodes: int | None = None
) -> Shape:
    """The shape of a request; `Refusal` where it contradicts itself.

    `max_nodes` is where the job may choose; what asks for more is told so elsewhere.
    """
    if request.roles:
        return _gang(request, partition, default_mem_per_cpu_mib, max_nodes)
    _refuse_nonsense(request)
    if request.is_elastic:
        request = _on_least_nodes(request)
    if request.most_gpus is not None:
        request = _on_one_node(request)
    per_node = _tasks_per_node(request)
    unit, units, nodes_min, nodes_max = _counts(request, per_node)
    if max_nodes is not None:
        nodes_max = max(nodes_min, min(nodes_max, max_nodes))
    are_tasks_dealt = unit == "task" or (unit == "gpu" and request.ntasks is not None)
    says_memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib) != (None, None, None)
    return Shape(
        partition=partition,
        unit=unit,
        units=units,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        is_even=nodes_min == nodes_max and unit != "node",
        tasks_per_node=per_node or (ANY_NUMBER if are_tasks_dealt else 1),
        ntasks=request.ntasks if unit == "gpu" else None,
        cpus_per_task=request.cpus_per_task or 1,
        gpus_per_node=request.gpus_per_node or 0,
        gpus_per_task=request.gpus_per_task or 0,
        cpus_per_gpu=request.cpus_per_gpu or 0,
        mem_per_node_mib=request.mem_per_node_mib,
        mem_per_cpu_mib=request.mem_per_cpu_mib if says_memory else default_mem_per_cpu_mib,
        mem_per_gpu_mib=request.mem_per_gpu_mib,
        gpu_type=request.gpu_type,
        nodelist=request.nodelist,
        exclude=request.exclude,
        is_exclusive=request.is_exclusive,
        is_dense=request.is_dense,
        min_gpu_mem_mib=request.min_gpu_mem_mib or 0,
        constraint=request.constraint,
        prefer=request.prefer,
        switches=request.switches,
        switches_wait_s=request.switches_wait_s,
        data=tuple(sorted(set(request.data))),
        resources=_summed("--gres", request.resources),
        licenses=_summed("--licenses", request.licenses),
    )


_NOT_WITH_A_RANGE = {
    "gpus_per_node": "--gpus-per-node",
    "gpus_per_task": "--gpus-per-task",
    "mem_per_gpu_mib": "--mem-per-gpu",
    "is_exclusive": "--exclusive",
    "is_dense": "--fill-nodes",
}


_INSTEAD = {
    "mem_per_gpu_mib": "memory in use cannot be taken back: say with --mem what the job has, however many GPUs it has",
}


def _on_one_node(request: ResourceRequest) -> ResourceRequest:
    """A range of GPUs: the least of it, on a single node."""
    least, most = request.gpus or 0, request.most_gpus or 0
    words = f"--gpus={least}-{most}"
    if not 1 <= least <= most:
        raise Refusal("contradiction", f"{words} is no range of GPUs", "say the least, at least 1, and the most: 1-8")
    nodes = max(request.nodes_min or 1, request.nodes_max or 1, len(request.nodelist))
    if nodes > 1:
        hint = "leave out --nodes; over several nodes a job keeps what it starts with: give one number of GPUs"
        raise Refusal("contradiction", f"{words} is of jobs on one node, and this one asks for {nodes}", hint)
    for field, option in _NOT_WITH_A_RANGE.items():
        if getattr(request, field):
            hint = _INSTEAD.get(field, "leave it out, or give one number of GPUs")
            raise Refusal("contradiction", f"{words} and {option} exclude each other", hint)
    return msgspec.structs.replace(request, nodes_min=1, nodes_max=1)


_NOT_WITH_ELASTIC = {
    "most_gpus": "a range of --gpus",
    "gpus": "--gpus",
    "ntasks": "--ntasks",
    "switches": "--switches",
    "is_dense": "--fill-nodes",
}
"""What is of all nodes together: each has the same share."""


def _on_least_nodes(request: ResourceRequest) -> ResourceRequest:
    """A range of nodes: the least of it."""
    least, most = request.nodes_min or 1, request.nodes_max or 0
    if least >= most:
        hint = "say the least, with which it starts, and the most: --nodes=1-4 --elastic"
        raise Refusal("contradiction", "--elastic is of jobs that ask for a range of nodes", hint)
    for field, option in _NOT_WITH_ELASTIC.items():
        if getattr(request, field):
            hint = "say what it has on each of its nodes: --gpus-per-node, --ntasks-per-node"
            if field == "switches":
                hint = "leave it out: nodes come from wherever they are idle"
            raise Refusal("contradiction", f"--elastic and {option} exclude each other", hint)
    counts = _constraint("--constraint", request.constraint)
    if counts.counts or counts.kinds:
        hint = "say what each node must be"
        words = f"--elastic and counts in --constraint={request.constraint[:60]} exclude each other"
        raise Refusal("contradiction", words, hint)
    return msgspec.structs.replace(request, nodes_max=least)


def share_in(policy: Policy, request: ResourceRequest, partition: str) -> Shape:
    """Of an elastic job: what each node gives that comes to it."""
    one = msgspec.structs.replace(
        request, is_elastic=False, nodes_min=1, nodes_max=1, nodelist=(), prefer="", data=(), licenses=()
    )
    return shape_in(policy, one, partition)


def _gang(
    request: ResourceRequest, partition: str, default_mem_per_cpu_mib: int | None, max_nodes: int | None
) -> Shape:
    """Of roles: what is asked of the gang as a whole, and a shape for each of them.  Roles may share nodes."""
    _refuse_bad_roles(request)
    roles = []
    for role in request.roles:
        try:
            shape = shape_of(as_request(role.resources), partition, default_mem_per_cpu_mib, max_nodes)
        except Refusal as refusal:
            raise Refusal(refusal.code, f"role `{role.name}`: {refusal.message}", refusal.hint) from None
        roles.append((role.name, shape))
    whole = shape_of(msgspec.structs.replace(request, roles=()), partition)
    fewest = max(shape.nodes_min for _, shape in roles)
    most = min(ANY_NUMBER, sum(shape.nodes_max for _, shape in roles))
    return whole._replace(
        unit="roles",
        roles=tuple(roles),
        prefer=next((shape.prefer for _, shape in roles if shape.prefer), ""),  # it holds out while one of them does
        nodes_min=fewest,
        nodes_max=most if max_nodes is None else max(fewest, min(most, max_nodes)),
    )


def _refuse_bad_roles(request: ResourceRequest) -> None:
    if request.most_gpus is not None:
        raise Refusal("contradiction", "a range of GPUs is of a job without roles, on one node", "give one number")
    if request.is_elastic:
        raise Refusal("contradiction", "--elastic is of a job without roles", "leave it out")
    try:
        check_roles(role.name for role in request.roles)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise Refusal("bad_role", message, hint) from None
    own = [field for field in RoleRequest.__struct_fields__ if getattr(request, field) != getattr(_NOTHING, field)]
    if own:
        name = _OPTIONS.get(own[0], "--" + own[0].replace("_", "-"))
        raise Refusal("contradiction", f"{name} and --role exclude each other", "say it of each role")


def _tasks_per_node(request: ResourceRequest) -> int | None:
    """As said, or as GPUs per node and per task imply."""
    said = request.ntasks_per_node
    if not request.gpus_per_node or not request.gpus_per_task:
        return said
    implied = _exactly(request.gpus_per_node, request.gpus_per_task, "--gpus-per-node", "--gpus-per-task")
    if said is not None and said != implied:
        message = f"--ntasks-per-node={said} contradicts the {implied} tasks that the GPUs of a node imply"
        raise Refusal("contradiction", message)
    return implied


def _counts(request: ResourceRequest, per_node: int | None) -> tuple[str, int, int, int]:
    """(unit, units, fewest nodes, most nodes)."""
    nodes_min, nodes_max = _nodes(request)
    ntasks, gpus = request.ntasks, request.gpus
    if gpus and request.gpus_per_task:
        implied = _exactly(gpus, request.gpus_per_task, "--gpus", "--gpus-per-task", ntasks or 1)
        _refuse_other_ntasks(ntasks, implied)
        ntasks = implied
    if gpus and request.gpus_per_node:
        nodes = _exactly(gpus, request.gpus_per_node, "--gpus", "--gpus-per-node", nodes_min)
        if not nodes_min <= nodes <= nodes_max:
            words = f"{nodes} node{'s' if nodes > 1 else ''}"
            raise Refusal("contradiction", f"--gpus={gpus} at {request.gpus_per_node} per node means {words}")
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
    """(fewest, most) nodes, as said or as named."""
    most = request.nodes_max or request.nodes_min or ANY_NUMBER
    named = len(set(request.nodelist))
    counts = _constraint("--constraint", request.constraint)
    _constraint("--prefer", request.prefer, may_count=False)
    if (single := max((one.nodes for one in counts.counts), default=0)) > most:
        message = f"--constraint={request.constraint} wants {single} nodes of a kind, --nodes allows {most}"
        raise Refusal("contradiction", message)
    if named > most:
        message = f"--nodelist names {named} nodes, --nodes allows {most}"
        raise Refusal("contradiction", message, "all nodes of the list are given to the job")
    return max(request.nodes_min or min(counts.nodes_min, most) or 1, named), most


def _constraint(option: str, text: str, may_count: bool = True) -> Constraint:
    if not text:
        return ANYTHING
    try:
        constraint = parse_constraint(text)
    except ValueError as error:
        hint = "for example ib&cuda>=12.4, rack1|rack2, ib*2, [rack1|rack2]; see gqsub(1)"
        raise Refusal("bad_constraint", f"{option}={text[:60]}: {error}", hint) from None
    if not may_count and (constraint.counts or constraint.kinds):
        message = f"{option}={text[:60]}: counts (`*N`) and `[a|b]` go with --constraint only"
        raise Refusal("bad_constraint", message, "say what each node should be")
    return constraint


def _summed(option: str, amounts: tuple[Amount, ...]) -> tuple[tuple[str, int], ...]:
    """By name; what is named twice is added up."""
    counts: dict[str, int] = {}
    for one in amounts:
        if not NAME.fullmatch(one.name):
            message = f"{option}: `{one.name[:60]}` is not a name; use letters, digits, `.`, `_` and `-`"
            raise Refusal("bad_name", message)
        counts[one.name] = counts.get(one.name, 0) + one.count
    return tuple(sorted((name, count) for name, count in counts.items() if count))


def _enough_nodes(
    request: ResourceRequest, ntasks: int | None, per_node: int | None, nodes_min: int, nodes_max: int
) -> int:
    """The fewest nodes on which the tasks have room, where there is a most for each node."""
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
        raise Refusal("contradiction", message, "every node gets one at least")


def _exactly(total: int, each: int, total_name: str, each_name: str, units: int = 1) -> int:
    """The quotient; `units`: the quotient that the request implies, for the hint of the refusal."""
    count, rest = divmod(total, each)
    if rest:
        message = f"{total_name}={total} is not a multiple of {each_name}={each}"
        hint = f"{total_name}={each * units} would be; a header line of the script may set either of the two"
        raise Refusal("contradiction", message, hint)
    return count


def _refuse_other_ntasks(said: int | None, implied: int) -> None:
    if said is not None and said != implied:
        raise Refusal("contradiction", f"--ntasks={said} contradicts the {implied} tasks that the GPUs imply")


def _refuse_nonsense(request: ResourceRequest) -> None:
    for field, least in _LEAST.items():
        value = getattr(request, field)
        if value is not None and not least <= value <= _MOST.get(field, ANY_NUMBER):
            wrong = f"less than {least}" if value < least else f"more than {_MOST.get(field, ANY_NUMBER)}"
            raise Refusal("bad_count", f"{_OPTIONS.get(field, '--' + field.replace('_', '-'))}={value} is {wrong}")
    if request.nodes_max is not None and request.nodes_max < (request.nodes_min or 1):
        raise Refusal("bad_count", f"--nodes={request.nodes_min}-{request.nodes_max} has its ends the wrong way round")
    memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib)
    if sum(value is not None for value in memory) > 1:
        raise Refusal("contradiction", "--mem, --mem-per-cpu and --mem-per-gpu exclude each other", "give one of them")
    has_gpus = bool(request.gpus or request.gpus_per_node or request.gpus_per_task)
    if request.min_gpu_mem_mib and not has_gpus:
        raise Refusal("contradiction", "--min-gpu-mem is of GPUs, and the job asks for none", "add --gpus")
    if request.is_dense and (not request.gpus or request.gpus_per_node or request.gpus_per_task or request.ntasks):
        message = "--fill-nodes deals out --gpus, and not with --ntasks, --gpus-per-node or --gpus-per-task"
        raise Refusal("contradiction", message, "give --gpus alone")
    both = sorted(set(request.nodelist) & set(request.exclude))
    if both:
        raise Refusal("contradiction", f"node `{both[0]}` is both asked for and excluded")


def every_shape(shape: Shape) -> tuple[Shape, ...]:
    """Those that say what nodes must give: of a gang those of its roles, else the shape itself."""
    return tuple(role for _, role in shape.roles) or (shape,)


def named_nodes(shape: Shape) -> set[str]:
    """All that it asks for by name."""
    return set(shape.nodelist).union(*(role.nodelist for _, role in shape.roles))


def demand_of(shape: Shape, tasks: int, gpus: int) -> Demand:
    """What a node must give for so many tasks and GPUs."""
    cpus = max(tasks * shape.cpus_per_task, gpus * shape.cpus_per_gpu)
    if shape.mem_per_node_mib is not None:
        memory = shape.mem_per_node_mib or -1
    elif shape.mem_per_cpu_mib is not None:
        memory = shape.mem_per_cpu_mib * cpus
    else:
        memory = (shape.mem_per_gpu_mib or 0) * gpus
    return Demand(tasks, cpus, gpus, memory)


def demand_for_units(shape: Shape, units: int) -> Demand:
    """What a node must give for so many of the units that are dealt out (``node``: one)."""
    assert not shape.roles, "each role has units of its own"
    match shape.unit:
        case "node":
            tasks = shape.tasks_per_node
            return demand_of(shape, tasks, shape.gpus_per_node or tasks * shape.gpus_per_task)
        case "task":
            return demand_of(shape, units, shape.gpus_per_node or units * shape.gpus_per_task)
        case _:
            return demand_of(shape, shape.tasks_per_node if shape.ntasks is None else 1, units)


def wanted_in_all(shape: Shape) -> tuple[int, int]:
    """(GPUs, CPUs) of the whole job at its smallest."""
    if shape.roles:
        each = [wanted_in_all(role) for role in every_shape(shape)]
        return sum(gpus for gpus, _ in each), sum(cpus for _, cpus in each)
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
