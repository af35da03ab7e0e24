"""The fields of `gqacct`: sacct's names and values, of jobs and of steps, in one table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gq.cli.framework import request_view
from gq.cli.framework.columns import (
    MOST_OF_TASKS,
    NULL,
    asked_memory,
    elapsed_s,
    is_several,
    job_label,
    node_count,
    suspended_s,
)
from gq.cli.framework.output import Column, local_time
from gq.model.job import JobInfo, StepInfo, Usage
from gq.model.nodelist import compress
from gq.model.sweep import format_sweep
from gq.near_miss import nearest
from gq.units import format_duration, format_memory

UNKNOWN_TIME = "Unknown"


class Line(NamedTuple):
    """A job (`step` None) or one of its steps."""

    job: JobInfo
    step: StepInfo | None
    now: float

    @property
    def usage(self) -> Usage:
        return self.job.usage if self.step is None else self.step.usage

    @property
    def elapsed_s(self) -> float:
        if self.step is None:
            return elapsed_s(self.job, self.now)
        if self.step.start_at is None:
            return 0.0
        return max(0.0, (self.now if self.step.end_at is None else self.step.end_at) - self.step.start_at)


class Field(NamedTuple):
    """A column of `gqacct`; `width` 0 is as wide as its values, negative sets to the left."""

    name: str
    value: Callable[[Line], str]
    is_number: bool = False
    is_wide: bool = False
    is_whole: bool = False
    width: int = 0
    short: Callable[[Line], str] | None = None
    """In a table that is for people, where that differs."""

    def in_table(self, line: Line) -> str:
        return (self.short or self.value)(line)

    @property
    def column(self) -> Column:
        return Column(self.name, self.is_number, self.is_wide, is_whole=self.is_whole)

    def fit(self, text: str) -> str:
        """Cut to the width that was asked for, with ``+`` where something is missing."""
        width = abs(self.width)
        if not width:
            return text
        cut = text if len(text) <= width else f"{text[: width - 1]}+"
        return cut.ljust(width) if self.width < 0 else cut.rjust(width)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────


def _job(value: Callable[[JobInfo], str]) -> Callable[[Line], str]:
    """Return a column function that shows the value on the job's line and nothing on lines of its steps."""
    return lambda line: value(line.job) if line.step is None else ""


def _label(line: Line) -> str:
    return job_label(line.job) if line.step is None else f"{job_label(line.job)}.{line.step.step}"


def _short_label(line: Line) -> str:
    return job_label(line.job, MOST_OF_TASKS) if is_several(line.job) else _label(line)


def _raw_label(line: Line) -> str:
    return str(line.job.job_id) if line.step is None else f"{line.job.job_id}.{line.step.step}"


def _name(line: Line) -> str:
    return line.job.name if line.step is None else line.step.name


_CANCELLED_BY = r"it was cancelled by (\S+)"
"""How gqd says whose wish it was."""
_WITHOUT_CODE = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED"})
"""A job that was ended from outside has no code of its own, as in sacct; its steps tell what they died of."""


def _state(line: Line) -> str:
    """sacct's words: of a job also who cancelled it, by number (``CANCELLED by 1000``)."""
    if line.step is not None:
        return line.step.state
    by = re.match(_CANCELLED_BY, line.job.why) if line.job.state == "CANCELLED" else None
    return f"CANCELLED by {_uid_of(by[1], line.job)}" if by else line.job.state


def _uid_of(user: str, job: JobInfo) -> str:
    """The owner's is told; others' are looked up here, and stay names where this host does not know them."""
    if user == job.user:
        return str(job.uid)
    import pwd  # of the few jobs that somebody else cancelled

    try:
        return str(pwd.getpwnam(user).pw_uid)
    except KeyError:
        return user


def _exit_code(line: Line) -> str:
    """``code:signal``"""
    if line.step is None and line.job.state in _WITHOUT_CODE:
        return "0:0"
    ended = line.job if line.step is None else line.step
    return f"{ended.exit_code or 0}:{ended.signal or 0}"


def _start(line: Line) -> str:
    return local_time(line.job.start_at if line.step is None else line.step.start_at, UNKNOWN_TIME)


def _end(line: Line) -> str:
    return local_time(line.job.end_at if line.step is None else line.step.end_at, UNKNOWN_TIME)


def _nodes(line: Line) -> str:
    return compress(line.job.nodes if line.step is None else line.step.nodes) or "None assigned"


def _node_count(line: Line) -> str:
    return str(node_count(line.job) if line.step is None else len(line.step.nodes))


def _cpus(line: Line) -> str:
    return str(line.job.cpus if line.step is None else line.step.cpus)


def _held(count: Callable[[Line], str]) -> Callable[[Line], str]:
    """Nothing is allocated to a job that never started."""
    return lambda line: count(line) if line.step is not None or line.job.grants else "0"


def _gpus(line: Line) -> str:
    return str(line.job.gpus if line.step is None else line.step.gpus)


def _tasks(line: Line) -> str:
    return str(line.job.tasks if line.step is None else line.step.tasks)


def _cpu_time_s(line: Line) -> float:
    return line.elapsed_s * (line.job.cpus if line.step is None else line.step.cpus)


FIELDS: tuple[Field, ...] = (
    Field("JobID", _label, is_whole=True, short=_short_label),
    Field("JobIDRaw", _raw_label),
    Field("JobName", _name, is_wide=True),
    Field("User", _job(lambda job: job.user)),
    Field("UID", _job(lambda job: str(job.uid)), is_number=True),
    Field("Account", lambda line: line.job.account),
    Field("Partition", _job(lambda job: job.partition)),
    Field("QOS", _job(lambda job: job.qos)),
    Field("Reservation", _job(lambda job: job.reservation)),
    Field("Cron", _job(lambda job: job.cron)),
    Field("State", _state, is_whole=True),
    Field("ExitCode", _exit_code, is_whole=True),
    Field("Reason", _job(lambda job: job.reason)),
    Field("FailureClass", _job(lambda job: job.failure_class)),
    Field("Submit", lambda line: local_time(line.job.submit_at)),
    Field("Eligible", lambda line: local_time(line.job.eligible_at, UNKNOWN_TIME)),
    Field("Start", _start),
    Field("End", _end),
    Field("Elapsed", lambda line: _clock(line.elapsed_s), is_number=True),
    Field("ElapsedRaw", lambda line: str(int(line.elapsed_s)), is_number=True),
    Field("Suspended", lambda line: _clock(suspended_s(line.job, line.now)), is_number=True),
    Field("Timelimit", _job(lambda job: format_duration(job.time_limit_s)), is_number=True),
    Field("TimelimitRaw", _job(lambda job: _minutes(job.time_limit_s)), is_number=True),
    Field("NNodes", _node_count, is_number=True),
    Field("AllocNodes", _held(_node_count), is_number=True),
    Field("NodeList", _nodes, is_wide=True),
    Field("NTasks", _tasks, is_number=True),
    Field("NCPUS", _cpus, is_number=True),
    Field("ReqCPUS", _cpus, is_number=True),
    Field("AllocCPUS", _held(_cpus), is_number=True),
    Field("ReqGPUS", _gpus, is_number=True),
    Field("AllocGPUS", _held(_gpus), is_number=True),
    Field("GPUType", _job(lambda job: job.gpu_type or "")),
    Field("Constraints", _job(request_view.constraint)),
    Field("Licenses", _job(request_view.licenses)),
    Field("ReqSwitches", _job(request_view.switches)),
    Field("Roles", _job(request_view.roles)),
    Field("ReqMem", _job(asked_memory), is_number=True),
    Field("MaxRSS", lambda line: format_memory(line.usage.max_rss_mib), is_number=True),
    Field("TotalCPU", lambda line: _clock(line.usage.user_cpu_s + line.usage.system_cpu_s), is_number=True),
    Field("UserCPU", lambda line: _clock(line.usage.user_cpu_s), is_number=True),
    Field("SystemCPU", lambda line: _clock(line.usage.system_cpu_s), is_number=True),
    Field("CPUTime", lambda line: _clock(_cpu_time_s(line)), is_number=True),
    Field("CPUTimeRAW", lambda line: str(int(_cpu_time_s(line))), is_number=True),
    Field("Restarts", _job(lambda job: str(job.restart_count)), is_number=True),
    Field("Preempted", _job(lambda job: str(job.preempted)), is_number=True),
    Field("PreemptedBy", _job(lambda job: job.preempted_by)),
    Field("LostGPU", _job(lambda job: _clock(job.lost_gpu_s)), is_number=True),
    Field("ArrayJobID", _job(lambda job: "" if job.array_job_id is None else str(job.array_job_id))),
    Field("ArrayTaskID", _job(lambda job: "" if job.array_task_id is None else str(job.array_task_id))),
    Field("ArrayTasks", _job(lambda job: job.array_tasks)),
    Field("Sweep", _job(lambda job: format_sweep(job.sweep)), is_wide=True),
    Field("Dependency", _job(lambda job: job.dependency)),
    Field("Billing", _job(lambda job: f"{job.billing:g}"), is_number=True),
    Field("Priority", _job(lambda job: str(job.priority)), is_number=True),
    Field("WorkDir", _job(lambda job: job.chdir), is_wide=True),
    Field("Command", _job(lambda job: job.command or NULL), is_wide=True),
    Field("StdOut", _job(lambda job: job.output_path), is_wide=True),
    Field("StdErr", _job(lambda job: job.error_path), is_wide=True),
    Field("Comment", _job(lambda job: job.comment), is_wide=True),
)

_BY_NAME = {field.name.lower(): field for field in FIELDS}
DEFAULT_FIELDS = tuple(
    _BY_NAME[name]
    for name in ("jobid", "jobname", "partition", "user", "alloccpus", "allocgpus", "elapsed", "state", "exitcode")
)


def _clock(seconds: float) -> str:
    """sacct's form: ``00:01:05``, ``1-00:00:00``."""
    days, rest = divmod(int(seconds), 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def _minutes(seconds: int | None) -> str:
    return "UNLIMITED" if seconds is None else str(-(-seconds // 60))


# ── formats ───────────────────────────────────────────────────────────────────────────────────────────────────

_FIELD = r"(?P<name>[A-Za-z]+)(?:%(?P<width>-?\d{1,4}))?"


def parse_format(text: str) -> list[Field]:
    """``jobid,state%20,nodelist%-40``; names in any case.  ``ValueError`` with a sentence."""
    return [_field(word.strip()) for word in text.split(",") if word.strip()]


def _field(word: str) -> Field:
    match = re.fullmatch(_FIELD, word)
    field = _BY_NAME.get(match["name"].lower()) if match else None
    if match is None or field is None:
        close = nearest(word.partition("%")[0].lower(), list(_BY_NAME))
        hint = f"did you mean `{_BY_NAME[close].name}`?" if close else f"use {' '.join(one.name for one in FIELDS)}"
        raise ValueError(f"`{word}` is not a field; {hint}")
    return field._replace(width=int(match["width"] or 0))
