"""Auto-throttled arrays (``%auto``): which of their tasks start although the owner exceeds the fair share.  Pure.

A task of such an array starts like any job while its owner stays within the fair share.  The share is the owner's part
of the fair-share tree, among the users that hold or want resources there now, of the GPUs that the tasks could use (of
the CPUs, if the tasks need no GPUs).  Tasks beyond the share are deferred until all other jobs have been tried.  They
then start only on resources that no waiting job of another user, a *competitor*, could use; of several arrays, the one
whose owner has the lowest ratio of held resources to the share goes first.  So no resource that a job could use stays
idle, and once others submit jobs the array is back at its share within the run time of a task.

A job is no competitor while it waits for anything but resources: a hold, a limit, nodes that are down, another job's
planned start or a reservation; nor is a deferred task.  One task of an owner always starts like any job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf

import numpy as np

from gq.model.account import AccountInfo
from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.cycle.state import PassState
from gqd.sched.placement.placement import place as place_job
from gqd.sched.request import Shape, every_shape, wanted_in_all
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob
from gqd.state.index.queue import Member
from gqd.state.index.tally import account_path
from gqd.state.plan import OverFairShare, Preempts, Wait
from gqd.state.records import mask_of

TOLERANCE = 1e-6
"""Rounding error allowed when a share, which may be a fraction of a GPU, is compared."""
MAX_VISITED = 1000
"""Number of jobs of one shape that are examined in search of a competitor."""

Objection = Callable[[PassState, PendingJob, tuple[Grant, ...]], Wait | None]
"""A function that returns why the job must not start on these grants; None: it may."""


def parts_due(
    accounts: Mapping[str, AccountInfo], shares: Mapping[Member, int], present: Iterable[Member]
) -> dict[Member, float]:
    """Return the part of the whole (0 to 1) that the fair-share tree gives to each of the members present."""
    members = dict.fromkeys(present)
    below: dict[str, dict[str | Member, int]] = {}
    for member in members:
        path = account_path(accounts, member[1])
        below.setdefault(path[0], {})[member] = shares.get(member, 1)
        for name, parent in pairwise(path):
            below.setdefault(parent, {})[name] = accounts[name].shares if name in accounts else 1
    return {member: _part_of(member, account_path(accounts, member[1]), below) for member in members}


def _part_of(member: Member, path: tuple[str, ...], below: Mapping[str, Mapping[str | Member, int]]) -> float:
    part = _part_among(member, below[path[0]])
    for name, parent in pairwise(path):
        part *= _part_among(name, below[parent])
    return part


def _part_among(child: str | Member, siblings: Mapping[str | Member, int]) -> float:
    shares = sum(siblings.values())
    return siblings[child] / shares if shares else 0.0


@dataclass(slots=True)
class ResourceScope:
    """The resources that tasks of a shape could use, and how much of them each user holds."""

    masks: Mapping[str, int]
    """Node name → mask of its GPUs; of its CPUs, if the tasks need no GPUs."""
    of_gpus: bool
    """GPUs count; else CPUs."""
    amount: int = 0
    """Number of these GPUs or CPUs, without those held inside reservations."""
    held: dict[str, int] = field(default_factory=dict)
    """User → number held."""
    counted_starts: int = 0
    """Number of the pass's starts that `held` includes."""

    def count(self, node: str, cpus: int, gpus: int) -> int:
        """Return how many of these resources the masks hold."""
        return ((gpus if self.of_gpus else cpus) & self.masks.get(node, 0)).bit_count()

    def add(self, user: str, cells: Iterable[tuple[str, int, int]]) -> None:
        """Count the cells as held by the user."""
        if count := sum(self.count(*cell) for cell in cells):
            self.held[user] = self.held.get(user, 0) + count


class AutoThrottle:
    """The deferred tasks of a pass."""

    def __init__(self) -> None:
        self._deferred: dict[int, JobId] = {}
        """Queue index → job of which tasks are deferred."""
        self._scopes: dict[Shape, ResourceScope] = {}
        self._parts: dict[str, dict[str, float]] = {}
        """Partition → user → part of the fair-share tree."""
        self._competitors: dict[str, list[tuple[int, int]]] = {}
        """User → (queue index, shape code) of the first competitor of each shape."""
        self._available: dict[int, frozenset[int]] = {}
        """Shape code → indices of the nodes that its jobs may use."""
        self._free_before: Overlay | None = None
        """Free resources when all other jobs had been tried."""
        self._started: set[JobId] = set()
        """Jobs that had started by then."""

    # ── called by the pass ──────────────────────────────────────────────────────────────────────────────────────────

    def defers(self, state: PassState, queue_index: int, job: PendingJob) -> bool:
        """Defer a task that would exceed its owner's share until all other jobs were tried; return whether it is."""
        if state.is_guaranteed_round or not self.exceeds_share(state, job):
            return False
        self._deferred[queue_index] = job.job_id
        state.scan.skip(queue_index)
        return True

    def exceeds_share(self, state: PassState, job: PendingJob) -> bool:
        """Return whether the owner would exceed the fair share with one more task of this auto-throttled array."""
        if job.array_job_id not in state.snapshot.auto_throttle.arrays:
            return False
        held = self._held(state, job)
        return bool(held) and held + _requested(job) > self._share(state, job) + TOLERANCE

    def work(self, state: PassState, start_task: Callable[[int, Objection], bool]) -> Iterator[None]:
        """Start deferred tasks on resources that no competitor could use; yields after each step.

        `start_task` starts a task of the job with this queue index unless there is an objection; False: it has not, or
        no task is left.
        The lowest share ratio goes first, and queue order breaks ties.  A start never lowers a ratio, so a cached ratio
        is a lower bound, which is refreshed only when it comes first.
        """
        if self._deferred:
            self._free_before = state.backfill.now.copy()
            self._started = {start.job_id for start in state.starts}
        groups = self._groups(state)
        heap = [(0.0, indices[0], number) for number, indices in enumerate(groups)]
        heapify(heap)
        while heap:
            state.spent += 1
            min_ratio, queue_index, number = heappop(heap)
            share_ratio = self._share_ratio(state, state.snapshot.pending[queue_index])
            if share_ratio <= min_ratio and not start_task(queue_index, self._objection):
                groups[number].popleft()
            if groups[number]:
                heappush(heap, (share_ratio, groups[number][0], number))
            yield

    def _groups(self, state: PassState) -> list[deque[int]]:
        """Group the queue indices of deferred jobs by user and shape, which always have the same share ratio."""
        groups: dict[tuple[str, Shape], deque[int]] = {}
        for queue_index in sorted(self._deferred):
            job = state.snapshot.pending[queue_index]
            groups.setdefault((job.user, job.shape), deque()).append(queue_index)
        return list(groups.values())

    # ── shares ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _share_ratio(self, state: PassState, job: PendingJob) -> float:
        """Return what the owner holds, divided by the share."""
        held, share = self._held(state, job), self._share(state, job)
        return held / share if share else inf if held else 0.0

    def _share(self, state: PassState, job: PendingJob) -> float:
        """Return the owner's fair share, as a number of GPUs or CPUs."""
        partition = job.shape.partition
        if partition not in self._parts:
            state.spent += 1 + (len(state.snapshot.nodes) + len(state.snapshot.running)) // 64
            self._parts[partition] = _parts_in(state, partition)
        return self._parts[partition].get(job.user, 0.0) * self._resources(state, job.shape).amount

    def _held(self, state: PassState, job: PendingJob) -> int:
        return self._resources(state, job.shape).held.get(job.user, 0)

    def _resources(self, state: PassState, shape: Shape) -> ResourceScope:
        resources = self._scopes.get(shape)
        if resources is None:
            state.spent += 1 + (len(state.snapshot.nodes) + len(state.snapshot.running)) // 64
            resources = self._scopes[shape] = _resource_scope(state, shape)
        for job, grants, _ in state.planned_starts.started[resources.counted_starts :]:
            resources.add(job.user, ((grant.node, mask_of(grant.cpus), mask_of(grant.gpus)) for grant in grants))
        resources.counted_starts = len(state.planned_starts.started)
        return resources

    # ── competitors ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _objection(self, state: PassState, job: PendingJob, grants: tuple[Grant, ...]) -> Wait | None:
        """Return the first competitor that could use the grants as the reason not to start; None: there is none."""
        competitors = self._competitors_of(state, job.user)
        state.spent += 1 + len(competitors) // 64
        gpus = {state.eligibility.places[grant.node]: mask_of(grant.gpus) for grant in grants}
        first = next((queue_index for queue_index, code in competitors if self._could_use(state, code, gpus)), None)
        if first is None:
            return None
        return OverFairShare(
            job_id=state.snapshot.pending[first].job_id,
            resource="GPUs" if self._resources(state, job.shape).of_gpus else "CPUs",
            partition=job.shape.partition,
            held=self._held(state, job),
            share=self._share(state, job),
            total=self._resources(state, job.shape).amount,
        )

    def _could_use(self, state: PassState, code: int, taken: Mapping[int, int]) -> bool:
        """Return whether jobs of this shape could use some of the taken GPUs; of the CPUs, if no GPUs are taken.

        `taken`: node index → mask of GPUs.
        """
        shape = state.snapshot.pending[int(state.scan.indices_of_shape(code)[0])].shape
        if code not in self._available:
            self._available[code] = frozenset(state.eligibility.eligible_nodes(shape).available.tolist())
        usable = [(index, gpus) for index, gpus in taken.items() if index in self._available[code]]
        if not any(taken.values()):
            return bool(usable)
        return any(gpus & _gpus_for(state, shape, index) for index, gpus in usable)

    def _competitors_of(self, state: PassState, user: str) -> list[tuple[int, int]]:
        """Return (queue index, shape code) of the first competitor of each shape, in queue order."""
        if user not in self._competitors:
            firsts = ((self._first_competitor(state, code, user), code) for code in state.scan.codes)
            self._competitors[user] = sorted(
                (queue_index, code) for queue_index, code in firsts if queue_index is not None
            )
        return self._competitors[user]

    def _first_competitor(self, state: PassState, code: int, user: str) -> int | None:
        indices = state.scan.indices_of_shape(code)[:MAX_VISITED].tolist()
        return next((queue_index for queue_index in indices if self._is_competitor(state, queue_index, user)), None)

    def _is_competitor(self, state: PassState, queue_index: int, user: str) -> bool:
        """Return whether the job is another user's and waits for resources alone.

        A job that the pass did not reach, because it ran out of steps, counts even if it fits: it may yet start.
        """
        state.spent += 1
        job = state.snapshot.pending[queue_index]
        if job.user == user or queue_index in self._deferred or isinstance(state.waits.get(job.job_id), Preempts):
            return False
        if job.job_id in self._started and not state.tasks.get(job.job_id):
            return False
        is_open = state.resumes_at is not None and bool(state.scan.is_candidate[queue_index])
        return state.waits_for_resources(job) and (is_open or not self._fits(state, job))

    def _fits(self, state: PassState, job: PendingJob) -> bool:
        """Return whether the job fitted after all other jobs had been tried, so that not resources keep it back."""
        assert self._free_before is not None, "no task is deferred"
        node_indices = state.eligibility.available(job, state.snapshot.now)
        state.spent += 1 + len(node_indices) // 64
        waited_s = state.snapshot.now - job.since
        return place_job(self._free_before, job.shape, node_indices, waited_s=waited_s, qos=job.qos) is not None


def _requested(job: PendingJob) -> int:
    """Return the number of GPUs that the job asks for; of CPUs, if it asks for no GPUs."""
    gpus, cpus = wanted_in_all(job.shape)
    return gpus or cpus


def _gpus_for(state: PassState, shape: Shape, node_index: int) -> int:
    """Return the mask of the node's GPUs that a job of this shape could use."""
    node, gpus = state.snapshot.nodes[node_index], 0
    for part in every_shape(shape):
        if wanted_in_all(part)[0]:
            gpus |= node.fitting_mask(*part.gpu_kind)
    return gpus


def _resource_scope(state: PassState, shape: Shape) -> ResourceScope:
    """Return the resources that jobs of this shape could use, with what running jobs hold of them."""
    of_gpus = bool(wanted_in_all(shape)[0])
    nodes = state.snapshot.nodes
    available = state.eligibility.eligible_nodes(shape).available.tolist()
    masks = {
        nodes[index].name: _gpus_for(state, shape, index) if of_gpus else nodes[index].cpu_mask for index in available
    }
    scope = ResourceScope(masks, of_gpus, sum(mask.bit_count() for mask in masks.values()))
    for job in state.snapshot.running:
        if _is_here(state, job):
            scope.add(job.user, job.cells)
        else:
            scope.amount -= sum(scope.count(*cell) for cell in job.cells)
    return scope


def _is_here(state: PassState, job: RunningJob) -> bool:
    """Return whether the job runs in the reservation that this pass is restricted to; like the pass, in none."""
    inside = state.snapshot.inside
    return job.reservation == ("" if inside is None else inside.name)


def _parts_in(state: PassState, partition: str) -> dict[str, float]:
    """Return the part of the fair-share tree of each user that holds or wants resources in the partition."""
    columns = state.scan.columns
    is_in = state.scan.expand_by_shape([kind.partition == partition for kind in state.kinds])
    waiting = [columns.members[code] for code in np.unique(columns.member[is_in]).tolist()]
    members = zip(state.snapshot.nodes, state.eligibility.members(partition).tolist(), strict=True)
    nodes = {node.name for node, is_member in members if is_member}
    here = (job for job in state.snapshot.running if job.account and _is_here(state, job))
    running = sorted({(job.user, job.account) for job in here if any(cell[0] in nodes for cell in job.cells)})
    parts: dict[str, float] = {}
    accounts = state.snapshot.limits.accounts
    for (user, _), part in parts_due(accounts, state.snapshot.auto_throttle.shares, [*waiting, *running]).items():
        parts[user] = parts.get(user, 0.0) + part
    return parts
