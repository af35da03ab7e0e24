"""GPU tiers: jobs of low QOS get the oldest GPUs that fit, jobs of high QOS the newest.  Pure.

``scheduler.gpu_tiers`` lists types from the oldest to the newest; types that it does not list come last for both. Jobs
of other QOS, and jobs that request a type, are placed by best fit alone.
"""

from __future__ import annotations

import numpy as np

from gq.model.scheduling import Scheduling
from gqd.sched.request import Shape
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.node_table import MAX_CACHED, NodeTable
from gqd.state.index.queue import Integers


def type_order(scheduling: Scheduling, shape: Shape, qos: str) -> tuple[str, ...]:
    """GPU types in the order in which a job of this QOS should get them; empty if tiers do not apply."""
    if not scheduling.gpu_tiers or shape.gpu_type is not None or not qos:
        return ()
    if qos in scheduling.low_tier_qos:
        return scheduling.gpu_tiers
    return scheduling.gpu_tiers[::-1] if qos in scheduling.high_tier_qos else ()


def tier_ranks(node_table: NodeTable, shape: Shape, order: tuple[str, ...]) -> Integers:
    """The position in `order` of each node's best fitting GPU type, by node index."""
    key = ("tier", order, shape.min_gpu_mem_mib)
    known = node_table.ranks.get(key)
    if known is None:
        known = np.array([_rank(node, shape, order) for node in node_table.nodes], dtype=np.int64)
        if len(node_table.ranks) < MAX_CACHED:
            node_table.ranks[key] = known
    return known


def _rank(node: NodeFacts, shape: Shape, order: tuple[str, ...]) -> int:
    fitting = [name for name in order if node.fitting_mask(name, shape.min_gpu_mem_mib)]
    return order.index(fitting[0]) if fitting else len(order)
