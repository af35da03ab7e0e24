"""Arrays that take what is idle (``%auto``): how far they go before others who wait, and who those are.  Pure.

A task of such an array starts as any job does as long as its owner stays within the fair share: the owner's part of the
fair-share tree, among those who hold or want something there now, of the GPUs that the tasks could use (of the CPUs, if
they want no GPUs).  Beyond that it is put off until everybody else has been considered, and then starts only where no
job of another user waits that could use what it would take; of several arrays the one whose owner holds least of the
share goes first.  So nothing is idle that somebody wants, and within the length of a task the array is back at its
share when others come.

Nobody's rival is who waits for something else: a hold, a limit, nodes that are down, the protected start of another, a
reservation; nor who is put off likewise.  One task may always run as any job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from gq.model.account import AccountInfo
from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.placement.placement import place as put
from gqd.sched.request import Shape, every_shape, wanted_in_all
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob
from gqd.state.index.queue import Member
from gqd.state.index.tally import account_path
from gqd.state.plan import OverFairShare, Preempts, Wait
from gqd.state.records import mask_of

if TYPE_CHECKING:
    from gqd.sched.cycle.scheduling_pass import SchedulingPass

TOLERANCE = 1e-6
"""Of GPUs: shares are fractions."""
MOST_LOOKS = 1000
"""Jobs of one shape that are asked whether they wait for room."""


def parts_due(
    accounts: Mapping[str, AccountInfo], shares: Mapping[Member, int], present: Iterable[Member]
) -> dict[Member, float]:
    """What part of the whole is each one's, of those who are there, as the fair-share tree divides it."""
    members = dict.fromkeys(present)
    below: dict[str, dict[str | Member, int]] = {}
    for member in members:
        path = account_path(accounts, member[1])
        below.setdefault(path[0], {})[member] = shares.get(member, 1)
        for name, parent in pairwise(path):
            below.setdefault(parent, {})[name] = accounts[name].shares if name in accounts else 1
    return {member: _part_of(member, account_path(accounts, member[1]), below) for member in members}


def _part_of(member: Member, path: tuple[str, ...], below: Mapping[str, Mapping[str | Member, int]]) -> float:
    part = _among(member, below[path[0]])
    for name, parent in pairwise(path):
        part *= _among(name, below[parent])
    return part


def _among(one: str | Member, siblings: Mapping[str | Member, int]) -> float:
    shares = sum(siblings.values())
    return siblings[one] / shares if shares else 0.0


@dataclass(slots=True)
class _Field:
    """What tasks of a shape could have, and who has how much of it."""

    masks: Mapping[str, int]
    """By node: GPUs; CPUs, if they want no GPUs."""
    of_gpus: bool
    amount: int = 0
    """All of it, but for what is reserved for others."""
    held: dict[str, int] = field(default_factory=dict)
    """By user."""
    seen: int = 0
    """So many of the pass's starts are in `held`."""

    def count(self, node: str, cpus: int, gpus: int) -> int:
        return ((gpus if self.of_gpus else cpus) & self.masks.get(node, 0)).bit_count()

    def add(self, user: str, cells: Iterable[tuple[str, int, int]]) -> None:
        if count := sum(self.count(*cell) for cell in cells):
            self.held[user] = self.held.get(user, 0) + count


class AutoThrottle:
    """Of a pass: who is put off, and what becomes of them."""

    def __init__(self) -> None:
        self._put_off: dict[int, JobId] = {}
        """By place in the queue."""
        self._fields: dict[Shape, _Field] = {}
        self._parts: dict[str, dict[str, float]] = {}
        """By partition and user."""
        self._rivals: dict[str, list[tuple[int, int]]] = {}
        """By user: places of the first of each shape that waits for room and is another's, with the shape's code."""
        self._reach: dict[int, frozenset[int]] = {}
        """By code of a shape: the nodes that its jobs may get."""
        self._as_left: Overlay | None = None
        """What the others have left."""
        self._started: set[JobId] = set()

    # ── what the pass asks ────────────────────────────────────────────────────────────────────────────────────

    def defers(self, of: SchedulingPass, place: int, job: PendingJob) -> bool:
        """It is considered when everybody else has been."""
        if of.is_guaranteed_round or not self.is_over(of, job):
            return False
        self._put_off[place] = job.job_id
        of.scan.skip(place)
        return True

    def is_over(self, of: SchedulingPass, job: PendingJob) -> bool:
        """One task more, and its owner holds more than the fair share."""
        if job.array_job_id not in of.snapshot.auto_throttle.arrays:
            return False
        held = self._held(of, job)
        return bool(held) and held + _wanted(job) > self._share(of, job) + TOLERANCE

    def work(self, of: SchedulingPass) -> Iterator[None]:
        """What nobody else can use, of those with the same fullness the first first.  A start makes nobody less full:
        what was worked out before is at most too low.
        """
        if self._put_off:
            self._as_left = of.guard.now.copy()
            self._started = {start.job_id for start in of.starts}
        groups = self._groups(of)
        waiting = [(0.0, places[0], number) for number, places in enumerate(groups)]
        heapify(waiting)
        while waiting:
            of.spent += 1
            known, place, number = heappop(waiting)
            fullness = self._fullness(of, of.snapshot.pending[place])
            if fullness <= known and not of.start_deferred_task(place, self._objection):
                groups[number].popleft()
            if groups[number]:
                heappush(waiting, (fullness, groups[number][0], number))
            yield

    def _groups(self, of: SchedulingPass) -> list[deque[int]]:
        """Places of those that are as full as each other all the time, in the order of the queue."""
        groups: dict[tuple[str, Shape], deque[int]] = {}
        for place in sorted(self._put_off):
            job = of.snapshot.pending[place]
            groups.setdefault((job.user, job.shape), deque()).append(place)
        return list(groups.values())

    # ── shares ────────────────────────────────────────────────────────────────────────────────────────────────

    def _fullness(self, of: SchedulingPass, job: PendingJob) -> float:
        """How much of the share its owner holds."""
        held, share = self._held(of, job), self._share(of, job)
        return held / share if share else inf if held else 0.0

    def _share(self, of: SchedulingPass, job: PendingJob) -> float:
        partition = job.shape.partition
        if partition not in self._parts:
            of.spent += 1 + (len(of.snapshot.nodes) + len(of.snapshot.running)) // 64
            self._parts[partition] = _parts_in(of, partition)
        return self._parts[partition].get(job.user, 0.0) * self._field(of, job.shape).amount

    def _held(self, of: SchedulingPass, job: PendingJob) -> int:
        return self._field(of, job.shape).held.get(job.user, 0)

    def _field(self, of: SchedulingPass, shape: Shape) -> _Field:
        known = self._fields.get(shape)
        if known is None:
            of.spent += 1 + (len(of.snapshot.nodes) + len(of.snapshot.running)) // 64
            known = self._fields[shape] = _field_of(of, shape)
        for job, grants, _ in of.protection.started[known.seen :]:
            known.add(job.user, ((one.node, mask_of(one.cpus), mask_of(one.gpus)) for one in grants))
        known.seen = len(of.protection.started)
        return known

    # ── rivals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _objection(self, of: SchedulingPass, job: PendingJob, grants: tuple[Grant, ...]) -> Wait | None:
        """Who could use what it would take; None: nobody."""
        rivals = self._rivals_of(of, job.user)
        of.spent += 1 + len(rivals) // 64
        gpus = {of.ground.places[one.node]: mask_of(one.gpus) for one in grants}
        first = next((place for place, code in rivals if self._could_use(of, code, gpus)), None)
        if first is None:
            return None
        return OverFairShare(
            job_id=of.snapshot.pending[first].job_id,
            resource="GPUs" if self._field(of, job.shape).of_gpus else "CPUs",
            partition=job.shape.partition,
            held=self._held(of, job),
            share=self._share(of, job),
            total=self._field(of, job.shape).amount,
        )

    def _could_use(self, of: SchedulingPass, code: int, taken: Mapping[int, int]) -> bool:
        """Jobs of this shape could use some of the GPUs that are taken there; of the CPUs, where no GPUs are."""
        shape = of.snapshot.pending[int(of.scan.indices_of_shape(code)[0])].shape
        if code not in self._reach:
            self._reach[code] = frozenset(of.ground.standing(shape).available.tolist())
        there = [(place, gpus) for place, gpus in taken.items() if place in self._reach[code]]
        if not any(taken.values()):
            return bool(there)
        return any(gpus & _gpus_for(of, shape, place) for place, gpus in there)

    def _rivals_of(self, of: SchedulingPass, user: str) -> list[tuple[int, int]]:
        """In the order of the queue."""
        if user not in self._rivals:
            firsts = ((self._first_rival(of, code, user), code) for code in of.scan.codes)
            self._rivals[user] = sorted((place, code) for place, code in firsts if place is not None)
        return self._rivals[user]

    def _first_rival(self, of: SchedulingPass, code: int, user: str) -> int | None:
        places = of.scan.indices_of_shape(code)[:MOST_LOOKS].tolist()
        return next((place for place in places if self._is_rival(of, place, user)), None)

    def _is_rival(self, of: SchedulingPass, place: int, user: str) -> bool:
        """Where the pass was cut short, nobody knows yet what becomes of those that were not looked at."""
        of.spent += 1
        job = of.snapshot.pending[place]
        if job.user == user or place in self._put_off or isinstance(of.waits.get(job.job_id), Preempts):
            return False
        if job.job_id in self._started and not of.tasks.get(job.job_id):
            return False
        is_open = of.resumes_at is not None and bool(of.scan.is_candidate[place])
        return of.waits_for_resources(job) and (is_open or not self._fits(of, job))

    def _fits(self, of: SchedulingPass, job: PendingJob) -> bool:
        """It would have had a place, and something else keeps it back."""
        assert self._as_left is not None, "nobody has been put off"
        places = of.ground.available(job, of.snapshot.now)
        of.spent += 1 + len(places) // 64
        waited_s = of.snapshot.now - job.since
        return put(self._as_left, job.shape, places, waited_s=waited_s, qos=job.qos) is not None


def _wanted(job: PendingJob) -> int:
    gpus, cpus = wanted_in_all(job.shape)
    return gpus or cpus


def _gpus_for(of: SchedulingPass, shape: Shape, place: int) -> int:
    """GPUs of the node that a job of this shape could use."""
    node, found = of.snapshot.nodes[place], 0
    for one in every_shape(shape):
        if wanted_in_all(one)[0]:
            found |= node.fitting_mask(one.gpu_type, one.min_gpu_mem_mib)
    return found


def _field_of(of: SchedulingPass, shape: Shape) -> _Field:
    of_gpus = bool(wanted_in_all(shape)[0])
    nodes = of.snapshot.nodes
    available = of.ground.standing(shape).available.tolist()
    masks = {nodes[one].name: _gpus_for(of, shape, one) if of_gpus else nodes[one].cpu_mask for one in available}
    found = _Field(masks, of_gpus, sum(mask.bit_count() for mask in masks.values()))
    for job in of.snapshot.running:
        if _is_here(of, job):
            found.add(job.user, job.cells)
        else:
            found.amount -= sum(found.count(*cell) for cell in job.cells)
    return found


def _is_here(of: SchedulingPass, job: RunningJob) -> bool:
    """It runs in the reservation that this pass is about, or, like the pass, in none."""
    inside = of.snapshot.inside
    return job.reservation == ("" if inside is None else inside.name)


def _parts_in(of: SchedulingPass, partition: str) -> dict[str, float]:
    """By user, of those who hold or want something in the partition."""
    columns = of.scan.columns
    is_in = of.scan.expand_by_shape([kind.partition == partition for kind in of.kinds])
    waiting = [columns.members[code] for code in np.unique(columns.member[is_in]).tolist()]
    members = zip(of.snapshot.nodes, of.ground.members(partition).tolist(), strict=True)
    nodes = {node.name for node, is_member in members if is_member}
    here = (job for job in of.snapshot.running if job.account and _is_here(of, job))
    running = sorted({(job.user, job.account) for job in here if any(cell[0] in nodes for cell in job.cells)})
    parts: dict[str, float] = {}
    accounts = of.snapshot.limits.accounts
    for (user, _), part in parts_due(accounts, of.snapshot.auto_throttle.shares, [*waiting, *running]).items():
        parts[user] = parts.get(user, 0.0) + part
    return parts
