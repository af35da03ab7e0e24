"""Seeds: `GQ_SIM_SEED` plays one again, `GQ_SIM_ROUNDS` says how many."""

from __future__ import annotations

import os

import pytest

SHARDS = 8


def seeds_of(shard: int, rounds: int) -> list[int]:
    """The seeds of one of `SHARDS` equal shares."""
    chosen = os.environ.get("GQ_SIM_SEED")
    if chosen:
        return [int(chosen)] if shard == 0 else []
    return list(range(shard, int(os.environ.get("GQ_SIM_ROUNDS", rounds)), SHARDS))


@pytest.fixture(params=range(SHARDS))
def shard(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value
