"""Waits after a job until its GPUs are clean: its contexts gone, its memory freed.

The driver frees a GPU's memory a moment after the last process is gone; the next job must not find it missing.  The
wait is bounded: a process outside any job that holds the GPU, or a library that hangs, keeps no job from ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from gq.model.ids import AttemptId
from gqnode.accel.protocol import GpuSample
from gqnode.daemon.gpu_monitor import GpuMonitor

TIMEOUT_S = 10.0
POLL_S = 0.05
SLACK_MIB = 64
"""Memory that a driver may keep for itself."""


class GpuCleanup:
    """Remembers GPU memory before each attempt and waits for it afterwards; used on the loop."""

    def __init__(self, monitor: GpuMonitor) -> None:
        self.sample = monitor.sample
        self._before: dict[AttemptId, dict[int, int]] = {}
        """MiB in use on each GPU of an attempt before it began."""

    async def begin(self, attempt_id: AttemptId, gpus: Sequence[int]) -> None:
        """Note the memory in use on these GPUs before the attempt uses them."""
        if not gpus:
            return
        samples = await self.sample(gpus)
        used = {sample.index: sample.memory_used_mib for sample in samples if sample.memory_used_mib is not None}
        self._before[attempt_id] = used | self._before.get(attempt_id, {})

    async def end(self, attempt_id: AttemptId, gpus: Sequence[int]) -> str:
        """Wait until the GPUs of an ended attempt are clean; return the problem if they are not, else an empty text."""
        before = self._before.pop(attempt_id, {})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT_S
        while gpus and (left := _left(await self.sample(gpus), before)):
            if loop.time() >= deadline:
                return left
            await asyncio.sleep(POLL_S)
        return ""


def _left(samples: Sequence[GpuSample], before: dict[int, int]) -> str:
    for sample in samples:
        if dead := [process.pid for process in sample.processes if not Path(f"/proc/{process.pid}").exists()]:
            return f"GPU {sample.index} still has a context of process {dead[0]}, which has ended"
        more_mib = (sample.memory_used_mib or 0) - before.get(sample.index, sample.memory_used_mib or 0)
        if more_mib > SLACK_MIB:
            return f"GPU {sample.index} holds {more_mib} MiB more than before the job"
    return ""
