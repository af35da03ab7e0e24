"""The network topology: a tree of switches, and the parts of it in which a multi-node job may be placed now.  Pure.

A job is placed in the smallest part of the tree in which it fits, whether or not it asks for switches.  With
``--switches=N`` it waits for nodes on at most N leaf switches for the time it states, then as long for N switches of
each next level, and after that it starts anywhere.  A node without a switch counts as a switch of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gq.model.scheduling import Scheduling, Switch
from gqd.sched.request import Shape
from gqd.sched.snapshot.node_table import Level, NodeTable, Tree
from gqd.state.index.queue import Integers

_MAX_LEVELS = 16


def tree_of(node_table: NodeTable, switches: tuple[Switch, ...]) -> Tree:
    """Return the tree, which is cached in the node table for this tuple of switches."""
    for cached_switches, tree in node_table.trees:
        if cached_switches is switches:
            return tree
    tree = _make(node_table, switches)
    node_table.trees[:] = [(switches, tree)]
    return tree


def leaf_of(switches: tuple[Switch, ...], node: str) -> str:
    """Return the name of the node's leaf switch; empty: none."""
    return next((switch.name for switch in switches if node in switch.nodes), "")


def _make(node_table: NodeTable, switches: tuple[Switch, ...]) -> Tree:
    leaves = {node: switch.name for switch in switches for node in switch.nodes}
    above = {below: switch.name for switch in switches for below in switch.switches}
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


# ── where a job may go ──────────────────────────────────────────────────────────────────────────────────────────────


def level_allowed(shape: Shape, scheduling: Scheduling, waited_s: float, levels: int) -> int:
    """Return the highest level to which the job may extend after `waited_s`; `levels`: it may start anywhere."""
    if shape.switches is None:
        return levels
    wait_s = patience_s(shape, scheduling)
    return levels if waited_s >= wait_s * levels else int(waited_s // wait_s)


def patience_s(shape: Shape, scheduling: Scheduling) -> float:
    """Return the time for which the job waits at each level."""
    return float(scheduling.locality_wait_s if shape.switches_wait_s is None else shape.switches_wait_s)


def scopes(tree: Tree, shape: Shape, allowed: int, node_indices: Integers, room: Integers) -> Iterator[Integers]:
    """Yield sets of nodes to try, as positions in `node_indices`, those nearest to each other first.

    `room`: how many of the job's units each node can hold.  A switch is yielded only if it could hold the job.
    """
    for number, level in enumerate(tree.levels[: allowed + 1]):
        groups = level.groups[node_indices]
        units = np.bincount(groups, weights=room, minlength=level.count)
        able_nodes = np.bincount(groups, weights=room > 0, minlength=level.count)
        min_units, min_nodes = _minimum_size(shape, int((room > 0).sum()))
        enough = np.flatnonzero((units >= min_units) & (able_nodes >= min_nodes))
        for group in enough[np.argsort(units[enough], kind="stable")].tolist():
            yield np.flatnonzero(groups == group)
        if number == allowed and shape.switches is not None:
            roomiest = np.argsort(-units, kind="stable")
            for count in range(2, min(shape.switches, level.count) + 1):
                yield np.flatnonzero(np.isin(groups, roomiest[:count]))
    if allowed >= len(tree.levels):
        yield np.arange(len(node_indices))


def _minimum_size(shape: Shape, able_nodes: int) -> tuple[int, int]:
    """Return the (units, nodes) that a part of the tree must offer; nearness does not cut a range of nodes short."""
    if shape.unit != "node":
        return shape.units, shape.nodes_min
    nodes = shape.nodes_min if shape.switches is not None else max(shape.nodes_min, min(shape.nodes_max, able_nodes))
    return nodes, nodes


def spread_of(tree: Tree, node_table: NodeTable, nodes: list[str]) -> int:
    """Return the number of leaf switches above these nodes."""
    if not tree.levels:
        return 1
    return len({int(tree.levels[0].groups[node_table.index_of[name]]) for name in nodes})
