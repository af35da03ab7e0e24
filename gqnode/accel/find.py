"""Which accelerator library a node uses, and which device nodes its jobs may open only with a grant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gq.config import NodeSettings
from gq.model.node import Gpu
from gqnode.accel.fake import FakeAccelerators
from gqnode.accel.nvml import NvmlAccelerators
from gqnode.accel.protocol import Accelerators

ACCELERATORS: dict[str, Callable[[NodeSettings], Accelerators]] = {
    "nvml": lambda node: NvmlAccelerators(node.gpus),
    "fake": lambda node: FakeAccelerators(node.name, node.fake_gpus),
}
_NVIDIA_NODE = re.compile(r"nvidia\d+")


def open_accelerators(node: NodeSettings) -> Accelerators:
    """Pretended GPUs where the configuration has any, else NVIDIA's.  `UsageError` for a bad script."""
    return ACCELERATORS["fake" if node.fake_gpus else "nvml"](node)


def guarded_devices(gpus: Iterable[Gpu], dev: str = "/dev") -> tuple[str, ...]:
    """The device nodes of these GPUs and of every other NVIDIA GPU of the machine.

    Another node of the same machine may have the others, or they are in MIG mode: no job of this node may open them.
    """
    own = [gpu.device for gpu in gpus if gpu.device]
    machine = sorted(str(path) for path in Path(dev).iterdir() if _NVIDIA_NODE.fullmatch(path.name))
    return tuple(dict.fromkeys([*own, *machine]))
