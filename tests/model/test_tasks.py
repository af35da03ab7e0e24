"""Sets of array tasks: as people write them, as bits, as rows."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.model.tasks import (
    MAX_PARTS,
    MAX_TASK,
    READABLE_RUNS,
    first_task,
    format_tasks,
    pack_tasks,
    parse_tasks,
    task_bit,
    tasks_in,
    unpack_tasks,
)

SETS = st.sets(st.integers(0, 400) | st.integers(0, MAX_TASK), max_size=60)


def bits(tasks: set[int]) -> int:
    return sum(task_bit(one) for one in tasks)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("3", [3]),
        ("1-5,8,10-20:5", [1, 2, 3, 4, 5, 8, 10, 15, 20]),
        ("0-30:10", [0, 10, 20, 30]),
        ("1-6:4", [1, 5]),
        ("7,7,5-7", [5, 6, 7]),
        (" 1 , 2 ", [1, 2]),
        ("4-4", [4]),
    ],
)
def test_tasks_are_read_as_they_are_written(text: str, tasks: list[int]) -> None:
    assert list(tasks_in(parse_tasks(text))) == tasks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a task"),
        ("1-", "not a task"),
        ("-1", "not a task"),
        ("1,,2", "not a task"),
        ("a", "not a task"),
        ("9-3", "use 3-9"),
        ("1-9:0", "step of 0"),
        (f"{MAX_TASK + 1}", "largest number"),
        (",".join(["1"] * (MAX_PARTS + 1)), f"at most {MAX_PARTS}"),
    ],
)
def test_what_is_wrong_with_a_set_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_tasks(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1-5,8,10-20:5", "1-5,8,10,15,20"),
        ("2-8:2", "2-8:2"),
        ("1,2,3", "1-3"),
        ("0-100000:3", "0-99999:3"),
        ("1,3,5,7,8,9", "1,3,5,7-9"),
    ],
)
def test_a_set_is_shown_as_people_write_it(text: str, shown: str) -> None:
    assert format_tasks(parse_tasks(text)) == shown


def test_a_long_set_is_cut_where_that_is_asked_for() -> None:
    assert format_tasks(parse_tasks("1,5,11,20-30"), 2) == "1,5,..."
    assert format_tasks(parse_tasks("1,5"), 2) == "1,5"


@given(SETS)
def test_every_way_of_writing_a_set_comes_back_equal(tasks: set[int]) -> None:
    whole = bits(tasks)
    assert list(tasks_in(whole)) == sorted(tasks)
    assert unpack_tasks(pack_tasks(whole)) == whole
    if tasks:
        assert parse_tasks(format_tasks(whole)) == whole
        assert first_task(whole) == min(tasks)


def test_a_set_of_many_runs_is_packed_as_bits() -> None:
    ragged = sum(task_bit(one * one) for one in range(READABLE_RUNS + 50))
    assert pack_tasks(ragged).startswith("0x")
    assert unpack_tasks(pack_tasks(ragged)) == ragged


@pytest.mark.parametrize(
    "text", [f"0-{MAX_TASK}:7", ",".join(f"0-{MAX_TASK}:{step}" for step in range(1, MAX_PARTS + 1))]
)
def test_nobody_can_keep_the_controller_busy_with_a_set(text: str) -> None:
    began = time.process_time()
    parse_tasks(text)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1-99999999999999999999", "task 99999999999999999999 is over 1000000"),
        ("１-３", "is not a task or a range of tasks"),
    ],
)
def test_numbers_far_too_large_and_digits_of_other_scripts_are_said_to_be_so(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_tasks(text)
