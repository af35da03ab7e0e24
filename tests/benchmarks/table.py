"""The table at the end, readable on 80 columns, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from tests.benchmarks.row import Row, quantity

_WIDTHS = (30, 10, 14, 8, 10)
_HEAD = ("", "gq", "beside it", "ratio", "bar", "")
_ANSWERS = {True: "yes", False: "NO", None: ""}


def render(rows: Sequence[Row]) -> str:
    lines = [_line(_HEAD).rstrip()]
    for family, of_family in groupby(rows, key=lambda row: row.family):
        lines.append(family)
        lines += [_line(_cells(row)).rstrip() for row in of_family]
    return "\n".join(lines)


def verdict(rows: Iterable[Row], failed: Sequence[str] = ()) -> str:
    """One sentence about the bars, one about what could not be measured."""
    judged = [row for row in rows if row.bar is not None]
    missed = [row.measure for row in judged if not row.holds]
    if not judged and not failed:
        return "nothing here has a bar"
    told = f"{len(judged) - len(missed)} of {len(judged)} bars hold" + (f"; not: {', '.join(missed)}" if missed else "")
    return f"{told}\nnot measured, see above: {', '.join(failed)}" if failed else told


def as_json(row: Row) -> dict[str, object]:
    """Seconds, MiB, counts or counts per second, never rounded."""
    return {
        "family": row.family,
        "measure": row.measure,
        "value": row.value,
        "unit": row.unit,
        "samples": row.samples,
        "beside": None if row.beside is None else row.beside._asdict(),
        "ratio": row.ratio,
        "bar": None if row.bar is None else row.bar.text,
        "holds": row.holds,
    }


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.3g} ×" if row.ratio < 1000 else f"{row.ratio:,.0f} ×"
    beside = "" if row.beside is None else f"{quantity(row.beside.value, row.unit)} {row.beside.name}"
    bar = "" if row.bar is None else row.bar.text
    return f"  {row.measure}", quantity(row.value, row.unit), beside, ratio, bar, _ANSWERS[row.holds]


def _line(cells: Sequence[str]) -> str:
    """Words to the left, numbers to the right; the last column is short."""
    first, *numbers = (
        f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=False))
    )
    return " ".join([first, *numbers, cells[-1]])
