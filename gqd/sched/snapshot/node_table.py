"""The node table: static facts about all nodes as vectors by node index, such as totals and kinds of GPUs.  Pure.

A table is built once for a tuple of nodes and cached, with the answers computed from it, while that same tuple object
is in use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gqd.state.index.queue import Integers

if TYPE_CHECKING:
    from gq.model.scheduling import Switch
    from gqd.sched.snapshot.node import NodeFacts

MAX_CACHED = 4096
"""Maximum number of cached vectors of each kind; for a thousand nodes a mask takes about a kilobyte."""

MAX_MASK_BITS = 63
"""Number of GPUs of a node up to which its GPU mask fits into one signed 64-bit number."""

Kind = tuple[str | None, int]
"""Kind of GPUs: (type, or None for any; minimum memory in MiB)."""
ANY_KIND: Kind = (None, 0)


@dataclass(frozen=True, slots=True)
class Level:
    """The switches at one height of the tree."""

    groups: Integers
    """Number, by node index, of the switch of this level above the node."""
    count: int
    """Number of switches of this level."""


class Tree(NamedTuple):
    """The tree of switches above the nodes of a node table."""

    levels: tuple[Level, ...]
    """Levels from the leaf switches upwards, without a level whose one switch all nodes share."""


class GpuKind(NamedTuple):
    """The GPUs of one kind on all nodes."""

    masks: tuple[int, ...]
    """GPU masks by node index."""
    counts: Integers
    """Number of these GPUs by node index."""
    is_pure: bool
    """On each node either all GPUs are of this kind, or none is."""
    sizes: tuple[int, ...]
    """The distinct non-zero values of `counts`, in descending order."""


@dataclass(slots=True)
class NodeTable:
    """Vectors of static facts about the nodes, and caches of what other modules derive from them."""

    nodes: tuple[NodeFacts, ...]
    index_of: dict[str, int]
    """Node name → node index."""
    cpus: Integers
    gpus: Integers
    """Number of GPUs, without drained ones."""
    gpu_masks: Integers | None
    """Masks of the GPUs, without drained ones; None: some node has more than `MAX_MASK_BITS` GPUs."""
    memory: Integers
    all_places: Integers
    resources: dict[str, Integers]
    """Total count of each generic resource."""
    _kinds: dict[Kind, GpuKind] = field(default_factory=dict)
    usable: dict[object, Integers] = field(default_factory=dict)
    """Cache of `gqd.sched.placement.feasible` and `gqd.sched.placement.constraints`: usable nodes by request."""
    ranks: dict[object, Integers] = field(default_factory=dict)
    empty: object = None
    """`gqd.sched.snapshot.model.Overlay.empty` of these nodes, which callers copy."""
    whole: tuple[NodeFacts, ...] | None = None
    """`gqd.sched.snapshot.model.whole_nodes` of these nodes."""
    trees: list[tuple[tuple[Switch, ...], Tree]] = field(default_factory=list)

    def kind(self, kind: Kind) -> GpuKind:
        """Return the GPUs of this kind on all nodes."""
        gpu_kind = self._kinds.get(kind)
        if gpu_kind is None:
            masks = tuple(node.fitting_mask(*kind) for node in self.nodes)
            counts = np.fromiter(map(int.bit_count, masks), np.int64, len(masks))
            sizes = tuple(sorted({size for size in counts.tolist() if size}, reverse=True))
            gpu_kind = GpuKind(masks, counts, bool(((counts == 0) | (counts == self.gpus)).all()), sizes)
            if len(self._kinds) < MAX_CACHED:
                self._kinds[kind] = gpu_kind
        return gpu_kind


class _Identity(NamedTuple):
    """Cache key that compares tuples of nodes by identity, so that a look-up does not compare the nodes."""

    nodes: tuple[NodeFacts, ...]

    def __hash__(self) -> int:
        return id(self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.nodes is self.nodes


def node_table_of(nodes: tuple[NodeFacts, ...]) -> NodeTable:
    """Return the table of these nodes, from the cache if this tuple object was used recently."""
    return _node_table_of(_Identity(nodes))


@lru_cache(maxsize=16)
def _node_table_of(identity: _Identity) -> NodeTable:
    nodes = identity.nodes
    names = dict.fromkeys(name for node in nodes for name, _ in node.resources)
    return NodeTable(
        nodes=nodes,
        index_of={node.name: node_index for node_index, node in enumerate(nodes)},
        cpus=_column([node.cpus for node in nodes]),
        gpus=_column([node.gpu_mask.bit_count() for node in nodes]),
        gpu_masks=_masks([node.gpu_mask for node in nodes]),
        memory=_column([node.memory_mib for node in nodes]),
        all_places=np.arange(len(nodes), dtype=np.int64),
        resources={name: _column([dict(node.resources).get(name, 0) for node in nodes]) for name in names},
    )


def _masks(masks: list[int]) -> Integers | None:
    return None if any(mask.bit_length() > MAX_MASK_BITS for mask in masks) else _column(masks)


def _column(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def as_node_indices(candidates: Integers | list[int]) -> Integers:
    """Return the node indices as a vector."""
    return np.asarray(candidates, dtype=np.int64)
