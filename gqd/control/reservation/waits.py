"""Which pending jobs a reservation delays, and which running jobs prevent a reservation.  Pure.

Both depend on time limits: a job starts on reserved nodes only if its limit ends before they must be empty, and a
running job holds its resources until its limit.  A job without ``--time`` gets the ``default_time`` of its partition,
else the ``max_time``, else no limit; so the sentences name these settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, islice
from math import inf
from typing import TYPE_CHECKING

from gq.units import counted, format_duration, spoken_duration
from gqd.control import snapshot
from gqd.sched.placement.feasible import eligible_places
from gqd.sched.placement.placement import place
from gqd.sched.request import Shape
from gqd.sched.reservation.booking import HeldGrants
from gqd.sched.snapshot.model import Overlay
from gqd.state.policy import Partition
from gqd.state.records import Job
from gqd.state.reservation import Occurrence, Reservation

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_LOOKED_AT = 1000
"""Pending jobs, the oldest, that one note examines."""
MAX_NAMED = 5
"""Jobs that one note names."""


# ── jobs that a reservation delays ────────────────────────────────────────────────────────────────────────────────


def notes_on(draft: TurnBuilder, reservation: Reservation) -> tuple[str, ...]:
    """Notes about the kinds of jobs, and the pending jobs, that the reservation's first occurrence delays."""
    first = min(reservation.occurrences.values(), key=lambda one: one.begin_at, default=None)
    if first is None or not first.grants:
        return ()
    clear_at = max(draft.now, first.begin_at - draft.policy.clear_s)
    nodes = {grant.node for grant in first.grants}
    partitions = [one for one in draft.policy.partitions if any(map(one.has_node, nodes))]
    kinds = [_kind(draft, one, reservation.name, first, clear_at) for one in partitions if clear_at > draft.now]
    queued = _queued(draft, reservation, first, clear_at)
    return (*filter(None, kinds), *_told_of_queued(draft, queued, reservation.name, clear_at))


def _kind(draft: TurnBuilder, partition: Partition, name: str, first: Occurrence, clear_at: float) -> str:
    """The note about jobs of the partition without ``--time``; '': they end in time."""
    limit_s = partition.implied_time_s
    if limit_s is not None and draft.now + limit_s <= clear_at:
        return ""
    until = f"jobs that need resources of `{name}` wait until @{{{int(first.end_at)}}}"
    jobs = f"jobs without --time in partition `{partition.name}` have {_limit_without_time(partition)}, so {until}"
    return f"{jobs}\nhint: {_way_out(partition)}"


def _limit_without_time(partition: Partition) -> str:
    """The time limit of a job that names none, in words."""
    if partition.default_time_s is not None:
        return f"its default_time, {spoken_duration(partition.default_time_s)}"
    if partition.max_time_s is not None:
        return f"its max_time, {spoken_duration(partition.max_time_s)} (no default_time is set)"
    return "no time limit (neither default_time nor max_time is set)"


def _way_out(partition: Partition) -> str:
    """How jobs without ``--time`` get a shorter limit."""
    table = f"[[partition]] `{partition.name}` in gq.toml"
    if partition.default_time_s is not None:
        return f"submit them with a shorter --time, or set a shorter default_time of {table}"
    if partition.max_time_s is not None:
        return f"submit them with --time, or set default_time of {table}"
    return f"submit them with --time, or set default_time and max_time of {table}"


def _queued(draft: TurnBuilder, reservation: Reservation, first: Occurrence, clear_at: float) -> Iterator[Job]:
    """Pending jobs that fit only on nodes of the occurrence, and whose time limit ends too late for it."""
    nodes = snapshot.nodes_of(draft.cluster, draft.volatile, draft.now)
    empty = Overlay.empty(nodes)
    left = empty.copy()
    left.take_all({node.name: index for index, node in enumerate(nodes)}, first.grants)
    known: dict[tuple[Shape, str], bool] = {}
    waiting = (job for job in draft.cluster.jobs.values() if job.is_waiting)
    for job in islice(waiting, MAX_LOOKED_AT):
        limit_s = inf if job.time_limit_s is None else job.time_limit_s
        partition = draft.policy.partition(job.partition)
        if draft.now + limit_s <= clear_at or job.spec.reservation == reservation.name or partition is None:
            continue
        shape = snapshot.pending_job(job, draft.policy).shape
        key = (shape, job.partition)
        if key not in known:
            usable = eligible_places(nodes, shape, partition)
            known[key] = place(left, shape, usable) is None and place(empty, shape, usable) is not None
        if known[key]:
            yield job


def _told_of_queued(draft: TurnBuilder, queued: Iterable[Job], name: str, clear_at: float) -> Iterator[str]:
    jobs = list(queued)
    if not jobs:
        return
    waits = "waits" if len(jobs) == 1 else "wait"
    told = f"{_named(jobs)} in the queue {waits} until `{name}` ends"
    left_s = int(clear_at - draft.now) // 60 * 60
    way_out = f"\nhint: gqctl update JOB --time={format_duration(left_s)} or less lets a job start before it"
    yield told + (way_out if left_s > 0 else "")


def _named(jobs: list[Job]) -> str:
    """``3 jobs (4 and 5 with no time limit, 7 with 2 d)``"""
    by_limit = sorted(jobs[:MAX_NAMED], key=lambda job: -inf if job.time_limit_s is None else -job.time_limit_s)
    told = []
    for limit_s, alike in groupby(by_limit, key=lambda job: job.time_limit_s):
        limit = "no time limit" if limit_s is None else spoken_duration(limit_s)
        told.append(f"{', '.join(job.label for job in alike)} with {limit}")
    more = f", and {len(jobs) - MAX_NAMED} more" if len(jobs) > MAX_NAMED else ""
    return f"{counted(len(jobs), 'jobs')} ({'; '.join(told)}{more})"


# ── jobs that prevent a reservation ───────────────────────────────────────────────────────────────────────────────


def holders(draft: TurnBuilder, held: Iterable[HeldGrants], nodes: Collection[str], clear_at: float) -> list[Job]:
    """Running jobs that may hold resources of these nodes at `clear_at`; if some hold GPUs, only those."""
    found, with_gpus = [], []
    for one in held:
        grants = [grant for grant in one.grants if grant.node in nodes]
        job = None if one.job_id is None else draft.cluster.jobs.get(one.job_id)
        if job is not None and grants and one.until > clear_at:
            found.append(job)
            with_gpus += [job] if any(grant.gpus for grant in grants) else []
    return with_gpus or found


def named_holders(jobs: list[Job]) -> str:
    """``2 jobs (4 with no time limit; 7 with 2 d) may run until then``"""
    return f"{_named(jobs)} may run until then"


def limits_hint(draft: TurnBuilder, jobs: list[Job]) -> str:
    """Hint: partition settings that would bound such jobs, if one has its partition's limit or none; '': none has."""
    for job in jobs:
        partition = draft.policy.partition(job.partition)
        if partition is None or partition.default_time_s is not None:
            continue
        if job.time_limit_s == partition.max_time_s:
            bound = "default_time" if partition.max_time_s is not None else "default_time and max_time"
            table = f"[[partition]] `{partition.name}` in gq.toml"
            return f"set {bound} of {table} for jobs without --time; gqctl update {job.label} --time=… limits that job"
    return ""
