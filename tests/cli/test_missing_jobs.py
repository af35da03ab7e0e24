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
        ("12_3", "error: job 12 is no array, and has no tasks\nhint: name it as 12\n"),
    ],
)
def test_a_task_that_never_was_is_said_so(run: Run, words: tuple[str, ...], named: str, said: str) -> None:
    done = run(*(word.format(named) for word in words))

    assert (done.status, done.err) == (1, said)
