"""Why a job does not fit, as data: what is scarce, who holds it, since nothing else explains a wait.  Pure."""

from __future__ import annotations

from gq.units import format_memory
from gqd.sched.feasible import capacity
from gqd.sched.placement import place
from gqd.sched.shape import ANY_NUMBER, Shape, demand_for_units
from gqd.sched.timeline import earliest_fit
from gqd.sched.view import NodeFacts, Overlay, PendingJob, Snapshot
from gqd.state.plan import Holder, Infeasible, Insufficient, NoNodes, Unavailable, Wait

MAX_HOLDERS = 50


def why_it_does_not_fit(
    snapshot: Snapshot,
    overlay: Overlay,
    job: PendingJob,
    usable: list[int],
    capable: list[int],
    available: list[int],
) -> tuple[Wait, bool]:
    """The reason, and whether the job claims its nodes (it would fit on the available ones if they were empty).

    `usable` nodes it may use; `capable` ones could give it something; `available` ones are up as well.
    """
    if not usable:
        return NoNodes(job.shape.partition), False
    empty = Overlay.empty(snapshot.nodes)
    if place(empty, job.shape, available) is not None:
        return _insufficient(snapshot, overlay, job, available), True
    if place(empty, job.shape, capable) is not None:
        return _unavailable(snapshot, job, capable, available), False
    whole = tuple(node.whole() for node in snapshot.nodes)
    if place(Overlay.empty(whole), job.shape, usable) is not None:
        return _drained(snapshot, usable), False
    return infeasible(whole, job.shape, usable), False


def _insufficient(snapshot: Snapshot, overlay: Overlay, job: PendingJob, available: list[int]) -> Insufficient:
    resource, wanted, free = _scarcest(overlay, job.shape, available)
    fit = earliest_fit(overlay, job.shape, available, snapshot.running, snapshot.now)
    return Insufficient(
        resource=resource,
        wanted=wanted,
        free=free,
        holders=_holders(snapshot, available, resource),
        is_fragmented=free >= wanted,
        starts_at=fit[0] if fit else None,
    )


def _scarcest(overlay: Overlay, shape: Shape, places: list[int]) -> tuple[str, int, int]:
    """(resource, wanted, free) of the first resource that is short; nodes if none is short in sum."""
    wanted = wanted_in_all(shape)
    nodes = overlay.nodes
    free_gpus = sum((overlay.free_gpus[one] & nodes[one].type_mask(shape.gpu_type)).bit_count() for one in places)
    free = (free_gpus, sum(overlay.free_cpus[one].bit_count() for one in places))
    for name, want, have in zip(("GPUs", "CPUs"), wanted, free, strict=True):
        if want > have:
            return name, want, have
    memory_free = sum(max(0, overlay.free_memory_mib[one]) for one in places)
    memory_wanted = _memory_wanted(shape)
    if memory_wanted > memory_free:
        return "memory", memory_wanted, memory_free
    if wanted[0]:
        return "GPUs", wanted[0], free[0]
    able = sum(1 for one in places if capacity(overlay, one, shape))
    if able < shape.nodes_min:
        return "nodes", shape.nodes_min, able
    return "CPUs", wanted[1], free[1]


def wanted_in_all(shape: Shape) -> tuple[int, int]:
    """(GPUs, CPUs) of the whole job at its smallest."""
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


def _memory_wanted(shape: Shape) -> int:
    gpus, cpus = wanted_in_all(shape)
    if shape.mem_per_node_mib is not None:
        return shape.mem_per_node_mib * shape.nodes_min
    return (shape.mem_per_cpu_mib or 0) * cpus or (shape.mem_per_gpu_mib or 0) * gpus


def _holders(snapshot: Snapshot, places: list[int], resource: str) -> tuple[Holder, ...]:
    """Who holds the scarce resource on these nodes, largest first; for GPUs only those that have some."""
    names = {snapshot.nodes[one].name for one in places}
    holders = []
    for job in snapshot.running:
        here = [grant for grant in job.grants if grant.node in names]
        gpus = sum(len(grant.gpus) for grant in here)
        if not here or (resource == "GPUs" and not gpus):
            continue
        cpus = sum(len(grant.cpus) for grant in here)
        nodes = tuple(grant.node for grant in here)
        holders.append(Holder(job_id=job.job_id, user=job.user, nodes=nodes, gpus=gpus, cpus=cpus, ends_at=job.ends_at))
    holders.sort(key=lambda one: (-one.gpus, -one.cpus, one.job_id))
    return tuple(holders[:MAX_HOLDERS])


def _unavailable(snapshot: Snapshot, job: PendingJob, capable: list[int], available: list[int]) -> Unavailable:
    own = dict(job.avoid)
    out = [snapshot.nodes[one] for one in capable if one not in available]
    nodes = tuple((node.name, node.unavailable or "its last launch there failed") for node in out)
    backoffs = [max(node.backoff_until, own.get(node.name, 0.0)) for node in out]
    later = [until for until in backoffs if until > snapshot.now]
    return Unavailable(nodes=nodes, until=max(later) if len(later) == len(out) else None)


def _drained(snapshot: Snapshot, usable: list[int]) -> Unavailable:
    """Single GPUs are drained, and it would fit with them."""
    nodes = [snapshot.nodes[one] for one in usable if snapshot.nodes[one].drained]
    counts = [(node.name, sum(mask.bit_count() for _, mask in node.drained)) for node in nodes]
    return Unavailable(nodes=tuple((name, f"short of {count} drained GPUs") for name, count in counts))


def infeasible(nodes: tuple[NodeFacts, ...], shape: Shape, usable: list[int]) -> Infeasible:
    """Which limit of the hardware the request is over, and what would fit."""
    facts = [nodes[one] for one in usable]
    types = sorted({gpu_type for node in facts for gpu_type, mask in node.gpu_types if mask})
    most_gpus = max(node.type_mask(shape.gpu_type).bit_count() for node in facts)
    demand = demand_for_units(shape, 1)
    kind = f" of type `{shape.gpu_type}`" if shape.gpu_type else ""
    if shape.gpu_type and shape.gpu_type not in types:
        have = f"there are {', '.join(f'`{one}`' for one in types)}" if types else "the nodes have no GPUs"
        return Infeasible(why=f"no node that it may use has GPUs of type `{shape.gpu_type}`", hint=have)
    if demand.gpus > most_gpus:
        why = f"it asks for {demand.gpus} GPUs{kind} on one node; the largest node has {most_gpus}"
        fitting = f"ask for at most {most_gpus} per node, over more nodes"
        return Infeasible(why=why, hint=fitting if most_gpus else "ask for no GPUs, or another partition")
    most_cpus = max(node.cpus for node in facts)
    if demand.cpus > most_cpus:
        why = f"it asks for {demand.cpus} CPUs on one node; the largest node has {most_cpus}"
        return Infeasible(why=why, hint=f"ask for at most {most_cpus} CPUs per node")
    most_memory = max(node.memory_mib for node in facts)
    if demand.memory_mib > most_memory:
        wanted, most = format_memory(demand.memory_mib), format_memory(most_memory)
        why = f"it asks for {wanted} of memory on one node; the largest node has {most}"
        return Infeasible(why=why, hint=f"ask for at most --mem={most_memory}M per node")
    return _too_many(facts, shape, kind)


def _too_many(facts: list[NodeFacts], shape: Shape, kind: str) -> Infeasible:
    """Each part fits a node, but not all of them together fit the nodes."""
    missing = sorted(set(shape.nodelist) - {node.name for node in facts})
    if missing:
        return Infeasible(why=f"node `{missing[0]}` is not in partition `{shape.partition}`", hint="see gqinfo -N")
    if shape.nodes_min > len(facts):
        why = f"it asks for {shape.nodes_min} nodes; it may use {len(facts)}"
        return Infeasible(why=why, hint=f"ask for at most {len(facts)} nodes")
    gpus, cpus = wanted_in_all(shape)
    all_gpus = sum(node.type_mask(shape.gpu_type).bit_count() for node in facts)
    if gpus > all_gpus:
        why = f"it asks for {gpus} GPUs{kind}; its nodes have {all_gpus}"
        return Infeasible(why=why, hint=f"ask for at most {all_gpus}")
    all_cpus = sum(node.cpus for node in facts)
    if cpus > all_cpus:
        return Infeasible(why=f"it asks for {cpus} CPUs; its nodes have {all_cpus}", hint=f"ask for at most {all_cpus}")
    most = "" if shape.nodes_max >= ANY_NUMBER else f" on at most {shape.nodes_max} nodes"
    return Infeasible(
        why=f"its {shape.units or shape.nodes_min} {shape.unit}s do not fit together on the nodes it may use{most}",
        hint="ask for less per task, or for more nodes",
    )
