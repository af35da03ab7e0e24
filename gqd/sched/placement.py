"""Where a job goes: which nodes, and which CPUs and GPUs of them.  All or nothing.  Pure.

``pack`` is best fit: the node with the fewest free GPUs (then CPUs) that suffices, so that whole nodes stay free
for gangs.  A gang takes as few nodes as its request allows.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from gq.model.resource import Grant
from gqd.sched.feasible import capacity, task_capacity
from gqd.sched.roles import place_roles
from gqd.sched.shape import Demand, Shape, demand_for_units, demand_of
from gqd.sched.view import Overlay

Demands = list[tuple[int, Demand]]
"""Place → what its node must give."""
_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""How much GPUs count against tasks where nodes are chosen by both."""


def place(overlay: Overlay, shape: Shape, candidates: list[int]) -> tuple[Grant, ...] | None:
    """Grants for the whole job on the candidate nodes (places, in order of preference on ties), or None.

    The overlay is not changed.  The first grant is the batch node's; grants come in the nodes' own order.
    """
    if shape.roles:
        return place_roles(overlay, shape, candidates, place)
    wanted = [one for one in candidates if overlay.nodes[one].name in shape.nodelist]
    if len(wanted) < len(set(shape.nodelist)):
        return None
    if shape.unit == "gpu" and shape.ntasks is not None:
        demands = _place_gpus_and_tasks(overlay, shape, candidates, wanted)
        return None if demands is None else tuple(pick(overlay, one, demand, shape) for one, demand in demands)
    units = {one: capacity(overlay, one, shape) for one in candidates}
    if any(not units[one] for one in wanted):
        return None
    able = sorted((one for one in candidates if units[one]), key=lambda one: _tightness(overlay, one, wanted))
    if len(able) < shape.nodes_min:
        return None
    chosen = _deal(shape, able, units, wanted)
    if chosen is None:
        return None
    in_order = {one: chosen[one] for one in sorted(chosen)}
    return tuple(pick(overlay, one, demand, shape) for one, demand in _demands(shape, in_order))


def _tightness(overlay: Overlay, one: int, wanted: list[int]) -> tuple[bool, int, int, int]:
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
    if len(nodes) < count or sum(units[one] for one in nodes) < shape.units:
        nodes = sorted(able, key=lambda one: (one not in listed, -units[one]))[:count]
    return spread(shape.units, {one: units[one] for one in nodes})


def spread(total: int, room: dict[int, int], weights: dict[int, int] | None = None) -> dict[int, int] | None:
    """One for each place, then one by one to where there is least for its weight; None if there is not the room."""
    if not len(room) <= total <= sum(room.values()):
        return None
    dealt = dict.fromkeys(room, 1)
    weight = weights or dealt.copy()
    neediest = [(1 / weight[one], one) for one in room if room[one] > 1]
    heapify(neediest)
    for _ in range(total - len(room)):
        one = neediest[0][1]
        dealt[one] += 1
        if dealt[one] < room[one]:
            heapreplace(neediest, (dealt[one] / weight[one], one))
        else:
            heappop(neediest)
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
    """What each chosen node must give."""
    return [(one, demand_for_units(shape, units)) for one, units in dealt.items()]


# ── GPUs and tasks, each a number over the whole job ──────────────────────────────────────────────────────────


def _place_gpus_and_tasks(overlay: Overlay, shape: Shape, candidates: list[int], listed: list[int]) -> Demands | None:
    """What one node can take of either does not depend on the other: its room is a box.

    Where the number of nodes is bound, the nodes are chosen by what they have of both, with several weights.
    """
    assert shape.ntasks is not None
    gpus = {one: capacity(overlay, one, shape) for one in candidates}
    tasks = {one: task_capacity(overlay, one, shape) if gpus[one] else 0 for one in candidates}
    able = [one for one in candidates if gpus[one] and tasks[one]]
    if not set(listed) <= set(able):
        return None
    best: list[int] | None = None
    for weight in _WEIGHTS:
        order = sorted(
            able,
            key=lambda one: (
                one not in listed,
                -(weight * gpus[one] / shape.units + (1 - weight) * tasks[one] / (shape.ntasks or 1)),
                _tightness(overlay, one, listed),
            ),
        )
        enough = _shortest(shape, order, gpus, tasks)
        if enough is not None and (best is None or len(enough) < len(best)):
            best = enough
    if best is None:
        return None
    best.sort()
    even_gpus = spread(shape.units, {one: gpus[one] for one in best})
    assert even_gpus is not None
    even_tasks = spread(shape.ntasks, {one: tasks[one] for one in best}, even_gpus)
    assert even_tasks is not None
    return [(one, demand_of(shape, even_tasks[one], even_gpus[one])) for one in best]


def _shortest(shape: Shape, order: list[int], gpus: dict[int, int], tasks: dict[int, int]) -> list[int] | None:
    """The first nodes in this order that have room for all GPUs and all tasks."""
    gpus_left, tasks_left = shape.units, shape.ntasks or 0
    for count, one in enumerate(order[: shape.nodes_max], 1):
        gpus_left -= gpus[one]
        tasks_left -= tasks[one]
        if count >= shape.nodes_min and gpus_left <= 0 and tasks_left <= 0:
            return order[:count]
    return None


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
