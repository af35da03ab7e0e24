"""In which order pending jobs are considered: points of several factors, the most first.  Pure.

Each factor gives every job a number between 0 and 1; its weight in gq.toml makes points of it, rounded to a whole
number.  The priority is their sum less the job's ``--nice``; what an operator set with ``--priority`` stands instead
of it.  Among equals the job with the smaller id goes first.  As in Slurm's multifactor plug-in
(https://slurm.schedmd.com/priority_multifactor.html), but that every figure is a whole number of points, so that what
`gqprio` prints adds up.
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
"""Between these lengths the factor `short` goes from 1 to 0."""
MOST_POINTS = 2.0**53
"""Beyond this numbers do not add up any more."""


# ── the factors ───────────────────────────────────────────────────────────────────────────────────────────────


def age(jobs: Columns) -> Floats:
    """How long the job could have started, as a part of ``max_age``; a requeue does not begin it anew."""
    return part_of_most(jobs.now - jobs.accrue_at, jobs.max_age_s)


def part_of_most(waited_s: Floats, most_s: float) -> Floats:
    return np.clip(waited_s / max(most_s, 1.0), 0.0, 1.0)


def due(jobs: Columns) -> Floats:
    return jobs.due


def short(jobs: Columns) -> Floats:
    """1 for jobs that are expected to be over at once, and less by the same for each time that they take twice as long,
    down to 0; also where nobody knows."""
    return shortness(jobs.expected_s)


def shortness(expected_s: Floats) -> Floats:
    over = np.log(np.maximum(expected_s, SHORTEST_S) / SHORTEST_S) / math.log(LONGEST_S / SHORTEST_S)
    return np.maximum(1.0 - over, 0.0)


def fair_share(jobs: Columns) -> Floats:
    return jobs.fair_share


def job_size(jobs: Columns) -> Floats:
    """The part of the cluster's CPUs or of its GPUs that the job asks for, whichever is more; or what is left of it."""
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
"""By name, in the order of `gqprio`'s columns; the site's own come after them."""
STANDING = ("partition", "qos", NICE, OVERRIDE)
RESERVED = frozenset({*FACTORS, NICE, OVERRIDE})


def weighted_factors(policy: Policy) -> list[tuple[str, PriorityFactor, float]]:
    """(name, factor, points where it is 1)"""
    weights = policy.weights
    own = [(name, factor, float(getattr(weights, name))) for name, factor in FACTORS.items()]
    site = [(name, factor, weights.factors.get(name, 0.0)) for name, factor in policy.plugins.items()]
    return own + site


# ── the order ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, frozen=True)
class Ranking:
    """The queue as it stands at one instant; every column by place in the queue, as it was then."""

    job_ids: Integers
    priority: Integers
    order: Integers
    """Places, the first to be considered first."""
    factors: dict[str, Floats]
    """0…1"""
    points: dict[str, Integers]
    """Their sum is the priority."""
    band: Integers
    """The lower goes first where what counts is how long jobs have waited: what an administrator said of the job (by
    QOS, partition, ``--nice`` and ``--priority``), then whether its user had more than is due."""

    def ordered_ids(self) -> list[JobId]:
        ids: list[JobId] = self.job_ids[self.order].tolist()
        return ids


def rank(cluster: Cluster, policy: Policy, now: float) -> Ranking:
    """The whole queue in order, with all that it comes from."""
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
    """Priority descending, then id.  Both in one number where that fits, which sorts ten times as fast."""
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
    return [users[one].fair_share if one in users else 1.0 for one in members]


def dues(members: Iterable[Member], cluster: Cluster, now: float) -> list[float]:
    band_of = bands(cluster, now)
    return [1.0 - band_of.get(one, 0) / (BANDS - 1) for one in members]


def totals_of(cluster: Cluster) -> tuple[int, int, int]:
    """(nodes, CPUs, GPUs) of the whole cluster."""
    inventories = [node.inventory for node in cluster.nodes.values()]
    return len(inventories), sum(one.cpus for one in inventories), sum(len(one.gpus) for one in inventories)


def _by_code(values: Sequence[float], codes: Integers) -> Floats:
    return np.array(values, np.float64)[codes] if len(codes) else np.zeros(0)


def of_partitions(names: Iterable[str], policy: Policy) -> list[float]:
    return _parts_of_highest(names, {one.name: one.priority for one in policy.partitions})


def of_qos(names: Iterable[str], own: Mapping[str, QosInfo]) -> list[float]:
    """Those that are always there have no say in what counts as highest where a site has its own."""
    priorities = {name: info.priority for name, info in with_built_in(own).items()}
    highest = max((info.priority for info in own.values()), default=0)
    if highest > 0:
        priorities = {name: min(one, highest) for name, one in priorities.items()}
    return _parts_of_highest(names, priorities)


def _parts_of_highest(names: Iterable[str], priorities: Mapping[str, int]) -> list[float]:
    highest = max(priorities.values(), default=0)
    return [max(0, priorities.get(name, 0)) / highest if highest > 0 else 0.0 for name in names]


def _read_only(jobs: Columns) -> Columns:
    """Whoever writes to a column of the site's own factor gets an error, and no other factor wrong figures."""
    for name in Columns.__slots__:
        value = getattr(jobs, name)
        for column in (value, getattr(value, "codes", None)):
            if isinstance(column, np.ndarray):
                column.flags.writeable = False
    return jobs


def guarantor_of(cluster: Cluster, account: str) -> str | None:
    """The account itself, or the nearest above it, that has a guarantee."""
    for name in account_path(cluster.accounts, account):
        info = cluster.accounts.get(name)
        if info is not None and info.guaranteed_gpus is not None:
            return name
    return None
