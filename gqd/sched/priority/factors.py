"""The order in which pending jobs are considered: the sum of weighted factors, highest first.  Pure.

Each factor gives every job a number between 0 and 1; its weight in gq.toml turns that into points, rounded to a whole
number.  The priority is the sum of the points minus the job's ``--nice``; a priority that an operator set with
``--priority`` replaces it.  Among jobs of equal priority the smaller id goes first.  The method is that of Slurm's
multifactor plug-in (https://slurm.schedmd.com/priority_multifactor.html), except that every figure is a whole number of
points, so that the figures that `gqprio` prints add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gq.model.account import QosInfo, with_built_in
from gq.model.ids import JobId
from gqd.sched.plugins import PriorityFactor
from gqd.sched.priority.fairshare import fair_tree
from gqd.sched.priority.share_debt import BANDS, bands
from gqd.state.cluster import Cluster
from gqd.state.index.queue import NO_OVERRIDE, Booleans, Columns, Floats, Integers, Labels, Member
from gqd.state.index.tally import account_path
from gqd.state.policy import Policy

NICE = "nice"
OVERRIDE = "override"
SHORTEST_S, LONGEST_S = 10.0, 30 * 86400.0
"""Run times in seconds between which the factor `short` falls from 1 to 0."""
MOST_POINTS = 2.0**53
"""The largest number of points: larger floating-point numbers are no longer exact integers."""


# ── the factors ───────────────────────────────────────────────────────────────────────────────────────────────


def age(jobs: Columns) -> Floats:
    """Time since the job became eligible, as a fraction of ``max_age``; a requeue does not restart it."""
    return part_of_most(jobs.now - jobs.accrue_at, jobs.max_age_s)


def part_of_most(waited_s: Floats, most_s: float) -> Floats:
    return np.clip(waited_s / max(most_s, 1.0), 0.0, 1.0)


def due(jobs: Columns) -> Floats:
    return jobs.due


def short(jobs: Columns) -> Floats:
    """1 for jobs expected to run at most 10 s, falling by a fixed amount for each doubling of the run time, down to
    0. Jobs without an expected run time get 0."""
    return shortness(jobs.expected_s)


def shortness(expected_s: Floats) -> Floats:
    over = np.log(np.maximum(expected_s, SHORTEST_S) / SHORTEST_S) / math.log(LONGEST_S / SHORTEST_S)
    return np.maximum(1.0 - over, 0.0)


def fair_share(jobs: Columns) -> Floats:
    return jobs.fair_share


def job_size(jobs: Columns) -> Floats:
    """The fraction of the cluster's CPUs or GPUs, whichever is larger, that the job requests; its complement if
    small jobs are favoured."""
    return part_of_cluster(jobs.cpus, jobs.gpus, jobs.all_cpus, jobs.all_gpus, jobs.favor_small)


def part_of_cluster(cpus: Integers, gpus: Integers, all_cpus: int, all_gpus: int, favor_small: bool) -> Floats:
    part = np.maximum(cpus / max(all_cpus, 1), gpus / max(all_gpus, 1))
    size: Floats = np.minimum(part, 1.0)
    return 1.0 - size if favor_small else size


def partition(jobs: Columns) -> Floats:
    return jobs.partition_priority


def qos(jobs: Columns) -> Floats:
    return jobs.qos_priority


FACTORS: dict[str, PriorityFactor] = {
    "due": due,
    "short": short,
    "age": age,
    "fair_share": fair_share,
    "job_size": job_size,
    "partition": partition,
    "qos": qos,
}
"""Built-in factors by name, in the order of `gqprio`'s columns; a site's own factors follow them."""
STANDING = ("partition", "qos", NICE, OVERRIDE)
RESERVED = frozenset({*FACTORS, NICE, OVERRIDE})


def weighted_factors(policy: Policy) -> list[tuple[str, PriorityFactor, float]]:
    """All factors as (name, factor, points at the value 1)."""
    weights = policy.weights
    own = [(name, factor, float(getattr(weights, name))) for name, factor in FACTORS.items()]
    site = [(name, factor, weights.factors.get(name, 0.0)) for name, factor in policy.plugins.items()]
    return own + site


# ── the order ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, frozen=True)
class Ranking:
    """The order of the queue at one instant; every column is indexed by queue index as it was then."""

    job_ids: Integers
    priority: Integers
    order: Integers
    """Queue indices in the order in which jobs are considered."""
    factors: dict[str, Floats]
    """Values between 0 and 1, by factor."""
    points: dict[str, Integers]
    """Points by factor; their sum is the priority."""
    band: Integers
    """The band of each job; jobs in a lower band go first where the waiting time decides.  What an administrator set
    (QOS, partition, ``--nice``, ``--priority``) counts before whether the user is over fair share."""

    def ordered_ids(self) -> list[JobId]:
        ids: list[JobId] = self.job_ids[self.order].tolist()
        return ids


def rank(cluster: Cluster, policy: Policy, now: float) -> Ranking:
    """Rank the whole queue, with the factors and points of every job."""
    jobs = columns_of(cluster, policy, now)
    override = cluster.queue.integers("override")
    is_overridden = override != NO_OVERRIDE
    factors: dict[str, Floats] = {}
    points: dict[str, Integers] = {}
    for name, factor, weight in weighted_factors(policy):
        factors[name] = factor(jobs) if name in FACTORS else np.clip(np.nan_to_num(factor(jobs)), 0.0, 1.0)
        points[name] = _points(factors[name], weight, is_overridden)
    points[NICE] = np.where(is_overridden, 0, -cluster.queue.integers("nice"))
    points[OVERRIDE] = np.where(is_overridden, override, 0)
    priority = sum(points.values(), np.zeros(len(jobs.job_id), np.int64))
    standing = sum((points[name] for name in STANDING if name in points), np.zeros(len(jobs.job_id), np.int64))
    band = np.rint((1.0 - jobs.due) * (BANDS - 1)).astype(np.int64)
    band[is_overridden] = 0
    order = in_order(priority, jobs.job_id)
    return Ranking(jobs.job_id.copy(), priority, order, factors, points, band - BANDS * standing)


def _points(factor: Floats, weight: float, is_overridden: Booleans) -> Integers:
    points = points_of(factor, weight)
    points[is_overridden] = 0
    return points


def points_of(factor: Floats, weight: float) -> Integers:
    points: Integers = np.rint(factor * min(max(weight, -MOST_POINTS), MOST_POINTS)).astype(np.int64)
    return points


def in_order(priority: Integers, job_ids: Integers) -> Integers:
    """Queue indices by descending priority, then by id.  Both are packed into one number if they fit, which sorts
    ten times faster."""
    if not len(job_ids):
        return np.zeros(0, np.int64)
    highest, first = int(priority.max()), int(job_ids.min())
    span = int(job_ids.max()) - first + 1
    if (highest - int(priority.min()) + 1) * span < 2**62:
        return np.argsort((highest - priority) * span + (job_ids - first)).astype(np.int64)
    return np.lexsort((job_ids, -priority)).astype(np.int64)


# ── what the factors see ──────────────────────────────────────────────────────────────────────────────────────


def columns_of(cluster: Cluster, policy: Policy, now: float) -> Columns:
    queue, weights = cluster.queue, policy.weights
    members, partitions, names = queue.members, queue.partitions, queue.qos
    member, place, service = (queue.integers(one) for one in ("member", "partition", "qos"))
    all_nodes, all_cpus, all_gpus = totals_of(cluster)
    jobs = Columns(
        now=now,
        job_id=queue.integers("job_id"),
        submit_at=queue.floats("submit_at"),
        accrue_at=queue.floats("accrue_at"),
        time_limit_s=queue.floats("time_limit_s"),
        expected_s=queue.floats("expected_s"),
        nodes=queue.integers("nodes"),
        cpus=queue.integers("cpus"),
        gpus=queue.integers("gpus"),
        user=Labels(member, tuple(user for user, _ in members)),
        account=Labels(member, tuple(account for _, account in members)),
        partition=Labels(place, partitions),
        qos=Labels(service, names),
        fair_share=_by_code(fair_shares(members, cluster, now), member),
        due=_by_code(dues(members, cluster, now), member),
        partition_priority=_by_code(of_partitions(partitions, policy), place),
        qos_priority=_by_code(of_qos(names, cluster.qos), service),
        all_nodes=all_nodes,
        all_cpus=all_cpus,
        all_gpus=all_gpus,
        max_age_s=weights.max_age_s,
        favor_small=weights.favor_small,
    )
    return _read_only(jobs)


def fair_shares(members: Iterable[Member], cluster: Cluster, now: float) -> list[float]:
    users = fair_tree(cluster, now).users
    return [users[member].fair_share if member in users else 1.0 for member in members]


def dues(members: Iterable[Member], cluster: Cluster, now: float) -> list[float]:
    band_of = bands(cluster, now)
    return [1.0 - band_of.get(member, 0) / (BANDS - 1) for member in members]


def totals_of(cluster: Cluster) -> tuple[int, int, int]:
    """(nodes, CPUs, GPUs) of the whole cluster."""
    inventories = [node.inventory for node in cluster.nodes.values()]
    return (
        len(inventories),
        sum(inventory.cpus for inventory in inventories),
        sum(len(inventory.gpus) for inventory in inventories),
    )


def _by_code(values: Sequence[float], codes: Integers) -> Floats:
    return np.array(values, np.float64)[codes] if len(codes) else np.zeros(0)


def of_partitions(names: Iterable[str], policy: Policy) -> list[float]:
    return _parts_of_highest(names, {one.name: one.priority for one in policy.partitions})


def of_qos(names: Iterable[str], own: Mapping[str, QosInfo]) -> list[float]:
    """The QOS factor by name.  Built-in QOS do not raise the highest priority where a site defines its own QOS."""
    priorities = {name: info.priority for name, info in with_built_in(own).items()}
    highest = max((info.priority for info in own.values()), default=0)
    if highest > 0:
        priorities = {name: min(one, highest) for name, one in priorities.items()}
    return _parts_of_highest(names, priorities)


def _parts_of_highest(names: Iterable[str], priorities: Mapping[str, int]) -> list[float]:
    highest = max(priorities.values(), default=0)
    return [max(0, priorities.get(name, 0)) / highest if highest > 0 else 0.0 for name in names]


def _read_only(jobs: Columns) -> Columns:
    """Make all columns read-only, so that a site's factor that writes to one raises an error and corrupts no other
    factor."""
    for name in Columns.__slots__:
        value = getattr(jobs, name)
        for column in (value, getattr(value, "codes", None)):
            if isinstance(column, np.ndarray):
                column.flags.writeable = False
    return jobs


def guarantor_of(cluster: Cluster, account: str) -> str | None:
    """The account itself or its nearest parent that has a guarantee; None if there is none."""
    for name in account_path(cluster.accounts, account):
        info = cluster.accounts.get(name)
        if info is not None and info.guaranteed_gpus is not None:
            return name
    return None
