"""A long queue: how long it takes to be shown, and how much memory it needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.benchmarks.bench import Bench
from tests.benchmarks.row import Beside, Row, at_most, median
from tests.benchmarks.side import Side
from tests.benchmarks.stopwatch import wall_s
from tests.benchmarks.submission import fill_cluster

_ROUNDS = 3
MINE = 100
"""Of the jobs that wait those of one user; all others are somebody else's."""
GQSTAT_S, ALL_S = 0.5, 3.0
MEMORY_MIB = 300.0
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
            by_s, by_mib = (slurm_s or bare, slurm_mib or empty) if count == _SLURMS else (bare, empty)
            yield row(f"gqstat, {count:,} pending", shown_s, "s", _ROUNDS, by_s, at_most(ALL_S, "s"))
            bar = at_most(MEMORY_MIB, "MiB")
            yield row(f"gqd memory, {count:,} pending", memory_mib, "MiB", 1, by_mib, bar)
        few = at_most(GQSTAT_S, "s")
        yield row(f"gqstat --limit 1000, {there:,}", _shown_s(gq, "--limit", "1000"), "s", _ROUNDS, bare, few)
        gq.give_to_another(keeping=MINE)
        yield row(f"gqstat --me, {MINE} of {there:,}", _shown_s(gq, "--me"), "s", _ROUNDS, bare, few)


def _on_slurm(side: Side) -> tuple[Beside, Beside]:
    fill_cluster(side)
    side.submit_many("true", _SLURMS)
    return Beside("Slurm", _shown_s(side)), Beside("Slurm", side.controller_memory_mib())


def _shown_s(side: Side, *options: str) -> float:
    return median([wall_s((side.words.stat, *options), side.environ, side.workdir) for _ in range(_ROUNDS)])
