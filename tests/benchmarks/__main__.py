"""`make bench`: measure gq, and Slurm or a baseline beside it, and print one table.

    python -m tests.benchmarks [--quick] [--only FAMILY]... [--json FILE]

Exit status 0: every bar holds; 1: one does not, or a measure failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from gq.version import VERSION
from tests.benchmarks import (
    answering,
    arrays,
    commands,
    crash,
    latency,
    pending,
    planning,
    replay,
    submission,
    throughput,
)
from tests.benchmarks.baseline import take_baseline
from tests.benchmarks.bench import Bench, Family
from tests.benchmarks.gq_side import NODES, GqSide, fresh_cluster
from tests.benchmarks.row import Row
from tests.benchmarks.scale import FULL, QUICK, Scale
from tests.benchmarks.side import Side
from tests.benchmarks.slurm_side import NoSlurm, running_slurm
from tests.benchmarks.table import as_json, render, verdict
from tests.clusters import ClusterYard, cluster_yard, new_mark

FAMILIES: dict[str, tuple[str, Family]] = {
    "latency": ("one job, idle cluster", latency.one_job),
    "gang": ("gang of 4 nodes × 8 GPUs", latency.gang),
    "step": ("a step in an allocation of 4 nodes", latency.step),
    "crash": ("kill -9 of the controller", crash.crash),
    "throughput": ("short jobs, 4 nodes × 64 slots", throughput.throughput),
    "processes": ("submissions, a process each", submission.processes),
    "client": ("durable submissions, Python client", submission.client),
    "commands": ("one command, a whole process", commands.commands),
    "arrays": ("arrays", arrays.accepted),
    "tasks": ("arrays that are taken apart", arrays.taken_apart),
    "cancel": ("cancelling what waits", arrays.cancelled),
    "pending": ("many pending jobs", pending.pending),
    "planning": ("planning, 1,000 nodes × 8 GPUs", planning.planning),
    "answering": ("requests while 1,000 nodes are planned", answering.answering),
    "replay": ("recorded traces, default policy", replay.replay),
}
"""What `--only` takes → how the table calls it, and how it is measured."""


def main() -> int:
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's Python compiles gq once, not at every command
    began = time.monotonic()
    load = os.getloadavg()[0]
    rows: list[Row] = []
    failed: list[str] = []
    with ExitStack() as stack:
        yard = stack.enter_context(_yard())
        slurm = _slurm(stack, yard.base)
        for name in asked.only or FAMILIES:
            print(f"{name} …", file=sys.stderr, flush=True)
            try:
                rows += _measured(name, QUICK if asked.quick else FULL, yard, slurm)
            except (Exception, KeyboardInterrupt) as error:
                traceback.print_exc()
                failed.append(name)
                if isinstance(error, KeyboardInterrupt):  # what is measured already is told
                    break
    print(_machine(load, time.monotonic() - began))
    print(render(rows))
    print(verdict(rows, failed))
    if asked.json:
        Path(asked.json).write_text(json.dumps([as_json(row) for row in rows], indent=1) + "\n")
    return 1 if failed or any(row.holds is False for row in rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure gq and hold it to its bars.")
    parser.add_argument("--quick", action="store_true", help="less of everything, under two minutes")
    parser.add_argument("--only", action="append", choices=list(FAMILIES), help="this family; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON, too")
    return parser.parse_args()


@contextmanager
def _yard() -> Iterator[ClusterYard]:
    """Below a short path, since sockets lie there."""
    mark = new_mark()
    base = Path(tempfile.mkdtemp(prefix="gqb", dir="/tmp"))
    try:
        with cluster_yard(base, mark) as yard:
            yield yard
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _slurm(stack: ExitStack, base: Path) -> Side | None:
    try:
        return stack.enter_context(running_slurm(base))
    except NoSlurm as why:
        print(f"Slurm is not measured: {why}", file=sys.stderr)
        return None


def _measured(name: str, scale: Scale, yard: ClusterYard, slurm: Side | None) -> list[Row]:
    title, family = FAMILIES[name]
    gq, wide_gq = partial(fresh_cluster, yard), partial(_wide_cluster, yard)
    return list(family(Bench(title, scale, take_baseline(yard.base), gq, wide_gq, slurm)))


def _wide_cluster(yard: ClusterYard, jobs: int) -> AbstractContextManager[GqSide]:
    return fresh_cluster(yard, cpus=-(-jobs // NODES))


def _machine(load: float, took_s: float) -> str:
    """What the figures depend on."""
    cpus = len(os.sched_getaffinity(0))
    python = platform.python_version()
    return f"gq {VERSION}, Python {python}, {cpus} CPUs, load {load:.1f} before; took {took_s:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
