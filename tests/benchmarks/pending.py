"""A long queue: how long it takes to be shown, and how much memory it needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.benchmarks.bench import Bench
from tests.benchmarks.row import Beside, Row, median
from tests.benchmarks.side import Side
from tests.benchmarks.stopwatch import wall_s
from tests.benchmarks.submission import fill_cluster

_ROUNDS = 3
_SLURMS = 1000
"""Slurm takes separate jobs through one process each, so only the shortest queue is made there."""


def pending(bench: Bench) -> Iterator[Row]:
    bare = bench.baseline.python
    row = partial(Row, bench.family)
    slurm_s, slurm_mib = _on_slurm(bench.slurm) if bench.slurm is not None else (None, None)
    with bench.gq() as gq:
        fill_cluster(gq)
        empty = Beside("empty", gq.controller_memory_mib())
        there = 0
        for count in bench.scale.pending:
            gq.submit_many("true", count - there)
            there = count
            shown_s, memory_mib = _shown_s(gq), gq.controller_memory_mib()
            is_shortest = count == _SLURMS
            yield row(f"gqstat, {count:,} pending", shown_s, "s", _ROUNDS, slurm_s if is_shortest and slurm_s else bare)
            by = slurm_mib if is_shortest and slurm_mib else empty
            yield row(f"gqd memory, {count:,} pending", memory_mib, "MiB", 1, by)
        yield row(f"gqstat --limit 1000, {there:,}", _shown_s(gq, "--limit", "1000"), "s", _ROUNDS, bare)


def _on_slurm(side: Side) -> tuple[Beside, Beside]:
    fill_cluster(side)
    side.submit_many("true", _SLURMS)
    return Beside("Slurm", _shown_s(side)), Beside("Slurm", side.controller_memory_mib())


def _shown_s(side: Side, *options: str) -> float:
    return median([wall_s((side.words.stat, *options), side.environ, side.workdir) for _ in range(_ROUNDS)])
