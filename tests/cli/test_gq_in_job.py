"""`gq checkpoint-done` and `gq resume-done`: said from inside a job, about that job."""

from __future__ import annotations

import pytest

from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController

SAID = pytest.mark.parametrize(
    ("verb", "message"), [("checkpoint-done", wire.CheckpointDone), ("resume-done", wire.ResumeDone)]
)


@SAID
def test_it_names_the_job_that_it_is_in_and_is_silent(
    run: Run,
    controller: ScriptedController,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    message: type[wire.CheckpointDone | wire.ResumeDone],
) -> None:
    controller.on(message, wire.Done())
    monkeypatch.setenv("GQ_JOB_ID", "7")
    assert run("gq", verb) == (0, "", "")
    assert controller.the(message) == message(job_id=7)


@pytest.mark.parametrize("verb", ["checkpoint-done", "resume-done"])
def test_outside_of_a_job_it_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.delenv("GQ_JOB_ID", raising=False)
    done = run("gq", verb)
    assert (done.status, done.err) == (
        1,
        "error: this is not inside a job: GQ_JOB_ID is not set\nhint: run it in the job's script\n",
    )


@pytest.mark.parametrize("verb", ["checkpoint-done", "resume-done"])
def test_it_takes_no_operand(run: Run, verb: str) -> None:
    assert run("gq", verb, "7").status == 2
