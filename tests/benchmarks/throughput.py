"""Many jobs of `true`: from the first submission to the last end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.benchmarks.bench import Bench, beside
from tests.benchmarks.row import Row, at_least, median
from tests.benchmarks.side import Side, submit

_AT_A_TIME = 4
_JOBS = "/s"


def throughput(bench: Bench) -> Iterator[Row]:
    scale = bench.scale
    for shepherds in scale.herds:
        rounds = scale.herd_rounds if shepherds == scale.herds[0] else 1
        yield _shepherds(bench, shepherds, rounds)
    yield _array(bench, scale.herds[0], scale.herd_rounds)
    yield _one_process_each(bench, scale.processes)


def _shepherds(bench: Bench, count: int, rounds: int) -> Row:
    with bench.gq() as gq:
        seen = [_ended_per_second(gq, count) for _ in range(rounds)]
    slurm = bench.on_slurm(lambda side: [_array_ended_per_second(side, count)])
    by = beside(slurm, median, bench.baseline.spawns)
    return Row(bench.family, f"{count:,} × true, 1 connection", median(seen), _JOBS, rounds, by, at_least(150, _JOBS))


def _array(bench: Bench, count: int, rounds: int) -> Row:
    with bench.gq() as gq:
        seen = [_array_ended_per_second(gq, count) for _ in range(rounds)]
    slurm = bench.on_slurm(lambda side: [_array_ended_per_second(side, count)])
    by = beside(slurm, median, bench.baseline.spawns)
    return Row(bench.family, f"{count:,} × true, an array", median(seen), _JOBS, rounds, by, at_least(150, _JOBS))


def _ended_per_second(side: Side, count: int) -> float:
    began = time.perf_counter()
    side.await_end(side.submit_many("true", count))
    return count / (time.perf_counter() - began)


def _array_ended_per_second(side: Side, count: int) -> float:
    """Slurm's fastest way: it has no client that submits many separate jobs."""
    began = time.perf_counter()
    side.await_end([submit(side, f"--array=1-{count}", "-o", "/dev/null", "--wrap", "true")])
    return count / (time.perf_counter() - began)


def _one_process_each(bench: Bench, count: int) -> Row:
    with bench.gq() as gq:
        seen = _submitted_singly_per_second(gq, count)
    slurm = bench.on_slurm(lambda side: [_submitted_singly_per_second(side, count)])
    by = beside(slurm, median, bench.baseline.spawns)
    return Row(bench.family, f"{count:,} × true, a gqsub each", seen, _JOBS, 1, by, at_least(6, _JOBS))


def _submitted_singly_per_second(side: Side, count: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        ids = list(pool.map(lambda _: submit(side, "-o", "/dev/null", "--wrap", "true"), range(count)))
    side.await_end(ids)
    return count / (time.perf_counter() - began)
