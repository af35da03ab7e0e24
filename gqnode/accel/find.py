"""Which accelerator library a node uses, and which device nodes its jobs may open only with a grant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gq.config.config import NodeSettings
from gq.model.node import Gpu
from gqnode.accel.fake import FakeAccelerators
from gqnode.accel.nvml import NvmlAccelerators
from gqnode.accel.protocol import Accelerators

ACCELERATORS: dict[str, Callable[[NodeSettings], Accelerators]] = {
    "nvml": lambda node: NvmlAccelerators(node.gpus),
    "fake": lambda node: FakeAccelerators(node.name, node.fake_gpus),
}
_NVIDIA_NODE = re.compile(r"nvidia\d+")
_NVIDIA_CONTROL = re.compile(r"nvidiactl|nvidia-modeset|nvidia-uvm(-tools)?|nvidia-nvswitch(\d+|ctl)")


def open_accelerators(node: NodeSettings) -> Accelerators:
    """Pretended GPUs where the configuration has any, else NVIDIA's.  `UsageError` for a bad script."""
    return ACCELERATORS["fake" if node.fake_gpus else "nvml"](node)


def guarded_devices(gpus: Iterable[Gpu], dev: str = "/dev") -> tuple[str, ...]:
    """The device nodes of these GPUs, of every other NVIDIA GPU of the machine, and of the parts of those in MIG mode.

    Another node of the same machine may have the others, and MIG is not given out: no job of this node may open them.
    """
    own = [gpu.device for gpu in gpus if gpu.device]
    parts = Path(dev, "nvidia-caps")
    mig = sorted(map(str, parts.iterdir())) if parts.is_dir() else []
    return tuple(dict.fromkeys([*own, *_named(_NVIDIA_NODE, dev), *mig]))


def control_devices(dev: str = "/dev") -> tuple[str, ...]:
    """NVIDIA's nodes that are no GPU: whoever uses one of the GPUs needs them, and nobody else does."""
    return _named(_NVIDIA_CONTROL, dev)


def _named(pattern: re.Pattern[str], dev: str) -> tuple[str, ...]:
    return tuple(sorted(str(path) for path in Path(dev).iterdir() if pattern.fullmatch(path.name)))
