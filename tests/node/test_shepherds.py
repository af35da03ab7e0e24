"""The pool of shepherds over a restart of the daemon, without a shepherd, and with many of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus
from gqnode.control.input import CellQuiet, ProcessEnded, ProcessStarted
from gqnode.daemon.shepherds import TreeEmpty, connect_in
from gqnode.shepherd.processes import read_process
from gqnode.shepherd.specs import ShepherdSpec
from tests.node.shepherd_host import ShepherdHost, shepherd_host, shepherds


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ShepherdHost]:
    with shepherd_host(tmp_path) as host:
        yield host


def wait_for_file(host: ShepherdHost, name: str) -> Path:
    host.until(lambda: (host.root / name).exists(), name)
    return host.root / name


def shepherd_of(host: ShepherdHost) -> int:
    """Of the only attempt."""
    (pid,) = shepherds(host.root)
    return pid


def end_line(attempt: str, code: int) -> bytes:
    """As a shepherd records it."""
    end = {"code": code, "signal": 0, "started_at": 1.0, "ended_at": 2.0, "oom": False, "why": ""}
    return json.dumps({"attempt": attempt, "ended": end, "emptied": {}}).encode()


def test_a_job_outlives_the_daemon_and_its_forkserver_and_its_end_is_heard_by_the_next(tmp_path: Path) -> None:
    with shepherd_host(tmp_path) as first:
        attempt_id = first.start(
            script="#!/bin/sh\nuntil test -e go; do sleep 0.02; done\nexit 7\n", chdir=str(tmp_path)
        )
        started = first.await_event(ProcessStarted)
        os.kill(first.spawner.pid or 0, signal.SIGKILL)
        first.end()
        with shepherd_host(tmp_path) as second:
            second.do(second.pool.adopt, attempt_id)
            assert second.await_event(ProcessStarted) == started
            (tmp_path / "go").touch()
            assert second.await_event(ProcessEnded).exit == ExitStatus(code=7)


def test_an_end_that_no_daemon_saw_is_read_from_the_spool(tmp_path: Path) -> None:
    with shepherd_host(tmp_path) as first:
        script = "#!/bin/sh\nuntil test -e go; do sleep 0.02; done\nsetsid sleep 1000 &\nexit 7\n"
        attempt_id = first.start(script=script, chdir=str(tmp_path))
        started = first.await_event(ProcessStarted)
        shepherd = shepherd_of(first)
        first.end()
        (tmp_path / "go").touch()
        with shepherd_host(tmp_path) as second:
            second.until(lambda: read_process(shepherd) is None, "the shepherd to end by itself")
            assert not second.processes(attempt_id)
            second.do(second.pool.adopt, attempt_id)
            assert second.await_event(ProcessEnded).exit == ExitStatus(code=7)
            assert second.events[0] == started
            second.do(second.pool.empty, attempt_id)
            second.await_event(TreeEmpty)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([end_line("1.1", 3), b'{"attempt": "1.1", "ended": {"cod'], 3),
        ([end_line("1.1", 3), end_line("7.1", 4)], 3),
        ([end_line("1.1", 3), end_line("1.1", 5)], 5),
    ],
)
def test_the_last_whole_record_of_an_end_counts_if_it_is_of_this_attempt(
    host: ShepherdHost, lines: list[bytes], code: int
) -> None:
    (host.root / "1.1").mkdir()
    (host.root / "1.1" / "end.json").write_bytes(b"\n".join(lines))
    host.do(host.pool.adopt, AttemptId(JobId(1), 1))
    assert host.await_event(ProcessEnded).exit == ExitStatus(code=code)


def test_an_end_that_only_another_attempt_recorded_is_not_known(host: ShepherdHost) -> None:
    (host.root / "1.1").mkdir()
    (host.root / "1.1" / "end.json").write_bytes(end_line("7.1", 0))
    host.do(host.pool.adopt, AttemptId(JobId(1), 1))
    assert host.await_event(ProcessEnded).why == "the shepherd could not be started"


def test_an_attempt_is_never_started_twice(tmp_path: Path) -> None:
    with shepherd_host(tmp_path) as first:
        script = "#!/bin/sh\necho run >> runs\nsleep 1000\n"
        attempt_id = first.start(script=script, chdir=str(tmp_path))
        wait_for_file(first, "runs")
        first.end()
        with shepherd_host(tmp_path) as second:
            second.start(script=script, chdir=str(tmp_path))
            second.await_event(ProcessStarted)
            second.do(second.pool.empty, attempt_id)
            second.await_event(TreeEmpty)
            second.end()
            with shepherd_host(tmp_path) as third:
                third.start(script=script, chdir=str(tmp_path))
                third.await_event(ProcessEnded)
    assert (tmp_path / "runs").read_text() == "run\n"


def test_when_the_shepherd_is_killed_the_attempt_is_lost_and_its_strays_are_found(host: ShepherdHost) -> None:
    attempt_id = host.start(script="#!/bin/sh\nsetsid sleep 1000 &\nsleep 1000\n")
    host.until(lambda: len(host.processes(attempt_id)) == 3)
    os.kill(shepherd_of(host), signal.SIGKILL)
    assert host.await_event(ProcessEnded).is_lost
    assert len(host.processes(attempt_id)) == 3
    host.do(host.pool.check, attempt_id)
    host.settle()
    assert not [event for event in host.events if isinstance(event, CellQuiet)]
    host.do(host.pool.empty, attempt_id)
    host.await_event(TreeEmpty)
    assert not host.processes(attempt_id)


def test_strays_of_a_shepherd_that_died_with_the_daemon_are_found(tmp_path: Path) -> None:
    with shepherd_host(tmp_path) as first:
        attempt_id = first.start(script="#!/bin/sh\nsleep 1000\n")
        first.until(lambda: len(first.processes(attempt_id)) == 2)
        first.end()
        os.kill(shepherd_of(first), signal.SIGKILL)
        with shepherd_host(tmp_path) as second:
            second.do(second.pool.adopt, attempt_id)
            assert second.await_event(ProcessEnded).is_lost
            second.do(second.pool.empty, attempt_id)
            second.await_event(TreeEmpty)
            assert not second.processes(attempt_id)


def test_the_strays_of_another_cluster_with_the_same_ids_are_left_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with shepherd_host(tmp_path / "a") as host, shepherd_host(tmp_path / "b") as other:
        attempt_id = other.start(script="#!/bin/sh\nsleep 1000\n")
        other.until(lambda: len(other.processes(attempt_id)) == 2)
        host.do(host.pool.empty, attempt_id)
        host.await_event(TreeEmpty)
        assert len(other.processes(attempt_id)) == 2


def test_an_unknown_attempt_is_quiet_empty_and_lost(host: ShepherdHost) -> None:
    unknown = AttemptId(JobId(99), 1)
    host.do(host.pool.check, unknown)
    host.await_event(CellQuiet)
    host.do(host.pool.empty, unknown)
    host.await_event(TreeEmpty, attempt_id=unknown)
    host.do(host.pool.adopt, unknown)
    assert host.await_event(ProcessEnded).why == "the shepherd could not be started"


def test_every_question_for_emptiness_is_answered(host: ShepherdHost) -> None:
    attempt_id = host.start(script="#!/bin/sh\ntrue\n")
    host.await_event(ProcessEnded)
    for count in (1, 2, 3):
        host.do(host.pool.empty, attempt_id)
        host.until(lambda count=count: sum(isinstance(event, TreeEmpty) for event in host.events) == count)
    assert not host.processes(attempt_id)


def test_the_forkserver_is_replaced_when_it_dies(host: ShepherdHost) -> None:
    host.start(1, "#!/bin/sh\nsleep 1000\n")  # so that its shepherd is not free for the second
    host.await_event(ProcessStarted)
    first = host.spawner.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    host.start(2, "#!/bin/sh\nexit 2\n")
    assert host.await_event(ProcessEnded, exit=ExitStatus(code=2)).why == ""
    assert host.spawner.pid != first


def test_a_start_without_a_directory_is_refused_with_a_reason(host: ShepherdHost) -> None:
    attempt_id = AttemptId(JobId(1), 1)
    shutil.rmtree(host.root, ignore_errors=True)
    host.root.mkdir()
    host.do(host.pool.start, attempt_id, ShepherdSpec(environment={}), b"")
    ended = host.await_event(ProcessEnded)
    assert (ended.why, ended.is_lost) == ("the shepherd could not be started", False)


def test_two_hundred_shepherds_hold_two_hundred_jobs_at_once(host: ShepherdHost) -> None:
    for job in range(1, 201):
        host.start(job, "#!/bin/sh\nread line < fifo\nexit 3\n", chdir=str(host.root))
    os.mkfifo(host.root / "fifo")
    host.until(lambda: sum(isinstance(event, ProcessStarted) for event in host.events) == 200)
    for job in range(1, 201):
        host.do(host.pool.empty, AttemptId(JobId(job), 1))
    host.until(lambda: sum(isinstance(event, TreeEmpty) for event in host.events) == 200)
    ends = [event for event in host.events if isinstance(event, ProcessEnded)]
    assert len(ends) == 200 and not any(event.is_lost for event in ends)


def test_random_bytes_at_the_control_socket_do_not_harm_the_job(host: ShepherdHost) -> None:
    attempt_id = host.start(script="#!/bin/sh\nsleep 1000\n")
    host.await_event(ProcessStarted)
    intruder = connect_in(str(host.root / str(attempt_id)), "ctl")
    assert intruder is not None
    with intruder:
        intruder.sendall(b"\xff" * 64)
        intruder.settimeout(10)
        while intruder.recv(4096):
            pass
    host.end()
    with shepherd_host(host.root) as next_host:
        next_host.do(next_host.pool.adopt, attempt_id)
        next_host.await_event(ProcessStarted)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_heard_at_the_control_socket(host: ShepherdHost) -> None:
    attempt_id = host.start(script="#!/bin/sh\nsleep 1000\n")
    host.await_event(ProcessStarted)
    directory = host.root / str(attempt_id)
    for path in (*host.root.parents[:-2], host.root, directory, directory / "ctl"):
        path.chmod(0o777)
    pid = os.fork()
    if pid == 0:
        os.setuid(4321)
        stranger = socket.socket(socket.AF_UNIX)
        os.chdir(directory)
        stranger.connect("ctl")
        os._exit(0 if stranger.recv(100) == b"" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    host.do(host.pool.signal, attempt_id, signal.SIGTERM, "all")
    host.await_event(ProcessEnded)
