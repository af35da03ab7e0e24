"""Queries about what an elastic attempt keeps, gives up and has left, for plans and orders.  Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gq.model.ids import AttemptId
from gq.model.job import SignalSpec
from gq.model.resource import Grant
from gqd.state.cluster import Cluster
from gqd.state.preemption import notice_s
from gqd.state.records import Attempt, Left, Nomination

LEAVE_GRACE_S = 5
"""Seconds between TERM and KILL for processes of a job on a node that the job has left."""
NOTICE_S = 10.0
"""Seconds between the notice of a shrink and its execution, for jobs without ``--signal``."""


def has_joined(attempt: Attempt, node: str) -> bool:
    """Whether the node joined the running attempt, which survives its loss; true also after the attempt has left it."""
    elastic = attempt.elastic
    return elastic is not None and elastic.is_of_nodes and (bool(elastic.join_of(node)) or is_left(attempt, node))


def is_left(attempt: Attempt, node: str) -> bool:
    """Whether the attempt has left the node, which has not reported yet that it is empty."""
    elastic = attempt.elastic
    return elastic is not None and any(share.grant.node == node for share in elastic.left)


def is_going(attempt: Attempt, node: str) -> bool:
    """Whether the attempt is to give up the node."""
    return attempt.elastic is not None and node in attempt.elastic.going


def staying_on(attempt: Attempt) -> tuple[Grant, ...]:
    """Grants of the attempt, without what it is to give up."""
    return tuple([staying(attempt, grant) for grant in attempt.grants if not is_going(attempt, grant.node)])


def staying(attempt: Attempt, grant: Grant) -> Grant:
    """The grant without the GPUs and CPUs that the attempt is to give up; nothing new is started on those."""
    elastic = attempt.elastic
    if elastic is None or elastic.keeps is None:
        return grant
    return msgspec.structs.replace(
        grant, gpus=elastic.keeps, cpus=grant.cpus if elastic.keeps_cpus is None else elastic.keeps_cpus
    )


def going_of(attempt: Attempt) -> list[Left]:
    """Resources that the attempt is to give up, or has given up and that its node still holds."""
    elastic = attempt.elastic
    if elastic is None:
        return []
    if elastic.is_of_nodes:
        ends_at = elastic.ends_at or 0.0
        whole = [grant for grant in attempt.grants if grant.node in elastic.going and grant.node in attempt.parts]
        return [Left(grant, ends_at) for grant in whole] + list(elastic.left)
    if elastic.keeps is None or elastic.ends_at is None:
        return []
    held = attempt.grants[0]
    stays = staying(attempt, held)
    going = msgspec.structs.replace(
        held,
        tasks=0,
        gpus=tuple(gpu for gpu in held.gpus if gpu not in stays.gpus),
        cpus=tuple(cpu for cpu in held.cpus if cpu not in stays.cpus),
        memory_mib=0,
        resources=(),
        licenses=(),
    )
    return [Left(going, elastic.ends_at)]


def shrink_notice_s(signal: SignalSpec | None) -> float:
    """Seconds between the notice of a shrink and its execution."""
    return NOTICE_S if signal is None else notice_s(signal)


class Giver(NamedTuple):
    """An elastic attempt that gives up resources for a claim."""

    attempt_id: AttemptId
    gpus: int
    cpus: int
    ends_at: float
    node: str = ""
    """Node that is given up whole; empty: only GPUs and CPUs are."""


def givers_to(cluster: Cluster, claim: Nomination) -> list[Giver]:
    """The elastic attempts that give up resources which the claim needs."""
    by_node = {grant.node: grant for grant in claim.grants}
    found = []
    for attempt_id, attempt in cluster.elastic.items():
        for going, ends_at in ((share.grant, share.ends_at) for share in going_of(attempt)):
            claimed = by_node.get(going.node)
            if claimed is None:
                continue
            gpus, cpus = set(going.gpus).intersection(claimed.gpus), set(going.cpus).intersection(claimed.cpus)
            if gpus or cpus:
                node = going.node if attempt.elastic is not None and attempt.elastic.is_of_nodes else ""
                found.append(Giver(attempt_id, len(gpus), len(cpus), ends_at, node))
    return found
