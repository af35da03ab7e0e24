"""Only submitting: jobs that wait behind one that holds the whole cluster, so that nothing else is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from tests.benchmarks.bench import Bench, beside
from tests.benchmarks.gq_side import NODES, GqSide
from tests.benchmarks.row import Beside, Row, at_least, median, percentile
from tests.benchmarks.side import Side, submit
from tests.benchmarks.stopwatch import per_second
from tests.benchmarks.submitter import submitted_per_second

_WIDTHS = {1: 4, 4: 7, 16: 7}
"""Processes at a time → the bar for how many end in a second."""
_CONNECTIONS = 16
_ALONE = 200


def processes(bench: Bench) -> Iterator[Row]:
    """One process of the command per job."""
    count = bench.scale.processes
    with bench.gq() as gq:
        fill_cluster(gq)
        seen = {width: _processes_per_second(gq, count, width) for width in _WIDTHS}
    bare = Beside("python", 1 / bench.baseline.python_s)
    for width, floor in _WIDTHS.items():
        slurm = bench.on_slurm(partial(_sample, count=count, width=width))
        name = f"{count:,} gqsub, {width} at a time"
        yield Row(bench.family, name, seen[width], "/s", count, beside(slurm, median, bare), at_least(floor, "/s"))


def _sample(side: Side, count: int, width: int) -> list[float]:
    return [_processes_per_second(side, count, width)]


def _processes_per_second(side: Side, count: int, width: int) -> float:
    argv = (side.words.sub, "--hold", "-o", "/dev/null", "--wrap", "true")
    return per_second(argv, side.environ, side.workdir, count, width)


def client(bench: Bench) -> Iterator[Row]:
    """The Python client, each answer durable when it comes."""
    commit, commits = bench.baseline.commit, bench.baseline.commits
    row = partial(Row, bench.family)
    with bench.gq() as gq:
        fill_cluster(gq)
        alone = _one_by_one_s(gq)
        yield row("one job, one at a time, p50", median(alone), "s", _ALONE, commit)
        yield row("one job, one at a time, p95", percentile(alone, 0.95), "s", _ALONE, commit)
        count = bench.scale.submissions
        yield row("1 connection", submitted_per_second(gq, 1, count), "/s", count, commits)
        wide = submitted_per_second(gq, _CONNECTIONS, count)
        yield row(f"{_CONNECTIONS} connections", wide, "/s", count, commits, at_least(3000, "/s"))


def fill_cluster(side: Side) -> None:
    """With one job, so that all others wait for it."""
    job_id = submit(side, f"-N{NODES}", "--exclusive", "-o", "/dev/null", "--wrap", "exec sleep 3600")
    side.await_start([job_id])


def _one_by_one_s(gq: GqSide) -> list[float]:
    request = gq.prepare("true")
    return [_ask_s(gq, request) for _ in range(_ALONE)]


def _ask_s(gq: GqSide, request: object) -> float:
    began = time.perf_counter()
    gq.connection.ask(request)  # type: ignore[arg-type]  # a prepared submission
    return time.perf_counter() - began
