"""One job on an idle cluster, a gang, a step: how long a user waits for the first sign of life.

Scripts tell the time themselves, as their first act; each is new to the cluster, as a user's would be.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial

from gq.wire.client import Submitted
from tests.benchmarks.bench import Bench, beside
from tests.benchmarks.gq_side import GPUS, NODES, GqSide
from tests.benchmarks.repeat import repeated
from tests.benchmarks.row import Beside, Row, at_most, median, percentile
from tests.benchmarks.side import Side, submit

_TELL_TIME = "echo $EPOCHREALTIME"


def one_job(bench: Bench) -> Iterator[Row]:
    """From the submission to the first line of the script."""
    count = bench.scale.latencies
    with bench.gq() as gq:
        seen = [_first_line_s(gq, number) for number in range(count)]
        from_request = [_start_after_request_s(gq, number) for number in range(count)]
    slurm = bench.on_slurm(lambda side: [_first_line_s(side, number) for number in range(count)])
    yield from _both(bench, "gqsub → first line", seen, slurm, bench.baseline.python, 0.250)
    yield from _both(bench, "request → process runs", from_request, [], bench.baseline.spawn, 0.040)


def gang(bench: Bench) -> Iterator[Row]:
    """All nodes and GPUs at once, and a step that starts a task on each."""
    count = bench.scale.gangs
    with bench.gq() as gq:
        seen = [_all_tasks_s(gq, number) for number in range(count)]
    slurm = bench.on_slurm(lambda side: [_all_tasks_s(side, number) for number in range(count)])
    yield from _both(bench, f"gqsub → all {NODES} tasks run", seen, slurm, bench.baseline.python, 0.600)


def step(bench: Bench) -> Iterator[Row]:
    """The command that starts a step, as a process, within an allocation that is there."""
    of = partial(_steps_s, count=bench.scale.steps)
    with bench.gq() as gq:
        seen = of(gq)
    yield from _both(bench, "gqrun -N4 hostname", seen, bench.on_slurm(of), bench.baseline.python, 0.300)


def _both(
    bench: Bench, measure: str, seen: list[float], slurm: list[float], otherwise: Beside, bar_s: float
) -> Iterator[Row]:
    """Median and tail; the bar is for the median."""
    middle = beside(slurm, median, otherwise)
    yield Row(bench.family, f"{measure}, p50", median(seen), "s", len(seen), middle, at_most(bar_s, "s"))
    tail = beside(slurm, _p95, otherwise)
    yield Row(bench.family, f"{measure}, p95", _p95(seen), "s", len(seen), tail)


def _p95(values: list[float]) -> float:
    return percentile(values, 0.95)


# ── one sample each ───────────────────────────────────────────────────────────────────────────────────────────


def _script(command: str, number: int) -> str:
    bash = shutil.which("bash")
    assert bash is not None, "bash (5.0 or newer) tells the time of a script's first line"
    return f"#!{bash}\n# {number}\n{command}\n"


def _first_line_s(side: Side, number: int) -> float:
    path, output = side.workdir / "job.sh", side.workdir / f"job-{number}.out"
    path.write_text(_script(_TELL_TIME, number))
    began = time.time()
    job_id = submit(side, "-o", str(output), str(path))
    side.await_end([job_id])
    return float(output.read_text()) - began


def _start_after_request_s(gq: GqSide, number: int) -> float:
    """Over an open connection, so that no start of a command is in it: as near to the receipt as a client can look."""
    output = gq.workdir / f"request-{number}.out"
    request = gq.client.prepare(_script(_TELL_TIME, number), environment=gq.environ, output=str(output))
    began = time.time()
    answer = gq.connection.ask(request)
    assert isinstance(answer, Submitted)
    gq.await_end([answer.job_id])
    return float(output.read_text()) - began


def _all_tasks_s(side: Side, number: int) -> float:
    path, output = side.workdir / "gang.sh", side.workdir / f"gang-{number}.out"
    path.write_text(_script(f"{side.words.run} bash -c '{_TELL_TIME}'", number))
    began = time.time()
    job_id = submit(side, f"-N{NODES}", f"--gpus-per-node={GPUS}", "-o", str(output), str(path))
    side.await_end([job_id])
    instants = [float(line) for line in output.read_text().split()]
    assert len(instants) == NODES, f"{NODES} tasks were to tell the time, these did: {instants}"
    return max(instants) - began


def _steps_s(side: Side, count: int) -> list[float]:
    words = side.words
    return repeated(side, (words.alloc, f"-N{NODES}"), count, (words.run, f"-N{NODES}", "hostname"))
