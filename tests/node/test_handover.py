"""GPUs are handed on when they are as they were: with GPUs whose script says what they show when."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import pytest

from gq.model.ids import AttemptId, JobId
from gq.model.node import Gpu
from gqnode.accel.protocol import GpuProcess, GpuSample
from gqnode.daemon import gpu_cleanup, gpu_monitor
from gqnode.daemon.gpu_cleanup import GpuCleanup
from gqnode.daemon.gpu_monitor import GpuMonitor

ATTEMPT = AttemptId(JobId(7), 1)
GONE = 2**22 + 1
"""No process can have this number."""


class Gpus:
    """Each asking shows the next sample of GPU 0; the last one stays."""

    notes = ()

    def __init__(self, *shown: GpuSample, delay_s: float = 0.0) -> None:
        self.shown = list(shown)
        self.delay_s = delay_s
        self.asked = 0
        self.is_closed = False

    def discover(self) -> tuple[Gpu, ...]:
        return ()

    def sample(self) -> tuple[GpuSample, ...]:
        self.asked += 1
        time.sleep(self.delay_s)
        return (self.shown.pop(0) if len(self.shown) > 1 else self.shown[0],)

    def close(self) -> None:
        self.is_closed = True


def used(mib: int, *pids: int, index: int = 0) -> GpuSample:
    processes = tuple(GpuProcess(pid, 1) for pid in pids)
    return GpuSample(index=index, memory_used_mib=mib, processes=processes)


def run(gpus: Gpus, work: Callable[[GpuCleanup], Awaitable[str]]) -> str:
    async def inside() -> str:
        monitor = GpuMonitor(gpus, time.time)
        try:
            return await work(GpuCleanup(monitor))
        finally:
            monitor.close()

    return asyncio.run(inside())


async def whole_job(made: GpuCleanup) -> str:
    await made.begin(ATTEMPT, (0,))
    return await made.end(ATTEMPT, (0,))


def test_a_gpu_is_waited_for_until_its_memory_is_back_and_no_dead_process_has_a_context() -> None:
    gpus = Gpus(used(500), used(9000, GONE), used(9000), used(510, os.getpid()))

    assert run(gpus, whole_job) == ""
    assert gpus.asked == 4 and gpus.is_closed


@pytest.mark.parametrize(
    ("after", "left"),
    [
        (used(9000), "GPU 0 holds 8500 MiB more than before the job"),
        (used(500, GONE), f"GPU 0 still has a context of process {GONE}, which has ended"),
    ],
)
def test_what_does_not_come_back_is_said_after_a_while(
    monkeypatch: pytest.MonkeyPatch, after: GpuSample, left: str
) -> None:
    monkeypatch.setattr(gpu_cleanup, "TIMEOUT_S", 0.2)

    assert run(Gpus(used(500), after), whole_job) == left


def test_what_was_in_use_before_an_unknown_moment_is_not_held_against_the_job() -> None:
    gpus = Gpus(used(9000))

    assert run(gpus, lambda made: made.end(ATTEMPT, (0,))) == ""


def test_a_job_without_gpus_and_the_gpus_of_others_ask_and_wait_for_nothing() -> None:
    async def work(made: GpuCleanup) -> str:
        await made.begin(ATTEMPT, ())
        return await made.end(ATTEMPT, ())

    idle, others = Gpus(used(0)), Gpus(used(500), used(9000, GONE, index=3))

    assert run(idle, work) == "" and idle.asked == 0
    assert run(others, whole_job) == ""


def test_a_library_that_hangs_holds_up_one_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_monitor, "ANSWER_S", 0.1)
    gpus = Gpus(used(0), delay_s=0.5)

    assert run(gpus, whole_job) == ""
    assert gpus.asked == 1 and not gpus.is_closed
