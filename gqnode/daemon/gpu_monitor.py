"""The newest sample of each GPU, and the Xid errors since the daemon started.

Owns the thread in which the accelerator library is asked, one call at a time.  The library hands out each Xid once, so
every sample passes through here, whoever asks for it.  While a call hangs, no other call is made and the GPUs are
shown as not answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable

from gq.model.node import GpuReading, XidError
from gqnode.accel.protocol import Accelerators, GpuSample
from gqnode.daemon.threads import Threads

log = logging.getLogger(__name__)

ANSWER_S = 5.0
MAX_XIDS = 16
"""Newest Xid errors kept for each GPU: a broken GPU can report without end."""


class GpuMonitor:
    """Used on the loop.  `wall` is the node's clock."""

    def __init__(self, accelerators: Accelerators, wall: Callable[[], float]) -> None:
        self._accelerators = accelerators
        self._wall = wall
        self._threads = Threads(1, "gqnode-gpus")
        self._hung: asyncio.Future[tuple[GpuSample, ...]] | None = None
        self._readings: dict[int, GpuReading] = {}

    @property
    def readings(self) -> tuple[GpuReading, ...]:
        """The newest sample of each GPU, by index; empty before the first sample."""
        if not self._does_hang:
            return tuple(self._readings.values())
        return tuple(
            GpuReading(index=reading.index, does_answer=False, xids=reading.xids) for reading in self._readings.values()
        )

    @property
    def _does_hang(self) -> bool:
        return self._hung is not None and not self._hung.done()

    async def sample(self, gpus: Collection[int]) -> list[GpuSample]:
        """The present state of these GPUs; empty while the library hangs."""
        if self._does_hang:
            return []
        call = self._threads.run(self._accelerators.sample)
        await asyncio.wait([call], timeout=ANSWER_S)
        if not call.done():
            self._hung = call
            log.warning("the GPU library has not answered for %g s", ANSWER_S)
            return []
        samples = call.result()
        self._note(samples)
        return [sample for sample in samples if sample.index in gpus]

    async def watch(self, interval_s: float) -> None:
        """Take a sample every `interval_s` seconds, for ever."""
        while True:
            with contextlib.suppress(OSError):
                await self.sample(())
            await asyncio.sleep(interval_s)

    def close(self) -> None:
        self._threads.close()
        if not self._does_hang:
            self._accelerators.close()

    def _note(self, samples: Iterable[GpuSample]) -> None:
        for sample in samples:
            known = self._readings.get(sample.index)
            for xid in sample.xids:
                log.warning("GPU %d reports Xid %d", sample.index, xid)
            fresh = tuple(XidError(xid=xid, at=self._wall()) for xid in sample.xids)
            self._readings[sample.index] = GpuReading(
                index=sample.index,
                does_answer=sample.does_answer,
                utilisation_percent=sample.utilisation_percent,
                memory_used_mib=sample.memory_used_mib,
                xids=((known.xids if known else ()) + fresh)[-MAX_XIDS:],
            )
