"""`gqsub`: what is sent, what is printed, and what is refused before anything is sent."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import pytest

from gq.model.estimate import Alternative
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job

SCRIPT = "#!/bin/sh\n#SBATCH -J headed\n#SBATCH -N 2\necho hello\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, with a batch script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def queue(controller: ScriptedController) -> ScriptedController:
    controller.on(wire.Submit, wire.Submitted(job_id=123))
    return controller


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_script_is_queued_with_its_header_its_arguments_and_its_surroundings(
    run: Run, queue: ScriptedController, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "red")

    result = run("gqsub", "-n4", "job.sh", "--flag", "x y")

    assert result == (0, "Submitted batch job 123\n", "")
    sent = queue.the(wire.Submit)
    assert sent.script == SCRIPT.encode()
    assert sent.environment["COLOUR"] == "red"
    assert (sent.spec.name, sent.spec.args, sent.spec.command) == ("headed", ("--flag", "x y"), str(here / "job.sh"))
    assert (sent.spec.resources.nodes_min, sent.spec.resources.ntasks) == (2, 4)
    assert (sent.spec.submit_dir, sent.spec.chdir, sent.spec.submit_host) == (str(here), str(here), os.uname().nodename)


def test_a_job_without_a_name_is_called_after_its_script(run: Run, queue: ScriptedController, here: Path) -> None:
    (here / "plain.sh").write_text("#!/bin/sh\n")

    run("gqsub", "plain.sh")

    assert queue.the(wire.Submit).spec.name == "plain.sh"


def test_a_wrapped_command_runs_under_sh(run: Run, queue: ScriptedController, here: Path) -> None:
    result = run("gqsub", "--wrap", "echo $HOME")

    assert result.out == "Submitted batch job 123\n"
    sent = queue.the(wire.Submit)
    assert sent.script == b"#!/bin/sh\necho $HOME\n"
    assert (sent.spec.name, sent.spec.command) == ("wrap", "echo $HOME")


def test_a_script_on_standard_input_is_queued(
    run: Run, queue: ScriptedController, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SCRIPT.encode())))

    result = run("gqsub", "--parsable")

    assert result.out == "123\n"
    assert queue.the(wire.Submit).script == SCRIPT.encode()
    assert queue.the(wire.Submit).spec.resources.nodes_min == 2


def test_the_umask_is_that_of_the_submitter(run: Run, queue: ScriptedController, here: Path) -> None:
    before = os.umask(0o027)
    try:
        run("gqsub", "job.sh")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)

    assert queue.the(wire.Submit).spec.umask == 0o027


def test_an_environment_variable_that_is_no_text_is_left_out_and_said_so(
    run: Run, queue: ScriptedController, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "\udcff")

    result = run("gqsub", "job.sh")

    assert (result.status, result.err) == (
        0,
        "the variable 'ODD' is not UTF-8 and is not passed to the job\n",
    )
    assert "ODD" not in queue.the(wire.Submit).environment


def test_an_argument_that_is_no_text_is_refused(run: Run, queue: ScriptedController, here: Path) -> None:
    result = run("gqsub", "job.sh", "\udcff")

    assert result.status == 2
    assert "is not UTF-8 text" in result.err


# ── what is printed ───────────────────────────────────────────────────────────────────────────────────────────


def test_json_is_one_object_with_the_id(run: Run, queue: ScriptedController, here: Path) -> None:
    assert json.loads(run("gqsub", "--json", "job.sh").out) == {"job_id": 123}


def test_parsable_in_the_script_prints_only_the_id(run: Run, queue: ScriptedController, here: Path) -> None:
    (here / "job.sh").write_text("#!/bin/sh\n#SBATCH --parsable\n#SBATCH --wckey=x\n")

    assert run("gqsub", "job.sh") == (0, "123\n", "job.sh:3: --wckey has no effect\n")


def test_test_only_says_when_it_would_start_and_queues_nothing(
    run: Run, controller: ScriptedController, here: Path
) -> None:
    controller.on(wire.Submit, wire.Tested(start_at=1_800_000_000.0, nodes=("n1", "n2"), why="3 jobs are ahead"))

    result = run("gqsub", "--test-only", "job.sh")

    assert result == (0, "would start at 2027-01-15T08:00:00 on n1,n2: 3 jobs are ahead\n", "")
    assert controller.the(wire.Submit).test_only


ALTERNATIVES = (
    Alternative(options="", what="as asked", start_at=SUBMITTED_AT + 3600, p90_at=SUBMITTED_AT + 7200, end_at=None),
    Alternative(
        options="--gpus=4", what="4 GPUs instead of 8", start_at=SUBMITTED_AT, p90_at=SUBMITTED_AT,
        end_at=SUBMITTED_AT + 86400, nodes=("n1",),
    ),
    Alternative(options="--qos=high", what="QOS high instead of normal", why="it would wait: the limit is 0"),
)  # fmt: skip


def test_what_if_shows_how_long_each_would_wait_and_queues_nothing(
    run: Run, controller: ScriptedController, here: Path
) -> None:
    controller.on(wire.WhatIf, wire.Alternatives(alternatives=ALTERNATIVES, made_at=SUBMITTED_AT))

    result = run("gqsub", "--what-if", "--gpus=8", "job.sh")

    assert result.lines[0].split() == ["START", "P90", "END", "ALTERNATIVE", "OPTIONS"]
    assert result.lines[1].split() == ["+1:00:00", "+2:00:00", "N/A", "as", "asked"]
    assert result.lines[2].split() == ["now", "now", "+1-00:00:00", "4", "GPUs", "instead", "of", "8", "--gpus=4"]
    assert "QOS high instead of normal: it would wait: the limit is 0" in result.lines[3]
    assert controller.the(wire.WhatIf).spec.resources.gpus == 8
    assert not controller.all(wire.Submit)


@pytest.mark.parametrize(
    ("start_at", "is_cut_short", "told"),
    [
        (SUBMITTED_AT, False, ""),
        (SUBMITTED_AT + 60, False, "note: no other request that you may make would start sooner\n"),
        (
            SUBMITTED_AT + 60,
            True,
            "note: the search took too long and was cut short; other requests may start sooner, too\n",
        ),
    ],
    ids=["starts at once", "nothing sooner", "cut short"],
)
def test_what_if_says_where_nothing_else_starts_sooner(
    run: Run, controller: ScriptedController, here: Path, start_at: float, is_cut_short: bool, told: str
) -> None:
    asked = Alternative(options="", what="as asked", start_at=start_at)
    answer = wire.Alternatives(alternatives=(asked,), made_at=SUBMITTED_AT, is_cut_short=is_cut_short)
    controller.on(wire.WhatIf, answer)
    result = run("gqsub", "--what-if", "--gpus=8", "job.sh")
    assert (len(result.lines), result.err) == (2, told)


def test_what_if_as_json_has_instants(run: Run, controller: ScriptedController, here: Path) -> None:
    controller.on(wire.WhatIf, wire.Alternatives(alternatives=ALTERNATIVES, made_at=SUBMITTED_AT))

    asked, fewer, _ = json.loads(run("gqsub", "--what-if", "--json", "job.sh").out)

    assert asked["expected_start_at"] == "2027-01-15T09:00:00+00:00"
    assert (fewer["options"], fewer["nodes"]) == ("--gpus=4", ["n1"])


@pytest.mark.parametrize(
    ("job", "status"),
    [
        (a_job(123, state="COMPLETED", exit_code=0), 0),
        (a_job(123, state="FAILED", exit_code=7), 7),
        (a_job(123, state="FAILED", signal=9), 137),
        (a_job(123, state="TIMEOUT", exit_code=0), 1),
        (a_job(123, state="CANCELLED"), 1),
    ],
    ids=lambda value: getattr(value, "state", ""),
)
def test_wait_returns_what_the_job_returned(
    run: Run, queue: ScriptedController, here: Path, job: wire.JobInfo, status: int
) -> None:
    answers = [wire.Waited(is_done=False, jobs=()), wire.Waited(is_done=True, jobs=(job,))]
    queue.on(wire.WaitJobs, lambda _: answers.pop(0))

    result = run("gqsub", "--wait", "job.sh")

    assert (result.status, result.out) == (status, "Submitted batch job 123\n")


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", "`bad.sh` is empty", "#!/bin/sh"),
        (b" \n", "`bad.sh` is empty", "#!/bin/sh"),
        (b"echo hi\n", "`bad.sh` is not a batch script: it does not begin with #!", "--wrap"),
        (b"\0\x7fELF", "`bad.sh` is not a batch script", "--wrap"),
        (b"#!/bin/sh\r\necho\r\n", "`bad.sh` has DOS line endings", "dos2unix"),
        (b"#!/bin/sh\n#" + b"x" * wire.MAX_SCRIPT_BYTES, "`bad.sh` is larger than 4 MiB", "separate file"),
    ],
    ids=["empty", "blank", "no interpreter", "binary", "dos", "large"],
)
def test_what_is_no_batch_script_is_refused(
    run: Run, controller: ScriptedController, here: Path, data: bytes, message: str, hint: str
) -> None:
    (here / "bad.sh").write_bytes(data)

    result = run("gqsub", "bad.sh")

    assert (result.status, result.out, controller.heard) == (1, "", [])
    assert result.err.startswith(f"error: {message}")
    assert hint in result.err


def test_a_missing_script_is_named(run: Run, controller: ScriptedController, here: Path) -> None:
    result = run("gqsub", "nosuch.sh")

    assert result.status == 1
    assert result.err == (
        "error: cannot read `nosuch.sh`: No such file or directory\nhint: to run a command, use --wrap 'COMMAND'\n"
    )


def test_a_directory_is_no_script(run: Run, controller: ScriptedController, here: Path) -> None:
    assert run("gqsub", ".").err == "error: cannot read `.`: Is a directory\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_script_that_may_not_be_read_is_named(run: Run, controller: ScriptedController, here: Path) -> None:
    (here / "job.sh").chmod(stat.S_IWUSR)

    assert run("gqsub", "job.sh").err == "error: cannot read `job.sh`: Permission denied\n"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--wrap=true", "job.sh"], 2, "`--wrap` and a script exclude each other"),
        (["--wrap= "], 2, "`--wrap`: the command is empty"),
        (["--bogus", "job.sh"], 2, "unknown option `--bogus`"),
        (["--sweep=a", "job.sh"], 2, "`--sweep`: `a` is not NAME=VALUE,..."),
        (
            ["--sweep=PATH=a,b", "job.sh"],
            2,
            "`--sweep`: `PATH` is a variable that programs of the job use",
        ),
        (["--sweep=a=1,2", "--array=0-2", "job.sh"], 2, "`--array`: `0-2` names tasks outside the sweep"),
        (["--sweep=a=1,2", "--array=%x", "job.sh"], 2, "`--array`: `%x` is not a number of tasks that may run at once"),
        (["--licenses=a:x", "job.sh"], 2, "`--licenses`: `x` is not a whole number"),
        (["-C", "a&", "job.sh"], 2, "`-C`: at position 3, `the end` where a feature or an attribute was expected"),
        (["--role=ps", "job.sh"], 2, "`--role`: `ps` does not give a number of tasks"),
        (["--array=3-1", "job.sh"], 2, "`--array`: `3-1` is reversed"),
        (["--array=1-3%0", "job.sh"], 2, "`--array`: 0 is too small"),
        (["--array=%auto", "job.sh"], 2, "`--array`: `%auto` names no tasks"),
        (["--fail-fast", "job.sh"], 2, "`--fail-fast` applies only to job arrays"),
        (["-d", "afterok:1_[5-2]", "job.sh"], 2, "`-d`: `5-2` is reversed"),
        (["-d", "afterok:1_[1-1001]", "job.sh"], 2, "`-d`: it names 1001 jobs"),
        (["-d", "afterok:1_1-3", "job.sh"], 2, "`-d`: `1_1-3` is not the id of a job"),
        (["--array=1-10%", "job.sh"], 2, "`--array`: `%` is not a number of tasks that may run at once"),
        (["--array=1-10%x", "job.sh"], 2, "`--array`: `%x` is not a number of tasks that may run at once"),
        (["-d", "afterok", "job.sh"], 2, "`-d`: afterok needs the id of a job, as in afterok:123"),
        (["-d", "soon:1", "job.sh"], 2, "`-d`: `soon` is not a kind of dependency"),
        (["-d", "26", "job.sh"], 2, "`-d`: `26` is not a kind of dependency\nhint: did you mean afterok:26?"),
        (["-d", "26:7_1", "job.sh"], 2, "`-d`: `26` is not a kind of dependency\nhint: did you mean afterok:26:7_1?"),
        (
            ["-d", "aftreok:26", "job.sh"],
            2,
            "`-d`: `aftreok` is not a kind of dependency\nhint: did you mean afterok:26?",
        ),
        (["--licenses=", "job.sh"], 2, "`--licenses`: the value is empty\nhint: remove it, or give a value"),
        (["--constraint= ", "job.sh"], 2, "`--constraint`: the value is empty"),
        (["--gres=,", "job.sh"], 2, "`--gres`: the value is empty"),
        (
            ["-o", "a-%q.log", "job.sh"],
            2,
            "`-o`: `%q` in `a-%q.log` is not a code of file patterns\nhint: use %j,",
        ),
        (["-e", "%Y.log", "job.sh"], 2, "`-e`: `%Y` in `%Y.log` is not a code of file patterns"),
        (["--notify=command:no-such-program x", "job.sh"], 1, "--notify: the program `no-such-program` does not exist"),
        (["--notify=command:A=1 /no/program", "job.sh"], 1, "--notify: the program `/no/program` does not exist"),
        (["--notify=command:./x", "job.sh"], 2, "`--notify`: `./x` is a relative path"),
        (["-d", "afterok:1?afterok:2,afterok:3", "job.sh"], 2, "`-d`: `,` (all of them) and `?` (any of them)"),
        (["-d", "afterok:1+5", "job.sh"], 2, "`-d`: `+5` (minutes after the start) works only with `after`"),
        (["--deadline=soon", "job.sh"], 2, "`--deadline`: "),
        (["--kill-on-invalid-dep=maybe", "job.sh"], 2, "`--kill-on-invalid-dep`: `maybe` is not a valid value"),
        (["--if= ", "job.sh"], 2, "`--if`: the command is empty"),
        (["--chain", "job.sh", "--flag"], 2, "`--flag` is not a script"),
        (["--chain"], 2, "`--chain` needs scripts"),
        (["--chain", "--wrap=true"], 2, "`--chain` and `--wrap` exclude each other"),
        (["-t", "soon", "job.sh"], 2, "`-t`: `soon` is not a duration"),
        (["--mem=1", "--mem-per-cpu=1", "job.sh"], 2, "`--mem-per-cpu` and `--mem` exclude each other"),
    ],
)
def test_a_bad_command_line_is_refused_before_anything_is_sent(
    run: Run, controller: ScriptedController, here: Path, words: list[str], status: int, message: str
) -> None:
    result = run("gqsub", *words)

    assert (result.status, result.out, controller.heard) == (status, "", [])
    assert result.err.startswith(f"error: {message}")


def test_a_bad_header_names_file_and_line(run: Run, controller: ScriptedController, here: Path) -> None:
    (here / "job.sh").write_text("#!/bin/sh\n#SBATCH --nodse=2\n")

    result = run("gqsub", "job.sh")

    assert result == (2, "", "error: job.sh:2: unknown option `--nodse`\nhint: did you mean `--nodes`?\n")


def test_a_refusal_of_the_controller_is_passed_on(run: Run, controller: ScriptedController, here: Path) -> None:
    refusal = wire.Refused(code="unknown_partition", message="partition `gpu` does not exist", hint="use `main`")
    controller.on(wire.Submit, refusal)

    assert run("gqsub", "job.sh") == (1, "", "error: partition `gpu` does not exist\nhint: use `main`\n")


@pytest.mark.parametrize(("words", "status"), [(["job.sh"], 3), (["--wait", "job.sh"], 125)])
@pytest.mark.usefixtures("location")
def test_a_controller_that_is_down_is_said_so(run: Run, here: Path, words: list[str], status: int) -> None:
    result = run("gqsub", *words)

    assert result.status == status
    assert result.err.startswith("error: no controller listens at ")
    assert "gq up" in result.err


def test_a_complaint_moves_no_cursor_whatever_it_quotes(run: Run, controller: ScriptedController) -> None:
    ended = run("gqsub", "--wrap=true", "-J", "a\x1b[31mb\rc")

    assert (ended.status, ended.err.splitlines()[0]) == (2, "error: `-J`: `a?[31mb?c` cannot be a job's name")
    assert controller.all(wire.Submit) == []


def test_a_job_names_its_reservation_on_the_command_line_or_in_its_script(
    run: Run, controller: ScriptedController, tmp_path: Path
) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --reservation=weekend\ntrue\n")

    run("gqsub", "--reservation=night", "--wrap", "true")
    run("gqsub", str(tmp_path / "job.sh"))

    assert [body.spec.reservation for body in controller.all(wire.Submit)] == ["night", "weekend"]
    assert run("gqsub", "--reservation=", "--wrap", "true").status == 2


# ── what this host can see to be wrong ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (
            ["-o", "no/such/%j.log"],
            "the directory `{here}/no/such` of the output file does not exist on this host",
        ),
        (["-o", "/no/%j.log"], "the directory `/no` of the output file does not exist on this host"),
        (["-o", "no/%j/x.log"], "the directory `{here}/no` of the output file does not exist on this host"),
        (["-e", "/no/e.log"], "the directory `/no` of the error file does not exist on this host"),
        (["-i", "in.txt"], "the input file `{here}/in.txt` does not exist on this host"),
        (["-D", "/no/such"], "the working directory `/no/such` does not exist on this host"),
    ],
)
def test_a_file_that_is_missing_here_is_warned_of_and_the_job_is_queued(
    run: Run, queue: ScriptedController, here: Path, words: list[str], warning: str
) -> None:
    told = f"warning: {warning.format(here=here)}\n"
    assert run("gqsub", *words, "job.sh") == (0, "Submitted batch job 123\n", told)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_directory_that_may_not_be_written_is_warned_of(
    run: Run, queue: ScriptedController, here: Path
) -> None:
    assert (
        run("gqsub", "-o", "/%j.out", "job.sh").err
        == "warning: you cannot write to `/`, the directory of the output file\n"
    )


def test_what_is_there_is_not_warned_of(run: Run, queue: ScriptedController, here: Path) -> None:
    (here / "100%done").mkdir()
    words = ["-o", "100%%done/%j.log", "-e", "%j/x.err", "-i", "job.sh", "-D", str(here)]

    assert run("gqsub", *words, "job.sh") == (0, "Submitted batch job 123\n", "")


@pytest.mark.parametrize("option", ["--gpus=2", "-N", "--time", "--wrap"])
def test_an_option_after_the_script_is_noted_to_be_an_argument_of_it(
    run: Run, queue: ScriptedController, here: Path, option: str
) -> None:
    note = f"note: `{option}` follows the script and is passed to it; options of gqsub go before the script\n"

    assert run("gqsub", "job.sh", option, "2") == (0, "Submitted batch job 123\n", note)
    assert queue.the(wire.Submit).spec.args == (option, "2")


@pytest.mark.parametrize(
    "command", ["exec /no/program", "cd / && ls", "$TOOL x", "A=1 sh -c x", "~daemon/../../bin/sh", '"/bin/sh" x']
)
def test_a_notification_that_may_work_is_not_refused(
    run: Run, queue: ScriptedController, here: Path, command: str
) -> None:
    assert run("gqsub", f"--notify=command:{command}", "job.sh") == (0, "Submitted batch job 123\n", "")
