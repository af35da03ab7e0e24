"""Draws waits and utilisation over time, as the text of an SVG file and as block characters for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from gqd.sim.report import Course, Floats

BLOCKS = " ▁▂▃▄▅▆▇█"
SVG_PIECES = 400
WIDTH, HEIGHT, LEFT, GAP = 960, 220, 80, 50
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Colours that the colour-blind can distinguish; names beside the lines carry the meaning."""
DAY_S = 86400.0


# ── terminal ──────────────────────────────────────────────────────────────────────────────────────────────────────


def blocks(courses: Sequence[Course]) -> str:
    """Two lines for each policy: the share of the GPUs in use, and the mean wait by time of submission."""
    top_s = _longest_wait(courses)
    name = max(len(course.name) for course in courses)
    days = courses[0].span_s / DAY_S
    lines = [f"GPUs in use, of all, over {days:.1f} days"]
    lines += [f"{course.name:{name}} {_bars(course.used, 1.0)}" for course in courses]
    lines.append(f"mean wait of those who came then; a full block is {_spoken(top_s)}")
    lines += [f"{course.name:{name}} {_bars(course.wait_s, top_s)}" for course in courses]
    return "\n".join(lines) + "\n"


def _bars(values: Floats, top: float) -> str:
    return "".join(BLOCKS[_level(float(value), top)] for value in values)


def _level(value: float, top: float) -> int:
    """Index of the block character for a value; any positive value is visible."""
    if math.isnan(value) or value <= 0:
        return 0
    return max(1, min(len(BLOCKS) - 1, round(value / top * (len(BLOCKS) - 1))))


def _longest_wait(courses: Sequence[Course]) -> float:
    return max((float(wait) for course in courses for wait in course.wait_s if wait > 0), default=1.0)


def _spoken(seconds: float) -> str:
    for unit_s, unit in ((DAY_S, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.1f} {unit}"
    return f"{seconds:.0f} s"


# ── SVG ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def svg(courses: Sequence[Course], title: str) -> str:
    """An SVG with two panels, one above the other, over the same time."""
    top_s = _longest_wait(courses)
    bottom = 2 * (HEIGHT + GAP) + 30 + 18 * len(courses)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{bottom}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
        *_panel(30, "GPUs in use", lambda part: f"{100 * part:.0f} %", 1.0, courses[0].span_s),
        *_panel(30 + HEIGHT + GAP, "mean wait", _spoken, top_s, courses[0].span_s),
    ]
    for place, course in enumerate(courses):
        colour = COLOURS[place % len(COLOURS)]
        parts.append(_line(30, [float(one) for one in course.used], 1.0, colour))
        parts.append(_line(30 + HEIGHT + GAP, [float(one) for one in course.wait_s], top_s, colour))
        y = 2 * (HEIGHT + GAP) + 34 + 18 * place
        parts.append(f'<rect x="{LEFT}" y="{y - 4}" width="24" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y + 2}">{escape(course.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(y: int, name: str, told: Callable[[float], str], top: float, span_s: float) -> list[str]:
    """A panel's frame, name, and three horizontal lines."""
    parts = [
        f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999999"/>',
        f'<text x="{LEFT + 6}" y="{y + 15}">{name}</text>',
        f'<text x="{LEFT}" y="{y + HEIGHT + 15}">0</text>',
        f'<text x="{LEFT + WIDTH}" y="{y + HEIGHT + 15}" text-anchor="end">{_spoken(span_s)}</text>',
    ]
    for part in (0.0, 0.5, 1.0):
        at = y + HEIGHT - part * HEIGHT
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{at:g}" y2="{at:g}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:g}" text-anchor="end">{told(part * top)}</text>')
    return parts


def _line(y: int, values: Sequence[float], top: float, colour: str) -> str:
    """A line, interrupted where there is no value."""
    steps: list[str] = []
    is_down = False
    for place, value in enumerate(values):
        if math.isnan(value):
            is_down = False
            continue
        x = LEFT + (place + 0.5) * WIDTH / len(values)
        steps.append(f"{'L' if is_down else 'M'}{x:.1f} {y + HEIGHT - min(1.0, value / top) * HEIGHT:.1f}")
        is_down = True
    return f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linecap="round"/>'
