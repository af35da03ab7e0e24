"""Rows of attempts whose GPUs become more and fewer.  Pure."""

from __future__ import annotations

import msgspec

from gqd.state.records import Attempt, Elastic

_decode = msgspec.json.Decoder(Elastic).decode


def elastic_columns(attempt: Attempt) -> tuple[str | None, float | None, float, float]:
    """All of it, and for people and views: when it last changed, GPU-seconds and what was billed before that."""
    one = attempt.elastic
    if one is None:
        return None, None, 0.0, 0.0
    return msgspec.json.encode(one).decode(), one.changed_at, one.gpu_s_before, one.billed_s_before


def elastic_of(column: str | None) -> Elastic | None:
    return None if column is None else _decode(column)
