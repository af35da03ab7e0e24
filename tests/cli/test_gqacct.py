"""`gqacct`: which jobs and steps, which fields, and the forms that programs parse."""

from __future__ import annotations

import getpass
import json
import os
import time

import msgspec
import pytest

from gq.cli.views.account_fields import FIELDS, Field, Line
from gq.model.job import StepInfo, Usage
from gq.model.resource import Grant
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job, jobs

STEP = StepInfo(
    job_id=25, attempt=1, step=0, name="hostname", state="FAILED", nodes=("n1",), tasks=2, cpus=2, gpus=1,
    start_at=SUBMITTED_AT + 5, end_at=SUBMITTED_AT + 15, signal=9,
    usage=Usage(user_cpu_s=3, system_cpu_s=1, max_rss_mib=512),
)  # fmt: skip
JOB = a_job(
    25, state="FAILED", reason="NonZeroExitCode", exit_code=3, start_at=SUBMITTED_AT, end_at=SUBMITTED_AT + 3661,
    grants=(Grant(node="n1"), Grant(node="n2")), gpus=8, time_limit_s=7200, steps=(STEP,),
)  # fmt: skip
PENDING = a_job(26)
NOW = SUBMITTED_AT + 7200
MIDNIGHT = SUBMITTED_AT - 8 * 3600


@pytest.fixture
def history(controller: ScriptedController, monkeypatch: pytest.MonkeyPatch) -> ScriptedController:
    monkeypatch.setattr(time, "time", lambda: NOW)
    bare = msgspec.structs.replace(JOB, steps=())
    controller.on(wire.QueryHistory, lambda body: jobs(JOB if body.with_steps else bare, PENDING))
    return controller


def asked(controller: ScriptedController) -> wire.QueryHistory:
    return controller.the(wire.QueryHistory)


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_comes_first_and_its_steps_after_it(run: Run, history: ScriptedController) -> None:
    assert run("gqacct").lines == [
        "JobID JobName  Partition User AllocCPUS AllocGPUS  Elapsed State   ExitCode",
        "25    train    main      ada          4         8 01:01:01 FAILED  3:0",
        "25.0  hostname                        2         1 00:00:10 FAILED  0:9",
        "26    train    main      ada          0         0 00:00:00 PENDING 0:0",
    ]


def test_at_80_columns_every_state_and_exit_code_is_whole(
    run: Run, history: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gq.cli.framework.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    long = msgspec.structs.replace(JOB, job_id=102_345, name="fine-tune-the-large-one", user="alexandra", steps=())
    cancelled = msgspec.structs.replace(
        long, state="CANCELLED", why="it was cancelled by alexandra", uid=100_000, end_at=SUBMITTED_AT + 90_061
    )
    ended = msgspec.structs.replace(long, state="OUT_OF_MEMORY", exit_code=127, signal=15, partition="interactive")
    history.on(wire.QueryHistory, jobs(cancelled, ended))

    header, *lines = run("gqacct").lines

    assert max(map(len, (header, *lines))) <= 80 and header.rstrip().endswith(" State               ExitCode")
    assert lines[0].rstrip().endswith(" 1-01:01:01 CANCELLED by 100000 0:0")
    assert lines[1].rstrip().endswith("   01:01:01 OUT_OF_MEMORY       127:15")


@pytest.mark.parametrize(("option", "end"), [("-P", ""), ("--parsable2", ""), ("-p", "|")])
def test_parsable_output_has_bars_and_slurms_spelling(
    run: Run, history: ScriptedController, option: str, end: str
) -> None:
    result = run("gqacct", option, "-o", "jobid,STATE,exitcode,nodelist,start,end")

    assert result.lines == [
        f"JobID|State|ExitCode|NodeList|Start|End{end}",
        f"25|FAILED|3:0|n[1-2]|2027-01-15T08:00:00|2027-01-15T09:01:01{end}",
        f"25.0|FAILED|0:9|n1|2027-01-15T08:00:05|2027-01-15T08:00:15{end}",
        f"26|PENDING|0:0|None assigned|Unknown|Unknown{end}",
    ]


def test_widths_cut_with_a_plus(run: Run, history: ScriptedController) -> None:
    assert run("gqacct", "-n", "-X", "-o", "jobid%5,state%-4,user%6").lines == [
        "   25 FAI+    ada",
        "   26 PEN+    ada",
    ]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_has_a_value_on_every_line(field: Field) -> None:
    for line in (Line(JOB, None, NOW), Line(JOB, STEP, NOW), Line(PENDING, None, NOW)):
        assert isinstance(field.value(line), str)


def test_the_fields_are_listed_on_request(run: Run, controller: ScriptedController) -> None:
    assert run("gqacct", "--helpformat").out.split() == [field.name for field in FIELDS]
    assert controller.heard == []


def test_the_json_of_a_job_holds_its_steps(run: Run, history: ScriptedController) -> None:
    [first, second] = json.loads(run("gqacct", "--json").out)

    assert (first["job_id"], first["steps"][0]["step"], first["steps"][0]["signal"]) == (25, 0, 9)
    assert second["steps"] == []


def test_what_was_lost_when_a_job_gave_way_is_shown_and_in_the_json(run: Run, controller: ScriptedController) -> None:
    gave_way = msgspec.structs.replace(
        JOB,
        steps=(),
        state="PREEMPTED",
        preempted=2,
        preempted_by="9_4",
        preempted_at=SUBMITTED_AT + 3661,
        lost_gpu_s=5400.5,
    )
    controller.on(wire.QueryHistory, jobs(gave_way))

    assert run("gqacct", "-XnP", "-o", "jobid,state,exitcode,preempted,preemptedby,lostgpu").lines == [
        "25|PREEMPTED|0:0|2|9_4|01:30:00"
    ]
    [shown] = json.loads(run("gqacct", "-X", "--json").out)
    assert (shown["preempted"], shown["preempted_by"], shown["lost_gpu_s"]) == (2, "9_4", 5400.5)
    assert shown["preempted_at"].startswith("20")


def test_usage_is_shown_per_step(run: Run, history: ScriptedController) -> None:
    line = run("gqacct", "-nP", "-o", "jobid,totalcpu,maxrss,ntasks,cputimeraw").lines[1]

    assert line == "25.0|00:00:04|512M|2|20"


# ── which jobs ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "after", "before"),
    [
        ([], MIDNIGHT, None),
        (["-j", "25"], None, None),
        (["-S", "2027-01-14", "-E", "2027-01-15T09:30"], MIDNIGHT - 86400, SUBMITTED_AT + 5400),
        (["-S", "09:00", "-E", "now"], SUBMITTED_AT + 3600, NOW),
        (["-S", "23:00"], MIDNIGHT - 3600, None),
        (["-S", "now-1hour"], NOW - 3600, None),
        (["-S", "now-2d", "-E", "now-30m"], NOW - 2 * 86400, NOW - 1800),
    ],
)
def test_times_say_from_when_to_when(
    run: Run, history: ScriptedController, words: list[str], after: float | None, before: float | None
) -> None:
    assert run("gqacct", *words).status == 0
    assert (asked(history).ended_after, asked(history).started_before) == (after, before)


def test_the_filter_is_the_controllers_to_apply(run: Run, history: ScriptedController) -> None:
    run("gqacct", "-j", "25,26", "-u", "ada", "-s", "F,TO", "-r", "main", "--name", "x", "-N", "n1", "-X")

    assert asked(history).filter == wire.JobFilter(
        job_ids=(25, 26), users=("ada",), names=("x",), partitions=("main",), states=("FAILED", "TIMEOUT"),
        nodes=("n1",),
    )  # fmt: skip
    assert not asked(history).with_steps


@pytest.mark.parametrize(
    ("uid", "words", "users"), [(1000, [], None), (0, [], ()), (1000, ["-a"], ()), (1000, ["-j25"], ())]
)
def test_ordinary_users_see_their_own_jobs_unless_they_ask_for_others(
    run: Run,
    history: ScriptedController,
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    words: list[str],
    users: tuple[str, ...] | None,
) -> None:
    me = getpass.getuser()
    monkeypatch.setattr("gq.cli.gqacct.own_name", lambda: me)
    monkeypatch.setattr(os, "geteuid", lambda: uid)

    run("gqacct", *words)

    assert asked(history).filter.users == ((me,) if users is None else users)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "unknown_job",
            "error: job 999 does not exist\nhint: gqstat lists the queue, gqacct ended jobs\n",
        ),
        (
            "job_over",
            "error: job 999 ended long ago and is no longer in the history\n"
            "hint: `history.keep_jobs_days` in gq.toml sets how long the history keeps jobs\n",
        ),
    ],
)
def test_a_job_that_the_history_does_not_have_is_an_error(
    run: Run, controller: ScriptedController, code: str, said: str
) -> None:
    controller.on(wire.QueryHistory, lambda body: jobs(*([JOB] if 25 in body.filter.job_ids else [])))
    controller.on(wire.Explain, wire.Refused(code=code, message=""))

    assert run("gqacct", "-P", "-j", "999", "-o", "jobid,state") == (1, "JobID|State\n", said)
    both = run("gqacct", "-P", "-n", "-j", "25,999", "-o", "jobid,state")
    assert both == (1, "25|FAILED\n25.0|FAILED\n", said)


def test_a_job_that_other_options_leave_out_is_no_error(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryHistory, lambda body: jobs() if body.filter.states else jobs(JOB))

    assert run("gqacct", "-n", "-j", "25", "-s", "RUNNING") == (0, "", "")


def test_a_step_that_a_job_never_had_is_an_error(run: Run, history: ScriptedController) -> None:
    history.on(wire.QueryHistory, jobs(JOB))

    assert run("gqacct", "-P", "-n", "-j", "25.0,25.7", "-o", "jobid") == (1, "25.0\n", "error: job 25 has no step 7\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "bogus"], "`-o`: `bogus` is not a field"),
        (["-o", "stat"], "`-o`: `stat` is not a field"),
        (["-j", "abc"], "`-j`: `abc` is not a job id"),
        (["-S", "whenever"], "`-S`: `whenever` is not a time"),
        (["-S", "now", "-E", "now-1h"], "`--endtime` is before `--starttime`"),
        (["tail"], "unexpected argument `tail`"),
        (["-s", "XX"], "`-s`: `XX` is not a job state"),
    ],
)
def test_a_bad_command_line_is_refused_before_anything_is_asked(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    result = run("gqacct", *words)

    assert (result.status, result.out, controller.heard) == (2, "", [])
    assert result.err.startswith(f"error: {message}")


# ── steps by name, and whose wish an end was ──────────────────────────────────────────────────────────────────


SECOND = msgspec.structs.replace(STEP, step=2, name="train", state="CANCELLED", signal=15)


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("25.2", ["25.2"]),
        ("25.0,25.2", ["25.0", "25.2"]),
        ("25.2,25", ["25", "25.0", "25.2"]),
        ("25.7", []),
        ("25.0,26", ["25.0", "26"]),
    ],
)
def test_steps_are_chosen_by_their_numbers(
    run: Run, controller: ScriptedController, named: str, shown: list[str]
) -> None:
    job = msgspec.structs.replace(JOB, steps=(STEP, SECOND))
    controller.on(
        wire.QueryHistory, lambda body: jobs(*[one for one in (job, PENDING) if one.job_id in body.filter.job_ids])
    )

    assert run("gqacct", "-n", "-P", "-o", "jobid", "-j", named).lines == shown
    told = json.loads(run("gqacct", "--json", "-j", named).out)
    of_job = [f"25.{step['step']}" for one in told if one["job_id"] == 25 for step in one["steps"]]
    assert of_job == [line for line in shown if "." in line]


def test_what_is_no_step_is_refused(run: Run, history: ScriptedController) -> None:
    result = run("gqacct", "-j", "25.x")
    assert result.status == 2
    assert "`25.x` is not a step" in result.err


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("it was cancelled by ada after 3 s", "CANCELLED by 1000"),
        ("it was cancelled by root", "CANCELLED by 0"),
        ("it was cancelled by nosuchuser", "CANCELLED by nosuchuser"),
        ("it was cancelled, because its client is gone", "CANCELLED"),
        ("", "CANCELLED"),
    ],
)
def test_a_cancelled_job_tells_who_did_it_and_has_no_code_of_its_own(
    run: Run, controller: ScriptedController, why: str, state: str
) -> None:
    job = msgspec.structs.replace(JOB, state="CANCELLED", why=why, exit_code=0, signal=15, uid=1000, steps=(SECOND,))
    controller.on(wire.QueryHistory, jobs(job))

    assert run("gqacct", "-n", "-P", "-o", "jobid,state,exitcode", "-j", "25").lines == [
        f"25|{state}|0:0",
        "25.2|CANCELLED|0:15",
    ]
