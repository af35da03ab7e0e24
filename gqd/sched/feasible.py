"""Does it fit: how many units of a shape one node can take, as things stand on an overlay.  Pure."""

from __future__ import annotations

from collections.abc import Callable

from gqd.sched.shape import ANY_NUMBER, Demand, Shape, demand_for_units, demand_of
from gqd.sched.view import NodeFacts, Overlay
from gqd.state.policy import Partition


def may_use(shape: Shape, node: NodeFacts, partition: Partition) -> bool:
    """The node belongs to the partition and the request does not leave it out."""
    return partition.has_node(node.name) and admits(shape, node)


def admits(shape: Shape, node: NodeFacts) -> bool:
    """The request does not leave the node out; of a gang one of the roles."""
    if shape.roles:
        return any(admits(role, node) for _, role in shape.roles)
    if node.name in shape.exclude:
        return False
    # With a node list longer than needed any node may help out; the listed ones are a must (see placement).
    return not shape.nodelist or node.name in shape.nodelist or len(shape.nodelist) < shape.nodes_min


def fits(overlay: Overlay, place: int, demand: Demand, shape: Shape) -> bool:
    """The node can give this now."""
    node = overlay.nodes[place]
    if shape.is_exclusive and not overlay.is_idle(place):
        return False
    free_gpus = overlay.free_gpus[place] & node.type_mask(shape.gpu_type)
    memory = node.memory_mib if demand.memory_mib < 0 else demand.memory_mib
    return (
        demand.cpus <= overlay.free_cpus[place].bit_count()
        and demand.gpus <= free_gpus.bit_count()
        and memory <= overlay.free_memory_mib[place]
    )


def capacity(overlay: Overlay, place: int, shape: Shape) -> int:
    """The most units of the shape that the node can take now; for ``node`` 1 or 0, for a gang of any of its roles."""
    if shape.roles:
        node = overlay.nodes[place]
        return max(capacity(overlay, place, role) if admits(role, node) else 0 for _, role in shape.roles)
    if shape.unit == "node":
        return int(fits(overlay, place, demand_for_units(shape, 1), shape))
    most = min(shape.units, _upper_bound(overlay, place, shape))
    return _largest(most, lambda units: fits(overlay, place, demand_for_units(shape, units), shape))


def task_capacity(overlay: Overlay, place: int, shape: Shape) -> int:
    """The most tasks that the node can take now beside one GPU, where GPUs and tasks are both dealt out."""
    assert shape.ntasks is not None
    most = min(shape.ntasks, shape.tasks_per_node, overlay.free_cpus[place].bit_count() // shape.cpus_per_task)
    return _largest(most, lambda tasks: fits(overlay, place, demand_of(shape, tasks, 1), shape))


def _largest(most: int, is_enough_for: Callable[[int], bool]) -> int:
    """The largest number that fits, 0 if not even 1 does: demand grows with it, so it is found by halving."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if is_enough_for(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _upper_bound(overlay: Overlay, place: int, shape: Shape) -> int:
    """A cheap bound on `capacity`, so that the search is short."""
    if shape.unit == "gpu":
        return (overlay.free_gpus[place] & overlay.nodes[place].type_mask(shape.gpu_type)).bit_count()
    bound = overlay.free_cpus[place].bit_count() // shape.cpus_per_task
    return min(bound, shape.tasks_per_node if shape.tasks_per_node != ANY_NUMBER else bound)
