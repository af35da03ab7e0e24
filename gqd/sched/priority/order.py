"""The jobs that a pass considers and their order: by the policy's rule, or by priority.  Pure.

Every pass needs the priority of the whole queue and nothing else about it.  The numbers equal those of
`gqd.sched.priority.factors.rank`, but what all jobs of a user, a partition or a QOS have in common is computed once for
each of these, and factors without weight are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gq.model.scheduling import Scheduling
from gqd.sched.limits.ledger import Ledger, LimitSubject, LimitView
from gqd.sched.limits.over_limit import over_limit_mask
from gqd.sched.priority.factors import (
    dues,
    fair_shares,
    in_order,
    of_partitions,
    of_qos,
    part_of_cluster,
    part_of_most,
    points_of,
    rank,
    shortness,
    totals_of,
)
from gqd.sched.priority.share_debt import BANDS
from gqd.state.cluster import Cluster
from gqd.state.index.queue import NO_OVERRIDE, Booleans, Integers, PendingQueue
from gqd.state.policy import Policy

MOST_ONE_BY_ONE = 2000
"""The longest queue in which each job gets the limit that stops it as its reason; in a longer queue jobs over a
limit are left out together."""


class Order(NamedTuple):
    """The jobs that could start if resources were free, in the order in which they are considered."""

    places: Integers
    """Queue indices at the time of the call."""
    job_ids: Integers
    band: Integers
    """The band of each job (see `gqd.sched.snapshot.model.PendingColumns`)."""
    priority: Integers
    """The priority of each job; zeros where the policy orders the queue by another rule."""
    kept_back: tuple[LimitSubject, ...]
    """Subjects that have further jobs, left out because limits stop them."""


def order_of(cluster: Cluster, policy: Policy, now: float, limits: LimitView) -> Order:
    """All jobs that are ready, in the order of the policy.

    Jobs that are held, wait for a dependency or a begin time, or are in a partition that is down are left out; in a
    long queue also all jobs that are certainly over a limit.
    """
    queue = cluster.queue
    is_up = _is_one_of(
        queue.partitions, {partition.name for partition in policy.partitions if partition.is_up}.__contains__
    )
    is_ready = (queue.integers("is_open") > 0) & (queue.floats("begin_at") <= now)
    if not is_up.all():
        is_ready &= is_up[queue.integers("partition")]
    askers: tuple[LimitSubject, ...] = ()
    if limits.binds and int(is_ready.sum()) > MOST_ONE_BY_ONE:
        mask, askers = over_limit_mask(queue, Ledger(limits), policy.billing)
        is_ready &= ~mask
    places = np.flatnonzero(is_ready)
    ids = queue.integers("job_id")[places]
    if policy.scheduling.order == "priority":
        priority, band = priority_of(cluster, policy, now)
        order = in_order(priority[places], ids)
        places = places[order]
        return Order(places, ids[order], band[places], priority[places], askers)
    order = _by_rule(queue, places, ids, policy.scheduling)
    zeros = np.zeros(len(places), np.int64)
    return Order(places[order], ids[order], zeros, zeros, askers)


def _by_rule(queue: PendingQueue, places: Integers, ids: Integers, rules: Scheduling) -> Integers:
    """Order the queue by a rule that does not use the priority."""
    if rules.order == "shortest":
        return np.lexsort((ids, queue.floats("expected_s")[places]))
    if rules.order == "attained":
        has_had_trial = queue.floats("ran_s")[places] >= rules.trial_s
        return np.lexsort((ids, queue.since()[places], has_had_trial))
    return np.argsort(ids)


def _is_one_of(names: Sequence[str], accept: Callable[[str], bool]) -> Booleans:
    return np.array([accept(name) for name in names], np.bool_)


# ── by priority ───────────────────────────────────────────────────────────────────────────────────────────────


def priority_of(cluster: Cluster, policy: Policy, now: float) -> tuple[Integers, Integers]:
    """(priority, band) of every job by queue index, equal to the result of `rank`."""
    queue, weights = cluster.queue, policy.weights
    if any(weights.factors.get(name) for name in policy.plugins):
        ranking = rank(cluster, policy, now)
        return ranking.priority, ranking.band
    member, by_due = queue.integers("member"), np.array(dues(queue.members, cluster, now), np.float64)
    standing = -queue.integers("nice")
    if weights.partition:
        of_each = np.array(of_partitions(queue.partitions, policy), np.float64)
        standing += points_of(of_each, weights.partition)[queue.integers("partition")]
    if weights.qos:
        of_each = np.array(of_qos(queue.qos, cluster.qos), np.float64)
        standing += points_of(of_each, weights.qos)[queue.integers("qos")]
    of_members = points_of(by_due, weights.due)
    if weights.fair_share:
        shares = np.array(fair_shares(queue.members, cluster, now), np.float64)
        of_members += points_of(shares, weights.fair_share)
    priority = standing + of_members[member]
    if weights.short:
        priority += points_of(shortness(queue.floats("expected_s")), weights.short)
    if weights.age:
        waited_s = now - queue.floats("accrue_at")
        priority += points_of(part_of_most(waited_s, weights.max_age_s), weights.age)
    if weights.job_size:
        _, cpus, gpus = totals_of(cluster)
        part = part_of_cluster(queue.integers("cpus"), queue.integers("gpus"), cpus, gpus, weights.favor_small)
        priority += points_of(part, weights.job_size)
    band = np.rint((1.0 - by_due) * (BANDS - 1)).astype(np.int64)[member]
    override = queue.integers("override")
    is_overridden = override != NO_OVERRIDE
    if is_overridden.any():
        priority, standing = np.where(is_overridden, override, priority), np.where(is_overridden, override, standing)
        band[is_overridden] = 0
    return priority, band - BANDS * standing
