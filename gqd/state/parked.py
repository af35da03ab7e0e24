"""Jobs that stand still for another one, and lend it their GPUs and CPUs: what is kept of them, and what holds.  Pure.

A parked attempt keeps its memory, generic resources and licences, and whatever it holds of its node that the other job
does not use.  What it lends is in nobody's hands until that job starts, and for nobody else; from then on it is that
job's, until its node says that nothing is left of it.  At that moment the parked attempt has it again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.model.ids import AttemptId
from gq.model.resource import Grant, ResourceRequest
from gqd.state.cluster import Cluster
from gqd.state.records import Attempt

NOT_PARKED = "; it was not parked: "
"""Before the reason, in what is said of the end of one that was to be."""


def overlap(grant: Grant, other: Grant) -> Grant:
    """The CPUs and GPUs that are in both."""
    return Grant(
        node=grant.node,
        cpus=tuple(one for one in grant.cpus if one in other.cpus),
        gpus=tuple(one for one in grant.gpus if one in other.gpus),
        memory_mib=0,
    )


def without(grant: Grant, lent: Grant) -> Grant:
    """What is left of it."""
    return msgspec.structs.replace(
        grant,
        cpus=tuple(one for one in grant.cpus if one not in lent.cpus),
        gpus=tuple(one for one in grant.gpus if one not in lent.gpus),
    )


def held_now(cluster: Cluster, attempt: Attempt) -> Grant:
    """What its one node has in its books for a parked attempt."""
    parked, grant = cluster.parked[attempt.attempt_id], attempt.grants[0]
    return grant if parked.lent is None else without(grant, parked.lent)


def as_written(granted: Grant, row: Grant) -> Grant:
    """Of a part that is loaded: what was granted, without what its row says that it does not hold."""
    if (len(granted.cpus), len(granted.gpus)) == (len(row.cpus), len(row.gpus)):
        return granted
    held = overlap(granted, row)
    return msgspec.structs.replace(granted, cpus=held.cpus, gpus=held.gpus)


def can_park(cluster: Cluster, attempt: Attempt) -> bool:
    """One node would stop it whole, and nobody else counts on its end, nor on other GPUs of it.

    One in a reservation, or that borrows from one, would stand still beyond that.
    """
    node = cluster.nodes.get(attempt.batch_node)
    if len(attempt.grants) > 1 or attempt.elastic is not None or node is None:
        return False
    return attempt.occurrence is None and not attempt.borrows and node.inventory.can_park


def fits_beside(request: ResourceRequest) -> bool:
    """A job that asks so may run on GPUs of which a parked job keeps the memory that it uses."""
    asks_gpus = bool(request.gpus or request.gpus_per_node or request.gpus_per_task or request.is_exclusive)
    if request.roles or request.most_gpus is not None or request.is_elastic:
        return False
    return bool(request.min_gpu_mem_mib) or not asks_gpus


def lends(cluster: Cluster, attempt: Attempt) -> bool:
    """It stands still, and what it holds is another job's meanwhile."""
    known = cluster.parked.get(attempt.attempt_id)
    return known is not None and known.lent is not None


def lent_masks(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """By node: the CPUs and the GPUs that parked attempts lend."""
    masks: dict[str, tuple[int, int]] = {}
    for one in cluster.parked.values():
        if one.lent is not None:
            cpus, gpus = masks.get(one.lent.node, (0, 0))
            masks[one.lent.node] = cpus | _mask(one.lent.cpus), gpus | _mask(one.lent.gpus)
    return masks


def _mask(ids: Iterable[int]) -> int:
    return sum(1 << one for one in ids)


def lent_to(cluster: Cluster, attempt: Attempt) -> list[Grant]:
    """What others lend to it."""
    if not cluster.parked:
        return []
    known = (one.lent for one in cluster.parked.values() if one.to == attempt.attempt_id.job_id)
    return [lent for lent in known if lent is not None and lent.node in attempt.parts]


def is_waited_for(cluster: Cluster, attempt_id: AttemptId) -> bool:
    """The job for which it stands still has not started, and is to."""
    claim = cluster.claims.get(cluster.parked[attempt_id].to)
    return claim is not None and attempt_id in claim.victims


def lent_on(cluster: Cluster, node: str) -> list[tuple[AttemptId, Grant]]:
    """Who lends what of a node."""
    known = ((attempt_id, one.lent) for attempt_id, one in cluster.parked.items())
    return [(attempt_id, lent) for attempt_id, lent in known if lent is not None and lent.node == node]


def is_back(cluster: Cluster, lent: Grant) -> bool:
    """Nobody has any of it."""
    node = cluster.nodes[lent.node]
    held = node.held.values()
    return not any(set(one.cpus) & set(lent.cpus) or set(one.gpus) & set(lent.gpus) for one in held)


def lent_is_due(cluster: Cluster, attempt_id: AttemptId, lent: Grant) -> bool:
    """It is not time yet to have it back."""
    return is_waited_for(cluster, attempt_id) or not is_back(cluster, lent)
