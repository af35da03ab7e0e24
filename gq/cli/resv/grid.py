"""The calendar's data: blocks of time that hold GPUs, and the cells of a table that they fall into.

A day has a cell for each `hours` on the wall clock: when clocks go forward, one of its cells is shorter (or empty), and
when they go back, one is longer.  Drawing is in `gq.cli.resv.calendar`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from typing import NamedTuple

from gq.model.estimate import StartEstimate
from gq.model.job import JobInfo
from gq.model.node import NodeInfo
from gq.model.nodelist import compress
from gq.model.reservation import OccurrenceState, ReservationInfo
from gq.model.resource import format_ids

RESERVATION, START, JOB = "reservation", "start", "job"
FREE, GONE, BUSY, PARTLY, PROMISED, SEVERAL, REST = ".", " ", "#", ":", "*", "+", "~"
"""Cells: nothing, no such time, jobs, jobs on some, a promised start, several reservations, one without a letter."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NOTHING_KEPT = (OccurrenceState.SKIPPED, OccurrenceState.FAILED)

Cells = tuple[str, ...]


class Unit(NamedTuple):
    """A GPU, or a node without GPUs, which a reservation or a job can hold."""

    node: str
    gpu: int | None
    type: str


class Block(NamedTuple):
    """Something that holds GPUs of one node for a while."""

    kind: str
    name: str
    """Name of the reservation, or number of the job."""
    begin_at: float
    end_at: float
    node: str
    gpus: tuple[int, ...] | None
    """None: which ones is not known, those that nobody else has."""


class Row(NamedTuple):
    label: str
    cells: Cells


# ── blocks ────────────────────────────────────────────────────────────────────────────────────────────────────


def units_of(nodes: Iterable[NodeInfo]) -> list[Unit]:
    found: list[Unit] = []
    for node in nodes:
        found += [Unit(node.node, gpu.index, gpu.type) for gpu in node.gpus] or [Unit(node.node, None, "")]
    return found


def of_reservations(infos: Iterable[ReservationInfo]) -> list[Block]:
    """Return the blocks of the reservations; one deleted before its begin has none."""
    return [
        Block(
            RESERVATION,
            info.booking.name,
            occurrence.begin_at,
            occurrence.end_at if occurrence.ended_at is None else occurrence.ended_at,
            grant.node,
            grant.gpus,
        )
        for info in infos
        for occurrence in info.occurrences
        if occurrence.state not in _NOTHING_KEPT
        and (occurrence.ended_at is None or occurrence.ended_at > occurrence.begin_at)
        for grant in occurrence.grants
    ]


def of_jobs(jobs: Iterable[JobInfo], now: float, until: float) -> list[Block]:
    """Return the blocks of jobs up to their expected end, at most to their limit; up to `until` if it is unknown."""
    return [
        Block(JOB, str(job.job_id), job.start_at, _expected_end(job, job.start_at, now, until), grant.node, grant.gpus)
        for job in jobs
        if job.start_at is not None and job.state != "PENDING"
        for grant in job.grants
    ]


def _expected_end(job: JobInfo, start_at: float, now: float, until: float) -> float:
    latest = until if job.time_limit_s is None else start_at + job.time_limit_s
    expected = latest if job.expected_s is None else start_at + job.expected_s
    return max(now, min(latest, expected if expected > now else latest))


def of_starts(estimates: Iterable[StartEstimate], until: float) -> list[Block]:
    """Promised starts of jobs that wait: on which GPUs of their nodes is not told."""
    return [
        Block(
            START,
            str(estimate.job_id),
            estimate.start_at,
            until if estimate.end_at is None else estimate.end_at,
            node,
            None,
        )
        for estimate in estimates
        if estimate.is_promised and estimate.start_at is not None
        for node in estimate.nodes
    ]


# ── cells ─────────────────────────────────────────────────────────────────────────────────────────────────────


def midnight(at: float, zone: tzinfo) -> datetime:
    """The day's begin on the wall clock (without a zone)."""
    return datetime.fromtimestamp(at, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)


def bounds(first: datetime, days: int, hours: int, zone: tzinfo) -> list[float]:
    """The instants between which the cells lie, one more than there are cells."""
    walls = [first + timedelta(hours=hours * index) for index in range(days * 24 // hours + 1)]
    return [wall.replace(tzinfo=zone).timestamp() for wall in walls]


def letters_of(blocks: Iterable[Block]) -> dict[str, str]:
    """Reservation → its letter, in the order in which they begin."""
    firsts: dict[str, float] = {}
    for block in blocks:
        if block.kind == RESERVATION:
            firsts[block.name] = min(block.begin_at, firsts.get(block.name, block.begin_at))
    ordered = sorted(firsts, key=lambda name: (firsts[name], name))
    return {name: LETTERS[index] if index < len(LETTERS) else REST for index, name in enumerate(ordered)}


def paint(
    units: Sequence[Unit], blocks: Sequence[Block], edges: Sequence[float], letters: Mapping[str, str]
) -> dict[Unit, Cells]:
    """Return the symbol of each unit in each cell: a reservation's letter, else a promised start, else a job."""
    empty = [FREE if begin < end else GONE for begin, end in pairwise(edges)]
    found = {unit: list(empty) for unit in units}
    by_node: dict[str, list[Unit]] = {}
    for unit in units:
        by_node.setdefault(unit.node, []).append(unit)
    for kind in (JOB, START, RESERVATION):
        for block in (block for block in blocks if block.kind == kind):
            symbol = {JOB: BUSY, START: PROMISED}.get(kind) or letters[block.name]
            for unit in by_node.get(block.node, ()):
                if block.gpus is None or unit.gpu is None or unit.gpu in block.gpus:
                    _fill(found[unit], symbol, _reach(block, edges), is_shy=block.gpus is None)
    return {unit: tuple(cells) for unit, cells in found.items()}


def _reach(block: Block, edges: Sequence[float]) -> range:
    """The cells that a block touches."""
    return range(max(0, bisect_right(edges, block.begin_at) - 1), min(len(edges) - 1, bisect_left(edges, block.end_at)))


def _fill(cells: list[str], symbol: str, reach: range, is_shy: bool) -> None:
    for index in reach:
        before = cells[index]
        if before == GONE or (is_shy and before != FREE):
            continue
        is_other = before in LETTERS + REST + SEVERAL and before != symbol
        cells[index] = SEVERAL if is_other else symbol


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def by_gpu(painted: Mapping[Unit, Cells]) -> list[Row]:
    """A row for GPUs of which all is the same, also of several nodes: ``n[1-2]:0-3``."""
    of_node: dict[str, dict[Cells, list[int]]] = {}
    for unit, cells in painted.items():
        of_node.setdefault(unit.node, {}).setdefault(cells, []).extend([] if unit.gpu is None else [unit.gpu])
    alike: dict[tuple[str, Cells], list[str]] = {}
    for node, groups in of_node.items():
        for cells, gpus in groups.items():
            alike.setdefault((format_ids(tuple(gpus)), cells), []).append(node)
    return [Row(_label(nodes, gpus), cells) for (gpus, cells), nodes in alike.items()]


def _label(nodes: Iterable[str], gpus: str) -> str:
    return f"{compress(nodes)}:{gpus}" if gpus else compress(nodes)


def by_node(painted: Mapping[Unit, Cells]) -> list[Row]:
    """A row for each node, or for several of which all is the same."""
    alike: dict[Cells, list[str]] = {}
    for node, cells in _together(painted, [(unit.node, unit) for unit in painted]).items():
        alike.setdefault(cells, []).append(node)
    return [Row(compress(nodes), cells) for cells, nodes in alike.items()]


def by_type(painted: Mapping[Unit, Cells]) -> list[Row]:
    """A row for each type of GPU."""
    kinds = [(unit.type or "no GPU", unit) for unit in painted]
    return [Row(kind, cells) for kind, cells in _together(painted, kinds).items()]


def _together(painted: Mapping[Unit, Cells], named: Iterable[tuple[str, Unit]]) -> dict[str, Cells]:
    rows: dict[str, list[Cells]] = {}
    for name, unit in named:
        rows.setdefault(name, []).append(painted[unit])
    return {name: tuple(_mixed(column) for column in zip(*cells, strict=True)) for name, cells in rows.items()}


def _mixed(symbols: Sequence[str]) -> str:
    """Return the symbol of several GPUs: the common symbol, else the only reservation's letter in lower case."""
    there = dict.fromkeys(symbols)
    if len(there) == 1:
        return symbols[0]
    kept = [one for one in there if one in LETTERS + REST + SEVERAL]
    if kept:
        return kept[0].lower() if len(kept) == 1 else SEVERAL
    return PROMISED if PROMISED in there else PARTLY
