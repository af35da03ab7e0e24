"""Checks on a suspended attempt whose GPUs another attempt is to use: is it stopped, and what memory does it hold?

Without a cgroup freezer its processes are stopped by signals through the shepherd, so their state is looked up.
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
    """Wait up to `WAIT_S` until the attempt is suspended; return whether it is.  Blocks."""
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
    """Return (GPU index, MiB in use) of the GPUs that report it."""
    known = ((sample.index, sample.memory_used_mib) for sample in samples if sample.does_answer)
    return tuple((index, mib) for index, mib in known if mib is not None)


def unshared_gpus(record: AttemptRecord, others: Iterable[AttemptRecord]) -> tuple[int, ...]:
    """Return the attempt's GPUs that no other running attempt uses."""
    running = (one for one in others if one is not record and one.phase in (Phase.STARTING, Phase.RUNNING))
    busy = {
        gpu
        for attempt_record in running
        if attempt_record.suspended_at is None
        for gpu in attempt_record.launch.grant.gpus
    }
    return tuple(gpu for gpu in record.launch.grant.gpus if gpu not in busy)
