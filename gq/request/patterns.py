"""File name patterns of a job's output, error and input: defaults, and the expansion of ``%j`` and other codes.  Pure.

A pattern is expanded exactly once, from the user's text: a second pass would read the rest of ``%%j`` as a code.  So
orders carry patterns (absolute, see `output_pattern`), and the process that knows all values expands them.

    ====  =======================================================  ====  ==========================================
    %j    job id                                                   %N    node name, up to its first dot
    %A    id of the array, or the job's own                        %n    index of the node in the job
    %a    index of the array task                                  %t    rank of the task (batch script: 0)
    %J    job id; for a step ``12.0``                              %u    user name
    %s    number of the step, or ``batch``                         %x    job name
    %%    a percent sign
    ====  =======================================================  ====  ==========================================

A number between ``%`` and the letter pads numbers with zeros (``%4a`` → ``0007``), at most to 10.  A code whose value
the caller does not know stays; a code outside of the table is refused at submission (`unknown_code`).
"""

from __future__ import annotations

import posixpath
import re

from gq.model.job import JobSpec

DEFAULT_OUTPUT = "gq-%j.out"
DEFAULT_ARRAY_OUTPUT = "gq-%A_%a.out"
CODES = "jAaJsNntux%"
MAX_PADDING = 10

_CODE = re.compile(r"%(\d{0,9})([A-Za-z%])")


def expand_pattern(
    pattern: str,
    *,
    job_id: int,
    name: str,
    user: str,
    node: str | None = None,
    rank: int | None = None,
    node_rank: int | None = None,
    step: int | None = None,
    array_job_id: int | None = None,
    array_task_id: int | None = None,
) -> str:
    """Replace every code of `pattern` whose value is known; ``step`` None is the batch script."""
    if "%" not in pattern:
        return pattern
    values: dict[str, int | str | None] = {
        "j": job_id,
        "A": job_id if array_job_id is None else array_job_id,
        "a": array_task_id,
        "J": job_id if step is None else f"{job_id}.{step}",
        "s": "batch" if step is None else step,
        "N": None if node is None else node.partition(".")[0],
        "n": node_rank,
        "t": rank,
        "u": user,
        "x": name,
        "%": "%",
    }

    def replacement(match: re.Match[str]) -> str:
        value = values.get(match[2])
        if value is None:
            return match[0]
        width = min(int(match[1] or 0), MAX_PADDING)
        return f"{value:0{width}}" if isinstance(value, int) and width else str(value)

    return _CODE.sub(replacement, pattern)


def unknown_code(pattern: str) -> str:
    """Return the first code of `pattern` that is not in the table, such as ``%q``, or ''."""
    return next((match[0] for match in _CODE.finditer(pattern) if match[2] not in CODES), "")


def output_pattern(spec: JobSpec) -> str:
    """Return the absolute pattern of the job's standard output; empty for an interactive job, which has none."""
    if spec.is_interactive:
        return ""
    if spec.output is None:
        return _inside(spec.submit_dir, DEFAULT_ARRAY_OUTPUT if spec.array else DEFAULT_OUTPUT)
    return _inside(spec.chdir, spec.output)


def error_pattern(spec: JobSpec) -> str:
    """Return the absolute pattern of the job's standard error; empty: the file of standard output."""
    return "" if spec.error is None or spec.is_interactive else _inside(spec.chdir, spec.error)


def input_pattern(spec: JobSpec) -> str:
    """Return the absolute pattern of the job's standard input; empty: ``/dev/null``."""
    return "" if spec.input is None or spec.is_interactive else _inside(spec.chdir, spec.input)


def _inside(directory: str, pattern: str) -> str:
    """Join directory and pattern; percent signs in the directory are literal."""
    return posixpath.join(directory.replace("%", "%%"), pattern)
