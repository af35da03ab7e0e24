"""`gqsub -d`, ``--deadline``, ``--chain`` and ``--if``: what is sent and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gq.model.dependency import format_dependency, parse_dependency
from gq.model.job import JobSpec
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, with three batch scripts in it."""
    monkeypatch.chdir(tmp_path)
    for name, header in (("prep", "#GQ -c 4"), ("train", "#GQ -G 2 --if 'test -s data'"), ("eval", "#GQ -t 10")):
        (tmp_path / f"{name}.sh").write_text(f"#!/bin/sh\n{header}\necho {name}\n")
    return tmp_path


@pytest.fixture
def queue(controller: ScriptedController) -> ScriptedController:
    controller.on(wire.Submit, wire.Submitted(job_id=123))
    controller.on(
        wire.SubmitChain,
        lambda body: wire.ChainSubmitted(job_ids=tuple(range(11, 11 + len(body.stages)))),
    )
    return controller


def specs(queue: ScriptedController) -> list[JobSpec]:
    return [stage.spec for stage in queue.the(wire.SubmitChain).stages]


def waits_for(spec: JobSpec) -> str:
    return "" if spec.dependency is None else format_dependency(spec.dependency)


def test_a_dependency_and_a_deadline_are_sent(run: Run, queue: ScriptedController, here: Path) -> None:
    run("gqsub", "-d", "afterok:7_3:8,after:9+5", "--kill-on-invalid-dep=yes", "--deadline=2031-01-01", "prep.sh")
    spec = queue.the(wire.Submit).spec
    assert waits_for(spec) == "afterok:7_3,afterok:8,after:9+5"
    assert spec.kill_on_invalid_dep is True
    assert spec.deadline_at is not None


def test_stages_have_headers_of_their_own_and_the_options_of_the_command_line(
    run: Run, queue: ScriptedController, here: Path
) -> None:
    result = run("gqsub", "-p", "long", "--chain", "prep.sh", "eval.sh")

    assert result == (0, "Submitted batch job 11\nSubmitted batch job 12\n", "")
    first, second = specs(queue)
    assert [spec.partition for spec in (first, second)] == ["long", "long"]
    assert (first.name, first.resources.cpus_per_task, first.time_limit_s) == ("prep.sh", 4, None)
    assert (second.name, second.resources.cpus_per_task, second.time_limit_s) == ("eval.sh", None, 600)


def test_a_gate_in_a_header_is_a_small_job_before_its_stage(run: Run, queue: ScriptedController, here: Path) -> None:
    result = run("gqsub", "--parsable", "--chain", "prep.sh", "train.sh", "eval.sh")

    assert result.out == "11\n13\n14\n", "the gate, 12, is no stage"
    gate = queue.the(wire.SubmitChain).stages[1]
    assert (gate.spec.name, gate.script) == ("if:train.sh", b"#!/bin/sh\ntest -s data\n")
    assert (gate.spec.resources.ntasks, gate.spec.resources.gpus, gate.spec.time_limit_s) == (1, None, 600)
    assert gate.environment == queue.the(wire.SubmitChain).stages[2].environment


def test_a_gate_on_the_command_line_stands_between_the_stages(run: Run, queue: ScriptedController, here: Path) -> None:
    run("gqsub", "--if", "test -e go", "--chain", "prep.sh", "eval.sh")
    assert [spec.name for spec in specs(queue)] == ["prep.sh", "if:eval.sh", "eval.sh"]


def test_a_gate_of_a_job_alone_waits_for_what_the_job_waits_for(
    run: Run, queue: ScriptedController, here: Path
) -> None:
    result = run("gqsub", "--json", "-d", "afterok:5,singleton", "--if", "test -e go", "prep.sh")

    assert json.loads(result.out) == {"job_id": 12, "gate_job_ids": [11]}
    gate, job = specs(queue)
    assert (gate.name, waits_for(gate)) == ("if:prep.sh", "afterok:5")
    assert (job.name, waits_for(job)) == ("prep.sh", "singleton")


def test_of_any_of_several_jobs_the_first_stage_waits_for_all(run: Run, queue: ScriptedController, here: Path) -> None:
    run("gqsub", "-d", "afterok:5?afterok:6", "--chain", "prep.sh", "eval.sh")
    assert [waits_for(spec) for spec in specs(queue)] == ["afterok:5?afterok:6", ""]


def test_a_chain_waits_for_its_last_stage(run: Run, queue: ScriptedController, here: Path) -> None:
    queue.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=(a_job(12, state="FAILED", exit_code=3),)))
    assert run("gqsub", "--wait", "--chain", "prep.sh", "eval.sh").status == 3
    assert queue.the(wire.WaitJobs).job_ids == (12,)


def test_json_names_every_stage(run: Run, queue: ScriptedController, here: Path) -> None:
    result = run("gqsub", "--json", "--chain", "prep.sh", "train.sh")
    assert json.loads(result.out) == {"job_id": 13, "job_ids": [11, 13], "gate_job_ids": [12]}


def test_a_refused_stage_is_named_and_nothing_is_printed(run: Run, queue: ScriptedController, here: Path) -> None:
    queue.on(wire.SubmitChain, wire.Refused(code="x", message="stage 2 of 2 (eval.sh): too large", hint="less"))
    result = run("gqsub", "--chain", "prep.sh", "eval.sh")
    assert (result.status, result.out) == (1, "")
    assert "stage 2 of 2 (eval.sh)" in result.err


def test_a_dependency_and_a_deadline_are_changed(run: Run, queue: ScriptedController) -> None:
    queue.on(wire.UpdateJob, wire.Done())
    for words in (
        ["--dependency=afterok:3", "7"], ["7", "dependency=none", "deadline=none"], ["--dependency=", "7"],
    ):  # fmt: skip
        assert run("gqctl", "update", *words).status == 0
    first, second, third = queue.all(wire.UpdateJob)
    assert (first.dependency, first.clear_dependency) == (parse_dependency("afterok:3"), False)
    assert (second.clear_dependency, second.deadline_at, second.dependency) == (True, 0, None)
    assert third.clear_dependency
