"""How wrong were the first estimates of jobs that have started: from the attempts, which keep them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

import msgspec

from gq.model.estimate import AccuracyInfo, FirstEstimate
from gq.wire.client import QueryAccuracy

MOST = 500_000
"""Starts that one answer is made from, the latest."""

_decode = msgspec.json.Decoder(FirstEstimate).decode
_STARTS = (
    "SELECT estimate, start_at FROM attempts WHERE estimate IS NOT NULL AND start_at >= ? AND start_at < ?"
    " ORDER BY start_at DESC LIMIT ?"
)


class Told(NamedTuple):
    """A job that started, and what it was told first."""

    estimate: FirstEstimate
    start_at: float

    @property
    def error_s(self) -> float:
        """So much later it started than was said."""
        return self.start_at - self.estimate.start_at

    @property
    def is_within(self) -> bool:
        """It had started by the end of the band (a second is nothing)."""
        p90_at = self.estimate.p90_at
        return p90_at is not None and self.start_at <= p90_at + 1.0


def select_told(connection: sqlite3.Connection, query: QueryAccuracy) -> list[Told]:
    until = float("inf") if query.until is None else query.until
    rows = connection.execute(_STARTS, (query.since, until, MOST))
    return [Told(_decode(estimate), start_at) for estimate, start_at in rows]


def lines_of(told: Iterable[Told]) -> tuple[AccuracyInfo, ...]:
    """Promised ones, estimated ones, and all; a kind of which there are none is left out."""
    every = list(told)
    kinds = (
        ("promised", [one for one in every if one.estimate.is_promised]),
        ("estimated", [one for one in every if not one.estimate.is_promised]),
        ("all", every),
    )
    return tuple(_line(kind, some) for kind, some in kinds if some)


def _line(kind: str, told: list[Told]) -> AccuracyInfo:
    errors = sorted(one.error_s for one in told)
    absolute = sorted(map(abs, errors))
    return AccuracyInfo(
        kind=kind,
        jobs=len(told),
        median_error_s=_part(absolute, 0.5),
        p90_error_s=_part(absolute, 0.9),
        median_bias_s=_part(errors, 0.5),
        within_band=sum(1 for one in told if one.is_within) / len(told),
    )


def _part(ordered: list[float], part: float) -> float:
    """The value that this part of them does not exceed."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)]
