"""What gqnode knows of its GPUs between samples, with pretended GPUs whose script says what they show when."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from gq.config.settings import FakeGpuSettings
from gq.model.node import GpuReading, XidError
from gqnode.accel.fake import FakeAccelerators
from gqnode.accel.protocol import GpuSample
from gqnode.daemon import gpu_monitor
from gqnode.daemon.gpu_monitor import MAX_XIDS, GpuMonitor

SCRIPT = (
    {"at_s": 0, "utilisation_percent": 97, "memory_used_mib": 4000},
    {"at_s": 60, "xids": [79, 48]},
    {"at_s": 70, "xids": [13]},
)


def test_xids_are_kept_with_their_time_whoever_took_the_sample(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("\n".join(map(json.dumps, SCRIPT)))
    now = [0.0]
    gpus = FakeAccelerators("n1", [FakeGpuSettings(script=str(script)), FakeGpuSettings()], lambda: now[0])

    async def work() -> list[tuple[GpuReading, ...]]:
        monitor, seen = GpuMonitor(gpus, lambda: 1000 + now[0]), []
        for now[0] in (5.0, 61.0, 71.0, 72.0):
            await monitor.sample((1,))
            seen.append(monitor.readings)
        monitor.close()
        return seen

    early, first, second, last = asyncio.run(work())

    idle = GpuReading(index=1, utilisation_percent=0, memory_used_mib=0)
    assert early == (GpuReading(index=0, utilisation_percent=97, memory_used_mib=4000), idle)
    assert first[0].xids == (XidError(xid=79, at=1061), XidError(xid=48, at=1061))
    assert second[0].xids == (*first[0].xids, XidError(xid=13, at=1071))
    assert last == second


class Hanging(FakeAccelerators):
    """One GPU; a sample is answered when `may_answer` is set, and reports a hundred Xids."""

    def __init__(self) -> None:
        super().__init__("n1", [FakeGpuSettings()])
        self.may_answer = threading.Event()
        self.may_answer.set()

    def sample(self) -> tuple[GpuSample, ...]:
        self.may_answer.wait()
        return (GpuSample(index=0, utilisation_percent=5, xids=tuple(range(100))),)


def test_gpus_do_not_answer_while_the_library_hangs_and_answer_again_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_monitor, "ANSWER_S", 0.05)

    async def work() -> None:
        gpus = Hanging()
        monitor = GpuMonitor(gpus, lambda: 1.0)
        assert len(await monitor.sample((0,))) == 1
        assert [error.xid for error in monitor.readings[0].xids] == list(range(100 - MAX_XIDS, 100))
        gpus.may_answer.clear()
        assert await monitor.sample((0,)) == []
        assert [(one.does_answer, one.utilisation_percent) for one in monitor.readings] == [(False, None)]
        gpus.may_answer.set()
        async with asyncio.timeout(20):
            while not monitor.readings[0].does_answer:
                await asyncio.sleep(0.005)
        assert len(await monitor.sample((0,))) == 1
        monitor.close()

    asyncio.run(work())
