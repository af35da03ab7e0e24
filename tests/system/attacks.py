"""The table of attacks: each is a test by the name of its sentence, and a row of gq-security(7).

A test is marked with `attack(what, outcome, audit)`.  What the audit trail must show of it is checked by a fixture
(conftest.py) and not by the tests; `rows` is the table as it stands in the manual.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REFUSED = "refused"
"""Somebody said no, and nothing happened."""
CONTAINED = "contained"
"""It went on, and could reach nothing but what it may."""
ENDED = "ended"
"""What it started was ended."""
OUTCOMES = (REFUSED, CONTAINED, ENDED)
NOTHING = "nothing"
"""The audit trail has no refusal of it: the kernel or a node said no, or nobody needed to."""


class Row(NamedTuple):
    """`audit`: ``Action: outcome`` of lines in the audit trail, or `NOTHING`."""

    what: str
    outcome: str
    audit: tuple[str, ...]


def attack(what: str, outcome: str, *audit: str) -> pytest.MarkDecorator:
    assert outcome in OUTCOMES
    return pytest.mark.attack(Row(what, outcome, audit or (NOTHING,)))


def row_of(test: object) -> Row | None:
    """What the mark of a test function says."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "attack"]
    return marks[0].args[0] if marks else None


def name_of(what: str) -> str:
    return "test_" + re.sub(r"[^a-z0-9]+", "_", what.lower().replace("'", "")).strip("_")


def marked_tests() -> Iterator[tuple[str, Callable[..., None], Row | None]]:
    """Every test of the attack modules, in their order: its name, itself, its row."""
    for path in sorted(Path(__file__).parent.glob("test_attacks_*.py")):
        module = importlib.import_module(f"tests.system.{path.stem}")
        for name, one in vars(module).items():
            if name.startswith("test_") and callable(one):
                yield name, one, row_of(one)


def rows() -> list[Row]:
    return [row for _, _, row in marked_tests() if row is not None]
