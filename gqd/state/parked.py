"""Parked attempts: suspended for a preemptor, to which they lend their GPUs and CPUs.  Pure.

A parked attempt keeps its memory, generic resources and licences, and the GPUs and CPUs that the preemptor does not
use. What it lends is free only for the preemptor; once the preemptor has started, it holds the lent resources until its
node reports that nothing of it is left.  Then the parked attempt gets them back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.model.ids import AttemptId
from gq.model.resource import Grant, ResourceRequest
from gqd.state.cluster import Cluster
from gqd.state.records import Attempt

NOT_PARKED = "; it was not parked: "
"""Introduces the reason why a victim was ended instead of parked, in the sentence about its end."""


def overlap(grant: Grant, other: Grant) -> Grant:
    """The CPUs and GPUs that both grants contain."""
    return Grant(
        node=grant.node,
        cpus=tuple(cpu for cpu in grant.cpus if cpu in other.cpus),
        gpus=tuple(gpu for gpu in grant.gpus if gpu in other.gpus),
        memory_mib=0,
    )


def without(grant: Grant, lent: Grant) -> Grant:
    """The grant without the lent CPUs and GPUs."""
    return msgspec.structs.replace(
        grant,
        cpus=tuple(cpu for cpu in grant.cpus if cpu not in lent.cpus),
        gpus=tuple(gpu for gpu in grant.gpus if gpu not in lent.gpus),
    )


def held_now(cluster: Cluster, attempt: Attempt) -> Grant:
    """Grant that the node accounts to the parked attempt at present."""
    parked, grant = cluster.parked[attempt.attempt_id], attempt.grants[0]
    return grant if parked.lent is None else without(grant, parked.lent)


def as_written(granted: Grant, row: Grant) -> Grant:
    """The granted part of an attempt that is loaded, without the CPUs and GPUs that its stored row excludes."""
    if (len(granted.cpus), len(granted.gpus)) == (len(row.cpus), len(row.gpus)):
        return granted
    held = overlap(granted, row)
    return msgspec.structs.replace(granted, cpus=held.cpus, gpus=held.gpus)


def can_park(cluster: Cluster, attempt: Attempt) -> bool:
    """Whether the attempt can be parked: it runs on one node that can suspend it, and is neither elastic nor in a
    reservation.

    An attempt in a reservation, or that borrows from one, could stay suspended beyond the reservation's end.
    """
    node = cluster.nodes.get(attempt.batch_node)
    if len(attempt.grants) > 1 or attempt.elastic is not None or node is None:
        return False
    return attempt.occurrence is None and not attempt.borrows and node.inventory.can_park


def fits_beside(request: ResourceRequest) -> bool:
    """Whether a job with this request may use GPUs whose memory a parked attempt still occupies in part."""
    asks_gpus = bool(request.gpus or request.gpus_per_node or request.gpus_per_task or request.is_exclusive)
    if request.roles or request.most_gpus is not None or request.is_elastic:
        return False
    return bool(request.min_gpu_mem_mib) or not asks_gpus


def lends(cluster: Cluster, attempt: Attempt) -> bool:
    """Whether the attempt is parked and its resources are lent."""
    parked = cluster.parked.get(attempt.attempt_id)
    return parked is not None and parked.lent is not None


def lent_masks(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Node → (bit mask of lent CPUs, bit mask of lent GPUs)."""
    masks: dict[str, tuple[int, int]] = {}
    for parked in cluster.parked.values():
        if parked.lent is not None:
            cpus, gpus = masks.get(parked.lent.node, (0, 0))
            masks[parked.lent.node] = cpus | _mask(parked.lent.cpus), gpus | _mask(parked.lent.gpus)
    return masks


def _mask(ids: Iterable[int]) -> int:
    return sum(1 << index for index in ids)


def lent_to(cluster: Cluster, attempt: Attempt) -> list[Grant]:
    """Grants that parked attempts lend to this attempt."""
    if not cluster.parked:
        return []
    loans = (parked.lent for parked in cluster.parked.values() if parked.to == attempt.attempt_id.job_id)
    return [lent for lent in loans if lent is not None and lent.node in attempt.parts]


def is_waited_for(cluster: Cluster, attempt_id: AttemptId) -> bool:
    """Whether the preemptor has not started yet and still has a claim on the parked attempt."""
    claim = cluster.claims.get(cluster.parked[attempt_id].to)
    return claim is not None and attempt_id in claim.victims


def lent_on(cluster: Cluster, node: str) -> list[tuple[AttemptId, Grant]]:
    """(parked attempt, lent grant) for each attempt that lends resources of the node."""
    loans = ((attempt_id, parked.lent) for attempt_id, parked in cluster.parked.items())
    return [(attempt_id, lent) for attempt_id, lent in loans if lent is not None and lent.node == node]


def is_back(cluster: Cluster, lent: Grant) -> bool:
    """Whether no part on the node holds any of the lent resources."""
    node = cluster.nodes[lent.node]
    held = node.held.values()
    return not any(set(grant.cpus) & set(lent.cpus) or set(grant.gpus) & set(lent.gpus) for grant in held)


def lent_is_due(cluster: Cluster, attempt_id: AttemptId, lent: Grant) -> bool:
    """Whether the loan goes on: the preemptor has not started yet, or still holds lent resources."""
    return is_waited_for(cluster, attempt_id) or not is_back(cluster, lent)
