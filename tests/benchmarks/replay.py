"""The deciding: the shared traces through gqsim, and how fast gqsim is.

Waits are the mean over jitters 0…4, held to the bars of the comparison (one minute of grace on top); beside them stands
what EASY that knows all durations got from the reference simulator.  Without ``GQ_TEST_TRACES`` nothing is measured.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tests.benchmarks.bench import Bench
from tests.benchmarks.row import Beside, Row, at_least, at_most

ROOT = Path(__file__).parent.parent.parent
GRACE_S = 60.0
LIMITS = "5"
PATIENCE_S = 4 * 3600
FIFO_S, DEFAULT_S, LARGE_S = 120.0, 300.0, 600.0
RESUMES_S = (60, 300)
LEAST_ATTAINED_S = {"philly loose": 2_487, "philly tight": 28_717}
"""Mean wait of least attained service, at the first of `RESUMES_S`, which the policy las comes near to."""
NEAR_IT = 1.25
LARGE_JOBS, LARGE_NODES = 100_000, 500

Bars = dict[str, float]
"""Key of gqsim's summary → the most that it may be."""


class Case(NamedTuple):
    """A row of the comparison."""

    name: str
    trace: str
    options: tuple[str, ...]
    easy: tuple[float, float]
    """Of the reference: mean wait, p95 wait of wide jobs (openb: of all)."""
    blind: Bars
    limited: Bars
    """With limits of five times the length."""


def _bars(mean_s: float, wide_s: float, key: str = "wide_p95_wait_s", **others: float) -> Bars:
    return {"mean_wait_s": mean_s, key: wide_s, **others}


_P95 = "p95_wait_s"
CASES = (
    Case(
        "philly loose", "philly_sepoct", ("--variant=loose",), (24_724, 139_443),
        _bars(12_050, 100_000, mean_bounded_slowdown=26, node_mean_wait_s=121_600, node_p95_wait_s=280_000),
        _bars(10_000, 65_000, mean_bounded_slowdown=8, node_mean_wait_s=91_000),
    ),
    Case(
        "philly tight", "philly_sepoct", ("--variant=tight",), (177_854, 954_215),
        _bars(34_100, 400_000, node_mean_wait_s=1_157_000), _bars(30_000, 150_000),
    ),
    Case(
        "helios real_vc", "helios_venus2vc_sep", ("--variant=real_vc",), (828, 957),
        _bars(700, 1_800), _bars(713, 611),
    ),
    Case(
        "helios shared22", "helios_venus2vc_sep", ("--variant=shared22",), (5_017, 12_061),
        _bars(5_560, 13_400), _bars(4_860, 12_000),
    ),
    Case(
        "openb tight", "openb2023", ("--variant=tight",), (1_248, 6_079),
        _bars(1_650, 6_500, _P95), _bars(1_355, 6_700, _P95),
    ),
    Case(
        "kalos 0.8", "acme_kalos_train", ("--variant=real", "--load=0.8"), (21_023, 136_591),
        _bars(24_600, 151_400), _bars(22_300, 143_300),
    ),
)  # fmt: skip
WORDS = {
    "mean_wait_s": "mean wait",
    "wide_p95_wait_s": "p95 >8",
    "p95_wait_s": "p95",
    "mean_bounded_slowdown": "slowdown",
    "node_mean_wait_s": "mean 5-8",
    "node_p95_wait_s": "p95 5-8",
}


def replay(bench: Bench) -> Iterator[Row]:
    traces = Path(os.environ.get("GQ_TEST_TRACES", ROOT.parent / "shared" / "traces"))
    if not traces.is_dir():
        print("no trace is replayed: GQ_TEST_TRACES names no folder of traces", file=sys.stderr)
        return
    row = partial(Row, bench.family)
    cases = [case for case in CASES if case.name in bench.scale.replays]
    for case in cases:
        for word, limits, bars in (("", (), case.blind), (" ×5", (f"--limits={LIMITS}",), case.limited)):
            yield from _waits(row, traces, case, word, limits, bars, bench.scale.jitters)
    for case in cases:
        yield from _turns(row, traces, case, bench.scale.jitters)
    if len(cases) == len(CASES):
        yield from _speeds(row, traces)


def _turns(row: partial[Row], traces: Path, case: Case, jitters: int) -> Iterator[Row]:
    """The policy that stops jobs and knows what that costs: no worse than EASY that knows all durations, and where one
    minute is enough near to least attained service without nodes, as far as there is a reference."""
    for resume_s in RESUMES_S:
        ideal = LEAST_ATTAINED_S.get(case.name) if resume_s == RESUMES_S[0] else None
        most = case.easy[0] if ideal is None else NEAR_IT * ideal
        options = (*case.options, "--policy=las", f"--resume-cost={resume_s}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            asked = [
                pool.submit(_gqsim, traces / f"{case.trace}.csv.gz", *options, f"--jitter={seed}")
                for seed in range(jitters)
            ]
            value = fmean(float(one.result()["mean_wait_s"]) for one in asked)
        measure = f"{case.name}, turns {resume_s} s, mean wait"
        beside = Beside("EASY", case.easy[0]) if ideal is None else Beside("LAS", ideal)
        yield row(measure, value, "s", jitters, beside, at_most(most + GRACE_S, "s"))


def _waits(
    row: partial[Row], traces: Path, case: Case, word: str, limits: tuple[str, ...], bars: Bars, jitters: int
) -> Iterator[Row]:
    trace = traces / f"{case.trace}.csv.gz"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        asked = [pool.submit(_gqsim, trace, *case.options, *limits, f"--jitter={seed}") for seed in range(jitters)]
        summaries = [one.result() for one in asked]
    for (key, most), easy in zip(bars.items(), (*case.easy, None, None, None), strict=False):
        is_wait = key.endswith("_s")
        beside = None if easy is None else Beside("EASY", easy)
        bar = at_most(most + GRACE_S, "s") if is_wait else at_most(most, "×")
        measure = f"{case.name}{word}, {WORDS[key]}"
        value = fmean(float(summary[key]) for summary in summaries)
        yield row(measure, value, "s" if is_wait else "×", jitters, beside, bar)


def _speeds(row: partial[Row], traces: Path) -> Iterator[Row]:
    """One at a time, so that each has a core of its own."""
    philly = traces / "philly_sepoct.csv.gz"
    for policy, most_s in (("fifo", FIFO_S), ("default", DEFAULT_S)):
        done = _gqsim(philly, "--variant=loose", f"--policy={policy}")
        yield row(f"philly loose, {policy}", done["wall_s"], "s", 1, None, at_most(most_s, "s"))
        yield row(f"philly loose, {policy}, jobs", done["jobs_per_s"], "/s", 1, None, at_least(52_849 / most_s, "/s"))
    with tempfile.TemporaryDirectory() as folder:
        done = _gqsim(_large(traces, Path(folder)))
    yield row(f"{LARGE_JOBS:,} jobs, {LARGE_NODES} × 8", done["wall_s"], "s", 1, None, at_most(LARGE_S, "s"))


def _large(traces: Path, folder: Path) -> Path:
    """openb again and again under new ids, arrivals drawn by seed 1; as much load as it is on 4 nodes."""
    with gzip.open(traces / "openb2023.csv.gz", "rt") as file:
        known = list(csv.DictReader(file))
    chance = random.Random(1)
    span_s = int(known[-1]["submit_s"]) * 4 * LARGE_JOBS // (len(known) * LARGE_NODES)
    arrivals = sorted(chance.randrange(span_s) for _ in range(LARGE_JOBS))
    path = folder / "large.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("job_id", "vc", "submit_s", "duration_s", "gpus"))
        for place, at in enumerate(arrivals):
            job = known[place % len(known)]
            lines.writerow((f"l{place}", job["vc"], at, job["duration_s"], job["gpus"]))
    pool = {"pool": "all", "nodes": LARGE_NODES, "gpus_per_node": 8}
    (folder / "large.cluster.json").write_text(json.dumps({"variants": {"all": {"pools": [pool]}}}))
    return path


def _gqsim(trace: Path, *options: str) -> dict[str, float]:
    """The summary of its one policy."""
    words = [sys.executable, "-c", "from gq.cli._run import gqsim; gqsim()", f"--trace={trace}", "--json", *options]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert done.returncode == 0, f"gqsim {' '.join(options)} ended {done.returncode}: {done.stderr}"
    summary: dict[str, float] = next(iter(json.loads(done.stdout).values()))
    return summary
