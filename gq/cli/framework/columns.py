"""The columns of the queue: Slurm's %-codes, field names, headers and values, in one table.

Owns how a job's facts read in a column and the two format languages of `gqstat`: ``-o`` (``%.18i %t``) and ``-O``
(``jobid,state:20``).  Values hold no line ends; reasons are one word, since programs split lines at blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from gq.cli.framework import request_view
from gq.cli.framework.output import Column, local_time, printable
from gq.model.job import JobInfo
from gq.model.nodelist import compress
from gq.model.state import state_letters
from gq.model.sweep import format_sweep, sweep_of_task
from gq.model.tasks import parse_tasks, tasks_in
from gq.near_miss import suggestion
from gq.units import format_duration

DEFAULT_FIELD_WIDTH = 20
MOST_OF_TASKS = 12
"""Characters of the tasks of an array, in a table."""
NULL = "(null)"
_NO_TIME = format_duration(0)


class JobColumn(NamedTuple):
    """A column of the job table."""

    code: str
    """Slurm's letter for ``-o``; empty where Slurm has none."""
    names: tuple[str, ...]
    """For ``-O``, lower case, the first one shown."""
    header: str
    value: Callable[[JobInfo, float], str]
    """From a job and the present instant."""
    is_number: bool = False
    is_wide: bool = False
    is_wrapped: bool = False

    @property
    def column(self) -> Column:
        return Column(self.header, self.is_number, self.is_wide, self.is_wrapped)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────


def job_label(job: JobInfo, most: int | None = None) -> str:
    """``123``, ``100_4`` for a task of an array, ``100_[5-9%2]`` for those that wait in its record.

    `most`: of the tasks at most so many characters, and ``...`` for the rest.
    """
    if job.array_job_id is None and not job.array_tasks:
        return str(job.job_id)
    return array_label(job.job_id, job.array_job_id, job.array_task_id, job.array_tasks, most, _throttle(job))


def array_label(
    job_id: int, array: int | None, task: int | None, tasks: str, most: int | None = None, throttle: str = ""
) -> str:
    if task is not None:
        return f"{array}_{task}"
    return f"{job_id}_[{_shortened(tasks, most)}{throttle}]" if tasks else str(job_id)


def _throttle(job: JobInfo) -> str:
    most = "auto" if job.array_auto else job.array_throttle
    return "" if most is None or job.state != "PENDING" else f"%{most}"


def _shortened(tasks: str, most: int | None) -> str:
    """Cut behind a comma, so that no number is cut in two; the first range is always there."""
    if most is None or len(tasks) <= most or "," not in tasks:
        return tasks
    kept = tasks[: most + 1].rpartition(",")[0] or tasks.partition(",")[0]
    return f"{kept},..."


def is_several(job: JobInfo) -> bool:
    """Whether the job stands for several tasks of an array that have no line of their own."""
    return bool(job.array_tasks) and job.array_task_id is None


def each_task(job: JobInfo) -> Iterator[JobInfo]:
    """The job, or in its place each task that it stands for."""
    if not is_several(job):
        yield job
        return
    for task in tasks_in(parse_tasks(job.array_tasks)):
        own = sweep_of_task(job.sweep, task)
        yield msgspec.structs.replace(job, array_job_id=job.job_id, array_task_id=task, array_tasks="", sweep=own)


def elapsed_s(job: JobInfo, now: float) -> float:
    """Run time of the latest attempt so far, without what it was suspended; 0 while it waits."""
    if job.start_at is None or job.state == "PENDING":
        return 0.0
    until = now if job.end_at is None else job.end_at
    return max(0.0, until - job.start_at - suspended_s(job, until))


def suspended_s(job: JobInfo, now: float) -> float:
    """How long the latest attempt has stood still."""
    return job.suspended_s + (0.0 if job.suspended_at is None else max(0.0, now - job.suspended_at))


def _time_used(job: JobInfo, now: float) -> str:
    return _NO_TIME if job.state == "PENDING" else format_duration(elapsed_s(job, now))


def node_count(job: JobInfo) -> int:
    return len(job.grants) or job.nodes_wanted


def held_nodes(job: JobInfo) -> str:
    """The nodes it holds, or held last; empty while it waits."""
    return "" if job.state == "PENDING" else compress(job.nodes)


def _nodes_or_reason(job: JobInfo, now: float) -> str:
    nodes = held_nodes(job)
    return f"{nodes} ({job.reason})" if nodes and job.parked_for else nodes or f"({job.reason})"


def _time_left(job: JobInfo, now: float) -> str:
    return format_duration(None if job.time_limit_s is None else job.time_limit_s - elapsed_s(job, now))


def _start(job: JobInfo, now: float) -> str:
    return local_time(job.expected_start_at if job.state == "PENDING" else job.start_at)


def _end(job: JobInfo, now: float) -> str:
    """When it ended; of a running job, when its limit ends it (as squeue)."""
    if job.end_at is None and job.start_at is not None and job.time_limit_s is not None:
        return local_time(job.start_at + job.time_limit_s + suspended_s(job, now))
    return local_time(job.end_at)


def asked_memory(job: JobInfo) -> str:
    """Per node or per CPU, as it was asked; 0 where it was not."""
    return request_view.by_role(job.resources, request_view.memory)


def _first_node(job: JobInfo, now: float) -> str:
    return job.nodes[0] if job.nodes and job.state != "PENDING" else "n/a"


def _array_task(job: JobInfo, now: float) -> str:
    """Return a task number, or the pending tasks in squeue's notation: ``5-9%2``."""
    if is_several(job):
        return f"{job.array_tasks}{_throttle(job)}"
    return "N/A" if job.array_task_id is None else str(job.array_task_id)


def short_label(job: JobInfo, now: float) -> str:
    return job_label(job, MOST_OF_TASKS)


def _group(job: JobInfo, now: float) -> str:
    """The owner's own group, as this host knows it."""
    import grp  # for a column that is rarely asked for
    import pwd

    try:
        return grp.getgrgid(pwd.getpwnam(job.user).pw_gid).gr_name
    except KeyError:
        return NULL


def _priority_share(job: JobInfo, now: float) -> str:
    """Return the priority divided by the largest possible priority, as squeue shows it."""
    return f"{job.priority / 2**32:.14f}"


JOB_COLUMNS: tuple[JobColumn, ...] = (
    JobColumn("i", ("jobarrayid",), "JOBID", lambda job, now: job_label(job), is_number=True),
    JobColumn("A", ("jobid",), "JOBID", lambda job, now: str(job.job_id), is_number=True),
    JobColumn("F", ("arrayjobid",), "ARRAY_JOB_ID", lambda job, now: str(job.array_job_id or job.job_id), True),
    JobColumn("K", ("arraytaskid",), "ARRAY_TASK_ID", _array_task, is_number=True),
    JobColumn("P", ("partition",), "PARTITION", lambda job, now: job.partition),
    JobColumn("j", ("name",), "NAME", lambda job, now: job.name, is_wide=True),
    JobColumn("u", ("username", "user"), "USER", lambda job, now: job.user),
    JobColumn("U", ("userid",), "UID", lambda job, now: str(job.uid), is_number=True),
    JobColumn("g", ("groupname",), "GROUP", _group),
    JobColumn("a", ("account",), "ACCOUNT", lambda job, now: job.account or NULL),
    JobColumn("q", ("qos",), "QOS", lambda job, now: job.qos),
    JobColumn("t", ("statecompact",), "ST", lambda job, now: state_letters(job.state)),
    JobColumn("T", ("state",), "STATE", lambda job, now: job.state),
    JobColumn("r", ("reason",), "REASON", lambda job, now: job.reason),
    JobColumn("M", ("timeused",), "TIME", lambda job, now: _time_used(job, now), is_number=True),
    JobColumn("l", ("timelimit",), "TIME_LIMIT", lambda job, now: format_duration(job.time_limit_s), is_number=True),
    JobColumn("L", ("timeleft",), "TIME_LEFT", _time_left, is_number=True),
    JobColumn("S", ("starttime",), "START_TIME", _start),
    JobColumn("e", ("endtime",), "END_TIME", _end),
    JobColumn("V", ("submittime",), "SUBMIT_TIME", lambda job, now: local_time(job.submit_at)),
    JobColumn("D", ("numnodes",), "NODES", lambda job, now: str(node_count(job)), is_number=True),
    JobColumn("c", ("mincpus",), "MIN_CPUS", lambda job, now: str(job.resources.cpus_per_task or 1), is_number=True),
    JobColumn("C", ("numcpus",), "CPUS", lambda job, now: str(job.cpus), is_number=True),
    JobColumn("", ("gpus", "numgpus"), "GPUS", lambda job, now: str(job.gpus), is_number=True),
    JobColumn("", ("gputype",), "GPU_TYPE", lambda job, now: job.gpu_type or NULL),
    JobColumn("", ("numtasks",), "TASKS", lambda job, now: str(job.tasks), is_number=True),
    JobColumn("m", ("minmemory",), "MIN_MEMORY", lambda job, now: asked_memory(job), is_number=True),
    JobColumn("b", ("tres-per-node", "gres"), "TRES_PER_NODE", lambda job, now: request_view.per_node(job) or "N/A"),
    JobColumn("f", ("feature", "constraint"), "FEATURES", lambda job, now: request_view.constraint(job) or NULL),
    JobColumn("", ("prefer",), "PREFER", lambda job, now: request_view.preference(job) or NULL),
    JobColumn("", ("reqswitch",), "REQ_SWITCH", lambda job, now: request_view.switches(job) or "0"),
    JobColumn("W", ("licenses",), "LICENSES", lambda job, now: request_view.licenses(job) or NULL),
    JobColumn("d", ("mintmpdisk",), "MIN_TMP_DISK", lambda job, now: request_view.scratch(job), is_number=True),
    JobColumn("", ("data",), "DATA", lambda job, now: request_view.data(job) or NULL),
    JobColumn("", ("roles",), "ROLES", lambda job, now: request_view.roles(job) or NULL),
    JobColumn("N", ("nodelist",), "NODELIST", lambda job, now: held_nodes(job), is_wide=True),
    JobColumn("R", ("reasonlist",), "NODELIST(REASON)", _nodes_or_reason, is_wide=True),
    JobColumn("B", ("batchhost",), "EXEC_HOST", _first_node),
    JobColumn("n", ("reqnodes",), "REQ_NODES", lambda job, now: request_view.nodes(job)),
    JobColumn("x", ("excnodes",), "EXC_NODES", lambda job, now: request_view.left_out(job)),
    JobColumn("p", ("prioritynormalized",), "PRIORITY", _priority_share, is_number=True),
    JobColumn("Q", ("priority", "prioritylong"), "PRIORITY", lambda job, now: str(job.priority), is_number=True),
    JobColumn("y", ("nice",), "NICE", lambda job, now: str(job.nice), is_number=True),
    JobColumn("o", ("command",), "COMMAND", lambda job, now: job.command or NULL, is_wide=True),
    JobColumn("Z", ("workdir",), "WORK_DIR", lambda job, now: job.chdir, is_wide=True),
    JobColumn("E", ("dependency",), "DEPENDENCY", lambda job, now: job.dependency or NULL, is_wide=True),
    JobColumn("v", ("reservation",), "RESERVATION", lambda job, now: job.reservation or NULL),
    JobColumn("", ("cron",), "CRON", lambda job, now: job.cron or NULL),
    JobColumn("", ("deadline",), "DEADLINE", lambda job, now: local_time(job.deadline_at)),
    JobColumn("", ("arraytasks",), "ARRAY_TASKS", lambda job, now: job.array_tasks or NULL, is_wide=True),
    JobColumn("", ("sweep", "parameters"), "SWEEP", lambda job, now: format_sweep(job.sweep) or NULL, is_wide=True),
    JobColumn("", ("billing",), "BILLING", lambda job, now: f"{job.billing:g}", is_number=True),
    JobColumn("k", ("comment",), "COMMENT", lambda job, now: job.comment or NULL, is_wide=True),
    JobColumn("", ("stdout",), "STDOUT", lambda job, now: job.output_path, is_wide=True),
    JobColumn("", ("stderr",), "STDERR", lambda job, now: job.error_path, is_wide=True),
    JobColumn("", ("restartcnt",), "RESTARTS", lambda job, now: str(job.restart_count), is_number=True),
)

_BY_CODE = {column.code: column for column in JOB_COLUMNS if column.code}
_BY_NAME = {name: column for column in JOB_COLUMNS for name in column.names}

_SHORT_ID = _BY_NAME["jobarrayid"]._replace(value=short_label)
"""Short form of an id for tables; custom formats show the whole id."""
DEFAULT_COLUMNS = (_SHORT_ID, *(
    _BY_NAME[name]
    for name in ("partition", "name", "username", "statecompact", "timeused", "numnodes", "gpus", "reasonlist")
))  # fmt: skip


def column_named(name: str) -> JobColumn:
    return _BY_NAME[name]


# ── formats ───────────────────────────────────────────────────────────────────────────────────────────────────


class Piece(NamedTuple):
    """A literal (`column` None), or a column with its width."""

    column: JobColumn | None
    text: str = ""
    width: int = 0
    """0: as long as the value."""
    is_right: bool = False

    def render(self, value: str) -> str:
        if not self.width:
            return value
        cut = value[: self.width]
        return cut.rjust(self.width) if self.is_right else cut.ljust(self.width)


class Format(NamedTuple):
    """A line made of pieces."""

    pieces: tuple[Piece, ...]

    def header(self) -> str:
        return "".join(
            piece.text if piece.column is None else piece.render(piece.column.header) for piece in self.pieces
        )

    def line(self, job: JobInfo, now: float) -> str:
        return "".join(
            piece.text if piece.column is None else piece.render(printable(piece.column.value(job, now)))
            for piece in self.pieces
        )


_CODE = r"%+(?P<right>\.)?(?P<width>\d+)?(?P<code>[A-Za-z!-~])"
"""Not compiled until it is needed: that takes longer than all of this module."""


def parse_codes(text: str) -> Format:
    """Slurm's ``-o``: ``%[[.]width]code`` and literal text; a dot sets to the right.  ``ValueError`` if not."""
    pieces: list[Piece] = []
    position = 0
    for match in re.finditer(_CODE, text):
        column = _BY_CODE.get(match["code"])
        if column is None:
            raise ValueError(
                f"`%{match['code']}` is not a column; use one of {' '.join(f'%{code}' for code in _BY_CODE)}"
            )
        pieces.append(Piece(None, text[position : match.start()]))
        pieces.append(Piece(column, "", int(match["width"] or 0), match["right"] is not None))
        position = match.end()
    return Format((*pieces, Piece(None, text[position:])))


_FIELD = r"(?P<name>[A-Za-z-]+)(?::(?P<right>\.)?(?P<width>\d+))?"


def parse_fields(text: str) -> Format:
    """Slurm's ``-O``: ``name[:[.]width],…``, 20 wide where not said.  ``ValueError`` with a sentence."""
    return Format(tuple(_field(word.strip()) for word in text.split(",") if word.strip()))


def _field(word: str) -> Piece:
    match = re.fullmatch(_FIELD, word)
    column = _BY_NAME.get(match["name"].lower()) if match else None
    if match is None or column is None:
        way_out = suggestion(word.partition(":")[0].lower(), _BY_NAME, f"use {_known()}")
        raise ValueError(f"`{word}` is not a field; {way_out}")
    width = DEFAULT_FIELD_WIDTH if match["width"] is None else int(match["width"])
    return Piece(column, "", width, match["right"] is not None)


def _known() -> str:
    return " ".join(column.names[0] for column in JOB_COLUMNS)
