"""GPUs that are pretended by configuration, for tests and for trying gq out.

What one does over time may be scripted: a file of JSON lines, in the order of their instants, each of which holds until
the next.  Before the first, and without a script, the GPU is idle.

    {"at_s": 0, "utilisation_percent": 97, "memory_used_mib": 4000, "processes": [{"pid": 4711, "memory_mib": 4000}]}
    {"at_s": 60, "xids": [79]}

``at_s`` counts from the start of the daemon.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from gq.config.config import FakeGpuSettings
from gq.errors import UsageError
from gq.model.node import Gpu
from gqnode.accel.protocol import GpuProcess, GpuSample

_NAMESPACE = uuid.UUID("6f1c2a52-6c1b-4a53-9d6f-4be0c1d1f0a7")
"""Only has to be the same always: one node's pretended GPUs keep their names."""


class ScriptPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the script that drives the fake GPUs."""

    at_s: float
    utilisation_percent: int = 0
    memory_used_mib: int = 0
    processes: tuple[GpuProcess, ...] = ()
    xids: tuple[int, ...] = ()
    """Reported once, when this instant has come."""


class FakeAccelerators:
    """`clock` is only compared with itself."""

    def __init__(
        self, node: str, settings: Sequence[FakeGpuSettings], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gpus = tuple(_gpu(node, index, one) for index, one in enumerate(settings))
        self._scripts = tuple(read_script(setting.script) if setting.script else () for setting in settings)
        self._clock = clock
        self._start = clock()
        self._sampled_s = -1.0

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"{len(self._gpus)} GPUs are simulated",) if self._gpus else ()

    @property
    def attributes(self) -> dict[str, str]:
        return {}

    def discover(self) -> tuple[Gpu, ...]:
        return self._gpus

    def sample(self) -> tuple[GpuSample, ...]:
        earlier_s, self._sampled_s = self._sampled_s, self._clock() - self._start
        return tuple(
            _sample(gpu.index, script, earlier_s, self._sampled_s)
            for gpu, script in zip(self._gpus, self._scripts, strict=True)
        )

    def close(self) -> None:
        return


def read_script(path: str) -> tuple[ScriptPoint, ...]:
    """`UsageError` if the file cannot be read or a line is wrong."""
    try:
        points = tuple(
            msgspec.json.decode(line, type=ScriptPoint) for line in Path(path).read_bytes().splitlines() if line.strip()
        )
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError("bad_script", f"the script of a simulated GPU, {path}, cannot be read: {error}") from error
    if any(later.at_s < point.at_s for point, later in pairwise(points)):
        raise UsageError("bad_script", f"{path}: the lines are not in the order of at_s")
    return points


def _gpu(node: str, index: int, settings: FakeGpuSettings) -> Gpu:
    return Gpu(
        index=index,
        uuid=settings.uuid or f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}",
        type=settings.type,
        memory_mib=settings.memory_mib,
        device=settings.device,
        numa=settings.numa,
        is_fake=True,
        nvlink=settings.nvlink,
        pcie=settings.pcie,
    )


def _sample(index: int, script: Sequence[ScriptPoint], earlier_s: float, now_s: float) -> GpuSample:
    past = [point for point in script if point.at_s <= now_s]
    current = past[-1] if past else ScriptPoint(at_s=0)
    return GpuSample(
        index=index,
        utilisation_percent=current.utilisation_percent,
        memory_used_mib=current.memory_used_mib,
        processes=current.processes,
        xids=tuple(xid for point in past if point.at_s > earlier_s for xid in point.xids),
    )
