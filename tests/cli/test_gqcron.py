"""`gqcron`: what a crontab may say, each complaint with its line, editing that loses nothing, and how it is shown."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gq.model.crontab import CronEntryInfo, CrontabInfo, Missed, Overlap
from gq.model.notice import Target
from gq.request.crontab import CronContext, Crontab, parse_crontab
from gq.wire import client as wire
from gq.wire.crontab import CronJob
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job

AROUND = CronContext(home="/home/ada", host="login", umask=0o027, has_zone=lambda name: name == "Europe/Berlin")
AT = 1_800_000_000.0


def read(text: str) -> Crontab:
    return parse_crontab(textwrap.dedent(text), "crontab", AROUND)


def the(text: str) -> CronJob:
    found = read(text)
    assert found.complaints == ()
    [job] = found.jobs
    return job


# ── what it may say ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_becomes_a_job_that_runs_its_command_under_sh_at_home() -> None:
    job = the("\n# every evening\n0  20 * * 1-5   /opt/bin/train.py --epochs 3\n")
    assert (job.entry.line, job.entry.schedule, job.entry.zone) == (3, "0 20 * * 1-5", "")
    assert (job.entry.overlap, job.entry.missed) == (Overlap.SKIP, Missed.SKIP)
    spec = job.entry.spec
    assert (spec.name, spec.command) == ("train.py", "/opt/bin/train.py --epochs 3")
    assert (spec.chdir, spec.submit_dir, spec.submit_host, spec.umask) == ("/home/ada", "/home/ada", "login", 0o027)
    assert (job.script, job.environment) == (b"#!/bin/sh\n/opt/bin/train.py --epochs 3\n", {})


@pytest.mark.parametrize(
    ("written", "schedule"),
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("*/5 0-6,22 1-7 jan,Jul mon-fri", "*/5 0-6,22 1-7 jan,Jul mon-fri"),
        ("\t5 4 * * 7", "5 4 * * 7"),
    ],
)
def test_the_forms_of_a_schedule(written: str, schedule: str) -> None:
    assert the(f"{written} true").entry.schedule == schedule


def test_variables_hold_for_all_entries_below_and_some_have_a_meaning() -> None:
    found = read(
        """\
        0 0 * * * first
        A = one
        "B"='two words '
        SHELL=/bin/bash
        HOME=/data/ada
        CRON_TZ=Europe/Berlin
        0 0 * * * second
        CRON_TZ=
        0 0 * * * third
        """
    )
    first, second, third = found.jobs
    assert (first.environment, first.entry.zone) == ({}, "")
    variables = {"A": "one", "B": "two words ", "SHELL": "/bin/bash", "HOME": "/data/ada"}
    assert (second.environment, second.entry.zone) == (variables, "Europe/Berlin")
    assert second.script == b"#!/bin/bash\nsecond\n"
    assert second.entry.spec.chdir == "/data/ada"
    assert third.entry.zone == ""


@pytest.mark.parametrize("mark", ["#GQ", "#SBATCH", "#SCRON"])
def test_options_hold_for_the_next_entry_only(mark: str) -> None:
    found = read(
        f"""\
        {mark} --gpus=2 -t 1h
        # between them a comment
        {mark} --job-name=nightly --cron-overlap=allow --cron-missed=once
        A=1
        0 0 * * * first
        0 0 * * * second
        """
    )
    first, second = found.jobs
    assert (first.entry.spec.resources.gpus, first.entry.spec.time_limit_s, first.entry.spec.name) == (
        2,
        3600,
        "nightly",
    )
    assert (first.entry.overlap, first.entry.missed) == (Overlap.ALLOW, Missed.ONCE)
    assert (second.entry.spec.resources.gpus, second.entry.spec.name) == (None, "second")
    assert (second.entry.overlap, second.entry.missed) == (Overlap.SKIP, Missed.SKIP)


def test_what_gqsub_takes_an_entry_takes() -> None:
    spec = the(
        """\
        #GQ -p main -A nlp --array=1-4%2 --chdir=runs --output=log/%x-%j.txt --open-mode=append --mail-type=FAIL
        #GQ --begin=now+10m --deadline=now+2h --dependency=singleton --export=C=3
        @daily true
        """
    ).entry.spec
    assert (spec.partition, spec.account, spec.array, spec.array_throttle) == ("main", "nlp", "1-4", 2)
    assert (spec.chdir, spec.output, spec.open_mode) == ("/home/ada/runs", "log/%x-%j.txt", "append")
    assert (spec.begin_at, spec.deadline_at) == (600.0, 7200.0), "counted from when it is due"
    assert spec.notify == (Target(kind="mail", on=("fail",), is_optional=True),)


def test_a_percent_sign_is_written_with_a_backslash() -> None:
    assert the(r"0 0 * * * date +\%F > log").entry.spec.command == "date +%F > log"


def test_what_has_no_effect_is_noted() -> None:
    found = read("MAILTO=ada\n#SBATCH --hint=nomultithread\n0 0 * * * x\n")
    assert [note.partition(" (")[0] for note in found.notes] == [
        "crontab:1: MAILTO has no effect",
        "crontab:2: --hint has no effect",
    ]
    assert found.jobs[0].environment == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("60 * * * * x", "crontab:1: `60` is not a minute"),
        ("* 24 * * * x", "crontab:1: `24` is not an hour"),
        ("* * 0 * * x", "crontab:1: `0` is not a day of the month"),
        ("* * * foo * x", "crontab:1: `foo` is not a month"),
        ("* * * * monday x", "crontab:1: `monday` is not a day of the week"),
        ("*/0 * * * * x", "crontab:1: `*/0` is not a minute"),
        ("5-1 * * * * x", "crontab:1: `5-1` is not a minute"),
        ("0 0 30 2 * x", "crontab:1: `0 0 30 2 *` never occurs"),
        ("@reboot x", "crontab:1: `@reboot` is not a schedule"),
        ("@sometimes x", "crontab:1: `@sometimes` is not a schedule"),
        ("@daily", "crontab:1: `@daily` is not a crontab line"),
        ("0 20 * * *", "crontab:1: `0 20 * * *` is not a crontab line"),
        ("train.sh", "crontab:1: `train.sh` is not a crontab line"),
        ("0 0 * * * cat % hello", "crontab:1: `%` marks input of the command"),
        ("SHELL=bash", "crontab:1: `SHELL=bash` is not an absolute path"),
        ("#\nCRON_TZ=Europe/Berln\n0 0 * * * x", "crontab:2: `Europe/Berln` is not a time zone"),
        ("#GQ --gpus=x\n0 0 * * * x", "crontab:1: `--gpus`: `x` is not a whole number"),
        ("#GQ--gpus=1\n0 0 * * * x", "crontab:1: `#GQ--gpus=1` is a comment, not a header line"),
        ("# SBATCH -n4\n0 0 * * * x", "crontab:1: `# SBATCH -n4` is a comment, not a header line"),
        ("#GQ --gqus=1\n0 0 * * * x", "crontab:1: unknown option `--gqus`"),
        ("#GQ --cron-overlap=maybe\n0 0 * * * x", "crontab:1: `--cron-overlap`: `maybe` is not a valid value"),
        ("#GQ --cron-missed=all\n0 0 * * * x", "crontab:1: `--cron-missed`: `all` is not a valid value"),
        ("#GQ --begin=18:00\n0 0 * * * x", "crontab:1: `--begin`: `18:00` is a single moment"),
        ("#GQ --wait\n0 0 * * * x", "crontab:1: `--wait`: this option is only for the command line"),
        ("#GQ --if=true\n0 0 * * * x", "crontab:1: `--if`: this option is only for the command line"),
        ("#GQ --wrap=x\n0 0 * * * x", "crontab:1: unknown option `--wrap`"),
        ("#GQ hetjob\n0 0 * * * x", "crontab:1: a crontab entry cannot have components"),
        ("#GQ -N1 oops\n0 0 * * * x", "crontab:1: `oops` is not an option"),
        ("#GQ -w n1 -x n1\n0 0 * * * x", "crontab:2: node `n1` is both in --nodelist and in --exclude"),
        ("0 0 * * * x\n#GQ -N1\n", "crontab:2: no entry follows these options"),
    ],
)
def test_each_complaint_names_its_line(text: str, said: str) -> None:
    [complaint] = read(text).complaints
    assert complaint.message.startswith(said)
    assert complaint.exit_status == 2


def test_every_line_that_is_wrong_is_complained_of() -> None:
    found = read("60 * * * * x\n0 0 * * * good\n#GQ --oops\n0 0 * * * spoiled\n* * x\n")
    assert [one.message.partition(": ")[0] for one in found.complaints] == ["crontab:1", "crontab:3", "crontab:5"]
    assert [job.entry.line for job in found.jobs] == [2]


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────

TEXT = "CRON_TZ=Europe/Berlin\n0 20 * * 1-5 ./train.sh\n"
ENTRY = CronEntryInfo(
    line=2,
    schedule="0 20 * * 1-5",
    zone="Europe/Berlin",
    name="train.sh",
    command="./train.sh",
    next_at=(AT,),
    next=("2027-01-15T09:00:00+01:00",),
    last_due_at=AT - 86400,
    job_id=41,
    state="FAILED",
    trouble="job 41 is FAILED: it ended with exit code 3",
    trouble_at=AT - 80000,
)
ADAS = CrontabInfo(user="ada", set_at=AT - 1e6, text=TEXT, entries=(ENTRY,))


@pytest.fixture
def kept(controller: ScriptedController) -> ScriptedController:
    """There is a crontab."""
    controller.on(wire.GetCrontab, wire.Crontab(crontab=ADAS))
    controller.on(wire.SetCrontab, wire.Crontab(crontab=ADAS))
    controller.on(wire.RemoveCrontab, wire.Done())
    return controller


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``editor(text, …)``: an editor that writes the next of these texts each time; it keeps what it found."""
    seen = tmp_path / "seen"

    def make(*texts: str) -> Path:
        for number, text in enumerate(texts):
            (tmp_path / f"text{number}").write_text(text)
        script = tmp_path / "edit.py"
        script.write_text(
            "import pathlib, sys\n"
            f"seen = pathlib.Path({str(seen)!r})\n"
            "count = len(seen.read_text().split('\\0')) - 1 if seen.exists() else 0\n"
            "path = pathlib.Path(sys.argv[1])\n"
            "seen.open('a').write(path.read_text() + '\\0')\n"
            f"path.write_text(pathlib.Path({str(tmp_path)!r}, f'text{{count}}').read_text())\n"
        )
        monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
        return seen

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return make


def say(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def left_over(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("gqcron-*/crontab"))


def test_the_crontab_is_printed_as_it_was_written(run: Run, kept: ScriptedController) -> None:
    assert run("gqcron", "-l") == (0, TEXT, "")
    assert run("gqcron", "-l", "-u", "bob").status == 0
    assert [body.user for body in kept.all(wire.GetCrontab)] == ["", "bob"]


def test_who_has_no_crontab_is_told_so(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.GetCrontab, wire.Refused(code="no_crontab", message="no crontab for ada"))
    assert run("gqcron", "-l") == (1, "", "error: no crontab for ada\n")


def test_a_file_takes_the_place_of_the_crontab_in_silence(
    run: Run, kept: ScriptedController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my"
    path.write_text(TEXT)
    monkeypatch.setenv("HOME", "/home/ada")
    assert run("gqcron", str(path)) == (0, "", "")
    sent = kept.the(wire.SetCrontab)
    assert (sent.text, [job.entry.zone for job in sent.jobs]) == (TEXT, ["Europe/Berlin"])
    assert sent.jobs[0].entry.spec.chdir == "/home/ada"


def test_standard_input_takes_the_place_of_the_crontab(
    run: Run, kept: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert run("gqcron", "-") == (0, "", "")
    assert kept.the(wire.SetCrontab).text == TEXT


def test_a_file_that_is_wrong_is_complained_of_line_by_line_and_nothing_is_sent(
    run: Run, controller: ScriptedController, tmp_path: Path
) -> None:
    path = tmp_path / "my"
    path.write_text("61 * * * * x\n* * x\n")
    result = run("gqcron", str(path))
    assert (result.status, result.out, controller.heard) == (2, "", [])
    errors = [line for line in result.err.splitlines() if line.startswith("error")]
    assert errors == [f"error: {path}:1: `61` is not a minute", f"error: {path}:2: `* * x` is not a crontab line"]
    path.write_bytes(b"0 0 * * * x\n0 0 * * * \xff\n")
    assert run("gqcron", str(path)).err.startswith(f"error: {path}:2: the line is not UTF-8")
    assert run("gqcron", str(tmp_path / "none")).status == 1


def test_the_editor_begins_with_what_there_is_and_what_it_leaves_is_set(
    run: Run, kept: ScriptedController, editor: Callable[..., Path], tmp_path: Path
) -> None:
    seen = editor(TEXT + "@daily x\n")
    result = run("gqcron", "-e")
    assert (result.status, result.out) == (0, "")
    assert "the crontab has 1 entry; the next is due " in result.err
    assert seen.read_text() == TEXT + "\0"
    assert len(kept.the(wire.SetCrontab).jobs) == 2
    assert left_over(tmp_path) == []


def test_who_changes_nothing_sets_nothing(
    run: Run, kept: ScriptedController, editor: Callable[..., Path], tmp_path: Path
) -> None:
    editor(TEXT)
    assert run("gqcron", "-e") == (0, "", "the crontab was not changed\n")
    assert kept.all(wire.SetCrontab) == [] and left_over(tmp_path) == []


def test_a_text_that_is_wrong_may_be_edited_again(
    run: Run, kept: ScriptedController, editor: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = editor("61 * * * * x\n", "1 * * * * x\n")
    say(monkeypatch, "what\ny\n")
    result = run("gqcron", "-e")
    assert result.status == 0
    assert "error: crontab:1: `61` is not a minute" in result.err and result.err.count("edit it again? (y/n)") == 2
    assert seen.read_text() == TEXT + "\0" + "61 * * * * x\n\0"
    assert kept.the(wire.SetCrontab).text == "1 * * * * x\n" and left_over(tmp_path) == []


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_who_has_enough_keeps_what_was_written(
    run: Run,
    kept: ScriptedController,
    editor: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
) -> None:
    editor("61 * * * * x\n")
    say(monkeypatch, answer)
    result = run("gqcron", "-e")
    [path] = left_over(tmp_path)
    assert result.status == 2 and f"your text is saved in {path}" in result.err
    assert path.read_text() == "61 * * * * x\n" and path.parent.stat().st_mode & 0o077 == 0
    assert kept.all(wire.SetCrontab) == []


def test_what_the_controller_refuses_may_be_edited_again_and_is_kept(
    run: Run, kept: ScriptedController, editor: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.on(wire.SetCrontab, wire.Refused(code="impossible", message="line 1: the job can never run: no"))
    editor("1 * * * * x\n")
    say(monkeypatch, "n\n")
    result = run("gqcron", "-e")
    assert result.status == 1 and "error: line 1: the job can never run: no" in result.err
    assert len(left_over(tmp_path)) == 1


def test_an_editor_that_fails_changes_nothing(
    run: Run, kept: ScriptedController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "false")
    say(monkeypatch, "")
    result = run("gqcron", "-e")
    assert result.status == 1 and "the editor `false` ended with status 1" in result.err
    assert kept.all(wire.SetCrontab) == [] and left_over(tmp_path) == []


def test_it_is_removed_and_asked_for_first_if_that_is_wanted(
    run: Run, kept: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, "n\ny\n")
    assert run("gqcron", "-r", "-i") == (1, "", "remove your crontab? (y/n) ")
    assert kept.all(wire.RemoveCrontab) == []
    assert run("gqcron", "-ri").status == 0
    assert run("gqcron", "-r", "-u", "bob") == (0, "", "")
    assert [body.user for body in kept.all(wire.RemoveCrontab)] == ["", "bob"]


def test_when_entries_are_due_is_told_in_their_zone(run: Run, kept: ScriptedController) -> None:
    result = run("gqcron", "-n3")
    assert result.lines == [
        "LINE DUE                                       SCHEDULE     COMMAND",
        "   2 Fri 2027-01-15 09:00 +01:00 Europe/Berlin 0 20 * * 1-5 ./train.sh",
    ]
    assert kept.the(wire.GetCrontab).count == 3
    assert run("gqcron", "--list-next=0").status == 2


def test_how_the_last_jobs_stand_and_what_went_wrong_is_told(run: Run, kept: ScriptedController) -> None:
    header, row = run("gqcron", "-l", "--status").lines
    assert header.split() == ["LINE", "SCHEDULE", "LAST", "DUE", "JOB", "STATE", "NEXT", "DUE", "COMMAND", "TROUBLE"]
    assert " 41 FAILED " in row and row.endswith("job 41 is FAILED: it ended with exit code 3")
    shown: dict[str, Any] = json.loads(run("gqcron", "--status", "--json").out)
    assert shown["user"] == "ada"
    assert shown["entries"][0] | {"next_at": None} == {
        "line": 2, "schedule": "0 20 * * 1-5", "zone": "Europe/Berlin", "name": "train.sh", "command": "./train.sh",
        "overlap": "skip", "missed": "skip", "next_at": None, "last_due_at": "2027-01-14T08:00:00+00:00",
        "job_id": 41, "state": "FAILED", "trouble": "job 41 is FAILED: it ended with exit code 3",
        "trouble_at": "2027-01-14T09:46:40+00:00",
    }  # fmt: skip


def test_operators_see_whose_crontabs_there_are(run: Run, controller: ScriptedController) -> None:
    def page(body: wire.ListCrontabs) -> wire.Crontabs:
        users = [user for user in ("ada", "bob", "cleo") if user > body.after][:2]
        found = tuple(CrontabInfo(user=user, set_at=AT, entries=(ENTRY,)) for user in users)
        return wire.Crontabs(crontabs=found, more=len(users) == 2)

    controller.on(wire.ListCrontabs, page)
    header, *rows = run("gqcron", "--all").lines
    assert header.split() == ["USER", "ENTRIES", "TROUBLED", "NEXT", "DUE", "SET"]
    assert [row.split()[:3] for row in rows] == [[user, "1", "1"] for user in ("ada", "bob", "cleo")]
    assert [one["user"] for one in json.loads(run("gqcron", "-a", "--json").out)] == ["ada", "bob", "cleo"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing FILE or option"),
        (["-e", "-r"], "more than one action is given"),
        (["-l", "file"], "more than one action is given"),
        (["-i", "-l"], "`--ask` works only with -r"),
        (["-n", "x"], "more than one action is given"),
    ],
)
def test_a_command_line_that_says_too_little_or_too_much_is_refused(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    result = run("gqcron", *words)
    assert (result.status, result.out, controller.heard) == (2, "", [])
    assert result.err.startswith(f"error: {message}")


def test_the_queue_and_the_history_tell_of_which_line_a_job_is(run: Run, controller: ScriptedController) -> None:
    job = a_job(7, cron="line 2: 0 20 * * 1-5")
    controller.on(wire.ListJobs, wire.Jobs(jobs=(job,)))
    controller.on(wire.QueryHistory, wire.Jobs(jobs=(job,)))
    assert run("gqstat", "-h", "-O", "jobid:6,cron:20").out == "7     line 2: 0 20 * * 1-5\n"
    assert run("gqacct", "-n", "-P", "-o", "JobID,Cron").out == "7|line 2: 0 20 * * 1-5\n"
    assert json.loads(run("gqstat", "--json").out)[0]["cron"] == "line 2: 0 20 * * 1-5"


def test_the_example_is_a_crontab_without_complaints() -> None:
    path = Path(__file__).parents[2] / "examples" / "cron" / "training.gqcron"
    found = parse_crontab(path.read_text(), path.name, AROUND)
    assert (found.complaints, found.notes) == ((), ())
    assert [job.entry.spec.name for job in found.jobs] == ["nightly", "report.sh", "check-data.sh"]
    assert {job.entry.zone for job in found.jobs} == {"Europe/Berlin"}
