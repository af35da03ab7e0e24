"""Whether GPUs are as they were before a job had them: its contexts gone, its memory back.

The driver takes a GPU's memory back a moment after the last process is gone; the next job must not find it missing.
Waits for that, so long and no longer: who holds a GPU from outside any job, or a library that hangs, keeps no job from
ending.  Says what it found, and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from gq.model.ids import AttemptId
from gqnode.accel.protocol import Accelerators, GpuSample
from gqnode.shell.threads import Threads

LONGEST_S = 10.0
AGAIN_S = 0.05
ANSWER_S = 5.0
SLACK_MIB = 64
"""What a driver may keep for itself."""


class Handover:
    """Used on the loop; the library is asked in a thread of its own, one call at a time."""

    def __init__(self, accelerators: Accelerators) -> None:
        self._accelerators = accelerators
        self._threads = Threads(1, "gqnode-gpus")
        self._does_answer = True
        self._before: dict[AttemptId, dict[int, int]] = {}
        """MiB in use on each GPU of an attempt before it began."""

    def close(self) -> None:
        self._threads.close()
        if self._does_answer:
            self._accelerators.close()

    async def begin(self, attempt_id: AttemptId, gpus: Sequence[int]) -> None:
        """Note how these GPUs are; nothing of the attempt uses those yet of which that is not noted."""
        if not gpus:
            return
        samples = await self.sample(gpus)
        used = {sample.index: sample.memory_used_mib for sample in samples if sample.memory_used_mib is not None}
        self._before[attempt_id] = used | self._before.get(attempt_id, {})

    async def end(self, attempt_id: AttemptId, gpus: Sequence[int]) -> str:
        """Nothing of the attempt runs any more: wait until its GPUs show it.  Empty, or what is wrong after all."""
        before = self._before.pop(attempt_id, {})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LONGEST_S
        while gpus and (left := _left(await self.sample(gpus), before)):
            if loop.time() >= deadline:
                return left
            await asyncio.sleep(AGAIN_S)
        return ""

    async def sample(self, gpus: Sequence[int]) -> list[GpuSample]:
        """Nothing, from a library that did not answer once: it is not asked again."""
        if not self._does_answer:
            return []
        try:
            samples = await asyncio.wait_for(self._threads.run(self._accelerators.sample), ANSWER_S)
        except TimeoutError:
            self._does_answer = False
            return []
        return [sample for sample in samples if sample.index in gpus]


def _left(samples: Sequence[GpuSample], before: dict[int, int]) -> str:
    for sample in samples:
        if dead := [process.pid for process in sample.processes if not Path(f"/proc/{process.pid}").exists()]:
            return f"GPU {sample.index} still has a context of process {dead[0]}, which is gone"
        more_mib = (sample.memory_used_mib or 0) - before.get(sample.index, sample.memory_used_mib or 0)
        if more_mib > SLACK_MIB:
            return f"GPU {sample.index} holds {more_mib} MiB more than before the job"
    return ""
