"""Restricted snapshots: the cluster outside reservations, and each active occurrence as a small cluster of its own.
Pure.

For jobs outside reservations everything that an active occurrence reserves is unavailable: its unused part is modelled
as a pseudo job that ends with the occurrence, and jobs running on it end no earlier.  The snapshot inside an occurrence
has only the occurrence's nodes, and of these only the reserved part.  The grants of jobs that borrow from an occurrence
(`gqd.sched.cycle.lending`) are split: the part that returns to the occurrence is shown inside, the rest outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, nextafter
from typing import TypeAlias, overload

import numpy as np

from gq.model.ids import JobId
from gq.model.resource import Amount, Grant
from gqd.sched.placement.devices import lowest
from gqd.sched.snapshot.model import (
    Overlay,
    PendingColumns,
    PendingJob,
    PendingJobs,
    ReservedOccurrence,
    RunningJob,
    Snapshot,
)
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.queue_scan import columns_of
from gqd.sched.snapshot.scalar import Item, free_amount, memory_item, scalar_items
from gqd.state.index.queue import Booleans, Integers
from gqd.state.index.tally import account_path
from gqd.state.records import mask_of

_LENT_FROM = 1_000_000
"""Offset of the job ids of pseudo jobs for borrowed parts, beyond those of the unused parts of occurrences."""

# ── outside ───────────────────────────────────────────────────────────────────────────────────────────────────


def outside(snapshot: Snapshot) -> Snapshot:
    """The snapshot for jobs that do not start inside a reservation."""
    in_force = _in_force(snapshot)
    if not in_force:
        return snapshot
    books = Overlay.of(snapshot)
    is_any_lent = any(job.is_borrowing for job in snapshot.running)
    told, kept = list(snapshot.running), []
    for number, one in enumerate(in_force, 1):
        if is_any_lent:
            told = _with_lent_apart(told, one, _lacking(books, snapshot, one), books.node_table.index_of)
        if left := _take_left(books, snapshot, one):
            kept.append(RunningJob(JobId(-number), "", left, one.end_at, reservation=one.name, occurrence=one.number))
    running = [*_ending_with(told, in_force), *kept]
    protected = tuple(one for one in snapshot.protected if not one.reservation)
    return replace(with_free(snapshot, books), running=running, protected=protected)


def _in_force(snapshot: Snapshot) -> list[ReservedOccurrence]:
    """Occurrences in force, the last to end first: it holds the resources that two consecutive occurrences share."""
    there = [one for one in snapshot.booked if one.is_in_force(snapshot.now)]
    return sorted(there, key=lambda one: (-one.end_at, one.name, one.number))


def _take_left(books: Overlay, snapshot: Snapshot, occurrence: ReservedOccurrence) -> tuple[Grant, ...]:
    """Take the unused part of the occurrence from `books` and return it as grants."""
    counts = _left_of(books, snapshot, occurrence)
    left = []
    for grant in occurrence.grants:
        place = books.node_table.index_of.get(grant.node)
        if place is None:
            continue
        part = Grant(
            node=grant.node,
            cpus=lowest(mask_of(grant.cpus) & books.free_cpus[place], None),
            gpus=lowest(mask_of(grant.gpus) & books.free_gpus[place], None),
            memory_mib=counts.get(memory_item(place), 0),
            resources=tuple(
                Amount(resource.name, count) for resource in grant.resources if (count := counts[resource.name, place])
            ),
        )
        if part.cpus or part.gpus or part.memory_mib or part.resources:
            left.append(part)
            books.take(place, part)
    return tuple(left)


def _left_of(books: Overlay, snapshot: Snapshot, occurrence: ReservedOccurrence) -> dict[Item, int]:
    """Scalar amounts (without licences) that the occurrence reserves and jobs inside do not use."""
    places = books.node_table.index_of
    held = scalar_items(places, (grant for job in snapshot.running if _is_in(job, occurrence) for grant in job.grants))
    return {
        item: min(max(0, count - held.get(item, 0)), max(0, free_amount(books, item)))
        for item, count in scalar_items(places, occurrence.grants).items()
    }


def _with_lent_apart(
    running: Iterable[RunningJob], occurrence: ReservedOccurrence, lacking: dict[Item, int], places: Mapping[str, int]
) -> list[RunningJob]:
    """Split borrowing jobs: the part that belongs to the occurrence becomes a pseudo job."""
    told = []
    for job in running:
        own, rest = _parts_of(job, occurrence, lacking, places)
        if rest:
            told.append(replace(job, grants=rest) if own else job)
        if own:
            told.append(_as_kept(job, own, occurrence))
    return told


def _as_kept(job: RunningJob, grants: tuple[Grant, ...], occurrence: ReservedOccurrence) -> RunningJob:
    """A pseudo job for the part of a borrowing job that belongs to the occurrence; no real job has its id."""
    return RunningJob(
        job_id=JobId(-_LENT_FROM - job.job_id),
        user="",
        grants=grants,
        ends_at=job.ends_at,
        is_stranded=job.is_stranded,
        began_at=job.began_at,
        reservation=occurrence.name,
        occurrence=occurrence.number,
    )


def _lacking(books: Overlay, snapshot: Snapshot, occurrence: ReservedOccurrence) -> dict[Item, int]:
    """Scalar amounts of the occurrence that jobs inside do not use and other jobs have borrowed."""
    places = books.node_table.index_of
    held = scalar_items(places, (grant for job in snapshot.running if _is_in(job, occurrence) for grant in job.grants))
    wanted = {item: most - held.get(item, 0) for item, most in scalar_items(places, occurrence.grants).items()}
    there = {item: max(0, free_amount(books, item)) for item in wanted}
    return {item: most - there[item] for item, most in wanted.items() if most > there[item]}


_Parts: TypeAlias = tuple[tuple[Grant, ...], tuple[Grant, ...]]


def _parts_of(
    job: RunningJob, occurrence: ReservedOccurrence, lacking: dict[Item, int], places: Mapping[str, int]
) -> _Parts:
    """Split a borrower's grants into (the occurrence's part, the rest); scalar amounts are subtracted from
    `lacking`."""
    if not job.is_borrowing:
        return (), job.grants
    kept = {grant.node: grant for grant in occurrence.grants if grant.node in places}
    pairs = [
        _apart(grant, kept[grant.node], lacking, places[grant.node]) if grant.node in kept else (None, grant)
        for grant in job.grants
    ]
    return tuple(own for own, _ in pairs if own is not None), tuple(rest for _, rest in pairs if rest is not None)


def _apart(grant: Grant, kept: Grant, lacking: dict[Item, int], place: int) -> tuple[Grant | None, Grant | None]:
    memory_mib = _taken_off(lacking, memory_item(place), grant.memory_mib)
    resources = {
        resource.name: _taken_off(lacking, (resource.name, place), resource.count) for resource in grant.resources
    }
    own = Grant(
        node=grant.node,
        cpus=tuple(cpu for cpu in grant.cpus if cpu in kept.cpus),
        gpus=tuple(gpu for gpu in grant.gpus if gpu in kept.gpus),
        memory_mib=memory_mib,
        resources=tuple(Amount(name, count) for name, count in resources.items() if count),
    )
    rest = Grant(
        node=grant.node,
        cpus=tuple(cpu for cpu in grant.cpus if cpu not in kept.cpus),
        gpus=tuple(gpu for gpu in grant.gpus if gpu not in kept.gpus),
        memory_mib=grant.memory_mib - memory_mib,
        resources=tuple(
            Amount(resource.name, count)
            for resource in grant.resources
            if (count := resource.count - resources[resource.name])
        ),
        licenses=grant.licenses,
    )
    return (own if _has_any(own) else None), (rest if _has_any(rest) else None)


def _taken_off(lacking: dict[Item, int], item: Item, count: int) -> int:
    taken = min(count, lacking.get(item, 0))
    if taken:
        lacking[item] -= taken
    return taken


def _has_any(grant: Grant) -> bool:
    return bool(grant.cpus or grant.gpus or grant.memory_mib or grant.resources or grant.licenses)


def _is_in(job: RunningJob, occurrence: ReservedOccurrence) -> bool:
    return bool(job.reservation) and (job.reservation, job.occurrence) == (occurrence.name, occurrence.number)


def _ending_with(running: Iterable[RunningJob], in_force: Sequence[ReservedOccurrence]) -> Iterator[RunningJob]:
    """The running jobs, with jobs on an occurrence's resources ending no earlier than the occurrence."""
    kept: dict[str, list[tuple[Grant, ReservedOccurrence]]] = {}
    for one in in_force:
        for grant in one.grants:
            kept.setdefault(grant.node, []).append((grant, one))
    for job in running:
        last = max(_kept_for(job, kept), key=lambda one: one.end_at, default=None)
        if last is None or job.ends_at is None or job.is_stranded:
            yield job
            continue
        ends_at, kept_for = (job.ends_at, "") if job.ends_at >= last.end_at else (last.end_at, last.name)
        expected_s = None if job.expected_s is None else max(job.expected_s, last.end_at - job.began_at)
        yield replace(job, ends_at=ends_at, kept_for=kept_for, expected_s=expected_s)


def _kept_for(job: RunningJob, kept: dict[str, list[tuple[Grant, ReservedOccurrence]]]) -> Iterator[ReservedOccurrence]:
    for node, cpus, gpus in job.cells:
        for grant, one in kept.get(node, ()):
            if cpus & mask_of(grant.cpus) or gpus & mask_of(grant.gpus):
                yield one


# ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────


def active(snapshot: Snapshot) -> list[ReservedOccurrence]:
    """Occurrences in which jobs may start."""
    return [one for one in snapshot.booked if one.is_active(snapshot.now)]


def inside(snapshot: Snapshot, occurrence: ReservedOccurrence) -> Snapshot:
    """The snapshot inside an occurrence: its resources and the jobs that may use them."""
    books = Overlay.of(snapshot)
    own = _left_of(books, snapshot, occurrence)
    coming = _coming_back(books, snapshot, occurrence)
    for other in _in_force(snapshot):
        if other is not occurrence:
            _take_left(books, snapshot, other)
    kept = {
        books.node_table.index_of[grant.node]: grant
        for grant in occurrence.grants
        if grant.node in books.node_table.index_of
    }
    places = sorted(kept)
    pending, columns = _for_whom(snapshot, occurrence)
    return replace(
        snapshot,
        nodes=tuple(_part(snapshot.nodes[place], kept[place]) for place in places),
        free_cpus=tuple(snapshot.free_cpus[place] & mask_of(kept[place].cpus) for place in places),
        free_gpus=tuple(snapshot.free_gpus[place] & mask_of(kept[place].gpus) for place in places),
        free_memory_mib=tuple(
            max(0, snapshot.free_memory_mib[place])
            if _is_whole(snapshot.nodes[place], kept[place])
            else own.get(memory_item(place), 0)
            for place in places
        ),
        free_resources={name: tuple(free[places].tolist()) for name, free in books.free_resources.items()},
        free_licenses=dict(books.free_licenses or {}),
        since=tuple(snapshot.since[place] for place in places) if snapshot.since else (),
        pending=pending,
        columns=columns,
        running=list(_within(snapshot.running, occurrence, coming, books.node_table.index_of)),
        kept_back=(),
        protected=tuple(told for told in snapshot.protected if told.reservation == occurrence.name),
        resumes_at=None,
        booked=tuple(_after(occurrence, snapshot)) if occurrence.is_flex else (),
        inside=occurrence,
    )


def _part(node: NodeFacts, grant: Grant) -> NodeFacts:
    gpus, cpus = mask_of(grant.gpus), mask_of(grant.cpus)
    own = [(name, mask & gpus) for name, mask in node.gpu_types if mask & gpus]
    is_whole = _is_whole(node, grant)
    return replace(
        node,
        cpus=cpus.bit_count(),
        kept_cpus=cpus,
        memory_mib=node.memory_mib if is_whole else min(grant.memory_mib, node.memory_mib),
        gpu_types=tuple(own),
        drained=tuple((name, mask & gpus) for name, mask in node.drained if mask & gpus),
        is_part=not is_whole,
    )


def _is_whole(node: NodeFacts, grant: Grant) -> bool:
    """Whether the grant covers all CPUs and GPUs of the node, so that no other job can use the node or its memory."""
    return mask_of(grant.cpus) == node.cpu_mask and not node.gpu_mask & ~mask_of(grant.gpus)


def _coming_back(books: Overlay, snapshot: Snapshot, occurrence: ReservedOccurrence) -> dict[Item, int]:
    """Scalar amounts that return to the occurrence when all borrowers are gone."""
    more = _lacking(books, snapshot, occurrence)
    for grant in occurrence.grants:
        place = books.node_table.index_of.get(grant.node)
        if place is None:
            continue
        node = snapshot.nodes[place]
        if _is_whole(node, grant):
            more[memory_item(place)] = node.memory_mib
        more |= {(name, place): most for name, most in node.resources}
    return more


def _within(
    running: Iterable[RunningJob], occurrence: ReservedOccurrence, coming: dict[Item, int], places: Mapping[str, int]
) -> Iterator[RunningJob]:
    """Running jobs reduced to the occurrence's resources; memory of jobs from outside counts only if it is borrowed."""
    kept = {grant.node: grant for grant in occurrence.grants}
    for job in running:
        if job.is_borrowing:
            if lent := _parts_of(job, occurrence, coming, places)[0]:
                yield replace(job, grants=lent)
            continue
        is_own = _is_in(job, occurrence)
        parts = [part for grant in job.grants if (part := _common(grant, kept.get(grant.node), is_own)) is not None]
        if len(parts) == len(job.grants) and all(map(Grant.__eq__, parts, job.grants)):
            yield job
        elif parts:
            yield replace(job, grants=tuple(parts))


def _common(grant: Grant, kept: Grant | None, is_own: bool) -> Grant | None:
    if kept is None:
        return None
    cpus, gpus = set(kept.cpus).intersection(grant.cpus), set(kept.gpus).intersection(grant.gpus)
    if not cpus and not gpus:
        return None
    if len(cpus) == len(grant.cpus) and len(gpus) == len(grant.gpus) and is_own:
        return grant
    memory_mib = grant.memory_mib if is_own else 0
    return Grant(node=grant.node, cpus=tuple(sorted(cpus)), gpus=tuple(sorted(gpus)), memory_mib=memory_mib)


def _after(occurrence: ReservedOccurrence, snapshot: Snapshot) -> Iterator[ReservedOccurrence]:
    """Later reservations and guaranteed starts on the same resources, as windows for jobs that run past the
    occurrence's end."""
    own = {grant.node: grant for grant in occurrence.grants}
    promised = [
        replace(occurrence, name="", number=told.job_id, clear_at=told.starts_at, end_at=told.until, grants=told.grants)
        for told in snapshot.protected
        if told.is_promise and told.reservation != occurrence.name
    ]
    to_come = nextafter(snapshot.now, inf)
    for other in (*snapshot.booked, *promised):
        parts = (_part_after(grant, own.get(grant.node)) for grant in other.grants)
        grants = tuple(part for part in parts if part is not None)
        if grants and other is not occurrence and other.end_at > occurrence.end_at:
            least = occurrence.end_at if other.name in (occurrence.name, "") else to_come
            yield replace(other, clear_at=max(other.clear_at, least), grants=grants)


def _part_after(grant: Grant, kept: Grant | None) -> Grant | None:
    """The part of a later grant on the node that may collide with this occurrence; scalar amounts may come from
    elsewhere."""
    if kept is None:
        return None
    cpus, gpus = set(kept.cpus).intersection(grant.cpus), set(kept.gpus).intersection(grant.gpus)
    memory_mib = min(grant.memory_mib, kept.memory_mib)
    if not (cpus or gpus or memory_mib):
        return None
    return Grant(node=grant.node, cpus=tuple(sorted(cpus)), gpus=tuple(sorted(gpus)), memory_mib=memory_mib)


# ── whom it is for ────────────────────────────────────────────────────────────────────────────────────────────


def _for_whom(snapshot: Snapshot, occurrence: ReservedOccurrence) -> tuple[PendingJobs, PendingColumns]:
    """The pending jobs that name the occurrence's reservation; of a magnetic one also jobs of its users that name
    none."""
    columns = columns_in(snapshot)
    names = columns.reservations
    chosen = columns.reservation == (names.index(occurrence.name) if occurrence.name in names else -1)
    if occurrence.is_magnetic:
        chosen |= columns.reservation == 0
    accounts = snapshot.limits.accounts
    may = np.array(
        [occurrence.is_for(user, account_path(accounts, account)) for user, account in columns.members], np.bool_
    )
    if len(chosen):
        chosen &= may[columns.member]
    places = np.flatnonzero(chosen)
    return Some(snapshot.pending, places), columns.only(places)


def columns_in(snapshot: Snapshot) -> PendingColumns:
    return snapshot.columns or columns_of(snapshot.pending)


def elsewhere(snapshot: Snapshot, columns: PendingColumns) -> Booleans:
    """Mask of the pending jobs that may start in a reservation only."""
    flexible = {one.name for one in snapshot.booked if one.is_flex}
    bound = np.array([bool(name) and name not in flexible for name in columns.reservations], np.bool_)
    return bound[columns.reservation]


class Some:
    """A subset of the pending jobs by queue index; each job is looked up on access."""

    def __init__(self, pending: PendingJobs, places: Integers) -> None:
        self._pending = pending
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[PendingJob]:
        return (self._pending[place] for place in self._places.tolist())

    @overload
    def __getitem__(self, place: int) -> PendingJob: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[PendingJob, ...]: ...
    def __getitem__(self, place: int | slice) -> PendingJob | tuple[PendingJob, ...]:
        if isinstance(place, slice):
            return tuple(self._pending[one] for one in self._places[place].tolist())
        return self._pending[int(self._places[place])]


# ── what has started ──────────────────────────────────────────────────────────────────────────────────────────


def with_running(snapshot: Snapshot, started: Sequence[RunningJob]) -> Snapshot:
    """The snapshot as if the started jobs were already running."""
    if not started:
        return snapshot
    books = Overlay.of(snapshot)
    for job in started:
        books.take_all(books.node_table.index_of, job.grants)
    return replace(with_free(snapshot, books), running=[*snapshot.running, *started])


def with_free(snapshot: Snapshot, books: Overlay) -> Snapshot:
    """The snapshot with the free resources of `books`."""
    return replace(
        snapshot,
        free_cpus=tuple(books.free_cpus),
        free_gpus=tuple(books.free_gpus),
        free_memory_mib=tuple(books.free_memory_mib),
        free_resources={name: tuple(free.tolist()) for name, free in books.free_resources.items()},
        free_licenses=dict(books.free_licenses or {}),
        since=() if books.since is None else tuple(books.since.tolist()),
    )
