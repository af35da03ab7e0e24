"""Requests that can never be met: which limit of the hardware or of the cluster they exceed, and what would fit.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gq.model.constraint import All
from gq.near_miss import nearest
from gq.units import counted, format_memory
from gqd.sched.placement.constraints import constraint_of, meets, unknown_name
from gqd.sched.placement.feasible import admits, capacities, eligible_places, keeps_cores
from gqd.sched.placement.placement import Places, place
from gqd.sched.request import ANY_NUMBER, Shape, demand_for_units, every_shape, wanted_in_all
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.node_table import as_node_indices
from gqd.state.plan import Infeasible
from gqd.state.policy import Partition, Policy

MAX_NAMED = 20
"""The maximum number of names listed in one sentence."""


def too_many_licenses(policy: Policy, shape: Shape) -> Infeasible | None:
    """The refusal of a request for more of a licence than the cluster has; None if it has enough."""
    for name, wanted in shape.licenses:
        total = policy.licenses.get(name, 0)
        if not total:
            return Infeasible(why=f"the cluster has no licences `{name}`", hint=_there_are(name, list(policy.licenses)))
        if wanted > total:
            why = f"it asks for {counted(wanted, 'licences')} `{name}`; the cluster has {total}"
            return Infeasible(why=why, hint=f"ask for at most --licenses={name}:{total}")
    return None


def all_cores_kept(nodes: tuple[NodeFacts, ...], shape: Shape, eligible: Places, per_gpu: int) -> Infeasible | None:
    """The refusal of a job without GPUs that needs CPUs reserved for GPUs; None if it fits beside them.

    CPUs are reserved for each idle GPU; and a job that holds all GPUs of a node also holds one of its CPUs.
    """
    best = Overlay.empty(nodes)
    best.cores_kept = per_gpu
    if not keeps_cores(best, shape):
        return None
    busy = [node.cpus - bool(node.gpu_mask) for node in nodes]
    at_best = Overlay(nodes, [(1 << cpus) - 1 for cpus in busy], [0] * len(nodes), best.free_memory_mib)
    at_best.cores_kept = per_gpu
    if place(at_best, shape, eligible) is not None:
        return None
    idle = max(nodes[int(one)].cpus - per_gpu * nodes[int(one)].gpu_mask.bit_count() for one in eligible)
    why = f"it asks for {counted(wanted_in_all(shape)[1], 'CPUs')} and no GPUs, and of its nodes' CPUs"
    why += f" {per_gpu} are kept for each GPU until a job takes it"
    fewer = f"ask for at most {counted(idle, 'CPUs')} per node" if idle > 0 else "ask for GPUs, or for fewer CPUs"
    return Infeasible(why=why, hint=f"{fewer}; a job that has its nodes alone (--exclusive) gets all of them")


def unmet_constraint(nodes: tuple[NodeFacts, ...], shape: Shape, partition: Partition) -> Infeasible | None:
    """The refusal of a job whose constraint no node meets; None if the constraint is not what leaves it without
    nodes."""
    for one in every_shape(shape):
        others = eligible_places(nodes, one._replace(constraint=""), partition).tolist()
        facts = [nodes[place_] for place_ in others]
        if not one.constraint or not facts or any(admits(one, node) for node in facts):
            continue
        missing = unknown_name(facts, one)
        if missing is not None:
            name, known = missing
            return Infeasible(
                why=f"no node that it may use has a feature or an attribute `{name}` (--constraint={one.constraint})",
                hint=_there_are(name, known),
            )
        why = f"none of the {counted(len(facts), 'nodes')} that it may use is what --constraint={one.constraint} says"
        return Infeasible(why=why, hint=_nearly(facts, one) or "gqctl node show NODE lists features and attributes")
    return None


def _there_are(name: str, known: Sequence[str]) -> str:
    close = nearest(name, list(known))
    meant = f"did you mean `{close}`? " if close else ""
    more = ", …" if len(known) > MAX_NAMED else ""
    return f"{meant}there are {', '.join(f'`{one}`' for one in known[:MAX_NAMED])}{more}" if known else "there are none"


def _nearly(facts: list[NodeFacts], shape: Shape) -> str:
    """A hint on how many nodes meet each part of the constraint."""
    each = constraint_of(shape.constraint).each
    parts = each.operands if isinstance(each, All) else ()
    met = [sum(meets(node, part) for node in facts) for part in parts]
    if not met or 0 not in met:
        return "each part of it is met by some node, and no node meets all" if met else ""
    return f"part {met.index(0) + 1} of it is met by no node"


def infeasible(nodes: tuple[NodeFacts, ...], shape: Shape, eligible: Places) -> Infeasible:
    """The limit of the nodes that the request exceeds, with a hint on what would fit."""
    eligible = [int(one) for one in eligible]
    if shape.roles:
        return _infeasible_roles(nodes, shape, eligible)
    facts = [nodes[one] for one in eligible]
    return (
        _no_such_gpus(facts, shape)
        or _too_large(facts, shape)
        or _no_such_resource(facts, shape)
        or _not_at_once(nodes, shape, eligible)
        or _too_few_of_a_kind(facts, shape)
        or _too_many(facts, shape)
    )


def _kind(shape: Shape) -> str:
    memory = f" with {format_memory(shape.min_gpu_mem_mib)} of memory" if shape.min_gpu_mem_mib else ""
    return (f" of type `{shape.gpu_type}`" if shape.gpu_type else "") + memory


def _fitting(node: NodeFacts, shape: Shape) -> int:
    return node.fitting_mask(*shape.gpu_kind).bit_count()


def _no_such_gpus(facts: list[NodeFacts], shape: Shape) -> Infeasible | None:
    types = sorted({gpu_type for node in facts for gpu_type, mask in node.gpu_types if mask})
    if shape.gpu_type and shape.gpu_type not in types:
        have = f"there are {', '.join(f'`{type_}`' for type_ in types)}" if types else "the nodes have no GPUs"
        return Infeasible(why=f"no node that it may use has GPUs of type `{shape.gpu_type}`", hint=have)
    if shape.min_gpu_mem_mib and types and not any(_fitting(node, shape) for node in facts):
        of_type = [(node, node.type_mask(shape.gpu_type)) for node in facts]
        most = max((mib for node, mask in of_type for mib, mask_ in node.gpu_memory if mask & mask_), default=0)
        why = f"no node that it may use has GPUs{_kind(shape)}; the largest have {format_memory(most)}"
        return Infeasible(why=why, hint=f"ask for at most --min-gpu-mem={format_memory(most)}")
    return None


def _too_large(facts: list[NodeFacts], shape: Shape) -> Infeasible | None:
    """The refusal of a request for more of one resource on one node than any node has; None if each fits."""
    demand = demand_for_units(shape, 1)
    most_gpus = max(_fitting(node, shape) for node in facts)
    if demand.gpus > most_gpus:
        why = f"it asks for {counted(demand.gpus, 'GPUs')}{_kind(shape)} on one node; the largest node has {most_gpus}"
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
    return None


def _no_such_resource(facts: list[NodeFacts], shape: Shape) -> Infeasible | None:
    for name, wanted in shape.resources:
        most = max(dict(node.resources).get(name, 0) for node in facts)
        if not most:
            known = sorted({one for node in facts for one, count in node.resources if count})
            return Infeasible(why=f"no node that it may use has a resource `{name}`", hint=_there_are(name, known))
        if wanted > most:
            said = tuple(format_memory(one) if name == "tmp" else str(one) for one in (wanted, most))
            why = f"it asks for {said[0]} of `{name}` on one node; the most that a node has is {said[1]}"
            return Infeasible(why=why, hint=f"ask for at most {said[1]} per node")
    return None


def _not_at_once(nodes: tuple[NodeFacts, ...], shape: Shape, eligible: list[int]) -> Infeasible | None:
    if np.any(capacities(Overlay.empty(nodes), shape, as_node_indices(eligible))):
        return None
    demand = demand_for_units(shape, 1)
    parts = [counted(demand.gpus, "GPUs") + _kind(shape)] if demand.gpus else []
    parts += [counted(demand.cpus, "CPUs")]
    parts += [f"{format_memory(demand.memory_mib)} of memory"] if demand.memory_mib > 0 else []
    parts += [f"{count} of `{name}`" for name, count in shape.resources]
    why = f"no node that it may use has {' and '.join(parts)} at once"
    return Infeasible(why=why, hint="ask for less of one of them per node; gqinfo -N shows what each has")


def _too_few_of_a_kind(facts: list[NodeFacts], shape: Shape) -> Infeasible | None:
    """The refusal of ``a*4`` where only three nodes have `a`, or of ``[a|b]`` where neither kind has enough nodes."""
    constraint = constraint_of(shape.constraint)
    for count in constraint.counts:
        have = sum(meets(node, count.operand) for node in facts)
        if have < count.nodes:
            why = f"--constraint={shape.constraint} wants {counted(count.nodes, 'nodes')} of a kind; there are {have}"
            return Infeasible(why=why, hint=f"ask for at most {have} of them")
    most = max((sum(meets(node, kind) for node in facts) for kind in constraint.kinds), default=ANY_NUMBER)
    if most < shape.nodes_min:
        why = f"it asks for {counted(shape.nodes_min, 'nodes')} of one kind ({shape.constraint}); there are {most}"
        return Infeasible(why=why, hint=f"ask for at most {most}, or for `|` without brackets")
    return None


def _infeasible_roles(nodes: tuple[NodeFacts, ...], gang: Shape, eligible: list[int]) -> Infeasible:
    """The refusal of the first role that does not fit alone; else the roles do not fit together."""
    for name, role in gang.roles:
        own = [one for one in eligible if admits(role, nodes[one])]
        if not own:
            return Infeasible(why=f"role `{name}` may use none of its nodes", hint="gqinfo -N lists the nodes")
        if place(Overlay.empty(nodes), role, own) is None:
            alone = infeasible(nodes, role, own)
            return Infeasible(why=f"role `{name}`: {alone.why}", hint=alone.hint)
    names = ", ".join(f"`{name}`" for name, _ in gang.roles)
    most = "" if gang.nodes_max >= len(eligible) else f", at most {gang.nodes_max} of them"
    return Infeasible(
        why=f"its roles {names} do not fit beside each other on the {counted(len(eligible), 'nodes')} it may use{most}",
        hint="ask for less in one of them, or for fewer tasks",
    )


def _too_many(facts: list[NodeFacts], shape: Shape) -> Infeasible:
    """The refusal of a request whose parts each fit a node but do not all fit the nodes together."""
    missing = sorted(set(shape.nodelist) - {node.name for node in facts})
    if missing:
        return Infeasible(why=f"node `{missing[0]}` is not in partition `{shape.partition}`", hint="see gqinfo -N")
    if shape.nodes_min > len(facts):
        why = f"it asks for {counted(shape.nodes_min, 'nodes')}; it may use {len(facts)}"
        return Infeasible(why=why, hint=f"ask for at most {counted(len(facts), 'nodes')}")
    gpus, cpus = wanted_in_all(shape)
    all_gpus = sum(_fitting(node, shape) for node in facts)
    if gpus > all_gpus:
        why = f"it asks for {counted(gpus, 'GPUs')}{_kind(shape)}; its nodes have {all_gpus}"
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
