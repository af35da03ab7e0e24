"""How jobs, arrays and tasks of arrays are named: one parser for all commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.cli.framework.job_words import JobWord, NamedJobs
from gq.cli.framework.operands import job_word, listed, one_job
from gq.model.tasks import parse_tasks


@pytest.mark.parametrize(
    ("text", "job_id", "tasks"),
    [
        ("7", 7, ""),
        ("7_0", 7, "0"),
        ("7_3", 7, "3"),
        ("7_1-5", 7, "1-5"),
        ("7_[1-5,8]", 7, "1-5,8"),
        ("7_[0-30:10]", 7, "0-30:10"),
        ("7_[3]", 7, "3"),
    ],
)
def test_a_job_a_task_and_a_range_of_tasks(text: str, job_id: int, tasks: str) -> None:
    assert job_word(text) == JobWord(job_id, parse_tasks(tasks) if tasks else 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`` is not a job id"),
        ("x", "`x` is not a job id"),
        ("0", "`0` is not a job id"),
        ("0_1", "`0` is not a job id"),
        ("7_", "`` is not a task"),
        ("7_[]", "`` is not a task"),
        ("7_[1", r"`\[1` is not a task"),
        ("7_x", "`x` is not a task"),
        ("7_5-1", "`5-1` is reversed; use 1-5"),
        ("7_1-9:0", "`1-9:0` has a step of 0"),
        ("7_2000000", "task 2000000 is over 1000000"),
    ],
)
def test_what_is_no_job_is_refused_with_what_would_be(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        job_word(text)


def test_where_one_job_is_wanted_several_tasks_are_refused() -> None:
    assert (one_job("7"), one_job("7_0"), one_job("7_[4]")) == ((7, None), (7, 0), (7, 4))
    with pytest.raises(ValueError, match=r"`7_\[4,9\]` names several tasks; give one, such as 7_4"):
        one_job("7_[4,9]")


def test_commas_in_brackets_do_not_separate_jobs() -> None:
    assert list(listed("7,8_[1-5,8],9_2, 10,,")) == ["7", "8_[1-5,8]", "9_2", "10"]
    assert list(listed("7_[1,2")) == ["7_[1,2"], "a missing bracket is left for the complaint"
    assert list(listed("7],8")) == ["7]", "8"]


def test_each_job_is_meant_once_and_the_whole_array_is_more_than_a_part() -> None:
    words = [job_word(text) for text in ("9", "7_1-3", "8_1", "7_2,5".partition(",")[0], "7_9", "8", "9", "8_2")]

    assert NamedJobs.of(words) == NamedJobs((9, 8), {7: "1-3,9"})


@given(st.integers(1, 10**18 - 1), st.sets(st.integers(0, 2000)))
def test_a_name_that_is_written_is_read_again(job_id: int, tasks: set[int]) -> None:
    word = JobWord(job_id, sum(1 << task for task in tasks))

    assert [job_word(one) for one in listed(str(word))] == [word]
