"""Which processes count as the daemons of a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import gq
from gq.connection.locate import private_location
from gq.errors import Refusal
from gq.host import daemons
from gq.host.daemons import Daemon
from tests.clusters import wait_until

SOURCE = Path(gq.__file__).parent.parent
STUBBORN = """
import signal, sys, time
print("ready", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else signal.SIG_DFL)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory with a program `imitation`, which stands in for a daemon."""
    package = tmp_path / "imitation"
    package.mkdir()
    (package / "__main__.py").write_text(STUBBORN)
    yield tmp_path


def imitation(directory: Path, *arguments: str) -> Daemon:
    return Daemon(name="imitation", module="imitation", arguments=("--dir", *arguments), directory=str(directory))


def from_path(directory: Path) -> dict[str, str]:
    """The environment of a gq that is found by PYTHONPATH, and `imitation` likewise."""
    return {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{SOURCE}"}


def started(daemon: Daemon, directory: Path) -> subprocess.Popen[bytes]:
    process = daemons.start(daemon, from_path(directory))
    wait_until(lambda: daemon.log_path.read_text().count("ready") == 2)
    return process


def test_a_started_daemon_is_alive_by_its_pid_file_and_stops_when_told(directory: Path) -> None:
    daemon = imitation(directory)
    assert daemon.pid() is None
    process = started(daemon, directory)
    assert daemon.pid() == process.pid
    assert os.getsid(process.pid) == process.pid
    assert daemons.stop([daemon]) == []
    assert process.wait() == -signal.SIGTERM
    assert not daemon.pid_path.exists()


def test_a_daemon_that_does_not_stop_is_killed_and_named(directory: Path) -> None:
    daemon = imitation(directory, "stubborn")
    process = started(daemon, directory)
    assert daemons.stop([daemon], patience_s=0.1) == ["imitation"]
    assert process.wait() == -signal.SIGKILL


def test_a_pid_file_that_names_another_process_is_not_believed(directory: Path) -> None:
    daemon = imitation(directory)
    daemon.pid_path.write_text(f"{os.getpid()}\n")
    assert daemon.pid() is None
    daemon.pid_path.write_text("not a number\n")
    assert daemon.pid() is None


def test_a_process_that_has_ended_and_was_not_collected_is_not_alive(directory: Path) -> None:
    daemon = imitation(directory)
    process = started(daemon, directory)
    process.kill()
    wait_until(lambda: daemons.is_zombie(process.pid))
    assert daemon.pid() is None
    process.wait()


def test_a_daemon_that_fails_to_start_is_told_with_the_end_of_its_log(directory: Path) -> None:
    (directory / "imitation" / "__main__.py").write_text("import sys; sys.exit('no room on the disk')")
    daemon = imitation(directory)
    process = daemons.start(daemon, from_path(directory))
    process.wait()
    with pytest.raises(Refusal, match="imitation did not start") as error:
        daemons.check_alive({daemon.name: process}, [daemon])
    assert "    no room on the disk" in error.value.message
    assert not daemon.pid_path.exists()


def test_a_start_appends_to_a_log_in_a_log_directory_and_tells_only_its_own_lines(directory: Path) -> None:
    (directory / "log").mkdir()
    daemon = msgspec.structs.replace(imitation(directory), log_directory=str(directory / "log"))
    rotated = daemon.log_path.with_suffix(".log.1")
    daemon.log_path.write_text("of the start before\n")
    rotated.write_text("of the week before\n")
    (directory / "imitation" / "__main__.py").write_text("import sys; sys.exit('no room on the disk')")
    begin = daemons.log_size(daemon)

    daemons.start(daemon, from_path(directory)).wait()

    assert daemon.log_path.read_text() == "of the start before\nno room on the disk\n"
    assert rotated.read_text() == "of the week before\n"
    assert daemons.log_tail(daemon, begin=begin) == "    no room on the disk"


def test_two_ups_of_one_cluster_wait_for_each_other(directory: Path) -> None:
    location = private_location(str(directory), {})
    program = (
        "import sys; from gq.connection import locate; from gq.host import daemons\n"
        "with daemons.only_one(locate.private_location(sys.argv[1], {})): print('in')"
    )
    with daemons.only_one(location):
        other = subprocess.Popen([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
    assert other.communicate(timeout=20)[0] == b"in\n"
