"""`gqwait` returns what jobs returned; `gqwhy` says why they stand where they stand."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from msgspec.structs import replace

from gq.model.explanation import ExpectedStart, JobName
from gq.model.ids import JobId
from gq.model.job import JobInfo
from gq.model.wait import WouldDelay
from gq.wire import client as wire
from gq.wire.explanation import encoded_facts
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job, jobs

GOOD = a_job(1, state="COMPLETED", exit_code=0)
BAD = a_job(2, state="FAILED", exit_code=3)
KILLED = a_job(3, state="FAILED", signal=15)
LOST = a_job(4, state="NODE_FAIL")


@pytest.mark.parametrize(
    ("ended", "status"),
    [((GOOD,), 0), ((BAD,), 3), ((KILLED,), 143), ((LOST,), 1), ((GOOD, BAD, LOST), 3), ((GOOD, KILLED), 143)],
    ids=["good", "bad", "killed", "lost", "the highest", "a signal is high"],
)
def test_waiting_returns_the_highest_code_of_the_jobs(
    run: Run, controller: ScriptedController, ended: tuple[JobInfo, ...], status: int
) -> None:
    controller.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=ended))

    assert run("gqwait", *(str(job.job_id) for job in ended)) == (status, "", "")
    assert controller.the(wire.WaitJobs).job_ids == tuple(job.job_id for job in ended)


def test_any_counts_only_those_that_have_ended(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=(a_job(9), BAD)))

    assert run("gqwait", "--any", "9", "2").status == 3
    assert controller.the(wire.WaitJobs).wait_any


def test_the_question_is_asked_again_until_it_is_answered(run: Run, controller: ScriptedController) -> None:
    answers = [
        wire.Waited(is_done=False, jobs=()),
        wire.Waited(is_done=False, jobs=()),
        wire.Waited(is_done=True, jobs=(GOOD,)),
    ]
    controller.on(wire.WaitJobs, lambda _: answers.pop(0))

    assert run("gqwait", "1").status == 0
    assert len(controller.all(wire.WaitJobs)) == 3


@pytest.mark.parametrize("words", [["--timeout", "0"], ["--timeout=0.05"]])
def test_a_timeout_is_124(run: Run, controller: ScriptedController, words: list[str]) -> None:
    controller.on(wire.WaitJobs, wire.Waited(is_done=False, jobs=(a_job(1),)))
    started = time.monotonic()

    assert run("gqwait", *words, "1").status == 124
    assert time.monotonic() - started < 10


def test_a_job_that_left_memory_is_looked_up_in_the_history(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=(GOOD,)))
    controller.on(wire.QueryHistory, jobs(BAD))

    assert run("gqwait", "1", "2").status == 3
    assert controller.the(wire.QueryHistory).filter.job_ids == (2,)


def test_json_tells_how_the_jobs_ended(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.WaitJobs, wire.Waited(is_done=True, jobs=(BAD,)))

    [shown] = json.loads(run("gqwait", "--json", "2").out)

    assert (shown["job_id"], shown["state"], shown["exit_code"]) == (2, "FAILED", 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "JOB is missing"), (["x"], "`x` is not a job id"),
     (["--timeout=-1", "1"], "`--timeout`: `-1` is not a number"),
     (["--timeout=nan", "1"], "`--timeout`: `nan` is not a number")],
)  # fmt: skip
def test_waiting_for_nothing_is_refused(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    result = run("gqwait", *words)

    assert (result.status, controller.heard) == (2, [])
    assert result.err.startswith(f"error: {message}")


def test_an_unknown_job_cannot_be_waited_for(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.WaitJobs, wire.Refused(code="unknown_job", message="job 9 does not exist"))

    assert run("gqwait", "9") == (1, "", "error: job 9 does not exist\n")


@pytest.mark.usefixtures("location")
def test_a_lost_controller_is_125_for_those_who_wait(run: Run) -> None:
    assert run("gqwait", "1").status == 125


# ── gqwhy ─────────────────────────────────────────────────────────────────────────────────────────────────────

WHY = wire.Explanation(
    job_id=7,
    state="PENDING",
    reason="Resources",
    why="it needs 8 GPUs, 3 are free: job 5 (ada) holds 4 GPUs until @{1800003600}",
    hint="ask for 3 GPUs",
    blockers=(5,),
    expected_start_at=SUBMITTED_AT + 3600,
    facts=("it needs 8 GPUs, 3 are free", "job 5 (ada) holds 4 GPUs until @{1800003600}"),
    shortage=wire.Shortage(
        resource="GPUs",
        wanted=8,
        free=3,
        holders=(wire.HeldResource(job_id=5, user="ada", nodes=("n1",), gpus=4, cpus=8, ends_at=SUBMITTED_AT + 3600),),
    ),
)


def test_each_fact_has_a_line_and_instants_are_in_the_readers_time(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: SUBMITTED_AT)
    controller.on(wire.Explain, WHY)

    assert run("gqwhy", "7").lines == [
        "it needs 8 GPUs, 3 are free",
        "job 5 (ada) holds 4 GPUs until 09:00:00",
        "hint: ask for 3 GPUs",
    ]


def test_on_another_day_the_date_is_told(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: SUBMITTED_AT - 86400)
    controller.on(wire.Explain, WHY)

    assert run("gqwhy", "7").lines[1].endswith("until 2027-01-15 09:00:00")


def test_several_jobs_are_told_apart(run: Run, controller: ScriptedController) -> None:
    controller.on(
        wire.Explain, lambda body: wire.Explanation(job_id=body.job_id, state="RUNNING", reason="None", why="it runs")
    )

    assert run("gqwhy", "7", "8").lines == ["7: it runs", "8: it runs"]


def test_the_json_of_a_reason_has_stable_keys(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.Explain, WHY)

    assert json.loads(run("gqwhy", "--json", "7").out) == [
        {
            "job_id": 7,
            "array_job_id": None,
            "array_task_id": None,
            "state": "PENDING",
            "reason": "Resources",
            "why": "it needs 8 GPUs, 3 are free: job 5 (ada) holds 4 GPUs until 2027-01-15T09:00:00+00:00",
            "facts": [
                "it needs 8 GPUs, 3 are free",
                "job 5 (ada) holds 4 GPUs until 2027-01-15T09:00:00+00:00",
            ],
            "details": [],
            "jobs": [],
            "hint": "ask for 3 GPUs",
            "blockers": [5],
            "expected_start_at": "2027-01-15T09:00:00+00:00",
            "shortage": {
                "resource": "GPUs",
                "wanted": 8,
                "free": 3,
                "is_fragmented": False,
                "selection": "",
                "nodes": 0,
                "idle_nodes": 0,
                "free_elsewhere": 0,
                "holders": [
                    {
                        "job_id": 5,
                        "user": "ada",
                        "reservation": "",
                        "nodes": ["n1"],
                        "gpus": 4,
                        "cpus": 8,
                        "memory_mib": 0,
                        "ends_at": "2027-01-15T09:00:00+00:00",
                    }
                ],
            },
        }
    ]


FACTS_OF_7 = wire.Explanation(
    job_id=7,
    state="PENDING",
    reason="Priority",
    why="the sentence of the controller",
    hint="the hint of the controller",
    details=encoded_facts(
        (
            WouldDelay(job_id=JobId(5), starts_at=SUBMITTED_AT + 60, ends_at=None, nodes=("n1",), longest_s=None),
            ExpectedStart(at=SUBMITTED_AT + 3600),
        )
    ),
    jobs=(JobName(7, "7", "bob", "small"), JobName(5, "4_1", "ada", "wide")),
)
UNKNOWN_FACT = msgspec.Raw(msgspec.msgpack.encode({"kind": "of_a_later_version", "gpus": 3, "ends_at": SUBMITTED_AT}))


def test_the_client_renders_the_facts_of_the_controller(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: SUBMITTED_AT)
    controller.on(wire.Explain, FACTS_OF_7)

    lines = run("gqwhy", "7").lines

    assert "job 4_1 (ada: wide)" in lines[0] and "08:01:00" in lines[0]
    assert lines[1] == "it should start at about 09:00:00"
    assert "--time=TIME" in lines[2]
    assert "the controller" not in " ".join(lines)


def test_the_json_has_the_numbers_of_each_fact(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.Explain, FACTS_OF_7)

    [answer] = json.loads(run("gqwhy", "--json", "7").out)

    assert answer["details"] == [
        {
            "kind": "would_delay",
            "job_id": 5,
            "starts_at": "2027-01-15T08:01:00+00:00",
            "ends_at": None,
            "nodes": ["n1"],
            "longest_s": None,
        },
        {
            "kind": "expected_start",
            "at": "2027-01-15T09:00:00+00:00",
            "is_after_others": False,
            "names_others": False,
        },
    ]
    assert answer["jobs"][1] == {"job_id": 5, "label": "4_1", "user": "ada", "name": "wide"}


def test_a_fact_of_a_newer_controller_is_shown_in_the_words_of_the_controller(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.Explain, replace(FACTS_OF_7, details=(*FACTS_OF_7.details, UNKNOWN_FACT)))

    assert run("gqwhy", "7").lines == ["the sentence of the controller", "hint: the hint of the controller"]
    [answer] = json.loads(run("gqwhy", "--json", "7").out)
    assert answer["details"][2] == {
        "kind": "of_a_later_version",
        "gpus": 3,
        "ends_at": "2027-01-15T08:00:00+00:00",
    }


def test_an_unknown_job_has_no_reason(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.Explain, wire.Refused(code="unknown_job", message="job 9 does not exist", hint="gqacct"))

    assert run("gqwhy", "9") == (1, "", "error: job 9 does not exist\nhint: gqacct\n")


def test_of_several_jobs_those_that_are_known_are_explained_though_one_is_unknown(
    run: Run, controller: ScriptedController
) -> None:
    def explain(body: wire.Explain) -> wire.Explanation | wire.Refused:
        if body.job_id == 9:
            return wire.Refused(code="unknown_job", message="job 9 does not exist", hint="gqacct")
        return wire.Explanation(job_id=body.job_id, state="RUNNING", reason="None", why="it runs")

    controller.on(wire.Explain, explain)

    assert run("gqwhy", "9", "7") == (1, "7: it runs\n", "error: job 9 does not exist\nhint: gqacct\n")
    told = run("gqwhy", "--json", "7", "9")
    assert ([one["job_id"] for one in json.loads(told.out)], told.status) == ([7], 1)


@pytest.mark.parametrize("command", ["gqwhy", "gqwait"])
def test_who_names_no_job_is_told_where_they_are_listed(run: Run, command: str) -> None:
    assert run(command) == (2, "", "error: JOB is missing\nhint: gqstat lists the jobs\n")


OVER = wire.Refused(code="job_over", message="job 7 ended long ago", hint="gqacct shows it")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"state": "FAILED", "exit_code": 3, "why": "its script returned 3"}, "its script returned 3"),
        ({"state": "FAILED", "exit_code": 3}, "it is FAILED, with exit code 3"),
        ({"state": "FAILED", "signal": 9, "exit_code": 0}, "it is FAILED: signal 9 ended it"),
        ({"state": "NODE_FAIL"}, "it is NODE_FAIL"),
    ],
)
def test_how_a_job_ended_that_has_left_memory_is_told_from_the_history(
    run: Run, controller: ScriptedController, fields: dict[str, object], told: str
) -> None:
    controller.on(wire.Explain, OVER)
    controller.on(wire.QueryHistory, jobs(a_job(7, reason="NonZeroExitCode", **fields)))

    assert run("gqwhy", "7") == (0, f"{told}\n", "")
    assert controller.the(wire.QueryHistory).filter == wire.JobFilter(job_ids=(7,))
    [shown] = json.loads(run("gqwhy", "--json", "7").out)
    assert (shown["job_id"], shown["state"], shown["why"]) == (7, fields["state"], told)


def test_a_task_that_has_left_memory_is_looked_up_as_that_task(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.Explain, OVER)
    task = a_job(9, state="COMPLETED", exit_code=0, array_job_id=7, array_task_id=2, why="it went well")
    controller.on(wire.QueryHistory, jobs(task))

    assert run("gqwhy", "7_2").lines == ["it went well"]
    assert controller.the(wire.QueryHistory).filter == wire.JobFilter(tasks={7: "2"})


def test_of_an_array_that_has_left_memory_the_ends_are_counted(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.Explain, OVER)
    tasks = [
        a_job(8 + n, state=state, array_job_id=7, array_task_id=n) for n, state in enumerate(("COMPLETED", "FAILED"))
    ]
    record = a_job(7, state="CANCELLED", array_job_id=7, array_tasks="2-4", array_task_count=3)
    controller.on(wire.QueryHistory, jobs(record, *tasks))

    assert run("gqwhy", "7").lines == [
        "all of its tasks have ended: 3 CANCELLED, 1 COMPLETED, 1 FAILED",
        "hint: gqacct -j 7 lists them; gqwhy 7_TASK explains one",
    ]
    assert json.loads(run("gqwhy", "--json", "7").out)[0]["state"] == "FAILED"


def test_a_job_that_has_left_the_history_too_is_said_to_be_over(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.Explain, OVER)
    controller.on(wire.QueryHistory, jobs())

    assert run("gqwhy", "7") == (1, "", "error: job 7 ended long ago\nhint: gqacct shows it\n")
