"""Which nodes meet a job's ``--constraint``, ``--prefer`` and ``--data``, by node index.  Pure."""

from __future__ import annotations

import numpy as np

from gq.model.constraint import ANYTHING, Any, Constraint, Expression, is_met, names_in, parse_constraint
from gq.model.node import Inventory
from gqd.sched.request import Shape
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.node_table import MAX_CACHED, NodeTable
from gqd.state.index.queue import Booleans, Integers

_NOT_PREFERRED = 1000
"""The rank of a node that ``--prefer`` does not want: more than the number of data sets a job may name, so that
``--prefer`` outweighs ``--data``."""


def attributes_of(inventory: Inventory) -> dict[str, str]:
    """The node's own attributes and those derived from its inventory; ``memory`` and ``gpu_mem`` (the smallest GPU)
    in MiB."""
    gpus = inventory.gpus
    built_in = {"cpus": str(inventory.cpus), "memory": str(inventory.memory_mib), "gpus": str(len(gpus))}
    if gpus:
        built_in["gpu_type"] = ",".join(dict.fromkeys(gpu.type for gpu in gpus))
        built_in["gpu_mem"] = str(min(gpu.memory_mib for gpu in gpus))
    return {**built_in, **inventory.attributes}


def constraint_of(text: str) -> Constraint:
    """Parse the constraint of a shape, which was validated at submission."""
    return parse_constraint(text) if text else ANYTHING


def meets(node: NodeFacts, expression: Expression) -> bool:
    return is_met(expression, node.features, node.attributes)


def may_be_one(node: NodeFacts, text: str) -> bool:
    """Whether the node meets the constraint for every node and, if the constraint lists kinds, at least one kind."""
    constraint = constraint_of(text)
    return meets(node, constraint.each) and (not constraint.kinds or meets(node, Any(constraint.kinds)))


def marked(node_table: NodeTable, expression: Expression) -> Booleans:
    """Mask by node index: the node meets the expression."""
    return np.fromiter((meets(node, expression) for node in node_table.nodes), np.bool_, len(node_table.nodes))


def softness(node_table: NodeTable, shape: Shape) -> Integers | None:
    """How far each node falls short of ``--prefer`` and ``--data``, by node index, 0 for not at all; None without
    such preferences."""
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
    """Mask of the nodes whose `softness` says that they meet ``--prefer``."""
    return rank < _NOT_PREFERRED


def unknown_name(nodes: list[NodeFacts], shape: Shape) -> tuple[str, list[str]] | None:
    """(a name in the constraint that no node has, all names that the nodes have); None if every name exists."""
    if not shape.constraint:
        return None
    known = {name for node in nodes for name in (*node.features, *node.attributes)}
    missing = [name for name in names_in(constraint_of(shape.constraint)) if name not in known]
    return (missing[0], sorted(known)) if missing else None
