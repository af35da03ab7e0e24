"""Arrays and their tasks in every command: what is asked for ``7_3`` and ``7_[1-5,8]``, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gq.model.job import StepInfo
from gq.model.resource import Grant
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job, jobs

DONE = a_job(
    11, array_job_id=7, array_task_id=1, state="COMPLETED", exit_code=0, start_at=SUBMITTED_AT,
    end_at=SUBMITTED_AT + 60, grants=(Grant(node="n1"),),
    steps=(StepInfo(job_id=11, attempt=1, step=0, name="a", state="COMPLETED"),),
)  # fmt: skip
FAILED = msgspec.structs.replace(DONE, job_id=12, array_task_id=2, state="FAILED", exit_code=5, steps=())
CANCELLED = a_job(7, array_job_id=7, array_tasks="5-9", array_task_count=5, state="CANCELLED", array_throttle=2)
HISTORY = jobs(DONE, FAILED, CANCELLED)


# ── submitting and waiting ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def script(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))
    with open("job.sh", "w") as file:  # noqa: PTH123 - the present directory is what matters
        file.write("#!/bin/sh\n#SBATCH --array=0-30:10,7%2\ntrue\n")
    return "job.sh"


def test_an_array_is_submitted_once_and_called_by_one_number(
    run: Run, controller: ScriptedController, script: str
) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))

    assert run("gqsub", script) == (0, "Submitted batch job 7\n", "")
    spec = controller.the(wire.Submit).spec
    assert (spec.array, spec.array_throttle, spec.fail_fast) == ("0,7,10,20,30", 2, False)


@pytest.mark.parametrize(
    ("words", "tasks", "throttle", "is_auto"),
    [
        (["--sweep=lr=1e-3,1e-4 bs=32,64"], "0-3", None, False),
        (["--sweep=lr=1e-3,1e-4 bs=32,64", "--array=%3"], "0-3", 3, False),
        (["--sweep=lr=1e-3,1e-4 bs=32,64", "-a", "%auto"], "0-3", None, True),
        (["--sweep=lr=1e-3,1e-4 bs=32,64", "-a", "1,3%auto", "--fail-fast"], "1,3", None, True),
    ],
)
def test_a_sweep_is_an_array_of_all_combinations_or_of_those_named(
    run: Run,
    controller: ScriptedController,
    tmp_path: Path,
    words: list[str],
    tasks: str,
    throttle: int | None,
    is_auto: bool,
) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))

    assert run("gqsub", *words, "--wrap", "train $lr $bs") == (0, "Submitted batch job 7\n", "")

    spec = controller.the(wire.Submit).spec
    assert spec.sweep == (("lr", ("1e-3", "1e-4")), ("bs", ("32", "64")))
    assert (spec.array, spec.array_throttle, spec.array_auto) == (tasks, throttle, is_auto)


def test_a_line_of_the_script_may_say_what_varies(run: Run, controller: ScriptedController, tmp_path: Path) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))
    path = tmp_path / "job.sh"
    path.write_text('#!/bin/sh\n#GQ --sweep="seed=1,2,3"\n#GQ --array=%auto\ntrue\n')

    assert run("gqsub", str(path)).status == 0

    spec = controller.the(wire.Submit).spec
    assert (spec.array, spec.sweep, spec.array_auto) == ("0-2", (("seed", ("1", "2", "3")),), True)


def test_an_array_may_take_all_idle_gpus(run: Run, controller: ScriptedController, script: str) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))

    run("gqsub", "--array=1-100%auto", script)

    spec = controller.the(wire.Submit).spec
    assert (spec.array, spec.array_throttle, spec.array_auto) == ("1-100", None, True)


def test_what_varies_is_shown_of_the_array_and_of_each_of_its_tasks(run: Run, controller: ScriptedController) -> None:
    record = a_job(
        7, array_job_id=7, array_tasks="2-3", array_task_count=2, array_auto=True,
        sweep=(("lr", ("1e-3", "1e-4")), ("note", ("a b", "c"))),
    )  # fmt: skip
    left = a_job(8, array_job_id=7, array_task_id=1, sweep=(("lr", ("1e-3",)), ("note", ("c",))))
    controller.on(wire.ListJobs, wire.Jobs(jobs=(record, left)))
    controller.on(wire.QueryHistory, wire.Jobs(jobs=(record, left)))

    assert [line.rstrip() for line in run("gqstat", "-h", "-O", "jobarrayid:10,sweep:30").out.splitlines()] == [
        "7_[2-3%aut" + "lr=1e-3,1e-4 note='a b',c",
        "7_1".ljust(10) + "lr=1e-3 note=c",
    ]
    apart = run("gqstat", "-h", "-r", "-O", "jobarrayid:10,sweep:30").out.splitlines()
    assert [line.rstrip() for line in apart][:2] == [
        "7_2".ljust(10) + "lr=1e-4 note='a b'",
        "7_3".ljust(10) + "lr=1e-4 note=c",
    ]
    assert run("gqacct", "-n", "-P", "-j", "7", "-o", "jobid,sweep").out.splitlines() == [
        "7_[2-3%auto]|lr=1e-3,1e-4 note='a b',c",
        "7_1|lr=1e-3 note=c",
    ]
    shown = json.loads(run("gqacct", "--json", "-j", "7").out)
    assert [(one["sweep"], one["parameters"]) for one in shown] == [
        ({"lr": ["1e-3", "1e-4"], "note": ["a b", "c"]}, {}),
        ({"lr": ["1e-3"], "note": ["c"]}, {"lr": "1e-3", "note": "c"}),
    ]
    lines = [line.split(maxsplit=1) for line in run("gqctl", "show", "7").out.splitlines() if line]
    assert [value for key, value in lines if key in ("sweep", "parameters")] == [
        "lr=1e-3,1e-4 note=a b,c", "-", "lr=1e-3 note=c", "lr=1e-3 note=c",
    ]  # fmt: skip
    (whole, _) = json.loads(run("gqctl", "show", "--json", "7").out)
    assert (whole["array_throttle"], whole["sweep"]["lr"]) == ("auto", ["1e-3", "1e-4"])


@pytest.mark.parametrize("said", [["--array-throttle=auto"], ["ArrayTaskThrottle=AUTO"]])
def test_a_live_array_is_made_one_that_takes_idle_gpus(
    run: Run, controller: ScriptedController, said: list[str]
) -> None:
    controller.on(wire.UpdateJob, wire.Done())

    assert run("gqctl", "update", "7", *said).status == 0

    assert controller.the(wire.UpdateJob) == wire.UpdateJob(job_id=7, array_auto=True)


def test_account_qos_priority_and_fail_fast_go_along(run: Run, controller: ScriptedController, script: str) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))

    run("gqsub", "-a", "1-100000", "--fail-fast", "-A", "nlp", "-q", "high", "--priority=50", script)

    spec = controller.the(wire.Submit).spec
    assert (spec.array, spec.array_throttle, spec.fail_fast) == ("1-100000", None, True)
    assert (spec.account, spec.qos, spec.priority) == ("nlp", "high", 50)


def test_waiting_for_an_array_returns_the_highest_code_of_its_tasks(
    run: Run, controller: ScriptedController, script: str
) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))
    controller.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=(CANCELLED,)))
    controller.on(wire.QueryHistory, HISTORY)

    assert run("gqsub", "--wait", script).status == 5
    assert run("gqwait", "7").status == 5
    assert controller.all(wire.QueryHistory)[-1].filter == wire.JobFilter(job_ids=(7,))


def test_single_tasks_can_be_waited_for(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=(a_job(3, state="COMPLETED"), DONE)))
    controller.on(wire.QueryHistory, jobs(DONE))

    assert run("gqwait", "7_1", "3").status == 0
    request = controller.the(wire.WaitJobs)
    assert (request.job_ids, request.tasks) == ((3,), {7: "1"})
    assert controller.the(wire.QueryHistory).filter == wire.JobFilter(tasks={7: "1"})


# ── steering ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("verb", "kind"), [("hold", wire.HoldJobs), ("release", wire.ReleaseJobs), ("requeue", wire.RequeueJobs)]
)
def test_tasks_are_held_released_and_requeued(
    run: Run,
    controller: ScriptedController,
    verb: str,
    kind: type[wire.HoldJobs | wire.ReleaseJobs | wire.RequeueJobs],
) -> None:
    controller.on(kind, wire.JobsDone(job_ids=(8,), tasks=((7, "1-5,8"),)))

    assert run("gqctl", verb, "8,7_[1-5,8]") == (0, "", "")
    assert (controller.the(kind).job_ids, controller.the(kind).tasks) == ((8,), {7: "1-5,8"})


def test_tasks_are_cancelled_and_told_with_the_name_of_their_array(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.CancelJobs, wire.JobsDone(job_ids=(12,), tasks=((7, "3-5"), (9, "1"))))

    done = run("gqdel", "-v", "7_2-5", "9_1", "-A", "nlp", "-q", "high")

    assert done.err == "cancelled job 12\ncancelled job 7_[3-5]\ncancelled job 9_1\n"
    assert controller.the(wire.CancelJobs).filter == wire.JobFilter(
        tasks={7: "2-5", 9: "1"}, accounts=("nlp",), qos=("high",)
    )


def test_a_step_of_a_task_is_ended(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SignalStep, wire.Done())

    assert run("gqdel", "-v", "7_2.0").err == "ended step 7_2.0\n"
    assert controller.the(wire.SignalStep) == wire.SignalStep(job_id=7, task=2, step=0)


def test_an_update_may_be_for_some_tasks_only(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.UpdateJob, wire.Done())

    words = ("--account=nlp", "--qos=high", "--priority=9", "--array-throttle=4")
    assert run("gqctl", "update", "7_[1-3]", "8", *words) == (0, "", "")
    change = wire.UpdateJob(job_id=8, account="nlp", qos="high", priority=9, array_throttle=4)
    assert controller.heard == [msgspec.structs.replace(change, job_id=7, tasks="1-3"), change]


def test_an_update_knows_the_words_of_scontrol(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.UpdateJob, wire.Done())

    words = ("JobId=7_2", "Account=nlp", "ArrayTaskThrottle=0", "TimeLimit=2:00:00", "Requeue=0", "priority=auto")
    assert run("gqctl", "update", *words) == (0, "", "")
    assert controller.the(wire.UpdateJob) == wire.UpdateJob(
        job_id=7, tasks="2", account="nlp", array_throttle=0, time_limit_s=7200, requeue=False, clear_priority=True
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["7", "acount=nlp"], "`acount` cannot be changed\nhint: did you mean `account`?"),
        (["7", "priority=x"], "`priority`: `x` is not a whole number"),
        (["7", "--array-throttle=-1"], "`--array-throttle`: -1 is too small"),
        (["account=nlp"], "JOB is missing"),
        (["7_"], "no change given"),
        (["7_", "qos=a"], "`` is not a task or a range of tasks"),
    ],
)
def test_a_wrong_update_asks_for_nothing(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    done = run("gqctl", "update", *words)

    assert (done.status, controller.heard) == (2, [])
    assert done.err.startswith(f"error: {message}")


def test_a_line_is_written_to_one_task(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.NotifyJob, wire.Done())

    assert run("gqctl", "notify", "7_3", "save", "now").status == 0
    assert controller.the(wire.NotifyJob) == wire.NotifyJob(job_id=7, task=3, text="save now")
    assert run("gqctl", "notify", "7_1-3", "save").err.startswith("error: `7_1-3` names several tasks")


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_why_is_asked_of_one_task_or_of_all(run: Run, controller: ScriptedController) -> None:
    controller.on(
        wire.Explain, lambda body: wire.Explanation(job_id=body.job_id, state="PENDING", reason="None", why="so")
    )

    assert run("gqwhy", "7_3", "7").lines == ["7_3: so", "7: so"]
    assert controller.all(wire.Explain) == [wire.Explain(job_id=7, task=3), wire.Explain(job_id=7)]


def test_the_output_of_a_task_is_asked_for_by_its_name(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.AccessLog, wire.LogAccess(job_id=12, attempt=0, state="PENDING"))

    done = run("gqlog", "7_3")

    assert controller.the(wire.AccessLog) == wire.AccessLog(job_id=7, task=3)
    assert done.err.startswith("error: job 7_3 has no output yet: it is PENDING\n")


def test_the_output_of_a_job_of_somebody_else_is_said_to_be_theirs(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.AccessLog, wire.Refused(code="job_over", message="job 7 ended long ago"))
    controller.on(wire.QueryHistory, jobs(msgspec.structs.replace(DONE, attempt=1, output_path="")))

    assert run("gqlog", "7_1") == (
        1,
        "",
        "error: job 7_1 belongs to ada; its output is only for its owner\nhint: ask the owner or an operator\n",
    )


def test_an_array_is_shown_with_all_that_has_left_it(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(DONE, CANCELLED))

    shown = json.loads(run("gqctl", "show", "7", "--json").out)

    assert [(one["job_id"], one["array_task_id"], one["array_tasks"]) for one in shown] == [
        (11, 1, ""),
        (7, None, "5-9"),
    ]
    assert controller.the(wire.ListJobs).filter == wire.JobFilter(job_ids=(7,))


def test_history_names_tasks_steps_and_what_was_cancelled_in_the_record(
    run: Run, controller: ScriptedController
) -> None:
    bare = msgspec.structs.replace(DONE, steps=())
    controller.on(wire.QueryHistory, lambda body: HISTORY if body.with_steps else jobs(bare, FAILED, CANCELLED))

    assert [line.split()[0] for line in run("gqacct", "-n", "-j", "7").lines] == ["7_1", "7_1.0", "7_2", "7_[5-9]"]
    fields = "jobid,jobidraw,arrayjobid,arraytaskid,arraytasks,account,qos,state"
    assert run("gqacct", "-n", "-P", "-X", "-j", "7", "-o", fields).lines == [
        "7_1|11|7|1|||normal|COMPLETED",
        "7_2|12|7|2|||normal|FAILED",
        "7_[5-9]|7|7||5-9||normal|CANCELLED",
    ]


def test_a_step_of_one_task_is_shown_alone(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryHistory, jobs(DONE, FAILED))

    assert [line.split()[0] for line in run("gqacct", "-n", "-j", "7_1.0,7_2").lines] == ["7_1.0", "7_2"]
    assert controller.all(wire.QueryHistory)[0].filter == wire.JobFilter(tasks={7: "1-2"})


def test_a_step_is_made_in_one_task_of_an_array(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job(12, array_job_id=7, array_task_id=2, state="RUNNING")))
    controller.on(wire.GetJobEnvironment, wire.Refused(code="stop", message="as far as this"))
    controller.on(wire.CreateStep, wire.Refused(code="stop", message="as far as this"))

    assert run("gqrun", "--jobid=7_2", "true").err == "error: as far as this\n"
    assert controller.the(wire.ListJobs).filter == wire.JobFilter(tasks={7: "2"})
    assert {getattr(body, "job_id", 12) for body in controller.heard} == {12}
