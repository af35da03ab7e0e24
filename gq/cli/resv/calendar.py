"""`gqresv cal`: a week of GPUs × hours, drawn for the width and the height that there are."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from gq.calendar.times import moment, zone_name
from gq.cli.framework.connection import ask, controller, job_pages
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import JsonValue, is_terminal, printable, write_json_list, write_line
from gq.cli.resv import grid
from gq.cli.resv.listing import all_reservations
from gq.cli.resv.options import zone_of
from gq.cli.resv.render import current, what
from gq.cli.views.estimates import estimates
from gq.connection.client import Client
from gq.errors import Refusal
from gq.model.reservation import ReservationInfo
from gq.near_miss import suggestion
from gq.request.getopt import Arguments
from gq.units import iso_instant, spoken_duration
from gq.wire.client import JobFilter, ListJobs, ListNodes, Nodes

MOST_DAYS = 31
_WEEK = 7
_CELL_HOURS = (1, 2, 3, 4, 6, 12, 24)
_MOST_LABEL = 16
_LEAST_ROWS = 6
_FANCY = {grid.FREE: "·", grid.BUSY: "▒", grid.PARTLY: "░", grid.PROMISED: "◆"}
_BAR, _FANCY_BAR = "|", "│"
_STYLES = ("green", "cyan", "magenta", "yellow", "blue", "red")
_VIEWS = {"gpu": grid.by_gpu, "node": grid.by_node, "type": grid.by_type}


class Calendar(NamedTuple):
    """All that is drawn."""

    zone: tzinfo
    first: datetime
    days: int
    now: float
    nodes: Nodes
    reservations: list[ReservationInfo]
    blocks: list[grid.Block]

    @property
    def begin_at(self) -> float:
        return self.first.replace(tzinfo=self.zone).timestamp()

    @property
    def end_at(self) -> float:
        return (self.first + timedelta(days=self.days)).replace(tzinfo=self.zone).timestamp()


def show_calendar(arguments: Arguments) -> int:
    refuse_operands(arguments)
    now, zone = time.time(), zone_of(arguments)
    view = arguments.read("by", _view)
    begin = arguments.read("from", lambda text: moment(text, now, zone))
    days = arguments.integer("days", 1, MOST_DAYS) or _WEEK
    with controller() as client:
        shown = _read(client, grid.midnight(begin.at if begin else now, zone), days, zone, now)
    if arguments.has("json"):
        write_json_list(_json(block) for block in shown.blocks)
    else:
        _draw(shown, view)
    return 0


def _view(text: str) -> str:
    if text not in _VIEWS:
        raise ValueError(
            f"`{text}` is not a valid value; " + suggestion(text, _VIEWS, f"use one of {', '.join(_VIEWS)}")
        )
    return text


def _read(client: Client, first: datetime, days: int, zone: tzinfo, now: float) -> Calendar:
    empty = Calendar(zone, first, days, now, ask(client, ListNodes(), Nodes), [], [])
    begin_at, end_at = empty.begin_at, empty.end_at
    if not empty.nodes.nodes:
        raise Refusal("no_nodes", "there are no nodes to draw", "gqinfo shows what the cluster has")
    reservations = all_reservations(client, since=begin_at)
    running = [job for page in job_pages(client, ListJobs(filter=JobFilter(states=("RUNNING",)))) for job in page]
    blocks = [
        *grid.of_reservations(reservations),
        *grid.of_jobs(running, now, end_at),
        *grid.of_starts(estimates(client, JobFilter()), end_at),
    ]
    seen = [block for block in blocks if block.begin_at < end_at and block.end_at > begin_at]
    return empty._replace(reservations=reservations, blocks=seen)


def _json(block: grid.Block) -> dict[str, JsonValue]:
    return {
        "kind": block.kind,
        "name": block.name,
        "start_at": iso_instant(block.begin_at),
        "end_at": iso_instant(block.end_at),
        "node": block.node,
        "gpus": block.gpus,
    }


# ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────────


def _draw(shown: Calendar, view: str | None) -> None:
    size = shutil.get_terminal_size()
    letters = grid.letters_of(shown.blocks)
    legend = _legend(shown, letters)
    units = grid.units_of(shown.nodes.nodes)
    room = max(_LEAST_ROWS, size.lines - len(legend) - 5) if is_terminal() else len(units)
    hours = _cell_hours(size.columns, shown.days, _MOST_LABEL)
    rows = _rows(grid.paint(units, shown.blocks, _edges(shown, hours), letters), view, room)
    label = min(_MOST_LABEL, max(len(row.label) for row in rows))
    hours = _cell_hours(size.columns, shown.days, label)
    rows = _rows(grid.paint(units, shown.blocks, _edges(shown, hours), letters), view, room)
    write_line(_title(shown, hours)[: size.columns])
    for line in _heads(shown, hours, label):
        write_line(line.rstrip())
    for row in rows:
        _write(_row(row, 24 // hours, label), size.columns, letters, slice(label, None))
    for line in legend:
        _write(line, size.columns, letters, slice(0, line[1:2] == " "))


def _rows(painted: Mapping[grid.Unit, grid.Cells], view: str | None, room: int) -> list[grid.Row]:
    """Return the rows of the requested view, else of the most detailed view that fits."""
    if view is not None:
        return _VIEWS[view](painted)
    fitting = (rows for rows in (draw(painted) for draw in _VIEWS.values()) if len(rows) <= room)
    return next(fitting, grid.by_type(painted))


def _edges(shown: Calendar, hours: int) -> list[float]:
    return grid.bounds(shown.first, shown.days, hours, shown.zone)


def _cell_hours(columns: int, days: int, label: int) -> int:
    """Return the smallest number of hours per cell that fits the width of the terminal."""
    fitting = (hours for hours in _CELL_HOURS if label + days * (24 // hours + 1) + 1 <= columns)
    return next(fitting, _CELL_HOURS[-1])


def _title(shown: Calendar, hours: int) -> str:
    last = shown.first + timedelta(days=shown.days - 1)
    return f"{shown.first:%a %Y-%m-%d} to {last:%a %Y-%m-%d} ({zone_name(shown.zone)}), {hours} h a column"


def _heads(shown: Calendar, hours: int, label: int) -> Iterator[str]:
    """The days, and the hours with a mark where it is now."""
    width, bar = 24 // hours, _bar()
    days = [shown.first + timedelta(days=index) for index in range(shown.days)]
    names = [f"{day:%a} {day.day}" if width >= 6 else f"{day.day}" for day in days]
    yield bar.join([" " * label, *(name.ljust(width)[:width] for name in names)])
    ticks = [_ticks(hours, width)] * shown.days
    here = datetime.fromtimestamp(shown.now, shown.zone).replace(tzinfo=None)
    if shown.first <= here < shown.first + timedelta(days=shown.days):
        today, cell = (here - shown.first).days, here.hour // hours
        ticks[today] = f"{' ' * cell}{'v' if bar == _BAR else '▼'}".ljust(width)
    yield bar.join([" " * label, *ticks])


def _ticks(hours: int, width: int) -> str:
    """``0   12``: as many hours as can be told apart."""
    step = next((step for step in (6, 12) if step // hours >= 3), 24)
    marks = "".join(str(hour).ljust(step // hours) for hour in range(0, 24, step))
    return marks.ljust(width)[:width]


def _row(row: grid.Row, width: int, label: int) -> str:
    name = printable(row.label)
    name = name if len(name) <= label else f"{name[: label - 1]}~"
    days = ["".join(row.cells[index : index + width]) for index in range(0, len(row.cells), width)]
    if _is_fancy():
        days = ["".join(_FANCY.get(cell, cell) for cell in day) for day in days]
    return _bar().join([name.ljust(label), *days])


def _legend(shown: Calendar, letters: Mapping[str, str]) -> list[str]:
    by_name = {info.booking.name: info for info in shown.reservations if grid.of_reservations([info])}
    lines = [_told(letter, by_name[name], shown.zone) for name, letter in letters.items() if letter != grid.REST]
    if len(letters) > len(lines):
        lines.append(f"{grid.REST} {len(letters) - len(lines)} more")
    keys = {"jobs": grid.BUSY, "on some GPUs": grid.PARTLY, "promised start": grid.PROMISED, "free": grid.FREE}
    told = [f"{_FANCY[sign] if _is_fancy() else sign} {word}" for word, sign in keys.items()]
    return ["", *lines, "  ".join([*told, "a: on some GPUs", f"{grid.SEVERAL} several"])]


def _told(letter: str, info: ReservationInfo, zone: tzinfo) -> str:
    asked, one = info.booking, current(info)
    kept = what(asked)
    if asked.cron or one is None:
        where = "" if asked.zone == zone_name(zone) else f" ({asked.zone})"
        when = f"at `{asked.cron}`{where}, for {spoken_duration(asked.duration_s)}"
    else:
        end_at = one.end_at if one.ended_at is None else one.ended_at
        when = f"{_short(one.begin_at, zone)} - {_short(end_at, zone)}"
    return printable(f"{letter} {asked.name} ({info.owner}): {kept}, {when}")


def _short(at: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(at, zone).strftime("%a %m-%d %H:%M")


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────


def _is_fancy() -> bool:
    """The output can show more than ASCII."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return encoding == "utf8"


def _bar() -> str:
    return _FANCY_BAR if _is_fancy() else _BAR


def _write(line: str, columns: int, letters: Mapping[str, str], coloured: slice) -> None:
    """The line as far as there is room, and on a terminal in that part of it each letter in its colour."""
    line = line[:columns].rstrip()
    if not is_terminal():
        write_line(line)
        return
    from rich.console import Console
    from rich.text import Text

    text = Text(line)
    for index in range(len(line))[coloured]:
        if (letter := line[index].upper()) in letters.values():
            text.stylize(f"bold {_STYLES[ord(letter) % len(_STYLES)]}", index, index + 1)
    sys.stdout.flush()
    Console(highlight=False, width=columns).print(text, no_wrap=True, overflow="crop")
