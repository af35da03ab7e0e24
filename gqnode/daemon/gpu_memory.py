"""What is looked at of an attempt that stands still so that another one may have its GPUs.

Where there is no freezer its processes are stopped by signals, on their way through the shepherd: whether they stand
still is looked up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from gqnode.accel.protocol import GpuSample
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.isolation.cell import Cell
from gqnode.isolation.protocol import Isolation
from gqnode.shepherd.processes import descendants, is_stopped

WAIT_S = 3.0
POLL_S = 0.02


def is_stopped_within_wait(isolation: Isolation, cell: Cell, shepherd: int) -> bool:
    """Waits a moment for it.  Blocks."""
    deadline = time.monotonic() + WAIT_S
    while not _is_stopped(isolation, cell, shepherd):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_stopped(isolation: Isolation, cell: Cell, shepherd: int) -> bool:
    is_frozen = isolation.is_frozen(cell)
    if is_frozen is not None:
        return is_frozen
    return shepherd > 0 and all(map(is_stopped, descendants(shepherd)))


def gpu_memory(samples: Sequence[GpuSample]) -> tuple[tuple[int, int], ...]:
    """(GPU, MiB in use) of those that tell."""
    known = ((one.index, one.memory_used_mib) for one in samples if one.does_answer)
    return tuple((index, mib) for index, mib in known if mib is not None)


def unshared_gpus(record: AttemptRecord, others: Iterable[AttemptRecord]) -> tuple[int, ...]:
    """Its GPUs, without those that another attempt runs on: what is in their memory is that one's."""
    running = (one for one in others if one is not record and one.phase in (Phase.STARTING, Phase.RUNNING))
    busy = {gpu for one in running if one.suspended_at is None for gpu in one.launch.grant.gpus}
    return tuple(gpu for gpu in record.launch.grant.gpus if gpu not in busy)
