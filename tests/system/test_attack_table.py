"""The table of gq-security(7) is the table of the tests: every row is a test, every test of an attack has a row."""

from __future__ import annotations

import re

from tests.system.attacks import NOTHING, Row, marked_tests, name_of, rows
from tests.test_documents import section

AT_LEAST = 40


def test_every_test_of_an_attack_has_a_row_and_the_name_of_its_sentence() -> None:
    wrong = [name for name, _, row in marked_tests() if row is None or name != name_of(row.what)]

    assert wrong == []


def test_no_two_rows_are_the_same_attack_and_there_are_enough_of_them() -> None:
    sentences = [row.what for row in rows()]

    assert len(set(sentences)) == len(sentences) >= AT_LEAST


def test_the_table_in_the_manual_is_the_table_of_the_tests() -> None:
    written = re.findall(r"^\.It (.+)\n(.+)$", section("gq-security.7", "ATTACKS"), re.MULTILINE)

    assert written == [(row.what, _description(row)) for row in rows()]


def _description(row: Row) -> str:
    """The line of the manual under the name of an attack."""
    records = [record for record in row.audit if record != NOTHING]
    return f"{row.outcome.capitalize()}{'; audit trail: ' if records else ''}{', '.join(records)}."
