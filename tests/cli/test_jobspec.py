"""What option values mean: the job they make, and every complaint with option, value, rule and way out."""

from __future__ import annotations

import signal

import pytest

from gq.errors import Refusal, UsageError
from gq.model.job import JobSpec, SignalSpec
from gq.model.resource import ResourceRequest
from gq.request.getopt import parse
from gq.request.jobspec import UNLIMITED_S, Submission, exported_environment, job_spec
from gq.request.layers import job_arguments
from gq.request.option import ParsedOption
from gq.request.options import SUB, options_of
from gq.request.resources import resource_request
from tests.cli.conftest import Run

NOW = 1_800_000_000.0
HERE = Submission(
    name="job.sh", submit_dir="/home/ada", submit_host="login", umask=0o27, now=NOW, command="/home/ada/job.sh"
)


def spec(*words: str) -> JobSpec:
    return job_spec(job_arguments(SUB, parse(words, options_of(SUB))[0], {}), HERE)


def asked(*words: str) -> ResourceRequest:
    return spec(*words).resources


def refused(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        spec(*words)
    return caught.value


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_without_options_takes_everything_from_its_surroundings() -> None:
    assert spec() == JobSpec(
        name="job.sh",
        chdir="/home/ada",
        submit_dir="/home/ada",
        submit_host="login",
        umask=0o27,
        command="/home/ada/job.sh",
    )


def test_every_option_reaches_its_field() -> None:
    assert spec(
        "-J", "train", "-p", "big", "-t", "1:00:00", "-N", "2-4", "-n", "8", "--ntasks-per-node", "4", "-c", "3",
        "--mem=4G", "--gpus-per-node=a100:2", "-w", "n[1-2]", "-x", "n9", "--exclusive", "-H", "--nice=5", "--requeue",
        "--signal=B:USR2@90", "--kill-on-bad-exit=0", "--no-kill", "-o", "a", "-e", "b", "-i", "c",
        "--open-mode=append", "-D", "runs/1", "--comment", "hello", "-b", "now+2h", "--requeue-on=Timeout,preempt",
        "--max-requeue=3", "--grace=20s", "--resume-cost=2m",
    ) == JobSpec(
        name="train",
        partition="big",
        time_limit_s=3600,
        resources=ResourceRequest(
            nodes_min=2, nodes_max=4, ntasks=8, ntasks_per_node=4, cpus_per_task=3, mem_per_node_mib=4096,
            gpus_per_node=2, gpu_type="a100", nodelist=("n1", "n2"), exclude=("n9",), is_exclusive=True,
        ),
        is_held=True,
        nice=5,
        requeue=True,
        requeue_on=("timeout", "preempt"),
        max_requeue=3,
        grace_s=20,
        resume_s=120,
        signal=SignalSpec(signum=signal.SIGUSR2, before_s=90, to_batch_shell=True),
        kill_on_bad_exit=False,
        no_kill=True,
        output="a",
        error="b",
        input="c",
        open_mode="append",
        chdir="/home/ada/runs/1",
        comment="hello",
        begin_at=NOW + 7200,
        submit_dir="/home/ada",
        submit_host="login",
        umask=0o27,
        command="/home/ada/job.sh",
    )  # fmt: skip


# ── resources ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-N3"], ResourceRequest(nodes_min=3)),
        (["-N1-4", "--elastic"], ResourceRequest(nodes_min=1, nodes_max=4, is_elastic=True)),
        (["-G4"], ResourceRequest(gpus=4)),
        (["-G", "H100:4"], ResourceRequest(gpus=4, gpu_type="h100")),
        (["--gpus=0"], ResourceRequest(gpus=0)),
        (["-G1-16"], ResourceRequest(gpus=1, most_gpus=16)),
        (["-G", "A100:2-8"], ResourceRequest(gpus=2, most_gpus=8, gpu_type="a100")),
        (["-G", "2-2"], ResourceRequest(gpus=2)),
        (["-n30", "--gpus-per-task=1"], ResourceRequest(ntasks=30, gpus_per_task=1)),
        (["--gres=gpu"], ResourceRequest(gpus_per_node=1)),
        (["--gres=gpu:3"], ResourceRequest(gpus_per_node=3)),
        (["--gres=gpu:a100"], ResourceRequest(gpus_per_node=1, gpu_type="a100")),
        (["--gres=gpu:a100:2"], ResourceRequest(gpus_per_node=2, gpu_type="a100")),
        (["-G2", "--cpus-per-gpu=4"], ResourceRequest(gpus=2, cpus_per_gpu=4)),
        (["-G2", "--mem-per-gpu=1T"], ResourceRequest(gpus=2, mem_per_gpu_mib=1024**2)),
        (["--mem=0"], ResourceRequest(mem_per_node_mib=0)),
        (["--mem=300"], ResourceRequest(mem_per_node_mib=300)),
        (["--mem-per-cpu=293K"], ResourceRequest(mem_per_cpu_mib=1)),
        (["--tasks-per-node=2"], ResourceRequest(ntasks_per_node=2)),
        (["-G", "a100:2", "--gpus-per-node=a100:1"], ResourceRequest(gpus=2, gpus_per_node=1, gpu_type="a100")),
    ],
)
def test_resources_are_read_as_slurm_reads_them(words: list[str], expected: ResourceRequest) -> None:
    assert asked(*words) == expected


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["-N0"], "`-N`: 0 is too small", "the minimum is 1"),
        (["-N4-2"], "`-N`: `4-2` is reversed", "use 2-4"),
        (["-N2-"], "`-N`: `2-` is not a range like 1-8", ""),
        (["-nx"], "`-n`: `x` is not a whole number", ""),
        (["-c-1"], "`-c`: -1 is too small", "the minimum is 1"),
        (["--mem=lots"], "`--mem`: `lots` is not a memory size", "use a whole number"),
        (["--mem=-5"], "`--mem`: `-5` is not a memory size", "use a whole number"),
        (["--mem-per-cpu=0"], "`--mem-per-cpu`: 0 is not allowed", "use --mem=0"),
        (["-Ga100"], "`-G`: `a100` is not a whole number", ""),
        (["-G-1"], "`-G`: -1 is too small", "the minimum is 0"),
        (["-G", "a 100:1"], "`-G`: `a 100:1` is not [TYPE:]COUNT", "for example"),
        (["-G", "a100:1", "--gpus-per-node=h100:1"],
         "`-G` (a100) and `--gpus-per-node` (h100) request different", "one type"),
        (["--gpus-per-node=1-4"], "`--gpus-per-node`: a range of GPUs applies to the whole job, on one "
            "node", "--gpus=1-4"),
        (["-G1-x"], "`-G`: `1-x` is not a range like 1-8", ""),
        (["-N2", "--elastic"], "`--elastic` requires a range of nodes", "--nodes=1-4 --elastic"),
        (["--elastic"], "`--elastic` requires a range of nodes", "--nodes=1-4 --elastic"),
        (["-G8-1"], "`-G`: `8-1` is reversed", "1-8"),
        (["--cpus-per-gpu=2"], "`--cpus-per-gpu`: the job requests no GPUs", "add --gpus"),
        (["--mem-per-gpu=2G", "-G0"], "`--mem-per-gpu`: the job requests no GPUs", "add --gpus"),
        (["-N2", "--ntasks-per-node=2", "-n5"], "5 tasks do not fit on 2 nodes with 2 tasks each", "more nodes"),
        (["-n7", "--ntasks-per-gpu=2"], "--ntasks=7 is not a multiple of --ntasks-per-gpu=2", "--ntasks=8"),
        (["-w", "n[1-"], "`-w`: `n[1-` is not a node list", ""),
        (["-w", "n[1-3]", "-x", "n2"], "node `n2` is both in --nodelist and in --exclude", "remove it"),
        (["--exclusive=maybe"], "`--exclusive`: `maybe` is not a valid value", "use one of"),
    ],
)  # fmt: skip
def test_resources_that_make_no_sense_are_refused(words: list[str], message: str, hint: str) -> None:
    error = refused(*words)

    assert error.message.startswith(message)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("words", "what"),
    [(["--exclusive=user"], "`user`"), (["-p", "a,b"], "a list of partitions")],
)  # fmt: skip
def test_values_of_a_later_version_are_refused_as_such(words: list[str], what: str) -> None:
    with pytest.raises(Refusal, match="is not available in this version") as caught:
        spec(*words)

    assert what in caught.value.message


def test_an_update_changes_what_it_says_and_keeps_the_rest() -> None:
    base = ResourceRequest(nodes_min=2, nodes_max=4, mem_per_cpu_mib=100, gpus_per_node=2, cpus_per_gpu=4)
    changes = job_arguments(SUB, parse(["-N3", "--mem=1G", "-c2"], options_of(SUB))[0], {})

    assert resource_request(changes, base) == ResourceRequest(
        nodes_min=3, mem_per_node_mib=1024, gpus_per_node=2, cpus_per_task=2
    )


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("0:7200", 7200), ("1:2:3", 3723), ("1-2", 93600), ("0-0:10:0", 600), ("30m", 1800), ("2h", 7200),
     ("unlimited", UNLIMITED_S), ("0", UNLIMITED_S)],
)  # fmt: skip
def test_time_limits_are_read_in_all_forms(text: str, seconds: int) -> None:
    assert spec("-t", text).time_limit_s == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USR1", SignalSpec(signum=signal.SIGUSR1)),
        ("SIGUSR1@90", SignalSpec(signum=signal.SIGUSR1, before_s=90)),
        ("B:usr2@30", SignalSpec(signum=signal.SIGUSR2, before_s=30, to_batch_shell=True)),
        ("10@0", SignalSpec(signum=10, before_s=0)),
    ],
)
def test_the_warning_signal_is_read_in_all_forms(text: str, expected: SignalSpec) -> None:
    assert spec("--signal", text).signal == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-t", "soon"], "`-t`: `soon` is not a duration"),
        (["-t", ""], "`-t`: `` is not a duration"),
        (["-b", "whenever"], "`-b`: `whenever` is not a time"),
        (["--signal=NOSIG@5"], "`--signal`: `NOSIG` is not a signal"),
        (["--signal=X:USR1"], "`--signal`: `X:USR1` is not [B:]SIGNAL[@SECONDS]"),
        (["--signal=0"], "`--signal`: `0` is not a signal"),
        (["--open-mode=x"], "`--open-mode`: `x` is not a valid value"),
        (["--no-kill=x"], "`--no-kill`: `x` is not a valid value"),
        (["--kill-on-bad-exit=2"], "`--kill-on-bad-exit`: `2` is not a valid value"),
        (["--nice=low"], "`--nice`: `low` is not a whole number"),
        (["-J", ""], "`-J`: `` cannot be a job's name"),
        (["-J", "a\nb"], "`-J`: `a\nb` cannot be a job's name"),
        (["-J", "x" * 300], "`-J`: "),
        (["-o", ""], "`-o`: `` is not a file name"),
        (["-p", ""], "`-p`: the partition name is empty"),
    ],
)
def test_other_values_that_make_no_sense_are_refused(words: list[str], message: str) -> None:
    assert refused(*words).message.startswith(message)


def test_a_complaint_about_a_header_names_its_line() -> None:
    header = [ParsedOption("time", "soon", "--time", "job.sh:4")]

    with pytest.raises(UsageError, match=r"^job\.sh:4: `--time`: `soon` is not a duration"):
        job_spec(job_arguments(SUB, [], {}, header), HERE)


# ── environment ───────────────────────────────────────────────────────────────────────────────────────────────

ENVIRON = {"PATH": "/bin", "A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ENVIRON),
        ("ALL", ENVIRON),
        ("NONE", {}),
        ("NIL", {}),
        ("A", {"A": "1"}),
        ("A,B=9,MISSING", {"A": "1", "B": "9"}),
        ("ALL,B=9,C=", {"PATH": "/bin", "A": "1", "B": "9", "C": ""}),
        ("NONE,C=3", {"C": "3"}),
    ],
)
def test_export_takes_what_it_names(value: str | None, expected: dict[str, str]) -> None:
    given = None if value is None else ParsedOption("export", value, "--export")

    assert exported_environment(given, ENVIRON) == expected


@pytest.mark.parametrize("value", ["A B", "ALL,1=2", "A,=1"])
def test_export_refuses_what_cannot_be_a_variable(value: str) -> None:
    with pytest.raises(UsageError, match="is not a variable name"):
        exported_environment(ParsedOption("export", value, "--export"), ENVIRON)


@pytest.mark.parametrize(
    "option",
    ["--nice=2147483648", "--nice=-2147483648", "--ntasks=3000000000", "--gpus=3000000000", "--mem=9000000T"],
)
def test_a_number_that_no_message_can_carry_is_refused_with_its_option(run: Run, option: str) -> None:
    done = run("gqsub", option, "--wrap=true")

    assert done.status == 2 and option.partition("=")[0] in done.err
    assert "is too large" in done.err or "is too small" in done.err
