"""What commands say of a task that never was, of an array that the controller has only in its database."""

from __future__ import annotations

import pytest

from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job, jobs

GONE = wire.Refused(code="job_over", message="job 11 ended long ago", hint="gqacct shows it")
ARRAY = jobs(
    a_job(11, state="CANCELLED", array_job_id=11, array_tasks="4-5", array_task_count=2),
    *(a_job(11 + task, state="COMPLETED", array_job_id=11, array_task_id=task) for task in (1, 2, 3)),
)
COMMANDS = (
    ("gqwhy", "{}"),
    ("gqlog", "{}"),
    ("gqwait", "{}"),
    ("gqstat", "-j", "{}"),
    ("gqctl", "show", "{}"),
    ("gqctl", "update", "{}", "--mem=1G"),
    ("gq", "ssh", "{}"),
)


@pytest.fixture
def forgotten(controller: ScriptedController) -> ScriptedController:
    def history(query: wire.QueryHistory) -> wire.Jobs:
        if 12 in query.filter.job_ids:
            return jobs(a_job(12, state="COMPLETED"))
        return ARRAY if 11 in query.filter.job_ids else jobs()

    for kind in (wire.Explain, wire.AccessLog):
        controller.on(kind, GONE)
    controller.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=()))
    controller.on(wire.ListJobs, jobs())
    controller.on(wire.QueryHistory, history)
    return controller


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("11_99", "error: array 11 has no task 99\nhint: it had 1-5\n"),
        ("12_3", "error: job 12 is not an array and has no tasks\nhint: name it as 12\n"),
    ],
)
def test_a_task_that_never_was_is_said_so(run: Run, words: tuple[str, ...], named: str, said: str) -> None:
    done = run(*(word.format(named) for word in words))

    assert (done.status, done.err) == (1, said)


# ── output that never was ─────────────────────────────────────────────────────────────────────────────────────

UNREADABLE = "/dev/null/job.out"
"""As a file in a closed directory, also for root: it cannot be opened, and not because it is missing."""
WHY = f"it could not be started: node n1: cannot open the output file `{UNREADABLE}`: Not a directory"


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_gqlog_says_that_a_job_could_not_be_started_for_its_output_file(
    run: Run, controller: ScriptedController, follow: list[str]
) -> None:
    controller.on(wire.AccessLog, wire.LogAccess(job_id=7, attempt=1, state="FAILED", path=UNREADABLE))
    controller.on(wire.QueryHistory, jobs(a_job(state="FAILED", reason="JobLaunchFailure", why=WHY)))

    assert run("gqlog", *follow, "7") == (1, "", f"job 7 has no output: {WHY}\n")


def test_gqlog_says_that_the_output_of_a_job_that_ran_cannot_be_read(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.AccessLog, wire.LogAccess(job_id=7, attempt=1, state="FAILED", path=UNREADABLE))
    controller.on(wire.QueryHistory, jobs(a_job(state="FAILED", reason="NonZeroExitCode", exit_code=3)))

    assert run("gqlog", "7") == (1, "", f"error: cannot read {UNREADABLE}: Not a directory\n")
