"""Elastic jobs that grow and shrink by whole nodes: how nodes join and leave, and how the others learn of it.  Pure.

A node joins as at a launch, but alone: its grant is the job's from the decision on; it is prepared and launched, and
once its part is live all nodes of the job are notified.  A node that fails meanwhile is removed again without harm.
A node leaves after a notice, or when the job gives it up: the job continues without it, its processes there are ended,
and the node is free once it reports that nothing is left.  A lost node leaves at once.  Nodes that the job started with
never leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gq.model.resource import Grant
from gq.wire import node as wire
from gqd.control import orders
from gqd.control.accounts import association
from gqd.sched.placement.billing import billing_of
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.elastic import LEAVE_GRACE_S, is_left, staying_on
from gqd.state.events import event
from gqd.state.index.job_tally import granted
from gqd.state.order_clocks import RESIZE
from gqd.state.phases import PartPhase
from gqd.state.policy import Policy
from gqd.state.records import Attempt, Elastic, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def may_take(draft: TurnBuilder, job: Job, attempt: Attempt, elastic: Elastic, grant: Grant) -> bool:
    """Whether the job may get this node: it does not have it yet, and nothing of the job is left there."""
    node = draft.cluster.nodes.get(grant.node)
    if elastic.going or node is None or not node.inventory.can_join or grant.node in attempt.parts:
        return False
    is_its_own = any(held.node == grant.node for held in attempt.grants)
    return not is_its_own and len(attempt.grants) < max_nodes(draft.policy, job, elastic)


def max_nodes(policy: Policy, job: Job, elastic: Elastic) -> int:
    """The node count up to which the job may grow; its partition may allow fewer than the job asked for."""
    known = policy.partition(job.partition)
    return elastic.takes if known is None or known.max_nodes is None else min(elastic.takes, known.max_nodes)


def add(draft: TurnBuilder, job: Job, attempt: Attempt, grant: Grant) -> None:
    """Add the node to the running job."""
    billing = billing_with(draft, job, attempt, (*attempt.grants, grant))
    draft.emit(event.NodeAdded(at=draft.now, attempt_id=attempt.attempt_id, grant=grant, billing=billing))
    orders.send_owed(draft, attempt, grant.node)


def billing_with(draft: TurnBuilder, job: Job, attempt: Attempt, grants: Iterable[Grant]) -> int:
    """The billing of these grants together; 0 for a job that is not billed."""
    if not attempt.billing:
        return 0
    qos = association.qos_named(draft.cluster, job.qos)
    factor = 1.0 if qos is None else qos.usage_factor
    return billing_of(draft.policy.billing, granted(draft.cluster, grants), factor)


def may_give(attempt: Attempt, elastic: Elastic, shrink: planned.Shrink) -> bool:
    """Whether the planned release is a whole node that joined the job, and no other change is pending."""
    held = next((grant for grant in attempt.grants if grant.node == shrink.node), None)
    is_whole = held is not None and set(held.gpus) == set(shrink.gpus) and set(held.cpus) == set(shrink.cpus)
    return is_whole and not elastic.going and bool(elastic.join_of(shrink.node))


def leave(draft: TurnBuilder, attempt: Attempt, nodes: Iterable[str]) -> None:
    """The running job continues without these nodes; nodes that it does not have are ignored."""
    elastic = attempt.elastic
    leaving = () if elastic is None else tuple(node for node in nodes if elastic.join_of(node))
    if not leaving:
        return
    job = draft.cluster.jobs[attempt.attempt_id.job_id]
    stays = [grant for grant in attempt.grants if grant.node not in leaving]
    draft.emit(
        event.NodesLeft(
            at=draft.now,
            attempt_id=attempt.attempt_id,
            nodes=leaving,
            ends_at=draft.now + LEAVE_GRACE_S,
            billing=billing_with(draft, job, attempt, stays),
        )
    )
    for node in leaving:
        draft.volatile.order_clocks.stop(RESIZE, attempt.attempt_id, node)
        orders.send_owed(draft, attempt, node)
    tell_all(draft, attempt)


# ── orders to the nodes ───────────────────────────────────────────────────────────────────────────────────────


def tell_all(draft: TurnBuilder, attempt: Attempt) -> None:
    """Send the current set of nodes to every node of the job."""
    for node in attempt.parts:
        tell(draft, attempt, node)


def tell(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """Send the set of nodes, and the nodes that leave, to a node; repeated until it confirms the change's number."""
    orders.send(draft, RESIZE, attempt.attempt_id, node, owed(draft, attempt, node))


def owed(draft: TurnBuilder, attempt: Attempt, node: str) -> wire.ResizeAttempt | None:
    """The current change for a node; None: its part is not live yet (it is sent the change when it is), or not now."""
    elastic, part = attempt.elastic, attempt.parts[node]
    if elastic is None or part.phase is not PartPhase.LIVE or part.is_stranded or is_left(attempt, node):
        return None
    return wire.ResizeAttempt(
        attempt_id=attempt.attempt_id,
        generation=elastic.generation,
        gpus=part.grant.gpus,
        keeps=part.grant.gpus,
        ends_at=elastic.ends_at,
        members=orders.members_of(draft, attempt),
        leaving=elastic.going,
    )


# ── whether a plan is worthwhile ──────────────────────────────────────────────────────────────────────────────


def wants_more(attempt: Attempt, elastic: Elastic) -> bool:
    return not elastic.going and len(attempt.grants) < elastic.takes


def has_idle(cluster: Cluster, attempt: Attempt) -> bool:
    """Whether another node has free GPUs, or free CPUs for a job without GPUs."""
    has_gpus = any(grant.gpus for grant in staying_on(attempt))
    return any(
        node.free_gpu_mask if has_gpus else node.free_cpu_mask
        for node in cluster.nodes.values()
        if node.name not in attempt.parts
    )
