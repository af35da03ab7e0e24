"""Reads traces: a CSV with a line for each job, Slurm's ``sacct --parsable2``, and the Standard Workload Format.

Owns the meaning of their fields; an invalid line is a `UsageError` that names file, line, value and rule.  The format
is recognised by the beginning of the file; ``.gz`` is unpacked.  The cluster is in a file beside a CSV
(``NAME.cluster.json``), in the header of an SWF file, or given with ``--cluster``.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from gq.errors import UsageError
from gq.near_miss import nearest
from gqd.sim.sacct import read_sacct
from gqd.sim.swf import read_swf, swf_pools
from gqd.sim.workload import Pool, SimJob, Site, account_from, gpus_wanted, name_from, setup_for, site_of

COLUMNS = ("job_id", "submit_s", "duration_s", "gpus")
"""Required columns of a CSV; ``user``, ``vc`` and ``requested_s`` are optional, others are ignored."""
JITTER_S = 10
"""A jitter delays a submission by a whole number of seconds from 0 to below this."""

EXAMPLE = '{"variants": {"all": {"pools": [{"pool": "all", "nodes": 4, "gpus_per_node": 8}]}}}'


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    pools: tuple[Pool, ...]
    pool_by: str | None = None
    """Column that names a job's pool; None: all jobs use the first pool."""
    note: str = ""


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    variants: dict[str, Variant]
    default: str = ""


class Trace(NamedTuple):
    """Recorded jobs, and the cluster for which they were."""

    jobs: list[SimJob]
    site: Site


def read_trace(path: Path, cluster: Path | None = None, variant: str | None = None) -> Trace:
    """Read the jobs of a file, sorted by submission (stable), and the cluster."""
    text = _text_of(path)
    kind = _kind_of(text)
    chosen = _variant(path, cluster, variant, text if kind == "swf" else "")
    pool_of = _pool_of(chosen)
    match kind:
        case "sacct":
            jobs = read_sacct(text, path, pool_of)
        case "swf":
            jobs = read_swf(text, path, pool_of)
        case _:
            jobs = _read_csv(text, path, pool_of)
    if not jobs:
        raise UsageError("empty_trace", f"{path} contains no job", "a trace has a line for each job")
    site = site_of(chosen.pools)
    return Trace(sorted(jobs, key=lambda job: job.submit_s), msgspec.structs.replace(site, setup=setup_for(jobs)))


def with_jitter(jobs: Iterable[SimJob], seed: int) -> list[SimJob]:
    """The jobs, each submitted up to `JITTER_S` later, by the seed; seed 0 changes nothing."""
    if seed == 0:
        return list(jobs)
    chance = random.Random(seed)
    moved = [msgspec.structs.replace(job, submit_s=job.submit_s + chance.randrange(JITTER_S)) for job in jobs]
    return sorted(moved, key=lambda job: job.submit_s)


def _text_of(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            "unreadable", f"{path} cannot be read: {why}", "--trace names a CSV, sacct or SWF file"
        ) from None


def _kind_of(text: str) -> str:
    """The format: ``sacct``, ``swf`` or ``csv``."""
    first = text.lstrip().partition("\n")[0]
    if first.startswith("JobID") and "|" in first:
        return "sacct"
    is_swf = first.startswith(";") or (len(first.split()) >= 11 and "," not in first)
    return "swf" if is_swf else "csv"


# ── the cluster ───────────────────────────────────────────────────────────────────────────────────────────────────


def _variant(path: Path, cluster: Path | None, variant: str | None, swf: str) -> Variant:
    if cluster is None:
        cluster = _beside(path)
        if not cluster.exists():
            if swf and (pools := swf_pools(swf)):
                return Variant(pools=pools)
            hint = f"describe it with --cluster FILE.json: {EXAMPLE}"
            raise UsageError("no_cluster", f"{cluster}, the cluster of {path.name}, does not exist", hint)
    try:
        known = msgspec.json.decode(cluster.read_bytes(), type=ClusterFile)
    except (OSError, msgspec.DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).replace("`", "")
        raise UsageError(
            "bad_cluster", f"{cluster} is not a description of a cluster: {why}", "gqsim(1) shows an example"
        ) from None
    return _chosen(known, cluster, variant)


def _beside(path: Path) -> Path:
    """``T.csv.gz`` → ``T.cluster.json``"""
    name = path.name
    for suffix in (".gz", ".csv", ".swf", ".txt"):
        name = name.removesuffix(suffix)
    return path.with_name(f"{name}.cluster.json")


def _chosen(known: ClusterFile, path: Path, variant: str | None) -> Variant:
    name = variant or known.default or next(iter(known.variants), "")
    chosen = known.variants.get(name)
    if chosen is None:
        names = list(known.variants)
        close = nearest(name, names)
        hint = (f"did you mean `{close}`? " if close else "") + f"it has {', '.join(f'`{name}`' for name in names)}"
        raise UsageError("unknown_variant", f"{path} has no variant `{name}`", hint)
    wrong = next((pool for pool in chosen.pools if pool.nodes < 1 or pool.gpus_per_node < 1), None)
    if wrong is not None or not chosen.pools:
        what = "no pool" if wrong is None else f"a pool `{wrong.pool}` of {wrong.nodes} × {wrong.gpus_per_node}"
        raise UsageError(
            "bad_cluster", f"{path}: variant `{name}` has {what}", "give each at least one node and one GPU"
        )
    return chosen


def _pool_of(variant: Variant) -> Callable[[Callable[[str], str]], str]:
    """A function that returns a job's pool, given access to its fields."""
    column, first = variant.pool_by, variant.pools[0].pool
    return (lambda field: first) if column is None else (lambda field: field(column))


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_csv(text: str, path: Path, pool_of: Callable[[Callable[[str], str]], str]) -> list[SimJob]:
    lines = csv.DictReader(io.StringIO(text))
    missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
    if missing:
        rule = f"it needs {', '.join(COLUMNS)}; user, vc and requested_s are optional"
        raise UsageError("bad_trace", f"{path} has no column `{missing[0]}`", rule)
    return [_job(row, f"{path}:{lines.line_num}", pool_of) for row in lines]


def _job(row: dict[str, str], place: str, pool_of: Callable[[Callable[[str], str]], str]) -> SimJob:
    vc = account_from(row.get("vc") or "")
    user = name_from(row.get("user") or "") or vc or "user"
    gpus = int(number(row, "gpus", place))
    return SimJob(
        name=row["job_id"],
        user=user,
        account=vc,
        partition=pool_of(lambda column: row.get(column) or ""),
        submit_s=number(row, "submit_s", place),
        duration_s=number(row, "duration_s", place),
        gpus=gpus,
        limit_s=number(row, "requested_s", place) if row.get("requested_s") else None,
        resources=gpus_wanted(gpus),
    )


def number(row: dict[str, str], column: str, place: str) -> float:
    """A number of a row, 0 or more; `UsageError` otherwise."""
    word = row.get(column) or ""
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e15:
        raise UsageError("bad_trace", f"{place}: {column} is `{word}`", "it must be a number, 0 or more")
    return value
