"""Running jobs that get more and fewer nodes: how one joins, how one leaves, and who is told.  Pure.

A node joins as it would at the start, but alone: its share is the job's from the decision on, it is prepared and let
go, and when it lives all nodes of the job are told.  One that fails on the way is taken out again, and harms nobody.
One that leaves has been told before; when its time has come, or the job has given it up, the job goes on without it,
and what is there is ended: it is free when the node says that nothing is left.  One that is lost leaves at once.  The
nodes that the job began with never do.
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
from gqd.state.effect import SendOrder
from gqd.state.elastic import LEAVE_GRACE_S, is_left, staying_on
from gqd.state.events import event
from gqd.state.index.job_tally import granted
from gqd.state.phases import PartPhase
from gqd.state.policy import Policy
from gqd.state.records import Attempt, Elastic, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def may_take(draft: TurnBuilder, job: Job, attempt: Attempt, elastic: Elastic, grant: Grant) -> bool:
    """One more node, which it does not have, nor has something of it left."""
    node = draft.cluster.nodes.get(grant.node)
    if elastic.going or node is None or not node.inventory.can_join or grant.node in attempt.parts:
        return False
    is_its_own = any(one.node == grant.node for one in attempt.grants)
    return not is_its_own and len(attempt.grants) < most_nodes(draft.policy, job, elastic)


def most_nodes(policy: Policy, job: Job, elastic: Elastic) -> int:
    """Its partition may allow fewer by now."""
    known = policy.partition(job.partition)
    return elastic.takes if known is None or known.max_nodes is None else min(elastic.takes, known.max_nodes)


def add(draft: TurnBuilder, job: Job, attempt: Attempt, grant: Grant) -> None:
    billing = billing_with(draft, job, attempt, (*attempt.grants, grant))
    draft.emit(event.NodeAdded(at=draft.now, attempt_id=attempt.attempt_id, grant=grant, billing=billing))
    orders.send_owed(draft, attempt, grant.node)


def billing_with(draft: TurnBuilder, job: Job, attempt: Attempt, grants: Iterable[Grant]) -> int:
    """Of these together; what is free of charge stays so."""
    if not attempt.billing:
        return 0
    qos = association.qos_named(draft.cluster, job.qos)
    factor = 1.0 if qos is None else qos.usage_factor
    return billing_of(draft.policy.billing, granted(draft.cluster, grants), factor)


def may_give(attempt: Attempt, elastic: Elastic, one: planned.Gift) -> bool:
    """All of a node that came to it."""
    held = next((grant for grant in attempt.grants if grant.node == one.node), None)
    is_whole = held is not None and set(held.gpus) == set(one.gpus) and set(held.cpus) == set(one.cpus)
    return is_whole and not elastic.going and bool(elastic.join_of(one.node))


def leave(draft: TurnBuilder, attempt: Attempt, nodes: Iterable[str]) -> None:
    """The running job goes on without these; no news of those that it has left already."""
    one = attempt.elastic
    leaving = () if one is None else tuple(node for node in nodes if one.join_of(node))
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
        draft.volatile.resize_orders.pop((attempt.attempt_id, node), None)
        orders.send_owed(draft, attempt, node)
    tell_all(draft, attempt)
    draft.volatile.wants_plan = True


# ── what its nodes are told ───────────────────────────────────────────────────────────────────────────────────


def tell_all(draft: TurnBuilder, attempt: Attempt) -> None:
    for node in attempt.parts:
        tell(draft, attempt, node)


def tell(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """Which nodes it has, and which go; repeated until the node names the number of the change.

    One that does not live yet is told when it does.
    """
    one, part = attempt.elastic, attempt.parts[node]
    if one is None or part.phase is not PartPhase.LIVE or part.is_stranded or is_left(attempt, node):
        return
    draft.volatile.resize_orders[attempt.attempt_id, node] = draft.now
    order = wire.ResizeAttempt(
        attempt_id=attempt.attempt_id,
        generation=one.generation,
        gpus=part.grant.gpus,
        keeps=part.grant.gpus,
        ends_at=one.ends_at,
        members=orders.members_of(draft, attempt),
        leaving=one.going,
    )
    draft.enqueue(SendOrder(node=node, order=order))


def tick(draft: TurnBuilder, attempt: Attempt) -> None:
    """What was to go by now goes; what a node has not answered is said again."""
    one = attempt.elastic
    if one is not None and one.ends_at is not None and draft.now >= one.ends_at:
        leave(draft, attempt, one.going)
    for node in attempt.parts:
        sent_at = draft.volatile.resize_orders.get((attempt.attempt_id, node))
        is_due = sent_at is not None and draft.now - sent_at >= draft.policy.timers.resend_s
        if is_due and node in draft.volatile.links:
            tell(draft, attempt, node)


# ── whether a plan is worthwhile ──────────────────────────────────────────────────────────────────────────────


def wants_more(attempt: Attempt, one: Elastic) -> bool:
    return not one.going and len(attempt.grants) < one.takes


def has_idle(cluster: Cluster, attempt: Attempt) -> bool:
    """Some node has something free of what it has of another."""
    has_gpus = any(grant.gpus for grant in staying_on(attempt))
    return any(
        node.free_gpu_mask if has_gpus else node.free_cpu_mask
        for node in cluster.nodes.values()
        if node.name not in attempt.parts
    )
