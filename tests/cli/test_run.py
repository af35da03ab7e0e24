"""The commands as processes: pipes and terminals, Ctrl-C, help, versions, completion, and what they load."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gq.cli._run import CLUSTER_VERBS, JOB_VERBS, UNBUILT_VERBS, load, module_of
from gq.model.node import ClusterInfo, IsolationLevels, NodeInfo
from gq.model.resource import Grant
from gq.request.options import GROUPS
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job, jobs
from tests.clusters import BIN, wait_until

COMMANDS = [f"gq{verb}" for verb in JOB_VERBS]
OWN = [name for name in COMMANDS if name not in ("gqrun", "gqalloc", "gqlog")]
TIMEOUT_S = 30
LONG = a_job(
    12345678, name="a-rather-long-name-of-a-training-run", user="ada.lovelace", state="RUNNING", gpus=128,
    start_at=SUBMITTED_AT, grants=tuple(Grant(node=f"gpu-node-{n:02}") for n in range(0, 32, 2)),
)  # fmt: skip


def process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@contextmanager
def on_a_terminal(*words: str, columns: int = 80) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command with a terminal as its standard output, and the other end of it."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    environ = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen([BIN / words[0], *words[1:]], stdout=theirs, env=environ) as child:
        os.close(theirs)
        yield child, ours
    os.close(ours)


def seen_on_a_terminal(*words: str, columns: int = 80) -> list[str]:
    with on_a_terminal(*words, columns=columns) as (child, screen):
        data = b""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if not select.select([screen], [], [], 0.2)[0]:
                continue
            try:
                data += os.read(screen, 65536)
            except OSError:  # the other end is closed
                break
        assert child.wait(TIMEOUT_S) == 0
    return data.decode().split("\r\n")


# ── terminals ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("columns", [80, 60])
def test_a_table_fits_the_terminal(controller: ScriptedController, columns: int) -> None:
    controller.on(wire.ListJobs, jobs(LONG, a_job(7)))

    lines = seen_on_a_terminal("gqstat", columns=columns)

    shown = [strip_colour(line) for line in lines]
    assert max(map(len, shown)) <= columns
    assert shown[0].split()[0] == "JOBID"
    assert shown[1].lstrip().startswith("12345678 ")
    assert "…" in shown[1]


def test_a_wide_terminal_cuts_nothing(controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(LONG))

    line = strip_colour(seen_on_a_terminal("gqstat", columns=250)[1])

    assert "a-rather-long-name-of-a-training-run" in line
    assert "gpu-node-[00,02,04,06,08,10,12,14,16,18,20,22,24,26,28,30]" in line


def test_what_a_node_enforces_is_never_cut(controller: ScriptedController) -> None:
    everything = IsolationLevels(**dict.fromkeys(IsolationLevels.__struct_fields__, "cgroup2"))
    node = NodeInfo(
        node="gpu-node-01", state="ALLOCATED", partitions=("main",), cpus=128, cpus_free=0, memory_mib=2**20,
        memory_free_mib=0, isolation=everything, reason="a long story about a fan",
    )  # fmt: skip
    controller.on(wire.ListReservations, wire.Reservations(reservations=()))
    controller.on(wire.GetCluster, wire.Cluster(info=ClusterInfo(cluster="gq", gq_version="0", started_at=0)))
    controller.on(wire.ListNodes, wire.Nodes(nodes=(node,)))

    lines = [strip_colour(line) for line in seen_on_a_terminal("gqinfo", "-N")]

    assert max(map(len, lines)) <= 80
    assert [word for word in everything.summary().split() if word not in " ".join(lines)] == []


def test_a_sentence_goes_on_in_the_next_line_at_a_whole_word(controller: ScriptedController) -> None:
    why = "it needs 8 GPUs, 0 are free: " + ", ".join(f"job {n} holds 1 GPU on gpu-node-{n:02}" for n in range(1, 9))
    controller.on(wire.Explain, wire.Explanation(job_id=7, state="PENDING", reason="Resources", why=why, hint=why))

    lines = [line for line in seen_on_a_terminal("gqwhy", "7") if line]

    assert max(map(len, lines)) <= 80
    assert " ".join(lines) == f"{why} hint: {why}"
    assert process("gqwhy", "7").stdout == f"{why}\nhint: {why}\n"


def test_a_record_keeps_its_values_in_their_column(controller: ScriptedController) -> None:
    node = NodeInfo(
        node="n1", state="DRAINED", partitions=("main",), cpus=4, cpus_free=4, memory_mib=1024, memory_free_mib=1024,
        reason=" ".join(["a long story about a fan"] * 5),
    )  # fmt: skip
    controller.on(wire.ListNodes, wire.Nodes(nodes=(node,)))

    lines = seen_on_a_terminal("gqctl", "node", "show", "n1")
    at = next(position for position, line in enumerate(lines) if line.startswith("reason "))
    column = lines[at].index("a long")

    assert max(map(len, lines)) <= 80
    assert lines[at + 1].startswith(" " * column) and lines[at + 1][column] != " "
    assert f"{lines[at][column:]} {lines[at + 1][column:]}" == node.reason


def test_no_color_means_no_escape_codes(controller: ScriptedController, monkeypatch: pytest.MonkeyPatch) -> None:
    controller.on(wire.ListJobs, jobs(a_job(7)))
    monkeypatch.setenv("NO_COLOR", "1")

    text = "\n".join(seen_on_a_terminal("gqstat"))

    assert "\x1b[3" not in text


def strip_colour(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


# ── pipes and signals ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_command_of_its_own_and_the_verb_of_gq_are_the_same(controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job(7)))

    own, verb = process("gqstat", "-h", "-o", "%i %t"), process("gq", "stat", "-h", "-o", "%i %t")

    assert (own.returncode, own.stdout, own.stderr) == (verb.returncode, verb.stdout, verb.stderr) == (0, "7 PD\n", "")


def test_a_reader_that_goes_away_is_no_error(controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, lambda body: jobs(*(a_job(body.after + n + 1) for n in range(500)), more=True))

    with subprocess.Popen([BIN / "gqstat"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        child.wait(TIMEOUT_S)
        assert (child.returncode, child.stderr.read()) == (141, b"")


def test_ctrl_c_is_130_and_says_nothing(controller: ScriptedController) -> None:
    controller.on(wire.WaitJobs, wire.Waited(is_done=False, jobs=()))

    with subprocess.Popen([BIN / "gqwait", "7"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        wait_until(lambda: controller.heard, what="the command has asked")
        child.send_signal(signal.SIGINT)
        assert child.wait(TIMEOUT_S) == 130
        assert child.stderr is not None and child.stderr.read() == b""


def test_repeating_shows_the_queue_again_and_again(controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job(7)))

    with subprocess.Popen([BIN / "gqstat", "-i", "1"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(6)]
        child.send_signal(signal.SIGINT)
        assert child.wait(TIMEOUT_S) == 130

    assert lines[1:3] == lines[4:6]
    assert time.strptime(lines[0].strip()) <= time.strptime(lines[3].strip())


@pytest.mark.usefixtures("location")
@pytest.mark.parametrize(
    "words", [["gqstat"], ["gqinfo"], ["gqacct"], ["gqwhy", "1"], ["gqdel", "1"], ["gqctl", "hold", "1"]]
)
def test_without_a_controller_every_command_ends_with_3(words: list[str]) -> None:
    done = process(*words)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: no controller listens at ")


def test_a_full_disk_is_said_in_one_line(controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job(7)))

    with open("/dev/full", "w") as full:  # noqa: PTH123 - not a path that anything else is done with
        done = subprocess.run([BIN / "gqstat"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)

    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_a_script_is_read_from_a_pipe(controller: ScriptedController) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=5))

    done = subprocess.run(
        [BIN / "gqsub", "-J", "piped"], input="#!/bin/sh\n#GQ -N 3\n", capture_output=True, text=True, timeout=TIMEOUT_S
    )

    assert done.stdout == "Submitted batch job 5\n"
    assert controller.the(wire.Submit).spec.resources.nodes_min == 3


# ── what they load ────────────────────────────────────────────────────────────────────────────────────────────

HEAVY = {
    "typer",
    "click",
    "rich",
    "asyncio",
    "tomllib",
    "sqlite3",
    "sqlite_utils",
    "numpy",
    "psutil",
    "subprocess",
    "dataclasses",
}
PROBE = (
    "import json, sys; from gq.cli import _run; _run._call({name!r}, {words!r}); print(json.dumps(sorted(sys.modules)))"
)


@pytest.mark.parametrize(
    ("name", "words"),
    [("gqstat", []), ("gqinfo", []), ("gqsub", ["--wrap", "true"]), ("gqwhy", ["7"]), ("gqdel", ["7"])],
)
def test_a_command_loads_nothing_that_it_does_not_need(
    controller: ScriptedController, name: str, words: list[str]
) -> None:
    controller.on(wire.ListJobs, jobs(a_job(7)))
    controller.on(wire.Submit, wire.Submitted(job_id=7))
    code = PROBE.format(name=name, words=words)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)

    loaded = {module.partition(".")[0] for module in json.loads(done.stdout.splitlines()[-1])}
    assert loaded & HEAVY == set()


# ── help, versions, completion ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*COMMANDS, *(f"gq {verb}" for verb in CLUSTER_VERBS)])
def test_help_shows_the_usage_and_every_option_that_works(run: Run, name: str) -> None:
    module = module_of(name.split()[1]) if " " in name else name

    result = run(module, "--help")

    command = load(module)
    assert result.status == 0
    assert result.lines[0].startswith(f"Usage: {command.name} ")
    assert [
        option.name for option in command.options if not option.is_hidden and f"--{option.name}" not in result.out
    ] == []
    assert [option.name for option in command.options if option.is_hidden and f" --{option.name} " in result.out] == []


def test_help_fits_eighty_columns_without_a_terminal(run: Run) -> None:
    assert max(len(line) for name in OWN for line in run(name, "--help").lines) <= 80


def test_help_of_a_family_lists_its_verbs(run: Run) -> None:
    shown = run("gq", "--help").out

    assert [verb for verb in (*JOB_VERBS, *CLUSTER_VERBS) if f"  {verb} " not in shown] == []
    assert "  drain " in run("gqctl", "node", "--help").out


def test_help_of_a_family_gives_every_summary_whole_and_the_verbs_of_each_noun(run: Run) -> None:
    gq, gqctl = (" ".join(run(name, "--help").out.split()) for name in ("gq", "gqctl"))

    assert [verb for verb in JOB_VERBS if load(f"gq{verb}").summary.removesuffix(".") not in gq] == []
    assert "node Change and show nodes: show, drain, resume, down, remove." in gqctl
    assert "..." not in gqctl.replace("[ARGS]...", "")


def test_a_missing_verb_is_answered_with_the_table_of_verbs(run: Run) -> None:
    result = run("gqctl", "node")

    assert (result.status, result.out) == (2, "")
    assert result.err.splitlines()[:2] == ["error: missing command after `gqctl node`", "hint: use one of"]
    assert [line.split()[0] for line in result.err.splitlines()[2:]] == ["show", "drain", "resume", "down", "remove"]


@pytest.mark.parametrize("name", ["gqsub", "gqrun", "gqalloc"])
def test_help_of_a_command_that_takes_jobs_lists_its_options_in_groups(run: Run, name: str) -> None:
    lines = run(name, "--help").lines
    headings = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]

    expected = [heading for heading, group in GROUPS.items() if any(name in option.commands for option in group)]
    assert headings == [*expected, "Options"]
    assert lines.index("When it starts:") < lines.index("How it ends:") < lines.index("Who is notified:")
    assert "  -d, --dependency LIST           Start after other jobs: afterok:12," in lines
    assert "  -K, --kill-on-bad-exit[=0|1]    End a step when one of its tasks fails (1," in lines


def test_the_letter_h_is_help_where_it_is_not_the_header(run: Run) -> None:
    assert run("gqsub", "-h").out == run("gqsub", "--help").out


@pytest.mark.parametrize("name", ["gq", *COMMANDS])
def test_every_command_knows_its_version(run: Run, name: str) -> None:
    result = run(name, "-V")

    assert (result.status, result.out.split()[0]) == (0, name)
    assert result.out.split()[1][0].isdecimal()


@pytest.mark.parametrize("verb", UNBUILT_VERBS)
def test_a_verb_of_a_later_version_is_refused_as_such(run: Run, verb: str) -> None:
    assert run("gq", verb) == (1, "", f"error: `gq {verb}` is not available in this version\n")


def test_an_unknown_verb_names_the_nearest(run: Run) -> None:
    assert run("gq", "stta") == (2, "", "error: `gq` does not know `stta`\nhint: did you mean `stat`?\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(run: Run, shell: str) -> None:
    result = run("gqsub", "--completion", shell)

    assert result.status == 0
    assert "_GQSUB_COMPLETE" in result.out


def test_there_is_no_completion_for_an_unknown_shell(run: Run) -> None:
    assert run("gqsub", "--completion", "tcsh").err.startswith("error: no completion for shell `tcsh`\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("gqsub --gpus-per-", {"--gpus-per-node", "--gpus-per-task"}),
        ("gqsub --arr", {"--array"}),
        ("gqsub --licen", {"--licenses"}),
        ("gqsub --time-m", set()),
        ("gqsub --max-req", {"--max-requeue"}),
        ("gqctl node dr", {"drain"}),
        ("gq st", {"stat", "status"}),
    ],
)
def test_completion_answers_with_what_may_follow(words: str, expected: set[str]) -> None:
    name = words.split()[0]
    environ = {
        **os.environ,
        f"_{name.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }

    done = subprocess.run([BIN / name], env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)

    assert set(done.stdout.split()) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_reads_the_completion_script() -> None:
    script = process("gqstat", "--completion", "bash").stdout

    done = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p gqstat"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )

    assert done.stdout == "complete -o default -F _gqstat_completion gqstat\n"
