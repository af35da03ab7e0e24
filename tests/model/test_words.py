"""Identities, states, exit statuses and sets of ids: how they are written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.errors import GqError, ProtocolError, Refusal, Unreachable, UsageError
from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus
from gq.model.node import Inventory, IsolationLevels
from gq.model.resource import format_ids, parse_ids
from gq.model.state import (
    ACTIVE_WORDS,
    STATE_LETTERS,
    JobState,
    Outcome,
    Reason,
    parse_state_word,
    state_letters,
    state_word,
)
from gq.near_miss import nearest

# ── identities ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_attempt_and_a_step_are_written_as_people_name_them() -> None:
    assert str(AttemptId(JobId(7), 2)) == "7.2"
    assert str(StepId(JobId(7), 2, 0)) == "7.0", "the attempt is not part of a step's name"


def test_attempts_sort_by_job_and_then_by_number() -> None:
    ids = [AttemptId(JobId(2), 1), AttemptId(JobId(1), 10), AttemptId(JobId(1), 9)]

    assert sorted(ids) == [AttemptId(JobId(1), 9), AttemptId(JobId(1), 10), AttemptId(JobId(2), 1)]


def test_a_step_knows_its_attempt() -> None:
    assert StepId(JobId(7), 2, 5).attempt_id == AttemptId(JobId(7), 2)


# ── states ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("state", "outcome", "word"),
    [
        (JobState.PENDING, None, "PENDING"),
        (JobState.STARTING, None, "CONFIGURING"),
        (JobState.RUNNING, None, "RUNNING"),
        (JobState.COMPLETING, None, "COMPLETING"),
        *((JobState.ENDED, outcome, outcome.value) for outcome in Outcome),
    ],
)
def test_a_job_is_shown_by_slurms_word(state: JobState, outcome: Outcome | None, word: str) -> None:
    assert state_word(state, outcome) == word
    assert word in STATE_LETTERS


def test_an_ended_job_without_an_outcome_is_an_invariant_broken() -> None:
    with pytest.raises(AssertionError, match="an ended job has an outcome"):
        state_word(JobState.ENDED, None)


def test_no_two_states_share_their_letters() -> None:
    assert len(set(STATE_LETTERS.values())) == len(STATE_LETTERS)


def test_a_state_is_active_exactly_if_it_is_no_outcome() -> None:
    assert set(STATE_LETTERS) - {outcome.value for outcome in Outcome} == ACTIVE_WORDS


@pytest.mark.parametrize("word", STATE_LETTERS)
def test_a_state_is_read_from_its_name_or_its_letters_in_any_case(word: str) -> None:
    letters = state_letters(word)

    assert [parse_state_word(text) for text in (word, word.lower(), letters, f" {letters.lower()} ")] == [word] * 4


def test_an_unknown_state_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="`DONE` is not a job state; use one of PENDING"):
        parse_state_word("DONE")


def test_a_reason_is_one_word() -> None:
    assert [reason for reason in Reason if " " in reason.value or not reason.value] == []


# ── exit statuses ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "shell_code", "is_success"),
    [
        (ExitStatus(), 0, True),
        (ExitStatus(code=3), 3, False),
        (ExitStatus(signal=9), 137, False),
        (ExitStatus(signal=15), 143, False),
    ],
)
def test_an_exit_status_says_what_a_shell_would(status: ExitStatus, shell_code: int, is_success: bool) -> None:
    assert (status.shell_code, status.is_success) == (shell_code, is_success)


# ── sets of ids ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ids", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 5), "0-2,5"), ((0, 2, 4), "0,2,4"), (tuple(range(64)), "0-63")],
)
def test_ids_are_written_as_the_kernel_writes_cpu_sets(ids: tuple[int, ...], text: str) -> None:
    assert format_ids(ids) == text
    assert parse_ids(text) == ids


@given(st.sets(st.integers(0, 300)))
def test_ids_that_are_written_read_back_as_themselves(ids: set[int]) -> None:
    ascending = tuple(sorted(ids))

    assert parse_ids(format_ids(ascending)) == ascending


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_isolation_is_one_line_that_names_every_function() -> None:
    levels = IsolationLevels(cpu="cgroup1", memory="watched")

    assert levels.summary() == (
        "cpu=cgroup1 cpuset=none memory=watched devices=none pids=none kill=none tmp=shared user=daemon"
    )


def test_a_node_is_taken_to_enforce_nothing_that_it_does_not_say() -> None:
    said = Inventory(cpus=1, memory_mib=1).isolation.summary().split()

    assert {word.partition("=")[2] for word in said} == {"none", "shared", "daemon"}


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "status"), [(Refusal, 1), (UsageError, 2), (Unreachable, 3), (ProtocolError, 1)])
def test_each_family_of_errors_has_its_exit_status(kind: type[GqError], status: int) -> None:
    assert kind("code", "message").exit_status == status


def test_an_error_prints_its_sentence_and_the_way_out_on_a_line_of_its_own() -> None:
    assert str(Refusal("full", "the queue is full", "wait")) == "the queue is full\nhint: wait"
    assert str(Refusal("full", "the queue is full")) == "the queue is full"


def test_the_nearest_known_word_is_offered_only_where_it_is_near() -> None:
    known = ["gpu", "gpu-large"]

    assert (nearest("gpu-lrage", known), nearest("interactive", known)) == ("gpu-large", "")
