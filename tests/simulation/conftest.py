"""Seeds: `GQ_SIM_SEED` plays one again, `GQ_SIM_ROUNDS` says how many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.effort import first

SHARDS = 8


def seeds_of(shard: int, rounds: int) -> list[int]:
    """The seeds of one of `SHARDS` equal shares."""
    chosen = os.environ.get("GQ_SIM_SEED")
    if chosen:
        return [int(chosen)] if shard == 0 else []
    return list(range(shard, int(os.environ.get("GQ_SIM_ROUNDS", rounds)), SHARDS))


def are_all() -> bool:
    """All seeds of the tests are played, so what each is about is bound to happen in some of them."""
    return not {"GQ_SIM_SEED", "GQ_SIM_ROUNDS"} & set(os.environ)


@contextmanager
def played_again_by(seed: int) -> Iterator[None]:
    """Of what fails in it: the seed, and how it is played again."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}; again: make sim SEED={seed}") from error


@pytest.fixture(params=first(1, range(SHARDS)))
def shard(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value
