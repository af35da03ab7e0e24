"""The forkserver: slim, quiet, and replaceable."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gqnode.daemon import spawn as spawn_module
from gqnode.daemon.spawn import Spawner
from gqnode.shepherd import forkserver
from gqnode.shepherd.frames import FrameReader, Head, pack
from gqnode.shepherd.processes import read_process

HEAVY = {
    "msgspec",
    "zmq",
    "asyncio",
    "psutil",
    "pathlib",
    "subprocess",
    "logging",
    "dataclasses",
    "inspect",
    "traceback",
}


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    spawner = Spawner()
    yield spawner
    spawner.close()


def heads(link: socket.socket) -> Iterator[Head]:
    link.settimeout(20)
    reader = FrameReader()
    while data := link.recv(65536):
        yield from (head for head, _ in reader.feed(data))


def spawn(spawner: Spawner, directory: Path) -> socket.socket:
    near, far = socket.socketpair()
    with far:
        spawner.spawn(str(directory), far)
    return near


def test_both_ends_mean_the_same_by_reading() -> None:
    assert spawn_module.READ == forkserver.READ


def test_the_forkserver_loads_nothing_heavy_and_needs_no_installed_package() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import gqnode.shepherd.forkserver; print(*sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(root)], capture_output=True, check=True, text=True
    )
    modules = set(done.stdout.split())
    assert not modules & HEAVY
    assert len(modules) < 110


def test_a_shepherd_speaks_and_ends_when_nobody_ever_gives_it_work(spawner: Spawner, tmp_path: Path) -> None:
    with spawn(spawner, tmp_path) as link:
        assert next(heads(link))["is"] == "here"
    assert (tmp_path / "ctl").exists()


def test_a_second_shepherd_for_the_same_directory_ends_without_a_word(spawner: Spawner, tmp_path: Path) -> None:
    with spawn(spawner, tmp_path) as first:
        assert next(heads(first))["is"] == "here"
        with spawn(spawner, tmp_path) as second:
            assert list(heads(second)) == []


def test_a_shepherd_outlives_the_forkserver(spawner: Spawner, tmp_path: Path) -> None:
    with spawn(spawner, tmp_path) as link:
        link.sendall(pack({"do": "begin", "spec": {"environment": {}}}))
        told = heads(link)
        assert [next(told)["is"], next(told)["is"]] == ["here", "started"]
        spawner.close()
        link.sendall(pack({"do": "empty"}))
        assert [head["is"] for head in told] == ["emptied"]


def test_the_forkserver_ends_with_the_daemon_and_leaves_no_zombie_shepherds(spawner: Spawner, tmp_path: Path) -> None:
    with spawn(spawner, tmp_path) as link:
        next(heads(link))
    forkserver = spawner.pid
    assert forkserver is not None
    deadline = time.monotonic() + 20
    while Path(f"/proc/{forkserver}/task/{forkserver}/children").read_text():
        assert time.monotonic() < deadline, "a shepherd was not buried"
    spawner.close()
    assert read_process(forkserver) is None


def test_a_stopped_terminal_session_of_the_daemon_does_not_reach_the_forkserver(spawner: Spawner) -> None:
    spawner.start()
    assert spawner.pid is not None
    assert os.getsid(spawner.pid) == spawner.pid != os.getsid(0)


def test_a_killed_forkserver_is_replaced_at_the_next_request(spawner: Spawner, tmp_path: Path) -> None:
    spawner.start()
    assert spawner.pid is not None
    os.kill(spawner.pid, signal.SIGKILL)
    os.waitid(os.P_PID, spawner.pid, os.WEXITED | os.WNOWAIT)
    with spawn(spawner, tmp_path) as link:
        assert next(heads(link))["is"] == "here"
