"""Arrays: one record until tasks start.  How fast it is accepted, shown and cancelled, and that none of it is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import msgspec

from gq.wire import client as wire
from tests.benchmarks.bench import Bench, beside
from tests.benchmarks.gq_side import GqSide
from tests.benchmarks.row import Beside, Row, at_most, at_most_times, median, none_at_all
from tests.benchmarks.side import Side, submit
from tests.benchmarks.stopwatch import wall_s
from tests.benchmarks.submission import fill_cluster

GQSTAT_S = 0.5
MEMORY_MIB = 300.0
_ROUNDS = 3
_ACCEPTS = 15
_HELD = 1000


def accepted(bench: Bench) -> Iterator[Row]:
    """A long array takes hardly longer than one job, and is as durable."""
    count = bench.scale.tasks
    with bench.gq() as gq:
        fill_cluster(gq)
        single, whole = zip(*[(_accept_s(gq), _accept_s(gq, count)) for _ in range(_ACCEPTS)], strict=True)
        by = Beside("one job", median(single))
        row = partial(Row, bench.family)
        yield row(f"array of {count:,} accepted", median(whole), "s", _ACCEPTS, by, at_most_times(1.5, by))
        yield row(f"array of {count:,}, lost after kill -9", _lost(gq, count), f"of {count:,}", 1, None, none_at_all())


def _accept_s(gq: GqSide, tasks: int = 0) -> float:
    """From the request to the answer; then it is cancelled."""
    request = gq.prepare("true")
    if tasks:
        request = array_of(request, tasks)
    began = time.perf_counter()
    answer = gq.connection.ask(request)
    took_s = time.perf_counter() - began
    assert isinstance(answer, wire.Submitted)
    gq.connection.ask(wire.CancelJobs(filter=wire.JobFilter(job_ids=(answer.job_id,))))
    return took_s


def array_of(request: wire.Submit, tasks: int) -> wire.Submit:
    return msgspec.structs.replace(request, spec=msgspec.structs.replace(request.spec, array=f"1-{tasks}"))


def _lost(gq: GqSide, tasks: int) -> float:
    answer = gq.connection.ask(array_of(gq.prepare("true"), tasks))
    gq.kill_controller()
    assert isinstance(answer, wire.Submitted)
    gq.start_again()
    return tasks - gq.pending_tasks(answer.job_id)


# ── many of its tasks are jobs of their own ───────────────────────────────────────────────────────────────────


def taken_apart(bench: Bench) -> Iterator[Row]:
    """With a thousand of its tasks running and a thousand held one by one it is shown as fast."""
    count, running = bench.scale.tasks, bench.scale.running_tasks
    row = partial(Row, bench.family)
    with bench.wide_gq(running) as gq:
        answer = gq.connection.ask(array_of(gq.prepare("exec sleep 3600"), count))
        assert isinstance(answer, wire.Submitted)
        gq.await_running(running)
        for task in range(count - _HELD + 1, count + 1):
            gq.connection.ask(wire.HoldJobs(job_ids=(), tasks={answer.job_id: str(task)}))
        name = f"{count:,} tasks, {running:,} run, {_HELD:,} held singly"
        shown_s = median([wall_s((gq.words.stat,), gq.environ, gq.workdir) for _ in range(_ROUNDS)])
        yield row(f"gqstat, {name}", shown_s, "s", _ROUNDS, bench.baseline.python, at_most(GQSTAT_S, "s"))
        memory = gq.controller_memory_mib()
        yield row("gqd memory, the same", memory, "MiB", 1, None, at_most(MEMORY_MIB, "MiB"))
        gq.connection.ask(wire.CancelJobs(filter=wire.JobFilter(job_ids=(answer.job_id,))))


# ── cancelling ────────────────────────────────────────────────────────────────────────────────────────────────


def cancelled(bench: Bench) -> Iterator[Row]:
    """What waits, by one command: as one array, and as separate jobs of one name."""
    count = bench.scale.cancelled
    with bench.gq() as gq:
        fill_cluster(gq)
        as_array = _cancel_array_s(gq, count)
        as_jobs = _cancel_jobs_s(gq, count)
    bare = bench.baseline.python
    slurm = bench.on_slurm(partial(_cancel_array_samples, count=count))
    array, jobs = f"cancel {count:,} pending, one array", f"cancel {count:,} pending, separate jobs"
    yield Row(bench.family, array, as_array, "s", 1, beside(slurm, median, bare), at_most(1.0, "s"))
    yield Row(bench.family, jobs, as_jobs, "s", 1, bare, at_most(3.0, "s"))


def _cancel_array_samples(side: Side, count: int) -> list[float]:
    return [_cancel_array_s(side, count)]


def _cancel_array_s(side: Side, count: int) -> float:
    job_id = submit(side, "-H", f"--array=1-{count}", "-o", "/dev/null", "--wrap", "true")
    return wall_s((side.words.cancel, str(job_id)), side.environ, side.workdir)


def _cancel_jobs_s(gq: GqSide, count: int) -> float:
    gq.submit_many("true", count, name="doomed")
    took_s = wall_s((gq.words.cancel, "-n", "doomed"), gq.environ, gq.workdir)
    assert not gq.pending(name="doomed")
    return took_s
