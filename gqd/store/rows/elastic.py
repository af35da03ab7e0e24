"""The columns of elastic attempts.  Pure.  See `gqd.store.rows.rows`."""

from __future__ import annotations

import msgspec

from gqd.state.records import Attempt, Elastic

_decode = msgspec.json.Decoder(Elastic).decode


def elastic_columns(attempt: Attempt) -> tuple[str | None, float | None, float, float]:
    """The elastic state as JSON; and, for people and views, the last resize, and GPU-seconds and billing before it."""
    one = attempt.elastic
    if one is None:
        return None, None, 0.0, 0.0
    return msgspec.json.encode(one).decode(), one.changed_at, one.gpu_s_before, one.billed_s_before


def elastic_of(column: str | None) -> Elastic | None:
    return None if column is None else _decode(column)
