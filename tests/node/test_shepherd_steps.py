"""Tasks of steps under a real shepherd: streams, terminals, signals, ends."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus
from gq.wire.step import OUTPUT_WINDOW_BYTES, STDIN_WINDOW_BYTES, Output, StdinTaken, TaskExited, TaskStarted
from gqnode.control.input import ProcessEnded, ProcessStarted, StepTaskFailed, StepTasksEnded
from gqnode.daemon.shepherds import TreeEmpty
from gqnode.shepherd import stream
from tests.node.shepherd_host import ENVIRONMENT, ShepherdHost, shepherd_host
from tests.requires import needs_user


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ShepherdHost]:
    with shepherd_host(tmp_path) as host:
        yield host


@pytest.fixture
def attempt_id(host: ShepherdHost) -> AttemptId:
    attempt_id = host.start()
    host.await_event(ProcessStarted)
    return attempt_id


def test_the_slim_side_has_the_windows_of_the_wire() -> None:
    assert (stream.OUTPUT_WINDOW_BYTES, stream.INPUT_WINDOW_BYTES) == (OUTPUT_WINDOW_BYTES, STDIN_WINDOW_BYTES)


def test_each_task_tells_its_start_its_output_and_then_its_exit(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["sh", "-c", "echo a; exit 1"], ["sh", "-c", "echo b >&2; exit 2"])
    ended = host.await_event(StepTasksEnded)
    host.await_event(TaskExited, rank=0)
    host.await_event(TaskExited, rank=1)

    for rank, code in ((0, 1), (1, 2)):
        told = [event for event in host.events if getattr(event, "rank", None) == rank]
        assert isinstance(told[0], TaskStarted)
        assert told[-1] == TaskExited(step_id=step_id, rank=rank, exit=ExitStatus(code=code))
        assert {(event.stream, event.eof) for event in told[1:-1] if isinstance(event, Output)} >= {
            ("stdout", True),
            ("stderr", True),
        }
    assert (host.output(step_id, 0), host.output(step_id, 1, "stderr")) == (b"a\n", b"b\n")
    assert ended.exit == ExitStatus(code=2)


def test_a_task_has_exactly_its_environment_directory_and_marker(host: ShepherdHost, attempt_id: AttemptId) -> None:
    environment = {**ENVIRONMENT, "RANK": "7"}
    step_id = host.start_tasks(attempt_id, ["sh", "-c", "pwd; exec env"], chdir="/usr", environment=environment, step=3)
    host.await_event(TaskExited)
    directory, *lines = host.output(step_id).decode().splitlines()
    assert directory == "/usr"
    assert f"GQ_CELL={host.root / str(attempt_id)}.3" in lines and "RANK=7" in lines
    assert {line.partition("=")[0] for line in lines} <= {"GQ_CELL", "RANK", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.parametrize(
    ("argv", "fields", "code", "why"),
    [
        (["/no/program"], {}, 127, "cannot execute `/no/program`: No such file or directory"),
        (["no-such-program"], {}, 127, "cannot execute `no-such-program`: No such file or directory"),
        (["/etc/passwd"], {}, 126, "cannot execute `/etc/passwd`: Permission denied"),
        (["true"], {"chdir": "/no/dir"}, 127, "cannot change to the directory `/no/dir`: No such file or directory"),
        (["true"], {"cgroup_procs": ("/no/g",)}, 127, "cannot join the cell by `/no/g`: No such file or directory"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_run_says_why(
    host: ShepherdHost, attempt_id: AttemptId, argv: list[str], fields: dict[str, str], code: int, why: str
) -> None:
    step_id = host.start_tasks(attempt_id, argv, **fields)
    exited = host.await_event(TaskExited)
    assert exited == TaskExited(step_id=step_id, rank=0, exit=ExitStatus(code=code), why=why)
    assert host.await_event(StepTasksEnded).exit == ExitStatus(code=code)
    assert not [event for event in host.events if isinstance(event, TaskStarted)]


@needs_user
def test_a_closed_directory_in_path_hides_no_program(host: ShepherdHost, attempt_id: AttemptId, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    environment = {"PATH": f"{closed}:{os.defpath}"}
    host.start_tasks(attempt_id, ["no-such-program"], environment=environment)
    exited = host.await_event(TaskExited)
    assert exited.exit.code == 127 and exited.why == "cannot execute `no-such-program`: No such file or directory"


def test_a_failed_task_is_told_at_once_while_others_run(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["sleep", "1000"], ["false"])
    host.await_event(StepTaskFailed, step_id=step_id)
    host.do(host.pool.steps.signal, step_id, signal.SIGTERM)
    assert host.await_event(StepTasksEnded).exit == ExitStatus(signal=signal.SIGTERM)


def test_steps_run_side_by_side_and_are_signalled_apart(host: ShepherdHost, attempt_id: AttemptId) -> None:
    first = host.start_tasks(attempt_id, ["sleep", "1000"], step=0)
    second = host.start_tasks(attempt_id, ["sleep", "1000"], step=1)
    host.await_event(TaskStarted, step_id=second)
    host.do(host.pool.steps.signal, first, signal.SIGINT)
    assert host.await_event(StepTasksEnded).step_id == first
    host.do(host.pool.signal, attempt_id, signal.SIGTERM, "steps")
    host.await_event(StepTasksEnded, step_id=second)


def test_a_signal_to_steps_spares_the_script(host: ShepherdHost) -> None:
    attempt_id = host.start(2, "#!/bin/sh\nsleep 1000\n")
    step_id = host.start_tasks(attempt_id, ["sleep", "1000"])
    host.await_event(TaskStarted, step_id=step_id)
    host.do(host.pool.signal, attempt_id, signal.SIGUSR1, "steps")
    assert host.await_event(StepTasksEnded).exit == ExitStatus(signal=signal.SIGUSR1)
    host.until(lambda: len(host.processes(attempt_id)) == 2, "the script and its sleep")


def test_the_end_of_the_script_ends_its_steps(host: ShepherdHost) -> None:
    attempt_id = host.start(2, "#!/bin/sh\nuntil test -e go; do sleep 0.02; done\n", chdir=str(host.root))
    step_id = host.start_tasks(attempt_id, ["sh", "-c", "echo last words; touch go; sleep 1000"], chdir=str(host.root))
    host.await_event(ProcessEnded)
    exited = host.await_event(TaskExited, step_id=step_id)
    assert exited.exit == ExitStatus(signal=9)
    assert host.output(step_id) == b"last words\n"
    assert not host.processes(attempt_id)


def test_input_reaches_every_task_and_ends(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["cat"], ["cat"])
    host.do(host.pool.steps.stdin, step_id, 0, b"hello ", False)
    host.do(host.pool.steps.stdin, step_id, 0, b"hello ", False)  # sent again by a client that lost its link
    host.do(host.pool.steps.stdin, step_id, 3, b"lo world", True)
    host.await_event(StepTasksEnded)
    host.await_event(StdinTaken, offset=11)
    for rank in (0, 1):
        host.await_event(TaskExited, rank=rank)
        assert host.output(step_id, rank) == b"hello world"


def test_input_is_taken_only_as_fast_as_the_slowest_task_reads(host: ShepherdHost, attempt_id: AttemptId) -> None:
    os.mkfifo(host.root / "fifo")
    slow = ["sh", "-c", "read go < fifo; exec cat > got"]
    step_id = host.start_tasks(attempt_id, ["cat"], slow, chdir=str(host.root))
    data = bytes(range(256)) * 1024
    host.do(host.pool.steps.stdin, step_id, 0, data, False)
    position = 0
    while position < len(data) // 2:  # the quick one is ahead
        host.until(lambda position=position: len(host.output(step_id)) > position)
        position = len(host.output(step_id))
        host.acknowledge(step_id)
    taken = [event.offset for event in host.events if isinstance(event, StdinTaken)]
    assert max(taken, default=0) <= 128 * 1024  # what the pipe of the slow one holds
    (host.root / "fifo").write_text("go\n")
    host.until(lambda: host.events[-1] == StdinTaken(step_id=step_id, offset=len(data)) or _took(host, len(data)))
    host.do(host.pool.steps.stdin, step_id, len(data), b"", True)
    host.acknowledge(step_id)
    host.await_event(StepTasksEnded)
    assert (host.root / "got").read_bytes() == data


def _took(host: ShepherdHost, offset: int) -> bool:
    return any(isinstance(event, StdinTaken) and event.offset == offset for event in host.events)


def test_a_task_that_closed_its_input_does_not_hold_up_the_client(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["sh", "-c", "exec <&-; echo closed; sleep 1000"])
    host.until(lambda: host.output(step_id) == b"closed\n")
    host.do(host.pool.steps.stdin, step_id, 0, b"x" * 200_000, False)
    assert host.await_event(StdinTaken, offset=200_000).step_id == step_id


def test_without_standard_input_a_task_reads_nothing(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["sh", "-c", "wc -c; readlink /proc/self/fd/0"], stdin="null")
    host.await_event(TaskExited)
    assert host.output(step_id).split() == [b"0", b"/dev/null"]


def test_output_waits_in_the_task_until_earlier_output_is_received(host: ShepherdHost, attempt_id: AttemptId) -> None:
    size = 5 * OUTPUT_WINDOW_BYTES
    program = f"import os; d=os.urandom(1); n=0\nwhile n<{size}: n+=os.write(1, b'%08d' % n)\nopen('done','w')"
    step_id = host.start_tasks(attempt_id, ["python3", "-c", program], chdir=str(host.root))
    host.until(lambda: len(host.output(step_id)) == OUTPUT_WINDOW_BYTES)
    assert not (host.root / "done").exists()
    while not [event for event in host.events if isinstance(event, TaskExited)]:
        length = len(host.output(step_id))
        host.acknowledge(step_id)
        host.until(lambda length=length: len(host.output(step_id)) > length or _exited(host))
    assert host.output(step_id) == b"".join(b"%08d" % n for n in range(0, size, 8))


def _exited(host: ShepherdHost) -> bool:
    return any(isinstance(event, TaskExited) for event in host.events)


def test_a_client_that_comes_again_hears_all_that_it_has_not_acknowledged(
    host: ShepherdHost, attempt_id: AttemptId
) -> None:
    step_id = host.start_tasks(attempt_id, ["sh", "-c", "echo one; echo two"])
    host.await_event(TaskExited)
    host.await_event(StepTasksEnded)
    host.events.clear()
    host.do(host.pool.steps.replay, step_id, [])
    host.await_event(TaskExited)
    assert host.output(step_id) == b"one\ntwo\n"
    assert isinstance(host.events[0], TaskStarted)


def test_a_daemon_that_was_killed_finds_tasks_and_output_again(tmp_path: Path) -> None:
    with shepherd_host(tmp_path) as first:
        attempt_id = first.start()
        script = "echo before; read line; echo after $line"
        step_id = first.start_tasks(attempt_id, ["sh", "-c", script])
        first.until(lambda: first.output(step_id) == b"before\n")
        first.end()

        with shepherd_host(tmp_path) as second:
            second.do(second.pool.adopt, attempt_id)
            second.await_event(ProcessStarted)
            second.do(second.pool.steps.stdin, step_id, 0, b"restart\n", True)
            second.await_event(StepTasksEnded)
            assert not [event for event in second.events if isinstance(event, Output)]  # no client is there
            second.do(second.pool.steps.replay, step_id, [])
            second.await_event(TaskExited, exit=ExitStatus(0))
            assert second.output(step_id) == b"before\nafter restart\n"


def test_without_a_client_tasks_never_wait_for_one(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["sh", "-c", "sleep 0.1; head -c 10000000 /dev/zero; echo done > done"],
                               chdir=str(host.root))  # fmt: skip
    host.do(host.pool.steps.detach, step_id)
    host.await_event(StepTasksEnded, exit=ExitStatus(0))
    assert (host.root / "done").exists()


def test_what_a_step_leaves_behind_is_killed_with_it_and_the_script_lives(host: ShepherdHost) -> None:
    attempt_id = host.start(2, "#!/bin/sh\nsleep 1000\n")
    host.start_tasks(attempt_id, ["sh", "-c", "setsid sleep 1001 & (setsid sleep 1002 &) ; sleep 0.1; echo left"])
    host.await_event(StepTasksEnded)
    commands = {Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] for pid in host.processes(attempt_id)}
    assert not commands & {b"1001", b"1002"}
    assert host.processes(attempt_id)  # of the script
    host.await_event(TaskExited)


def test_an_orphan_that_keeps_the_output_open_does_not_hang_the_task(host: ShepherdHost, attempt_id: AttemptId) -> None:
    orphan = "env -i setsid setsid sleep 1000 & sleep 0.1; echo out"  # neither session nor marker tell of it
    step_id = host.start_tasks(attempt_id, ["sh", "-c", orphan], ["sleep", "1000"])
    host.await_event(TaskExited, rank=0)
    assert host.output(step_id) == b"out\n"


def test_a_terminal_has_a_size_that_changes_and_echoes(host: ShepherdHost, attempt_id: AttemptId) -> None:
    are_terminals = "test -t 0 && test -t 1 && test -t 2 && tty"
    script = f"trap 'stty size; exit 3' WINCH; stty size; {are_terminals}; while :; do sleep 0.05; done"
    step_id = host.start_tasks(attempt_id, ["sh", "-c", script], stdin="pty", rows=10, columns=40)
    host.until(lambda: b"/dev/pts/" in host.output(step_id))
    host.do(host.pool.steps.resize, step_id, 33, 111)
    assert host.await_event(TaskExited).exit == ExitStatus(code=3)
    assert host.output(step_id).startswith(b"10 40\r\n") and host.output(step_id).endswith(b"33 111\r\n")


def states(host: ShepherdHost, attempt_id: AttemptId) -> list[str]:
    """``S (sleep)`` for each process: state and name."""
    found = []
    for pid in host.processes(attempt_id):
        _, name, state, *_ = Path(f"/proc/{pid}/stat").read_text().split(maxsplit=3)
        found.append(f"{state} {name}")
    return found


def test_a_shell_on_a_terminal_has_job_control(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["bash", "--norc", "-i"], stdin="pty")
    typed = 0

    def type_keys(keys: bytes, until: bytes) -> None:
        nonlocal typed
        host.do(host.pool.steps.stdin, step_id, typed, keys, False)
        typed += len(keys)
        host.until(lambda: re.search(until, host.output(step_id)) is not None, repr(until))

    type_keys(b"echo rea''dy\n", rb"\nready")
    type_keys(b"sleep 1000\n", rb"sleep 1000\r\n")
    host.until(lambda: "S (sleep)" in states(host, attempt_id))
    type_keys(b"\x1a", rb"Stopped")
    assert "T (sleep)" in states(host, attempt_id)
    type_keys(b"fg\n", rb"fg\r\n.*sleep 1000")
    host.until(lambda: "S (sleep)" in states(host, attempt_id))
    type_keys(b"\x03", rb"\^C")
    type_keys(b"echo status=$?\n", rb"status=130\r\n[^\n]*[#$] ")
    host.do(host.pool.steps.stdin, step_id, typed, b"", True)
    assert host.await_event(TaskExited).exit == ExitStatus(0)
    assert b"no job control" not in host.output(step_id)


def test_a_second_start_of_the_same_step_does_nothing(host: ShepherdHost, attempt_id: AttemptId) -> None:
    argv = ["sh", "-c", "echo once >> runs"]
    host.start_tasks(attempt_id, argv, chdir=str(host.root))
    host.await_event(TaskExited)
    host.start_tasks(attempt_id, argv, chdir=str(host.root))
    host.start_tasks(attempt_id, ["true"], step=1)
    host.await_event(TaskExited, step_id=StepId(attempt_id.job_id, 1, 1))
    assert (host.root / "runs").read_text() == "once\n"


def test_memory_over_the_limit_marks_the_task(host: ShepherdHost) -> None:
    attempt_id = host.start(2, watch_memory_mib=80)
    step_id = host.start_tasks(attempt_id, ["python3", "-c", "import time; b=bytearray(150<<20); time.sleep(1000)"])
    assert host.await_event(TaskExited).oom
    ended = host.await_event(StepTasksEnded, step_id=step_id)
    assert (ended.oom, ended.exit) == (True, ExitStatus(signal=9))


def test_emptying_tells_the_end_of_tasks_and_steps(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, ["sleep", "1000"], ["sleep", "1000"])
    host.await_event(TaskStarted, rank=1)
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    host.await_event(StepTasksEnded, step_id=step_id, exit=ExitStatus(signal=9))
    for rank in (0, 1):
        assert host.await_event(TaskExited, rank=rank).exit == ExitStatus(signal=9)


def test_sixty_four_tasks_of_one_step_run_at_once(host: ShepherdHost, attempt_id: AttemptId) -> None:
    step_id = host.start_tasks(attempt_id, *[["sh", "-c", f"echo {rank}"] for rank in range(64)])
    for rank in range(64):
        host.await_event(TaskExited, rank=rank, exit=ExitStatus(0))
        assert host.output(step_id, rank) == b"%d\n" % rank
