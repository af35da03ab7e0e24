"""Each kind of store, and chance: ``GQ_TEST_SEED`` plays a seed again, ``GQ_TEST_ROUNDS`` says how often to kill."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gqd.store.memory import MemoryStore
from gqd.store.protocol import Store
from gqd.store.sqlite import SqliteStore
from tests.effort import first


@pytest.fixture
def seed() -> int:
    """A new one each time, in what a failing test printed; in CI always the same."""
    usual = 1 if os.environ.get("GQ_TEST_REQUIRE") else random.randrange(2**32)
    chosen = int(os.environ.get("GQ_TEST_SEED", usual))
    print(f"GQ_TEST_SEED={chosen}")
    return chosen


@pytest.fixture(params=first(1, (2, 5)))
def rounds(request: pytest.FixtureRequest) -> int:
    return int(os.environ.get("GQ_TEST_ROUNDS", request.param))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    else:
        durable = SqliteStore(str(tmp_path / "gq.db"))
        yield durable
        durable.close()
