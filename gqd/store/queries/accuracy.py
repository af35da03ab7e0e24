"""The accuracy of start estimates, from the first estimates that attempts keep."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from math import ceil

import msgspec

from gq.model.estimate import AccuracyInfo, FirstEstimate
from gq.wire.client import QueryAccuracy
from gqd.store.protocol import EstimateOutcome

MOST = 500_000
"""Maximum number of starts, the latest, in one answer."""

_decode = msgspec.json.Decoder(FirstEstimate).decode
_STARTS = (
    "SELECT estimate, start_at FROM attempts WHERE estimate IS NOT NULL AND start_at >= ? AND start_at < ?"
    " ORDER BY start_at DESC LIMIT ?"
)


def select_estimate_outcomes(connection: sqlite3.Connection, query: QueryAccuracy) -> list[EstimateOutcome]:
    until = float("inf") if query.until is None else query.until
    rows = connection.execute(_STARTS, (query.since, until, MOST))
    return [EstimateOutcome(_decode(estimate), start_at) for estimate, start_at in rows]


def lines_of(told: Iterable[EstimateOutcome]) -> tuple[AccuracyInfo, ...]:
    """The accuracy of promised starts, of estimated ones, and of all; a kind without starts is left out."""
    every = list(told)
    kinds = (
        ("promised", [one for one in every if one.estimate.is_promised]),
        ("estimated", [one for one in every if not one.estimate.is_promised]),
        ("all", every),
    )
    return tuple(_line(kind, some) for kind, some in kinds if some)


def _line(kind: str, told: list[EstimateOutcome]) -> AccuracyInfo:
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
    """The quantile: the smallest value that this share of the values does not exceed."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)]
