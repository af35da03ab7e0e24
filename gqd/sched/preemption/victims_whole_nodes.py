"""Victims for a job that wants whole nodes and the rest on one node: the cheapest nodes to empty, then the cheapest
for the rest.  Each step is exact (`gqd.sched.preemption.victims_exact`); together they nearly are.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gqd.sched.placement.placement import place as put
from gqd.sched.preemption.victims_exact import Part, cheapest_by_node
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import Overlay
from gqd.state.index.queue import Integers


def cheapest_dense(
    overlay: Overlay, shape: Shape, places: Integers, parts: Sequence[Sequence[Part]], weights: Sequence[float]
) -> tuple[list[int] | None, int]:
    """The result of `cheapest_by_node` for a dense shape on nodes with equally many GPUs."""
    kind = overlay.node_table.kind(shape.gpu_kind)
    if len(kind.sizes) != 1:
        return None, 0
    checkpoint = overlay.checkpoint()
    found, work = _in_steps(overlay, _steps(shape, kind.sizes[0]), places, parts, weights)
    overlay.rollback(checkpoint)
    return found, work


def _steps(shape: Shape, size: int) -> list[Shape]:
    whole, rest = divmod(shape.units, size) if shape.units > size else (0, shape.units)
    counts = [(whole, whole * size), (1 if rest else 0, rest)]
    return [
        shape._replace(is_dense=False, is_even=False, units=units, nodes_min=nodes, nodes_max=nodes)
        for nodes, units in counts
        if nodes
    ]


def _in_steps(
    overlay: Overlay,
    steps: Sequence[Shape],
    places: Integers,
    parts: Sequence[Sequence[Part]],
    weights: Sequence[float],
) -> tuple[list[int] | None, int]:
    chosen: list[int] = []
    others, work = list(range(len(parts))), 0
    for step in steps:
        found, more = cheapest_by_node(
            overlay, step, places, [parts[one] for one in others], [weights[one] for one in others]
        )
        work += more
        if found is None:
            return None, work
        gone = [others[one] for one in found]
        for part in (part for one in gone for part in parts[one]):
            overlay.give_masks(*part)
        grants = put(overlay, step, places)
        if grants is None:
            return None, work
        for grant in grants:
            overlay.take(overlay.node_table.index_of[grant.node], grant)
        chosen += gone
        others = [one for one in others if one not in gone]
    return sorted(chosen), work
