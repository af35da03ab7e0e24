"""`gqdel`: whom it ends or signals, and that it is as silent as scancel."""

from __future__ import annotations

import getpass
import signal
import sys

import pytest

from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, know_names


def cancelled(controller: ScriptedController) -> wire.CancelJobs:
    return controller.the(wire.CancelJobs)


@pytest.fixture
def queue(controller: ScriptedController) -> ScriptedController:
    """Knows the jobs 1 to 9."""

    def cancel(body: wire.CancelJobs) -> wire.JobsDone:
        ids = body.filter.job_ids
        return wire.JobsDone(job_ids=tuple(i for i in ids if i < 10), skipped=tuple(i for i in ids if i >= 10))

    controller.on(wire.CancelJobs, cancel)
    controller.on(wire.SignalStep, wire.Done())
    know_names(controller)
    return controller


@pytest.mark.parametrize("words", [["7"], ["7,8", "9"], ["999999"], ["7", "999999"], ["-Q", "7"]])
def test_jobs_are_cancelled_in_silence_known_or_not(run: Run, queue: ScriptedController, words: list[str]) -> None:
    assert run("gqdel", *words) == (0, "", "")
    assert cancelled(queue).signum is None


@pytest.mark.parametrize(("words", "err"), [(["7", "99"], "job 99 is unknown or has ended\n"), (["-Q", "7", "99"], "")])
def test_who_sits_at_a_terminal_is_told_of_a_number_that_names_nothing(
    run: Run, queue: ScriptedController, monkeypatch: pytest.MonkeyPatch, words: list[str], err: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("gqdel", *words) == (0, "", err)


def test_verbose_tells_what_is_done(run: Run, queue: ScriptedController) -> None:
    assert run("gqdel", "-v", "7", "99") == (0, "", "cancelled job 7\njob 99 is unknown or has ended\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-u", "ada"], wire.JobFilter(users=("ada",))),
        (["-n", "x", "-p", "main"], wire.JobFilter(names=("x",), partitions=("main",))),
        (["--state=PD"], wire.JobFilter(states=("PENDING",))),
        (["-t", "R", "7"], wire.JobFilter(states=("RUNNING",), job_ids=(7,))),
        (["-w", "n[1-2]"], wire.JobFilter(nodes=("n1", "n2"))),
        (["--me"], wire.JobFilter(users=(getpass.getuser(),))),
    ],
)
def test_jobs_may_be_named_by_what_they_are(
    run: Run, queue: ScriptedController, words: list[str], expected: wire.JobFilter
) -> None:
    assert run("gqdel", *words) == (0, "", "")
    assert cancelled(queue).filter == expected


@pytest.mark.parametrize(
    ("words", "signum", "scope"),
    [
        (["7", "--signal", "SIGTERM"], signal.SIGTERM, "steps"),
        (["-s", "usr2", "7"], signal.SIGUSR2, "steps"),
        (["-b", "-s10", "7"], 10, "batch"),
        (["-f", "-s", "INT", "7"], signal.SIGINT, "all"),
    ],
)
def test_a_signal_goes_to_the_steps_the_script_or_both(
    run: Run, queue: ScriptedController, words: list[str], signum: int, scope: str
) -> None:
    assert run("gqdel", *words) == (0, "", "")
    assert (cancelled(queue).signum, cancelled(queue).scope) == (signum, scope)


def test_a_signal_to_an_unknown_job_is_an_error(run: Run, queue: ScriptedController) -> None:
    assert run("gqdel", "-s", "USR1", "99") == (1, "", "error: job 99 is unknown or has ended\n")


def test_a_job_that_may_not_be_ended_is_an_error(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.CancelJobs, wire.JobsDone(refused=((7, "it is bob's"),)))

    assert run("gqdel", "7") == (1, "", "error: job 7: it is bob's\n")


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_ended_and_its_job_is_left_alone(run: Run, queue: ScriptedController) -> None:
    assert run("gqdel", "7.0") == (0, "", "")
    assert queue.heard == [wire.SignalStep(job_id=7, step=0)]


def test_a_step_is_signalled(run: Run, queue: ScriptedController) -> None:
    run("gqdel", "-s", "USR1", "7.12")

    assert queue.the(wire.SignalStep) == wire.SignalStep(job_id=7, step=12, signum=signal.SIGUSR1)


@pytest.mark.parametrize(("words", "status"), [(["7.3"], 0), (["-s", "USR1", "7.3"], 1)])
def test_a_step_that_is_over_need_not_be_ended_but_cannot_be_signalled(
    run: Run, controller: ScriptedController, words: list[str], status: int
) -> None:
    controller.on(wire.SignalStep, wire.Refused(code="unknown_step", message="job 7 has no running step 3"))

    result = run("gqdel", *words)

    assert result.status == status
    assert result.err == ("" if not status else "error: step 7.3: job 7 has no running step 3\n")


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "no job given"),
        (["abc"], 2, "`abc` is not a job id"),
        (["7.x"], 2, "`x` is not a whole number"),
        (["-5"], 2, "unknown option `-5`"),
        (["-s", "NOSIG", "7"], 2, "`-s`: `NOSIG` is not a signal"),
        (["-b", "7"], 2, "`--batch` works only with --signal"),
        (["-u", "ada", "7.0"], 2, "a filter cannot select steps"),
        (["7_x"], 2, "`x` is not a task or a range of tasks"),
        (["7_[1-3].0"], 2, "`7_[1-3]` names several tasks"),
    ],
)
def test_a_bad_command_line_is_refused_before_anything_is_ended(
    run: Run, controller: ScriptedController, words: list[str], status: int, message: str
) -> None:
    result = run("gqdel", *words)

    assert (result.status, result.out, controller.heard) == (status, "", [])
    assert result.err.startswith(f"error: {message}")
