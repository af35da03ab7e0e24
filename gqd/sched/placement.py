"""Where a job goes: which nodes, and which CPUs and GPUs of them.  All or nothing.  Pure.

``pack`` is best fit: the node with the fewest free GPUs (then CPUs) that suffices, so that whole nodes stay free
for gangs.  A gang takes as few nodes as its request allows.
"""

from __future__ import annotations

from gq.model.resource import Grant
from gqd.sched.feasible import capacity
from gqd.sched.shape import Demand, Shape, demand_for_units, demand_of
from gqd.sched.view import Overlay


def place(overlay: Overlay, shape: Shape, candidates: list[int]) -> tuple[Grant, ...] | None:
    """Grants for the whole job on the candidate nodes (places, in order of preference on ties), or None.

    The overlay is not changed.  The first grant is the batch node's; grants come in the nodes' own order.
    """
    wanted = [one for one in candidates if overlay.nodes[one].name in shape.nodelist]
    if len(wanted) < min(len(shape.nodelist), shape.nodes_max):
        return None
    units = {one: capacity(overlay, one, shape) for one in candidates}
    if any(not units[one] for one in wanted):
        return None
    able = sorted((one for one in candidates if units[one]), key=lambda one: _tightness(overlay, one, shape, wanted))
    if len(able) < shape.nodes_min:
        return None
    chosen = _deal(shape, able, units, wanted)
    if chosen is None:
        return None
    in_order = {one: chosen[one] for one in sorted(chosen)}
    return tuple(pick(overlay, one, demand, shape) for one, demand in _demands(shape, in_order))


def _tightness(overlay: Overlay, one: int, shape: Shape, wanted: list[int]) -> tuple[bool, int, int, int]:
    """Sorts the listed nodes first, then best fit, then the nodes' own order."""
    free_gpus = overlay.free_gpus[one].bit_count()
    return (one not in wanted, free_gpus, overlay.free_cpus[one].bit_count(), one)


def _deal(shape: Shape, able: list[int], units: dict[int, int], listed: list[int]) -> dict[int, int] | None:
    """Place → units, over the fewest nodes; None if they do not suffice.  `able` is in order of preference."""
    if shape.unit == "node":
        return dict.fromkeys(able[: shape.nodes_max], 1)
    if shape.is_even:
        return _deal_evenly(shape, able, units, listed)
    single = next((one for one in able if units[one] >= shape.units), None)
    if single is not None and shape.nodes_min == 1 and listed in ([], [single]):
        return {single: shape.units}
    return _deal_over_fewest(shape, able, units, listed)


def _deal_evenly(shape: Shape, able: list[int], units: dict[int, int], listed: list[int]) -> dict[int, int] | None:
    """Over exactly ``nodes_min`` nodes, as evenly as their room allows."""
    count = shape.nodes_min
    share = -(-shape.units // count)
    nodes = [one for one in able if one in listed or units[one] >= share][:count]
    if len(nodes) < count:
        nodes = sorted(able, key=lambda one: (one not in listed, -units[one]))[:count]
    if sum(units[one] for one in nodes) < shape.units:
        return None
    dealt = dict.fromkeys(nodes, 1)
    for _ in range(shape.units - count):
        neediest = min((one for one in nodes if dealt[one] < units[one]), key=lambda one: (dealt[one], one))
        dealt[neediest] += 1
    return dealt


def _deal_over_fewest(shape: Shape, able: list[int], units: dict[int, int], listed: list[int]) -> dict[int, int] | None:
    """The listed nodes, then the roomiest, are filled up; the last share goes to the tightest node that holds it."""
    others = sorted((one for one in able if one not in listed), key=lambda one: -units[one])
    dealt: dict[int, int] = {}
    rest = shape.units
    for one in listed + others:
        if not rest or len(dealt) == shape.nodes_max:
            break
        kept_for_others = max(0, shape.nodes_min - len(dealt) - 1)
        dealt[one] = min(units[one], rest - kept_for_others)
        rest -= dealt[one]
    if rest or len(dealt) < shape.nodes_min:
        return None
    last = next(reversed(dealt))
    if last not in listed:
        share = dealt.pop(last)
        enough = [one for one in others if units[one] >= share and one not in dealt]
        dealt[min(enough, key=lambda one: (units[one], able.index(one)))] = share
    return dealt


def _demands(shape: Shape, dealt: dict[int, int]) -> list[tuple[int, Demand]]:
    """What each chosen node must give; where GPUs were dealt out, the tasks go along with them."""
    if shape.unit != "gpu" or shape.ntasks is None:
        return [(one, demand_for_units(shape, units)) for one, units in dealt.items()]
    demands = []
    tasks_left, units_left = shape.ntasks, shape.units
    for position, (one, units) in enumerate(dealt.items()):
        nodes_left = len(dealt) - position - 1
        tasks = tasks_left if not nodes_left else max(1, min(tasks_left - nodes_left, tasks_left * units // units_left))
        demands.append((one, demand_of(shape, tasks, units)))
        tasks_left, units_left = tasks_left - tasks, units_left - units
    return demands


def pick(overlay: Overlay, one: int, demand: Demand, shape: Shape) -> Grant:
    """Exact CPUs and GPUs of a node that fits: the lowest free ones; an exclusive job gets all."""
    node = overlay.nodes[one]
    if shape.is_exclusive:
        cpus, gpus = _lowest(overlay.free_cpus[one], None), _lowest(overlay.free_gpus[one], None)
    else:
        cpus = _lowest(overlay.free_cpus[one], demand.cpus)
        gpus = _lowest(overlay.free_gpus[one] & node.type_mask(shape.gpu_type), demand.gpus)
    return Grant(
        node=node.name,
        tasks=demand.tasks,
        cpus=cpus,
        gpus=gpus,
        memory_mib=node.memory_mib if demand.memory_mib < 0 else demand.memory_mib,
    )


def _lowest(mask: int, count: int | None) -> tuple[int, ...]:
    """Ids of the lowest `count` bits (None: of all)."""
    ids: list[int] = []
    while mask and (count is None or len(ids) < count):
        lowest = mask & -mask
        ids.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(ids)


def is_possible(overlay: Overlay, grants: tuple[Grant, ...], places: dict[str, int]) -> bool:
    """Everything in these grants is free on the overlay: the re-check of a plan."""
    for grant in grants:
        one = places.get(grant.node)
        if one is None:
            return False
        cpus = set(grant.cpus) <= set(_lowest(overlay.free_cpus[one], None))
        gpus = set(grant.gpus) <= set(_lowest(overlay.free_gpus[one], None))
        if not cpus or not gpus or grant.memory_mib > overlay.free_memory_mib[one]:
            return False
    return True
