"""`gq checkpoint-done`: said from inside a job, about that job."""

from __future__ import annotations

import pytest

from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController


def test_it_names_the_job_that_it_is_in_and_is_silent(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.on(wire.CheckpointDone, wire.Done())
    monkeypatch.setenv("GQ_JOB_ID", "7")
    assert run("gq", "checkpoint-done") == (0, "", "")
    assert controller.the(wire.CheckpointDone) == wire.CheckpointDone(job_id=7)


def test_outside_of_a_job_it_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GQ_JOB_ID", raising=False)
    done = run("gq", "checkpoint-done")
    assert (done.status, done.err) == (
        1,
        "error: this is not inside a job: GQ_JOB_ID is not set\nhint: call it from the job's script\n",
    )


def test_it_takes_no_operand(run: Run) -> None:
    assert run("gq", "checkpoint-done", "7").status == 2
