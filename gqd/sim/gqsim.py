"""`gqsim`: replays a trace, or the cluster's own history, with the controller and the planner of gqd.

This module has only the command's options and output.  It is here because it needs the deciding code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.operands import refuse_operands
from gq.errors import UsageError
from gq.host.error_text import folded
from gq.request.getopt import Arguments
from gq.request.option import Option

if TYPE_CHECKING:
    from gqd.sim.report import Replay, Summary
    from gqd.sim.workload import LeftOut

COLUMNS = (
    ("POLICY", ""),
    ("JOBS", "jobs"),
    ("DROPPED", "dropped"),
    ("MEAN WAIT s", "mean_wait_s"),
    ("MEDIAN s", "median_wait_s"),
    ("P95 s", "p95_wait_s"),
    ("P99 s", "p99_wait_s"),
    ("MAX s", "max_wait_s"),
    ("P95 >8 GPUS s", "wide_p95_wait_s"),
    ("MEAN 5-8 GPUS s", "node_mean_wait_s"),
    ("P95 5-8 GPUS s", "node_p95_wait_s"),
    ("SLOWDOWN ×", "mean_bounded_slowdown"),
    ("STOPPED", "preemptions"),
    ("USED", "gpu_utilisation"),
    ("WALL s", "wall_s"),
)
"""Columns of the table: (header with the unit, key of the summary)."""
TERMINAL_PIECES = 60
REASONS_TOLD = 3
NAMES_TOLD = 5
"""Dropped jobs that are named for each reason."""


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "give the trace with --trace")
    if arguments.has("trace") == arguments.has("replay"):
        raise UsageError("missing_option", "`gqsim` needs exactly one of --trace and --replay", "`gqsim --help`")
    _refuse_unwritable(arguments)
    from gqd.sim.replay import replay_own, replay_trace  # the scheduler, which help does without
    from gqd.sim.report import left_out, summary_of

    replays = replay_own(arguments) if arguments.has("replay") else replay_trace(arguments)
    for replay in replays:
        if lost := left_out(replay):
            _tell_lost(replay.name, lost)
    summaries = {replay.name: summary_of(replay) for replay in replays}
    _write_files(arguments, replays, summaries)
    _show(arguments, replays, summaries)
    return 0


def _tell_lost(name: str, lost: Sequence[LeftOut]) -> None:
    """Report the dropped jobs: the first of each reason, and the number of the others."""
    alike: dict[str, list[str]] = {}
    for one in lost:
        alike.setdefault(one.why, []).append(one.name)
    told = [_named(names, why) for why, names in list(alike.items())[:REASONS_TOLD]]
    others = sum(len(names) for names in list(alike.values())[REASONS_TOLD:])
    more = f"; and {others} more jobs for other reasons" if others else ""
    jobs = "1 job was" if len(lost) == 1 else f"{len(lost)} jobs were"
    for line in folded(f"{name}: {jobs} dropped: {'; '.join(told)}{more}", sys.stderr):
        warn(line)


def _named(names: Sequence[str], why: str) -> str:
    from gq.cli.framework.output import printable

    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return f"{', '.join(printable(name) for name in names[:NAMES_TOLD])}{more} ({printable(why)})"


def _refuse_unwritable(arguments: Arguments) -> None:
    """Refuse output files that cannot be written, before the replay, which may take minutes."""
    for name in ("out", "jobs", "plot"):
        path = arguments.text(name)
        if path and not Path(path).absolute().parent.is_dir():
            raise _unwritable(name, path, "its directory does not exist")


def _unwritable(name: str, path: str, why: str) -> UsageError:
    message = f"`--{name}`: {path} cannot be written: {why}"
    return UsageError("unwritable", message, "name a file in a directory of yours")


def _show(arguments: Arguments, replays: Sequence[Replay], summaries: dict[str, Summary]) -> None:
    from gq.cli.framework.output import Column, is_terminal, write_json, write_table

    if arguments.has("json"):
        write_json(summaries)
        return
    table = [Column(header, is_number=bool(key)) for header, key in COLUMNS]
    rows = [_row(name, summary) for name, summary in summaries.items()]
    if is_terminal() and _width([[column.header for column in table], *rows]) > get_terminal_size().columns:
        table = [Column(COLUMNS[0][0]), *(Column(name, is_number=True) for name in summaries)]
        rows = [list(line) for line in zip([header for header, _ in COLUMNS], *rows, strict=True)][1:]
    write_table(table, [rows])
    if arguments.has("chart"):
        from gqd.sim import chart
        from gqd.sim.report import courses_of

        sys.stdout.write(chart.blocks(courses_of(replays, TERMINAL_PIECES)))


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Width of the table; a table wider than the terminal is shown with a line for each figure."""
    return sum(max(map(len, cells)) + 1 for cells in zip(*rows, strict=True)) - 1


# ── what comes of it ──────────────────────────────────────────────────────────────────────────────────────────────


def _row(name: str, summary: Summary) -> list[str]:
    return [name, *(_cell(key, summary[key]) for _, key in COLUMNS[1:])]


def _cell(key: str, value: float | int | None) -> str:
    if value is None:
        return "-"
    if key == "gpu_utilisation":
        return f"{100 * value:.1f}%"
    return f"{value:.1f}" if key in ("mean_bounded_slowdown", "wall_s") else f"{value:.0f}"


def _write_files(arguments: Arguments, replays: Sequence[Replay], summaries: dict[str, Summary]) -> None:
    import msgspec

    from gqd.sim import chart
    from gqd.sim.report import courses_of, jobs_csv

    if path := arguments.text("out"):
        _write(path, "out", msgspec.json.format(msgspec.json.encode(summaries), indent=2).decode() + "\n")
    if path := arguments.text("jobs"):
        for replay in replays:
            _write(str(_one_of(Path(path), replay.name, len(replays))), "jobs", jobs_csv(replay))
    if path := arguments.text("plot"):
        title = arguments.text("trace") or "history"
        _write(path, "plot", chart.svg(courses_of(replays, chart.SVG_PIECES), Path(title).name))


def _one_of(path: Path, name: str, count: int) -> Path:
    """The output file of one of several policies: ``starts.fifo.csv`` for ``starts.csv``."""
    return path if count == 1 else path.with_name(f"{path.stem}.{name.replace('/', '_')}{path.suffix}")


def _write(path: str, name: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(name, path, error.strerror or str(error)) from None


COMMAND = Command(
    name="gqsim",
    summary="Replay a trace, or your own history, through the scheduler that gqd runs.",
    options=(
        Option(name="trace", metavar="FILE", help="CSV, `sacct --parsable2` output or SWF; also gzipped."),
        Option(name="cluster", metavar="FILE", help="Nodes to replay it on (the trace's .cluster.json)."),
        Option(name="variant", metavar="NAME", help="Which of the clusters that the file describes (its default)."),
        Option(name="policy", metavar="NAME|FILE", help="Policy by name, or a gq.toml; several are compared."),
        Option(name="set", metavar="KEY=VALUE", help="Change a setting: scheduler.order=shortest."),
        Option(name="load", metavar="X", help="Move arrivals so that so much of the GPUs is asked for (0.8)."),
        Option(name="limits", metavar="F", help="Time limit of jobs that have none: so many times their length."),
        Option(name="jitter", metavar="SEED", help="Submit each job 0 to 9 s later, by this seed (0: do not)."),
        Option(name="start-delay", metavar="SECONDS", help="From the decision to start a job to its start: 30s (0)."),
        Option(name="resume-cost", metavar="SECONDS", help="What a job that was stopped needs to go on: 90, 2m (0)."),
        Option(name="replay", help="Replay this cluster's own history instead of a trace."),
        Option(name="since", metavar="TIME", help="Of the history: from that long ago, or from a moment (30d)."),
        Option(name="out", metavar="FILE", help="Write the summary there, as JSON."),
        Option(name="jobs", metavar="FILE", help="Write start and end of every job there, as CSV."),
        Option(name="plot", metavar="FILE", help="Draw waits and utilisation over time there, as SVG."),
        Option(name="chart", help="Draw them here, with block characters."),
        JSON,
    ),
    run=run,
    details=(
        "The controller and the planner are those of gqd; only nodes and time are virtual. Policies: fifo, fifo-skip,"
        " easy, easy-user, conservative, sjf, las, default, and the tables of a gq.toml."
    ),
)
