"""When waiting jobs start, and how wrong that was: what `gqstat --start` and `gqstat --accuracy` show."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import msgspec

from gq.cli.framework.columns import JobColumn, column_named, short_label
from gq.cli.framework.connection import ask
from gq.cli.framework.output import Column, JsonValue, is_terminal, local_time, write_json_list, write_table
from gq.connection.client import Client
from gq.model.estimate import AccuracyInfo, StartEstimate
from gq.model.job import JobInfo
from gq.units import format_duration, render_instants
from gq.wire.client import Accuracy, EstimateStarts, JobFilter, QueryAccuracy, StartEstimates

NEVER = "never, because "
"""How a job's sentence begins that cannot start as things stand."""
PROMISED, ESTIMATED = "=", "~"
_WEEK_S = 6 * 86400


def with_estimates(client: Client, chosen: JobFilter, jobs: Sequence[JobInfo]) -> list[JobInfo]:
    """The jobs, with what is known of their start."""
    told = {estimate.job_id: estimate for estimate in estimates(client, chosen)}
    return [_estimated(job, told.get(job.job_id)) for job in jobs]


def estimates(client: Client, chosen: JobFilter) -> Iterator[StartEstimate]:
    """Return the estimates of all pending jobs that match the filter, page by page."""
    query = EstimateStarts(filter=chosen)
    while True:
        page = ask(client, query, StartEstimates)
        yield from page.estimates
        if not page.more or not page.estimates:
            return
        query = msgspec.structs.replace(query, after=page.estimates[-1].job_id)


def _estimated(job: JobInfo, told: StartEstimate | None) -> JobInfo:
    if told is None or job.state != "PENDING":
        return job
    return msgspec.structs.replace(
        job,
        expected_start_at=told.start_at,
        expected_start_p90_at=told.p90_at,
        is_start_promised=told.is_promised,
        queue_position=told.position or None,
        why=f"{NEVER}{told.never}" if told.never else told.why or job.why,
    )


# ── the table of starts ───────────────────────────────────────────────────────────────────────────────────────


def _instant(at: float, now: float) -> str:
    """Short on a terminal: the clock time, with the day of the week or the date where it is another day."""
    if not is_terminal():
        return local_time(at)
    moment = time.localtime(at)
    if moment[:3] == time.localtime(now)[:3]:
        return time.strftime("%H:%M:%S", moment)
    return time.strftime("%a %H:%M" if 0 <= at - now < _WEEK_S else "%Y-%m-%d", moment)


def _start(job: JobInfo, now: float) -> str:
    if job.expected_start_at is not None:
        return _instant(job.expected_start_at, now)
    return "never" if job.why.startswith(NEVER) else "N/A"


def _p90(job: JobInfo, now: float) -> str:
    if job.expected_start_p90_at is None:
        return "N/A"
    return f"{PROMISED if job.is_start_promised else ESTIMATED}{_instant(job.expected_start_p90_at, now)}"


def _why(job: JobInfo, now: float) -> str:
    is_told = job.expected_start_at is None or not job.reason or job.reason == "None"
    return render_instants(job.why, now) if is_told and job.why else f"({job.reason})"


START_COLUMNS = (
    JobColumn("", ("jobid",), "JOBID", short_label, is_number=True),
    column_named("partition"),
    JobColumn("", ("position",), "POS", lambda job, now: str(job.queue_position or "N/A"), is_number=True),
    column_named("name"),
    column_named("username"),
    column_named("gpus"),
    JobColumn("", ("starttime",), "START", _start),
    JobColumn("", ("p90",), "P90", _p90),
    JobColumn("", ("why",), "WHY", _why, is_wide=True, is_wrapped=True),
)


# ── how wrong they were ───────────────────────────────────────────────────────────────────────────────────────

_ACCURACY_COLUMNS = (
    Column("STARTS"),
    Column("JOBS", is_number=True),
    Column("MEDIAN-ERROR", is_number=True),
    Column("P90-ERROR", is_number=True),
    Column("MEDIAN-BIAS", is_number=True),
    Column("IN-BAND", is_number=True),
)


def show_accuracy(client: Client, since: float, as_json: bool, with_header: bool) -> None:
    lines = ask(client, QueryAccuracy(since=since), Accuracy).lines
    if as_json:
        write_json_list(_accuracy_json(line) for line in lines)
    elif not lines:
        told = f"no job that was told an estimate has started since {local_time(since)}: there is nothing to judge yet"
        print(f"gqstat: {told}", file=sys.stderr)
    else:
        write_table(_ACCURACY_COLUMNS, [[_accuracy_row(line) for line in lines]], with_header)


def _accuracy_row(info: AccuracyInfo) -> tuple[str, ...]:
    bias = f"{'-' if info.median_bias_s < 0 else '+'}{format_duration(abs(info.median_bias_s))}"
    errors = (format_duration(info.median_error_s), format_duration(info.p90_error_s))
    return info.kind, str(info.jobs), *errors, bias, f"{100 * info.within_band:.0f}%"


def _accuracy_json(info: AccuracyInfo) -> dict[str, JsonValue]:
    return {
        "starts": info.kind,
        "jobs": info.jobs,
        "median_error_s": info.median_error_s,
        "p90_error_s": info.p90_error_s,
        "median_bias_s": info.median_bias_s,
        "within_band": info.within_band,
    }
