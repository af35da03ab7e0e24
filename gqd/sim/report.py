"""Results of a replay: the summary, the file of starts, and utilisation and waits over time.  Pure.

wait = end − submit − duration; bounded slowdown = max(1, (end − submit) / max(duration, 10 s)); percentiles interpolate
linearly.  Statistics of no jobs are null.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gqd.sim.engine import Run
from gqd.sim.workload import LeftOut, SimJob

Floats = npt.NDArray[np.float64]
WIDE_GPUS = 8
"""Jobs with more GPUs are wide."""
NODE_GPUS = range(5, 9)
BOUND_S = 10.0

Summary = dict[str, float | int | None]


class Replay(NamedTuple):
    """The replay of one policy."""

    name: str
    jobs: Sequence[SimJob]
    run: Run
    dropped: Sequence[LeftOut]
    """Jobs left out before the replay began; `left_out` lists all."""
    gpus: int
    """GPUs of the cluster."""
    wall_s: float


def summary_of(replay: Replay) -> Summary:
    """The summary: the documented keys, in their order."""
    ended = _ended(replay)
    submits, starts, ends, lengths, gpus = ended
    waits, away = ends - submits - lengths, _gaps(replay)
    wide, node = gpus > WIDE_GPUS, (gpus >= NODE_GPUS.start) & (gpus < NODE_GPUS.stop)
    slowdowns = np.maximum(1.0, (ends - submits) / np.maximum(lengths, BOUND_S))
    makespan_s = float(ends.max() - submits.min()) if ends.size else 0.0
    used_gpu_s = float((gpus * (ends - starts)).sum()) - float((away[2] * (away[1] - away[0])).sum())
    return {
        "jobs": int(ends.size),
        "dropped": len(replay.dropped) + len(replay.jobs) - int(ends.size),
        "makespan_s": makespan_s,
        "mean_wait_s": _mean(waits),
        "median_wait_s": _percentile(waits, 50),
        "p95_wait_s": _percentile(waits, 95),
        "p99_wait_s": _percentile(waits, 99),
        "max_wait_s": _percentile(waits, 100),
        "wide_p95_wait_s": _percentile(waits[wide], 95),
        "node_mean_wait_s": _mean(waits[node]),
        "node_p95_wait_s": _percentile(waits[node], 95),
        "mean_jct_s": _mean(ends - submits),
        "mean_bounded_slowdown": _mean(slowdowns),
        "preemptions": len(away[0]),
        "gpu_utilisation": used_gpu_s / (replay.gpus * makespan_s) if makespan_s else None,
        "wall_s": replay.wall_s,
        "jobs_per_s": len(replay.jobs) / replay.wall_s if replay.wall_s else None,
    }


def left_out(replay: Replay) -> list[LeftOut]:
    """All dropped jobs: left out before the replay, refused by the controller, or never ended."""
    lost = (
        LeftOut(job.name, replay.run.refused.get(place, "it did not end within the replay"))
        for place, (job, end_s) in enumerate(zip(replay.jobs, replay.run.ends_s, strict=True))
        if math.isnan(end_s)
    )
    return [*replay.dropped, *lost]


def _ended(replay: Replay) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """(submits, starts, ends, run times, GPUs) of the jobs that ended."""
    rows = [
        (job.submit_s, start_s, end_s, job.runs_s, job.gpus)
        for job, start_s, end_s in zip(replay.jobs, replay.run.starts_s, replay.run.ends_s, strict=True)
        if not math.isnan(end_s)
    ]
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    return columns[0], columns[1], columns[2], columns[3], columns[4]


def _gaps(replay: Replay) -> tuple[Floats, Floats, Floats]:
    """(from, to, GPUs) of the times during which jobs that ended had been stopped."""
    run = replay.run
    rows = [
        (gap.from_s, gap.to_s, replay.jobs[gap.place].gpus) for gap in run.gaps if not math.isnan(run.ends_s[gap.place])
    ]
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None


def _percentile(values: Floats, part: float) -> float | None:
    return float(np.percentile(values, part)) if values.size else None


# ── the file of starts ────────────────────────────────────────────────────────────────────────────────────────────


def jobs_csv(replay: Replay) -> str:
    """CSV lines ``job_id,submit_s,start_s,end_s,gpus`` of the jobs that ended, in the order of submission."""
    lines = ["job_id,submit_s,start_s,end_s,gpus"]
    for job, start_s, end_s in zip(replay.jobs, replay.run.starts_s, replay.run.ends_s, strict=True):
        if not math.isnan(end_s):
            cells = (_quoted(job.name), *(_seconds(one) for one in (job.submit_s, start_s, end_s)), str(job.gpus))
            lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if set(text) & set(',"\n\r') else text


def _seconds(at: float) -> str:
    """Seconds rounded to microseconds; whole seconds without a decimal point."""
    rounded = round(at, 6)
    return str(int(rounded)) if rounded == int(rounded) else repr(rounded)


# ── over time ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Course(NamedTuple):
    """Utilisation and waits under one policy, in equal intervals from the first submission to the last end."""

    name: str
    span_s: float
    used: Floats
    """Mean share of the GPUs in use, by interval."""
    wait_s: Floats
    """Mean wait (s) of the jobs submitted in each interval; NaN: none were."""


def courses_of(replays: Sequence[Replay], pieces: int) -> list[Course]:
    """The courses of replays, all over the same time."""
    ended = [_ended(replay) for replay in replays]
    first_s = min((float(one[0].min()) for one in ended if one[0].size), default=0.0)
    last_s = max((float(one[2].max()) for one in ended if one[2].size), default=0.0)
    edges = np.linspace(first_s, max(last_s, first_s + 1.0), pieces + 1)
    return [_course(replay, one, edges) for replay, one in zip(replays, ended, strict=True)]


def _course(replay: Replay, ended: tuple[Floats, Floats, Floats, Floats, Floats], edges: Floats) -> Course:
    submits, starts, ends, lengths, gpus = ended
    away_from, away_to, away_gpus = _gaps(replay)
    by_edge = _used_until(ends, gpus, edges, starts) - _used_until(away_to, away_gpus, edges, away_from)
    piece_s = edges[1] - edges[0]
    used = np.diff(by_edge) / (piece_s * max(1, replay.gpus))
    places = np.clip(np.searchsorted(edges, submits, side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(places, minlength=len(edges) - 1)
    sums = np.bincount(places, weights=ends - submits - lengths, minlength=len(edges) - 1)
    waits = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return Course(replay.name, float(edges[-1] - edges[0]), used, waits)


def _used_until(ends: Floats, gpus: Floats, edges: Floats, starts: Floats) -> Floats:
    """GPU-seconds used up to each edge of the intervals."""
    total = np.zeros(len(edges))
    for instants, sign in ((starts, 1.0), (ends, -1.0)):
        order = np.argsort(instants, kind="stable")
        at, weight = instants[order], gpus[order]
        count = np.searchsorted(at, edges, side="right")
        weights = np.concatenate(([0.0], np.cumsum(weight)))
        moments = np.concatenate(([0.0], np.cumsum(weight * at)))
        total += sign * (edges * weights[count] - moments[count])
    return total
