"""Batch scripts under a real shepherd: how they start, run, end, and leave nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.host.daemons import is_zombie
from gq.model.job import ExitStatus
from gqnode.control.input import CellQuiet, ProcessEnded, ProcessStarted
from gqnode.daemon.shepherds import TreeEmpty
from gqnode.shepherd.processes import descendants, is_stopped
from tests.node.shepherd_host import WAIT_S, ShepherdHost, shepherd_host, shepherds


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ShepherdHost]:
    with shepherd_host(tmp_path) as host:
        yield host


def test_a_script_runs_with_exactly_its_environment_arguments_directory_and_umask(host: ShepherdHost) -> None:
    output = host.root / "out"
    script = '#!/bin/sh\necho "$1 $2"; pwd; umask; /usr/bin/env | grep -v ^_= | sort\n'
    attempt_id = host.start(
        script=script, args=("a b", "c"), environment={"X": "1", "PWD": "/usr"}, chdir="/usr", umask=0o077,
        output_path=str(output),
    )  # fmt: skip
    host.await_event(ProcessEnded, exit=ExitStatus(0))
    marker = f"GQ_CELL={host.root / str(attempt_id)}"
    assert output.read_text().splitlines() == ["a b c", "/usr", "0077", marker, "PWD=/usr", "X=1"]
    assert output.stat().st_mode & 0o777 == 0o600


def test_started_comes_before_ended_and_their_instants_are_in_order(host: ShepherdHost) -> None:
    before = time.time()
    host.start(script="#!/bin/sh\ntrue\n")
    ended = host.await_event(ProcessEnded)
    started = host.await_event(ProcessStarted)
    assert host.events.index(started) < host.events.index(ended)
    assert before <= started.at <= ended.ended_at <= time.time()


@pytest.mark.parametrize(
    ("body", "exit"),
    [
        ("exit 3", ExitStatus(code=3)),
        ("kill -9 $$", ExitStatus(signal=9)),
        ("kill -TERM $$", ExitStatus(signal=15)),
    ],
)
def test_how_a_script_ended_is_told(host: ShepherdHost, body: str, exit: ExitStatus) -> None:
    host.start(script=f"#!/bin/sh\n{body}\n")
    ended = host.await_event(ProcessEnded)
    assert (ended.exit, ended.why, ended.oom, ended.is_lost) == (exit, "", False, False)


def test_cpu_time_and_memory_of_what_the_script_waited_for_are_counted(host: ShepherdHost) -> None:
    program = "b=bytearray(60<<20); import time; t=time.process_time()\nwhile time.process_time()-t<0.3: pass"
    host.start(script=f"#!/bin/sh\npython3 -c '{program}'\n")
    usage = host.await_event(ProcessEnded).usage
    assert 0.25 < usage.user_cpu_s + usage.system_cpu_s < 5
    assert 60 <= usage.max_rss_mib < 200


def test_standard_error_goes_with_the_output_unless_it_has_a_file(host: ShepherdHost) -> None:
    both, out, err = (host.root / name for name in ("both", "out", "err"))
    host.start(1, "#!/bin/sh\necho a; echo b >&2; cat\n", output_path=str(both), input_path="/dev/null")
    (host.root / "in").write_text("given\n")
    host.start(
        2, "#!/bin/sh\necho a; echo b >&2; cat\n",
        output_path=str(out), error_path=str(err), input_path=str(host.root / "in"),
    )  # fmt: skip
    host.until(lambda: sum(isinstance(event, ProcessEnded) for event in host.events) == 2)
    assert (both.read_text(), out.read_text(), err.read_text()) == ("a\nb\n", "a\ngiven\n", "b\n")


def test_output_is_truncated_or_appended_as_asked(host: ShepherdHost) -> None:
    fresh, kept = host.root / "fresh", host.root / "kept"
    fresh.write_text("old\n")
    kept.write_text("old\n")
    host.start(1, "#!/bin/sh\necho new\n", output_path=str(fresh))
    host.start(2, "#!/bin/sh\necho new\n", output_path=str(kept), append=True)
    host.until(lambda: sum(isinstance(event, ProcessEnded) for event in host.events) == 2)
    assert (fresh.read_text(), kept.read_text()) == ("new\n", "old\nnew\n")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"chdir": "/no/such"}, "cannot change to the directory `/no/such`: No such file or directory"),
        ({"output_path": "/no/out"}, "cannot open the output file `/no/out`: No such file or directory"),
        ({"error_path": "/proc/err"}, "cannot open the error file `/proc/err`: No such file or directory"),
        ({"input_path": "/no/in"}, "cannot open the input file `/no/in`: No such file or directory"),
        ({"cgroup_procs": ("/no/procs",)}, "cannot join the cell by `/no/procs`: No such file or directory"),
    ],
)  # fmt: skip
def test_a_failed_set_up_is_named_and_no_start_is_reported(
    host: ShepherdHost, fields: dict[str, str], why: str
) -> None:
    host.start(script="#!/bin/sh\ntouch ran\n", **fields)
    assert host.await_event(ProcessEnded).why == why
    assert not [event for event in host.events if isinstance(event, ProcessStarted)]


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("#!/no/such/shell\n", 127, "its interpreter `/no/such/shell` does not exist"),
        ("echo no first line\n", 126, "Exec format error"),
        ("#!/etc/passwd\n", 126, "Permission denied"),
    ],
)
def test_a_script_that_cannot_be_executed_fails_as_in_a_shell_and_says_why(
    host: ShepherdHost, script: str, code: int, message: str
) -> None:
    error = host.root / "err"
    host.start(script=script, error_path=str(error))
    ended = host.await_event(ProcessEnded)
    assert (ended.exit, ended.why) == (ExitStatus(code=code), "")
    assert error.read_text().startswith("gq: error: cannot execute `") and message in error.read_text()


def test_setsid_and_double_forks_leave_no_process(host: ShepherdHost) -> None:
    daemonize = "import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0: time.sleep(1000)\n os._exit(0)"
    script = f"#!/bin/sh\nsetsid sleep 1000 &\n(setsid sleep 1001 &)\npython3 -c '{daemonize}'\nsleep 0.2\nexit 5\n"
    attempt_id = host.start(script=script)
    host.until(lambda: len(host.processes(attempt_id)) >= 4)
    assert host.await_event(ProcessEnded).exit == ExitStatus(code=5)
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert host.processes(attempt_id) == []


def test_processes_that_wipe_their_environment_and_ignore_signals_are_killed_too(host: ShepherdHost) -> None:
    pids = host.root / "pids"
    stubborn = f"trap '' TERM HUP INT; echo $$ >> {pids}; while :; do sleep 100; done"
    attempt_id = host.start(script=f'#!/bin/sh\nenv -i setsid sh -c "{stubborn}" &\nsleep 1000\n')
    host.until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert host.await_event(ProcessEnded).exit == ExitStatus(signal=9)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split())


BOMBER = 64_999
"""The number of a user who has no other process."""


def test_a_fork_bomb_is_emptied(host: ShepherdHost) -> None:
    few = "ulimit -u 400 2>/dev/null || ulimit -p 400 || exit 1"  # the option's name is not the same in all shells
    bomb = few + "; f() { sleep 0.01; f & f & wait; }; f & sleep 1000"
    as_nobody = f"setpriv --reuid={BOMBER} --regid={BOMBER} --clear-groups " if os.geteuid() == 0 else ""
    attempt_id = host.start(script=f"#!/bin/sh\nexec {as_nobody}sh -c '{bomb}'\n", chdir="/")  # root has no such limit
    host.until(lambda: len(host.processes(attempt_id)) > 20)
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert host.processes(attempt_id) == []


def test_a_cell_without_a_script_lives_until_it_is_emptied(host: ShepherdHost) -> None:
    attempt_id = host.start()
    host.await_event(ProcessStarted)
    host.do(host.pool.check, attempt_id)
    host.await_event(CellQuiet)
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert not [event for event in host.events if isinstance(event, ProcessEnded)]


def test_a_running_script_is_not_quiet(host: ShepherdHost) -> None:
    attempt_id = host.start(script="#!/bin/sh\nread line < fifo\n", chdir=str(host.root))
    os.mkfifo(host.root / "fifo")
    host.await_event(ProcessStarted)
    host.do(host.pool.check, attempt_id)
    host.do(host.pool.write_line, attempt_id, "the answer to this shows that the question was heard")
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert not [event for event in host.events if isinstance(event, CellQuiet)]


def test_a_batch_signal_reaches_only_the_script(host: ShepherdHost) -> None:
    output = host.root / "out"
    child = "trap 'echo child >> out' USR1; touch ready; while :; do sleep 0.05; done"
    script = f"#!/bin/sh\ntrap 'echo script >> out; exit 4' USR1\nsh -c \"{child}\" &\nwait\n"
    attempt_id = host.start(script=script, chdir=str(host.root))
    host.until(lambda: (host.root / "ready").exists())
    host.do(host.pool.signal, attempt_id, signal.SIGUSR1, "batch")
    assert host.await_event(ProcessEnded).exit == ExitStatus(code=4)
    assert output.read_text() == "script\n"


def test_a_signal_to_all_reaches_every_process_and_wakes_stopped_ones_to_end_them(host: ShepherdHost) -> None:
    script = "#!/bin/sh\nsetsid sleep 1000 &\nsleep 1001 &\nkill -STOP $$\n"
    attempt_id = host.start(script=script)
    host.until(lambda: len(host.processes(attempt_id)) == 3)
    host.do(host.pool.signal, attempt_id, signal.SIGTERM, "all")
    assert host.await_event(ProcessEnded).exit == ExitStatus(signal=signal.SIGTERM)


FORKS = """#!/bin/sh
while :; do sh -c : ; (sleep 0.01; :) & echo >> counted; done
"""
SPAWNS = """#!{python}
import os
while True:
    opened = (os.POSIX_SPAWN_OPEN, 0, "fifo", os.O_RDONLY, 0)
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[opened]), 0)
    open("ended", "w").close()
"""
"""The child waits for the other end of the FIFO before it executes its program, and the parent waits for that."""


def below_shepherds(host: ShepherdHost) -> list[int]:
    return [pid for shepherd in shepherds(host.root) for pid in descendants(shepherd)]


def all_stopped(host: ShepherdHost) -> bool:
    return all(map(is_stopped, below_shepherds(host)))


def test_a_job_that_forks_all_the_time_can_be_stopped_and_goes_on(host: ShepherdHost) -> None:
    attempt_id = host.start(script=FORKS, chdir=str(host.root))
    counted = host.root / "counted"
    for _ in range(10):
        host.until(counted.exists)
        host.do(host.pool.signal, attempt_id, signal.SIGSTOP, "all")
        host.until(lambda: all_stopped(host), "every process to be stopped")
        counted.unlink()
        host.do(host.pool.signal, attempt_id, signal.SIGCONT, "all")


def test_a_process_that_waits_for_a_child_stopped_before_its_program_is_stopped(host: ShepherdHost) -> None:
    os.mkfifo(host.root / "fifo")
    attempt_id = host.start(script=SPAWNS.format(python=sys.executable), chdir=str(host.root))
    host.until(lambda: len(below_shepherds(host)) == 2)

    host.do(host.pool.signal, attempt_id, signal.SIGSTOP, "all")
    host.until(lambda: all_stopped(host))
    assert not (host.root / "ended").exists()

    host.do(host.pool.signal, attempt_id, signal.SIGCONT, "all")
    fifo = os.open(host.root / "fifo", os.O_RDWR)
    host.until((host.root / "ended").exists)
    os.close(fifo)


def test_a_line_is_appended_to_the_standard_error_and_not_overwritten(host: ShepherdHost) -> None:
    error = host.root / "err"
    script = "#!/bin/sh\necho one >&2\ntouch ready\nread line < fifo\necho two >&2\n"
    os.mkfifo(host.root / "fifo")
    attempt_id = host.start(script=script, chdir=str(host.root), error_path=str(error))
    host.until(lambda: (host.root / "ready").exists())
    host.do(host.pool.write_line, attempt_id, "*** JOB 1 CANCELLED ***")
    host.until(lambda: "***" in error.read_text())
    (host.root / "fifo").write_text("go\n")
    host.await_event(ProcessEnded)
    assert error.read_text() == "one\n*** JOB 1 CANCELLED ***\ntwo\n"


def test_watched_memory_ends_the_attempt_as_out_of_memory_and_its_neighbour_lives(host: ShepherdHost) -> None:
    greedy = "#!/bin/sh\npython3 -c 'import time; b=bytearray(200<<20); time.sleep(1000)' & wait\n"
    error = host.root / "err"
    neighbour = host.start(1, "#!/bin/sh\nsleep 1000\n", watch_memory_mib=100)
    host.start(2, greedy, watch_memory_mib=100, error_path=str(error))
    ended = host.await_event(ProcessEnded)
    assert (ended.attempt_id.job_id, ended.oom, ended.exit) == (2, True, ExitStatus(signal=9))
    assert ended.usage.max_rss_mib > 100
    assert "its limit is 100 MiB" in error.read_text()
    assert host.processes(neighbour)


def test_memory_that_processes_share_is_counted_once(host: ShepherdHost) -> None:
    program = host.root / "share.py"
    program.write_text(
        "import mmap, os, time\n"
        "shared = mmap.mmap(-1, 60 << 20)\n"
        "shared.write(bytes(60 << 20))\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        sum(shared[i] for i in range(0, 60 << 20, 4096)); time.sleep(1.6); os._exit(0)\n"
        "for _ in range(3):\n"
        "    os.wait()\n"
    )
    host.start(script=f"#!/bin/sh\nexec python3 {program}\n", watch_memory_mib=160)
    ended = host.await_event(ProcessEnded)
    assert (ended.exit, ended.oom) == (ExitStatus(0), False)


def test_a_full_disk_under_the_output_is_the_jobs_own_trouble(host: ShepherdHost) -> None:
    host.start(script="#!/bin/sh\necho x || exit 9\n", output_path="/dev/full")
    assert host.await_event(ProcessEnded).exit == ExitStatus(code=9)


def test_an_output_that_hangs_hangs_only_its_own_job_and_can_be_ended(host: ShepherdHost) -> None:
    os.mkfifo(host.root / "fifo")
    stuck = host.start(1, "#!/bin/sh\ntrue\n", output_path=str(host.root / "fifo"))
    host.do(host.pool.write_line, stuck, "nobody reads this")
    host.start(2, "#!/bin/sh\ntrue\n")
    assert host.await_event(ProcessEnded).attempt_id.job_id == 2
    host.do(host.pool.empty, stuck)
    host.await_event(TreeEmpty)
    assert host.await_event(ProcessEnded, attempt_id=stuck).exit == ExitStatus(signal=9)


def test_a_reason_longer_than_a_pipe_holds_is_told_all_the_same(host: ShepherdHost) -> None:
    host.start(script="#!/bin/sh\ntrue\n", output_path="/" + "é" * 100_000)
    ended = host.await_event(ProcessEnded)
    assert ended.why.startswith("cannot open the output file `/éé")
    assert not ended.is_lost


def test_a_shepherd_that_is_killed_while_its_job_hangs_in_the_start_is_missed_at_once(host: ShepherdHost) -> None:
    pipe = host.root / "pipe"
    os.mkfifo(pipe)
    directory = host.root / "directory"
    directory.mkdir()
    host.start(script="#!/bin/sh\ntrue\n", output_path=str(pipe), chdir=str(directory))
    host.until(lambda: len(shepherds(host.root)) == 2, "a shepherd, and its child that waits for a reader")
    shepherd, child = sorted(shepherds(host.root), key=lambda pid: -len(descendants(pid)))
    os.kill(shepherd, signal.SIGKILL)
    assert host.await_event(ProcessEnded).is_lost
    host.until(lambda: is_zombie(child), "the end of what nobody could find")


def test_a_job_that_stops_its_shepherd_can_be_ended(host: ShepherdHost) -> None:
    script = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\nkill -STOP $PPID\nexec sleep 1000\n"
    attempt_id = host.start(script=script, chdir=str(host.root))
    host.await_event(ProcessStarted)
    (host.root / "go").touch()
    host.until(lambda: [_is_stopped(pid) for pid in shepherds(host.root)] == [True], "a stopped shepherd")
    host.do(host.pool.signal, attempt_id, signal.SIGTERM, "batch")
    assert host.await_event(ProcessEnded).exit == ExitStatus(signal=signal.SIGTERM)


def test_a_command_that_overtakes_the_first_report_of_a_stopped_shepherd_is_carried_out(host: ShepherdHost) -> None:
    attempt_id = host.start(script="#!/bin/sh\nkill -STOP $PPID\nexec sleep 1000\n")
    deadline = time.monotonic() + WAIT_S
    while [_is_stopped(pid) for pid in shepherds(host.root)] != [True]:  # the loop of the pool does not run meanwhile
        assert time.monotonic() < deadline
        time.sleep(0.002)
    host.do(host.pool.signal, attempt_id, signal.SIGTERM, "batch")
    assert host.await_event(ProcessEnded).exit == ExitStatus(signal=signal.SIGTERM)


def test_a_shepherd_that_is_stopped_while_it_empties_is_woken(host: ShepherdHost) -> None:
    attempt_id = host.start(script="#!/bin/sh\nexec sleep 1000\n")
    host.await_event(ProcessStarted)
    (shepherd,) = shepherds(host.root)
    os.kill(shepherd, signal.SIGSTOP)
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert host.await_event(ProcessEnded).exit == ExitStatus(signal=signal.SIGKILL)
    assert not host.processes(attempt_id)


def test_a_new_daemon_ends_a_job_whose_shepherd_was_stopped_before(tmp_path: Path) -> None:
    with shepherd_host(tmp_path) as first:
        attempt_id = first.start(script="#!/bin/sh\nexec sleep 1000\n")
        first.await_event(ProcessStarted)
        first.end()
        os.kill(shepherds(tmp_path)[0], signal.SIGSTOP)
        with shepherd_host(tmp_path) as second:
            second.do(second.pool.adopt, attempt_id)
            second.do(second.pool.empty, attempt_id)
            second.await_event(TreeEmpty)
            assert second.await_event(ProcessEnded).exit == ExitStatus(signal=signal.SIGKILL)
            assert not second.processes(attempt_id)


@pytest.mark.parametrize("signum", [-1, 65, 2**40])
def test_a_signal_that_does_not_exist_does_not_end_the_shepherd(host: ShepherdHost, signum: int) -> None:
    attempt_id = host.start(script="#!/bin/sh\nexec sleep 1000\n")
    host.await_event(ProcessStarted)
    host.do(host.pool.signal, attempt_id, signum, "batch")
    host.do(host.pool.signal, attempt_id, signal.SIGTERM, "batch")
    assert host.await_event(ProcessEnded).exit == ExitStatus(signal=signal.SIGTERM)


def test_ignored_signals_of_the_daemon_are_default_in_the_job(host: ShepherdHost) -> None:
    output = host.root / "out"
    host.start(script="#!/bin/sh\ngrep -E 'SigIgn|SigBlk' /proc/self/status\n", output_path=str(output))
    host.await_event(ProcessEnded)
    of_the_c_library = 1 << 31 | 1 << 32  # signals 32 and 33, which no program can change
    masks = [int(line.split()[1], 16) & ~of_the_c_library for line in output.read_text().splitlines()]
    assert masks == [0, 0]


def test_nothing_of_the_daemon_is_open_in_the_job(host: ShepherdHost) -> None:
    output = host.root / "out"
    host.start(script="#!/bin/sh\nexec ls /proc/self/fd\n", output_path=str(output))
    host.await_event(ProcessEnded)
    assert output.read_text().split() == ["0", "1", "2", "3"]  # 3 is the directory that ls reads


def test_a_spool_path_longer_than_a_socket_path_may_be_works(tmp_path: Path) -> None:
    root = tmp_path / ("x" * 120) / ("y" * 120)
    root.mkdir(parents=True)
    with shepherd_host(root) as host:
        attempt_id = host.start(script="#!/bin/sh\nsleep 1000\n")
        host.await_event(ProcessStarted)
        host.end()
        with shepherd_host(root) as next_host:
            next_host.do(next_host.pool.adopt, attempt_id)
            assert next_host.await_event(ProcessStarted).attempt_id == attempt_id


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run jobs as others")
def test_a_job_of_another_user_runs_with_that_users_rights_only(host: ShepherdHost) -> None:
    for directory in (host.root, *host.root.parents[:-2]):
        directory.chmod(0o755)
    home = host.root / "home"
    home.mkdir()
    os.chown(home, 4321, 4322)
    script = "#!/bin/sh\nid -u; id -g; id -G\n"
    attempt_id = host.start(script=script, identity=(4321, 4322, (4323,)), output_path=str(home / "out"))
    assert host.await_event(ProcessEnded).exit == ExitStatus(0)
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert (home / "out").read_text().split() == ["4321", "4322", "4322", "4323"]
    assert (home / "out").stat().st_uid == 4321


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
