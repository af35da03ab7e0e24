"""Text for people and programs: tables, JSON, plain lines.  The only place that decides how output looks.

A table on a terminal is drawn by rich (imported only then) and fits its width; a table in a pipe is plain text, as
wide as its longest values, never cut.  Times are local in tables and ISO 8601 with offset in JSON.  Data goes to
stdout, everything else to stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from gq.host.error_text import folded
from gq.model.job import JobInfo, StepInfo
from gq.model.node import GpuInfo, NodeInfo
from gq.model.sweep import parameters
from gq.model.text import escape_controls
from gq.units import iso_instant, render_instants

JsonValue = object
"""Any value that msgspec can encode: dict, list, tuple, str, numbers, bool, None, Struct."""


class Column(NamedTuple):
    """A column of a table."""

    header: str
    is_number: bool = False
    is_wide: bool = False
    """Gives way first where the terminal is narrow."""
    is_wrapped: bool = False
    """Goes on in the next line where it would be cut."""
    is_whole: bool = False
    """Gives way last."""


Row = Sequence[str]
"""Columns for a value, however narrow the terminal is."""


def is_terminal() -> bool:
    return sys.stdout.isatty()


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────


def write_table(columns: Sequence[Column], pages: Iterable[Iterable[Row]], with_header: bool = True) -> None:
    """Print a table.  In a pipe each page is written as it comes, so that a long list starts at once."""
    if is_terminal():
        _write_rich(columns, [row for page in pages for row in page], with_header)
        return
    header = [column.header for column in columns]
    widths = [0] * len(columns)
    for page in pages:
        rows = list(page)
        if with_header:
            rows.insert(0, header)
            with_header = False
        _write_plain(columns, widths, rows)
    if with_header:
        _write_plain(columns, widths, [header])


MAX_PADDING = 48
"""Width of a text column in a pipe, unless most of its values are longer: a few long values widen only their lines."""


def _widen(widths: list[int], rows: Iterable[Row]) -> None:
    for row in rows:
        for position, cell in enumerate(row):
            if len(cell) > widths[position]:
                widths[position] = len(cell)


def _write_plain(columns: Sequence[Column], widths: list[int], rows: Sequence[Row]) -> None:
    """Write the table by columns, which takes half the time of rows for a long page; `widths` grow as needed."""
    padded = []
    for position, cells in enumerate(zip(*rows, strict=True)):
        if not "".join(cells).isprintable():
            cells = tuple([printable(cell) for cell in cells])
        usual = sorted(map(len, cells))
        longest = usual[-1] if columns[position].is_number else _padding(usual)
        width = widths[position] = max(widths[position], longest)
        if columns[position].is_number:
            padded.append([cell.rjust(width) for cell in cells])
        else:
            padded.append([cell.ljust(width) for cell in cells])
    if padded:
        sys.stdout.write("\n".join([" ".join(line).rstrip() for line in zip(*padded, strict=True)]) + "\n")


def _padding(lengths: Sequence[int]) -> int:
    """The width of a text column, by the sorted lengths of its values: one far longer than the rest widens no line."""
    most = max(MAX_PADDING, lengths[(len(lengths) - 1) * 9 // 10])
    return max(length for length in (0, *lengths) if length <= most)


def _write_rich(columns: Sequence[Column], rows: Sequence[Row], with_header: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [len(column.header) if with_header else 0 for column in columns]
    _widen(widths, cells)
    _narrow(widths, columns, cells, console.width - len(columns) + 1)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=with_header, header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        table.add_column(
            column.header, justify=justify, width=width, no_wrap=not column.is_wrapped, overflow="ellipsis"
        )
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _narrow(widths: list[int], columns: Sequence[Column], rows: Sequence[Row], room: int) -> None:
    """Take from the widest column, again and again, until the line fits.

    Wide texts are cut first, then headers, then other texts, then numbers; a column that should be whole comes last.
    """
    texts = [position for position, column in enumerate(columns) if not column.is_number and not column.is_whole]
    numbers = [position for position, column in enumerate(columns) if column.is_number and not column.is_whole]
    longest = [max(map(len, cells)) for cells in zip(*rows, strict=True)] if rows else [0] * len(columns)
    words = [_longest_word(position, rows) if column.is_wrapped else 0 for position, column in enumerate(columns)]
    steps: tuple[tuple[Sequence[int], int, Sequence[int]], ...] = (
        ([position for position in texts if columns[position].is_wide], 8, words),
        (texts, 4, longest),
        (numbers, 7, longest),
        (texts, 4, words),
        (numbers, 4, longest),
        ([*texts, *numbers], 2, words),
        (range(len(columns)), 2, words),
    )
    for giving, least, kept in steps:
        able = [position for position in giving if widths[position] > max(least, kept[position])]
        while able and sum(widths) > room:
            widest = max(able, key=widths.__getitem__)
            widths[widest] -= 1
            if widths[widest] <= max(least, kept[widest]):
                able.remove(widest)


def _longest_word(position: int, rows: Sequence[Row]) -> int:
    return max((len(word) for row in rows for word in row[position].split()), default=0)


def printable(text: str) -> str:
    """The text with what would move the cursor replaced: names and comments come from other people."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def write_sentence(text: str) -> None:
    """A sentence, which goes on in the next line of a terminal at a whole word."""
    for line in folded(text, sys.stdout):
        write_line(line)


def write_records(records: Iterable[Mapping[str, JsonValue]]) -> None:
    """Each record as lines of name and value, with an empty line between two."""
    is_first = True
    for record in records:
        if not is_first:
            write_line("")
        is_first = False
        width = max(map(len, record), default=0)
        for name, value in record.items():
            texts = [line for text in _texts(value) for line in folded(printable(text), sys.stdout, width + 2)]
            for position, text in enumerate(texts):
                write_line(f"{'' if position else name:{width}}  {text}".rstrip())


def _texts(value: JsonValue) -> list[str]:
    """How a value reads: a list of names on one line, other lists on a line for each element."""
    match value:
        case None:
            return ["-"]
        case bool():
            return ["yes" if value else "no"]
        case list() if value:
            return [text for one in value for text in _texts(one)]
        case dict():
            return [" ".join(f"{name}={_listed(one)}" for name, one in value.items()) or "-"]
        case list() | tuple():
            return [" ".join(map(str, value)) or "-"]
        case _:
            return [str(value) or "-"]


def _listed(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────


def json_text(value: object, indent: int = 0) -> str:
    """`value` as JSON whose strings hold no character that a terminal obeys; ``indent`` 0: on one line."""
    data = msgspec.json.encode(value)
    return escape_controls((msgspec.json.format(data, indent=indent) if indent else data).decode(), kept="\n")


def write_json(value: JsonValue) -> None:
    sys.stdout.write(json_text(value, indent=2) + "\n")


def write_json_list(values: Iterable[JsonValue]) -> None:
    """Write a JSON list while its elements arrive, with an element per line."""
    separator = "[\n"
    for value in values:
        sys.stdout.write(separator + json_text(value))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def job_json(job: JobInfo) -> dict[str, JsonValue]:
    """A job as programs see it: the keys of the documented contract, in its order."""
    return {
        "job_id": job.job_id,
        "array_job_id": job.array_job_id,
        "array_task_id": job.array_task_id,
        "array_tasks": job.array_tasks,
        "sweep": dict(job.sweep),
        "parameters": {} if job.array_task_id is None else parameters(job.sweep),
        "name": job.name,
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "reservation": job.reservation,
        "cron": job.cron,
        "state": job.state,
        "reason": job.reason,
        "why": render_instants(job.why),
        "nodes": job.nodes,
        "gpus": job.gpus,
        "cpus": job.cpus,
        "memory_mib": job.memory_mib,
        "time_limit_s": job.time_limit_s,
        "submit_at": iso_instant(job.submit_at),
        "eligible_at": iso_instant(job.eligible_at),
        "start_at": iso_instant(job.start_at),
        "end_at": iso_instant(job.end_at),
        "suspended_at": iso_instant(job.suspended_at),
        "suspended_s": job.suspended_s,
        "parked_for": job.parked_for or None,
        "runs_on_parked": list(job.runs_on_parked),
        "expected_start_at": iso_instant(job.expected_start_at),
        "expected_start_p90_at": iso_instant(job.expected_start_p90_at),
        "is_start_promised": job.is_start_promised,
        "queue_position": job.queue_position,
        "expected_s": job.expected_s,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "failure_class": job.failure_class,
        "restart_count": job.restart_count,
        "borrows": list(job.borrows),
        "preempted": job.preempted,
        "preempted_by": job.preempted_by or None,
        "preempted_at": iso_instant(job.preempted_at),
        "lost_gpu_s": job.lost_gpu_s,
        "resume_s": job.resume_s,
        "priority": job.priority,
        "dependency": job.dependency,
    }


def step_json(step: StepInfo) -> dict[str, JsonValue]:
    """A step of `gqacct --json`."""
    return {
        "job_id": step.job_id,
        "step": step.step,
        "name": step.name,
        "state": step.state,
        "nodes": step.nodes,
        "tasks": step.tasks,
        "cpus": step.cpus,
        "gpus": step.gpus,
        "start_at": iso_instant(step.start_at),
        "end_at": iso_instant(step.end_at),
        "exit_code": step.exit_code,
        "signal": step.signal,
    }


def node_json(node: NodeInfo) -> dict[str, JsonValue]:
    """A node as programs see it: the keys of the documented contract, in its order."""
    return {
        "node": node.node,
        "state": node.state,
        "reason": node.reason,
        "partitions": node.partitions,
        "cpus": node.cpus,
        "cpus_free": node.cpus_free,
        "memory_mib": node.memory_mib,
        "memory_free_mib": node.memory_free_mib,
        "gpus": [_gpu_json(gpu) for gpu in node.gpus],
        "isolation": {name: getattr(node.isolation, name) for name in node.isolation.__struct_fields__},
        "features": node.features,
        "attributes": node.attributes,
        "resources": node.resources,
        "resources_free": node.resources_free,
        "data": node.data,
        "switch": node.switch,
    }


def _gpu_json(gpu: GpuInfo) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = {name: getattr(gpu, name) for name in gpu.__struct_fields__}
    return shown | {"xids": [{"xid": error.xid, "at": iso_instant(error.at)} for error in gpu.xids]}


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────


def local_time(at: float | None, unknown: str = "N/A") -> str:
    """``2026-11-21T01:25:32`` in the reader's time zone."""
    return unknown if at is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


def recent_time(at: float) -> str:
    """Short on a terminal, where room is little, as long as it says which year is meant."""
    then, now = time.localtime(at), time.localtime()
    is_short = is_terminal() and then.tm_year == now.tm_year
    return time.strftime("%m-%d %H:%M:%S", then) if is_short else local_time(at)


def sentence(text: str) -> str:
    """A sentence of the controller as this reader says it: its instants in local time."""
    return printable(render_instants(text, time.time()))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
