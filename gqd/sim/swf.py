"""Reads traces of the Standard Workload Format (Parallel Workloads Archive, version 2.2).

Owns the meaning of its 18 fields.  The format counts processors, which are treated as GPUs, on the nodes in the header
(``MaxNodes``, ``MaxProcs``) unless ``--cluster`` describes others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gq.errors import UsageError
from gqd.sim.workload import Pool, SimJob, gpus_wanted

FIELDS = (
    "job_id", "submit_s", "wait_s", "run_s", "procs", "cpu_s", "memory", "procs_asked", "requested_s", "memory_asked",
    "status", "user", "group", "application", "queue", "partition", "after", "think_s",
)  # fmt: skip
_UNKNOWN = -1.0
_HEADER = re.compile(r"^;\s*(MaxNodes|MaxProcs):\s*(\d+)", re.MULTILINE)


def swf_pools(text: str) -> tuple[Pool, ...]:
    """The pool of nodes in the header; empty: the header has none."""
    said = {name: int(count) for name, count in _HEADER.findall(text)}
    nodes = said.get("MaxNodes") or said.get("MaxProcs", 0)
    processors = said.get("MaxProcs") or nodes
    return (Pool(pool="all", nodes=nodes, gpus_per_node=max(1, processors // nodes)),) if nodes else ()


def read_swf(text: str, path: Path, pool_of: Callable[[Callable[[str], str]], str]) -> list[SimJob]:
    """Read the jobs that ran."""
    jobs = []
    for count, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith(";"):
            job = _job(_row(line, f"{path}:{count}"), pool_of)
            if job is not None:
                jobs.append(job)
    return jobs


def _row(line: str, place: str) -> dict[str, float]:
    words = line.split()
    try:
        values = [float(word) for word in words]
    except ValueError:
        values = []
    if len(values) < len(FIELDS):
        rule = f"a line of SWF is {len(FIELDS)} numbers, -1 for unknown values"
        raise UsageError("bad_trace", f"{place}: `{line.strip()[:60]}` is not a job", rule)
    return dict(zip(FIELDS, values, strict=False))


def _job(row: dict[str, float], pool_of: Callable[[Callable[[str], str]], str]) -> SimJob | None:
    """The job of a row; None: it never ran."""
    processors = int(row["procs"] if row["procs"] > 0 else row["procs_asked"])
    if row["run_s"] <= 0 or processors <= 0 or row["submit_s"] < 0:
        return None
    group = "" if row["group"] == _UNKNOWN else f"group{row['group']:.0f}"
    return SimJob(
        name=f"{row['job_id']:.0f}",
        user=f"user{row['user']:.0f}" if row["user"] != _UNKNOWN else group or "user",
        account=group,
        partition=pool_of(lambda column: f"{row.get(_COLUMNS.get(column, column), _UNKNOWN):.0f}"),
        submit_s=row["submit_s"],
        duration_s=row["run_s"],
        gpus=processors,
        limit_s=row["requested_s"] if row["requested_s"] > 0 else None,
        resources=gpus_wanted(processors),
    )


_COLUMNS = {"vc": "group"}
"""Names of an SWF row's fields for the columns that ``pool_by`` may name."""
