"""Which nodes are what a job wants them to be (``--constraint``, ``--prefer``, ``--data``), place by place.  Pure."""

from __future__ import annotations

import numpy as np

from gq.model.constraint import ANYTHING, Any, Constraint, Expression, is_met, names_in, parse_constraint
from gq.model.node import Inventory
from gqd.sched.request import Shape
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.node_table import MAX_CACHED, NodeTable
from gqd.state.index.queue import Booleans, Integers

_NOT_PREFERRED = 1000
"""More than the data sets that a job may name, so that `--prefer` comes before them."""


def attributes_of(inventory: Inventory) -> dict[str, str]:
    """What the node says, and what follows from what it has; ``memory`` and ``gpu_mem`` (the least) in MiB."""
    gpus = inventory.gpus
    built_in = {"cpus": str(inventory.cpus), "memory": str(inventory.memory_mib), "gpus": str(len(gpus))}
    if gpus:
        built_in["gpu_type"] = ",".join(dict.fromkeys(gpu.type for gpu in gpus))
        built_in["gpu_mem"] = str(min(gpu.memory_mib for gpu in gpus))
    return {**built_in, **inventory.attributes}


def constraint_of(text: str) -> Constraint:
    """Of a shape: it was read before."""
    return parse_constraint(text) if text else ANYTHING


def meets(node: NodeFacts, one: Expression) -> bool:
    return is_met(one, node.features, node.attributes)


def may_be_one(node: NodeFacts, text: str) -> bool:
    """The node is what each must be, and of one of the kinds that all may be of."""
    constraint = constraint_of(text)
    return meets(node, constraint.each) and (not constraint.kinds or meets(node, Any(constraint.kinds)))


def marked(node_table: NodeTable, one: Expression) -> Booleans:
    """By place."""
    return np.fromiter((meets(node, one) for node in node_table.nodes), np.bool_, len(node_table.nodes))


def softness(node_table: NodeTable, shape: Shape) -> Integers | None:
    """By place, how much a node falls short of what is only wished for, 0: not at all; None: nothing is."""
    if not shape.prefer and not shape.data:
        return None
    key = ("soft", shape.prefer, shape.data)
    if key not in node_table.ranks:
        preferred = constraint_of(shape.prefer).each
        rank = [
            (0 if meets(node, preferred) else _NOT_PREFERRED) + sum(name not in node.data for name in shape.data)
            for node in node_table.nodes
        ]
        if len(node_table.ranks) >= MAX_CACHED:
            return np.array(rank, dtype=np.int64)
        node_table.ranks[key] = np.array(rank, dtype=np.int64)
    return node_table.ranks[key]


def is_preferred(rank: Integers) -> Booleans:
    """Of a `softness`: the node is what ``--prefer`` asks."""
    return rank < _NOT_PREFERRED


def unknown_name(nodes: list[NodeFacts], shape: Shape) -> tuple[str, list[str]] | None:
    """(a feature or attribute of the constraint that none of the nodes has, all that they have)."""
    if not shape.constraint:
        return None
    known = {name for node in nodes for name in (*node.features, *node.attributes)}
    missing = [name for name in names_in(constraint_of(shape.constraint)) if name not in known]
    return (missing[0], sorted(known)) if missing else None
