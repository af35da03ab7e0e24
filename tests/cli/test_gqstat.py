"""`gqstat`: columns, formats, filters, pages, and what is said of jobs that are not there."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable

import msgspec
import pytest

from gq.cli.framework.columns import JOB_COLUMNS, JobColumn, parse_codes, parse_fields
from gq.model.estimate import AccuracyInfo, StartEstimate
from gq.model.resource import Grant, ResourceRequest
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job, jobs

KEYS = [
    "job_id", "array_job_id", "array_task_id", "array_tasks", "sweep", "parameters", "name", "user", "account",
    "partition", "qos", "reservation", "cron", "state", "reason", "why", "nodes", "gpus", "cpus", "memory_mib",
    "time_limit_s", "submit_at", "eligible_at", "start_at", "end_at", "suspended_at", "suspended_s",
    "parked_for", "runs_on_parked",
    "expected_start_at", "expected_start_p90_at", "is_start_promised", "queue_position", "expected_s", "exit_code",
    "signal", "failure_class", "restart_count", "borrows", "preempted", "preempted_by", "preempted_at", "lost_gpu_s",
    "resume_s", "priority", "dependency",
]  # fmt: skip
RUNNING = a_job(
    5, state="RUNNING", reason="None", name="a-name-that-is-much-longer-than-eight-letters", gpus=8, time_limit_s=7200,
    grants=(Grant(node="n1"), Grant(node="n2")), start_at=SUBMITTED_AT, nodes_wanted=2, restart_count=1,
)  # fmt: skip
ENDED = a_job(
    6, state="FAILED", start_at=SUBMITTED_AT, end_at=SUBMITTED_AT + 3661, exit_code=3, grants=(Grant(node="n1"),)
)
ACTIVE = ("COMPLETING", "CONFIGURING", "PENDING", "RUNNING", "SUSPENDED")


def asked(controller: ScriptedController) -> wire.JobFilter:
    return controller.all(wire.ListJobs)[0].filter


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_piped_table_is_plain_text_and_cuts_nothing(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: SUBMITTED_AT + 100)
    controller.on(wire.ListJobs, jobs(RUNNING, a_job(7, gpus=2)))

    assert run("gqstat").lines == [
        "JOBID PARTITION NAME                                          USER ST TIME NODES GPUS NODELIST(REASON)",
        "    5 main      a-name-that-is-much-longer-than-eight-letters ada  R  1:40     2    8 n[1-2]",
        "    7 main      train                                         ada  PD 0:00     1    2 (Resources)",
    ]  # fmt: skip


def test_an_empty_queue_still_has_a_header(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs())

    assert run("gqstat") == (0, "JOBID PARTITION NAME USER ST TIME NODES GPUS NODELIST(REASON)\n", "")
    assert run("gqstat", "-h") == (0, "", "")


def test_a_name_cannot_move_the_cursor(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job(name="a\x1b[2Jb")))

    assert "a?[2Jb" in run("gqstat").out


def test_pages_are_read_to_the_end(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, lambda body: jobs(a_job(body.after + 1), more=body.after < 3))

    result = run("gqstat", "-h", "-o", "%i")

    assert result.lines == ["1", "2", "3", "4"]
    assert [body.after for body in controller.all(wire.ListJobs)] == [0, 1, 2, 3]


def test_a_limit_ends_the_reading(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, lambda body: jobs(*(a_job(body.after + n) for n in (1, 2)), more=True))

    assert run("gqstat", "-h", "-o", "%i", "--limit", "3").lines == ["1", "2", "3"]
    assert [body.limit for body in controller.all(wire.ListJobs)] == [3, 3]


def test_start_sorts_pending_jobs_by_their_expected_start(run: Run, controller: ScriptedController) -> None:
    controller.on(
        wire.ListJobs,
        jobs(a_job(1), a_job(2, expected_start_at=SUBMITTED_AT + 60), a_job(3, expected_start_at=SUBMITTED_AT)),
    )

    told = [
        StartEstimate(job_id=1, position=3, never="its owner holds it"),
        StartEstimate(job_id=2, position=2, start_at=SUBMITTED_AT + 60, p90_at=SUBMITTED_AT + 120),
        StartEstimate(
            job_id=3, position=1, start_at=SUBMITTED_AT, p90_at=SUBMITTED_AT + 60, is_promised=True, nodes=("n1",)
        ),
    ]
    controller.on(
        wire.EstimateStarts,
        lambda body: wire.StartEstimates(
            estimates=tuple(one for one in told if one.job_id > body.after)[:2], more=not body.after
        ),
    )

    result = run("gqstat", "--start", "-h")

    assert [line.split()[0] for line in result.lines] == ["3", "2", "1"]
    assert [line.split()[2] for line in result.lines] == ["1", "2", "3"]
    assert [line.split()[6] for line in result.lines] == ["2027-01-15T08:00:00", "2027-01-15T08:01:00", "never"]
    assert [line.split()[7] for line in result.lines] == ["=2027-01-15T08:01:00", "~2027-01-15T08:02:00", "N/A"]
    assert result.lines[2].endswith("N/A   never, because its owner holds it") or "never, because" in result.lines[2]
    assert asked(controller).states == ("PENDING",)


def test_accuracy_tells_promised_and_estimated_starts_apart(run: Run, controller: ScriptedController) -> None:
    def line(kind: str, bias: float) -> AccuracyInfo:
        return AccuracyInfo(
            kind=kind, jobs=12, median_error_s=90, p90_error_s=3600, median_bias_s=bias, within_band=0.912
        )

    controller.on(wire.QueryAccuracy, wire.Accuracy(lines=(line("promised", -60), line("all", 30))))

    result = run("gqstat", "--accuracy")

    assert [one.split() for one in result.lines] == [
        ["STARTS", "JOBS", "MEDIAN-ERROR", "P90-ERROR", "MEDIAN-BIAS", "IN-BAND"],
        ["promised", "12", "1:30", "1:00:00", "-1:00", "91%"],
        ["all", "12", "1:30", "1:00:00", "+0:30", "91%"],
    ]
    assert controller.the(wire.QueryAccuracy).since == pytest.approx(time.time() - 30 * 86400, abs=60)


def test_accuracy_since_then_as_json(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryAccuracy, wire.Accuracy(lines=()))

    assert run("gqstat", "--accuracy", "--since=7d", "--json") == (0, "[]\n", "")
    assert controller.the(wire.QueryAccuracy).since == pytest.approx(time.time() - 7 * 86400, abs=60)


def test_accuracy_of_nothing_is_said_to_be_that(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryAccuracy, wire.Accuracy(lines=()))

    result = run("gqstat", "--accuracy")

    assert (result.status, result.out) == (0, "")
    assert result.err.startswith("gqstat: no job that was told an estimate has started since ")
    assert result.err.endswith(": there is nothing to judge yet\n")


# ── filters ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], wire.JobFilter(states=ACTIVE)),
        (["-t", "all"], wire.JobFilter()),
        (["-t", "R,pending", "-t", "CD"], wire.JobFilter(states=("RUNNING", "PENDING", "COMPLETED"))),
        (["-j", "1,2", "--jobs=3", "-t", "all"], wire.JobFilter(job_ids=(1, 2, 3))),
        (["-u", "ada,bob", "-p", "a", "-n", "x", "-t", "all"],
         wire.JobFilter(users=("ada", "bob"), partitions=("a",), names=("x",))),
        (["-w", "n[1-3]", "-t", "all"], wire.JobFilter(nodes=("n1", "n2", "n3"))),
    ],
)  # fmt: skip
def test_filters_are_the_controllers_to_apply(
    run: Run, controller: ScriptedController, words: list[str], expected: wire.JobFilter
) -> None:
    controller.on(wire.ListJobs, jobs(a_job()))

    assert run("gqstat", *words).status == 0
    assert asked(controller) == expected


def test_me_is_the_user_of_this_process(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs())
    run("gqstat", "--me")

    assert asked(controller).users == (getpass.getuser(),)


def test_a_single_unknown_job_is_an_error_and_one_of_several_is_not(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs())

    alone = run("gqstat", "-h", "-j", "999")
    two = run("gqstat", "-h", "-j", "999,998")

    assert (alone.status, alone.err.splitlines()[0]) == (1, "error: job 999 is not in the queue")
    assert two == (0, "", "")


def test_a_single_job_that_has_ended_is_no_error(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, lambda body: jobs() if body.filter.states else jobs(ENDED))

    assert run("gqstat", "-h", "-j", "6") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-t", "BOGUS"], "`-t`: `BOGUS` is not a job state"),
        (["-j", "abc"], "`-j`: `abc` is not a job id"),
        (["-j", "0"], "`-j`: `0` is not a job id"),
        (["--limit", "0"], "`--limit`: 0 is too small"),
        (["-i", "x"], "`-i`: `x` is not a number of seconds"),
        (["-o", "%!"], "`-o`: `%!` is not a column"),
        (["-O", "bogusfield"], "`-O`: `bogusfield` is not a field"),
        (["-o", "%i", "-O", "jobid"], "`--format` and `--Format` exclude each other"),
        (["-w", "n[1"], "`-w`: `n[1` is not a node list"),
        (["12"], "unexpected argument `12`"),
    ],
)
def test_a_bad_command_line_is_refused_before_anything_is_asked(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    result = run("gqstat", *words)

    assert (result.status, result.out, controller.heard) == (2, "", [])
    assert result.err.startswith(f"error: {message}")


def test_tasks_of_arrays_are_named_as_everywhere(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job()))

    run("gqstat", "-t", "all", "-j", "12_3,7,12_[5-7,9],13_1-2", "--jobs=8_1,8")

    assert asked(controller) == wire.JobFilter(job_ids=(7, 8), tasks={12: "3,5-7,9", 13: "1-2"})


def test_jobs_can_be_chosen_by_account_and_qos(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job()))

    run("gqstat", "-t", "all", "-A", "nlp,vision", "-q", "high")

    assert asked(controller) == wire.JobFilter(accounts=("nlp", "vision"), qos=("high",))


# ── arrays ────────────────────────────────────────────────────────────────────────────────────────────────────

WAITING = a_job(
    7, array_job_id=7, array_tasks="2-8:2,11,13,15,17,19,100-200", array_task_count=110, array_throttle=2,
    reason="JobArrayTaskLimit",
)  # fmt: skip
LEFT = a_job(12, array_job_id=7, array_task_id=1, state="RUNNING", grants=(Grant(node="n1"),))


def test_the_tasks_that_wait_are_one_line_and_a_long_list_of_them_is_shortened(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.ListJobs, jobs(LEFT, WAITING))

    table = run("gqstat")

    assert [line.split()[0] for line in table.lines] == ["JOBID", "7_1", "7_[2-8:2,11,13,...%2]"]
    assert table.lines[2].endswith("(JobArrayTaskLimit)")


def test_programs_get_the_tasks_whole(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(LEFT, WAITING))

    whole = "2-8:2,11,13,15,17,19,100-200"
    assert run("gqstat", "-h", "-o", "%i %F %K %A").lines == ["7_1 7 1 12", f"7_[{whole}%2] 7 {whole}%2 7"]
    assert run("gqstat", "-h", "-O", "jobarrayid:40").lines[1].strip() == f"7_[{whole}%2]"
    [left, waiting] = json.loads(run("gqstat", "--json").out)
    assert (left["job_id"], left["array_job_id"], left["array_task_id"], left["array_tasks"]) == (12, 7, 1, "")
    assert (waiting["array_job_id"], waiting["array_task_id"], waiting["array_tasks"]) == (7, None, whole)


def test_each_task_can_have_a_line_of_its_own(run: Run, controller: ScriptedController) -> None:
    few = a_job(7, array_job_id=7, array_tasks="2-4", array_throttle=2)
    controller.on(wire.ListJobs, jobs(LEFT, few))

    assert [line.split()[0] for line in run("gqstat", "-r", "-h").lines] == ["7_1", "7_2", "7_3", "7_4"]
    assert [one["array_task_id"] for one in json.loads(run("gqstat", "--array", "--json").out)] == [1, 2, 3, 4]


def test_account_qos_priority_and_dependency_have_squeues_letters(run: Run, controller: ScriptedController) -> None:
    job = a_job(7, account="nlp", qos="high", priority=4294967, dependency="afterok:5")
    controller.on(wire.ListJobs, jobs(job, a_job(8)))

    assert run("gqstat", "-h", "-o", "%a %q %Q %p %E").lines == [
        "nlp high 4294967 0.00099999993108 afterok:5",
        "(null) normal 0 0.00000000000000 (null)",
    ]


# ── formats ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%i %t", "5 R"),
        ("%.6i|%6i|%.2j|%2j", "     5|5     |a-|a-"),
        ("%%i|%%T", "5|RUNNING"),
        ('"%i","%P"', '"5","main"'),
        ("%T %B %N %R", "RUNNING n1 n[1-2] n[1-2]"),
        ("%M %l %L", "1:40 2:00:00 1:58:20"),
        ("%D %C %u %r", "2 4 ada None"),
        ("%S %V %e", "2027-01-15T08:00:00 2027-01-15T08:00:00 2027-01-15T10:00:00"),
        ("%A %F %K %b %m", "5 5 N/A N/A 0"),
        ("plain", "plain"),
    ],
)
def test_percent_codes_give_what_squeue_gives(text: str, line: str) -> None:
    assert parse_codes(text).line(RUNNING, SUBMITTED_AT + 100) == line


def test_a_format_without_a_code_is_noted_and_written_as_text(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(RUNNING))
    note = "note: `JobID,State` contains no code such as %i; use -O for names such as jobid,state\n"

    assert run("gqstat", "-h", "--format=JobID,State") == (0, "JobID,State\n", note)
    assert run("gqstat", "-h", "--format=%i") == (0, "5\n", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%T %B|%N|%R", "PENDING n/a||(Resources)"),
        ("%M %L %S", "0:00 UNLIMITED N/A"),
        ("%m %b", "16G gpu:a100:2"),
        ("%i %F %K", "100_4 100 4"),
    ],
)
def test_a_pending_job_reads_as_in_squeue(text: str, line: str) -> None:
    asked = ResourceRequest(mem_per_node_mib=16384, gpus_per_node=2, gpu_type="a100")
    job = a_job(7, array_job_id=100, array_task_id=4, resources=asked)

    assert parse_codes(text).line(job, SUBMITTED_AT) == line


def test_of_a_parked_job_both_its_nodes_and_that_it_is_parked_are_shown() -> None:
    parked = msgspec.structs.replace(RUNNING, reason="Parked", parked_for="9")
    assert parse_codes("%R").line(parked, SUBMITTED_AT) == "n[1-2] (Parked)"


def test_the_run_time_of_an_ended_job_stands_still() -> None:
    assert parse_codes("%M %e").line(ENDED, SUBMITTED_AT + 99999) == "1:01:01 2027-01-15T09:01:01"


def test_headers_are_those_of_squeue() -> None:
    text = '"%i","%j","%t","%M","%L","%D","%C","%m","%b","%R"'

    assert parse_codes(text).header() == (
        '"JOBID","NAME","ST","TIME","TIME_LEFT","NODES","CPUS","MIN_MEMORY","TRES_PER_NODE","NODELIST(REASON)"'
    )


def test_fields_are_twenty_wide_and_cut() -> None:
    form = parse_fields("JobArrayID,StateCompact,name:10,reason:.12,gpus:0")

    assert form.header() == "JOBID               ST                  NAME            REASONGPUS"
    assert form.line(RUNNING, SUBMITTED_AT) == "5                   R                   a-name-tha        None8"


@pytest.mark.parametrize("column", JOB_COLUMNS, ids=lambda column: column.names[0])
def test_every_column_has_a_value_for_every_kind_of_job(column: JobColumn) -> None:
    for job in (RUNNING, ENDED, a_job(), a_job(state="CANCELLED")):
        assert isinstance(column.value(job, SUBMITTED_AT), str)


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_json_has_the_documented_keys_and_instants_with_their_offset(
    run: Run, controller: ScriptedController, set_zone: Callable[[str], None]
) -> None:
    set_zone("Asia/Kolkata")
    controller.on(
        wire.ListJobs, lambda body: jobs(RUNNING, more=True) if not body.after else jobs(a_job(why="@{1800000000}"))
    )

    [running, pending] = json.loads(run("gqstat", "--json").out)

    assert list(running) == KEYS
    assert (running["nodes"], running["start_at"]) == (["n1", "n2"], "2027-01-15T13:30:00+05:30")
    assert (pending["nodes"], pending["start_at"], pending["why"]) == ([], None, "2027-01-15T13:30:00+05:30")


def test_json_of_an_empty_queue_is_an_empty_list(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs())

    assert json.loads(run("gqstat", "--json").out) == []
