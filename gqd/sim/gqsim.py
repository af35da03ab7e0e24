"""`gqsim`: a trace, or the cluster's own history, through the controller and the planner that gqd runs.

The command alone: options, files, progress.  It is a command of gq that needs the deciding code, so it is here.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gq.cli._command import JSON, Command, warn
from gq.cli._operands import refuse_operands
from gq.cli._output import Column, write_json, write_table
from gq.client import Client
from gq.config import load_config
from gq.errors import UsageError
from gq.getopt import Arguments, Option
from gq.locate import find_cluster
from gq.units import parse_duration_s
from gqd.sim import chart
from gqd.sim.engine import Engine
from gqd.sim.past import read_history
from gqd.sim.policies import SimPolicy, changed, read_policies
from gqd.sim.report import Replay, Summary, courses_of, jobs_csv, summary_of
from gqd.sim.trace import read_trace, with_jitter
from gqd.sim.workload import SimJob, Site, those_that_fit, with_limits, with_load

COLUMNS = (
    ("POLICY", ""),
    ("JOBS", "jobs"),
    ("DROPPED", "dropped"),
    ("MEAN WAIT", "mean_wait_s"),
    ("MEDIAN", "median_wait_s"),
    ("P95", "p95_wait_s"),
    ("P99", "p99_wait_s"),
    ("MAX", "max_wait_s"),
    ("P95 >8 GPUS", "wide_p95_wait_s"),
    ("MEAN 5-8 GPUS", "node_mean_wait_s"),
    ("P95 5-8 GPUS", "node_p95_wait_s"),
    ("SLOWDOWN", "mean_bounded_slowdown"),
    ("USED", "gpu_utilisation"),
    ("WALL", "wall_s"),
)
"""Of the table: header, key of the summary."""
ALLOCATIONS = 200_000
"""Between two looks for garbage: what a replay makes holds no cycles."""
TERMINAL_PIECES = 60
SHOW_EVERY_S = 0.2
SINCE = "30d"


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "the trace is named with --trace")
    if arguments.has("trace") == arguments.has("replay"):
        raise UsageError("missing_option", "`gqsim` needs --trace or --replay, and one of them", "`gqsim --help`")
    replays = _replay_own(arguments) if arguments.has("replay") else _replay_trace(arguments)
    summaries = {replay.name: summary_of(replay) for replay in replays}
    _write_files(arguments, replays, summaries)
    if arguments.has("json"):
        write_json(summaries)
    else:
        table = [Column(header, is_number=bool(key)) for header, key in COLUMNS]
        write_table(table, [[_row(name, summary) for name, summary in summaries.items()]])
    if arguments.has("chart"):
        sys.stdout.write(chart.blocks(courses_of(replays, TERMINAL_PIECES)))
    return 0


# ── what is replayed ──────────────────────────────────────────────────────────────────────────────────────────


def _replay_trace(arguments: Arguments) -> list[Replay]:
    if arguments.has("since"):
        raise UsageError("contradiction", "`--since` is for --replay; a trace is replayed as a whole")
    words = arguments.words("policy") or ("default",)
    policies = read_policies(words, [given.value for given in arguments.every("set")])
    cluster = arguments.text("cluster")
    read = read_trace(
        Path(arguments.text("trace")), Path(cluster) if cluster else None, arguments.text("variant") or None
    )
    jobs, dropped = those_that_fit(read.jobs, read.site)
    if not jobs:
        message = f"none of the {dropped} jobs of {arguments.text('trace')} fits into the cluster"
        raise UsageError("empty_trace", message, "see --variant and --cluster")
    jobs = _changed_jobs(arguments, jobs, read.site)
    return [_replay(arguments, read.site, one, jobs, dropped) for one in policies]


def _replay_own(arguments: Arguments) -> list[Replay]:
    """What was recorded, and the same jobs under the policy of today, of the changes, or of others."""
    for name in ("cluster", "variant"):
        if arguments.has(name):
            raise UsageError("contradiction", f"`--{name}` is for a trace; history is replayed on the cluster's nodes")
    changes = [given.value for given in arguments.every("set")]
    words = arguments.words("policy")
    location = find_cluster(os.environ)
    own = load_config(location)
    policies = read_policies(words, changes) if words else changed(own, location.config_path, changes)
    since_s = arguments.read("since", _since) if arguments.has("since") else _since(SINCE)
    with Client(location) as controller:
        history = read_history(controller, time.time() - (since_s or 0.0))
    nodes_gpus = history.site.gpus
    recorded = Replay("recorded", history.jobs, history.recorded, 0, nodes_gpus, 0.0)
    kept, dropped = those_that_fit(history.jobs, history.site)
    jobs = _changed_jobs(arguments, kept, history.site) if kept else []
    return [recorded, *(_replay(arguments, history.site, one, jobs, dropped) for one in policies)]


def _changed_jobs(arguments: Arguments, jobs: list[SimJob], site: Site) -> list[SimJob]:
    load = arguments.read("load", _positive)
    if load is not None:
        jobs = with_load(jobs, site.gpus, load)
    return with_jitter(jobs, arguments.integer("jitter", at_least=0) or 0)


def _replay(arguments: Arguments, site: Site, policy: SimPolicy, jobs: list[SimJob], dropped: int) -> Replay:
    factor = policy.limits_factor(arguments.read("limits", _positive))
    limited = jobs if factor is None else with_limits(jobs, factor)
    delay_s = arguments.read("start-delay", _not_negative) or 0.0
    engine = Engine(site, policy.policy, limited, delay_s, policy.knows)
    progress = _Progress(policy.name, len(jobs))
    gc.freeze()
    gc.set_threshold(ALLOCATIONS)
    began = time.perf_counter()
    done = engine.run(progress.show)
    wall_s = time.perf_counter() - began
    progress.clear()
    if done.refused:
        message = next(iter(done.refused.values()))
        warn(f"{policy.name}: {len(done.refused)} jobs were refused, the first since {message}")
    return Replay(policy.name, limited, done, dropped, site.gpus, wall_s)


class _Progress:
    """One line on stderr, if that is a terminal."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._began = self._shown_at = time.perf_counter()
        self._is_shown = sys.stderr.isatty()

    def show(self, ended: int) -> None:
        now = time.perf_counter()
        if self._is_shown and now - self._shown_at >= SHOW_EVERY_S:
            self._shown_at = now
            share = 100 * ended / max(1, self._total)
            left_s = (now - self._began) * (self._total - ended) / max(1, ended)
            sys.stderr.write(
                f"\r{self._name}: {ended} of {self._total} jobs, {share:.0f} %, {left_s:.0f} s left \x1b[K"
            )
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────


def _not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"`{text}` is not a number, 0 or more")
    return value


def _positive(text: str) -> float:
    value = _not_negative(text)
    if not value:
        raise ValueError(f"`{text}` is not more than 0")
    return value


def _since(text: str) -> float:
    seconds = parse_duration_s(text)
    if not seconds:
        raise ValueError(f"`{text}` is not a length of time; for example 30d")
    return float(seconds)


# ── what comes of it ──────────────────────────────────────────────────────────────────────────────────────────


def _row(name: str, summary: Summary) -> list[str]:
    return [name, *(_cell(key, summary[key]) for _, key in COLUMNS[1:])]


def _cell(key: str, value: float | int | None) -> str:
    if value is None:
        return "-"
    if key == "gpu_utilisation":
        return f"{100 * value:.1f}%"
    return f"{value:.1f}" if key in ("mean_bounded_slowdown", "wall_s") else f"{value:.0f}"


def _write_files(arguments: Arguments, replays: Sequence[Replay], summaries: dict[str, Summary]) -> None:
    if path := arguments.text("out"):
        _write(path, "--out", msgspec.json.format(msgspec.json.encode(summaries), indent=2).decode() + "\n")
    if path := arguments.text("jobs"):
        for replay in replays:
            _write(str(_one_of(Path(path), replay.name, len(replays))), "--jobs", jobs_csv(replay))
    if path := arguments.text("plot"):
        title = arguments.text("trace") or "history"
        _write(path, "--plot", chart.svg(courses_of(replays, chart.SVG_PIECES), Path(title).name))


def _one_of(path: Path, name: str, count: int) -> Path:
    """``starts.csv`` of several policies is ``starts.fifo.csv`` …"""
    return path if count == 1 else path.with_name(f"{path.stem}.{name.replace('/', '_')}{path.suffix}")


def _write(path: str, option: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "unwritable",
            f"`{option}`: {path} cannot be written: {error.strerror}",
            "name a file in a directory of yours",
        ) from None


COMMAND = Command(
    name="gqsim",
    summary="Replay a trace, or your own history, through the scheduler that gqd runs.",
    options=(
        Option(name="trace", metavar="FILE", help="CSV, `sacct --parsable2` output or SWF; also gzipped."),
        Option(name="cluster", metavar="FILE", help="Nodes to replay it on (the trace's .cluster.json)."),
        Option(name="variant", metavar="NAME", help="Which of the clusters that the file describes (its default)."),
        Option(
            name="policy", metavar="NAME|FILE", help="Policy by name, or a gq.toml; several are compared."
        ),
        Option(name="set", metavar="KEY=VALUE", help="Change a setting: scheduler.order=shortest."),
        Option(name="load", metavar="X", help="Move arrivals so that so much of the GPUs is asked for (0.8)."),
        Option(name="limits", metavar="F", help="Time limit of jobs that have none: so many times their length."),
        Option(name="jitter", metavar="SEED", help="Submit each job 0 to 9 s later, by this seed (0: do not)."),
        Option(name="start-delay", metavar="SECONDS", help="From the decision to start a job to its start (0)."),
        Option(name="replay", help="Replay this cluster's own history instead of a trace."),
        Option(name="since", metavar="TIME", help="Of the history: how far back (30d)."),
        Option(name="out", metavar="FILE", help="Write the summary there, as JSON."),
        Option(name="jobs", metavar="FILE", help="Write start and end of every job there, as CSV."),
        Option(name="plot", metavar="FILE", help="Draw waits and utilisation over time there, as SVG."),
        Option(name="chart", help="Draw them here, with block characters."),
        JSON,
    ),
    run=run,
    details=(
        "The controller and the planner are those of gqd; only nodes and time are virtual. Policies: fifo, fifo-skip,"
        " easy, easy-user, conservative, sjf, default, and the tables of a gq.toml."
    ),
)
