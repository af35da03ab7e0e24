"""How much of a range `make test` plays; `make test-all` plays all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the first `count` of the values in every run, the others only where slow tests run."""
    values = list(values)
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.slow) for value in values[count:])]


def first_rows(count: int, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """As `first`, for a test with several parameters."""
    rows = list(rows)
    return [*rows[:count], *(pytest.param(*row, marks=pytest.mark.slow) for row in rows[count:])]
