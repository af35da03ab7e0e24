"""Place a job: choose its nodes and the CPUs and GPUs on them, all or nothing.  Pure.

Nodes are selected with vectors and by best fit: the node with the fewest free GPUs that suffices, and among equal nodes
the one that reached that number first, so that whole nodes stay free for large jobs.  A job over several nodes takes as
few as its request allows, in the smallest part of the topology that has them.  Preferences (``--prefer``, ``--data``,
GPU tiers) come before all of this, as long as the job fits that way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from itertools import repeat
from typing import NamedTuple

import numpy as np

from gq.model.resource import Amount, Grant
from gqd.sched.placement.constraints import constraint_of, is_preferred, marked, softness
from gqd.sched.placement.devices import assign_devices
from gqd.sched.placement.feasible import capacities, task_capacities
from gqd.sched.placement.gpu_tiers import tier_ranks, type_order
from gqd.sched.placement.roles import place_roles
from gqd.sched.request import RESTRICTIONS, Demand, Shape, demand_for_units, demand_of, knows
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node_table import as_node_indices
from gqd.sched.snapshot.switches import level_allowed, scopes, tree_of
from gqd.state.index.queue import Booleans, Floats, Integers

Places = Integers | list[int]
Demands = list[tuple[int, Demand]]
"""Pairs of (node index, demand on that node)."""
_NOWHERE: frozenset[int] = frozenset()
_PLAIN = RESTRICTIONS - {"nodelist", "constraint", "prefer", "data"} | {"is_dense"}
_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Weights of GPUs against tasks with which nodes are chosen by both."""


class _Field(NamedTuple):
    """The nodes to choose from, as parallel arrays."""

    places: Integers
    room: Integers
    """Units that each node can take, at least 1."""
    rank: Integers | None
    """How far each node falls short of preferences; None: there are no preferences."""
    musts: frozenset[int]
    """Indices of the nodes that must be among the chosen."""

    def only(self, positions: Integers) -> _Field:
        rank = None if self.rank is None else self.rank[positions]
        return _Field(self.places[positions], self.room[positions], rank, self.musts)


def place(
    overlay: Overlay, shape: Shape, candidates: Places, *, waited_s: float = math.inf, qos: str = ""
) -> tuple[Grant, ...] | None:
    """Place the whole job on the candidate nodes; None if it does not fit.

    `waited_s`: how long the job has waited for ``--switches`` and ``--prefer``.  `qos` decides which GPUs the job gets,
    never whether it fits.  The overlay is not changed.  The first grant is the batch node's; grants are in the order of
    the node indices.
    """
    if not _has_licenses(overlay, shape):
        return None
    places = as_node_indices(candidates)
    if shape.roles:
        grants = _place_roles(overlay, shape, places, waited_s, qos)
    else:
        grants = _place_alone(overlay, shape, places, waited_s, qos)
    if grants is None or not shape.licenses:
        return grants
    return (_with_licenses(grants[0], shape), *grants[1:])


def _has_licenses(overlay: Overlay, shape: Shape) -> bool:
    free = overlay.free_licenses
    return free is None or all(count <= free.get(name, 0) for name, count in shape.licenses)


def _with_licenses(grant: Grant, shape: Shape) -> Grant:
    return Grant(
        node=grant.node,
        tasks=grant.tasks,
        cpus=grant.cpus,
        gpus=grant.gpus,
        memory_mib=grant.memory_mib,
        resources=grant.resources,
        licenses=tuple(Amount(name, count) for name, count in shape.licenses),
        roles=grant.roles,
    )


def _place_roles(
    overlay: Overlay, gang: Shape, places: Integers, waited_s: float, qos: str
) -> tuple[Grant, ...] | None:
    """Place all roles within one part of the topology if they fit there."""

    def place_role(overlay: Overlay, role: Shape, candidates: list[int]) -> tuple[Grant, ...] | None:
        return place(overlay, role, candidates, waited_s=waited_s, qos=qos)

    if not overlay.switches:
        return place_roles(overlay, gang, places.tolist(), place_role)
    room = np.minimum(capacities(overlay, gang, places), 1)
    tree = tree_of(overlay.node_table, overlay.switches)
    allowed = level_allowed(gang, overlay.scheduling, waited_s, len(tree.levels))
    whole = gang._replace(unit="gpu", units=1, nodes_min=1)
    for positions in scopes(tree, whole, allowed, places, room):
        if grants := place_roles(overlay, gang, places[positions].tolist(), place_role):
            return grants
    return None


def _place_alone(
    overlay: Overlay, shape: Shape, places: Integers, waited_s: float, qos: str
) -> tuple[Grant, ...] | None:
    room = capacities(overlay, shape, places)
    if not _is_enough(shape, room) or (shape.is_dense and not _has_whole_nodes(overlay, shape, places, room)):
        return None
    if _is_plain(overlay, shape, qos):
        single = (room >= shape.units).nonzero()[0]
        if len(single):
            best = int(places[single[_best(overlay, shape, _Field(places[single], room[single], None, _NOWHERE))]])
            return (assign_devices(overlay, best, demand_for_units(shape, shape.units), shape),)
    able = room.nonzero()[0]
    if len(able) < len(places):
        places, room = places[able], room[able]
    listed = _listed(overlay, shape, places)
    if listed is None:
        return None
    field = _Field(places, room, _ranks(overlay, shape, places, qos), listed)
    for kind in _kinds(overlay, shape, field):
        for wished in _wishes(overlay, shape, kind, waited_s):
            if demands := _place_near(overlay, shape, wished, waited_s):
                types = type_order(overlay.scheduling, shape, qos)
                return tuple(assign_devices(overlay, one, demand, shape, types) for one, demand in sorted(demands))
    return None


def _is_enough(shape: Shape, room: Integers) -> bool:
    """A necessary condition on the capacities, checked before any node is looked at."""
    if np.count_nonzero(room) < shape.nodes_min:
        return False
    if shape.unit == "node":
        return True
    return bool(int(room.sum() if shape.nodes_max > 1 else room.max()) >= shape.units)


def _has_whole_nodes(overlay: Overlay, shape: Shape, places: Integers, room: Integers) -> bool:
    """A necessary condition for dense shapes: there are as many whole nodes as the GPUs fill."""
    kind = overlay.node_table.kind(shape.gpu_kind)
    if not kind.sizes or shape.units <= kind.sizes[-1] or room.max() >= shape.units:
        return bool(room.max() >= shape.units)
    totals = kind.counts[places] if len(kind.sizes) > 1 else kind.sizes[0]
    sizes = (size for size in kind.sizes if size < shape.units)
    return any(int(((room >= size) & (totals == size)).sum()) >= shape.units // size for size in sizes)


def _is_plain(overlay: Overlay, shape: Shape, qos: str) -> bool:
    """Whether best fit on one node is all that matters, if one node can take the job."""
    is_one = shape.nodes_min == 1 and shape.unit != "node" and shape.ntasks is None and not shape.is_even
    return is_one and knows(_PLAIN, shape) and not type_order(overlay.scheduling, shape, qos)


def _listed(overlay: Overlay, shape: Shape, places: Integers) -> frozenset[int] | None:
    """Indices of the listed nodes; None if one of them has no room."""
    if not shape.nodelist:
        return frozenset()
    known = overlay.node_table.index_of
    listed = {known[name] for name in shape.nodelist if name in known}
    is_there = len(listed) == len(set(shape.nodelist)) and listed <= set(places.tolist())
    return frozenset(listed) if is_there else None


# ── wishes and constraints ────────────────────────────────────────────────────────────────────────────────────


def _ranks(overlay: Overlay, shape: Shape, places: Integers, qos: str) -> Integers | None:
    """Ranks of the nodes by preferences first, then by GPU tier; None without either."""
    soft = softness(overlay.node_table, shape)
    order = type_order(overlay.scheduling, shape, qos)
    if soft is None and not order:
        return None
    rank = np.zeros(len(places), dtype=np.int64) if soft is None else soft[places] * (len(order) + 1)
    return rank + tier_ranks(overlay.node_table, shape, order)[places] if order else rank


def _kinds(overlay: Overlay, shape: Shape, field: _Field) -> Iterator[_Field]:
    """Candidate sets by constraint: for ``[a|b]`` the nodes of one kind at a time; for ``a*2`` with two matching
    nodes as musts."""
    if not shape.constraint:
        yield field
        return
    constraint = constraint_of(shape.constraint)
    fields = [field]
    if constraint.kinds:
        masks = (marked(overlay.node_table, kind)[field.places] for kind in constraint.kinds)
        fields = [field.only(np.flatnonzero(mask)) for mask in masks]
    for one in fields:
        if not constraint.counts:
            yield one
        elif (musts := _counted(overlay, shape, one)) is not None:
            yield one._replace(musts=musts)


def _counted(overlay: Overlay, shape: Shape, field: _Field) -> frozenset[int] | None:
    """Nodes that fulfil the counts of the constraint, preferring nodes that match several unfulfilled counts, then
    best fit; None if there are too few."""
    chosen = dict.fromkeys(sorted(field.musts))
    masks = [marked(overlay.node_table, one.operand) for one in constraint_of(shape.constraint).counts]
    missing = [one.nodes for one in constraint_of(shape.constraint).counts]
    missing = [count - sum(int(mask[one]) for one in chosen) for count, mask in zip(missing, masks, strict=True)]
    order = field.places[_in_order(overlay, shape, field)].tolist()
    if shape.unit != "node":
        room = dict(zip(field.places.tolist(), _shares_of_all(overlay, shape, field).tolist(), strict=True))
        order.sort(key=lambda one: -room[one])
    scarce = [int(mask[field.places].sum()) for mask in masks]
    while any(count > 0 for count in missing):
        lacking = [number for number, count in enumerate(missing) if count > 0]
        rarest = min(lacking, key=lambda number: scarce[number] - missing[number])
        fitting = [one for one in order if one not in chosen and masks[rarest][one]]
        if not fitting:
            return None
        best = max(fitting, key=lambda one: sum(bool(masks[number][one]) for number in lacking))
        chosen[best] = None
        missing = [count - int(mask[best]) for count, mask in zip(missing, masks, strict=True)]
    return frozenset(chosen) if len(chosen) <= shape.nodes_max else None


def _shares_of_all(overlay: Overlay, shape: Shape, field: _Field) -> Floats:
    """How much of the whole job each node could run, by the scarcer of its GPUs and its tasks; 1.0 is all of it."""
    room = field.room / shape.units
    if shape.unit != "gpu" or shape.ntasks is None:
        return room
    return np.minimum(room, task_capacities(overlay, shape, field.places) / shape.ntasks)


def _wishes(overlay: Overlay, shape: Shape, field: _Field, waited_s: float) -> Iterator[_Field]:
    """Candidate sets from the most preferred nodes only to all nodes."""
    if field.rank is None:
        yield field
        return
    ranks = field.rank
    if holds_out_for_preferred(overlay, shape, waited_s):
        soft = softness(overlay.node_table, shape)
        assert soft is not None
        preferred = is_preferred(soft[field.places])
        field = field.only(np.flatnonzero(preferred))
        ranks = ranks[preferred]
    for most in np.unique(ranks).tolist():
        some = field.only(np.flatnonzero(ranks <= most))
        if _is_enough(shape, some.room):
            yield some


def holds_out_for_preferred(overlay: Overlay, shape: Shape, waited_s: float) -> bool:
    """Whether the job still waits for nodes that meet ``--prefer``, and such nodes exist."""
    if not shape.prefer or waited_s >= overlay.scheduling.locality_wait_s:
        return False
    soft = softness(overlay.node_table, shape)
    return soft is not None and bool(is_preferred(soft).any())


def _place_near(overlay: Overlay, shape: Shape, field: _Field, waited_s: float) -> Demands | None:
    """Distribute the job within the smallest part of the topology that has room."""
    if not overlay.switches or shape.nodes_max == 1 or _fits_on_one(shape, field):
        return _deal(overlay, shape, field)
    tree = tree_of(overlay.node_table, overlay.switches)
    allowed = level_allowed(shape, overlay.scheduling, waited_s, len(tree.levels))
    for positions in scopes(tree, shape, allowed, field.places, field.room):
        if demands := _deal(overlay, shape, field.only(positions)):
            return demands
    return None


def _fits_on_one(shape: Shape, field: _Field) -> bool:
    is_bound = shape.unit == "node" or shape.is_even or shape.nodes_min > 1 or shape.ntasks is not None
    return not is_bound and len(field.musts) < 2 and bool((field.room >= shape.units).any())


# ── dealing out ───────────────────────────────────────────────────────────────────────────────────────────────


def _in_order(overlay: Overlay, shape: Shape, field: _Field) -> Integers:
    """Positions of the nodes: musts first, then by preferences, best fit, time of the last change, node index."""
    places = field.places
    keys: list[Integers] = [places, overlay.cpu_counts[places]]
    if overlay.since is not None:
        keys.append(overlay.since[places])
    keys.append(overlay.gpu_counts[places])
    if overlay.since is not None and not _wants_gpus(shape):
        keys[1:3] = [keys[2], keys[1]]
    if field.rank is not None:
        keys.append(field.rank)
    if field.musts:
        keys.append(np.array([one not in field.musts for one in places.tolist()], dtype=np.int64))
    return np.lexsort(keys)


def _wants_gpus(shape: Shape) -> bool:
    return shape.unit == "gpu" or bool(shape.gpus_per_node or shape.gpus_per_task)


def _best(overlay: Overlay, shape: Shape, field: _Field) -> int:
    """The first position of `_in_order`, found without sorting."""
    if field.musts or field.rank is not None:
        return int(_in_order(overlay, shape, field)[0])
    left = np.arange(len(field.places))
    columns = [overlay.gpu_counts, overlay.since, overlay.cpu_counts]
    if not _wants_gpus(shape):
        columns = [overlay.gpu_counts, overlay.cpu_counts]
    for column in columns:
        if column is not None and len(left) > 1:
            values = column[field.places[left]]
            left = left[values == values.min()]
    return int(left[field.places[left].argmin()])


def _deal(overlay: Overlay, shape: Shape, field: _Field) -> Demands | None:
    """The demand on each chosen node; None if these nodes do not suffice."""
    if not _is_enough(shape, field.room) or not field.musts <= set(field.places.tolist() if field.musts else ()):
        return None
    if shape.unit == "gpu" and shape.ntasks is not None:
        return _deal_gpus_and_tasks(overlay, shape, field)
    dealt = _deal_units(overlay, shape, field)
    return None if dealt is None else [(one, demand_for_units(shape, units)) for one, units in dealt.items()]


def _deal_units(overlay: Overlay, shape: Shape, field: _Field) -> dict[int, int] | None:
    """Units by node index, over as few nodes as possible."""
    if shape.unit == "node":
        if shape.nodes_max == 1 and not field.musts:
            return {int(field.places[_best(overlay, shape, field)]): 1}
        chosen = field.places[_in_order(overlay, shape, field)[: shape.nodes_max]]
        return dict(zip(chosen.tolist(), repeat(1)))
    if shape.is_dense:
        return _deal_densely(overlay, shape, field)
    if not shape.is_even and shape.nodes_min == 1 and len(field.musts) < 2:
        single = np.flatnonzero(field.room >= shape.units)
        if field.musts and len(single):
            single = single[np.isin(field.places[single], list(field.musts))]
        if len(single):
            return {int(field.places[single[_best(overlay, shape, field.only(single))]]): shape.units}
    able = field.only(_in_order(overlay, shape, field))
    return _deal_evenly(shape, able) if shape.is_even else _deal_over_fewest(shape, able)


def _deal_densely(overlay: Overlay, shape: Shape, field: _Field) -> dict[int, int] | None:
    """Whole nodes as far as they go, and the rest on the node where it fits best; what one node has, on one node."""
    kind = overlay.node_table.kind(shape.gpu_kind)
    in_order = field.only(_in_order(overlay, shape, field))
    totals = kind.counts[in_order.places]
    for size in kind.sizes:
        count, rest = divmod(shape.units, size)
        if shape.units <= size:
            count, rest = 0, shape.units
        whole = np.flatnonzero((totals == size) & (in_order.room >= size))[:count]
        if len(whole) < count:
            continue
        dealt = dict(zip(in_order.places[whole].tolist(), repeat(size)))
        if rest:
            others = np.setdiff1d(np.flatnonzero(in_order.room >= rest), whole)
            if not len(others):
                continue
            one = int(in_order.places[others[_best(overlay, shape, in_order.only(others))]])
            dealt[one] = rest
        if shape.nodes_min <= len(dealt) <= shape.nodes_max and in_order.musts <= dealt.keys():
            return dealt
    return None


def _deal_evenly(shape: Shape, able: _Field) -> dict[int, int] | None:
    """Distribute the units over exactly ``nodes_min`` nodes, as evenly as their capacities allow."""
    count = shape.nodes_min
    share = -(-shape.units // count)
    is_must = _are_musts(able)
    chosen = np.flatnonzero(is_must | (able.room >= share))[:count]
    if len(chosen) < count or int(able.room[chosen].sum()) < shape.units:
        chosen = np.lexsort((-able.room, ~is_must))[:count]
    return spread(shape.units, dict(zip(able.places[chosen].tolist(), able.room[chosen].tolist(), strict=True)))


def _are_musts(field: _Field) -> Booleans:
    if not field.musts:
        return np.zeros(len(field.places), dtype=np.bool_)
    return np.isin(field.places, list(field.musts))


def spread(total: int, room: dict[int, int], weights: dict[int, int] | None = None) -> dict[int, int] | None:
    """Give each node one unit, then each further unit to the node with the fewest for its weight; None without room."""
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


def _deal_over_fewest(shape: Shape, able: _Field) -> dict[int, int] | None:
    """Fill the musts, then the nodes with most room; the last share goes to the tightest node that holds it."""
    order = np.lexsort((-able.room, ~_are_musts(able)))
    at_least = max(shape.nodes_min, len(able.musts))
    dealt: dict[int, int] = {}
    rest, last = shape.units, -1
    for position in order.tolist():
        if not rest or len(dealt) == shape.nodes_max:
            break
        share = min(int(able.room[position]), rest - max(0, at_least - len(dealt) - 1))
        dealt[int(able.places[position])] = share
        rest, last = rest - share, position
    if rest or len(dealt) < shape.nodes_min or not able.musts <= dealt.keys():
        return None
    place_of_last = int(able.places[last])
    if place_of_last not in able.musts:
        share = dealt.pop(place_of_last)
        is_free = ~np.isin(able.places, [*dealt, *able.musts])
        enough = np.flatnonzero(is_free & (able.room >= share))
        dealt[int(able.places[enough[able.room[enough].argmin()]])] = share
    return dealt


# ── GPUs and tasks, each a number over the whole job ──────────────────────────────────────────────────────────


def _deal_gpus_and_tasks(overlay: Overlay, shape: Shape, field: _Field) -> Demands | None:
    """Distribute GPUs and tasks separately: on a node, the room for one does not depend on the other.

    Where the number of nodes is bounded, nodes are chosen by their room for both, with several weights.
    """
    assert shape.ntasks is not None
    tasks = task_capacities(overlay, shape, field.places)
    both = np.flatnonzero(tasks)
    field, tasks = field.only(both), tasks[both]
    if not field.musts <= set(field.places.tolist()):
        return None
    tightness = np.empty(len(both), dtype=np.int64)
    tightness[_in_order(overlay, shape, field)] = np.arange(len(both))
    is_other = np.array([one not in field.musts for one in field.places.tolist()], dtype=np.bool_)
    best: Integers | None = None
    for weight in _WEIGHTS:
        worth = weight * field.room / shape.units + (1 - weight) * tasks / shape.ntasks
        order = np.lexsort((tightness, -worth, is_other))
        enough = _shortest(shape, field.room[order], tasks[order])
        if enough is not None and (best is None or enough < len(best)):
            best = order[:enough]
    if best is None:
        return None
    best = best[np.argsort(field.places[best])]
    places = field.places[best].tolist()
    gpu_room = dict(zip(places, field.room[best].tolist(), strict=True))
    even_gpus = spread(shape.units, gpu_room)
    assert even_gpus is not None
    even_tasks = spread(shape.ntasks, dict(zip(places, tasks[best].tolist(), strict=True)), even_gpus)
    assert even_tasks is not None
    return [(index, demand_of(shape, even_tasks[index], even_gpus[index])) for index in places]


def _shortest(shape: Shape, gpus: Integers, tasks: Integers) -> int | None:
    """The number of leading nodes that have room for all GPUs and all tasks; None if there is no such number."""
    is_enough = (np.cumsum(gpus) >= shape.units) & (np.cumsum(tasks) >= (shape.ntasks or 0))
    is_enough[: shape.nodes_min - 1] = False
    first = int(is_enough.argmax()) if len(is_enough) else 0
    return first + 1 if len(is_enough) and is_enough[first] and first < shape.nodes_max else None


def is_possible(overlay: Overlay, grants: tuple[Grant, ...], places: dict[str, int]) -> bool:
    """Whether everything in the grants is free on the overlay: the re-check of a plan."""
    return all(grant.node in places and overlay.has(places[grant.node], grant) for grant in grants)
