"""Static eligibility: for each request shape, the nodes it may use and the nodes large enough for one unit of it.
Pure.

The cache is independent of what is running, and is kept from pass to pass while the nodes and the policy are equal,
since a pass asks about every shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gq.model.ids import JobId
from gqd.sched.placement.feasible import eligible_places, feasible_places
from gqd.sched.reasons.unschedulable import never_fits_reason
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import PendingJob, PendingJobs, ReservedOccurrence, RunningJob, Snapshot
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.queue_scan import QueueScan
from gqd.sched.timeline.timeline import Release, RunEstimate, release_of, run_estimate
from gqd.state.index.queue import Floats, Integers
from gqd.state.plan import NoNodes, Wait
from gqd.state.policy import Policy

KEPT_SHAPES = 100_000


@dataclass(slots=True, frozen=True)
class EligibleNodes:
    """Node indices for a shape, each a subset of the one before."""

    eligible: Integers
    feasible: Integers
    """Eligible nodes with room for at least one unit when they are empty."""
    available: Integers
    """Feasible nodes that may get jobs now."""


class Kind(NamedTuple):
    """The partition of a shape, and whether it needs several nodes."""

    partition: str
    is_wide: bool


class _Run(NamedTuple):
    job: RunningJob
    course: RunEstimate
    by_limit: Release
    """The release at the time limit, valid until that instant."""
    expected: Release
    """The release at the expected end, valid until that instant: nothing moves it earlier."""
    is_limited: bool
    expected_at: float
    """The instant of `expected`."""


@dataclass(slots=True)
class EligibilityCache:
    nodes: tuple[NodeFacts, ...]
    policy: Policy
    places: dict[str, int] = field(init=False)
    is_up: NDArray[np.bool_] = field(init=False)
    most_gpus: int = field(init=False)
    """The most GPUs of any node."""
    source: object = None
    """The source of the shape codes in `kinds` (see `gqd.sched.snapshot.model.PendingColumns`)."""
    kinds: dict[int, Kind] = field(default_factory=dict)
    _eligible_nodes: dict[Shape, EligibleNodes] = field(default_factory=dict)
    _runs: dict[JobId, _Run] = field(default_factory=dict)
    _running: Sequence[RunningJob] = ()
    """The running jobs described by the next three fields."""
    _by_limit: list[Release] = field(default_factory=list)
    """Releases of jobs that have a time limit."""
    _ending: list[_Run] = field(default_factory=list)
    """Jobs that are expected to end; `_expected_at` has the instants."""
    _expected_at: Floats = field(default_factory=lambda: np.zeros(0))
    _never_fits: dict[tuple[Shape, tuple[tuple[str, float], ...]], Wait | None] = field(default_factory=dict)
    _members: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    _gpus: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {node.name: one for one, node in enumerate(self.nodes)}
        self.is_up = np.array([not node.unavailable for node in self.nodes], np.bool_)
        self.most_gpus = max((node.gpu_mask.bit_count() for node in self.nodes), default=0)

    def is_of(self, snapshot: Snapshot) -> bool:
        is_same = self.policy is snapshot.policy or self.policy == snapshot.policy
        return is_same and self.nodes == snapshot.nodes and len(self._eligible_nodes) < KEPT_SHAPES

    def eligible_nodes(self, shape: Shape) -> EligibleNodes:
        known = self._eligible_nodes.get(shape)
        if known is None:
            known = self._eligible_nodes[shape] = self._find_eligible_nodes(shape)
        return known

    def _find_eligible_nodes(self, shape: Shape) -> EligibleNodes:
        partition = self.policy.partition(shape.partition)
        if partition is None:
            nowhere = np.zeros(0, np.int64)
            return EligibleNodes(nowhere, nowhere, nowhere)
        eligible = eligible_places(self.nodes, shape, partition)
        feasible = feasible_places(self.nodes, shape, eligible)
        return EligibleNodes(eligible, feasible, feasible[self.is_up[feasible]])

    def endings(self, running: Sequence[RunningJob], now: float, by_limit: bool) -> list[Release]:
        """The releases of running jobs, by their limits or by their expected ends; jobs without such an end are left
        out."""
        if running is not self._running or not isinstance(running, tuple):
            self._look_at(running)
        if by_limit:
            return [one if one.at >= now else one.moved(now) for one in self._by_limit]
        ends = [run.expected for run in self._ending]
        for place in np.flatnonzero(self._expected_at <= now).tolist():
            ends[place] = ends[place].moved(self._ending[place].course.expected_end(now))
        return ends

    def _look_at(self, running: Sequence[RunningJob]) -> None:
        """Compute the releases of the running jobs, reusing those of jobs that have not changed."""
        known, runs = self._runs, []
        if len(known) > KEPT_SHAPES:
            known.clear()
        for job in running:
            run = known.get(job.job_id)
            if run is None or run.job is not job:
                run = known[job.job_id] = self._run_of(job)
            runs.append(run)
        self._running = running
        self._by_limit = [run.by_limit for run in runs if run.is_limited]
        expected_at = np.array([run.expected_at for run in runs], np.float64)
        if np.isinf(expected_at).any():
            runs = [run for run in runs if run.expected_at < inf]
            expected_at = np.array([run.expected_at for run in runs], np.float64)
        self._ending, self._expected_at = runs, expected_at

    def _run_of(self, job: RunningJob) -> _Run:
        course = run_estimate(job, self.policy.scheduling)
        ending = release_of(course.limit_at, self.places, job.grants)
        expected_at = min(course.began_at + course.length_s, course.limit_at)
        return _Run(job, course, ending, ending.moved(expected_at), course.limit_at < inf, expected_at)

    def available(self, job: PendingJob, now: float) -> Integers:
        """The nodes that the job may use now."""
        known = self.eligible_nodes(job.shape).available
        if not job.avoid:
            return known
        avoided = {self.places.get(name) for name, until in job.avoid if until > now}
        return np.array([one for one in known.tolist() if one not in avoided], np.int64)

    def never_fits_reason(self, snapshot: Snapshot, job: PendingJob) -> Wait | None:
        """Why the job could not start even if all available nodes were empty; None if it could."""
        key = (job.shape, tuple(one for one in job.avoid if one[1] > snapshot.now))
        if key not in self._never_fits:
            of = self.eligible_nodes(job.shape)
            available = self.available(job, snapshot.now)
            if self.policy.partition(job.shape.partition) is None:
                self._never_fits[key] = NoNodes(job.shape.partition)
            else:
                self._never_fits[key] = never_fits_reason(
                    snapshot, job, of.eligible.tolist(), of.feasible.tolist(), available.tolist()
                )
        return self._never_fits[key]

    def kinds_of(self, scan: QueueScan, pending: PendingJobs) -> list[Kind]:
        """The kind of each shape in the scan."""
        source = scan.columns.source
        if source is None or source is not self.source or len(self.kinds) > KEPT_SHAPES:
            self.source, self.kinds = source, {}
        known = self.kinds
        for code, place in zip(scan.codes, scan.first_of_each_shape(), strict=True):
            if code not in known:
                known[code] = self.kind_of(pending[place].shape)
        return [known[code] for code in scan.codes]

    def kind_of(self, shape: Shape) -> Kind:
        """The kind of a shape; a wide shape needs several nodes."""
        gpus = shape.units if shape.unit == "gpu" else shape.units * shape.gpus_per_task
        return Kind(shape.partition, shape.nodes_min > 1 or gpus > self.most_gpus)

    def gpus_of(self, partition: str) -> int:
        """The number of GPUs in the partition."""
        if partition not in self._gpus:
            members = self.members(partition).tolist()
            held = (node.gpu_mask.bit_count() for node, is_member in zip(self.nodes, members, strict=True) if is_member)
            self._gpus[partition] = sum(held)
        return self._gpus[partition]

    def members(self, partition: str) -> NDArray[np.bool_]:
        """Mask by node index: the node belongs to the partition."""
        if partition not in self._members:
            known = self.policy.partition(partition)
            has = [known is not None and known.has_node(node.name) for node in self.nodes]
            self._members[partition] = np.array(has, np.bool_)
        return self._members[partition]


@dataclass(slots=True)
class EligibilityCaches:
    """The caches of the cluster and of each reservation occurrence."""

    _by_occurrence: dict[tuple[str, int], EligibilityCache] = field(default_factory=dict)

    def of(self, snapshot: Snapshot) -> EligibilityCache:
        key = _key(snapshot.inside)
        known = self._by_occurrence.get(key)
        if known is None or not known.is_of(snapshot):
            known = self._by_occurrence[key] = EligibilityCache(snapshot.nodes, snapshot.policy)
        return known

    def forget_all_but(self, booked: Sequence[ReservedOccurrence]) -> None:
        if len(self._by_occurrence) > 1:
            still = {_key(one) for one in (None, *booked)}
            self._by_occurrence = {key: eligibility for key, eligibility in self._by_occurrence.items() if key in still}


def _key(inside: ReservedOccurrence | None) -> tuple[str, int]:
    return ("", 0) if inside is None else (inside.name, inside.number)
