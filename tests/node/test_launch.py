import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gqnode.shepherd.launch import Program, launch
from gqnode.shepherd.specs import Confinement


@pytest.fixture
def deaf_parent() -> Iterator[None]:
    """As a shepherd, which outlives what ends its job."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("deaf_parent")
def test_a_signal_that_comes_before_the_program_runs_is_not_lost(tmp_path: Path) -> None:
    """The child waits early in its preparation (a FIFO as its cgroup), where it still ignores what we do."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = Program(
        argv=("true",),
        environment={"PATH": os.environ["PATH"]},
        cell="",
        chdir="/",
        umask=0o022,
        cgroup_procs=(str(gate),),
        identity=None,
        confinement=Confinement(),
    )
    launched = launch(program, lambda: (0, 1, 2))
    os.kill(launched.pid, signal.SIGTERM)
    with gate.open("rb") as file:
        file.read()
    _, status = os.waitpid(launched.pid, 0)
    os.close(launched.status_fd)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
