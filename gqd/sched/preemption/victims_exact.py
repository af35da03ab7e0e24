"""The cheapest victims for a job distributed in equal units over nodes: exact as long as few victims span nodes.  Pure.

For each node a table has the minimum cost of room for each number of units; dynamic programming over the nodes finds
how many units come from which node.  A victim that spans nodes is paid for once and releases something on each: its
cost is split over its nodes, which bounds the cost of every set from below.  Where only some of its parts are chosen,
the search branches: the victim leaves (and its other parts are free), or it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from gqd.sched.placement.feasible import keeps_cores, room_of
from gqd.sched.request import Shape, knows
from gqd.sched.snapshot.model import Overlay
from gqd.state.index.queue import Floats, Integers

MOST_ON_NODE = 12
"""Maximum number of victims on a node of which every subset is examined; of more, the subsets of the cheapest, and
these all together with the others added one by one."""
MOST_SETS = 1 << 17
"""Maximum number of subsets on all nodes together; with many nodes there are fewer for each."""
MOST_WORK = 2000
"""Maximum of the number of nodes times the number of distributions tried."""
LEAST_TRIES, MOST_TRIES = 6, 200
MOST_CELLS, MOST_CELLS_AT_ONCE = 20_000_000, 150_000_000
"""Numbers examined in a search: above the first it ends with the best set found, and it does not begin if one
distribution would exceed the second."""
CELLS_OF_STEP = 3000
"""The cost of distributing one more number of units, beside the numbers examined."""
CELLS_OF_WORK = 10_000
"""Numbers examined in the time of one placement on a few nodes."""
_KNOWN = frozenset({"gpu_type", "min_gpu_mem_mib", "exclude", "is_exclusive", "resources"})
TOLERANCE = 1e-9
ROUNDING = 1e-12
"""Relative rounding error of sums of the same costs in another order."""


class Part(NamedTuple):
    """The resources that a victim releases on a node, as `Overlay.give_masks` takes them."""

    place: int
    cpus: int
    gpus: int
    memory_mib: int
    resources: tuple[tuple[str, int], ...] = ()
    licenses: tuple[tuple[str, int], ...] = ()


def cheapest_by_node(
    overlay: Overlay, shape: Shape, places: Integers, parts: Sequence[Sequence[Part]], weights: Sequence[float]
) -> tuple[list[int] | None, int]:
    """(indices of the victims, units of work done); None: the method does not apply, or all victims do not suffice.

    `parts`: what each victim releases; `weights`: the cost of each victim.
    """
    if not _is_dealt_out(overlay, shape):
        return None, 0
    here = set(places.tolist())
    by_place: dict[int, list[tuple[int, Part]]] = {place: [] for place in here}
    for number, of_victim in enumerate(parts):
        for part in of_victim:
            if part.place in here:
                by_place[part.place].append((number, part))
    search = _Search(_tables(overlay, shape, by_place, weights), shape, np.array(weights))
    return search.run(), search.cells // CELLS_OF_WORK


def _is_dealt_out(overlay: Overlay, shape: Shape) -> bool:
    """Whether fitting depends only on how many units each node has room for."""
    if shape.is_even or not knows(_KNOWN, shape):
        return False
    return not (shape.unit == "gpu" and shape.ntasks is not None) and not keeps_cores(overlay, shape)


# ── one node ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Table:
    """Nodes with the same number of victims, one column each."""

    victims: Integers
    """The indices of the victims."""
    room: Integers
    """The units that fit, by set of victims that has left, in the order of `sets`."""
    sets: Integers
    """The sets of victims (see `_sets`)."""

    def cheapest(self, weights: Floats, most: int) -> tuple[Floats, Integers]:
        """(minimum cost of room for each number of units by node, the set that has it)."""
        sets, own = self.sets, weights[self.victims]
        stays = own == inf
        costs = sets @ np.where(stays, 0.0, own)
        costs[sets @ stays > 0] = inf
        nodes = np.arange(costs.shape[1])
        by_units, chosen = np.zeros((len(nodes), most + 1)), np.zeros((len(nodes), most + 1), np.int64)
        for units in range(1, most + 1):
            enough = np.where(self.room >= units, costs, inf)
            best = enough.argmin(axis=0)
            by_units[:, units], chosen[:, units] = enough[best, nodes], best
        return by_units, chosen


@lru_cache(maxsize=4 * MOST_ON_NODE)
def _sets(count: int, most: int) -> Integers:
    """Subsets of `count` victims: a row each, 1 for each member; the last has all.

    Every subset of the first `most`, then all of these with the next victims added one by one.
    """
    free = min(count, most)
    rows = np.zeros(((1 << free) + count - free, count), np.int64)
    rows[: 1 << free, :free] = (np.arange(1 << free)[:, None] >> np.arange(free)) & 1
    for number in range(count - free):
        rows[(1 << free) + number, : free + number + 1] = 1
    return rows


def _tables(
    overlay: Overlay, shape: Shape, by_place: Mapping[int, list[tuple[int, Part]]], weights: Sequence[float]
) -> list[_Table]:
    """Tables of the nodes that could have room, grouped by their number of victims."""
    most = min(MOST_ON_NODE, (MOST_SETS // max(1, len(by_place))).bit_length() - 1)
    by_count: dict[int, list[tuple[int, list[tuple[int, Part]]]]] = {}
    for place, there in sorted(by_place.items()):
        if len(there) > most:
            there = sorted(there, key=lambda one: weights[one[0]] / (1 + one[1].gpus.bit_count()))
        by_count.setdefault(len(there), []).append((place, there))
    return [_table(overlay, shape, some, _sets(count, max(1, most))) for count, some in by_count.items()]


def _table(overlay: Overlay, shape: Shape, some: list[tuple[int, list[tuple[int, Part]]]], sets: Integers) -> _Table:
    count = sets.shape[1]
    places = np.array([place for place, _ in some], np.int64)
    kind = shape.gpu_kind

    def left(base: Integers, amount: Callable[[int, Part], int]) -> Integers:
        """The free amounts when each of the sets has left."""
        rows = [[amount(place, part) for _, part in there] for place, there in some]
        counts: Integers = base + sets @ np.array(rows, np.int64).reshape(len(some), count).T
        return counts

    fitting = {place: overlay.nodes[place].fitting_mask(*kind) for place, _ in some}
    free = {
        "gpus": left(overlay.kind_counts(kind)[places], lambda place, one: (one.gpus & fitting[place]).bit_count()),
        "cpus": left(overlay.cpu_counts[places], lambda _, one: one.cpus.bit_count()),
        "memory": left(overlay.memory[places], lambda _, one: one.memory_mib),
        **{f"gres:{name}": left(*_generic(overlay, name, places)) for name, _ in shape.resources},
    }
    room = room_of(shape, free, free["gpus"].shape)
    node_table = overlay.node_table
    if shape.mem_per_node_mib == 0 or shape.is_exclusive:
        room *= free["memory"] >= node_table.memory[places]
    if shape.is_exclusive:
        gpus = left(overlay.gpu_counts[places], lambda _, one: one.gpus.bit_count())
        room *= (free["cpus"] == node_table.cpus[places]) & (gpus == node_table.gpus[places])
    victims = np.array([[number for number, _ in there] for _, there in some], np.int64).reshape(len(some), count).T
    return _Table(victims, room, sets)


def _generic(overlay: Overlay, name: str, places: Integers) -> tuple[Integers, Callable[[int, Part], int]]:
    base = overlay.free_resources.get(name)
    free = np.zeros(len(places), np.int64) if base is None else base[places]
    return free, lambda _, one: -sum(count for own, count in one.resources if own == name)


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────


class _Dealt(NamedTuple):
    """A distribution of units over the nodes."""

    bound: float
    """A lower bound on the cost of every set under the constraints of this branch."""
    victims: frozenset[int]
    halves: frozenset[int]
    """The victims paid for in part, on which the search branches."""


@dataclass(slots=True)
class _Search:
    tables: list[_Table]
    shape: Shape
    weights: Floats
    best: float = inf
    found: frozenset[int] | None = None
    cells: int = 0
    """Numbers examined."""
    _spans: Integers = field(init=False)
    """The number of nodes on which each victim releases something."""
    _most: int = field(init=False)
    """The maximum number of units for which a node has room."""

    def __post_init__(self) -> None:
        self._most = max((int(table.room.max(initial=0)) for table in self.tables), default=0)
        self._spans = np.zeros(len(self.weights), np.int64)
        for table in self.tables:
            np.add.at(self._spans, table.victims, 1)

    def run(self) -> list[int] | None:
        """Branch and bound over the victims that span nodes."""
        nodes = sum(one.room.shape[1] for one in self.tables)
        tries = min(MOST_TRIES, max(LEAST_TRIES, MOST_WORK // (nodes + 1)))
        if self._cells_of_deal() > MOST_CELLS_AT_ONCE:
            return None
        root = self.deal(frozenset(), frozenset())
        waiting: list[tuple[float, int, frozenset[int], frozenset[int], _Dealt]] = []
        if root is not None and root.halves:
            waiting.append((root.bound, 0, frozenset(), frozenset(), root))
        for number in range(tries):
            if not waiting or not self._is_better(waiting[0][0]) or self.cells > MOST_CELLS:
                break
            _, _, going, staying, dealt = heappop(waiting)
            half = max(sorted(dealt.halves), key=lambda one: self.weights[one])
            for way, more in enumerate(((going | {half}, staying), (going, staying | {half}))):
                told = self.deal(*more)
                if told is not None and told.halves and self._is_better(told.bound):
                    heappush(waiting, (told.bound, 2 * number + way + 1, *more, told))
        return None if self.found is None else sorted(self.found)

    def _cells_of_deal(self) -> int:
        nodes: int = sum(table.room.shape[1] for table in self.tables)
        sets: int = sum(table.room.size for table in self.tables)
        if self.shape.unit == "node":
            return sets * (1 + self._most)
        steps: int = self._most * min(nodes, self._most * min(self.shape.nodes_max, self.shape.units))
        return sets * (1 + self._most) + steps * (CELLS_OF_STEP + _rows(self.shape, nodes) * (self.shape.units + 1))

    def _is_better(self, cost: float) -> bool:
        return cost < self.best * (1 - ROUNDING) - TOLERANCE

    def deal(self, going: frozenset[int], staying: frozenset[int]) -> _Dealt | None:
        """The cheapest distribution with `going` leaving and `staying` staying; None: there is no room.

        The set is recorded if it is the cheapest so far.
        """
        weights = self._split(going, staying)
        self.cells += self._cells_of_deal()
        options = [table.cheapest(weights, self._most) for table in self.tables]
        costs = np.concatenate([costs for costs, _ in options]) if options else np.zeros((0, 1))
        units = _dealt_out(self.shape, costs)
        if units is None:
            return None
        bound = float(self.weights[list(going)].sum() + costs[np.arange(len(units)), units].sum())
        victims = self._chosen([chosen for _, chosen in options], units)
        if bound == inf:
            return None
        cost = float(self.weights[sorted(victims)].sum())
        if self._is_better(cost):
            self.best, self.found = cost, frozenset(victims)
        halves = {victim for victim in victims if victim not in going and self._spans[victim] > 1}
        return _Dealt(bound, frozenset(victims), frozenset(halves))

    def _chosen(self, options: Iterable[Integers], units: Integers) -> set[int]:
        """The victims that leave for these numbers of units from each node."""
        victims: set[int] = set()
        first = 0
        for table, chosen in zip(self.tables, options, strict=True):
            nodes = np.flatnonzero(units[first : first + len(chosen)])
            sets = chosen[nodes, units[first + nodes]]
            members = table.sets[sets].T > 0
            victims.update(table.victims[:, nodes][members].tolist())
            first += len(chosen)
        return victims

    def _split(self, going: frozenset[int], staying: frozenset[int]) -> Floats:
        """The cost of each victim on each of its nodes."""
        weights = self.weights / np.maximum(self._spans, 1)
        weights[list(going)] = 0.0
        weights[list(staying)] = inf
        return weights


# ── how many units from which node ────────────────────────────────────────────────────────────────────────────


def _dealt_out(shape: Shape, costs: Floats) -> Integers | None:
    """Units by node at the minimum cost; None: not all units have room.  `costs`: by node and number of units."""
    units = np.zeros(len(costs), np.int64)
    if costs.shape[1] < 2:
        return None
    if shape.unit == "node":
        chosen = np.argsort(costs[:, 1], kind="stable")[: shape.nodes_min]
        if len(chosen) < shape.nodes_min or costs[chosen, 1].max() == inf:
            return None
        units[chosen] = 1
        return units
    some = _worth_it(shape, costs)
    found = _by_program(shape, costs[some])
    if found is None:
        return None
    units[some] = found
    return units


def _worth_it(shape: Shape, costs: Floats) -> Integers:
    """The cheapest nodes for each number of units, as many as could be used; other nodes are never better."""
    most = min(shape.nodes_max, shape.units)
    if len(costs) <= most:
        return np.arange(len(costs))
    cheapest = np.argsort(costs[:, 1:], axis=0, kind="stable")[:most]
    return np.unique(cheapest)


class _Step(NamedTuple):
    """For one node: the units that come from it, and the previous state, by state."""

    units: Integers
    before: Integers


def _has_most(shape: Shape, nodes: int) -> bool:
    """Whether the maximum number of nodes is a constraint."""
    return shape.nodes_max < min(shape.units, nodes)


def _least_used(shape: Shape) -> int:
    return shape.nodes_min if shape.nodes_min > 1 else 0


def _rows(shape: Shape, nodes: int) -> int:
    """The number of rows in `_by_program`: node counts, as far as they matter."""
    return (shape.nodes_max if _has_most(shape, nodes) else _least_used(shape)) + 1


def _by_program(shape: Shape, costs: Floats) -> list[int] | None:
    """Units by node by dynamic programming; None without room.

    A state is the number of nodes used (as far as it matters) and the units so far, capped at the number wanted.
    """
    wanted, has_most, least = shape.units, _has_most(shape, len(costs)), _least_used(shape)
    best = np.full((_rows(shape, len(costs)), wanted + 1), inf)
    best[0, 0] = 0.0
    steps = []
    for of in costs:
        after, step = best.copy(), _Step(np.zeros(best.shape, np.int64), np.zeros(best.shape, np.int64))
        for units in range(1, len(of)):
            if of[units] < inf:
                reached, before = _moved(best, units, has_most)
                better = reached + of[units] < after - TOLERANCE
                after[better] = reached[better] + of[units]
                step.units[better], step.before[better] = units, before[better]
        steps.append(step)
        best = after
    used = least + int(np.argmin(best[least:, wanted]))
    if best[used, wanted] == inf:
        return None
    return _traced(steps, used * (wanted + 1) + wanted)


def _moved(best: Floats, units: int, has_most: bool) -> tuple[Floats, Integers]:
    """(cost of each state if one more node gives `units` units, the previous state)."""
    rows, columns = best.shape
    units = min(units, columns - 1)
    states = np.arange(best.size).reshape(best.shape)
    reached, before = np.full(best.shape, inf), states.copy()
    reached[:, units:], before[:, units:] = best[:, : columns - units], states[:, : columns - units]
    last = best[:, columns - 1 - units :]
    where = last.argmin(axis=1)
    reached[:, -1] = last[np.arange(rows), where]
    before[:, -1] = states[np.arange(rows), columns - 1 - units + where]
    if rows == 1:
        return reached, before
    more, earlier = np.full(best.shape, inf), before.copy()
    more[1:], earlier[1:] = reached[:-1], before[:-1]
    if not has_most:  # the last row is of those who use so many, or more
        stays = reached[-1] < more[-1]
        more[-1][stays], earlier[-1][stays] = reached[-1][stays], before[-1][stays]
    return more, earlier


def _traced(steps: Sequence[_Step], state: int) -> list[int]:
    """The units by node, traced back from the last state."""
    units = []
    for step in reversed(steps):
        count = int(step.units.flat[state])
        units.append(count)
        state = int(step.before.flat[state]) if count else state
    return units[::-1]
