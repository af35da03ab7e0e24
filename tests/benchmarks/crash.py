"""``kill -9`` of the controller: what it had acknowledged must be there afterwards, and what ran must run on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.bench import Bench
from tests.benchmarks.row import Beside, Row, none_at_all
from tests.benchmarks.side import Side

SUBMITTED = 200
STARTED = 32
_FOUND_AGAIN_S = 15.0


def crash(bench: Bench) -> Iterator[Row]:
    rounds = bench.scale.crashes
    with bench.gq() as gq:
        queued = _sum([_kill_after_submissions(gq, number) for number in range(rounds)])
        started = _sum([_kill_after_starts(gq, number) for number in range(rounds)])
    slurm = bench.slurm
    queued_by_slurm = _sum([_kill_after_submissions(slurm, n) for n in range(rounds)]) if slurm else ()
    started_by_slurm = _sum([_kill_after_starts(slurm, n) for n in range(rounds)]) if slurm else ()
    submissions, starts = rounds * SUBMITTED, rounds * STARTED
    yield _row(bench, "acknowledged jobs lost", submissions, queued, queued_by_slurm, 0)
    yield _row(bench, "acknowledged jobs run twice", submissions, queued, queued_by_slurm, 1)
    yield _row(bench, "started jobs unknown", starts, started, started_by_slurm, 0)
    yield _row(bench, "their processes gone", starts, started, started_by_slurm, 1)


def _sum(rounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(first for first, _ in rounds), sum(second for _, second in rounds)


def _row(bench: Bench, measure: str, of: int, ours: Sequence[int], slurms: Sequence[int], place: int) -> Row:
    beside = Beside("Slurm", slurms[place]) if slurms else None
    return Row(bench.family, measure, ours[place], f"of {of}", of, beside, none_at_all())


def _kill_after_submissions(side: Side, number: int) -> tuple[int, int]:
    """(acknowledged jobs that never ran, those that ran more than once)"""
    ran = side.workdir / f"ran-{number}"
    job_ids = side.submit_many(f"echo $SLURM_JOB_ID >> {ran}", SUBMITTED)
    side.kill_controller()
    side.start_again()
    _let_end(side, job_ids)
    seen = [int(word) for word in ran.read_text().split()] if ran.exists() else []
    return len(set(job_ids) - set(seen)), len(seen) - len(set(seen))


def _let_end(side: Side, job_ids: Sequence[int]) -> None:
    """Those that it knows; one that it does not know has no end to wait for."""
    with suppress(Exception):
        side.await_end(job_ids)


def _kill_after_starts(side: Side, number: int) -> tuple[int, int]:
    """(jobs that were running and are not known to run, those whose process is gone)"""
    pids = side.workdir / f"pids-{number}"
    pids.mkdir()
    job_ids = side.submit_many(f"echo $$ > {pids}/$SLURM_JOB_ID; exec sleep 600", STARTED)
    side.await_start(job_ids)
    side.kill_controller()
    side.start_again()
    unknown = _unknown_after_a_while(side, set(job_ids))
    gone = [job_id for job_id in job_ids if not _is_alive(pids / str(job_id))]
    _end(side, job_ids, pids)
    return len(unknown), len(gone)


def _unknown_after_a_while(side: Side, job_ids: set[int]) -> set[int]:
    """A controller that comes back may need a moment to hear from its nodes."""
    deadline = time.monotonic() + _FOUND_AGAIN_S
    while (unknown := job_ids - side.running()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return unknown


def _is_alive(path: Path) -> bool:
    """A process that told its pid; the job may be known as started a moment before its script can."""
    deadline = time.monotonic() + _FOUND_AGAIN_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return path.exists() and Path("/proc", path.read_text().strip()).exists()


def _end(side: Side, job_ids: Sequence[int], pids: Path) -> None:
    for path in pids.iterdir():
        with suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGTERM)
    _let_end(side, job_ids)
