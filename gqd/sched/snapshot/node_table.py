"""What is always so of all nodes, as vectors by place: totals, kinds of GPUs, who may use what.  Pure.

Made once for a tuple of nodes and kept as long as that very tuple is in use, with what was asked of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gqd.state.index.queue import Booleans, Integers

if TYPE_CHECKING:
    from gq.model.scheduling import Switch
    from gqd.sched.snapshot.model import NodeFacts
    from gqd.sched.snapshot.switches import Tree

MAX_REMEMBERED = 4096
"""Of masks by request: a thousand nodes are a kilobyte each."""

MOST_BITS = 63
"""Of a mask that is one number of a vector."""

Kind = tuple[str | None, int]
"""Of GPUs: type (None: any), least memory in MiB."""
ANY_KIND: Kind = (None, 0)


class GpuKind(NamedTuple):
    """GPUs of a kind."""

    masks: tuple[int, ...]
    """By place."""
    counts: Integers
    is_pure: bool
    """On each node all GPUs are of the kind, or none."""
    sizes: tuple[int, ...]
    """How many nodes have of it, each number once, the largest first."""


@dataclass(slots=True)
class NodeTable:
    nodes: tuple[NodeFacts, ...]
    places: dict[str, int]
    cpus: Integers
    gpus: Integers
    """Drained ones left out."""
    gpu_masks: Integers | None
    """Likewise; None: some node has too many."""
    memory: Integers
    all_places: Integers
    resources: dict[str, Integers]
    """Generic ones, in all."""
    _kinds: dict[Kind, GpuKind] = field(default_factory=dict)
    usable: dict[object, Integers] = field(default_factory=dict)
    """What `gqd.sched.placement.feasible` and `gqd.sched.affinity` found of requests, by what they asked."""
    ranks: dict[object, Integers] = field(default_factory=dict)
    empty: object = None
    """`gqd.sched.snapshot.model.Overlay.empty` of these nodes, to be copied."""
    whole: tuple[NodeFacts, ...] | None = None
    """`gqd.sched.snapshot.model.whole_nodes` of them."""
    trees: list[tuple[tuple[Switch, ...], Tree]] = field(default_factory=list)

    def kind(self, kind: Kind) -> GpuKind:
        known = self._kinds.get(kind)
        if known is None:
            masks = tuple(node.fitting_mask(*kind) for node in self.nodes)
            counts = np.fromiter(map(int.bit_count, masks), np.int64, len(masks))
            sizes = tuple(sorted({size for size in counts.tolist() if size}, reverse=True))
            known = GpuKind(masks, counts, bool(((counts == 0) | (counts == self.gpus)).all()), sizes)
            if len(self._kinds) < MAX_REMEMBERED:
                self._kinds[kind] = known
        return known


class _Same(NamedTuple):
    """Compares by identity: the nodes themselves are not looked at."""

    nodes: tuple[NodeFacts, ...]

    def __hash__(self) -> int:
        return id(self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.nodes is self.nodes


def node_table_of(nodes: tuple[NodeFacts, ...]) -> NodeTable:
    return _node_table_of(_Same(nodes))


@lru_cache(maxsize=16)
def _node_table_of(same: _Same) -> NodeTable:
    nodes = same.nodes
    names = dict.fromkeys(name for node in nodes for name, _ in node.resources)
    return NodeTable(
        nodes=nodes,
        places={node.name: place for place, node in enumerate(nodes)},
        cpus=_column([node.cpus for node in nodes]),
        gpus=_column([node.gpu_mask.bit_count() for node in nodes]),
        gpu_masks=_masks([node.gpu_mask for node in nodes]),
        memory=_column([node.memory_mib for node in nodes]),
        all_places=np.arange(len(nodes), dtype=np.int64),
        resources={name: _column([dict(node.resources).get(name, 0) for node in nodes]) for name in names},
    )


def _masks(masks: list[int]) -> Integers | None:
    return None if any(mask.bit_length() > MOST_BITS for mask in masks) else _column(masks)


def _column(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def as_places(candidates: Integers | list[int]) -> Integers:
    return np.asarray(candidates, dtype=np.int64)


def where(places: Integers, marked: Booleans) -> Integers:
    """Those of the places that are marked, by place of the node_table."""
    return places[marked[places]]
