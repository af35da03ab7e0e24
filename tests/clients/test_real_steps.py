"""gqrun, gqalloc and gqlog on real daemons."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.lent import lent, standing
from tests.clusters import PrivateCluster, wait_until

MakeCluster = Callable[..., PrivateCluster]
pytestmark = pytest.mark.xdist_group("real_steps")  # so that the cluster is set up once


@pytest.fixture(scope="module")
def _cluster(request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with standing(request, nodes=2, fake_gpus=4, cpus=8) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: PrivateCluster, request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with lent(_cluster, request) as cluster:
        yield cluster


def test_tasks_on_two_nodes_have_ranks_and_gpus_of_their_own(cluster: PrivateCluster) -> None:
    done = cluster.run(
        *("gqrun", "-N2", "--ntasks-per-node=2", "--gpus-per-task=2", "--label", "-K0"),
        *("sh", "-c", "echo $GQ_NODEID $GQ_LOCALID $CUDA_VISIBLE_DEVICES; echo to stderr >&2; exit $GQ_PROCID"),
    )
    assert sorted(done.stdout.splitlines()) == ["0: 0 0 0,1", "1: 0 1 2,3", "2: 1 0 0,1", "3: 1 1 2,3"]
    assert sorted(line for line in done.stderr.splitlines() if line[0].isdigit()) == [
        f"{rank}: to stderr" for rank in range(4)
    ]
    assert done.returncode == 3


def test_standard_input_reaches_every_task(cluster: PrivateCluster) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    out = cluster.ok("gqrun", "-N2", "--label", "md5sum", stdin=text)
    sums = {line.split()[1] for line in out.splitlines()}
    assert len(out.splitlines()) == 2
    assert sums == {cluster.ok("md5sum", stdin=text).split()[0]}


@pytest.mark.slow
def test_no_output_is_lost_or_repeated_when_a_node_daemon_is_killed(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=2, cpus=8)
    process = cluster.start("gqrun", "-N2", "--label", "sh", "-c", "for i in $(seq 100); do echo $i; sleep 0.02; done")
    assert process.stdout is not None
    first = process.stdout.readline()
    cluster.kill("gqnode-n2")
    cluster.up()
    rest = process.stdout.read()  # not communicate(): it passes over what readline() has buffered
    _, errors = process.communicate(timeout=60)
    lines = sorted((first + rest).splitlines())
    assert lines == sorted(f"{rank}: {number}" for rank in (0, 1) for number in range(1, 101))
    assert process.returncode == 0, errors


def test_a_step_outlives_the_controller(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, cpus=8)
    process = cluster.start(
        "gqrun", "sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 4"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    cluster.kill("gqd")
    cluster.up()
    (cluster.workdir / "go").touch()
    rest, _ = process.communicate(timeout=60)
    assert (rest, process.returncode) == ("done\n", 4)


def test_a_failing_task_ends_those_on_other_nodes(cluster: PrivateCluster) -> None:
    began = time.monotonic()
    done = cluster.run("gqrun", "-N2", "sh", "-c", "test $GQ_PROCID = 0 && exit 6; exec sleep 600")
    assert done.returncode == 6
    assert time.monotonic() - began < 20
    assert "task 0: exited with code 6" in done.stderr


def test_ctrl_c_interrupts_and_a_second_one_kills(cluster: PrivateCluster) -> None:
    process = cluster.start("gqrun", "sh", "-c", "trap 'echo caught' INT; echo begun; while :; do sleep 0.05; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "caught\n"
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # two signals of one kind at once would be one
    assert process.wait(30) == 128 + signal.SIGKILL


def test_steps_in_the_background_share_the_allocation(cluster: PrivateCluster, tmp_path: Path) -> None:
    task = """
        touch "$1/$CUDA_VISIBLE_DEVICES"
        for tenth in $(seq 200); do [ "$(ls "$1" | wc -l)" = 4 ] && exec echo "$CUDA_VISIBLE_DEVICES"; sleep 0.1; done
        echo "$CUDA_VISIBLE_DEVICES is alone"
    """
    script = """
        for n in 1 2 3 4; do gqrun -n1 -c1 --gpus-per-task=1 sh -c "$1" sh "$2" & done
        wait
    """
    out = cluster.ok("gqalloc", "-n4", "-N1", "--gpus=4", "sh", "-c", script, "sh", task, str(tmp_path))
    assert sorted(out.splitlines()) == ["0", "1", "2", "3"], "each saw the others"


def test_a_step_that_does_not_fit_waits_for_the_others(cluster: PrivateCluster) -> None:
    first = "gqrun sh -c 'touch begun; sleep 2' & until [ -e begun ]; do sleep 0.05; done"
    script = f"{first}; gqrun echo then; wait"
    done = cluster.run("gqalloc", "sh", "-c", script)
    assert done.stdout == "then\n"
    assert re.search(r"the step is waiting for resources that other steps of job \d+ hold", done.stderr)


def test_options_of_a_new_job_are_refused_in_a_step(cluster: PrivateCluster) -> None:
    done = cluster.run("gqalloc", "gqrun", "--time=5", "true")
    assert done.returncode == 2
    assert re.search(r"`--time` is only for a new job, but this is a step of job \d+", done.stderr)


def test_output_goes_to_the_files_that_patterns_name(cluster: PrivateCluster) -> None:
    task = "echo $GQ_JOB_ID > job; echo $GQ_PROCID; echo error >&2"
    cluster.ok("gqrun", "-N2", "-o", "out-%j.%s-%t-%N", "sh", "-c", task)
    job = (cluster.workdir / "job").read_text().strip()
    for rank in (0, 1):
        assert (cluster.workdir / f"out-{job}.0-{rank}-n{rank + 1}").read_text() == f"{rank}\nerror\n"


def test_gqalloc_returns_the_code_of_its_command_and_frees(cluster: PrivateCluster) -> None:
    done = cluster.run("gqalloc", "-N2", "--gpus-per-node=4", "sh", "-c", "echo $GQ_NODELIST $GQ_GPUS; exit 9")
    assert (done.stdout, done.returncode) == ("n[1-2] 8\n", 9)
    assert re.search(r"gqalloc: Granted job allocation \d+\n", done.stderr)
    wait_until(lambda: cluster.ok("gqstat", "--json").strip() == "[]", what="the allocation is gone")


def test_gqalloc_on_a_node_of_its_job_runs_the_command_in_the_cell_with_exactly_its_gpus(
    cluster: PrivateCluster,
) -> None:
    facts = "echo ${GQ_CELL##*/}; echo $CUDA_VISIBLE_DEVICES; echo $GQ_NTASKS $GQ_NNODES; cat; exec 2>&-; exit 5"
    argv = ("gqalloc", "-N2", "-n4", "--gpus-per-node=3", "sh", "-c", facts)
    done = cluster.run(*argv, stdin="typed", CUDA_VISIBLE_DEVICES="0,1,2,3")

    cell, gpus, counts, typed = done.stdout.splitlines()
    job = re.findall(r"Granted job allocation (\d+)", done.stderr)[0]
    assert (cell.split(".")[0], gpus, counts, typed, done.returncode) == (job, "0,1,2", "4 2", "typed", 5)
    assert done.stderr == f"gqalloc: Granted job allocation {job}\ngqalloc: Relinquishing job allocation {job}\n"


def test_the_shell_of_gqalloc_has_the_terminal_and_sees_the_jobs_gpus(cluster: PrivateCluster) -> None:
    terminal = Terminal(cluster, "env", "SHELL=/bin/sh", "PS1=ready> ", "ENV=", "gqalloc", "--gpus=2")
    terminal.wait_for("ready> ")
    terminal.type("tty; echo see''s $CUDA_VISIBLE_DEVICES\r")
    terminal.wait_for("/dev/pts/.*sees 0,1\r\n")
    terminal.type("exit 6\r")
    assert terminal.exit_code() == 6
    terminal.close()


def test_the_end_of_an_allocation_ends_its_command(cluster: PrivateCluster) -> None:
    process = cluster.start("gqalloc", "sh", "-c", "echo $GQ_JOB_ID; exec sleep 600")
    assert process.stdout is not None
    job = process.stdout.readline().strip()
    cluster.ok("gqdel", job)
    _, errors = process.communicate(timeout=30)
    assert f"job {job} has ended: CANCELLED" in errors
    assert process.returncode == 128 + signal.SIGTERM


def test_ctrl_c_while_waiting_cancels_the_job(cluster: PrivateCluster) -> None:
    before = int(cluster.ok("gqsub", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 600"))
    process = cluster.start("gqrun", "-N2", "hostname")
    assert process.stderr is not None
    assert process.stderr.readline() == f"gqrun: job {before + 1} queued and waiting for resources\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (errors.strip(), process.returncode) == (f"gqrun: job {before + 1} cancelled", 130)


# ── terminals ─────────────────────────────────────────────────────────────────────────────────────────────────


class Terminal:
    """A user at a terminal."""

    def __init__(self, cluster: PrivateCluster, *argv: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cluster.workdir)
            os.execvpe(argv[0], argv, cluster.environ)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def wait_for(self, pattern: str, timeout_s: float = 20.0) -> None:
        """Until this shows; what came before it is forgotten."""
        deadline = time.monotonic() + timeout_s
        while (match := re.search(pattern.encode(), self.seen, re.DOTALL)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} does not show: {self.seen!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 65536)
        self.seen = self.seen[match.end() :]

    def exit_code(self) -> int:
        """Of the command, which ends without being read any further."""
        status: list[int] = []

        def is_over() -> bool:
            pid, found = os.waitpid(self.pid, os.WNOHANG)
            status.append(found)
            return pid == self.pid

        wait_until(is_over, what="gqrun --pty ends")
        return os.waitstatus_to_exitcode(status[-1])

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.fd)[3] & termios.ICANON

    def close(self) -> None:
        os.close(self.fd)


SLEEP = "sh -c 'echo run''ning; exec sleep 600'\r"


@pytest.fixture
def terminal(cluster: PrivateCluster) -> Iterator[Terminal]:
    terminal = Terminal(cluster, "gqrun", "--pty", "sh", "-c", "PS1='ready> ' exec bash --norc --noprofile -i")
    yield terminal
    terminal.close()


def test_a_pty_works_like_a_terminal_and_is_given_back(terminal: Terminal) -> None:
    terminal.resize(31, 101)
    terminal.wait_for("ready> ")
    assert terminal.is_raw
    terminal.type("stty size; tty\r")
    terminal.wait_for("31 101\r\n/dev/pts/")
    terminal.resize(52, 133)
    terminal.type("until [ \"$(stty size)\" = '52 133' ]; do sleep 0.05; done; echo resi''zed\r")
    terminal.wait_for("resized")
    terminal.type(SLEEP)
    terminal.wait_for("running")
    terminal.type("\x03")
    terminal.wait_for(r"\^C.*ready> ")
    terminal.type(SLEEP)
    terminal.wait_for("running")
    terminal.type("\x1a")
    terminal.wait_for("Stopped.*ready> ")
    terminal.type("exit 5\r")
    terminal.wait_for("There are stopped jobs.*ready> ")
    terminal.type("exit 5\r")
    assert terminal.exit_code() == 5
    assert not terminal.is_raw


def test_a_pty_whose_gqrun_is_told_to_end_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.wait_for("ready> ")
    os.kill(terminal.pid, signal.SIGHUP)
    assert terminal.exit_code() != 0
    assert not terminal.is_raw


# ── logs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_gqlog_follows_from_pending_to_the_end_and_returns_the_code(cluster: PrivateCluster) -> None:
    hog = cluster.ok("gqsub", "--parsable", "-N2", "--exclusive", "-J", "hog", "--wrap", "sleep 600").strip()
    script = "gqrun --label sh -c 'echo rank $GQ_PROCID'; echo to stderr >&2; exit 3"
    job = cluster.ok("gqsub", "--parsable", "-N2", "--wrap", script).strip()
    process = cluster.start("gqlog", "-f", job)
    with pytest.raises(TimeoutError):
        _read_line(process.stdout, 0.5)
    cluster.ok("gqdel", hog)
    out, _ = process.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["0: rank 0", "1: rank 1", "to stderr"]
    assert process.returncode == 3
    assert cluster.ok("gqlog", "last.1") == "rank 1\n"


def _read_line(stream: object, timeout_s: float) -> str:
    fileno: int = stream.fileno()  # type: ignore[attr-defined]
    if not select.select([fileno], [], [], timeout_s)[0]:
        raise TimeoutError
    return os.read(fileno, 1000).decode()


def test_gqlog_follows_a_job_that_is_queued_again(cluster: PrivateCluster) -> None:
    script = "echo attempt $GQ_RESTART_COUNT; while [ ! -e go ]; do sleep 0.05; done"
    job = cluster.ok("gqsub", "--parsable", "--wrap", script).strip()
    process = cluster.start("gqlog", "-f", job)
    assert process.stdout is not None
    assert process.stdout.readline() == "attempt 0\n"
    cluster.ok("gqctl", "requeue", job)
    line = process.stdout.readline()
    while line.startswith("gq") or "CANCELLED" in line:
        line = process.stdout.readline()
    assert line == "attempt 1\n"
    (cluster.workdir / "go").touch()
    assert process.wait(60) == 0


def test_gqlog_shows_what_a_job_printed_before_it_was_queued_again(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1)
    job = cluster.ok("gqsub", "--parsable", "--wrap", "echo began; sleep 600").strip()
    wait_until(lambda: "began" in cluster.run("gqlog", job).stdout, what="the job runs")
    cluster.ok("gqctl", "node", "drain", "n1", "--reason=test")
    cluster.ok("gqctl", "requeue", job)
    wait_until(lambda: "PENDING" in cluster.ok("gqstat", "-h", "-o", "%T", "-j", job), what="it is queued again")
    assert cluster.ok("gqlog", job).startswith("began\n")
    (cluster.workdir / f"gq-{job}.out").unlink()
    assert "was requeued" in cluster.run("gqlog", job).stderr


def test_gqlog_reads_by_the_node_what_this_host_does_not_see(cluster: PrivateCluster, tmp_path: Path) -> None:
    """A path that only the daemon can follow stands in for another host's file system."""
    job = cluster.ok("gqsub", "--parsable", "-o", str(tmp_path / "out"), "--wrap", "seq 100000").strip()
    cluster.ok("gqwait", job)
    text = (tmp_path / "out").read_text()
    program = (
        "import os, sys; from gq.cli import gqlog; from gq.cli.views import log_source\n"
        "from gq.cli.framework.invoke import invoke\n"
        "log_source.LogSource._read_here = lambda self: None\n"
        "sys.exit(invoke(gqlog.COMMAND, sys.argv[1:]))"
    )
    assert cluster.ok(sys.executable, "-c", program, job) == text


def test_gqlog_of_a_job_without_output_says_why(cluster: PrivateCluster) -> None:
    job = cluster.ok("gqsub", "--parsable", "--hold", "--wrap", "true").strip()
    done = cluster.run("gqlog", job)
    assert done.returncode == 1
    assert f"job {job} has no output yet: it is PENDING" in done.stderr
