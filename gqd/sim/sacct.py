"""Reads Slurm's records: the output of ``sacct --parsable2`` (or ``--parsable``) with a header.

Owns the meaning of its fields.  Steps, jobs that never ran and jobs without GPUs are skipped; the number of GPUs is in
``AllocTRES`` (or ``ReqTRES``, ``ReqGRES``).  Times without an offset are taken as UTC; only differences matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gq.errors import UsageError
from gq.units import parse_duration_s
from gqd.sim.workload import SimJob, account_from, gpus_wanted, name_from

NEEDED = ("JobID", "Submit")
_GPUS = re.compile(r"(?:^|,)(?:gres/)?gpu(?::[^=:,]+)?[=:](\d+)")
_NO_LIMIT = frozenset({"", "UNLIMITED", "Partition_Limit", "NONE", "INVALID"})
_NO_TIME = frozenset({"", "Unknown", "None", "N/A"})


def read_sacct(text: str, path: Path, pool_of: Callable[[Callable[[str], str]], str]) -> list[SimJob]:
    """Read the jobs that ran on GPUs; submissions are relative to the first."""
    lines = text.splitlines()
    header = lines[0].strip().rstrip("|").split("|")
    missing = [name for name in NEEDED if name not in header]
    if missing or not {"Elapsed", "ElapsedRaw"} & set(header):
        rule = "ask for `sacct --parsable2 --format=JobID,User,Account,Partition,Submit,Elapsed,Timelimit,AllocTRES`"
        raise UsageError("bad_trace", f"{path} has no field `{(missing or ['Elapsed'])[0]}`", rule)
    jobs = []
    for count, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        values = line.split("|")
        if len(values) < len(header):
            message = f"{path}:{count}: {len(values)} fields; the header has {len(header)}"
            raise UsageError("bad_trace", message, "a line of sacct has a value for each field, even if it is empty")
        row = dict(zip(header, values, strict=False))
        if (job := _job(row, f"{path}:{count}", pool_of)) is not None:
            jobs.append(job)
    first_s = min((job.submit_s for job in jobs), default=0.0)
    return [msgspec.structs.replace(job, submit_s=job.submit_s - first_s) for job in jobs]


def _job(row: dict[str, str], place: str, pool_of: Callable[[Callable[[str], str]], str]) -> SimJob | None:
    """The job of a row; None: a step, a job that never ran, or one without GPUs."""
    if "." in row["JobID"]:
        return None
    gpus = next((int(found[1]) for name in _TRES if (found := _GPUS.search(row.get(name, "")))), 0)
    duration_s = _elapsed_s(row, place)
    if not gpus or not duration_s:
        return None
    account = account_from(row.get("Account", ""))
    return SimJob(
        name=row["JobID"],
        user=name_from(row.get("User", "")) or account or "user",
        account=account,
        partition=pool_of(lambda column: row.get(_FIELDS.get(column, column), "")),
        submit_s=_instant_s(row["Submit"], place),
        duration_s=duration_s,
        gpus=gpus,
        limit_s=_limit_s(row, place),
        resources=gpus_wanted(gpus),
    )


_TRES = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
_FIELDS = {"vc": "Account", "user": "User", "partition": "Partition"}
"""Names of sacct's fields for the columns that ``pool_by`` may name."""


def _elapsed_s(row: dict[str, str], place: str) -> float:
    raw = row.get("ElapsedRaw", "")
    if raw.isdecimal():
        return float(raw)
    return _duration_s(row.get("Elapsed", "") or "00:00:00", "Elapsed", place)


def _limit_s(row: dict[str, str], place: str) -> float | None:
    if (raw := row.get("TimelimitRaw", "")).isdecimal():
        return 60.0 * int(raw)
    word = row.get("Timelimit", "")
    return None if word in _NO_LIMIT else _duration_s(word, "Timelimit", place)


def _duration_s(word: str, field: str, place: str) -> float:
    try:
        seconds = parse_duration_s(word)
    except ValueError:
        seconds = None
    if seconds is None:
        raise UsageError("bad_trace", f"{place}: {field} is `{word}`", "it must be [DAYS-]HOURS:MINUTES:SECONDS")
    return float(seconds)


def _instant_s(word: str, place: str) -> float:
    try:
        if word in _NO_TIME:
            raise ValueError
        at = datetime.fromisoformat(word)
    except ValueError:
        rule = "it must be YYYY-MM-DDTHH:MM:SS (unset SLURM_TIME_FORMAT)"
        raise UsageError("bad_trace", f"{place}: Submit is `{word}`", rule) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
