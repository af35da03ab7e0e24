"""How nodes hang together by switches, and within which of them a gang may be placed now.  Pure.

A gang goes into the smallest part of the tree in which it fits, whether or not that was asked for.  With
``--switches=N`` it holds out for at most N leaf switches for as long as it said, then for N switches of each next level
as long again, and then it goes anywhere.  A node that hangs on no switch is a switch of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gq.model.scheduling import Scheduling, Switch
from gqd.sched.request import Shape
from gqd.sched.snapshot.node_table import NodeTable
from gqd.state.index.queue import Integers

_MAX_LEVELS = 16


@dataclass(frozen=True, slots=True)
class Level:
    groups: Integers
    """By place: number of the switch of this level that it hangs on."""
    count: int


class Tree(NamedTuple):
    levels: tuple[Level, ...]
    """Leaf switches first; a level that all nodes share is not there."""


def tree_of(node_table: NodeTable, switches: tuple[Switch, ...]) -> Tree:
    """Made once for a node_table and these very switches."""
    for known, tree in node_table.trees:
        if known is switches:
            return tree
    tree = _make(node_table, switches)
    node_table.trees[:] = [(switches, tree)]
    return tree


def leaf_of(switches: tuple[Switch, ...], node: str) -> str:
    """The switch that a node hangs on; empty: none."""
    return next((one.name for one in switches if node in one.nodes), "")


def _make(node_table: NodeTable, switches: tuple[Switch, ...]) -> Tree:
    leaves = {node: one.name for one in switches for node in one.nodes}
    above = {below: one.name for one in switches for below in one.switches}
    names = [leaves.get(node.name, f"node {node.name}") for node in node_table.nodes]
    levels: list[Level] = []
    while len(levels) < _MAX_LEVELS:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        if len(numbers) <= 1:
            break
        levels.append(Level(np.array([numbers[name] for name in names], dtype=np.int64), len(numbers)))
        higher = [above.get(name, name) for name in names]
        if higher == names:
            break
        names = higher
    return Tree(tuple(levels))


# ── where a gang may go ───────────────────────────────────────────────────────────────────────────────────────


def level_allowed(shape: Shape, scheduling: Scheduling, waited_s: float, levels: int) -> int:
    """The highest level on whose switches it may spread by now; `levels`: anywhere."""
    if shape.switches is None:
        return levels
    wait_s = patience_s(shape, scheduling)
    return levels if waited_s >= wait_s * levels else int(waited_s // wait_s)


def patience_s(shape: Shape, scheduling: Scheduling) -> float:
    """How long it holds out at each level."""
    return float(scheduling.locality_wait_s if shape.switches_wait_s is None else shape.switches_wait_s)


def scopes(tree: Tree, shape: Shape, allowed: int, places: Integers, room: Integers) -> Iterator[Integers]:
    """Positions in `places` of nodes to try together, the nearest to each other first.

    `room`: what each node can take.  Only what could hold the job is given out.
    """
    for number, level in enumerate(tree.levels[: allowed + 1]):
        groups = level.groups[places]
        units = np.bincount(groups, weights=room, minlength=level.count)
        able = np.bincount(groups, weights=room > 0, minlength=level.count)
        wanted, nodes = _wanted(shape, int((room > 0).sum()))
        enough = np.flatnonzero((units >= wanted) & (able >= nodes))
        for group in enough[np.argsort(units[enough], kind="stable")].tolist():
            yield np.flatnonzero(groups == group)
        if number == allowed and shape.switches is not None:
            roomiest = np.argsort(-units, kind="stable")
            for count in range(2, min(shape.switches, level.count) + 1):
                yield np.flatnonzero(np.isin(groups, roomiest[:count]))
    if allowed >= len(tree.levels):
        yield np.arange(len(places))


def _wanted(shape: Shape, able: int) -> tuple[int, int]:
    """(units, nodes) that a part of the tree must have; a range of nodes is not cut short for being near."""
    if shape.unit != "node":
        return shape.units, shape.nodes_min
    nodes = shape.nodes_min if shape.switches is not None else max(shape.nodes_min, min(shape.nodes_max, able))
    return nodes, nodes


def spread_of(tree: Tree, node_table: NodeTable, nodes: list[str]) -> int:
    """Over how many leaf switches these nodes are."""
    if not tree.levels:
        return 1
    return len({int(tree.levels[0].groups[node_table.places[name]]) for name in nodes})
