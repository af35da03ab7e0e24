"""Why a job does not fit, as data: what is scarce, who holds it, since nothing else explains a wait.  Pure."""

from __future__ import annotations

from gq.units import format_memory
from gqd.sched.feasible import admits, capacity
from gqd.sched.placement import place
from gqd.sched.roles import homeless_role
from gqd.sched.shape import ANY_NUMBER, Shape, demand_for_units, every_shape, wanted_in_all
from gqd.sched.timeline import earliest_fit
from gqd.sched.view import NodeFacts, Overlay, PendingJob, RunningJob, Snapshot
from gqd.state.cluster import mask_of
from gqd.state.plan import Holder, Infeasible, Insufficient, NoNodes, Unavailable, Wait

MAX_HOLDERS = 50


def why_hopeless(
    snapshot: Snapshot, job: PendingJob, usable: list[int], capable: list[int], available: list[int]
) -> Wait | None:
    """Why the job could not start even if its available nodes were empty; None if it could: it waits for others.

    `usable` nodes it may use; `capable` ones could give it something; `available` ones are up as well.
    """
    if not usable:
        return NoNodes(job.shape.partition)
    empty = Overlay.empty(snapshot.nodes)
    if place(empty, job.shape, available) is not None:
        return None
    if place(empty, job.shape, capable) is not None:
        return _unavailable(snapshot, job, capable, available)
    whole = tuple(node.whole() for node in snapshot.nodes)
    if place(Overlay.empty(whole), job.shape, usable) is not None:
        return _drained(snapshot, usable)
    return infeasible(whole, job.shape, usable)


def insufficient(
    snapshot: Snapshot, overlay: Overlay, job: PendingJob, available: list[int], running: list[RunningJob]
) -> Insufficient:
    """What is scarce, who holds it, and when it fits at the latest; of a gang for the role that has no room, if any."""
    shape = homeless_role(overlay, job.shape, available, place)
    resource, wanted, free = _scarcest(overlay, shape, available)
    fit = earliest_fit(overlay, job.shape, available, running, snapshot.now)
    return Insufficient(
        resource=resource,
        wanted=wanted,
        free=free,
        holders=_holders(snapshot, shape, running, available, resource),
        is_fragmented=free >= wanted,
        starts_at=fit[0] if fit else None,
    )


def _scarcest(overlay: Overlay, shape: Shape, places: list[int]) -> tuple[str, int, int]:
    """(resource, wanted, free) of the first resource that is short in sum, else of the one whose places are wrong."""
    sums = _sums(overlay, shape, places)
    if shape.is_exclusive:
        idle = sum(1 for one in places if capacity(overlay, one, shape))
        return "idle nodes", max(shape.nodes_min, idle + 1), idle
    for name, (want, have) in sums.items():
        if want > have:
            return name, want, have
    for name, (want, have) in reversed(sums.items()):
        if want and place(_relaxed(overlay, name), shape, places) is not None:
            return name, want, have
    name = "GPUs" if sums["GPUs"][0] else "CPUs"
    return name, *sums[name]


def _sums(overlay: Overlay, shape: Shape, places: list[int]) -> dict[str, tuple[int, int]]:
    """By resource: (wanted over the whole job, free on these nodes)."""
    nodes = overlay.nodes
    gpus, cpus = wanted_in_all(shape)
    free_gpus = sum((overlay.free_gpus[one] & nodes[one].type_mask(shape.gpu_type)).bit_count() for one in places)
    memory = _memory_wanted(shape, max((nodes[one].memory_mib for one in places), default=0))
    return {
        "GPUs": (gpus, free_gpus),
        "CPUs": (cpus, sum(overlay.free_cpus[one].bit_count() for one in places)),
        "memory": (memory, sum(max(0, overlay.free_memory_mib[one]) for one in places)),
    }


def _relaxed(overlay: Overlay, resource: str) -> Overlay:
    """As if nobody held anything of this resource."""
    empty = Overlay.empty(overlay.nodes)
    return Overlay(
        overlay.nodes,
        empty.free_cpus if resource == "CPUs" else overlay.free_cpus,
        empty.free_gpus if resource == "GPUs" else overlay.free_gpus,
        empty.free_memory_mib if resource == "memory" else overlay.free_memory_mib,
    )


def _memory_wanted(shape: Shape, largest_mib: int) -> int:
    """`largest_mib`: what the largest node has, for those who want all of a node."""
    if shape.roles:
        return sum(_memory_wanted(role, largest_mib) for role in every_shape(shape))
    gpus, cpus = wanted_in_all(shape)
    if shape.mem_per_node_mib is not None:
        return (shape.mem_per_node_mib or largest_mib) * shape.nodes_min
    return (shape.mem_per_cpu_mib or 0) * cpus or (shape.mem_per_gpu_mib or 0) * gpus


def _holders(
    snapshot: Snapshot, shape: Shape, running: list[RunningJob], places: list[int], resource: str
) -> tuple[Holder, ...]:
    """Who holds the scarce resource on these nodes, largest first."""
    by_name = {snapshot.nodes[one].name: snapshot.nodes[one] for one in places}
    holders = []
    for job in running:
        here = [grant for grant in job.grants if grant.node in by_name]
        masks = (mask_of(grant.gpus) & by_name[grant.node].type_mask(shape.gpu_type) for grant in here)
        holder = Holder(
            job_id=job.job_id,
            user=job.user,
            nodes=tuple(grant.node for grant in here),
            gpus=sum(mask.bit_count() for mask in masks),
            cpus=sum(len(grant.cpus) for grant in here),
            memory_mib=sum(grant.memory_mib for grant in here),
            ends_at=None if job.is_stranded else job.ends_at,
        )
        held = {"GPUs": holder.gpus, "memory": holder.memory_mib}.get(resource, len(here))
        if held:
            holders.append(holder)
    holders.sort(key=lambda one: (-one.gpus, -one.cpus, one.job_id))
    return tuple(holders[:MAX_HOLDERS])


def _unavailable(snapshot: Snapshot, job: PendingJob, capable: list[int], available: list[int]) -> Unavailable:
    own = dict(job.avoid)
    out = [snapshot.nodes[one] for one in capable if one not in available]
    nodes = tuple((node.name, node.unavailable or "left out after its own launch failed there") for node in out)
    backoffs = {node.name: max(node.backoff_until, own.get(node.name, 0.0)) for node in out}
    later = {name: until for name, until in backoffs.items() if until > snapshot.now}
    until = max(later.values()) if later and len(later) == len(out) else None
    return Unavailable(nodes=nodes, left_out=tuple(later), until=until)


def _drained(snapshot: Snapshot, usable: list[int]) -> Unavailable:
    """Single GPUs are drained, and it would fit with them."""
    nodes = [snapshot.nodes[one] for one in usable if snapshot.nodes[one].drained]
    counts = [(node.name, sum(mask.bit_count() for _, mask in node.drained)) for node in nodes]
    return Unavailable(nodes=tuple((name, f"short of {counted(count, 'drained GPUs')}") for name, count in counts))


def counted(count: int, things: str) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{count} {things.removesuffix('s') if count == 1 else things}"


def infeasible(nodes: tuple[NodeFacts, ...], shape: Shape, usable: list[int]) -> Infeasible:
    """Which limit of the hardware the request is over, and what would fit."""
    if shape.roles:
        return _infeasible_roles(nodes, shape, usable)
    facts = [nodes[one] for one in usable]
    types = sorted({gpu_type for node in facts for gpu_type, mask in node.gpu_types if mask})
    most_gpus = max(node.type_mask(shape.gpu_type).bit_count() for node in facts)
    demand = demand_for_units(shape, 1)
    kind = f" of type `{shape.gpu_type}`" if shape.gpu_type else ""
    if shape.gpu_type and shape.gpu_type not in types:
        have = f"there are {', '.join(f'`{one}`' for one in types)}" if types else "the nodes have no GPUs"
        return Infeasible(why=f"no node that it may use has GPUs of type `{shape.gpu_type}`", hint=have)
    if demand.gpus > most_gpus:
        why = f"it asks for {counted(demand.gpus, 'GPUs')}{kind} on one node; the largest node has {most_gpus}"
        fitting = f"ask for at most {most_gpus} per node, over more nodes"
        return Infeasible(why=why, hint=fitting if most_gpus else "ask for no GPUs, or another partition")
    most_cpus = max(node.cpus for node in facts)
    if demand.cpus > most_cpus:
        why = f"it asks for {counted(demand.cpus, 'CPUs')} on one node; the largest node has {most_cpus}"
        return Infeasible(why=why, hint=f"ask for at most {counted(most_cpus, 'CPUs')} per node")
    most_memory = max(node.memory_mib for node in facts)
    if demand.memory_mib > most_memory:
        wanted, most = format_memory(demand.memory_mib), format_memory(most_memory)
        why = f"it asks for {wanted} of memory on one node; the largest node has {most}"
        return Infeasible(why=why, hint=f"ask for at most --mem={most_memory}M per node")
    if not any(capacity(Overlay.empty(nodes), one, shape) for one in usable):
        parts = [counted(demand.gpus, "GPUs") + kind] if demand.gpus else []
        parts += [counted(demand.cpus, "CPUs")]
        parts += [f"{format_memory(demand.memory_mib)} of memory"] if demand.memory_mib > 0 else []
        why = f"no node that it may use has {' and '.join(parts)} at once"
        return Infeasible(why=why, hint="ask for less of one of them per node; gqinfo -N shows what each has")
    return _too_many(facts, shape, kind)


def _infeasible_roles(nodes: tuple[NodeFacts, ...], gang: Shape, usable: list[int]) -> Infeasible:
    """The first role that could not have room alone; else they do not fit beside each other."""
    for name, role in gang.roles:
        own = [one for one in usable if admits(role, nodes[one])]
        if not own:
            return Infeasible(why=f"role `{name}` may use none of its nodes", hint="gqinfo -N lists the nodes")
        if place(Overlay.empty(nodes), role, own) is None:
            alone = infeasible(nodes, role, own)
            return Infeasible(why=f"role `{name}`: {alone.why}", hint=alone.hint)
    names = ", ".join(f"`{name}`" for name, _ in gang.roles)
    most = "" if gang.nodes_max >= len(usable) else f", at most {gang.nodes_max} of them"
    return Infeasible(
        why=f"its roles {names} do not fit beside each other on the {counted(len(usable), 'nodes')} it may use{most}",
        hint="ask for less in one of them, or for fewer tasks",
    )


def _too_many(facts: list[NodeFacts], shape: Shape, kind: str) -> Infeasible:
    """Each part fits a node, but not all of them together fit the nodes."""
    missing = sorted(set(shape.nodelist) - {node.name for node in facts})
    if missing:
        return Infeasible(why=f"node `{missing[0]}` is not in partition `{shape.partition}`", hint="see gqinfo -N")
    if shape.nodes_min > len(facts):
        why = f"it asks for {counted(shape.nodes_min, 'nodes')}; it may use {len(facts)}"
        return Infeasible(why=why, hint=f"ask for at most {counted(len(facts), 'nodes')}")
    gpus, cpus = wanted_in_all(shape)
    all_gpus = sum(node.type_mask(shape.gpu_type).bit_count() for node in facts)
    if gpus > all_gpus:
        why = f"it asks for {counted(gpus, 'GPUs')}{kind}; its nodes have {all_gpus}"
        return Infeasible(why=why, hint=f"ask for at most {all_gpus}")
    all_cpus = sum(node.cpus for node in facts)
    if cpus > all_cpus:
        why = f"it asks for {counted(cpus, 'CPUs')}; its nodes have {all_cpus}"
        return Infeasible(why=why, hint=f"ask for at most {all_cpus}")
    things = {"node": "nodes", "task": "tasks", "gpu": "GPUs"}[shape.unit]
    most = "" if shape.nodes_max >= ANY_NUMBER else f", at most {shape.nodes_max} of them"
    return Infeasible(
        why=f"its {counted(shape.units or shape.nodes_min, things)} do not fit together on the nodes it may use{most}",
        hint="ask for less per task, or for more nodes",
    )
