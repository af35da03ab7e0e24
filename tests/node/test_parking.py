"""What is looked at of an attempt that stands still for another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gq.model.resource import Grant
from gqnode.accel.protocol import GpuSample
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.daemon import gpu_memory
from gqnode.isolation.cell import Cell
from gqnode.isolation.protocol import Isolation
from gqnode.shepherd.processes import descendants, is_stopped
from tests.clusters import wait_until
from tests.node.agent_host import launch

CHILD = "import time; print(1, flush=True); time.sleep(60)"
SLEEPS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


BOTH = Grant(node="n1", cpus=(0, 1), gpus=(0, 1))
OWN, GUEST = launch(grant=BOTH), launch(job_id=8, grant=BOTH)


class Freezer:
    """Says so, and nothing else."""

    def __init__(self, is_frozen: bool | None) -> None:
        self.said = is_frozen

    def is_frozen(self, _cell: Cell) -> bool | None:
        return self.said


def is_stopped_within_wait(is_frozen: bool | None, shepherd: int) -> bool:
    isolation: Isolation = Freezer(is_frozen)  # type: ignore[assignment]
    return gpu_memory.is_stopped_within_wait(isolation, Cell("1.1"), shepherd)


@pytest.fixture
def shepherd() -> Iterator[subprocess.Popen[bytes]]:
    """With a child of its own."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline()
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_freezer_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "WAIT_S", 0.1)
    assert is_stopped_within_wait(True, 0)
    assert not is_stopped_within_wait(False, 0)


def test_without_a_freezer_all_processes_below_the_shepherd_must_be_stopped(
    shepherd: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "WAIT_S", 0.2)
    assert not is_stopped_within_wait(None, shepherd.pid)
    [child] = descendants(shepherd.pid)
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: is_stopped(child), 10.0, "it is stopped")
    assert is_stopped_within_wait(None, shepherd.pid)
    assert not is_stopped(shepherd.pid)


def test_who_has_no_shepherd_is_not_known_to_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "WAIT_S", 0.05)
    assert not is_stopped_within_wait(None, 0)


def test_a_gpu_that_does_not_tell_is_left_out() -> None:
    samples = [
        GpuSample(index=0, memory_used_mib=5),
        GpuSample(index=1),
        GpuSample(index=2, does_answer=False, memory_used_mib=7),
    ]
    assert gpu_memory.gpu_memory(samples) == ((0, 5),)


def test_what_another_job_runs_on_is_not_looked_at_when_one_that_lent_it_ends() -> None:
    own = AttemptRecord(launch=OWN, phase=Phase.STOPPING)
    other = AttemptRecord(launch=GUEST, phase=Phase.RUNNING)
    still = AttemptRecord(launch=GUEST, phase=Phase.RUNNING, suspended_at=1.0)
    assert gpu_memory.unshared_gpus(own, [own, other]) == ()
    assert gpu_memory.unshared_gpus(own, [own, still]) == (0, 1)
